package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/filter"
	"triphammer/factory/jsonscan"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/schema"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// TestRequest asks whether a delivery would start an automation (SPEC 7.3).
type TestRequest struct {
	Factory    string
	Automation string            // test the live triggers of this automation, or Filter
	Filter     []byte            // a payload filter as JSON; nil accepts everything
	DeliveryID store.DeliveryID  // test on this accepted delivery, or on Payload
	Payload    []byte            // a body
	Headers    map[string]string // headers that come with Payload, in any spelling
	// Webhook is the name or UID of the webhook from which the delivery comes. Empty means the
	// webhook of the stored delivery. A payload without a webhook is tested with each webhook
	// that the automation selects.
	Webhook string
	// Ask asks the API of the webhook's sender for missing data, with the secret of
	// apiSecretName. The answers are not kept.
	Ask bool
}

// TestResult is the verdict with its two parts. Both are always evaluated.
type TestResult struct {
	WouldTrigger bool
	// Unknown is set if the verdict needs data that only the sender's API has and that was not
	// asked for.
	Unknown bool
	// Asks is the sender whose API can be asked for the data; empty: none can. Asked describes
	// the questions that were asked, and their results.
	Asks         string
	Asked        []string
	WebhookCheck Check
	PayloadCheck Check
	// Subject is what the event is about if it would trigger. Lacks is the path of the automation's
	// own subject that has no value in the payload.
	Subject, Lacks string
	// Conditions belong to the filter that matched, or else to the filter that came closest.
	Conditions []filter.Condition
	// Webhooks has a verdict for each webhook that the automation selects, if the request
	// has no webhook.
	Webhooks []WebhookVerdict

	open []native.Question // the questions that decide
}

// WebhookVerdict is the verdict if the delivery came from one webhook.
type WebhookVerdict struct {
	Webhook      string
	WouldTrigger bool
	Unknown      bool
	Detail       string // the reason for the verdict
}

// Verdict is the result as text (SPEC C6.3).
func (r TestResult) Verdict() string {
	if r.WouldTrigger {
		return "Would trigger"
	}
	if r.Unknown {
		return "Not known"
	}
	return "Would not trigger"
}

// Check is one part of a TestResult.
type Check struct {
	OK              bool
	Detail          string
	Path, Want, Got string // only for a payload check that failed
}

// ErrBadTest is the error of TestFilter for an invalid request.
var ErrBadTest = errors.New("the test is not valid")

// TestFilter evaluates a filter or an automation on a stored delivery or on a given
// payload. It uses the code that explains deliveries.
func (s *Service) TestFilter(ctx context.Context, req TestRequest) (TestResult, error) {
	switch {
	case req.DeliveryID != 0 && req.Payload != nil:
		return TestResult{}, fmt.Errorf("%w: a stored delivery or a payload, not both", ErrBadTest)
	case req.DeliveryID == 0 && req.Payload == nil:
		return TestResult{}, fmt.Errorf("%w: a stored delivery or a payload is needed", ErrBadTest)
	case req.DeliveryID != 0 && len(req.Headers) > 0:
		return TestResult{}, fmt.Errorf("%w: a stored delivery has its own headers", ErrBadTest)
	case req.Automation != "" && req.Filter != nil:
		return TestResult{}, fmt.Errorf("%w: an automation or a filter, not both", ErrBadTest)
	case req.Ask && req.Automation == "":
		return TestResult{}, fmt.Errorf("%w: a payload filter alone asks no sender: name an automation", ErrBadTest)
	}
	sent, from := match.Delivery{Headers: canonical(req.Headers), Body: req.Payload, Open: native.NotAsked}, origin{name: req.Webhook}
	if req.DeliveryID != 0 {
		d, err := s.cfg.Store.Deliveries.Get(ctx, req.DeliveryID)
		if err != nil {
			return TestResult{}, err
		}
		sent.Headers = d.Headers
		if sent.Body, err = s.cfg.Store.Deliveries.Payload(ctx, d.ID); err != nil {
			return TestResult{}, err
		}
		lookups, err := s.cfg.Store.Lookups.Of(ctx, d.ID)
		if err != nil {
			return TestResult{}, err
		}
		sent.Answers, sent.Open = Answers(lookups)
		if from.name == "" {
			from = origin{name: d.Webhook, uid: d.WebhookUID}
		}
	}
	if err := jsonscan.Check(sent.Body); err != nil {
		return TestResult{}, fmt.Errorf("%w: payload: %w", ErrBadTest, err)
	}
	if req.Automation == "" {
		return testOne(req.Filter, sent.Body)
	}
	revision, ok := s.cfg.Live.Revision(req.Factory)
	if !ok {
		return TestResult{}, fmt.Errorf("%w: factory %q serves nothing", ErrBadTest, req.Factory)
	}
	def := revision.Definition.Automation(req.Automation)
	if def == nil {
		names := terms.Each(revision.Definition.Automations, func(a *factory.Automation) string { return a.Name })
		said := fmt.Sprintf("no automation %q is live in factory %q; %s", req.Automation, req.Factory, schema.OneOf(req.Automation, names))
		return TestResult{}, fmt.Errorf("%w: %s", ErrBadTest, strings.TrimSuffix(said, "; "))
	}
	hook := from.in(revision)
	if from.name == "" {
		each, asked := s.testEach(revision, def, sent)
		if !req.Ask || !each.Unknown {
			return each, nil
		}
		if hook = asked; hook == nil {
			return TestResult{}, fmt.Errorf("%w: name the webhook whose sender is to be asked, one with apiSecretName in its file", ErrBadTest)
		}
		from.name = hook.Def.Name
	}
	test := func() TestResult { return s.testFrom(revision.Factory, def, hook, from.name, sent) }
	if req.Ask {
		return s.asking(ctx, hook, &sent, test)
	}
	return test(), nil
}

