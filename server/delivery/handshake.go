package delivery

import (
	"context"
	"net/http"

	"triphammer/factory/signature"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// ReasonHandshake is the Reason of an Answer to a sender's question. Such a request is
// counted, but not recorded in the delivery log (SPEC 6.2).
const ReasonHandshake = "handshake"

// challenge answers a question of an authenticated sender.
func (s *Service) challenge(ctx context.Context, a *incoming) (Answer, bool) {
	reply, ok := a.hook.Verifier.Challenge(a.signed())
	if !ok {
		return Answer{}, false
	}
	// Nothing is recorded whose transaction could tell that another secret is live.
	live, err := s.cfg.Store.Applies.Live(ctx, a.hook.Factory)
	if err != nil {
		return s.unrecorded(ctx, err), true
	}
	if decided := a.hook.Revision.ApplyID; decided != "" && live.String() != decided {
		a.stale = true
		return Answer{}, true
	}
	return Answer{Status: reply.Status, Reply: &reply, Reason: ReasonHandshake}, true
}

// greet answers a question of a sender that cannot authenticate yet. Anybody can ask such a
// question. So it spends the budget of failed authentications, the answer does not depend on a
// secret, and a secret that comes with the question waits until an operator confirms it.
func (s *Service) greet(ctx context.Context, a *incoming) (Answer, bool) {
	scheme := a.hook.Def.Scheme
	if scheme == nil {
		return Answer{}, false
	}
	reply, ok := scheme.Greet(a.signed())
	if !ok {
		return Answer{}, false
	}
	if answer, ok := s.charge(a); !ok {
		return answer, true
	}
	if reply.Secret != "" {
		err := s.cfg.Store.Secrets.Hold(ctx, store.PendingSecret{
			Factory: a.hook.Factory, Webhook: a.hook.Def.Name, WebhookUID: a.hook.UID, SecretName: a.hook.Def.SecretName,
			ReceivedAt: a.at, ClientAddr: clientAddr(a.Client),
		}, secret.New(reply.Secret))
		if err != nil {
			return s.unrecorded(ctx, err), true
		}
		s.cfg.Logger.Info("a sender gave its secret; confirm it: triphammer secrets pending", "webhook", a.hook.Def.Name)
	}
	return Answer{Status: reply.Status, Reply: &reply, Reason: ReasonHandshake}, true
}

// signed is the request in the form that verifiers take.
func (a *incoming) signed() *signature.Request {
	return &signature.Request{
		Method: http.MethodPost, URL: a.URL, Header: a.Header, PathToken: a.PathToken, Body: a.body, Now: a.at,
	}
}
