package signature

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scheme is how one kind of sender proves itself. A row states only its differences
// from HMAC-SHA256 of the body, in hex, keyed with the unchanged secret.
type Scheme struct {
	Name     string // the value of signatureScheme
	Provider string // the sender that uses the scheme
	Source   string // where the provider documents the scheme
	Setup    string // where the sender takes the URL, and where its secret is found
	Note     string // what is surprising, and what the sender does not specify
	Likely   bool   // known from only one implementation, or disputed in a detail
	Proof    Proof  // the strongest of its test vectors

	Algorithm   Algorithm
	Key         KeyEncoding
	KeyPrefixes []string // the first that the secret begins with is removed
	Refused     string   // a publicly known secret, which is refused
	Forms       []Form   // the first form whose signature is present counts
	Parse       Parse
	Encoding    Encoding
	// Template is the signed text: literals with {body}, {ts}, {id}, {method}, {url}
	// (as the sender addressed it), {base} (the URL without its query), {secret} (only
	// for a plain digest), {h:Header-Name} and {json:path.in.the.body}.
	Template string
	Time     TimeFormat
	// TimeField is the path of the body's field with the signed time, which is
	// read after the signature has been verified.
	TimeField string
	// Tolerance is how far a signed timestamp may be from now, either way; 0 if no
	// timestamp is signed, or if the provider states no limit.
	Tolerance time.Duration `json:"-"`
	// Identity are the provider's own delivery headers (SPEC C6.2), beside
	// the id headers of the forms.
	Identity  []string
	JWT       *JWT       // only for the algorithm JWTHS256
	Handshake *Handshake // what the sender asks before it delivers
	Options   []string   // which Options a webhook file may state
	// FormAdvice is set if the sender signs HTML forms in another way, so that every form
	// is refused. It says how to make the sender send JSON.
	FormAdvice string
	written    *Guide // instead of the guide that the row makes
	code       code   // for a scheme that no row can describe
}

// Form is one set of headers in which a sender sends its proof.
type Form struct {
	Signature, Timestamp, ID string   // headers
	Also                     []string // further headers with signatures by other keys; a request has at least one of the headers
	Field                    string   // the path of the body's field that holds the proof, instead of a header
}

// Parse is the syntax of the signature header.
type Parse struct {
	Group          string // separates lists that each have their own timestamp
	Separator      string // separates the items of a list; empty: the header is a single value
	Prefix         string // of the items that are signatures; other items are skipped
	TimestampKey   string // prefix of the item that is the timestamp
	TimestampFirst bool   // the first item is the timestamp
	Trim           string // characters that may follow an item
}

// Proof is the kind of evidence that a row is right.
type Proof string

// Algorithm names how the proof is computed.
type Algorithm string

// KeyEncoding names how the secret becomes the key.
type KeyEncoding string

// Encoding names how the signature is written.
type Encoding string

// TimeFormat names how the signed timestamp is written.
type TimeFormat string

// The vocabulary of the rows.
const (
	Published Proof = "published" // a vector that the provider, or its package's own tests, published
	Package   Proof = "package"   // the provider's own package agrees
	Derived   Proof = "derived"   // computed by the provider's written rule, by code that is not this package's

	HMACSHA1   Algorithm = "hmac-sha1"
	HMACSHA256 Algorithm = "hmac-sha256"
	HMACSHA512 Algorithm = "hmac-sha512"
	SHA1       Algorithm = "sha1"   // a plain digest, with {secret} in the template
	SHA256     Algorithm = "sha256" // a plain digest, with {secret} in the template
	Ed25519    Algorithm = "ed25519"
	ECDSAP256  Algorithm = "ecdsa-p256-sha256"
	RSASHA256  Algorithm = "rsa-pkcs1-sha256"
	JWTHS256   Algorithm = "jwt-hs256"
	Token      Algorithm = "token" // the secret itself
	Basic      Algorithm = "basic" // RFC 7617

	KeyText   KeyEncoding = "text"
	KeyNFKD   KeyEncoding = "text-nfkd" // text in Unicode normalisation form KD
	KeyBase64 KeyEncoding = "base64"
	KeyHex    KeyEncoding = "hex"
	KeyPEM    KeyEncoding = "pem" // or the base64 of its DER: a SubjectPublicKeyInfo; to sign, PKCS #8

	Hex       Encoding = "hex"       // in any case
	Base64    Encoding = "base64"    // with or without padding
	Base64URL Encoding = "base64url" // with or without padding

	UnixSeconds TimeFormat = "seconds"
	UnixMillis  TimeFormat = "milliseconds"
	UnixAuto    TimeFormat = "seconds or milliseconds" // 12 digits and more are milliseconds
	RFC3339     TimeFormat = "rfc3339"
)

