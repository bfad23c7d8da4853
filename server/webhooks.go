package server

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
)

func (s *Server) listWebhooks(_ context.Context, c *call) (api.List[api.Webhook], error) {
	return listOf(s.webhooks(c), s.showWebhook), nil
}

// webhooks are the live webhooks of the requested factory.
func (s *Server) webhooks(c *call) (all []*applier.Webhook) {
	for _, r := range c.Revisions(c.Query("factory")) {
		all = append(all, r.Webhooks...)
	}
	return all
}

func (s *Server) getWebhook(_ context.Context, c *call) (shown api.Webhook, err error) {
	w, err := s.webhook(c)
	if err != nil {
		return shown, err
	}
	return s.showWebhook(w), nil
}

// webhook is the live webhook that the path names by its name or UID.
func (s *Server) webhook(c *call) (*applier.Webhook, error) {
	name := c.Param("name")
	found := slices.DeleteFunc(s.webhooks(c), func(w *applier.Webhook) bool { return w.UID != name && w.Def.Name != name })
	switch len(found) {
	case 0:
		return nil, api.Refuse(api.NotFound, "no webhook is named "+name)
	case 1:
		return found[0], nil
	}
	return nil, api.Refuse(api.Conflict, "several factories have a webhook of this name: say which (--factory NAME, ?factory=NAME)")
}

func (s *Server) showWebhook(w *applier.Webhook) api.Webhook {
	shown := api.Webhook{
		Name: w.Def.Name, UID: w.UID, Factory: w.Factory, URL: s.cfg.BaseURL + ingress + w.UID, AuthMode: string(w.Def.AuthMode),
		Enabled: w.Def.Enabled, SecretName: w.Def.SecretName, SecretGeneration: w.SecretGeneration, DeliveryIDHeader: w.Def.DeliveryIDHeader,
		Path: w.Def.Path,
	}
	if w.Def.AuthMode == factory.URLToken {
		shown.URL += "/{token}"
	}
	if w.Def.Scheme != nil {
		shown.SignatureScheme = w.Def.Scheme.Name
		if w.Def.Signature != (factory.SignatureOptions{}) {
			shown.Signature = &w.Def.Signature
		}
	}
	return shown
}

func (s *Server) listAutomations(ctx context.Context, c *call) (shown api.List[api.Automation], err error) {
	all := automations(ctx, c, c.Query("factory"))
	err = showPauses(ctx, c, all)
	return listOf(all, func(a api.Automation) api.Automation { return a }), err
}

// showPauses completes automations with their pauses.
func showPauses(ctx context.Context, c *call, all []api.Automation) error {
	pauses, err := c.Pauses(ctx, "")
	for i, a := range all {
		if p, paused := pauses[[2]string{a.Factory, a.Name}]; paused {
			all[i].Paused = &api.Pause{Since: p.At, By: p.By, Reason: p.Reason}
		}
	}
	return err
}

func (s *Server) pauseAutomation(ctx context.Context, c *call, f access.Factory) (shown gin.H, err error) {
	req, err := optionalBody[api.PauseRequest](c)
	if err != nil {
		return nil, err
	}
	if len(req.Reason) > maxReason {
		return nil, refuse("reason", "", "a reason has up to %d bytes", maxReason)
	}
	reason := cmp.Or(strings.TrimSpace(req.Reason), "no reason was given")
	if err := f.Pause(ctx, c.Param("automation"), c.Name, reason); err != nil {
		return nil, err
	}
	c.audit("automation.pause", c.Param("automation"), f.Name, reason)
	return gin.H{}, nil
}

func (s *Server) resumeAutomation(ctx context.Context, c *call, f access.Factory) (shown gin.H, err error) {
	if err := f.Resume(ctx, c.Param("automation")); err != nil {
		return nil, err
	}
	c.audit("automation.resume", c.Param("automation"), f.Name, "")
	return gin.H{}, nil
}

// automations are the automations of a factory, or of all.
func automations(ctx context.Context, c *call, factory string) (all []api.Automation) {
	for _, r := range c.Revisions(factory) {
		warnings := c.Warnings(ctx, r)
		for _, a := range r.Automations {
			shown := api.Automation{
				Name: a.Def.Name, Factory: r.Factory, Path: a.Def.Path, Enabled: a.Def.Enabled, Agent: a.Def.Agent,
				EnvironmentID: a.Def.Settings.EnvironmentID, Triggers: []api.Trigger{}, Dormant: r.Dormant(a.Def),
				Warnings: warnings(a),
			}
			for i := range a.Def.Triggers {
				t := &a.Def.Triggers[i]
				shown.Triggers = append(shown.Triggers, api.Trigger{
					Provider: t.Provider, Event: t.Event, WebhookIDs: t.WebhookIDs, Webhooks: t.Webhooks, Gone: r.Gone(t),
					Filtered: t.Payload != nil, Fires: t.Fires(), Dormant: r.Idle(t),
				})
			}
			all = append(all, shown)
		}
	}
	return all
}
