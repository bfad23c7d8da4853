package signature

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
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

// TestTolerance: a signed time is held to the row's tolerance, either way, and
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

// TestNoDowngrade: a weaker proof than the scheme's own is no proof, even where
// the sender, or another scheme of it, sends one beside the other.
func TestNoDowngrade(t *testing.T) {
	mac := func(h func() hash.Hash, body, secret string) string {
		m := hmac.New(h, []byte(secret))
		m.Write([]byte(body))
		return hex.EncodeToString(m.Sum(nil))
	}
	const body = "{}"
	for _, c := range []struct {
		scheme  string
		headers func(secret string) []string
	}{
		{"github", func(s string) []string { return []string{"X-Hub-Signature", "sha1=" + mac(sha1.New, body, s)} }},
		{"github", func(s string) []string { return []string{"X-Hub-Signature-256", "sha1=" + mac(sha1.New, body, s)} }},
		{"bitbucket", func(s string) []string { return []string{"X-Hub-Signature", "sha1=" + mac(sha1.New, body, s)} }},
		{"jira", func(s string) []string { return []string{"X-Hub-Signature", "sha1=" + mac(sha1.New, body, s)} }},
		{"gitlab_signed", func(s string) []string { return []string{"X-Gitlab-Token", s} }},
		{"buildkite", func(s string) []string { return []string{"X-Buildkite-Token", s} }},
		{"vapi", func(s string) []string { return []string{"X-Vapi-Secret", s} }},
		{"gitea", func(s string) []string { return []string{"X-Hub-Signature-256", "sha256=" + mac(sha256.New, body, s)} }},
		{"forgejo", func(s string) []string {
			return []string{"X-Forgejo-Signature", "", "X-Gitea-Signature", mac(sha256.New, body, s)}
		}},
		{"forgejo", func(s string) []string {
			return []string{"X-Forgejo-Signature", "00", "X-Gitea-Signature", mac(sha256.New, body, s)}
		}},
		{"cal_com", func(string) []string { return []string{"X-Cal-Signature-256", "no-secret-provided"} }},
		{"stripe", func(s string) []string {
			return []string{"Stripe-Signature", "t=1700000000,v0=" + mac(sha256.New, "1700000000."+body, s)}
		}},
		{"circleci", func(s string) []string { return []string{"Circleci-Signature", "v0=" + mac(sha256.New, body, s)} }},
		{"ghost", func(s string) []string { return []string{"X-Ghost-Signature", "sha256=" + mac(sha256.New, body, s)} }},
		{"hubspot_v3", func(s string) []string { return []string{"X-Hubspot-Signature", mac(sha256.New, body, s)} }},
		{"standard_webhooks_v1a", func(s string) []string {
			return []string{"Webhook-Id", "m", "Webhook-Timestamp", "1700000000", "Webhook-Signature", "v1," + mac(sha256.New, "m.1700000000."+body, s)}
		}},
		{"livekit", func(string) []string { return []string{"Authorization", "eyJhbGciOiJub25lIn0.e30."} }},
		{"vonage", func(string) []string { return []string{"Authorization", "Bearer eyJhbGciOiJub25lIn0.e30.AA"} }},
	} {
		s, _ := Lookup(c.scheme)
		secret, _ := secretsFor(s)
		r := &Request{Method: "POST", URL: address, Header: http.Header{}, Body: []byte(body), Now: now}
		pairs := c.headers(secret)
		for i := 0; i < len(pairs); i += 2 {
			r.Header.Set(pairs[i], pairs[i+1])
		}
		if verifier(t, s).Verify(r) == nil {
			t.Errorf("%s: accepted %q", c.scheme, pairs)
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

func TestCandidatesAreCapped(t *testing.T) {
	s, _ := Lookup("stripe")
	v, r := signed(t, s, "{}")
	good := r.Header.Get("Stripe-Signature")
	r.Header.Set("Stripe-Signature", good+strings.Repeat(",v1=00", 99))
	if err := v.Verify(r); err != nil {
		t.Error(err)
	}
	r.Header.Set("Stripe-Signature", good+strings.Repeat(",v1=00", 100))
	if got := reason(v.Verify(r)); got != HeaderMalformed {
		t.Error(got)
	}
}

// TestTamperingByRegion changes a long body in places that a truncated or
// chunked hash would miss, and its length at both ends.
func TestTamperingByRegion(t *testing.T) {
	long := `{"pad":"` + strings.Repeat("0123456789abcdef", 16*1024-8) + `"}`
	for _, s := range All() {
		if !s.BindsBody() {
			continue
		}
		v, r := signed(t, s, long)
		body := string(r.Body)
		for _, at := range []int{0, 1, 63, 64, 127, 128, 4095, 4096, len(body) / 2, len(body) - 2, len(body) - 1} {
			r.Body[at] ^= 0x20
			if got := reason(v.Verify(r)); got != SignatureMismatch {
				t.Errorf("%s: byte %d changed: %s", s.Name, at, got)
			}
			r.Body[at] ^= 0x20
		}
		for what, changed := range map[string]string{
			"cut": body[:len(body)-1], "longer": body + "\n", "shifted": " " + body, "beheaded": body[1:], "empty": "",
		} {
			r.Body = []byte(changed)
			if got := reason(v.Verify(r)); got != SignatureMismatch {
				t.Errorf("%s: %s: %s", s.Name, what, got)
			}
		}
		r.Body = []byte(body)
		if err := v.Verify(r); err != nil {
			t.Errorf("%s: restored: %v", s.Name, err)
		}
	}
}

// TestOtherRequest: where URL, method or headers are signed, others are refused.
func TestOtherRequest(t *testing.T) {
	for _, s := range All() {
		v, good := signed(t, s, bodyFor(s))
		for what, change := range map[string]func(*Request){
			"{url}":    func(r *Request) { r.URL = strings.Replace(r.URL, "whk_1", "whk_2", 1) },
			"{method}": func(r *Request) { r.Method = "PUT" },
		} {
			binds := strings.Contains(s.Template, what)
			switch {
			case what == "{url}" && s.JWT != nil:
				binds = s.JWT.URLClaim+s.JWT.URLHash+s.JWT.QueryHash != ""
			case s.JWT != nil:
				binds = s.JWT.QueryHash != ""
			case what == "{url}":
				binds = binds || strings.Contains(s.Template, "{base}") || s.Name == "contentful" || s.Name == "twilio_json"
			default:
				binds = binds || s.Name == "contentful"
			}
			r := *good
			change(&r)
			if accepted := v.Verify(&r) == nil; accepted == binds {
				t.Errorf("%s: another %s: accepted %v", s.Name, what, accepted)
			}
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

// TestForeignID: the id of a header form that was not verified is not signed,
// so it must not become the identity of the delivery (SPEC 6.2).
func TestForeignID(t *testing.T) {
	s, _ := Lookup("standard_webhooks")
	svix, _ := Lookup("svix")
	v, _ := signed(t, s, "{}")
	_, r := signed(t, svix, "{}")
	for _, c := range []struct {
		values []string
		want   string
	}{
		{nil, "<nil>"},
		{[]string{r.Header.Get("Svix-Id")}, "<nil>"},
		{[]string{""}, "<nil>"}, // an empty one names nothing (SPEC 5.6)
		{[]string{"msg_other"}, HeaderMalformed},
		{[]string{r.Header.Get("Svix-Id"), "msg_other"}, HeaderMalformed},
	} {
		r.Header["Webhook-Id"] = c.values
		if got := reason(v.Verify(r)); got != c.want {
			t.Errorf("%q: %s, want %s", c.values, got, c.want)
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

// TestHostileRequests: whatever comes, Verify returns an *Error.
func TestHostileRequests(t *testing.T) {
	var verifiers []*Verifier
	for _, s := range All() {
		verifiers = append(verifiers, verifier(t, s))
	}
	for _, newVerifier := range []func(string) (*Verifier, error){Bearer, PathToken} {
		v, err := newVerifier("s3cret")
		if err != nil {
			t.Fatal(err)
		}
		verifiers = append(verifiers, v)
	}
	for _, v := range verifiers {
		for _, r := range []*Request{
			{},
			{Header: http.Header{}},
			{Header: everyHeader("")},
			{Header: everyHeader("\x00\xff{},=v1")},
			{Header: everyHeader(strings.Repeat("v1=00,", 2000))},
			{Header: everyHeader(strings.Repeat(" v1,", 2000))},
			{Header: everyHeader("t=99999999999999,v1=00"), Now: time.Unix(1<<40, 0)},
			{PathToken: strings.Repeat("a", 1<<20)},
		} {
			if e := (*Error)(nil); !errors.As(v.Verify(r), &e) || e.Reason == "" || strings.Contains(e.Error(), "s3cret") {
				t.Errorf("%s: %v", v, e)
			}
		}
	}
}

func everyHeader(value string) http.Header {
	h := http.Header{"Authorization": {value}}
	for _, s := range All() {
		for _, name := range slices.Concat(proofHeaders(s), s.IdentityHeaders()) {
			h.Set(name, value)
		}
	}
	return h
}

// FuzzVerify sends anything to every row: nothing panics, nothing is accepted
// that Sign did not make, and what is accepted is of that body alone.
func FuzzVerify(f *testing.F) {
	all := All()
	verifiers := make([]*Verifier, len(all))
	for i, s := range all {
		v, r := signed(f, s, bodyFor(s))
		verifiers[i] = v
		form := s.Forms[0]
		f.Add(i, r.Header.Get(form.Signature), r.Header.Get(form.Timestamp), r.Header.Get(form.ID), r.URL, r.Body)
	}
	f.Fuzz(func(t *testing.T, i int, signature, ts, id, url string, body []byte) {
		i = (i%len(all) + len(all)) % len(all)
		s, v := all[i], verifiers[i]
		r := &Request{Method: "POST", URL: url, Header: http.Header{}, Body: body, Now: now}
		for _, name := range proofHeaders(s) {
			r.Header.Set(name, "value-1")
		}
		for _, form := range s.Forms {
			for name, value := range map[string]string{form.Signature: signature, form.Timestamp: ts, form.ID: id} {
				if name != "" {
					r.Header.Set(name, value)
				}
			}
			for _, name := range form.Also {
				if name != "X-Contentful-Signed-Headers" {
					r.Header.Del(name)
				}
			}
		}
		if s.Name == "contentful" {
			r.Header.Set(contentfulList, id)
		}
		err := v.Verify(r)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Reason == "" {
				t.Errorf("%s: %#v", s.Name, err)
			}
			v.Challenge(r)
			s.Greet(r)
			return
		}
		v.Challenge(r)
		if s.BindsBody() {
			r.Body = append(slices.Clone(body), ' ')
			if v.Verify(r) == nil {
				t.Errorf("%s: accepted %q with another body too", s.Name, signature)
			}
		}
	})
}

// FuzzHeaders reads a signature header in each list form: nothing that comes out
// is more than what the header holds, or over the caps.
func FuzzHeaders(f *testing.F) {
	f.Add("t=1,v1=ab,v1=cd,v0=ef")
	f.Add("v1,ab v1a,cd v1, ef")
	f.Add("sha256=ab,,=,v1==,t=")
	f.Add("1700000000000,ab,cd")
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range All() {
			var p presented
			err := (&engine{scheme: s}).split("X", value, &p)
			if err != nil && err.Reason != HeaderMalformed || p.n > maxCandidates {
				t.Fatalf("%s: %d candidates, %v", s.Name, p.n, err)
			}
			rest := value
			for i := range p.n {
				at := strings.Index(rest, s.Parse.Prefix+p.candidate(i))
				if at < 0 || p.candidate(i) == "" {
					t.Fatalf("%s: candidate %q is not in %q", s.Name, p.candidate(i), rest)
				}
				rest = rest[at+len(s.Parse.Prefix)+len(p.candidate(i)):]
			}
		}
	})
}

// FuzzJWT opens any text as a token: only what the key signed opens.
func FuzzJWT(f *testing.F) {
	s, _ := Lookup("livekit")
	_, r := signed(f, s, "{}")
	f.Add(r.Header.Get("Authorization"))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	secret, _ := secretsFor(s)
	f.Fuzz(func(t *testing.T, token string) {
		c, err := openJWT(strings.TrimPrefix(token, "Bearer "), [][]byte{[]byte(secret)})
		if (c == nil) == (err == nil) {
			t.Fatalf("%v %v", c, err)
		}
		if _, err := openJWT(strings.TrimPrefix(token, "Bearer "), [][]byte{[]byte("other")}); err == nil {
			t.Fatalf("%q opens with another key", token)
		}
	})
}

// FuzzField looks fields up in anything: what is found is what encoding/json
// finds.
func FuzzField(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"c"}}`), "a.b")
	f.Add([]byte(` { "a" : [1, {"x":"}"}] , "a":{"b" : -1.5e3 }, "\u0061": 7 } `), "a")
	f.Add([]byte(`{"value":[{"s":"x"},{"s":"y"}]}`), "value.*.s")
	f.Add([]byte(`{"value" : [ {"s":"\ud83d\ude00"} , {"s":"é"} ] }`), "value.*.s")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		got, ok := fields(body, path)
		var want []string
		wanted := utf8.Valid(body) && decodedFields(body, strings.Split(path, "."), &want)
		if strings.Count(path, "*") > 1 || strings.Contains(path, "*") && !strings.Contains(path, ".*.") || strings.HasPrefix(path, "*") {
			return // no path of the table's kind
		}
		if ok != wanted || ok && !slices.Equal(got, want) {
			t.Errorf("%q of %q is %q %v, want %q %v", path, body, got, ok, want, wanted)
		}
		if ok {
			if changed := withField(body, strings.Split(path, "."), json.RawMessage(`"z"`)); !json.Valid(changed) {
				t.Errorf("%q became %q", body, changed)
			}
		}
	})
}

// decodedFields is fields by way of encoding/json.
func decodedFields(value json.RawMessage, path []string, found *[]string) bool {
	if len(path) == 0 {
		text := string(value)
		if value[0] == '"' && json.Unmarshal(value, &text) != nil || text == "" || len(text) > maxHeader && value[0] == '"' {
			return false
		}
		*found = append(*found, text)
		return value[0] == '"' || strings.IndexByte("-0123456789", value[0]) >= 0
	}
	if path[0] == "*" {
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		for _, item := range items {
			if !decodedFields(item, path[1:], found) {
				return false
			}
		}
		return len(items) > 0
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return false
	}
	next, ok := object[path[0]]
	return ok && decodedFields(next, path[1:], found)
}

// FuzzTokens: only the secret itself passes.
func FuzzTokens(f *testing.F) {
	for _, value := range []string{"Bearer a-b", "bearer  a-b ", "a-b", "Bearer", "Bearer a-b a-b", ""} {
		f.Add(value)
	}
	bearer, _ := Bearer("a-b")
	path, _ := PathToken("a-b")
	f.Fuzz(func(t *testing.T, value string) {
		passed := bearer.Verify(&Request{Header: http.Header{"Authorization": {value}}}) == nil
		fields := strings.Split(strings.Trim(value, " "), " ")
		if want := len(value) <= maxHeader && strings.EqualFold(fields[0], "bearer") && value[0] != ' ' && fields[len(fields)-1] == "a-b" &&
			strings.Join(fields[1:len(fields)-1], "") == ""; passed != want {
			t.Errorf("%q: %v", value, passed)
		}
		if passed := path.Verify(&Request{PathToken: value}) == nil; passed != (value == "a-b") {
			t.Errorf("path %q: %v", value, passed)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	body := `{"a":"` + strings.Repeat("x", 1000) + `"}`
	for _, s := range All() {
		text := body
		if !s.BindsBody() {
			text = bodyFor(s)
		}
		v, r := signed(b, s, text)
		b.Run(s.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBearer(b *testing.B) {
	v, err := Bearer("s3cret")
	if err != nil {
		b.Fatal(err)
	}
	r := &Request{Header: http.Header{"Authorization": {"Bearer s3cret"}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Verify(r); err != nil {
			b.Fatal(err)
		}
	}
}
