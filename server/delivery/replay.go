package delivery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"triphammer/server/store"
)

// Errors of Replay, to be told apart with errors.Is.
var (
	// ErrNoPayload: only accepted deliveries keep their payload.
	ErrNoPayload = errors.New("only an accepted delivery keeps its payload")
	// ErrNotLive: the webhook is deleted or disabled.
	ErrNotLive = errors.New("the webhook of this delivery is deleted or disabled")
)

// Replay starts what matches a stored delivery now, as a new delivery linked to
// the old one (SPEC 13.8). It spends no rate and repeats no identity.
func (s *Service) Replay(ctx context.Context, id store.DeliveryID) (store.Recorded, error) {
	old, err := s.cfg.Store.Delivery(ctx, id)
	if err != nil {
		return store.Recorded{}, err
	}
	if old.Outcome != store.Accepted {
		return store.Recorded{}, fmt.Errorf("delivery %s cannot be replayed: %w", id, ErrNoPayload)
	}
	body, err := s.cfg.Store.Payload(ctx, id)
	if err != nil {
		return store.Recorded{}, err
	}
	hook, ok := s.cfg.Live.Webhook(old.WebhookUID)
	if !ok || !hook.Def.Enabled {
		return store.Recorded{}, fmt.Errorf("delivery %s cannot be replayed: %w", id, ErrNotLive)
	}
	matched, err := hook.Index.Match(body, nil)
	if err != nil {
		return store.Recorded{}, fmt.Errorf("delivery %s: stored payload: %w", id, err)
	}
	a := &attempt{Request: &Request{}, hook: hook, at: s.cfg.Now(), body: body}
	d := a.entry(store.Accepted)
	d.Identity = store.Identity{Source: store.IdentityReplay, Value: rand.Text()}
	d.ReplayOf, d.Headers, d.ClientAddr = old.ID, old.Headers, ""
	return s.record(ctx, hook, d, body, matched)
}
