package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	if lacks := hook.NoCredential(); lacks != "" {
		return api, lookup.Fail(lacks, true)
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
	runs, reply, err := s.decided(ctx, id, asked)
	if err != nil {
		return err
	}
	started, stopped, err := s.cfg.Store.Lookups.Record(ctx, id, asked, runs, reply)
	if err == nil {
		s.follows(ctx, started, stopped)
		if reply != nil {
			s.cfg.Wake()
		}
	}
	return err
}

func (s *Service) decided(ctx context.Context, id store.DeliveryID, asked []store.Lookup) ([]store.NewRun, *store.Reply, error) {
	answered := false
	for _, l := range asked {
		answered = answered || l.State == store.LookupAnswered
	}
	if !answered {
		return nil, nil, nil
	}
	d, err := s.cfg.Store.Deliveries.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	hook, why := s.deciding(ctx, d)
	if hook == nil {
		return nil, nil, errors.New(why)
	}
	body, err := s.cfg.Store.Deliveries.Payload(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	before, err := s.cfg.Store.Lookups.Of(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	sent := match.Delivery{Headers: d.Headers, Body: body}
	sent.Answers, _ = Answers(append(before, asked...))
	if reply, open := s.commanded(ctx, hook, d, sent); reply != nil {
		if len(open) > 0 {
			reply = nil
		}
		return nil, reply, nil
	}
	matched, _, err := hook.Index.Match(sent, nil)
	if err != nil {
		return nil, nil, err
	}
	runs, _ := s.runs(ctx, hook, d, body, matched)
	return runs, nil, nil
}

// AnswerAPI is the API to which answers to a webhook's events go, by the live definitions (SPEC 22.3).
func (s *Service) AnswerAPI(ctx context.Context, uid string) (api lookup.API, err error) {
	hook, ok := s.cfg.Live.Webhook(uid)
	if !ok || hook.Def.APISecretName == "" {
		return api, lookup.Fail("its webhook is not in the definitions any more, or names no apiSecretName", true)
	}
	return s.api(ctx, hook)
}

// Whisper tells whoever made a click that came over the connection of a webhook why it decides nothing (SPEC 26.2).
func (s *Service) Whisper(ctx context.Context, uid string, click []byte, why string) error {
	api, err := s.AnswerAPI(ctx, uid)
	if err != nil {
		return err
	}
	return answer.Whisper(ctx, s.cfg.API, api, click, why)
}

// Account is what a sender says of the credential of a webhook. Lacking is empty if nothing is told of its
// events.
type Account struct {
	answer.Account
	Provider, Needs string
}

// Credential asks the sender of a webhook whose the credential of its API is, and what answers would lack
// (SPEC 22.5). It changes nothing there.
func (s *Service) Credential(ctx context.Context, hook *applier.Webhook) (a Account, err error) {
	sender := hook.Def.Sender()
	if sender == nil || hook.Def.APISecretName == "" {
		return a, errors.New("the webhook has no apiSecretName")
	}
	row := answer.ByProvider(sender.Provider)
	if row == nil {
		return a, errors.New(sender.Title + " cannot be asked whose the credential is")
	}
	to, err := s.api(ctx, hook)
	if err != nil {
		return a, err
	}
	a.Provider, a.Needs = sender.Provider, row.Needs
	if a.Account, err = row.Ask(ctx, s.cfg.API, to); err != nil {
		return a, err
	}
	if !slices.ContainsFunc(hook.Automations, func(to *applier.Automation) bool {
		kinds, _ := to.Def.Reports(hook.Def)
		return len(kinds) > 0
	}) {
		a.Lacking, a.Untold = nil, ""
	}
	return a, nil
}

// answersOf are the answers of a run that a delivery starts. e is its event; nil: the trigger names none.
func answersOf(hook *applier.Webhook, a *applier.Automation, e *native.Event, d *store.Delivery, body []byte) []store.NewAnswer {
	kinds, brief := a.Def.Reports(hook.Def)
	switch told := a.Def.Tells(hook.Def); {
	case told.URL != "" && d.TestBy != "": // what it is about may be a stranger's
		return []store.NewAnswer{{Kind: store.AnswerURL, WebhookUID: hook.UID, Provider: store.AnswerURL, Status: store.AnswerNone, Detail: "a test is not answered"}}
	case told.URL != "":
		a := answer.Tell(hook.UID, told.URL, told.SecretName)
		if lacks := hook.Revision.NotSet(told.SecretName); lacks != "" {
			a.Status, a.Next, a.Detail = store.AnswerNone, "", lacks
		}
		return []store.NewAnswer{a}
	case len(kinds) == 0 || e == nil:
		return nil
	}
	return answer.For(kinds, brief, hook.UID, hook.NoCredential(), d.TestBy != "", e, native.Delivery{Header: d.Headers, Body: body, Accounts: hook.Def.Accounts})
}

// outputsOf is where what the agent of a run asks for is done; nil: its agent may ask for nothing.
func (s *Service) outputsOf(hook *applier.Webhook, a *applier.Automation, e *native.Event, d *store.Delivery, body []byte) *store.OutputPlace {
	if len(a.Def.Outputs) == 0 {
		return nil
	}
	o := &store.OutputPlace{Detail: "a test changes nothing"} // what it is about may be a stranger's
	if d.TestBy == "" {
		lacks, known := hook.NoCredential(), ""
		if hook.Def.APISecretName == "" {
			known = lacks
		}
		o = answer.Outputs(hook.UID, known, e, native.Delivery{Header: d.Headers, Body: body, Accounts: hook.Def.Accounts}, a.Def.StartedBy)
		o.Detail = cmp.Or(o.Detail, lacks) // the agent may ask, and a trial shows for what
	}
	if a.Def.Approval.Outputs || s.cfg.ApproveOutputs { // pushes wait, whatever becomes of the rest
		o.Waits = a.Def.Approval.Timeout
	}
	return o
}

// answerOf is the run whose answer a delivery is about; 0: it is about no answer of this server.
func (s *Service) answerOf(ctx context.Context, hook *applier.Webhook, body []byte) store.RunID {
	sender := hook.Def.Sender()
	if sender == nil {
		return 0
	}
	for id, marker := range answer.Marked(sender.Provider, body) {
		given, err := s.cfg.Store.Answers.Of(ctx, id)
		made, failed := s.cfg.Store.Outputs.Of(ctx, id)
		if err = errors.Join(err, failed); err != nil {
			s.cfg.Logger.Warn("it is not known whether a delivery is about an answer of this server", "run", id, "error", err)
			continue
		}
		for _, a := range given {
			if s.cfg.Store.Answers.HasMarker(&a, marker) {
				return id
			}
		}
		for i := range made {
			if s.cfg.Store.Outputs.HasMarker(&made[i], marker) {
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
