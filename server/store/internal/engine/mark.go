package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A loss at the end of the write-ahead log leaves no trace: for SQLite, a log ends where
// its checksums end. So the number of transactions is kept twice: in the store, and in a
// file beside it. If the number in the file is larger, the store has lost acknowledged
// transactions.

// mark is the number of transactions at a time.
type mark struct {
	commits int64
	at      time.Time
}

func markFile(path string) string { return path + "-commits" }

// text is the mark as the file has it, of the same length each time.
func (m mark) text() string {
	line := fmt.Sprintf("commits %020d at %s", m.commits, m.at.UTC().Format("2006-01-02T15:04:05Z"))
	return fmt.Sprintf("%s %016x\n", line, xxhash.Sum64String(line))
}

// readMark reads the file; a mark that is damaged, or missing, is none.
func readMark(path string) (m mark, err error) {
	text, err := os.ReadFile(markFile(path))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return mark{}, err
	}
	var at string
	if _, err := fmt.Sscanf(string(text), "commits %d at %s", &m.commits, &at); err != nil {
		return mark{}, nil
	}
	if m.at, err = time.Parse(time.RFC3339, at); err != nil || m.text() != string(text) {
		return mark{}, nil
	}
	return m, nil
}

// compareMarks looks whether the store has lost transactions, and goes on
// counting after all that there were.
func (s *DB) compareMarks(ctx context.Context, path string) error {
	has := int64(0)
	text, err := s.meta(ctx, "commits")
	if err == nil && text != "" {
		has, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return err
	}
	was, err := readMark(path)
	if err != nil {
		return err
	}
	if s.base, s.marked = max(has, was.commits), has; was.commits > has {
		s.lost = Loss{AtMost: was.commits - has, From: TimeOfID(s.lastID), Until: was.at}
		s.Logger.Error("the store has lost transactions that were acknowledged: its write-ahead log was damaged, or it was replaced by an older copy",
			"at_most", s.lost.AtMost, "newest_entry", s.lost.From.UTC(), "acknowledged_until", s.lost.Until)
	}
	s.markFile, err = os.OpenFile(markFile(path), os.O_CREATE|os.O_RDWR, 0o600)
	return err
}

// noteAfter is how much time must have passed for a note of the time alone: at a start.
const noteAfter = 10 * time.Minute

// mark notes how many transactions there were, if there were more, and how late it
// is. It runs on the writer a second after a transaction, and is not told of in the log when it
// fails: so do the deliveries, then.
func (s *DB) mark(ctx context.Context) {
	m := mark{s.base + s.commits.Load(), s.seen}
	if m.commits == s.marked && s.seen.Sub(s.noted) < noteAfter {
		return
	}
	err := s.transaction(ctx, nil, func(ctx context.Context) error {
		return errors.Join(s.setMeta(ctx, "commits", strconv.FormatInt(m.commits, 10)), s.noteTime(ctx, s.seen))
	})
	if isUnsynced(err) {
		s.unsynced.Store(true)
	}
	if err != nil {
		return
	}
	s.marked = m.commits
	_, _ = s.markFile.WriteAt([]byte(m.text()), 0)
}

// Loss is how much acknowledged data a store lacks: at most so many transactions (those
// since the last number that it has), between its newest entry and the last number that
// was noted.
type Loss struct {
	AtMost      int64 // 0: nothing is missing
	From, Until time.Time
}

func (l Loss) String() string {
	return fmt.Sprintf("up to %d transactions, acknowledged between %s and %s", l.AtMost, l.From.UTC().Format(time.RFC3339), l.Until.UTC().Format(time.RFC3339))
}

// Lost is the loss that was found when the store was opened.
func (s *DB) Lost() Loss { return s.lost }
