package api

import (
	"encoding/json"

	"triphammer/factory/signature"
)

// SignatureScheme is an entry of GET /api/v1/signature-schemes: a way in which a sender signs.
type SignatureScheme struct {
	Name      string   `json:"name"`
	Provider  string   `json:"provider"`
	Certainty string   `json:"certainty"` // certain, likely
	Proof     string   `json:"proof"`     // published, package, derived
	Source    string   `json:"source"`    // where the provider documents it
	Algorithm string   `json:"algorithm"`
	Headers   []string `json:"headers"`
	Identity  []string `json:"identity_headers"`
	Seconds   int      `json:"tolerance_seconds"`
	BindsBody bool     `json:"binds_body"`
	Options   []string `json:"signature_keys"`
	Asks      []string `json:"asks"`
	Method    string   `json:"method"`
	Setup     string   `json:"setup"`
	Note      string   `json:"note"`
	// SecretIsYours tells that the sender takes a secret of your choice. If not, the sender makes
	// the secret.
	SecretIsYours bool  `json:"secret_is_yours"`
	Guide         Guide `json:"guide"`
}

// Guide says step by step how to make a sender deliver here. In its texts, **text** is a name
// on the sender's own pages, and the reader copies `text`. In the guide of a scheme, {url} and
// {secret} stand for the URL of a webhook and the name of its secret.
type Guide struct {
	Steps  []string `json:"steps"`
	First  string   `json:"first,omitempty"`  // what the sender sends before the first event
	Source string   `json:"source,omitempty"` // the sender's own page about it
}

// WebhookSetup is GET /api/v1/webhooks/<name>/setup: the Guide of a webhook's sender, with the
// webhook's URL and secret.
type WebhookSetup struct {
	Webhook  string `json:"webhook"`
	Provider string `json:"provider,omitempty"` // the provider of the webhook's scheme
	Guide
	// Command sends a delivery as the sender does, if the variable of its first line is set. It is
	// empty if the webhook takes no requests.
	Command string `json:"command"`
	Curl    string `json:"curl,omitempty"` // the same with curl; missing if the proof must be computed
	// Samples are deliveries that the sender could send. The first is the default for a test.
	Samples []Sample `json:"samples"`
	// CannotTest says why the server cannot send a test; empty: it can.
	CannotTest string `json:"cannot_test,omitempty"`
}

// Sample is an example of a sender's delivery.
type Sample struct {
	Event   string            `json:"event"`
	Headers map[string]string `json:"headers"`
	Payload json.RawMessage   `json:"payload"`
}

// ShowScheme is a scheme in the JSON of the API, which the command schemes shows without a
// server, too.
func ShowScheme(s *signature.Scheme) SignatureScheme {
	return SignatureScheme{
		Name: s.Name, Provider: s.Provider, Certainty: s.Certainty(), Proof: string(s.Proof), Source: s.Source, Algorithm: string(s.Algorithm),
		Headers: append([]string{}, s.CredentialHeaders()...), Identity: append([]string{}, s.IdentityHeaders()...), Seconds: int(s.Tolerance.Seconds()),
		BindsBody: s.BindsBody(), Options: append([]string{}, s.Options...), Asks: append([]string{}, s.Asks()...), Method: s.Method(),
		Setup: s.Setup, Note: s.Note, SecretIsYours: s.SecretIsYours(), Guide: Guide(s.Guide()),
	}
}
