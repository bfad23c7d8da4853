package store

import (
	"context"
	"fmt"
	"time"

	"triphammer/server/store/internal/engine"
)

// memory is what the writer remembers of the store, so that most changes read nothing. If something
// is rolled back, or another process has written, it forgets what may be wrong.
type memory struct {
	groups             groupCache
	lastHead, lastHeld int64         // the groups of queued and of held runs at which a claim stopped, if it left some out
	running            map[owner]int // runs in progress at the time counted, if there are many
	counted            time.Time
	pausesChanged      bool // by the transaction
	pausesStale        bool // another process may have changed them
	// identities are those that the transaction looked up, with the delivery that has each; 0: none
	// has.
	identities map[string]DeliveryID
	others     int64 // no stamp of another process is newer
	// othersWrote tells that others may be out of date.
	othersWrote bool
}

// hooks are what the engine calls (engine.Memory).
type hooks struct{ *db }

// Admit refuses another sealing key than that of the store (SPEC 10.1).
func (s hooks) Admit(tx *engine.Tx) error {
	have, err := tx.Meta("sealing key")
	if err == nil && have == "" { // of several servers that begin at the same time, one says which
		err = tx.Exec("INSERT INTO meta (name, value) VALUES ('sealing key', $1) ON CONFLICT (name) DO NOTHING", s.key.ID())
		if err == nil {
			have, err = tx.Meta("sealing key")
		}
	}
	switch {
	case err != nil:
		return err
	case have != s.key.ID():
		return ErrSealingKey
	}
	return nil
}

// Opened reads which rows have no digests, and the newest id.
func (s hooks) Opened(tx *engine.Tx) (lastID int64, err error) {
	since, err := tx.Meta(metaUndigested)
	if err == nil {
		err = s.digestsSince(since)
	}
	for _, table := range []string{"deliveries", "runs", "applies", "api_keys", "audit", "run_groups", "schedules", "notices"} {
		var id int64
		if err == nil {
			err = tx.Row("SELECT coalesce(max(id), 0) FROM "+table, nil, &id)
		}
		lastID = max(lastID, id)
	}
	return lastID, err
}

// Expect finds the deliveries that have the identities already.
func (s hooks) Expect(identities [][]byte) (query string, found func(identity []byte, id int64)) {
	s.identities = nil
	if len(identities) == 0 {
		return "", nil
	}
	known := make(map[string]DeliveryID, len(identities))
	for _, identity := range identities {
		known[string(identity)] = 0
	}
	s.identities = known
	return "SELECT identity_hash, id FROM deliveries WHERE identity_hash = ANY($1)", func(identity []byte, id int64) { known[string(identity)] = DeliveryID(id) }
}

// Committed shows what is paused to everybody, if that has changed.
func (s hooks) Committed(tx *engine.Tx) error {
	if !s.pausesChanged {
		return nil
	}
	if err := s.store.Pauses.publish(tx); err != nil {
		return fmt.Errorf("what is paused could not be read: %w", err)
	}
	return nil
}

// Forget forgets everything.
func (s hooks) Forget() { s.groups, s.running = groupCache{}, nil }

// ForgetOthers forgets what any write of another process can have changed. Groups and specs never change.
func (s hooks) ForgetOthers() {
	s.groups.guards, s.groups.rates, s.othersWrote = nil, nil, true
}

// ForgetRules forgets which applies are live, and what is paused.
func (s hooks) ForgetRules() {
	s.groups.live, s.groups.pauses, s.pausesChanged = nil, nil, true
}

// WentBack takes no delivery until somebody has looked.
func (s hooks) WentBack(newest, seen int64) {
	s.store.Applies.retreated(newest, seen)
	s.Forget()
	s.pausesChanged, s.othersWrote = true, true
}

// MayDiffer sees to it that what another process paused is shown soon.
func (s hooks) MayDiffer() { s.store.Pauses.mayDiffer() }

// Wake shows what another process paused, and ends the pauses whose time is over.
func (s hooks) Wake(ctx context.Context, write func(func(tx *engine.Tx) error) error) {
	if err := s.store.Pauses.refresh(ctx); err != nil {
		s.Logger.Warn("what is paused could not be read", "error", err)
	}
	if err := s.store.Pauses.endNow(write); err != nil {
		s.Logger.Warn("the end of a pause could not be recorded; it has ended all the same", "error", err)
	}
}

// stamp is the time of a change of a run. It is after that of each change which another
// process committed before, whatever the clocks of their machines show: who reads on from a
// Mark misses none.
func (s *db) stamp(tx *engine.Tx) int64 {
	if s.othersWrote {
		var newest int64
		if tx.Row(newestStamp, nil, &newest) == nil { // else the transaction fails
			s.others, s.othersWrote = max(s.others, newest), false
		}
	}
	at := micros(s.Now())
	if at <= s.others {
		s.others++
		at = s.others
	}
	return at
}

const newestStamp = "SELECT coalesce(max(updated_at), 0) FROM runs WHERE state <> 'QUEUED'"
