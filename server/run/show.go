package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"triphammer/server/store"
)

// These can be asked of a run.
const (
	AskCancel    = "cancel"
	AskInterrupt = "interrupt"
	AskRetry     = "retry"    // begin afresh
	AskResume    = "resume"   // retry, and go on in its workspace
	AskFollowUp  = "followup" // another message in its conversation
)

// Takes says what can be asked of a run now.
func (d *Desk) Takes(ctx context.Context, r *store.Run) ([]string, error) {
	spec, err := SpecOf(ctx, d.cfg.Store, r)
	if err != nil {
		return nil, err
	}
	takes := []string{}
	switch r.State {
	case store.Queued, store.Blocked:
		takes = append(takes, AskCancel)
	case store.InProgress:
		takes = append(takes, AskCancel, AskInterrupt)
	}
	goesOn, err := d.goesOn(ctx, r, &spec)
	if err != nil {
		return nil, err
	}
	if r.State.Terminal() {
		kept := true
		if r.DeliveryID != 0 {
			if kept, err = d.cfg.Store.Deliveries.HasPayload(ctx, r.DeliveryID); err != nil {
				return nil, err
			}
		}
		if kept && (goesOn || r.ConversationID == r.ID) {
			takes = append(takes, AskRetry)
		}
		if kept && goesOn {
			takes = append(takes, AskResume)
		}
	}
	if goesOn {
		takes = append(takes, AskFollowUp)
	}
	return takes, nil
}

// goesOn tells whether another run can go on in the conversation of the run.
func (d *Desk) goesOn(ctx context.Context, r *store.Run, spec *Spec) (bool, error) {
	if !spec.Sessions() || r.State == store.Blocked {
		return false, nil
	}
	switch err := d.unusable(ctx, r); {
	case errors.As(err, new(*RefusedError)):
		return false, nil
	case err != nil:
		return false, err
	}
	c, err := d.cfg.Store.Conversations.Get(ctx, r.ID)
	if err != nil {
		return false, err
	}
	last := LastOf(c)
	return last == nil || c.Session != nil && !last.FinishedAt.Before(d.cfg.Now().Add(-d.cfg.KeepSessions)), nil
}

// Sent is the complete prompt that the agent of a run of this spec gets. headers are the kept
// headers of the delivery that started the run.
func (s *Spec) Sent(r *store.Run, headers map[string]string) string {
	var first strings.Builder
	for _, skill := range s.AskedElsewhere() {
		fmt.Fprintf(&first, "[The skill %s of the repository %s comes here.]\n\n", skill.Path, skill.Repository)
	}
	return first.String() + s.WholePrompt(r.Webhook, r.DeliveryID.String(), headers)
}
