package store

import (
	"io"
	"log/slog"
	"testing"
	"time"
)

// machine is a clock that can be set, and what passes whatever it shows.
type machine struct {
	passed time.Duration
	set    time.Duration // how far it was set
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (m *machine) wall() time.Time { return noon.Add(m.passed + m.set) }

const day = 24 * time.Hour

// TestClock: what the store thinks of a clock, from a start and over what happens
// then.
func TestClock(t *testing.T) {
	type look struct {
		after  time.Duration // since the look before
		set    time.Duration // the clock, by so much since then
		accept bool
		// What is wanted: whether it is in doubt, and how far off from what has passed
		// since noon the two times are.
		doubted        bool
		latest, agreed time.Duration
	}
	for _, c := range []struct {
		name  string
		seen  time.Duration // before noon; the clock shows noon at the start
		looks []look
	}{
		{"nothing was seen", -1, []look{{}, {after: day}}},
		{"a quick restart", time.Minute, []look{{}, {after: day}}},
		{"off for a night", 20 * time.Hour, []look{{}}},
		{"off for a month", 30 * day, []look{
			{doubted: true, agreed: -30 * day},
			{after: 59 * time.Minute, doubted: true, agreed: -30 * day},
			{after: time.Minute},
			{after: day},
		}},
		{"ten years ahead, put right", 3650 * day, []look{
			{doubted: true, agreed: -3650 * day},
			{after: 30 * time.Minute, set: -3650 * day, latest: -3650 * day, agreed: -3650 * day},
			{after: 2 * time.Hour, latest: -3650 * day, agreed: -3650 * day},
		}},
		{"ten years ahead, set about", 3650 * day, []look{
			{doubted: true, agreed: -3650 * day},
			{after: 50 * time.Minute, set: -365 * day, doubted: true, latest: -365 * day, agreed: -3650 * day},
			{after: 50 * time.Minute, doubted: true, latest: -365 * day, agreed: -3650 * day},
			{after: 10 * time.Minute, latest: -365 * day, agreed: -365 * day},
		}},
		{"a month, accepted", 30 * day, []look{{doubted: true, agreed: -30 * day}, {after: time.Second, accept: true}, {after: day}}},
		{"a day back", -day, []look{
			{doubted: true, latest: day},
			{after: 59 * time.Minute, doubted: true, latest: day},
			{after: time.Minute, latest: day}, // believed, but nothing comes back to life
			{after: 2 * day, latest: day},
		}},
		{"a day back, put right", -day, []look{{doubted: true, latest: day}, {after: time.Minute, set: day, latest: day, agreed: day}}},
		{"a day back, accepted", -day, []look{{doubted: true, latest: day}, {accept: true}}},
		{"a minute back", -time.Minute, []look{{latest: time.Minute}, {after: day, latest: time.Minute}}},
		{"set while it runs", time.Minute, []look{
			{},
			{after: time.Hour, set: 59 * time.Minute, latest: 59 * time.Minute, agreed: 59 * time.Minute},
			{after: time.Hour, set: day, doubted: true, latest: day + 59*time.Minute, agreed: 59 * time.Minute},
			{after: time.Hour, latest: day + 59*time.Minute, agreed: day + 59*time.Minute},
			{after: time.Hour, set: -2 * time.Hour, doubted: true, latest: day + 59*time.Minute, agreed: day - 61*time.Minute},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{}
			clock := clock{wall: m.wall, passed: func() time.Duration { return m.passed }, logger: slog.New(slog.DiscardHandler)}
			seen := noon.Add(-c.seen)
			if c.seen == -1 {
				seen = time.Time{}
			}
			clock.start(seen)
			for i, l := range c.looks {
				m.passed += l.after
				m.set += l.set
				if l.accept {
					clock.accept()
				}
				latest, agreed := clock.latest().Sub(noon.Add(m.passed)), clock.agreed().Sub(noon.Add(m.passed))
				if doubted := clock.doubted != (moment{}); doubted != l.doubted || latest != l.latest || agreed != l.agreed {
					t.Errorf("look %d: in doubt %t, latest %v, agreed %v, not %t, %v, %v", i, doubted, latest, agreed, l.doubted, l.latest, l.agreed)
				}
			}
		})
	}
}

// TestClockOverRestarts: a clock that jumped is not believed because the server was
// restarted, and what its rows say does not make it so.
func TestClockOverRestarts(t *testing.T) {
	s := open(t)
	m := &machine{}
	s.cfg.Now, s.cfg.Passed = m.wall, func() time.Duration { return m.passed }
	s.cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s.reopen(t)
	doubted := func(want bool) {
		t.Helper()
		if said := s.Clock().Doubted(); (said != "") != want {
			t.Errorf("in doubt: %q", said)
		}
	}
	record := func(id string) {
		t.Helper()
		d := delivery(id, "{}")
		d.ReceivedAt = m.wall()
		must[Recorded](t)(s.Deliveries.Record(t.Context(), d))
	}
	record("1")
	key, token, err := s.Keys.Create(t.Context(), Key{Name: "k", Kind: KeyPersonal, Scopes: []string{ScopeRead}, ExpiresAt: m.wall().Add(time.Hour)})
	check(t, err)
	link := must[string](t)(s.Sessions.CreateLoginLink(t.Context(), LoginLink{Person: "ada", Life: time.Hour, Idle: time.Hour}, time.Minute))
	session, _, err := s.Sessions.RedeemLoginLink(t.Context(), link, Visitor{})
	check(t, err)
	run, _, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Source: SourceAPI}, "once", []byte("{}"))
	check(t, err)

	// Ten years ahead, over two restarts that write.
	for range 2 {
		m.set = 3650 * day
		s.reopen(t)
		doubted(true)
		record("2")
		m.passed += time.Minute
	}
	if again, created, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Source: SourceAPI}, "once", []byte("{}")); err != nil || created || again.ID != run.ID {
		t.Errorf("an idempotency key is forgotten: %v, %v, %v", again, created, err)
	}
	// Right again: nothing has ended, and it ends in its time.
	m.set = 0
	s.reopen(t)
	doubted(false)
	if _, err := s.Keys.ByToken(t.Context(), token.Reveal()); err != nil {
		t.Errorf("key %s: %v", key.Name, err)
	}
	must[*PageSession](t)(s.Sessions.ByToken(t.Context(), session))
	m.passed += time.Hour
	s.reopen(t)
	record("3")
	ended := func() {
		t.Helper()
		if _, err := s.Keys.ByToken(t.Context(), token.Reveal()); err == nil {
			t.Error("a key that has ended works")
		}
		if _, err := s.Sessions.ByToken(t.Context(), session); err == nil {
			t.Error("a session that has ended works")
		}
	}
	ended()
	// A day back: what has ended stays so, also when nobody is left to remember.
	for range 2 {
		m.set = -day
		s.reopen(t)
		doubted(true)
		ended()
	}
	// What is made now works as long as it should.
	link = must[string](t)(s.Sessions.CreateLoginLink(t.Context(), LoginLink{Person: "ada", Life: time.Hour, Idle: time.Hour}, time.Minute))
	session, _, err = s.Sessions.RedeemLoginLink(t.Context(), link, Visitor{})
	check(t, err)
	m.passed += 59 * time.Minute
	must[*PageSession](t)(s.Sessions.ByToken(t.Context(), session))
	m.passed += time.Minute
	ended()
	check(t, s.AcceptClock(t.Context()))
	s.reopen(t)
	doubted(false)
}
