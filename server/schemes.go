package server

import (
	"context"
	"fmt"
	"strings"

	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/server/api"
)

func (s *Server) listSchemes(context.Context, *call) (api.List[api.SignatureScheme], error) {
	return listOf(signature.All(), api.ShowScheme), nil
}

func (s *Server) getScheme(_ context.Context, c *call) (shown api.SignatureScheme, err error) {
	name := c.Param("name")
	found, ok := signature.Lookup(name)
	if !ok {
		return shown, api.Refuse(api.NotFound, strings.TrimSuffix(fmt.Sprintf("there is no signature scheme %q; %s", name, schema.OneOf(name, signature.Names())), "; "))
	}
	return api.ShowScheme(found), nil
}

// setupWebhook says how to make the sender of a webhook deliver here.
func (s *Server) setupWebhook(_ context.Context, c *call) (shown api.WebhookSetup, err error) {
	w, err := s.webhook(c)
	if err != nil {
		return shown, err
	}
	url, def := s.showWebhook(w).URL, w.Def
	secret := def.SecretName
	guide, proof := signature.TokenGuide(), `-H "Authorization: Bearer $`+def.SecretName+`" `
	switch {
	case def.AuthMode == factory.URLToken:
		guide, proof = signature.URLTokenGuide(), ""
	case def.AppTokenName != "":
		guide, proof, secret = signature.SocketGuide(), "", def.AppTokenName
		shown.Provider = def.Scheme.Provider
	case def.Scheme != nil:
		guide, proof = def.Scheme.Guide(), ""
		shown.Provider = def.Scheme.Provider
	}
	for _, one := range samplesFor(def, s.cfg.Now()) {
		shown.Samples = append(shown.Samples, api.Sample{Event: one.Event, Headers: one.Headers, Payload: one.Body})
	}
	shown.CannotTest = c.CannotSend(w)
	shown.Webhook, shown.Guide = def.Name, api.Guide(guide.Fill(url, secret))
	if def.SecretName == "" {
		return shown, nil // nobody sends to it
	}
	shown.Command = fmt.Sprintf("export TRIPHAMMER_WEBHOOK_SECRET  # the value of %s\ntriphammer send %s", def.SecretName, def.Name)
	if def.AuthMode != factory.Signature {
		to := strings.Replace(url, "{token}", "$"+def.SecretName, 1)
		shown.Curl = fmt.Sprintf("curl %s \\\n  %s-H \"Content-Type: application/json\" \\\n  -d '{\"test\": true}'", `"`+to+`"`, proof)
	}
	return shown, nil
}
