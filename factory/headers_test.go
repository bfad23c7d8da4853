package factory

import (
	"net/http"
	"slices"
	"testing"

	"triphammer/factory/native"
	"triphammer/factory/signature"
)

// TestKeptHeaders: what the events of senders are told by, and what samples have, is kept
// with deliveries; a credential never is, in whatever header the webhook has it (SPEC 5.10).
func TestKeptHeaders(t *testing.T) {
	plain := &Webhook{}
	for _, name := range native.Headers() {
		if !plain.KeepsHeader(name) {
			t.Errorf("the table of events looks at %s, which is not kept", name)
		}
	}
	for _, s := range signature.Samples() {
		scheme, _ := signature.Lookup(s.Provider)
		for name := range s.Headers {
			if w := (&Webhook{Scheme: scheme}); !w.KeepsHeader(name) {
				t.Errorf("a sample of %s has %s, which is not kept", s.Provider, name)
			}
		}
	}
	for _, s := range signature.All() {
		w := &Webhook{Scheme: s, DeliveryIDHeader: "X-Build-Number"}
		kept := w.KeptHeaders()
		for _, name := range kept {
			if s.IsCredentialHeader(name) || signature.IsCredentialHeader(name) {
				t.Errorf("%s: %s is kept", s.Name, name)
			}
		}
		for _, name := range append(s.IdentityHeaders(), "x-build-number", "X-GITHUB-EVENT") {
			if w.KeepsHeader(name) != slices.ContainsFunc(kept, func(k string) bool { return http.CanonicalHeaderKey(k) == http.CanonicalHeaderKey(name) }) {
				t.Errorf("%s: the list and the question differ on %s", s.Name, name)
			}
		}
	}
	if plain.KeepsHeader("X-Build-Number") || plain.KeepsHeader("Authorization") {
		t.Error("kept")
	}
	scheme, err := must(signature.Lookup("token_header")).With(signature.Options{Header: "X-Event-Type"})
	if err != nil || (&Webhook{Scheme: scheme}).KeepsHeader("x-event-type") {
		t.Errorf("a credential is kept, %v", err)
	}
}

func must(s *signature.Scheme, ok bool) *signature.Scheme {
	if !ok {
		panic("no such scheme")
	}
	return s
}
