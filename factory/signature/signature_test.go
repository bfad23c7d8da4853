package signature

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type vector struct {
	Secret  string            `json:"secret"` // of an asymmetric scheme the public key
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Now     int64             `json:"now"`
	Valid   bool              `json:"valid"`
	Proof   Proof             `json:"proof"` // of a valid one
	Source  string            `json:"source"`
}

func (v vector) request() *Request {
	r := &Request{Method: cmp.Or(v.Method, "POST"), URL: v.URL, Header: http.Header{}, Body: []byte(v.Body), Now: time.Unix(v.Now, 0)}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	return r
}

// proofs are the kinds of proof, the best first.
var proofs = []Proof{Published, Package, Derived}

// TestVectors: a row without a vector that passes and one that must fail is an
// error, and so is one that claims a better proof than it has (SPEC 6.3).
func TestVectors(t *testing.T) {
	files := map[string]bool{}
	for _, s := range All() {
		name := filepath.Join("testdata", s.Name+".json")
		files[name] = true
		data, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%s has no vectors: %v", s.Name, err)
			continue
		}
		var vectors []vector
		if err := json.Unmarshal(data, &vectors); err != nil {
			t.Fatal(err)
		}
		valid, best := 0, len(proofs)
		for i, c := range vectors {
			v, err := s.Verifier(c.Secret)
			if err != nil {
				t.Fatalf("%s %d: %v", s.Name, i, err)
			}
			if err := v.Verify(c.request()); (err == nil) != c.Valid {
				t.Errorf("%s %d (%s): %v", s.Name, i, c.Source, err)
			}
			if !c.Valid {
				continue
			}
			valid++
			at := slices.Index(proofs, c.Proof)
			if at < 0 || c.Source == "" {
				t.Errorf("%s %d: proof %q, source %q", s.Name, i, c.Proof, c.Source)
				continue
			}
			best = min(best, at)
		}
		if valid == 0 || valid == len(vectors) {
			t.Errorf("%s: %d vectors of %d pass", s.Name, valid, len(vectors))
		} else if s.Proof != proofs[best] {
			t.Errorf("%s: the row says %s, its vectors are %s", s.Name, s.Proof, proofs[best])
		}
	}
	have, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range have {
		if !files[name] {
			t.Errorf("%s is of no scheme", name)
		}
	}
}

var now = time.Unix(1_700_000_000, 0)

const address = "https://hooks.example.com/webhooks/w/whk_1"

// keyPairs are what the asymmetric schemes are tested with: private, public.
var keyPairs = sync.OnceValue(func() map[Algorithm][2]string {
	all := map[Algorithm][2]string{}
	add := func(a Algorithm, private crypto.Signer, err error) {
		if err != nil {
			panic(err)
		}
		secret, err1 := x509.MarshalPKCS8PrivateKey(private)
		public, err2 := x509.MarshalPKIXPublicKey(private.Public())
		if err := errors.Join(err1, err2); err != nil {
			panic(err)
		}
		all[a] = [2]string{
			string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
			string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
		}
	}
	_, ed, err := ed25519.GenerateKey(nil)
	add(Ed25519, ed, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	add(ECDSAP256, ec, err)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	add(RSASHA256, rs, err)
	return all
})

// secretsFor are what the sender signs with, and what the webhook holds.
func secretsFor(s *Scheme) (signing, held string) {
	secret := "correct horse battery staple"
	switch {
	case s.asymmetric():
		pair := keyPairs()[s.Algorithm]
		return pair[0], pair[1]
	case s.Algorithm == Basic:
		secret = "horse:correct battery"
	case s.Key == KeyBase64:
		secret = strings.Join(s.KeyPrefixes[:min(1, len(s.KeyPrefixes))], "") + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))
	case s.Key == KeyHex:
		secret = hex.EncodeToString([]byte("0123456789abcdef01234567"))
	}
	return secret, secret
}