const (
	askTime  = 20 * time.Second // for all questions of a test
	askLimit = 30               // questions of tests of one webhook in any 60 s, on this server
)

// AskRateError refuses a test that would ask a sender's API too often.
type AskRateError struct {
	Sender, Webhook string
	RetryAfter      int // seconds
}

func (e *AskRateError) Error() string {
	return fmt.Sprintf("tests of the webhook %s have asked %s's API %d times within a minute: try again in %d s", e.Webhook, e.Sender, askLimit, e.RetryAfter)
}

// asking asks the sender's API for data until the verdict of a test is known, or no further
// question can be asked. It takes the API of the live webhook, whatever the payload says.
func (s *Service) asking(ctx context.Context, hook *applier.Webhook, sent *match.Delivery, test func() TestResult) (TestResult, error) {
	r := test()
	if !r.Unknown {
		return r, nil
	}
	if r.Asks == "" {
		return r, fmt.Errorf("%w: the file of the webhook %s has no apiSecretName, so its sender's API cannot be asked", ErrBadTest, hook.Def.Name)
	}
	api, err := s.api(ctx, hook)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers, open := make(map[native.Question][]string), make(map[native.Question]string)
	maps.Copy(answers, sent.Answers)
	maps.Copy(open, sent.Open)
	sent.Answers, sent.Open = answers, open
	asked := make(map[native.Question]bool)
	var said []string
	for r.Unknown && slices.ContainsFunc(r.open, func(q native.Question) bool { return !asked[q] }) {
		for _, q := range r.open {
			if asked[q] {
				continue
			}
			if wait, ok := s.asks.admit(hook.UID, s.cfg.Now()); !ok {
				r.Asked = said
				return r, &AskRateError{Sender: r.Asks, Webhook: hook.Def.Name, RetryAfter: retryAfter(wait)}
			}
			asked[q] = true
			l := store.Lookup{Provider: q.Provider, Name: q.Name, Args: q.Args, State: store.LookupAnswered, Attempts: 1, UpdatedAt: s.cfg.Now()}
			if answers[q], err = s.cfg.API.Ask(ctx, api, q); err != nil {
				delete(answers, q)
				l.State, l.Detail = store.LookupFailed, err.Error()
				open[q] = askedFor(l)
			}
			said = append(said, askedFor(l))
		}
		r = test()
	}
	r.Asked = said
	return r, nil
}

// canonical are headers with the canonical spelling of their names.
func canonical(headers map[string]string) map[string]string {
	all := make(map[string]string, len(headers))
	for name, value := range headers {
		all[http.CanonicalHeaderKey(name)] = strings.TrimSpace(value)
	}
	return all
}

