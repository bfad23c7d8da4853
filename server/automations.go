package server

import (
	"context"

	"triphammer/applier"
	"triphammer/server/api"
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
				Warnings: warnings(a), Paused: c.server.pauseOf(store.KindAutomation, r.Factory, a.Def.Name),
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
