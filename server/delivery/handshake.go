package delivery

import (
	"context"
	"net/http"

	"triphammer/factory/signature"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// ReasonHandshake is that of an Answer to a sender's question: it is counted, and
// is no entry of the log (SPEC 6.2).
const ReasonHandshake = "handshake"

// challenge answers what a sender that has just proved itself asks.
func (s *Service) challenge(a *attempt) (Answer, bool) {
	reply, ok := a.hook.Verifier.Challenge(a.signed())
	if !ok {
		return Answer{}, false
	}
	return Answer{Status: reply.Status, Reply: &reply, Reason: ReasonHandshake}, true
}

// greet answers what a sender asks before it can prove itself. Anybody can ask
// so: it spends the budget of failed authentication, nothing in the answer
// depends on a secret, and a secret that comes with the question waits until
// somebody confirms it.
func (s *Service) greet(ctx context.Context, a *attempt) (Answer, bool) {
	scheme := a.hook.Def.Scheme
	if scheme == nil {
		return Answer{}, false
	}
	reply, ok := scheme.Greet(a.signed())
	if !ok {
		return Answer{}, false
	}
	if wait, ok := s.failures.admit(a.failureKey(), a.at); !ok {
		return Answer{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(wait), Reason: ReasonFailures}, true
	}
	if reply.Secret != "" {
		err := s.cfg.Store.HoldSecret(ctx, store.PendingSecret{
			Factory: a.hook.Factory, Webhook: a.hook.Def.Name, WebhookUID: a.hook.UID, SecretName: a.hook.Def.SecretName,
			ReceivedAt: a.at, ClientAddr: clientAddr(a.Client),
		}, secret.New(reply.Secret))
		if err != nil {
			return s.unavailable(ctx, err), true
		}
		s.cfg.Logger.Info("a sender gave its secret; confirm it: triphammer secrets pending", "webhook", a.hook.Def.Name)
	}
	return Answer{Status: reply.Status, Reply: &reply, Reason: ReasonHandshake}, true
}

// signed is the request as verifiers see it.
func (a *attempt) signed() *signature.Request {
	return &signature.Request{
		Method: http.MethodPost, URL: a.URL, Header: a.Header, PathToken: a.PathToken, Body: a.body, Now: a.at,
	}
}