var allSchemes = sync.OnceValue(func() []*Scheme {
	all := slices.Concat(genericRows, codeRows, rowsOfSenders())
	for _, s := range all {
		s.complete()
	}
	slices.SortFunc(all, func(a, b *Scheme) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// complete fills in what a row leaves out.
func (s *Scheme) complete() {
	s.Algorithm = cmp.Or(s.Algorithm, HMACSHA256)
	s.Key = cmp.Or(s.Key, KeyText)
	s.Encoding = cmp.Or(s.Encoding, Hex)
	s.Template = cmp.Or(s.Template, "{body}")
	s.Proof = cmp.Or(s.Proof, Derived)
	if s.timed() {
		s.Time = cmp.Or(s.Time, UnixSeconds)
		if !slices.Contains(s.Options, "toleranceSeconds") {
			s.Options = append(s.Options, "toleranceSeconds")
		}
	}
}

// timed tells whether the scheme signs a time.
func (s *Scheme) timed() bool {
	return s.TimeField != "" || s.JWT != nil && s.Tolerance > 0 || s.Algorithm != Token && strings.Contains(s.Template, "{ts}")
}

// All are the schemes, by name.
func All() []*Scheme { return slices.Clone(allSchemes()) }

// Names are the values of signatureScheme, sorted.
func Names() []string {
	var names []string
	for _, s := range allSchemes() {
		names = append(names, s.Name)
	}
	return names
}

// Lookup finds a scheme by its name.
func Lookup(name string) (*Scheme, bool) {
	i, ok := slices.BinarySearchFunc(allSchemes(), name, func(s *Scheme, name string) int { return strings.Compare(s.Name, name) })
	if !ok {
		return nil, false
	}
	return allSchemes()[i], true
}

// IdentityHeaders are the headers in which the provider identifies the delivery. The
// first that is present and not empty counts. If a form signs its id, a verified request
// has no other id: the engine refuses it (SPEC 6.2).
func (s *Scheme) IdentityHeaders() []string {
	names := slices.Clone(s.Identity)
	for _, f := range s.Forms {
		if f.ID != "" {
			names = append(names, f.ID)
		}
	}
	return names
}

// IsIdentityHeader tells whether the provider identifies deliveries in the header with this
// canonical name.
func (s *Scheme) IsIdentityHeader(name string) bool {
	return slices.Contains(s.Identity, name) || slices.ContainsFunc(s.Forms, func(f Form) bool { return f.ID == name && name != "" })
}

// CredentialHeaders are the headers that carry the proof: signatures and the timestamps
// that they cover. The server never stores such a header with a delivery, nor uses it as
// the delivery's identity (SPEC 5.7).
func (s *Scheme) CredentialHeaders() []string {
	var names []string
	for _, f := range s.Forms {
		if f.Signature != "" {
			names = append(names, f.Signature)
		}
		names = append(names, f.Also...)
		if f.Timestamp != "" {
			names = append(names, f.Timestamp)
		}
	}
	return names
}

// IsCredentialHeader tells whether a header carries the proof of this scheme, even if the
// webhook file names the header.
func (s *Scheme) IsCredentialHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	for i := range s.Forms {
		if f := &s.Forms[i]; name == f.Signature || name == f.Timestamp || slices.Contains(f.Also, name) {
			return true
		}
	}
	return false
}

var credentialHeaders = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "Set-Cookie": true}
	for _, s := range allSchemes() {
		for _, name := range s.CredentialHeaders() {
			all[name] = true
		}
		if s.Handshake != nil && s.Handshake.SecretHeader != "" {
			all[s.Handshake.SecretHeader] = true
		}
	}
	return all
})

// IsCredentialHeader tells whether a header carries a credential in any mode or
// scheme.
func IsCredentialHeader(name string) bool {
	return credentialHeaders()[http.CanonicalHeaderKey(name)]
}

// BindsBody tells whether the proof covers the body. If it does not, somebody who sees one
// delivery can send others.
func (s *Scheme) BindsBody() bool {
	switch {
	case s.code != nil:
		return s.code.bindsBody()
	case s.JWT != nil:
		return s.JWT.BodyHash != ""
	case s.Algorithm == Token || s.Algorithm == Basic:
		return false
	}
	return strings.Contains(s.Template, "{body}")
}

