package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/factory/filter"
	"triphammer/factory/match"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) listDeliveries(ctx context.Context, c *call) (shown api.List[api.Delivery], err error) {
	cursor, limit, err := from[store.Delivery](c)
	if err != nil {
		return shown, err
	}
	q := store.DeliveryQuery{Factory: c.Query("factory"), Stopped: c.Query("stopped"), Text: c.Query("text"), Subject: c.Query("subject"), Before: cursor, Limit: limit + 1}
	switch outcome := c.Query("outcome"); {
	case outcome == "":
	case outcome == "refused":
		q.Outcomes = []store.Outcome{store.RejectedAuth, store.RejectedInvalidJSON, store.RejectedTooLarge}
	case slices.Contains(terms.Outcomes, store.Outcome(outcome)):
		q.Outcomes = []store.Outcome{store.Outcome(outcome)}
	default:
		return shown, refuse("outcome", outcome, "outcome is one of %s, or refused", terms.Words(terms.Outcomes))
	}
	if q.Stopped != "" && q.Stopped != store.Went && !slices.Contains(terms.Stages, q.Stopped) {
		return shown, refuse("stopped", q.Stopped, "stopped is one of %s, or %s", terms.Words(terms.Stages), store.Went)
	}
	if len(q.Text) > maxText {
		return shown, refuse("text", "", "text has at most %d bytes", maxText)
	}
	for name, into := range map[string]*store.DeliveryID{"duplicate_of": &q.DuplicateOf, "replay_of": &q.ReplayOf} {
		if *into, err = store.ParseID[store.Delivery](c.Query(name)); err != nil {
			return shown, refuse(name, c.Query(name), "%s is the id of a delivery", name)
		}
	}
	if q.Since, q.Until, err = c.timespan(); err != nil {
		return shown, err
	}
	if w := c.Query("webhook"); strings.HasPrefix(w, "whk_") {
		q.WebhookUID = w
	} else {
		q.Webhook = w
	}
	if event, person, automation := c.Query("event"), c.Query("person"), c.Query("automation"); event+person+automation != "" {
		all, info, err := deliveriesOf(ctx, c, q, event, person, automation, limit)
		if err != nil {
			return shown, err
		}
		shown = api.List[api.Delivery]{Entries: terms.Each(all, showDelivery), PageInfo: info}
		return shown, s.tellAbout(ctx, c, all, shown.Entries)
	}
	if q.Text != "" {
		q.Limit = limit
		all, next, err := c.SearchDeliveries(ctx, q)
		if err != nil {
			return shown, err
		}
		shown = api.List[api.Delivery]{Entries: terms.Each(all, showDelivery), PageInfo: api.PageInfo{HasNextPage: next != 0, NextCursor: next.String()}}
		return shown, s.tellAbout(ctx, c, all, shown.Entries)
	}
	all, err := c.Deliveries(ctx, q)
	if err != nil {
		return shown, err
	}
	shown = listPage(all, limit, func(d *store.Delivery) string { return d.ID.String() }, showDelivery)
	return shown, s.tellAbout(ctx, c, all, shown.Entries)
}

// tellAbout adds to the deliveries of a list what they are about, if the caller asks for it. The
// list may have fewer than all, which are in the same order.
func (s *Server) tellAbout(ctx context.Context, c *call, all []*store.Delivery, shown []api.Delivery) error {
	if c.Query("about") != "true" {
		return nil
	}
	about, err := c.About(ctx, all[:len(shown)])
	if err != nil {
		return err
	}
	for i := range shown {
		a := about[all[i].ID]
		shown[i].Event, shown[i].Person, shown[i].Title = a.Event, a.Person, a.Title
		matches := terms.Each(a.Matches, func(m match.Result) api.Match {
			return api.Match{Automation: m.Automation, Matched: m.Matched, Path: m.Path, Want: m.Want, Got: m.Got, Conditions: terms.Each(m.Conditions, showCondition)}
		})
		if near := api.Nearest(matches); near != nil && !near.Matched {
			near.Conditions, shown[i].Nearest = nil, near
		}
	}
	return nil
}

