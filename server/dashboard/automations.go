package dashboard

import (
	"html/template"
	"slices"
	"strings"

	"triphammer/server/api"
)

// Automations is the list of automations.
type Automations struct {
	Page
	Automations []api.Automation
}

var automations = parse("automations")

func (Automations) template() *template.Template { return automations() }

// trigger is one trigger in words.
type trigger struct {
	Text string
	Idle string // why it starts nothing, or not for all of its webhooks
}

func showTrigger(t api.Trigger) trigger {
	shown := trigger{Text: t.Provider + " " + t.Event, Idle: t.Dormant}
	if names := slices.Concat(t.Webhooks, t.WebhookIDs); len(names) > 0 {
		shown.Text = "webhook " + strings.Join(names, ", ")
	}
	if shown.Idle == "" && len(t.Gone) > 0 {
		shown.Idle = "there is no webhook " + strings.Join(t.Gone, ", ")
	}
	return shown
}