// bodyFor is a body that the scheme can carry its proof in.
func bodyFor(s *Scheme) string {
	if s.Name == "adyen" {
		return `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"1","amount":{"value":7,"currency":"EUR"}}},{"NotificationRequestItem":{"pspReference":"2"}}]}`
	}
	return `{"event":"greet","who":"world"}`
}

func verifier(t testing.TB, s *Scheme) *Verifier {
	t.Helper()
	_, held := secretsFor(s)
	v, err := s.Verifier(held)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return v
}

// signed is a request with the body as the scheme's sender sends it.
func signed(t testing.TB, s *Scheme, body string) (*Verifier, *Request) {
	t.Helper()
	r := &Request{Method: "POST", URL: address, Header: http.Header{}, Body: []byte(body), Now: now}
	for _, part := range parseTemplate(s.Template) {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok {
			r.Header.Set(name, "value-1")
		}
	}
	secret, _ := secretsFor(s)
	if err := s.Sign(secret, r); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return verifier(t, s), r
}

func reason(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Reason
	}
	return fmt.Sprint(err)
}

// TestEveryScheme: what Sign signs verifies; every changed byte of the body and
// of a credential does not; nothing is accepted without its headers, with
// doubled ones, too late or too early (SPEC 6.2).
func TestEveryScheme(t *testing.T) {
	for _, s := range All() {
		v, r := signed(t, s, bodyFor(s))
		if err := v.Verify(r); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for i := range r.Body {
			r.Body[i] ^= 1
			if got := reason(v.Verify(r)); s.BindsBody() && got != SignatureMismatch {
				t.Errorf("%s: body byte %d changed: %s", s.Name, i, got)
			}
			r.Body[i] ^= 1
		}
		for _, name := range proofHeaders(s) {
			value := r.Header.Get(name)
			if value == "" {
				continue
			}
			for i := range value {
				changed := []byte(value)
				if changed[i] ^= 1; strings.EqualFold(string(changed), value) {
					continue
				}
				r.Header.Set(name, string(changed))
				if v.Verify(r) == nil {
					t.Errorf("%s: %s accepted as %s", s.Name, value, changed)
				}
			}
			r.Header.Set(name, value)
			r.Header.Add(name, value)
			if got := reason(v.Verify(r)); got != HeaderMalformed {
				t.Errorf("%s: %s twice: %s", s.Name, name, got)
			}
			r.Header.Set(name, "")
			if got := reason(v.Verify(r)); got != HeaderMissing {
				t.Errorf("%s: with an empty %s: %s", s.Name, name, got)
			}
			r.Header.Del(name)
			if got := reason(v.Verify(r)); got != HeaderMissing {
				t.Errorf("%s: without %s: %s", s.Name, name, got)
			}
			r.Header.Set(name, value)
		}
		for _, shown := range []string{v.String(), fmt.Sprintf("%v %+v %#v", v, v, v), v.LogValue().String()} {
			if strings.Contains(shown, "correct") || strings.Contains(shown, "MDEy") || strings.Contains(shown, "3031") {
				t.Errorf("%s prints its secret: %s", s.Name, shown)
			}
		}
	}
}

// proofHeaders are the headers that the scheme needs.
func proofHeaders(s *Scheme) []string {
	names := s.CredentialHeaders()
	if s.Forms[0].ID != "" {
		names = append(names, s.Forms[0].ID)
	}
	for _, part := range parseTemplate(s.Template) {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok {
			names = append(names, name)
		}
	}
	return names
}

