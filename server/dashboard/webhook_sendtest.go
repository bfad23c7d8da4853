package dashboard

import (
	"encoding/json"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

var sendTestRoutes = []Route{post(aWebhook+"/test", store.ScopeOperate, sendTest, "POST "+aWebhook+"/test")}

// webhookTest is the form that sends a test to a webhook.
type webhookTest struct {
	Event   string // of the chosen sample
	Payload string
	Failed  string
}

// choose fills the form with the sample of an event, or else with the first sample.
func (t *webhookTest) choose(samples []api.Sample, event string) {
	i := max(slices.IndexFunc(samples, func(s api.Sample) bool { return s.Event == event }), 0)
	t.Event, t.Payload = samples[i].Event, indented(samples[i].Payload)
}

// Status implements Status.
func (p Webhook) Status() int { return formStatus(p.Test.Failed) }

// sendTest makes the server send a test, and sends the browser to the delivery.
func sendTest(v *Visit) (Content, error) {
	factory, name := v.Param("name"), v.Param("webhook")
	form := webhookTest{Event: v.Form.Get("event"), Payload: strings.TrimSpace(v.Form.Get("payload"))}
	req := api.SendTest{Event: form.Event, Payload: json.RawMessage(form.Payload)}
	if form.Payload == "" {
		req.Payload = nil // the sample is sent
	}
	var sent api.TestSent
	if req.Payload != nil && !json.Valid(req.Payload) {
		form.Failed = "The payload is no JSON, which no webhook takes. Nothing was sent."
	} else if err := v.Send("POST", escaped("/factories", factory, "webhooks", name)+"/test", req, &sent); err != nil {
		refused, err := told(err)
		if err != nil {
			return nil, err
		}
		form.Failed = refused.Message
	}
	switch d := sent.Delivery; {
	case form.Failed != "":
		page, err := v.webhook(factory, name)
		page.Here, page.Test = "/webhooks", form
		page.limit(factory)
		page.Again = page.In(factory, "/webhooks/"+named(name))
		return page, err
	case d == nil:
		return backToWebhook(v, "The webhook answered the question of its sender. Nothing was recorded: it is no delivery."), nil
	default:
		return SeeOther{To: to("/deliveries/"+d.ID, "factory", factory), Said: "The test is sent: " + strings.ToLower(deliveryState(*d).Word) + "."}, nil
	}
}
