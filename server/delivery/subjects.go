package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/run"
	"triphammer/server/store"
)

// indexEvery is how long a delivery waits at most, without load, until it is found by its subject.
const indexEvery = 500 * time.Millisecond

// IndexSubjects keeps the store's index of subjects, and of signed bodies, up to date (SPEC 21.2, 5.13), until ctx is done. One
// server at a time may call it: the leader.
func (s *Service) IndexSubjects(ctx context.Context) error {
	s.cfg.Store.Subjects.Forget() // another server may have led meanwhile
	tick := time.NewTicker(indexEvery)
	defer tick.Stop()
	failed := false
	for {
		err := s.cfg.Store.Subjects.Index(ctx, func(d *store.Delivery, body []byte) ([]string, store.PullState, bool) {
			subjects, signed := s.subjectsOf(d, body)
			return subjects, s.pullOf(ctx, d, body), signed
		})
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

// pullOf is what a delivery says of a pull request that a run opened (SPEC 27.1).
func (s *Service) pullOf(ctx context.Context, d *store.Delivery, body []byte) (is store.PullState) {
	hook, ok := s.cfg.Live.Webhook(d.WebhookUID)
	if !ok || d.Outcome != store.Accepted || hook.Def.Sender() == nil {
		return is
	}
	pull, ok := hook.Def.Sender().PullRequest(native.Delivery{Header: d.Headers, Body: body})
	if !ok {
		return is
	}
	is = store.PullState{URL: pull.URL, Outcome: pull.Outcome}
	if pull.Outcome == native.PullMerged {
		changed, err := s.changed(ctx, d, pull)
		if err != nil {
			s.cfg.Logger.Error("whether a person changed a pull request before its merge could not be read; it counts as unchanged", "delivery", d.ID, "error", err)
		}
		if changed {
			is.Outcome = store.MergedWithChanges
		}
	}
	return is
}

// changed tells whether a pull request was merged with a commit as its head that no run pushed. Without
// a push of a run, nothing says so: the agent pushed with a credential of its own.
func (s *Service) changed(ctx context.Context, d *store.Delivery, pull native.PullRequest) (bool, error) {
	r, err := s.cfg.Store.Artifacts.RunByReference(ctx, pull.URL, d.Factory)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	pushed, err := run.Pushed(ctx, s.cfg.Store, r.Factory, r.Automation, d.ReceivedAt)
	for _, p := range pushed {
		if p.New == pull.Commit {
			return false, err
		}
	}
	return len(pushed) > 0, err
}

// subjectsOf are the subjects of an accepted delivery by the live definitions of its webhook: those of
// the sender's events, and those that automations say which the delivery matches. signed tells whether
// the body is signed and the identity is not.
func (s *Service) subjectsOf(d *store.Delivery, body []byte) (all []string, signed bool) {
	hook, ok := s.cfg.Live.Webhook(d.WebhookUID)
	if !ok {
		return nil, false
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
	return all, replayable(hook.Def, d)
}