// TestTolerance (R12): a signed time is held to the row's tolerance, either way, and
// to what a webhook file states instead (SPEC 6.2).
func TestTolerance(t *testing.T) {
	for _, s := range All() {
		v, r := signed(t, s, bodyFor(s))
		r.Now = now.Add(100 * 365 * 24 * time.Hour)
		if s.Tolerance == 0 && v.Verify(r) != nil {
			t.Errorf("%s: no time is limited, but it is refused later", s.Name)
		}
		if slices.Contains(s.Options, "toleranceSeconds") != s.timed() && !s.Generic() && s.code == nil {
			t.Errorf("%s: timed %v, options %q", s.Name, s.timed(), s.Options)
		}
		if !slices.Contains(s.Options, "toleranceSeconds") || s.Generic() {
			continue
		}
		seconds := 42
		with, err := s.With(Options{Tolerance: &seconds})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Scheme{s, with} {
			if s.Tolerance == 0 {
				continue
			}
			v, r := signed(t, s, bodyFor(s))
			late := s.Tolerance
			if s.JWT != nil && s.JWT.Expires {
				late += tokenLife
			}
			for _, c := range []struct {
				late time.Duration
				want string
			}{{late, "<nil>"}, {late + time.Second, TimestampTooOld}, {-s.Tolerance, "<nil>"}, {-s.Tolerance - time.Second, TimestampInFuture}} {
				r.Now = now.Add(c.late)
				if got := reason(v.Verify(r)); got != c.want {
					t.Errorf("%s: %s late: %s, want %s", s.Name, c.late, got, c.want)
				}
			}
		}
	}
}

