package delivery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/server/store"
)

// ErrCannotSend is the error of SendTest for a webhook that this server cannot send a test to.
var ErrCannotSend = errors.New("no test can be sent")

// Test is a delivery that this server sends to one of its webhooks, in place of the sender.
type Test struct {
	URL    string      // of the webhook; {token} stands for its secret
	Header http.Header // not nil; a Content-Type is added
	Body   []byte
	By     string     // the person who asks for the test
	Client netip.Addr // address of that person
}

// CannotSend says why no test can be sent to a webhook; empty: a test can be sent.
func (s *Service) CannotSend(hook *applier.Webhook) string {
	def := hook.Def
	switch {
	case !def.Enabled && hook.SecretGeneration == 0 && def.SecretName != "":
		return "its secret " + def.SecretName + " is not set yet, and it is disabled"
	case !def.Enabled:
		return "it is disabled"
	case s.paused(hook):
		return "it is paused"
	case def.AuthMode == factory.Signature && def.Scheme.SenderHasKey():
		return fmt.Sprintf("%s signs with a private key, which only the sender has: send a test from there", def.Scheme.Provider)
	case def.AuthMode == factory.Signature && def.Scheme.SecretInBody():
		return fmt.Sprintf("%s puts the secret itself into the body, where the log would show it: send a test from there", def.Scheme.Provider)
	}
	return ""
}

// SendTest signs a delivery with the stored secret of the webhook, as its sender would, and
// receives it like any other delivery: it is verified, matched and recorded, and starts runs. A
// test without an identity gets a new identity, so that it is no duplicate. A webhook without a
// secret takes it as if it came over the connection.
func (s *Service) SendTest(ctx context.Context, hook *applier.Webhook, t Test) (Answer, error) {
	if why := s.CannotSend(hook); why != "" {
		return Answer{}, fmt.Errorf("%w to %s: %s", ErrCannotSend, hook.Def.Name, why)
	}
	r := &signature.Request{Method: http.MethodPost, URL: t.URL, Header: t.Header.Clone(), Body: t.Body, Now: s.cfg.Now()}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	a := &incoming{Request: &Request{Header: r.Header}, hook: hook, body: t.Body}
	if hook.Def.DeliveryIDHeader != "" || len(a.providerHeaders()) == 0 {
		if a.identity().Source == store.IdentityBody {
			r.Header.Set(cmp.Or(hook.Def.DeliveryIDHeader, factory.SenderIDHeader), "test-"+strings.ToLower(rand.Text()))
		}
	} // else the scheme makes one
	if hook.Def.SecretName != "" {
		if err := s.sign(ctx, hook, r); err != nil {
			return Answer{}, err
		}
	}
	answer := s.Receive(ctx, &Request{
		UID: hook.UID, PathToken: r.PathToken, HasPathToken: hook.Def.AuthMode == factory.URLToken, URL: r.URL, Header: r.Header,
		ContentLength: int64(len(r.Body)), Client: t.Client, Connected: hook.Def.SecretName == "", TestBy: t.By,
		ReadBody: func(limit int64) ([]byte, error) {
			if int64(len(r.Body)) > limit {
				return nil, ErrTooLarge
			}
			return r.Body, nil
		},
	})
	if answer.Status == http.StatusNotFound { // the webhook changed meanwhile
		return Answer{}, fmt.Errorf("%w to %s: %w", ErrCannotSend, hook.Def.Name, ErrNotLive)
	}
	return answer, nil
}

// sign signs a request with the secret of the webhook.
func (s *Service) sign(ctx context.Context, hook *applier.Webhook, r *signature.Request) error {
	secret, err := s.cfg.Store.Secrets.At(ctx, hook.Def.SecretName, hook.SecretGeneration)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w to %s: the value of its secret is not kept any more", ErrCannotSend, hook.Def.Name)
	}
	if err != nil {
		return err
	}
	if err := hook.Def.Sign(secret.Value.Reveal(), r); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrCannotSend, hook.Def.Name, err)
	}
	return nil
}
