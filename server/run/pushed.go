package run

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

// How much is known of what earlier runs pushed.
const (
	pushedTime = 30 * 24 * time.Hour
	maxPushed  = 500
)

// Pushed are what runs of an automation pushed in the 30 days before a time, the newest 500 of those that a
// person approved and of the others.
func Pushed(ctx context.Context, s *store.Store, factory, automation string, before time.Time) (all []event.Push, err error) {
	since := before.Add(-pushedTime)
	made, err := s.Outputs.Pushed(ctx, factory, automation, since, maxPushed)
	if err != nil {
		return nil, fmt.Errorf("what a person approved of the automation's pushes could not be read: %w", err)
	}
	for _, p := range made {
		if u, err := url.Parse(p.Repository); err == nil {
			u.User = nil
			all = append(all, event.Push{Repository: u.String(), Ref: p.Ref, Old: p.Old, New: p.New})
		}
	}
	events, err := s.Transcripts.OfAutomation(ctx, factory, automation, event.KindPush, since, maxPushed)
	if err != nil && !errors.Is(err, store.ErrDamaged) { // without the damaged ones, a run may do less
		return nil, fmt.Errorf("what earlier runs of the automation pushed could not be read: %w", err)
	}
	for _, e := range events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if p, ok := decoded.(event.Push); ok && err == nil && p.Refused == "" && p.Waits == "" {
			all = append(all, p)
		}
	}
	return all, nil
}
