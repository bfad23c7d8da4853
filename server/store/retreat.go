package store

import (
	"fmt"
	"sync"

	"triphammer/server/store/internal/engine"
)

// A database can go back: a standby takes over that lacks the last commits, or an older copy is
// put in its place. Then an apply that was acknowledged is not live any more, and what it took out
// of use, such as an old secret, would be valid again. So each process remembers what it has
// seen, and takes no delivery until an apply is newer than that (SPEC 17.2).

// ErrWentBack refuses what an apply of before would decide, because the database has lost a newer
// one.
var ErrWentBack = fmt.Errorf("%w: the database went back, as when a standby takes over that lacks the last commits", ErrUnavailable)

// retreats are what a process has seen of the database, and lost.
type retreats struct {
	mu     sync.Mutex
	newest map[string]seenApply // by factory
	lost   map[string]bool      // the factories whose newest apply the database lost, and that no newer one has replaced
	told   string               // of the last retreat; empty: there was none
}

type seenApply struct {
	id          ApplyID
	generations map[string]int64 // of the secrets that it uses
}

// Saw remembers an apply that is live, with its webhooks. Until it, or a newer one, is live in the
// database, nothing is decided for its factory.
func (s *Applies) Saw(factory string, id ApplyID, webhooks []BoundWebhook) {
	s.retreats.mu.Lock()
	defer s.retreats.mu.Unlock()
	if id <= s.retreats.newest[factory].id {
		return
	}
	generations := make(map[string]int64)
	for _, w := range webhooks {
		generations[w.SecretName] = max(w.Generation, generations[w.SecretName])
	}
	if s.retreats.newest == nil {
		s.retreats.newest, s.retreats.lost = make(map[string]seenApply), make(map[string]bool)
	}
	s.retreats.newest[factory] = seenApply{id, generations}
	if s.retreats.lost[factory] {
		delete(s.retreats.lost, factory)
		s.Logger.Warn("a newer apply replaces the one that the database lost: deliveries are taken again", "factory", factory, "apply", id)
	}
}

// forward is the error ErrWentBack if an apply, which is the live one by the database, is older than
// one that this process has seen.
func (s *Applies) forward(factory string, live ApplyID) error {
	s.retreats.mu.Lock()
	defer s.retreats.mu.Unlock()
	seen := s.retreats.newest[factory].id
	if live >= seen {
		return nil
	}
	err := fmt.Errorf("%w: it lacks %s of the factory %s, which was live. No delivery of it is taken until the definitions are applied anew: triphammer apply", ErrWentBack, seen, factory)
	if !s.retreats.lost[factory] {
		s.retreats.lost[factory] = true
		s.Logger.Error("the database went back behind an apply that was live", "error", err, "factory", factory, "live_now", orNone(live))
	}
	return err
}

// replaces tells whether an apply may replace one that the database lost: it was made from that,
// and has no secret of before.
func (s *Applies) replaces(a *Apply) error {
	s.retreats.mu.Lock()
	defer s.retreats.mu.Unlock()
	seen := s.retreats.newest[a.Factory]
	if a.Base != seen.id {
		return ErrStale
	}
	for _, w := range a.Webhooks {
		if w.Generation < seen.generations[w.SecretName] {
			return fmt.Errorf("%w: it lacks the newest value of the secret %s, and the one that it has was out of use. Set it again: triphammer secrets set %s; then: triphammer apply",
				ErrWentBack, w.SecretName, w.SecretName)
		}
	}
	return nil
}

// retreated tells that the database lacks transactions that this process has seen.
func (s *Applies) retreated(has, had int64) {
	at := s.Now().UTC().Format("2006-01-02T15:04:05Z")
	text := fmt.Sprintf("at %s the database had gone back: it lacked what was acknowledged after %s. What senders and callers were told then is lost",
		at, engine.TimeOfID(has).UTC().Format("2006-01-02T15:04:05Z"))
	s.Logger.Error("the database went back behind what was acknowledged", "said", text, "newest_id", has, "was", had)
	s.retreats.mu.Lock()
	defer s.retreats.mu.Unlock()
	s.retreats.told = text
}

// problems are the retreats, in words.
func (r *retreats) problems() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told != "" {
		all = append(all, r.told)
	}
	for factory := range r.lost {
		all = append(all, fmt.Sprintf("the database lost %s of the factory %s: no delivery of it is taken until the definitions are applied anew (triphammer apply)", r.newest[factory].id, factory))
	}
	return all
}
