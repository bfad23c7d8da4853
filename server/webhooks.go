package server

import (
	"net/http"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory"
)

// revisions are what serves, as far as the request may see it.
func (s *Server) revisions(c *gin.Context) []*applier.Revision {
	wanted := c.Query("factory")
	var all []*applier.Revision
	for _, r := range s.cfg.Live.Revisions() {
		if who(c).mayTouch(r.Factory) && (wanted == "" || wanted == r.Factory) {
			all = append(all, r)
		}
	}
	return all
}

func (s *Server) listWebhooks(c *gin.Context) {
	all := []api.Webhook{}
	for _, r := range s.revisions(c) {
		for _, w := range r.Webhooks {
			all = append(all, s.showWebhook(w))
		}
	}
	c.JSON(http.StatusOK, gin.H{"webhooks": all, "page_info": api.PageInfo{}})
}

func (s *Server) getWebhook(c *gin.Context) {
	var found []api.Webhook
	for _, r := range s.revisions(c) {
		for _, w := range r.Webhooks {
			if w.UID == c.Param("name") || w.Def.Name == c.Param("name") {
				found = append(found, s.showWebhook(w))
			}
		}
	}
	switch len(found) {
	case 0:
		fail(c, api.NotFound, "no webhook is named "+c.Param("name"))
	case 1:
		c.JSON(http.StatusOK, found[0])
	default:
		fail(c, api.Conflict, "several factories have a webhook of this name: say which (--factory NAME, ?factory=NAME)")
	}
}

func (s *Server) showWebhook(w *applier.Webhook) api.Webhook {
	shown := api.Webhook{
		Name: w.Def.Name, UID: w.UID, Factory: w.Factory, URL: s.cfg.BaseURL + ingress + w.UID, AuthMode: string(w.Def.AuthMode),
		Enabled: w.Def.Enabled, SecretName: w.Def.SecretName, SecretGeneration: w.SecretGeneration, DeliveryIDHeader: w.Def.DeliveryIDHeader,
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

func (s *Server) listAutomations(c *gin.Context) {
	all := []api.Automation{}
	for _, r := range s.revisions(c) {
		for _, a := range r.Automations {
			shown := api.Automation{
				Name: a.Def.Name, Factory: r.Factory, Path: a.Def.Path, Enabled: a.Def.Enabled, Agent: a.Def.Agent,
				EnvironmentID: a.Def.Settings.EnvironmentID, Triggers: []api.Trigger{}, Dormant: r.Dormant(a.Def),
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
	c.JSON(http.StatusOK, gin.H{"automations": all, "page_info": api.PageInfo{}})
}