// maxText is the longest text that is looked for, in bytes.
const maxText = 200

func showDelivery(d *store.Delivery) api.Delivery {
	shown := api.Delivery{
		ID: d.ID.String(), Webhook: d.Webhook, Factory: d.Factory, Outcome: string(d.Outcome), Label: d.Outcome.Label(), Size: d.Size,
		ReceivedAt: d.ReceivedAt, DuplicateOf: d.DuplicateOf.String(), ReplayOf: d.ReplayOf.String(), SameBodyAs: d.SameBodyAs.String(),
		Reason: d.Reason, Detail: d.Detail, Paused: d.Paused, Limited: d.Limited, ClientAddr: d.ClientAddr, TestBy: d.TestBy, Subjects: d.Subjects,
		Runs: terms.Each(d.Runs, func(r store.RunRef) string { return r.ID.String() }),
	}
	for _, r := range d.Runs {
		shown.StartedRuns = append(shown.StartedRuns, api.StartedRun{
			RunID: r.ID.String(), ID: r.ID.String(), Automation: r.Automation, State: string(r.State), StartedAt: api.Time(r.StartedAt), FinishedAt: api.Time(r.FinishedAt),
		})
	}
	for _, r := range d.Skips {
		shown.Skips = append(shown.Skips, api.Skip{Automation: r.Automation, Of: r.Of.String()})
	}
	for _, r := range d.Repeats {
		shown.Repeats = append(shown.Repeats, api.Repeat{Automation: r.Automation, Of: r.Of.String()})
	}
	if d.Identity.Source != "" {
		shown.Identity = &api.Identity{Source: d.Identity.Source, Value: d.Identity.Value}
	}
	if d.Outcome == store.Accepted && d.Started >= 0 {
		shown.RunsStarted = &d.Started
	}
	return shown
}

func (s *Server) getDelivery(ctx context.Context, _ *call, d access.Delivery) (shown api.DeliveryDetail, err error) {
	trace, err := d.Trace(ctx)
	if err != nil {
		return shown, err
	}
	shown = showTrace(trace)
	runs, err := d.Runs(ctx)
	if err != nil {
		return shown, err
	}
	shown.RunBelts = make([]api.RunBelt, len(runs))
	for i, r := range runs {
		belt, err := r.Belt(ctx)
		if err != nil {
			return shown, err
		}
		shown.RunBelts[i] = api.RunBelt{
			RunID: r.ID.String(), ID: r.ID.String(), Automation: r.Automation, State: string(r.State), RetryOf: r.RetryOf.String(), Link: s.runLink(r.ID),
			Belt: terms.Each(belt, showStage),
		}
	}
	return shown, nil
}

func showTrace(trace *delivery.Trace) api.DeliveryDetail {
	d := trace.Delivery
	shown := api.DeliveryDetail{
		Delivery: showDelivery(d), WebhookUID: d.WebhookUID,
		Headers: d.Headers, ApplyID: d.ApplyID.String(), Commit: trace.Commit, SecretGeneration: d.SecretGeneration,
		Belt: terms.Each(trace.Belt, showStage), Waiting: trace.Waiting,
		Matches: showMatches(trace, trace.Matches), Disabled: showMatches(trace, trace.Disabled),
	}
	shown.Event, shown.Person, shown.Title = trace.Event, trace.Person, trace.Title
	if shown.Headers == nil {
		shown.Headers = map[string]string{}
	}
	if hook := trace.Webhook; hook != nil {
		shown.Path, shown.Blob = hook.Def.Path, hook.Revision.Definition.Blob(hook.Def.Path)
	}
	return shown
}

