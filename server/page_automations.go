package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/dashboard"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// maxTestForm is the largest form of a test, in bytes. It holds the largest payload with
// every byte escaped.
const maxTestForm = 3*delivery.MaxBody + 4<<10

// filterTestPage shows the form of Test filter. The query of the address can fill it in.
func filterTestPage(ctx context.Context, c *call) (dashboard.FilterTest, error) {
	return filterTest(ctx, c, c.Request.URL.Query())
}

func filterTest(ctx context.Context, c *call, form url.Values) (dashboard.FilterTest, error) {
	all := c.Revisions("")
	shown, err := c.page("Test filter")
	page := dashboard.FilterTest{
		Page: shown, Automations: automations(ctx, c, ""),
		Automation: form.Get("automation"), Webhook: form.Get("webhook"), Delivery: strings.TrimSpace(form.Get("delivery")), Payload: form.Get("payload"),
	}
	for _, r := range all {
		for _, w := range r.Webhooks {
			page.Webhooks = append(page.Webhooks, w.Def.Name)
		}
	}
	slices.Sort(page.Webhooks)
	page.Webhooks = slices.Compact(page.Webhooks)
	return page, err
}

// testFromPage evaluates an automation on a stored delivery or a pasted payload (SPEC
// C6.3). It starts and records nothing.
func (s *Server) testFromPage(g *gin.Context) {
	c := callOf(g)
	body, err := readBody(g, maxTestForm)
	if err != nil {
		s.failWith(g, err)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		s.message(g, http.StatusBadRequest, "The form cannot be read", err.Error())
		return
	}
	page, err := filterTest(g.Request.Context(), c, form)
	if err != nil {
		s.failPage(g, err)
		return
	}
	factory, name, _ := strings.Cut(page.Automation, "/")
	req := delivery.TestRequest{Factory: factory, Automation: name, Webhook: page.Webhook}
	if strings.TrimSpace(page.Payload) != "" {
		req.Payload = []byte(page.Payload)
	}
	var result delivery.TestResult
	if req.DeliveryID, err = store.ParseID[store.Delivery](page.Delivery); err == nil {
		result, err = c.TestFilter(g.Request.Context(), req)
	}
	if err != nil {
		page.Error = err.Error()
		s.render(g, http.StatusBadRequest, page)
		return
	}
	page.Result = &result
	s.render(g, http.StatusOK, page)
}
