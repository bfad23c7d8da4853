package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/authoring"
	"triphammer/server/store"
	"triphammer/server/terms"
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

// notLive says why something may not be there yet, if commits wait; else it is empty.
func (s *Server) notLive(c *call) (text string) {
	for _, f := range c.Factories() {
		if asked := c.Query("factory"); asked != "" && asked != f.Name {
			continue
		}
		if why := authoring.Waits(f.State()); why != "" {
			why, _, _ = strings.Cut(why, "\n")
			text += fmt.Sprintf("; the newest commit of the factory %s does not serve: %s", f.Name, why)
		}
	}
	return text
}

// webhook is the live webhook that the path names by its name or UID.
func (s *Server) webhook(c *call) (*applier.Webhook, error) {
	name := c.Param("name")
	all := s.webhooks(c)
	names := terms.Each(all, func(w *applier.Webhook) string { return w.Def.Name })
	found := slices.DeleteFunc(all, func(w *applier.Webhook) bool { return w.UID != name && w.Def.Name != name })
	switch len(found) {
	case 0:
		return nil, api.Refuse(api.NotFound, api.NoneNamed("webhook", name, names)+s.notLive(c))
	case 1:
		return found[0], nil
	}
	return nil, api.Refuse(api.Conflict, "several factories have a webhook of this name: say which (--factory NAME, ?factory=NAME)")
}

func (s *Server) showWebhook(w *applier.Webhook) api.Webhook {
	shown := api.Webhook{
		Name: w.Def.Name, UID: w.UID, ID: w.UID, Factory: w.Factory, URL: s.cfg.BaseURL + ingress + w.UID, AuthMode: string(w.Def.AuthMode),
		Enabled: w.Def.Enabled, SecretName: w.Def.SecretName, SecretGeneration: w.SecretGeneration, DeliveryIDHeader: w.Def.DeliveryIDHeader,
		Path: w.Def.Path, APISecretName: w.Def.APISecretName,
		Paused: s.pauseOf(store.KindWebhook, w.Factory, w.Def.Name),
	}
	if w.Def.ReplayWindow > 0 {
		shown.ReplayWindow = factory.ShortDuration(w.Def.ReplayWindow)
	}
	if w.Def.AppTokenName != "" {
		shown.Connect, shown.AppTokenName = "socket", w.Def.AppTokenName
		if s.cfg.Connection != nil {
			shown.Connection = s.cfg.Connection(w.UID)
		}
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

// checkTime is for one question to a sender about a credential.
const checkTime = 20 * time.Second

// checkCredential asks the sender of a webhook about the credential in apiSecretName.
func (s *Server) checkCredential(ctx context.Context, c *call, f access.Factory) (told api.CheckedCredential, err error) {
	w := c.LiveWebhook(f.Name, c.Param("webhook"))
	if w == nil {
		return told, f.NoneNamed("webhook", c.Param("webhook"))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	a, err := f.Credential(ctx, w)
	c.audit("webhook.check", w.Def.Name, f.Name, w.Def.APISecretName)
	if err != nil {
		return told, api.Refuse(api.Conflict, err.Error())
	}
	return api.CheckedCredential{Provider: a.Provider, Account: a.Name, Lacking: append([]string{}, a.Lacking...), Untold: a.Untold, Needs: a.Needs}, nil
}
