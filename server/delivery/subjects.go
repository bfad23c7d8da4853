package delivery

import (
	"context"
	"slices"
	"time"

	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/store"
)

// indexEvery is how long a delivery waits at most, without load, until it is found by its subject.
const indexEvery = 500 * time.Millisecond

// IndexSubjects keeps the store's index of subjects up to date (SPEC 21.2), until ctx is done. One
// server at a time may call it: the leader.
func (s *Service) IndexSubjects(ctx context.Context) error {
	s.cfg.Store.Subjects.Forget() // another server may have led meanwhile
	tick := time.NewTicker(indexEvery)
	defer tick.Stop()
	failed := false
	for {
		err := s.cfg.Store.Subjects.Index(ctx, s.subjectsOf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			s.cfg.Logger.Error("deliveries could not be put to their subjects; this is tried again", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// subjectsOf are the subjects of an accepted delivery by the live definitions of its webhook: those of
// the sender's events, and those that automations say which the delivery matches.
func (s *Service) subjectsOf(d *store.Delivery, body []byte) (all []string) {
	hook, ok := s.cfg.Live.Webhook(d.WebhookUID)
	if !ok {
		return nil
	}
	add := func(subject string) {
		if subject != "" && !slices.Contains(all, subject) {
			all = append(all, subject)
		}
	}
	sent := match.Delivery{Headers: d.Headers, Body: body}
	if sender := hook.Def.Sender(); sender != nil {
		p := sender.Read(native.Delivery{Header: sent.Headers, Body: body, Accounts: hook.Def.Accounts})
		for _, e := range p.Events() {
			add(e.SubjectOf(p))
		}
	}
	for _, a := range hook.Automations {
		if a.Def.Subject != nil {
			if r := a.Def.Candidate(hook.Def, hook.UID).Explain(sent); r.Matched {
				add(r.Subject)
			}
		}
	}
	return all
}
