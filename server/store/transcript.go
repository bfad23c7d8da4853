package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"triphammer/server/store/internal/engine"
)

// Event is one entry of a run's transcript.
type Event struct {
	Seq  int64 // from 1, without gaps
	At   time.Time
	Kind string
	Data json.RawMessage
}

// Transcripts are the events of runs, in their order.
type Transcripts struct{ *db }

// Append adds to the transcript of a run that the lease holds. The caller
// numbers the events. Events that are there already stay: the caller may not know that they
// are, because a connection was lost while they were committed. Another event with the number
// of one that is there is an error.
func (s *Transcripts) Append(ctx context.Context, l Lease, events []Event) error {
	return s.append(ctx, l, events, s.Grow)
}

// MaxLastEvents is the most bytes of data that Transcripts.AppendLast takes while the disk
// is full.
const MaxLastEvents = 64 << 10

// AppendLast is Append for the end of a transcript: the last words of a
// run are also taken on a full disk.
func (s *Transcripts) AppendLast(ctx context.Context, l Lease, events []Event) error {
	size := 0
	for _, e := range events {
		size += len(e.Data)
	}
	if size > MaxLastEvents {
		return s.Append(ctx, l, events)
	}
	return s.append(ctx, l, events, s.Do)
}

func (s *Transcripts) append(ctx context.Context, l Lease, events []Event, commit func(context.Context, func(*engine.Tx) error) error) error {
	return commit(ctx, func(tx *engine.Tx) error {
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET updated_at = $1", s.stamp(tx)); err != nil {
			return err
		}
		for _, e := range events {
			at, data := micros(e.At), string(e.Data)
			err := tx.Exec(`INSERT INTO run_events (run_id, seq, at, kind, data, digest) VALUES ($1, $2, $3, $4, $5, $6)
				ON CONFLICT (run_id, seq) DO UPDATE SET seq = CASE WHEN run_events.digest = excluded.digest THEN excluded.seq END`, // NULL is refused
				l.RunID, e.Seq, at, e.Kind, data, EventDigest(l.RunID, e.Seq, at, e.Kind, data))
			if err != nil {
				return fmt.Errorf("transcript of %s: %w", l.RunID, err)
			}
		}
		return nil
	})
}

// countEvents stores the length of the transcript in the row of a run that ends.
const countEvents = "events = (SELECT coalesce(max(seq), 0) FROM run_events WHERE run_id = runs.id)"

// List reads a transcript after the event numbered after, in order. The error
// wraps ErrDamaged if an event is missing, or is not what was stored.
func (s *Transcripts) List(ctx context.Context, run RunID, after int64, limit int) ([]Event, error) {
	// Read before the events: of a run that has ended they are all there.
	count, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (count sql.NullInt64, err error) {
		err = rows.Scan(&count)
		return count, err
	}, "SELECT events FROM runs WHERE id = $1", run))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	all, err := engine.List(ctx, s.DB, s.scanEvent(run), selectEvents+" AND seq > $2 ORDER BY seq LIMIT $3", run, after, limit)
	if err != nil || s.trusting {
		return all, err
	}
	last := after
	for i, e := range all {
		// What is deleted with its age goes from the beginning.
		if e.Seq != last+1 && (i > 0 || count.Valid) {
			return nil, s.damage("the transcript of %s after event %d", run, last)
		}
		last = e.Seq
	}
	if count.Valid && len(all) < limit && max(last, after) < count.Int64 {
		return nil, s.damage("the end of the transcript of %s", run)
	}
	return all, nil
}

const selectEvents = "SELECT seq, at, kind, data, digest FROM run_events WHERE run_id = $1"

func (s *Transcripts) scanEvent(run RunID) func(*sql.Rows) (Event, error) {
	return func(rows *sql.Rows) (Event, error) { return s.scanOf(rows, &run) }
}

// scanOf scans the columns of selectEvents, after others that it scans into before.
func (s *Transcripts) scanOf(rows *sql.Rows, run *RunID, before ...any) (e Event, err error) {
	var at int64
	var data string
	var digest sql.NullInt64
	err = rows.Scan(append(before, &e.Seq, &at, &e.Kind, &data, &digest)...)
	e.At, e.Data = timeOf(at), json.RawMessage(data)
	if err == nil && !s.sound(int64(*run), digest, EventDigest(*run, e.Seq, at, e.Kind, data)) {
		err = s.damage("event %d of the transcript of %s", e.Seq, *run)
	}
	return e, err
}

