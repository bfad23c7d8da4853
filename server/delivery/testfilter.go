package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"triphammer/applier"
	"triphammer/factory/filter"
	"triphammer/factory/match"
)

// TestRequest asks whether a delivery would start an automation (SPEC 7.3).
type TestRequest struct {
	Factory    string
	Automation string // its live triggers are tested, or else
	Filter     []byte // this payload filter, as JSON; nil accepts everything
	DeliveryID string // of a stored accepted delivery, or else
	Payload    []byte // this body,
	Webhook    string // as if it came from this webhook (a name, may be empty)
}

// TestResult is the verdict with its two parts.
type TestResult struct {
	WouldTrigger bool
	WebhookCheck Check
	PayloadCheck Check
	Conditions   []filter.Condition
}

// Verdict is the result in CONTRACT.md's words.
func (r TestResult) Verdict() string {
	if r.WouldTrigger {
		return "Would trigger"
	}
	return "Would not trigger"
}

// Check is one part of a TestResult.
type Check struct {
	OK              bool
	Detail          string
	Path, Want, Got string // of a payload check that failed
}

// ErrBadTest is what TestFilter returns for a request that makes no sense.
var ErrBadTest = errors.New("the test makes no sense")

// TestFilter evaluates a filter or an automation on a stored delivery or on a
// given payload, with the code that matches deliveries.
func (s *Service) TestFilter(ctx context.Context, req TestRequest) (TestResult, error) {
	body, webhook := req.Payload, req.Webhook
	if req.DeliveryID != "" {
		d, err := s.cfg.Store.Delivery(ctx, req.DeliveryID)
		if err != nil {
			return TestResult{}, err
		}
		if body, err = s.cfg.Store.Payload(ctx, d.ID); err != nil {
			return TestResult{}, err
		}
		webhook = d.Webhook
	}
	if err := filter.Check(body); err != nil {
		return TestResult{}, fmt.Errorf("%w: payload: %w", ErrBadTest, err)
	}
	if req.Automation == "" {
		return testOne(req.Filter, body)
	}
	revision, ok := s.cfg.Live.Revision(req.Factory)
	if !ok || revision.Definition.Automation(req.Automation) == nil {
		return TestResult{}, fmt.Errorf("%w: no automation %q is live in factory %q", ErrBadTest, req.Automation, req.Factory)
	}
	return testAutomation(revision, req.Automation, webhook, body)
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
		return "no payload filter"
	case matched:
		return "the payload filter matches"
	}
	return "the payload filter does not match"
}

func testAutomation(revision *applier.Revision, automation, webhook string, body []byte) (TestResult, error) {
	r := TestResult{WebhookCheck: Check{Detail: fmt.Sprintf("no trigger of an enabled %s selects the webhook %q", automation, webhook)}}
	for _, w := range revision.Webhooks {
		if w.Def.Name != webhook {
			continue
		}
		for _, result := range w.Index.Explain(body) {
			if result.Automation == automation {
				return automationResult(result, webhook), nil
			}
		}
	}
	return r, nil
}

func automationResult(m match.Result, webhook string) TestResult {
	return TestResult{
		WouldTrigger: m.Matched,
		WebhookCheck: Check{OK: true, Detail: fmt.Sprintf("a trigger selects the webhook %q", webhook)},
		PayloadCheck: Check{OK: m.Matched, Detail: payloadDetail(m.Matched, len(m.Conditions) == 0 && m.Matched), Path: m.Path, Want: m.Want, Got: m.Got},
		Conditions:   m.Conditions,
	}
}
