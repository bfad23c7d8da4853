package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/factory"
	"triphammer/factory/filter"
	"triphammer/factory/match"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

func (s *Server) listDeliveries(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok {
		return
	}
	factory, ok := factoryOf(c)
	if !ok {
		return
	}
	cursor, ok := cursorOf[store.Delivery](c)
	if !ok {
		return
	}
	q := store.DeliveryQuery{Factory: factory, Outcome: store.Outcome(c.Query("outcome")), Before: cursor, Limit: limit + 1}
	if q.Outcome != "" && !slices.Contains(store.Outcomes, q.Outcome) {
		fail(c, api.InvalidRequest, fmt.Sprintf("outcome is one of %v", store.Outcomes), api.FieldProblem{Field: "outcome", Message: c.Query("outcome")})
		return
	}
	if since := c.Query("since"); since != "" {
		t, err := time.Parse(time.RFC3339, since)
		if err != nil {
			fail(c, api.InvalidRequest, "since is a time in RFC 3339", api.FieldProblem{Field: "since", Message: since})
			return
		}
		q.Since = t
	}
	if w := c.Query("webhook"); strings.HasPrefix(w, "whk_") {
		q.WebhookUID = w
	} else {
		q.Webhook = w
	}
	all, err := s.cfg.Store.Deliveries(c.Request.Context(), q)
	if err != nil {
		s.failWith(c, err)
		return
	}
	all, info := page(all, limit, func(d *store.Delivery) string { return d.ID.String() })
	shown := make([]api.Delivery, len(all))
	for i, d := range all {
		shown[i] = showDelivery(d)
	}
	c.JSON(http.StatusOK, gin.H{"deliveries": shown, "page_info": info})
}

func showDelivery(d *store.Delivery) api.Delivery {
	shown := api.Delivery{
		ID: d.ID.String(), Webhook: d.Webhook, Factory: d.Factory, Outcome: string(d.Outcome), Label: d.Outcome.Label(), Size: d.Size, ReceivedAt: d.ReceivedAt,
		DuplicateOf: d.DuplicateOf.String(), ReplayOf: d.ReplayOf.String(), Reason: d.Reason, Runs: []string{},
	}
	if d.Identity.Source != "" {
		shown.Identity = &api.Identity{Source: d.Identity.Source, Value: d.Identity.Value}
	}
	for _, r := range d.Runs {
		shown.Runs = append(shown.Runs, r.ID.String())
	}
	if d.Outcome == store.Accepted && d.Started >= 0 {
		shown.RunsStarted = &d.Started
	}
	return shown
}

// deliveryOf checks that the request may see a delivery, or answers why not.
func (s *Server) deliveryOf(c *gin.Context) (*store.Delivery, bool) {
	d, err := byID(c, c.Param("id"), s.cfg.Store.Delivery)
	if err == nil && !who(c).mayTouch(d.Factory) {
		err = fmt.Errorf("delivery %s: %w", c.Param("id"), store.ErrNotFound)
	}
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	return d, true
}

func (s *Server) getDelivery(c *gin.Context) {
	d, ok := s.deliveryOf(c)
	if !ok {
		return
	}
	trace, err := s.cfg.Delivery.Show(c.Request.Context(), d.ID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, showTrace(trace))
}