// BindsIdentity tells whether the proof covers the identity that the provider's headers state, so that
// nobody can send a captured delivery as another one.
func (s *Scheme) BindsIdentity() bool {
	return len(s.Identity) == 0 && strings.Contains(s.Template, "{id}") && !slices.ContainsFunc(s.Forms, func(f Form) bool { return f.ID == "" })
}

// readsBody tells whether the body is needed, to verify a request or to answer a question
// that comes without a proof.
func (s *Scheme) readsBody() bool {
	return s.BindsBody() || s.Handshake != nil && s.Handshake.Unsigned || slices.ContainsFunc(s.Forms, func(f Form) bool { return f.Field != "" })
}

// Certainty is "likely" for a row with Likely, or else "certain".
func (s *Scheme) Certainty() string {
	if s.Likely {
		return "likely"
	}
	return "certain"
}

// Words explains the proof.
func (p Proof) Words() string {
	switch p {
	case Published:
		return "published: it agrees with signatures that the provider, or the tests of the provider's package, published"
	case Package:
		return "package: it agrees with the provider's own package"
	}
	return "derived: it agrees with what other code computes by the provider's written rule; the provider publishes no signature, and no package of it was tried"
}

// TimeWords says how far a signed time may differ from now.
func (s *Scheme) TimeWords() string {
	switch {
	case s.Tolerance > 0 && s.JWT != nil && s.JWT.Expires:
		return fmt.Sprintf("good until the token expires, with %d seconds for clocks", int(s.Tolerance.Seconds()))
	case s.Generic() && slices.Contains(s.Options, "toleranceSeconds"):
		return fmt.Sprintf("if `signature.template` has `{ts}`, at most %d seconds from now, either way, unless `signature.toleranceSeconds` sets another limit; otherwise no time is signed", int(genericTolerance.Seconds()))
	case s.Tolerance > 0:
		return fmt.Sprintf("at most %d seconds from now, either way", int(s.Tolerance.Seconds()))
	case slices.Contains(s.Options, "toleranceSeconds"):
		return "signed, and not limited unless `signature.toleranceSeconds` is set"
	}
	return "not signed: a request can be sent again, and only its identity tells that it is a duplicate"
}

// Method says in words how the sender proves itself.
func (s *Scheme) Method() string {
	where := "`" + strings.Join(s.places(), "` or `") + "`"
	switch {
	case s.code != nil:
		return s.code.words()
	case s.JWT != nil:
		return where + ": " + s.JWT.words()
	case s.Algorithm == Token:
		return where + " holds the secret itself"
	case s.Algorithm == Basic:
		return where + " holds user and password (RFC 7617)"
	}
	keyed := map[KeyEncoding]string{
		KeyText: "", KeyNFKD: ", keyed with the secret in Unicode normalisation form KD",
		KeyBase64: ", keyed with the base64-decoded secret", KeyHex: ", keyed with the hex-decoded secret",
	}[s.Key]
	if s.asymmetric() {
		keyed = ", verified with the public key that is the webhook's secret (" + string(s.Key) + ")"
	}
	text := fmt.Sprintf("%s: %s of `%s` in %s%s", where, s.Algorithm, s.Template, s.Encoding, keyed)
	switch {
	case s.TimeField != "":
		text += fmt.Sprintf("; `%s` of the body is the time in %s", s.TimeField, s.Time)
	case s.timed() && s.Forms[0].Timestamp != "":
		text += fmt.Sprintf("; `ts` is `%s` in %s", s.Forms[0].Timestamp, s.Time)
	case s.timed():
		text += fmt.Sprintf("; `ts` stands in the same header, in %s", s.Time)
	}
	return text
}

// places are the headers or fields with the proof, one per form.
func (s *Scheme) places() []string {
	var all []string
	for _, f := range s.Forms {
		shown := f.Signature
		if f.Field != "" {
			shown = f.Field + " of the body"
		}
		switch p := s.Parse; {
		case p.TimestampFirst:
			shown += ": <ts>" + p.Separator + "…"
		case p.TimestampKey != "":
			shown += ": " + p.TimestampKey + "…" + p.Separator + p.Prefix + "…"
		case p.Prefix != "":
			shown += ": " + p.Prefix + "…"
		}
		all = append(all, shown)
	}
	return all
}
