package signature

import (
	"slices"
	"strings"
	"time"
)

// Scheme is how one kind of sender signs. Most are fully described by their
// row; the words are those of the table's vocabulary.
type Scheme struct {
	Name     string // the value of signatureScheme
	Provider string // who signs so
	Source   string // where the provider documents it

	Algorithm   Algorithm
	Key         KeyEncoding
	KeyPrefixes []string // the first that the secret begins with is taken off
	Forms       []Form   // the first whose signature header is present is meant
	Parse       Parse
	Encoding    Encoding
	// Template is what is signed: literals with {body}, {ts}, {id}, {method},
	// {url} (as the sender addressed it) and {h:Header-Name}.
	Template string
	Time     TimeFormat
	// Tolerance is how far a signed timestamp may be from now, either way; 0 if
	// none is signed.
	Tolerance time.Duration
	// Identity are the provider's own delivery headers (CONTRACT.md 6.2), beside
	// the id headers of the forms.
	Identity []string
}

// Form is one set of headers that a scheme is sent in.
type Form struct{ Signature, Timestamp, ID string }

// Parse is how signatures stand in their header.
type Parse struct {
	Separator    string // between the items of a list; empty for a single value
	Prefix       string // of the items that are signatures; others are skipped
	TimestampKey string // prefix of the item that is the timestamp
}

// Algorithm names how the signature is computed.
type Algorithm string

// KeyEncoding names how the secret becomes the key.
type KeyEncoding string

// Encoding names how the signature is written.
type Encoding string

// TimeFormat names how the signed timestamp is written; empty is UnixSeconds.
type TimeFormat string

// The vocabulary of the rows.
const (
	HMACSHA1   Algorithm = "hmac-sha1"
	HMACSHA256 Algorithm = "hmac-sha256"
	HMACSHA512 Algorithm = "hmac-sha512"

	KeyText   KeyEncoding = "utf8"
	KeyBase64 KeyEncoding = "base64"
	KeyHex    KeyEncoding = "hex"

	Hex       Encoding = "hex"       // in any case
	Base64    Encoding = "base64"    // with or without padding
	Base64URL Encoding = "base64url" // with or without padding

	UnixSeconds TimeFormat = "s"
	UnixMillis  TimeFormat = "ms"
	RFC3339     TimeFormat = "rfc3339"
)

var (
	standardForm = Form{Signature: "Webhook-Signature", Timestamp: "Webhook-Timestamp", ID: "Webhook-Id"}
	svixForm     = Form{Signature: "Svix-Signature", Timestamp: "Svix-Timestamp", ID: "Svix-Id"}
	whsec        = []string{"v1,whsec_", "whsec_"}
)

// schemes is the table: adding a provider is one row and one file of vectors.
var schemes = []*Scheme{
	{
		Name: "standard_webhooks", Provider: "Standard Webhooks", Source: "https://www.standardwebhooks.com",
		Algorithm: HMACSHA256, Key: KeyBase64, KeyPrefixes: whsec, Encoding: Base64,
		Forms: []Form{standardForm, svixForm}, Parse: Parse{Separator: " ", Prefix: "v1,"},
		Template: "{id}.{ts}.{body}", Tolerance: 5 * time.Minute,
	},
	{
		Name: "svix", Provider: "Svix", Source: "https://docs.svix.com/receiving/verifying-payloads/how-manual",
		Algorithm: HMACSHA256, Key: KeyBase64, KeyPrefixes: whsec, Encoding: Base64,
		Forms: []Form{svixForm, standardForm}, Parse: Parse{Separator: " ", Prefix: "v1,"},
		Template: "{id}.{ts}.{body}", Tolerance: 5 * time.Minute,
	},
	{
		Name: "github", Provider: "GitHub", Source: "https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries",
		Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex,
		Forms: []Form{{Signature: "X-Hub-Signature-256"}}, Parse: Parse{Prefix: "sha256="},
		Template: "{body}", Identity: []string{"X-Github-Delivery"},
	},
	{
		Name: "stripe", Provider: "Stripe", Source: "https://docs.stripe.com/webhooks/signatures",
		Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex,
		Forms: []Form{{Signature: "Stripe-Signature"}}, Parse: Parse{Separator: ",", Prefix: "v1=", TimestampKey: "t="},
		Template: "{ts}.{body}", Tolerance: 5 * time.Minute,
	},
	{
		Name: "pagerduty", Provider: "PagerDuty", Source: "https://developer.pagerduty.com/docs/verifying-webhook-signatures",
		Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex,
		Forms: []Form{{Signature: "X-Pagerduty-Signature"}}, Parse: Parse{Separator: ",", Prefix: "v1="},
		Template: "{body}", Identity: []string{"X-Webhook-Id"},
	},
	{
		Name: "sentry", Provider: "Sentry", Source: "https://docs.sentry.io/organization/integrations/integration-platform/webhooks/",
		Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex,
		Forms:    []Form{{Signature: "Sentry-Hook-Signature"}},
		Template: "{body}", Identity: []string{"Request-Id"},
	},
	{
		Name: "vercel", Provider: "Vercel", Source: "https://vercel.com/docs/webhooks/webhooks-api#securing-webhooks",
		Algorithm: HMACSHA1, Key: KeyText, Encoding: Hex,
		Forms:    []Form{{Signature: "X-Vercel-Signature"}},
		Template: "{body}",
	},
}

// All are the schemes, by name.
func All() []*Scheme {
	all := slices.Clone(schemes)
	slices.SortFunc(all, func(a, b *Scheme) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Names are the values of signatureScheme, sorted.
func Names() []string {
	names := make([]string, 0, len(schemes))
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Lookup finds a scheme by its name.
func Lookup(name string) (*Scheme, bool) {
	for _, s := range schemes {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}

// IdentityHeaders are the headers in which the provider names the delivery; the
// first that is present and not empty counts. Where a form signs its id, a
// verified request has no other one: the engine refuses it (SPEC 6.2).
func (s *Scheme) IdentityHeaders() []string {
	names := slices.Clone(s.Identity)
	for _, f := range s.Forms {
		if f.ID != "" {
			names = append(names, f.ID)
		}
	}
	return names
}

// CredentialHeaders are the headers that carry the proof, signatures and the
// timestamps they cover: never stored with a delivery, and never usable as its
// identity (SPEC 5.7).
func (s *Scheme) CredentialHeaders() []string {
	var names []string
	for _, f := range s.Forms {
		names = append(names, f.Signature)
		if f.Timestamp != "" {
			names = append(names, f.Timestamp)
		}
	}
	return names
}

// IsCredentialHeader tells whether a header carries a credential in any mode or
// scheme.
func IsCredentialHeader(name string) bool {
	same := func(other string) bool { return strings.EqualFold(name, other) }
	if slices.ContainsFunc([]string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"}, same) {
		return true
	}
	return slices.ContainsFunc(schemes, func(s *Scheme) bool {
		return slices.ContainsFunc(s.CredentialHeaders(), same)
	})
}
