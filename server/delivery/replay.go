package delivery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"triphammer/factory/match"
	"triphammer/server/store"
)

// Errors of Replay, for errors.Is.
var (
	// ErrNotAccepted says that the delivery has no payload, because it was not accepted.
	ErrNotAccepted = errors.New("only an accepted delivery keeps its payload")
	// ErrNotLive says that the webhook is deleted, disabled or paused.
	ErrNotLive = errors.New("the webhook of this delivery is deleted, disabled or paused")
)

// Replay matches a stored delivery with the live definitions and enqueues its runs. It records
// a new delivery with a link to the old delivery (SPEC 13.8). A replay does not count for the
// rate limit, and has its own identity.
func (s *Service) Replay(ctx context.Context, id store.DeliveryID) (store.Recorded, error) {
	old, err := s.cfg.Store.Deliveries.Get(ctx, id)
	if err != nil {
		return store.Recorded{}, err
	}
	if old.Outcome != store.Accepted {
		return store.Recorded{}, fmt.Errorf("delivery %s cannot be replayed: %w", id, ErrNotAccepted)
	}
	body, err := s.cfg.Store.Deliveries.Payload(ctx, id)
	if err != nil {
		return store.Recorded{}, err
	}
	for try := 1; ; try++ {
		recorded, err := s.replay(ctx, old, body)
		if !errors.Is(err, store.ErrStale) || try == maxDecisions {
			return recorded, err
		}
		if err := s.follow(ctx, old.Factory); err != nil {
			return recorded, err
		}
	}
}

func (s *Service) replay(ctx context.Context, old *store.Delivery, body []byte) (store.Recorded, error) {
	id := old.ID
	hook, ok := s.cfg.Live.Webhook(old.WebhookUID)
	if !ok || !hook.Def.Enabled || s.paused(hook) {
		return store.Recorded{}, fmt.Errorf("delivery %s cannot be replayed: %w", id, ErrNotLive)
	}
	matched, open, err := hook.Index.Match(match.Delivery{Headers: old.Headers, Body: body}, nil)
	if err != nil {
		return store.Recorded{}, fmt.Errorf("delivery %s: stored payload: %w", id, err)
	}
	a := &incoming{Request: &Request{}, hook: hook, at: s.cfg.Now(), body: body}
	d := a.entry(store.Accepted)
	d.Identity = store.Identity{Source: store.IdentityReplay, Value: rand.Text()}
	d.ReplayOf, d.Headers, d.ClientAddr = old.ID, old.Headers, ""
	return s.record(ctx, hook, d, body, matched, open)
}
