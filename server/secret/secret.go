// Package secret protects secrets (SPEC 9.5, 10.1, 10.2):
//
//   - A [Value] does not print itself.
//   - A [Key] seals values at rest.
//   - [NewToken] makes the tokens that the server gives out.
//   - A [Source] has managed secrets outside the store.
//   - A [Redactor] removes granted secrets from transcripts. It finds a secret and its
//     common encodings, and well-known kinds of credentials. It cannot find a secret that
//     the agent changed in another way, and does not hide values of less than 4 bytes.
package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/url"
	"strings"
)

const hidden = "[redacted]"

// Value is a secret in memory. Printed, logged or encoded in any way, it shows as "[redacted]".
// Only Reveal gives it out.
type Value struct{ text string }

// New makes a Value.
func New(text string) Value { return Value{text} }

// Reveal returns the secret itself.
func (v Value) Reveal() string { return v.text }

// IsZero tells whether the value is empty.
func (v Value) IsZero() bool { return v.text == "" }

func (v Value) String() string { return hidden }

// Format covers every verb of package fmt, even verbs that ignore String.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText also covers encoding/json, as a value and as a key.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// Origin is the scheme and host of an address. The path is left out, because the path of a hook
// can be a credential.
func Origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return hidden
	}
	return u.Scheme + "://" + u.Host
}

const (
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	tokenRandom  = 43 // characters, 256 bits
	tokenChecked = 6  // characters of checksum
)

// RandomText is n random base-62 characters.
func RandomText(n int) string {
	out := make([]byte, 0, n)
	var block [64]byte
	for len(out) < n {
		_, _ = rand.Read(block[:]) // never fails (crypto/rand)
		for _, b := range block {
			// 248 is the largest multiple of 62 in a byte: no character is likelier.
			if b < 248 && len(out) < n {
				out = append(out, base62[b%62])
			}
		}
	}
	return string(out)
}

// NewToken makes a token: `prefix_`, 43 random characters, and a checksum of 6. With the
// checksum, a secret scanner recognises a token without asking the server.
func NewToken(prefix string) string {
	body := prefix + "_" + RandomText(tokenRandom)
	return body + checksum(body)
}

// ValidToken tells whether s has the form of NewToken(prefix).
func ValidToken(prefix, s string) bool {
	if len(s) != len(prefix)+1+tokenRandom+tokenChecked || !strings.HasPrefix(s, prefix+"_") {
		return false
	}
	if strings.Trim(s[len(prefix)+1:], base62) != "" {
		return false
	}
	body := s[:len(s)-tokenChecked]
	return checksum(body) == s[len(body):]
}

// HashToken is the hash under which a token is stored. It needs no salt or stretching,
// because a token has 256 random bits.
func HashToken(s string) [32]byte { return sha256.Sum256([]byte(s)) }

func checksum(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	out := make([]byte, tokenChecked)
	for i := range out {
		out[tokenChecked-1-i] = base62[sum%62]
		sum /= 62
	}
	return string(out)
}

func shortHash(data []byte) (id [8]byte) {
	sum := sha256.Sum256(append([]byte("triphammer sealing key\x00"), data...))
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(sum[:]))
	return id
}
