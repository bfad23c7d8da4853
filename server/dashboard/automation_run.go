package dashboard

import (
	"encoding/json"
	"strings"

	"triphammer/server/api"
)

// byHand is the form that starts a run of an automation.
type byHand struct{ Prompt, Payload, Failed string }

// Status implements Status.
func (p Automation) Status() int {
	if p.ByHand.Failed != "" {
		return formStatus(p.ByHand.Failed)
	}
	return p.kept.Status()
}

// runAutomation starts a run of an automation, and sends the browser to the run's page.
func runAutomation(v *Visit) (Content, error) {
	factory, name := v.Param("name"), v.Param("automation")
	form := byHand{Prompt: strings.ReplaceAll(strings.TrimSpace(v.Form.Get("prompt")), "\r\n", "\n"), Payload: strings.TrimSpace(v.Form.Get("payload"))}
	req := api.RunAutomation{Prompt: form.Prompt}
	if form.Payload != "" {
		req.Payload = json.RawMessage(form.Payload)
	}
	var made api.CreatedRun
	if req.Payload != nil && !json.Valid(req.Payload) {
		form.Failed = "The payload is no JSON. Nothing was started."
	} else if err := v.Send("POST", escaped("/factories", factory, "automations", name)+"/run", req, &made); err != nil {
		refused, err := told(err)
		if err != nil {
			return nil, err
		}
		form.Failed = refused.Message
	}
	if form.Failed == "" {
		return SeeOther{To: to("/runs/"+made.RunID, "factory", factory), Said: "The run is in the queue."}, nil
	}
	page, err := automationPage(v, factory, name)
	page.ByHand = form
	return page, err
}
