package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/answer"
	"triphammer/server/lookup"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// API implements lookup.Deliveries. It takes the API from the definitions that decided the
// delivery, with the newest value of the secret.
func (s *Service) API(ctx context.Context, id store.DeliveryID) (api lookup.API, err error) {
	d, err := s.cfg.Store.Deliveries.Get(ctx, id)
	if err != nil {
		return api, err
	}
	hook, why := s.deciding(ctx, d)
	if hook == nil {
		return api, errors.New(why)
	}
	return s.api(ctx, hook)
}

// api is the API of a webhook's sender, with the newest value of the secret.
func (s *Service) api(ctx context.Context, hook *applier.Webhook) (api lookup.API, err error) {
	values, err := s.cfg.Store.Secrets.Newest(ctx, []string{hook.Def.APISecretName})
	if err != nil {
		return api, err
	}
	value, ok := values[hook.Def.APISecretName]
	if !ok {
		return api, fmt.Errorf("%w: there is no managed secret %s; set it (triphammer secrets set %[2]s)", ErrBadTest, hook.Def.APISecretName)
	}
	return lookup.API{URL: hook.Def.APIURL, Secret: value.Value}, nil
}

// Decide implements lookup.Deliveries. It records answers, and starts the automations that now
// match, by the definitions that decided the delivery.
func (s *Service) Decide(ctx context.Context, id store.DeliveryID, asked []store.Lookup) error {
	runs, err := s.decided(ctx, id, asked)
	if err != nil {
		return err
	}
	started, stopped, err := s.cfg.Store.Lookups.Record(ctx, id, asked, runs)
	if err == nil {
		s.follows(ctx, started, stopped)
	}
	return err
}

func (s *Service) decided(ctx context.Context, id store.DeliveryID, asked []store.Lookup) ([]store.NewRun, error) {
	answered := false
	for _, l := range asked {
		answered = answered || l.State == store.LookupAnswered
	}
	if !answered {
		return nil, nil
	}
	d, err := s.cfg.Store.Deliveries.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hook, why := s.deciding(ctx, d)
	if hook == nil {
		return nil, errors.New(why)
	}
	body, err := s.cfg.Store.Deliveries.Payload(ctx, id)
	if err != nil {
		return nil, err
	}
	before, err := s.cfg.Store.Lookups.Of(ctx, id)
	if err != nil {
		return nil, err
	}
	sent := match.Delivery{Headers: d.Headers, Body: body}
	sent.Answers, _ = Answers(append(before, asked...))
	matched, _, err := hook.Index.Match(sent, nil)
	if err != nil {
		return nil, err
	}
	runs, _ := s.runs(ctx, hook, d, body, matched)
	return runs, nil
}

// AnswerAPI is the API to which answers to a webhook's events go, by the live definitions (SPEC 22.3).
func (s *Service) AnswerAPI(ctx context.Context, uid string) (api lookup.API, err error) {
	hook, ok := s.cfg.Live.Webhook(uid)
	if !ok || hook.Def.APISecretName == "" {
		return api, lookup.Fail("its webhook is not in the definitions any more, or names no apiSecretName", true)
	}
	return s.api(ctx, hook)
}

// answersOf are the answers of a run that an event of a delivery starts.
func answersOf(hook *applier.Webhook, a *applier.Automation, e *native.Event, d *store.Delivery, body []byte) []store.NewAnswer {
	kinds, brief := a.Def.Reports(hook.Def)
	if len(kinds) == 0 || e == nil {
		return nil
	}
	all := answer.For(kinds, brief, hook.UID, hook.Def.APISecretName != "", e, native.Delivery{Header: d.Headers, Body: body, Accounts: hook.Def.Accounts})
	if d.TestBy != "" { // what it is about may be a stranger's
		for i := range all {
			all[i] = store.NewAnswer{Kind: all[i].Kind, WebhookUID: hook.UID, Provider: all[i].Provider, Status: store.AnswerNone, Detail: "a test is not answered"}
		}
	}
	return all
}

// answerOf is the run whose answer a delivery is about; 0: it is about no answer of this server.
func (s *Service) answerOf(ctx context.Context, hook *applier.Webhook, body []byte) store.RunID {
	sender := hook.Def.Sender()
	if sender == nil {
		return 0
	}
	for id, marker := range answer.Marked(sender.Provider, body) {
		given, err := s.cfg.Store.Answers.Of(ctx, id)
		if err != nil {
			s.cfg.Logger.Warn("it is not known whether a delivery is about an answer of this server", "run", id, "error", err)
			continue
		}
		for _, a := range given {
			if s.cfg.Store.Answers.HasMarker(&a, marker) {
				return id
			}
		}
	}
	return 0
}

// Answers are the answers of senders about a delivery, and the reasons why other questions have
// no answer.
func Answers(lookups []store.Lookup) (answers map[native.Question][]string, open map[native.Question]string) {
	answers, open = make(map[native.Question][]string), make(map[native.Question]string)
	for _, l := range lookups {
		q := native.Question{Provider: l.Provider, Name: l.Name, Args: l.Args}
		if l.State == store.LookupAnswered {
			answers[q] = l.Answer
			delete(open, q)
			continue
		}
		if _, known := answers[q]; !known {
			open[q] = askedFor(l)
		}
	}
	return answers, open
}

// askedFor describes the state of a question to a sender, in words.
func askedFor(l store.Lookup) string {
	api := l.Provider + "'s API"
	if s := native.ByProvider(l.Provider); s != nil {
		api = s.Title + "'s API"
	}
	what := strings.ReplaceAll(l.Name, "_", " ") + " of " + l.Args
	switch {
	case l.State == store.LookupAnswered:
		return fmt.Sprintf("%s was asked for the %s, and answered at %s", api, what, l.UpdatedAt.UTC().Format(time.RFC3339))
	case l.State == store.LookupFailed:
		return fmt.Sprintf("%s did not tell the %s: %s (%s)", api, what, l.Detail, terms.Counted(int(l.Attempts), "attempt"))
	case l.Attempts == 0:
		return fmt.Sprintf("waiting for %s: the %s", api, what)
	}
	return fmt.Sprintf("waiting for %s: the %s; it did not tell: %s; it is asked again at %s", api, what, l.Detail, l.DueAt.UTC().Format(time.RFC3339))
}
