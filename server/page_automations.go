package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/dashboard"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// maxTestForm is the largest form of a test: a payload of the largest size whose
// every byte is escaped.
const maxTestForm = 3*delivery.MaxBody + 4<<10

// pageAutomations are the automations as pages show them.
func (s *Server) pageAutomations() []dashboard.Automation {
	var all []dashboard.Automation
	for _, r := range s.cfg.Live.Revisions() {
		for _, a := range r.Automations {
			shown := dashboard.Automation{Factory: r.Factory, Name: a.Def.Name, Path: a.Def.Path, Enabled: a.Def.Enabled, Dormant: r.Dormant(a.Def), Environment: a.Def.Settings.EnvironmentID}
			for i := range a.Def.Triggers {
				t := &a.Def.Triggers[i]
				trigger := dashboard.Trigger{Text: t.Provider + " " + t.Event, Idle: r.Idle(t)}
				if names := slices.Concat(t.Webhooks, t.WebhookIDs); len(names) > 0 {
					trigger.Text = "webhook " + strings.Join(names, ", ")
				}
				if gone := r.Gone(t); trigger.Idle == "" && len(gone) > 0 {
					trigger.Idle = "there is no webhook " + strings.Join(gone, ", ")
				}
				shown.Triggers = append(shown.Triggers, trigger)
			}
			all = append(all, shown)
		}
	}
	return all
}

func (s *Server) automationsPage(c *gin.Context) {
	s.render(c, http.StatusOK, dashboard.Automations{Page: s.pageOf(c, "Automations"), Automations: s.pageAutomations()})
}

// filterTestPage is the form of Test filter, perhaps filled in by the address.
func (s *Server) filterTestPage(c *gin.Context) {
	s.render(c, http.StatusOK, s.filterTest(c, c.Request.URL.Query()))
}

func (s *Server) filterTest(c *gin.Context, form url.Values) dashboard.FilterTest {
	data := dashboard.FilterTest{
		Page: s.pageOf(c, "Test filter"), Automations: s.pageAutomations(),
		Automation: form.Get("automation"), Webhook: form.Get("webhook"), Delivery: strings.TrimSpace(form.Get("delivery")), Payload: form.Get("payload"),
	}
	for _, r := range s.cfg.Live.Revisions() {
		for _, w := range r.Webhooks {
			data.Webhooks = append(data.Webhooks, w.Def.Name)
		}
	}
	slices.Sort(data.Webhooks)
	data.Webhooks = slices.Compact(data.Webhooks)
	return data
}

// testFromPage evaluates an automation on a stored delivery or a pasted payload
// (SPEC C6.3). Nothing is started or recorded.
func (s *Server) testFromPage(c *gin.Context) {
	body, ok := readBody(c, maxTestForm)
	if !ok {
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		s.message(c, http.StatusBadRequest, "The form cannot be read", err.Error())
		return
	}
	data := s.filterTest(c, form)
	factory, name, _ := strings.Cut(data.Automation, "/")
	req := delivery.TestRequest{Factory: factory, Automation: name, Webhook: data.Webhook}
	if strings.TrimSpace(data.Payload) != "" {
		req.Payload = []byte(data.Payload)
	}
	var result delivery.TestResult
	if req.DeliveryID, err = store.ParseID[store.Delivery](data.Delivery); err == nil {
		result, err = s.cfg.Delivery.TestFilter(c.Request.Context(), req)
	}
	status := http.StatusOK
	if err != nil {
		status, data.Error = http.StatusBadRequest, err.Error()
	} else {
		data.Result = &result
	}
	s.render(c, status, data)
}
