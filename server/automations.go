package server

import (
	"context"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func (s *Server) listAutomations(ctx context.Context, c *call) (api.List[api.Automation], error) {
	return listOf(automations(ctx, c, c.Query("factory")), func(a api.Automation) api.Automation { return a }), nil
}

// automations are the automations of a factory, or of all.
func automations(ctx context.Context, c *call, factory string) (all []api.Automation) {
	rests := func(w *applier.Webhook) bool {
		return c.server.pauseOf(store.KindWebhook, w.Factory, w.Def.Name) != nil
	}
	for _, r := range c.Revisions(factory) {
		warnings := c.Warnings(ctx, r)
		for _, a := range r.Automations {
			shown := api.Automation{
				Name: a.Def.Name, Factory: r.Factory, Path: a.Def.Path, Enabled: a.Def.Enabled, Agent: a.Def.Agent,
				EnvironmentID: a.Def.Settings.EnvironmentID, Triggers: []api.Trigger{}, Dormant: r.Dormant(a.Def, rests),
				Warnings: warnings(a), Paused: c.server.pauseOf(store.KindAutomation, r.Factory, a.Def.Name), AutomationRules: rulesOf(a.Def),
			}
			for i := range a.Def.Triggers {
				t := &a.Def.Triggers[i]
				shown.Triggers = append(shown.Triggers, api.Trigger{
					Provider: t.Provider, Event: t.Event, WebhookIDs: t.WebhookIDs, Webhooks: t.Webhooks, Gone: r.Gone(t),
					Filtered: t.Payload != nil, Fires: t.Fires(), Dormant: r.Idle(t, rests),
				})
			}
			all = append(all, shown)
		}
	}
	return all
}

// rulesOf are the rules of an automation.
func rulesOf(a *factory.Automation) api.AutomationRules {
	r := api.AutomationRules{
		StartedBy: a.StartedBy, MaxRunsPerHour: a.MaxRunsPerHour, MaxRunsPerPersonPerHour: a.MaxPerPerson, PerSubject: a.PerSubject,
		SettleSeconds: a.Settle.Seconds(), Outputs: a.Outputs, Push: a.Push.WithDefaults(), Budget: a.Budget, Retry: a.Retry,
	}
	if a.Overflow {
		r.Overflow = "queue"
	}
	if said := a.Report; said.Said {
		r.Report = &api.Report{Kinds: append([]string{}, said.Kinds...), SecretName: said.Hook.SecretName, Text: said.Text}
		if said.Hook.URL != "" {
			r.Report.URL = secret.Origin(said.Hook.URL)
		}
	}
	return r
}
