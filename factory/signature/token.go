package signature

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// Bearer verifies `Authorization: Bearer <secret>` (RFC 6750 2.1; the scheme
// word in any case).
func Bearer(secret string) (*Verifier, error) {
	if err := suitable(secret, func(c byte) bool { return c > ' ' && c < 0x7f }, "a character that cannot stand in a header"); err != nil {
		return nil, err
	}
	equal := matcher(secret)
	return &Verifier{name: "token", check: func(r *Request) *Error {
		value, err := one(r.Header, "Authorization")
		if err != nil {
			return err
		}
		word, token, ok := strings.Cut(value, " ")
		if !ok || !strings.EqualFold(word, "Bearer") {
			return failure(HeaderMalformed, "Authorization is not of the form Bearer <secret>")
		}
		if !equal(strings.Trim(token, " ")) {
			return failure(CredentialMismatch, "the token is not the webhook's secret")
		}
		return nil
	}}, nil
}

// PathToken verifies a secret that is the last segment of the URL. The secret must be
// URL-safe, that is, of A-Z a-z 0-9 - . _ ~ (SPEC 4.5).
func PathToken(secret string) (*Verifier, error) {
	if err := suitable(secret, unreserved, "a character other than A-Z a-z 0-9 - . _ ~, so it cannot be part of a URL"); err != nil {
		return nil, err
	}
	if strings.Trim(secret, ".") == "" {
		return nil, &SecretError{"is made of dots alone, which clients remove from a URL"}
	}
	equal := matcher(secret)
	return &Verifier{name: "url_token", check: func(r *Request) *Error {
		if r.PathToken == "" {
			return failure(CredentialMismatch, "the URL has no token")
		}
		if !equal(r.PathToken) {
			return failure(CredentialMismatch, "the token in the URL is not the webhook's secret")
		}
		return nil
	}}, nil
}

// matcher compares texts with the secret in a time that reveals neither the content nor the
// length of the secret.
func matcher(secret string) func(string) bool {
	want := sha256.Sum256([]byte(secret))
	return func(given string) bool {
		got := sha256.Sum256([]byte(given))
		return subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
}

func suitable(secret string, allowed func(byte) bool, problem string) error {
	if secret == "" {
		return &SecretError{"is empty"}
	}
	for i := range len(secret) {
		if !allowed(secret[i]) {
			return &SecretError{"holds " + problem}
		}
	}
	return nil
}

func unreserved(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// token verifies a secret that is in a header, or in a field of the body.
func (s *Scheme) token(secret string) (func(*Request) *Error, error) {
	form := s.Forms[0]
	inHeader := func(c byte) bool { return form.Field != "" || c >= ' ' && c < 0x7f }
	if err := suitable(secret, inHeader, "a character that cannot stand in a header"); err != nil {
		return nil, err
	}
	if strings.TrimSpace(secret) != secret {
		return nil, &SecretError{"begins or ends with a space"}
	}
	equal := matcher(secret)
	mismatch := failure(CredentialMismatch, "the token is not the webhook's secret")
	if form.Field != "" {
		return func(r *Request) *Error {
			values, ok := fields(r.Body, form.Field)
			if !ok {
				return failure(HeaderMissing, "the body has no %s", form.Field)
			}
			for _, value := range values {
				if !equal(value) {
					return mismatch
				}
			}
			return nil
		}, nil
	}
	return func(r *Request) *Error {
		value, err := one(r.Header, form.Signature)
		if err != nil {
			return err
		}
		token, ok := strings.CutPrefix(value, s.Parse.Prefix)
		if !ok {
			return failure(HeaderMalformed, "%s does not begin with %q", form.Signature, s.Parse.Prefix)
		}
		if !equal(token) {
			return mismatch
		}
		return nil
	}, nil
}

// basic verifies user and password (RFC 7617). The secret is USER:PASSWORD.
func (s *Scheme) basic(secret string) (func(*Request) *Error, error) {
	if user, password, ok := strings.Cut(secret, ":"); !ok || user == "" || password == "" {
		return nil, &SecretError{"is not of the form user:password"}
	}
	equal := matcher(secret)
	return func(r *Request) *Error {
		value, err := one(r.Header, "Authorization")
		if err != nil {
			return err
		}
		word, text, ok := strings.Cut(value, " ")
		if !ok || !strings.EqualFold(word, "Basic") {
			return failure(HeaderMalformed, "Authorization is not of the form Basic <base64>")
		}
		given, bad := base64.StdEncoding.Strict().DecodeString(strings.Trim(text, " "))
		if bad != nil {
			return failure(HeaderMalformed, "Authorization does not hold base64")
		}
		if !equal(string(given)) {
			return failure(CredentialMismatch, "user or password is another")
		}
		return nil
	}, nil
}