// OfAutomation reads the newest events of a kind of the transcripts of an automation's runs that
// were created since a time and have started; the newest run first.
func (s *Transcripts) OfAutomation(ctx context.Context, factory, automation, kind string, since time.Time, limit int) ([]Event, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (Event, error) {
		var run RunID
		return s.scanOf(rows, &run, &run)
	}, `SELECT run_id, seq, at, kind, data, digest FROM run_events WHERE kind = $1 AND run_id IN (SELECT id FROM runs WHERE state IN ('HELD', 'INPROGRESS', 'SUCCEEDED', 'FAILED', 'CANCELLED')
		AND state <> 'QUEUED' AND group_id IN (SELECT id FROM run_groups WHERE automation = $2 AND factory = $3) AND id >= $4) ORDER BY run_id DESC, seq DESC LIMIT $5`,
		kind, automation, factory, engine.IDAt(since), limit)
}

// maxEventsOf bounds what Transcripts.OfKinds returns.
const maxEventsOf = 10_000

// OfKinds reads the events of some kinds, in order. The error wraps ErrDamaged if one is
// not what was stored.
func (s *Transcripts) OfKinds(ctx context.Context, run RunID, kinds ...string) ([]Event, error) {
	return s.Page(ctx, run, EventPage{Kinds: kinds, Limit: maxEventsOf})
}

// EventPage selects a part of a transcript; zero fields select all.
type EventPage struct {
	After, Before int64    // the numbers between which the events are; Before 0: to the end
	Newest        bool     // of more than Limit events, the last ones instead of the first
	Kinds         []string // without twins
	Limit         int
}

// Page reads a part of a transcript, in order. The error wraps ErrDamaged if an event
// is not what was stored. Unlike Events, it does not notice a missing one.
func (s *Transcripts) Page(ctx context.Context, run RunID, p EventPage) ([]Event, error) {
	query, args := p.query(run)
	return engine.List(ctx, s.DB, s.scanEvent(run), query, args...)
}

func (p EventPage) query(run RunID) (query string, args []any) {
	w := where{}
	w.add("run_id = ?", run)
	w.add("seq > ?", p.After)
	if p.Before > 0 {
		w.add("seq < ?", p.Before)
	}
	order := fmt.Sprintf(" ORDER BY seq LIMIT %d", p.Limit)
	if p.Newest {
		order = fmt.Sprintf(" ORDER BY seq DESC LIMIT %d", p.Limit)
	}
	// The numbers first, from an index alone: only the events of the page are read. The index
	// of the kinds has the numbers of each kind in their order.
	numbers, between := "SELECT seq FROM run_events"+w.sql(), ""
	if len(p.Kinds) > 0 {
		ofKind := numbers + " AND "
		numbers = "SELECT seq FROM ("
		for _, kind := range p.Kinds {
			numbers += between + "SELECT * FROM (" + ofKind + w.bind("kind = ?", kind) + order + ") AS one"
			between = " UNION ALL "
		}
		numbers += ") AS kinds"
	}
	return selectEvents + " AND seq IN (" + numbers + order + ") ORDER BY seq", w.args
}

// Counts is how many events of each kind a transcript has.
func (s *Transcripts) Counts(ctx context.Context, run RunID) (map[string]int64, error) {
	counts := make(map[string]int64)
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var kind string
		var n int64
		err = rows.Scan(&kind, &n)
		counts[kind] = n
		return none, err
	}, "SELECT kind, count(*) FROM run_events WHERE run_id = $1 GROUP BY kind", run)
	return counts, err
}

// CountsOf is how many events of a kind the transcripts of runs have.
func (s *Transcripts) CountsOf(ctx context.Context, kind string, runs ...RunID) (map[RunID]int64, error) {
	w, counts := where{}, make(map[RunID]int64)
	w.add("kind = ?", kind)
	w.add(in(&w, "run_id", runs))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var run RunID
		var n int64
		err = rows.Scan(&run, &n)
		counts[run] = n
		return none, err
	}, "SELECT run_id, count(*) FROM run_events"+w.sql()+" GROUP BY run_id", w.args...)
	return counts, err
}

// First is when the first event of a kind came; zero if none did.
func (s *Transcripts) First(ctx context.Context, run RunID, kind string) (time.Time, error) {
	var at int64
	err := s.Read.QueryRowContext(ctx, "SELECT at FROM run_events WHERE run_id = $1 AND kind = $2 ORDER BY seq LIMIT 1", run, kind).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return timeOf(at), err
}

// Last is the number of the newest event; 0 if there is none.
func (s *Transcripts) Last(ctx context.Context, run RunID) (int64, error) {
	var last int64
	err := s.Read.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM run_events WHERE run_id = $1", run).Scan(&last)
	return last, err
}