// TestNoSecret: no scheme takes a secret that says nothing, to verify or to
// sign, and no error holds the one that is refused.
func TestNoSecret(t *testing.T) {
	for _, s := range All() {
		for _, empty := range append([]string{"", " ", "\n", "\t \r\n"}, s.KeyPrefixes...) {
			if _, err := s.Verifier(empty); err == nil && (s.Key != KeyText || strings.TrimSpace(empty) == "") {
				t.Errorf("%s takes the secret %q", s.Name, empty)
			}
			if s.Sign(empty, &Request{Method: "POST", URL: address, Body: []byte(bodyFor(s)), Now: now}) == nil && (s.Key != KeyText || strings.TrimSpace(empty) == "") {
				t.Errorf("%s signs with %q", s.Name, empty)
			}
		}
		if _, err := s.Verifier(s.SecretFrom("0123456789abcdefghijklmnopqrstUV")); (err == nil) == s.asymmetric() {
			t.Errorf("%s with a random secret: %v", s.Name, err)
		}
		if s.Refused != "" {
			if _, err := s.Verifier(s.Refused); err == nil || strings.Contains(err.Error(), s.Refused) {
				t.Errorf("%s: the public secret: %v", s.Name, err)
			}
		}
		if (s.Key == KeyText || s.Key == KeyNFKD) && s.Algorithm != Basic {
			continue
		}
		_, err := s.Verifier("hidden part!")
		if e := (*SecretError)(nil); !errors.As(err, &e) || strings.Contains(err.Error(), "hidden part") {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// TestSvixHeaders: Standard Webhooks-style and Svix-compatible headers are both
// accepted, but not mixed (SPEC C4.4).
func TestSvixHeaders(t *testing.T) {
	standard, _ := Lookup("standard_webhooks")
	svix, _ := Lookup("svix")
	for _, pair := range [][2]*Scheme{{standard, svix}, {svix, standard}} {
		v, _ := signed(t, pair[0], "{}")
		_, r := signed(t, pair[1], "{}")
		if err := v.Verify(r); err != nil {
			t.Errorf("%s does not take what %s sends: %v", pair[0].Name, pair[1].Name, err)
		}
		from, to := pair[1].Forms[0], pair[1].Forms[1]
		r.Header.Set(to.ID, r.Header.Get(from.ID))
		r.Header.Del(from.ID)
		if got := reason(v.Verify(r)); got != HeaderMissing {
			t.Errorf("%s: mixed headers: %s", pair[0].Name, got)
		}
	}
}

func TestBearerAndPathToken(t *testing.T) {
	bearer, err := Bearer("s3cret+/=")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		values []string
		want   string
	}{
		{[]string{"Bearer s3cret+/="}, "<nil>"},
		{[]string{"bEARER  s3cret+/= "}, "<nil>"},
		{[]string{"Bearer s3cret"}, CredentialMismatch},
		{[]string{"Bearer "}, CredentialMismatch},
		{[]string{"s3cret+/="}, HeaderMalformed},
		{[]string{"Basic s3cret+/="}, HeaderMalformed},
		{[]string{"Bearer s3cret+/=", "Bearer s3cret+/="}, HeaderMalformed},
		{[]string{""}, HeaderMissing},
		{nil, HeaderMissing},
		{[]string{"Bearer " + strings.Repeat("a", 9000)}, HeaderMalformed},
	} {
		if got := reason(bearer.Verify(&Request{Header: http.Header{"Authorization": c.values}})); got != c.want {
			t.Errorf("%q: %s, want %s", c.values, got, c.want)
		}
	}
	path, err := PathToken("a-b.c_d~1")
	if err != nil || path.NeedsBody() || bearer.NeedsBody() {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"a-b.c_d~1": "<nil>", "": CredentialMismatch, "A-b.c_d~1": CredentialMismatch} {
		if got := reason(path.Verify(&Request{PathToken: token})); got != want {
			t.Errorf("%q: %s, want %s", token, got, want)
		}
	}
	for _, unsafe := range []string{"", "a/b", "a b", "a%20", "é", "..", "a\n"} { // SPEC 4.5
		if _, err := PathToken(unsafe); err == nil {
			t.Errorf("a url_token secret %q", unsafe)
		} else if unsafe != "" && unsafe != ".." && strings.Contains(err.Error(), unsafe) {
			t.Errorf("the error holds the secret: %v", err)
		}
	}
	for _, unfit := range []string{"", "a\nb", "a b", "é"} {
		if _, err := Bearer(unfit); err == nil {
			t.Errorf("a token secret %q", unfit)
		}
	}
}

// TestRotation: a sender that has two secrets sends two signatures, in either
// order, and each secret verifies (SPEC 6.2).
func TestRotation(t *testing.T) {
	for _, s := range All() {
		if s.Parse.Separator == "" {
			continue // it changes its secret at once
		}
		v, r := signed(t, s, bodyFor(s))
		name, sep := s.Forms[0].Signature, s.Parse.Separator
		good := r.Header.Get(name)
		bare := good[max(0, strings.LastIndex(good, s.Parse.Prefix)):]
		if s.Parse.Prefix == "" {
			bare = good[strings.LastIndex(good, sep)+1:]
		}
		other := s.Parse.Prefix + s.Encoding.encode(make([]byte, 32))
		for _, value := range []string{
			good + sep + other,
			strings.Replace(good, bare, other+sep+bare, 1),
			strings.Replace(good, bare, "v9,x"+sep+sep+s.Parse.Prefix+"!"+sep+bare, 1),
		} {
			r.Header.Set(name, value)
			if err := v.Verify(r); err != nil {
				t.Errorf("%s: %q: %v", s.Name, value, err)
			}
		}
		r.Header.Set(name, strings.Replace(good, bare, other, 1))
		if got := reason(v.Verify(r)); got != SignatureMismatch {
			t.Errorf("%s: only another signature: %s", s.Name, got)
		}
		r.Header.Set(name, strings.Replace(good, bare, "v9,x", 1))
		if got := reason(v.Verify(r)); got != SignatureMismatch {
			t.Errorf("%s: no signature in the list: %s", s.Name, got)
		}
	}
}

// TestSeveralPlaces: senders that put each signature in a header of its own, or
// in a list of its own, or whose secret holds the next key too.
func TestSeveralPlaces(t *testing.T) {
	for scheme, to := range map[string]string{"box": "Box-Signature-Secondary", "docusign": "X-Docusign-Signature-100"} {
		s, _ := Lookup(scheme)
		v, r := signed(t, s, "{}")
		from := s.Forms[0].Signature
		good := r.Header.Get(from)
		r.Header.Set(to, good)
		r.Header.Set(from, s.Encoding.encode(make([]byte, 32)))
		if err := v.Verify(r); err != nil {
			t.Errorf("%s: the second of two: %v", scheme, err)
		}
		r.Header.Del(from)
		if err := v.Verify(r); err != nil {
			t.Errorf("%s: the second alone: %v", scheme, err)
		}
		r.Header.Add(to, good)
		if got := reason(v.Verify(r)); got != HeaderMalformed {
			t.Errorf("%s: the second doubled: %s", scheme, got)
		}
	}
	s, _ := Lookup("persona")
	v, r := signed(t, s, "{}")
	good := r.Header.Get("Persona-Signature")
	for value, want := range map[string]string{
		good + " t=1,v1=00": "<nil>", "t=1,v1=00 " + good: "<nil>",
		"t=1,v1=00 t=2,v1=00": SignatureMismatch, strings.Repeat("t=1,v1=00 ", 8) + good: HeaderMalformed,
		"t=1 " + strings.ReplaceAll(good, "t=", "x="): HeaderMalformed,
	} {
		r.Header.Set("Persona-Signature", value)
		if got := reason(v.Verify(r)); got != want {
			t.Errorf("persona: %q: %s, want %s", value, got, want)
		}
	}
	s, _ = Lookup("qstash")
	if _, r = signed(t, s, "{}"); s.Sign("next-key", r) != nil {
		t.Fatal("qstash does not sign")
	}
	for secret, want := range map[string]string{"current-key next-key": "<nil>", "next-key": "<nil>", "current-key": SignatureMismatch, "current-keynext-key": SignatureMismatch} {
		v, err := s.Verifier(secret)
		if err != nil {
			t.Fatal(err)
		}
		if got := reason(v.Verify(r)); got != want {
			t.Errorf("qstash with %q: %s", secret, got)
		}
	}
}

// TestSecrets: what suits as a secret, and that no refusal holds it (SPEC 4.4).
func TestSecrets(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	for _, c := range []struct {
		scheme, secret string
		ok             bool
	}{
		{"standard_webhooks", key, true},
		{"standard_webhooks", "whsec_" + key, true},
		{"standard_webhooks", "v1,whsec_" + key, true},
		{"svix", "whsec_" + key[:len(key)-2] + "==", true},
		{"standard_webhooks", "whsec_", false},
		{"standard_webhooks", "v1,whsec_", false},
		{"standard_webhooks", "whsec_====", false},
		{"standard_webhooks", "whpk_hidden-part!", false},
		{"svix", "hidden-part!", false},
		{"stripe", "whsec_" + key, true},
		{"github", " ", false},
		{"github", "", false},
	} {
		s, _ := Lookup(c.scheme)
		v, err := s.Verifier(c.secret)
		if (err == nil) != c.ok || (v != nil) != c.ok {
			t.Errorf("%s %q: %v", c.scheme, c.secret, err)
		}
		if err == nil {
			continue
		}
		if e := (*SecretError)(nil); !errors.As(err, &e) || strings.Contains(err.Error(), "hidden-part") {
			t.Errorf("%s: %#v", c.scheme, err)
		}
		if s.Sign(c.secret, &Request{}) == nil {
			t.Errorf("%s signs with %q", c.scheme, c.secret)
		}
	}
}

// TestConcurrentUse: one verifier serves every request of its webhook.
func TestConcurrentUse(t *testing.T) {
	for _, s := range All() {
		if !s.BindsBody() {
			continue
		}
		v, good := signed(t, s, `{"n":1}`)
		bad := *good
		bad.Body = []byte(`{"n":2}`)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 200 {
					if v.Verify(good) != nil || v.Verify(&bad) == nil {
						t.Errorf("%s: verifications disturb each other", s.Name)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}