// origin is the webhook that a delivery comes from.
type origin struct{ name, uid string }

// in finds the webhook in a revision; nil: the revision lacks it. The webhook of a stored delivery
// is found only by its UID. Otherwise the name may be a name or a UID.
func (o origin) in(revision *applier.Revision) *applier.Webhook {
	for _, w := range revision.Webhooks {
		if w.UID == o.uid || o.uid == "" && (w.Def.Name == o.name || w.UID == o.name) {
			return w
		}
	}
	return nil
}

func testOne(pattern, body []byte) (TestResult, error) {
	r := TestResult{WebhookCheck: Check{OK: true, Detail: "any webhook"}}
	var f *filter.Filter
	if len(pattern) > 0 {
		value, err := filter.ParseJSON(pattern)
		if err != nil {
			return r, fmt.Errorf("%w: filter: %w", ErrBadTest, err)
		}
		var problems []filter.Problem
		if f, problems = filter.Compile(value); len(problems) > 0 {
			texts := make([]string, len(problems))
			for i, p := range problems {
				texts[i] = p.String()
			}
			return r, fmt.Errorf("%w: filter: %s", ErrBadTest, strings.Join(texts, "; "))
		}
	}
	v := f.Explain(body)
	r.WouldTrigger, r.Conditions = v.Matched, v.Conditions
	r.PayloadCheck = Check{OK: v.Matched, Detail: payloadDetail(v.Matched, f == nil), Path: v.Path, Want: v.Want, Got: v.Got}
	return r, nil
}

func payloadDetail(matched, none bool) string {
	switch {
	case none:
		return "there is no payload filter"
	case matched:
		return "the payload filter matches"
	}
	return "the payload filter does not match"
}

// wantedDetail says whether the delivery matches a trigger.
func wantedDetail(c match.Candidate, m match.Result) string {
	payloadAlone := !slices.ContainsFunc(c.Triggers, func(t match.Trigger) bool { return t.Native != nil || t.Headers != nil })
	switch {
	case payloadAlone:
		return payloadDetail(m.Matched, len(m.Conditions) == 0)
	case m.Matched:
		return "a trigger wants the delivery"
	case m.Reply:
		return "it is a reply: it starts a run in a thread that the automation has answered"
	case len(m.Open) > 0:
		return "what only the sender's API knows decides"
	case m.Path == native.StartedBy:
		return "the person of the event may not start it"
	}
	return "no trigger wants the delivery"
}

// testFrom tests an automation on a delivery of one webhook. w is nil if the webhook does
// not serve.
func (s *Service) testFrom(factoryName string, def *factory.Automation, w *applier.Webhook, name string, sent match.Delivery) TestResult {
	candidate := def.AnyWebhook()
	if w != nil && def.Selects(w.Def, w.UID) {
		candidate = def.Candidate(w.Def, w.UID)
		// The webhook keeps only these headers.
		sent.Headers = maps.Clone(sent.Headers)
		maps.DeleteFunc(sent.Headers, func(name, _ string) bool { return !w.Def.KeepsHeader(name) })
	}
	r := result(candidate, sent)
	r.WebhookCheck = s.webhookCheck(factoryName, def, w, name)
	r.WouldTrigger = r.WebhookCheck.OK && r.PayloadCheck.OK
	r.Unknown = r.WebhookCheck.OK && r.Unknown
	if r.Unknown && w.Def.APISecretName != "" {
		r.Asks = w.Def.Sender().Title
	}
	return r
}

func (s *Service) webhookCheck(factoryName string, def *factory.Automation, w *applier.Webhook, name string) Check {
	switch {
	case len(def.AnyWebhook().Triggers) == 0:
		return Check{Detail: def.Name + " has no webhook trigger"}
	case w == nil:
		return Check{Detail: fmt.Sprintf("no webhook %q serves", name)}
	case !def.Selects(w.Def, w.UID):
		return Check{Detail: fmt.Sprintf("no trigger of %s selects the webhook %q", def.Name, w.Def.Name)}
	case !def.Enabled:
		return Check{Detail: fmt.Sprintf("a trigger selects the webhook %q, but %s is disabled", w.Def.Name, def.Name)}
	case !w.Def.Enabled:
		return Check{Detail: fmt.Sprintf("a trigger selects the webhook %q, which is disabled", w.Def.Name)}
	case s.isPaused(store.KindAutomation, factoryName, def.Name):
		return Check{Detail: fmt.Sprintf("a trigger selects the webhook %q, but %s is paused", w.Def.Name, def.Name)}
	case s.paused(w):
		return Check{Detail: fmt.Sprintf("a trigger selects the webhook %q, which is paused", w.Def.Name)}
	}
	return Check{OK: true, Detail: fmt.Sprintf("a trigger selects the webhook %q", w.Def.Name)}
}

