package signature

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"slices"
)

// secretSize is the size of a secret that is made here, in bytes.
const secretSize = 32

// NewToken makes a secret for Bearer and PathToken: URL-safe text of 256 random bits.
func NewToken() string { return base64.RawURLEncoding.EncodeToString(random()) }

func random() []byte {
	b := make([]byte, secretSize)
	_, _ = rand.Read(b) // it never fails
	return b
}

// NewSecret makes a secret of 256 random bits in the form that suits the scheme. ok is false
// for an asymmetric scheme, whose secret belongs to a key of the sender.
func (s *Scheme) NewSecret() (secret string, ok bool) {
	switch {
	case s.asymmetric():
		return "", false
	case s.Algorithm == Basic:
		return "sender:" + NewToken(), true
	case s.Key == KeyHex:
		return hex.EncodeToString(random()), true
	case s.Key == KeyBase64 && slices.Contains(s.KeyPrefixes, "whsec_"):
		return "whsec_" + base64.StdEncoding.EncodeToString(random()), true
	case s.Key == KeyBase64:
		return base64.StdEncoding.EncodeToString(random()), true
	}
	return NewToken(), true
}
