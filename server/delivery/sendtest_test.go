package delivery

import (
	"errors"
	"net/http"
	"testing"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/factory/signature"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// TestSendTestSchemes: a test to a webhook of each scheme is accepted, or it is refused and the
// page of the webhook says why before. What a sender sends by itself is a sample of it.
func TestSendTestSchemes(t *testing.T) {
	f := newFixture(t)
	revision := &applier.Revision{Factory: "default", Definition: &factory.Factory{}}
	for _, s := range signature.All() {
		if s.SenderHasKey() {
			continue // its secret is a key of the sender
		}
		value := s.SecretFrom("Abcdefghijklmnopqrstuvwxyz234567")
		verifier, err := s.Verifier(value)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		def := &factory.Webhook{Name: s.Name, AuthMode: factory.Signature, Scheme: s, SecretName: "X_" + s.Name, Enabled: true}
		generation, err := f.store.Secrets.Set(t.Context(), def.SecretName, secret.New(value))
		if err != nil {
			t.Fatal(err)
		}
		revision.Webhooks = append(revision.Webhooks, &applier.Webhook{
			UID: "whk_" + s.Name, Factory: "default", Def: def, Verifier: verifier, Index: match.NewIndex(nil), SecretGeneration: generation, Revision: revision,
		})
	}
	f.live.Swap(revision)
	accepted := 0
	for _, hook := range revision.Webhooks {
		samples := signature.SamplesOf(hook.Def.Name)
		if len(samples) == 0 {
			samples = append(samples, signature.PlainSample(f.clock()))
		}
		for _, sample := range samples {
			test := Test{URL: "https://hammer.example.com/webhooks/w/" + hook.UID, Header: http.Header{}, Body: sample.Body, By: "ada"}
			for name, value := range sample.Headers {
				test.Header.Set(name, value)
			}
			answer, err := f.SendTest(t.Context(), hook, test)
			if why := f.CannotSend(hook); why != "" || err != nil {
				if why == "" || !errors.Is(err, ErrCannotSend) {
					t.Errorf("%s: %v, and its page says %q", hook.Def.Name, err, why)
				}
				continue
			}
			d, err := f.store.Deliveries.Get(t.Context(), answer.Entry)
			if err != nil || answer.Status != http.StatusAccepted || d.Outcome != store.Accepted || d.TestBy != "ada" {
				t.Errorf("%s: %+v, %+v, %v", hook.Def.Name, answer, d, err)
			}
			accepted++
		}
	}
	if accepted < 150 {
		t.Errorf("%d were accepted", accepted)
	}
}