// testEach tests an automation on a delivery without a webhook. The automation would trigger if
// it would trigger from at least one webhook. asked is the webhook whose sender can be asked
// for missing data, if there is exactly one.
func (s *Service) testEach(revision *applier.Revision, def *factory.Automation, sent match.Delivery) (r TestResult, asked *applier.Webhook) {
	r = result(def.AnyWebhook(), sent)
	checked, passed, unknown, askers, off := 0, 0, 0, 0, "disabled"
	var would []string
	for _, w := range revision.Webhooks {
		if !def.Selects(w.Def, w.UID) {
			continue
		}
		one := s.testFrom(revision.Factory, def, w, w.Def.Name, sent)
		verdict := WebhookVerdict{Webhook: w.Def.Name, WouldTrigger: one.WouldTrigger, Unknown: one.Unknown, Detail: one.WebhookCheck.Detail}
		if one.WebhookCheck.OK {
			passed++
			verdict.Detail = one.PayloadCheck.Detail
			if one.Unknown {
				unknown++
			}
			if one.Asks != "" {
				askers, asked = askers+1, w
			}
			if passed == 1 || one.WouldTrigger || unknown == 1 && one.Unknown && len(would) == 0 {
				r.PayloadCheck, r.Conditions, r.Subject, r.Lacks = one.PayloadCheck, one.Conditions, one.Subject, one.Lacks
			}
		}
		if one.WouldTrigger {
			would = append(would, w.Def.Name)
		}
		checked++
		if s.paused(w) {
			off = "disabled or paused"
		}
		r.Webhooks = append(r.Webhooks, verdict)
	}
	r.WouldTrigger, r.Unknown = len(would) > 0, len(would) == 0 && unknown > 0
	if askers != 1 {
		asked = nil
	} else if r.Unknown {
		r.Asks = asked.Def.Sender().Title
	}
	r.WebhookCheck = Check{OK: passed > 0}
	switch {
	case len(def.AnyWebhook().Triggers) == 0:
		r.WebhookCheck.Detail = def.Name + " has no webhook trigger"
	case checked == 0:
		r.WebhookCheck.Detail = "no trigger selects a webhook that serves"
	case !def.Enabled:
		r.WebhookCheck.Detail = def.Name + " is disabled"
	case s.isPaused(store.KindAutomation, revision.Factory, def.Name):
		r.WebhookCheck.Detail = def.Name + " is paused"
	case passed == 0:
		r.WebhookCheck.Detail = "each webhook that a trigger selects is " + off
	case len(would) > 0:
		r.WebhookCheck.Detail = "no webhook was named: it would trigger from " + strings.Join(would, ", ")
	case unknown > 0:
		r.WebhookCheck.Detail = "no webhook was named: what only the sender's API knows decides about " + terms.Counted(unknown, "webhook")
	case checked == 1:
		r.WebhookCheck.Detail = "no webhook was named: from " + r.Webhooks[0].Webhook + " it would not trigger"
	default:
		r.WebhookCheck.Detail = "no webhook was named: it would trigger from none of " + terms.Counted(checked, "webhook")
	}
	return r, asked
}

func result(c match.Candidate, sent match.Delivery) TestResult {
	if len(c.Triggers) == 0 {
		return TestResult{PayloadCheck: Check{Detail: "there is no webhook trigger with a filter to test"}}
	}
	m := c.Explain(sent)
	return TestResult{
		Unknown:      len(m.Open) > 0,
		open:         m.Open,
		PayloadCheck: Check{OK: m.Matched, Detail: wantedDetail(c, m), Path: m.Path, Want: m.Want, Got: m.Got},
		Conditions:   m.Conditions,
		Subject:      m.Subject, Lacks: m.Lacks,
	}
}
