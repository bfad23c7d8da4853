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

// TestClockOverRestarts (R26): a clock that jumped is not believed because the server was
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