func showTrace(trace *delivery.Trace) api.DeliveryDetail {
	d := trace.Delivery
	shown := api.DeliveryDetail{
		Delivery: showDelivery(d), WebhookUID: d.WebhookUID, Detail: d.Detail, ClientAddr: d.ClientAddr, Headers: d.Headers, ApplyID: d.ApplyID.String(),
		Commit: trace.Commit, SecretGeneration: d.SecretGeneration, Belt: []api.Stage{}, Matches: []api.Match{}, Disabled: []api.Match{},
	}
	if shown.Headers == nil {
		shown.Headers = map[string]string{}
	}
	for _, stage := range trace.Belt {
		shown.Belt = append(shown.Belt, api.Stage(stage))
	}
	if hook := trace.Webhook; hook != nil {
		shown.Path, shown.Blob = hook.Def.Path, hook.Revision.Definition.Blob(hook.Def.Path)
	}
	shown.Matches = append(shown.Matches, showMatches(trace, trace.Matches)...)
	shown.Disabled = append(shown.Disabled, showMatches(trace, trace.Disabled)...)
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
		all[i] = api.Match{Automation: m.Automation, Matched: m.Matched, Path: m.Path, Want: m.Want, Got: m.Got, Conditions: showConditions(m.Conditions)}
		if a := automations[m.Automation]; a != nil {
			all[i].Definition, all[i].Blob = a.Path, blob(a.Path)
		}
	}
	return all
}

func showConditions(all []filter.Condition) []api.Condition {
	shown := make([]api.Condition, len(all))
	for i, c := range all {
		shown[i] = api.Condition(c)
	}
	return shown
}

func (s *Server) getPayload(c *gin.Context) {
	d, ok := s.deliveryOf(c)
	if !ok {
		return
	}
	payload, err := s.cfg.Store.Payload(c.Request.Context(), d.ID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	// The bytes are a stranger's: nothing may take them for a page.
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Content-Disposition", `attachment; filename="`+d.ID.String()+`.json"`)
	c.Data(http.StatusOK, "application/octet-stream", payload)
}

func (s *Server) replay(c *gin.Context) {
	d, ok := s.deliveryOf(c)
	if !ok {
		return
	}
	done, err := s.cfg.Delivery.Replay(c.Request.Context(), d.ID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "delivery.replay", d.ID.String(), d.Factory, "as "+done.ID.String())
	shown := api.Replayed{DeliveryID: done.ID.String(), Runs: []string{}}
	for _, id := range done.RunIDs {
		shown.Runs = append(shown.Runs, id.String())
	}
	c.JSON(http.StatusOK, shown)
}

func (s *Server) testFilter(c *gin.Context) {
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var req api.TestFilter
	if err := decode(body, &req); err != nil {
		s.failWith(c, err)
		return
	}
	// Who writes every key writes null for what is not meant.
	if string(req.Filter) == "null" {
		req.Filter = nil
	}
	if req.DeliveryID != "" && string(req.Payload) == "null" {
		req.Payload = nil
	}
	var stored store.DeliveryID
	if req.DeliveryID != "" {
		d, err := byID(c, req.DeliveryID, s.cfg.Store.Delivery)
		if err == nil && !who(c).mayTouch(d.Factory) {
			err = store.ErrNotFound
		}
		if err != nil {
			s.failWith(c, err)
			return
		}
		stored, req.Factory = d.ID, cmp.Or(req.Factory, d.Factory)
	}
	if all := s.revisions(c); req.Factory == "" && len(all) == 1 {
		req.Factory = all[0].Factory
	}
	if !who(c).mayTouch(req.Factory) {
		fail(c, api.NotAuthorized, "the key is for another factory")
		return
	}
	r, err := s.cfg.Delivery.TestFilter(c.Request.Context(), delivery.TestRequest{
		Factory: req.Factory, Automation: req.Automation, Filter: req.Filter, DeliveryID: stored, Payload: req.Payload, Webhook: req.Webhook,
	})
	if err != nil {
		s.failWith(c, err)
		return
	}
	verdict := api.FilterVerdict{
		WouldTrigger: r.WouldTrigger, Verdict: r.Verdict(), WebhookCheck: api.FilterCheck(r.WebhookCheck), PayloadCheck: api.FilterCheck(r.PayloadCheck),
		Conditions: showConditions(r.Conditions),
	}
	for _, w := range r.Webhooks {
		verdict.Webhooks = append(verdict.Webhooks, api.WebhookVerdict(w))
	}
	c.JSON(http.StatusOK, verdict)
}
