// Package signature verifies that a request comes from its sender.
//
// Each sender's scheme is a row of a table ([Scheme]), and one engine verifies all rows.
// A scheme that no row can describe is code behind the same [Verifier]. [Bearer] and
// [PathToken] are the two modes without a signature (SPEC C5.2).
//
// The engine guarantees for every row (SPEC 6.2):
//
//   - It verifies the raw bytes before anything is parsed.
//   - It refuses an empty secret, and a repeated signature or timestamp header.
//   - It skips unknown or malformed items of a list of signatures.
//   - Comparison takes constant time; lengths of headers and numbers of candidates
//     are limited.
//   - Secrets appear in no error and no output.
//
// The package does not remember requests. A scheme that signs no time accepts the same
// request again; package delivery then recognises the duplicate by its identity.
package signature

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Reasons of an Error (SPEC 7.2).
const (
	CredentialMismatch = "credential_mismatch"
	SignatureMismatch  = "signature_mismatch"
	TimestampTooOld    = "timestamp_too_old"
	TimestampInFuture  = "timestamp_in_future"
	HeaderMissing      = "header_missing"
	HeaderMalformed    = "header_malformed"
	FormBody           = "form_body" // an HTML form, whose proof this scheme cannot check
)

// Limits of what is read from a request.
const (
	maxHeader     = 8192 // bytes of one header
	maxCandidates = 100  // signatures in one request
)

// Error is why a request was not authenticated. It holds nothing secret.
type Error struct {
	Reason string
	Detail string // in words, may be empty
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Detail
}

func failure(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// SecretError says why a secret does not suit a scheme. It does not hold the secret.
type SecretError struct{ Problem string }

func (e *SecretError) Error() string { return "the secret " + e.Problem }

// Request is what a sender sent.
type Request struct {
	Method    string
	URL       string // as the sender addressed it
	Header    http.Header
	PathToken string // the last path segment of a url_token URL
	Body      []byte // the raw bytes
	Now       time.Time
}

// Verifier checks requests against one secret. It is safe for concurrent use
// and does not print its secret.
type Verifier struct {
	name      string
	needsBody bool
	check     func(*Request) *Error
	challenge func(*Request) (Reply, bool) // nil if the sender asks no signed questions
}

// NeedsBody tells whether Verify reads the body. If not, the server can refuse a request
// before it has read the body (SPEC 5.1).
func (v *Verifier) NeedsBody() bool { return v.needsBody }

// Verify returns nil if the request proves itself, or else an *Error.
func (v *Verifier) Verify(r *Request) error {
	if err := v.check(r); err != nil {
		return err
	}
	return nil
}

func (v *Verifier) String() string { return "verifier " + v.name }

// GoString keeps %#v from printing the secret.
func (v *Verifier) GoString() string { return v.String() }

// LogValue implements slog.LogValuer.
func (v *Verifier) LogValue() slog.Value { return slog.StringValue(v.String()) }

// one is the value of a header that may occur only once.
func one(h http.Header, name string) (string, *Error) {
	values := h[http.CanonicalHeaderKey(name)]
	switch {
	case len(values) == 0:
		return "", failure(HeaderMissing, "%s", name)
	case len(values) > 1:
		return "", failure(HeaderMalformed, "%s is there %d times", name, len(values))
	case values[0] == "":
		return "", failure(HeaderMissing, "%s is empty", name)
	case len(values[0]) > maxHeader:
		return "", failure(HeaderMalformed, "%s is longer than %d bytes", name, maxHeader)
	}
	return values[0], nil
}
