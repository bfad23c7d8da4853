package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

const (
	// maxAhead is how far the clock may be ahead, at a start, of the newest time that the
	// store has seen: a server may have been off for so long.
	maxAhead = 24 * time.Hour
	// maxMoved is how far a clock may be set while the server runs, or be behind at a
	// start.
	maxMoved = time.Hour
	// agreement is how long a clock that jumped must run steadily until it is believed
	// without a person.
	agreement = time.Hour
	// steady is how much it may deviate in that time.
	steady = time.Minute
)

// clock checks the machine's clock against the newest time that the store has seen and
// the time that has passed since. A clock that jumped ahead would make everything old,
// and one that jumped back would make expired credentials valid again. So while the clock
// is in doubt, nothing is deleted by its age, and nothing expired becomes valid.
type clock struct {
	wall   func() time.Time
	passed func() time.Duration // since any moment, whatever the wall clock shows
	logger *slog.Logger

	mu sync.Mutex
	// trusted is what the clock showed when it was last believed; newest is the
	// newest time that was. Both go on with what has passed.
	trusted, newest moment
	doubted         moment // since when it goes on as it is, unbelieved; zero: it is believed
}

// moment is a time, and how much had passed then.
type moment struct {
	at     time.Time
	passed time.Duration
}

func (m moment) after(passed time.Duration) time.Time { return m.at.Add(passed - m.passed) }

// start compares the clock with the newest time that was seen; zero: none was.
func (c *clock) start(seen time.Time) {
	now, passed := c.wall(), c.passed()
	if seen.IsZero() {
		seen = now
	}
	c.trusted, c.newest = moment{now, passed}, moment{seen, passed}
	if d := now.Sub(seen); d > maxAhead || d < -maxMoved {
		c.trusted = moment{seen, passed}
		c.doubt(moment{now, passed})
	}
	c.look()
}

func (c *clock) doubt(now moment) {
	c.doubted = now
	c.logger.Error("the clock jumped: nothing is deleted by its age until it has gone on like this for an hour, or somebody says that it is right (triphammer clock accept)",
		"shows", now.at.UTC().Format(time.RFC3339), "expected", c.trusted.after(now.passed).UTC().Format(time.RFC3339))
}

// look reads the clock and updates the doubt. The caller holds the lock, or is start.
func (c *clock) look() moment {
	now := moment{c.wall(), c.passed()}
	doubted := c.doubted != moment{}
	switch moved := now.at.Sub(c.trusted.after(now.passed)); {
	case moved.Abs() <= maxMoved:
		if doubted {
			c.logger.Info("the clock is right again")
		}
		c.trusted, c.doubted = now, moment{}
	case !doubted || now.at.Sub(c.doubted.after(now.passed)).Abs() > steady:
		c.doubt(now)
	case now.passed-c.doubted.passed >= agreement:
		c.logger.Warn("the clock has gone on for an hour since it jumped, and is believed", "shows", now.at.UTC().Format(time.RFC3339))
		c.trusted, c.doubted = now, moment{}
	}
	if c.newest = (moment{c.newest.after(now.passed), now.passed}); c.doubted == (moment{}) && now.at.After(c.newest.at) {
		c.newest = now
	}
	return now
}

// latest never goes back. Credentials expire by it.
func (c *clock) latest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.look(); now.at.After(c.newest.at) {
		return now.at
	}
	return c.newest.at
}

// agreed is the clock's time, or the time that it would show if it had not jumped ahead.
// Old data is deleted by it.
func (c *clock) agreed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if expected := c.trusted.after(now.passed); c.doubted != (moment{}) && expected.Before(now.at) {
		return expected
	}
	return now.at
}

// believed is the clock's time, or the time that it would show if it had not jumped.
func (c *clock) believed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if c.doubted != (moment{}) {
		return c.trusted.after(now.passed)
	}
	return now.at
}

// seen is the newest time that was believed.
func (c *clock) seen() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return c.newest.at
}

// accept believes the clock, whatever was seen before.
func (c *clock) accept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := moment{c.wall(), c.passed()}
	c.trusted, c.newest, c.doubted = now, now, moment{}
}

// Clock says whether the store believes the machine's clock.
type Clock struct {
	Now      time.Time // what it shows
	Expected time.Time // what it would show if it had not jumped
	Until    time.Time // in doubt until it shows this; zero: it is believed
}

// Ahead is by how much it jumped; negative: back.
func (c Clock) Ahead() time.Duration { return c.Now.Sub(c.Expected) }

// Doubted describes the doubt in words; empty if there is none.
func (c Clock) Doubted() string {
	if c.Until.IsZero() {
		return ""
	}
	how, ahead := "ahead of", c.Ahead().Round(time.Minute)
	if ahead < 0 {
		how, ahead = "behind", -ahead
	}
	return fmt.Sprintf("%s %s what the store expects (%s). Nothing is deleted by its age until the clock is right, has gone on like this until %s, or somebody says that it is right: triphammer clock accept",
		days(ahead), how, c.Expected.UTC().Format(time.RFC3339), c.Until.UTC().Format(time.RFC3339))
}

// days writes a long time.
func days(d time.Duration) string {
	if n := int64(d.Hours() / 24); n >= 2 {
		return fmt.Sprintf("%d days", n)
	}
	return d.String()
}

// Clock tells whether the clock is believed.
func (s *DB) Clock() Clock {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	out := Clock{Now: now.at, Expected: c.trusted.after(now.passed)}
	if c.doubted != (moment{}) {
		out.Until = c.doubted.at.Add(agreement)
	}
	return out
}

// Latest is the machine's time, except that it never goes back, also across a restart.
// Credentials expire by it.
func (s *DB) Latest() time.Time { return s.clock.latest() }

// Agreed is the machine's time, or the time that it would show if it had not jumped ahead. Old data
// is deleted by it.
func (s *DB) Agreed() time.Time { return s.clock.agreed() }

// Believed is the machine's time, or the time that it would show if it had not jumped.
func (s *DB) Believed() time.Time { return s.clock.believed() }

// AcceptClock believes what the clock shows from now on, also if it went back.
func (s *DB) AcceptClock(ctx context.Context) error {
	s.clock.accept()
	seen := s.clock.seen()
	return s.Do(ctx, func(tx *Tx) error {
		s.seen = seen
		return s.noteTime(tx.ctx, seen)
	})
}

// noteTime keeps the newest time that was believed. It runs on the writer.
func (s *DB) noteTime(ctx context.Context, seen time.Time) error {
	if err := s.setMeta(ctx, "seen", strconv.FormatInt(seen.UnixMicro(), 10)); err != nil {
		return err
	}
	s.noted = seen
	return nil
}

// startClock reads what was seen before.
func (s *DB) startClock(ctx context.Context) error {
	text, err := s.meta(ctx, "seen")
	if err != nil {
		return err
	}
	var seen time.Time
	if us, err := strconv.ParseInt(text, 10, 64); err == nil && us > 0 {
		seen = time.UnixMicro(us).UTC()
	}
	// The newest rows can be a little newer. If they are much newer, a clock that was
	// not believed wrote them.
	if s.lastID > 0 {
		if rows := TimeOfID(s.lastID); seen.IsZero() || rows.After(seen) && rows.Sub(seen) <= maxAhead {
			seen = rows
		}
	}
	s.noted = seen
	s.clock.start(seen)
	s.seen = s.clock.seen()
	return nil
}