func showMatches(trace *delivery.Trace, results []match.Result) []api.Match {
	automations := make(map[string]*factory.Automation)
	blob := func(string) string { return "" }
	if hook := trace.Webhook; hook != nil {
		blob = hook.Revision.Definition.Blob
		for _, a := range hook.Revision.Definition.Automations {
			automations[a.Name] = a
		}
	}
	all := make([]api.Match, len(results))
	for i, m := range results {
		all[i] = api.Match{Automation: m.Automation, Matched: m.Matched, Path: m.Path, Want: m.Want, Got: m.Got, Conditions: terms.Each(m.Conditions, showCondition), Subject: m.Subject, SubjectLacks: m.Lacks}
		if a := automations[m.Automation]; a != nil {
			all[i].Definition, all[i].Blob = a.Path, blob(a.Path)
		}
	}
	return all
}

func showCondition(c filter.Condition) api.Condition { return api.Condition(c) }

func (s *Server) getPayload(ctx context.Context, c *call, d access.Delivery) (done written, err error) {
	payload, err := d.Payload(ctx)
	if err != nil {
		return done, err
	}
	// The bytes come from a stranger, so a browser must not show them as a page.
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Content-Disposition", `attachment; filename="`+d.ID.String()+`.json"`)
	c.Context.Data(http.StatusOK, "application/octet-stream", payload)
	return done, nil
}

func (s *Server) replay(ctx context.Context, c *call, d access.Delivery) (shown api.Replayed, err error) {
	done, err := d.Replay(ctx)
	if err != nil {
		return shown, err
	}
	c.audit("delivery.replay", d.ID.String(), d.Factory, "as "+done.ID.String())
	return api.Replayed{DeliveryID: done.ID.String(), ID: done.ID.String(), Runs: terms.Each(done.RunIDs, store.RunID.String)}, nil
}

func (s *Server) testFilter(ctx context.Context, c *call) (verdict api.FilterVerdict, err error) {
	return s.filterVerdict(ctx, c, false)
}

// askFilter is testFilter that asks the sender's API, with a managed secret.
func (s *Server) askFilter(ctx context.Context, c *call) (verdict api.FilterVerdict, err error) {
	return s.filterVerdict(ctx, c, true)
}

func (s *Server) filterVerdict(ctx context.Context, c *call, ask bool) (verdict api.FilterVerdict, err error) {
	req, err := body[api.TestFilter](c)
	if err != nil {
		return verdict, err
	}
	// A client may write null for a field that it does not use.
	if string(req.Filter) == "null" {
		req.Filter = nil
	}
	if req.DeliveryID != "" && string(req.Payload) == "null" {
		req.Payload = nil
	}
	var stored store.DeliveryID
	if req.DeliveryID != "" {
		d, err := c.Delivery(ctx, req.DeliveryID)
		if err != nil {
			return verdict, err
		}
		stored, req.Factory = d.ID, cmp.Or(req.Factory, d.Factory)
	}
	if all := c.Revisions(c.Query("factory")); req.Factory == "" && len(all) == 1 {
		req.Factory = all[0].Factory
	}
	r, err := c.TestFilter(ctx, delivery.TestRequest{
		Factory: req.Factory, Automation: req.Automation, Filter: req.Filter, DeliveryID: stored, Payload: req.Payload, Headers: req.Headers, Webhook: req.Webhook,
		Ask: ask,
	})
	if len(r.Asked) > 0 {
		c.audit("filter.ask", req.Automation, req.Factory, strings.Join(r.Asked, "; "))
	}
	return api.FilterVerdict{
		WouldTrigger: r.WouldTrigger, Verdict: r.Verdict(), Asks: r.Asks, Asked: r.Asked, WebhookCheck: api.FilterCheck(r.WebhookCheck),
		PayloadCheck: api.FilterCheck(r.PayloadCheck), Subject: r.Subject, SubjectLacks: r.Lacks, Conditions: terms.Each(r.Conditions, showCondition),
		Webhooks: terms.Each(r.Webhooks, func(w delivery.WebhookVerdict) api.WebhookVerdict { return api.WebhookVerdict(w) }),
	}, err
}
