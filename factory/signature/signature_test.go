package signature

import (
	"encoding/base64"
	"encoding/json"
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
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Now     int64             `json:"now"`
	Valid   bool              `json:"valid"`
	Source  string            `json:"source"`
}

func (v vector) request() *Request {
	r := &Request{Method: "POST", Header: http.Header{}, Body: []byte(v.Body), Now: time.Unix(v.Now, 0)}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	return r
}

// TestVectors: a row without a vector fails (DESIGN 3.2).
func TestVectors(t *testing.T) {
	for _, s := range All() {
		data, err := os.ReadFile(filepath.Join("testdata", s.Name+".json"))
		if err != nil {
			t.Errorf("%s has no vectors: %v", s.Name, err)
			continue
		}
		var vectors []vector
		if err := json.Unmarshal(data, &vectors); err != nil {
			t.Fatal(err)
		}
		valid := 0
		for i, c := range vectors {
			v, err := s.Verifier(c.Secret)
			if err != nil {
				t.Fatalf("%s %d: %v", s.Name, i, err)
			}
			if err := v.Verify(c.request()); (err == nil) != c.Valid {
				t.Errorf("%s %d (%s): %v", s.Name, i, c.Source, err)
			}
			if c.Valid {
				valid++
			}
		}
		if valid == 0 || s.Provider == "" || s.Source == "" {
			t.Errorf("%s: %d vectors that pass, provider %q, source %q", s.Name, valid, s.Provider, s.Source)
		}
	}
}

var now = time.Unix(1_700_000_000, 0)

func secretFor(s *Scheme) string {
	if s.Key == KeyBase64 {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))
	}
	return "correct horse battery staple"
}

func signed(t testing.TB, s *Scheme, body string) (*Verifier, *Request) {
	t.Helper()
	v, err := s.Verifier(secretFor(s))
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Method: "POST", Header: http.Header{}, Body: []byte(body), Now: now}
	if err := s.Sign(secretFor(s), r); err != nil {
		t.Fatal(err)
	}
	return v, r
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
	const body = `{"event":"greet","who":"world"}`
	for _, s := range All() {
		v, r := signed(t, s, body)
		if err := v.Verify(r); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for i := range r.Body {
			r.Body[i] ^= 1
			if got := reason(v.Verify(r)); got != SignatureMismatch {
				t.Errorf("%s: body byte %d changed: %s", s.Name, i, got)
			}
			r.Body[i] ^= 1
		}
		for _, name := range slices.Concat(s.CredentialHeaders(), []string{s.Forms[0].ID, s.Forms[0].Timestamp}) {
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
			r.Header.Del(name)
			if got := reason(v.Verify(r)); got != HeaderMissing {
				t.Errorf("%s: without %s: %s", s.Name, name, got)
			}
			r.Header.Set(name, value)
		}
		for _, c := range []struct {
			late time.Duration
			want string
		}{
			{s.Tolerance, "<nil>"},
			{s.Tolerance + time.Second, TimestampTooOld},
			{-s.Tolerance, "<nil>"},
			{-s.Tolerance - time.Second, TimestampInFuture},
		} {
			if s.Tolerance == 0 {
				c.want = "<nil>"
			}
			r.Now = now.Add(c.late)
			if got := reason(v.Verify(r)); got != c.want {
				t.Errorf("%s: %s late: %s, want %s", s.Name, c.late, got, c.want)
			}
		}
		for _, empty := range append([]string{"", " "}, s.KeyPrefixes...) {
			if _, err := s.Verifier(empty); err == nil && (empty == "" || s.Key == KeyBase64) {
				t.Errorf("%s takes the secret %q", s.Name, empty)
			}
		}
		for _, shown := range []string{v.String(), fmt.Sprintf("%v %+v %#v", v, v, v), v.LogValue().String()} {
			if strings.Contains(shown, "correct") || strings.Contains(shown, "MDEy") {
				t.Errorf("%s prints its secret: %s", s.Name, shown)
			}
		}
	}
}

// TestSvixHeaders: Standard Webhooks-style and Svix-compatible headers are both
// accepted, but not mixed (CONTRACT.md 4.4).
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
	body := `{"pad":"` + strings.Repeat("0123456789abcdef", 16*1024-1) + `"}`
	for _, s := range All() {
		v, r := signed(t, s, body)
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

// TestRotation: a sender that has two secrets sends two signatures, in either
// order, and each secret verifies (SPEC 6.2).
func TestRotation(t *testing.T) {
	for _, s := range All() {
		if s.Parse.Separator == "" {
			continue // it changes its secret at once
		}
		v, r := signed(t, s, "{}")
		name := s.Forms[0].Signature
		good := r.Header.Get(name)
		bare := good[strings.LastIndex(good, s.Parse.Prefix):]
		other := s.Parse.Prefix + s.Encoding.encode(make([]byte, 32))
		for _, value := range []string{
			good + s.Parse.Separator + other,
			strings.Replace(good, bare, other+s.Parse.Separator+bare, 1),
			strings.Replace(good, bare, "v9,x"+s.Parse.Separator+s.Parse.Separator+s.Parse.Prefix+"!"+s.Parse.Separator+bare, 1),
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
		v, _ := signed(t, s, "{}")
		verifiers = append(verifiers, v)
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
	for _, s := range schemes {
		for _, name := range slices.Concat(s.CredentialHeaders(), s.IdentityHeaders()) {
			h.Set(name, value)
		}
	}
	return h
}

func FuzzEngine(f *testing.F) {
	for i, s := range All() {
		_, r := signed(f, s, "{}")
		f.Add(i, r.Header.Get(s.Forms[0].Signature), "1700000000", "msg_1", []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, i int, signature, ts, id string, body []byte) {
		s := All()[(i%len(schemes)+len(schemes))%len(schemes)]
		v, err := s.Verifier(secretFor(s))
		if err != nil {
			t.Fatal(err)
		}
		r := &Request{Header: http.Header{}, Body: body, Now: now}
		for _, form := range s.Forms {
			r.Header.Set(form.Signature, signature)
			r.Header.Set(form.Timestamp, ts)
			r.Header.Set(form.ID, id)
		}
		if v.Verify(r) != nil {
			return
		}
		// Whatever passes must be what Sign makes of the same id and body.
		again := &Request{Header: r.Header.Clone(), Body: body, Now: now}
		if err := s.Sign(secretFor(s), again); err != nil || v.Verify(again) != nil {
			t.Errorf("%s: accepted %q", s.Name, signature)
		}
	})
}

// FuzzHeaders reads a signature header in each list form: nothing that comes out
// is more than what the header holds, or over the caps.
func FuzzHeaders(f *testing.F) {
	f.Add("t=1,v1=ab,v1=cd,v0=ef")
	f.Add("v1,ab v1a,cd v1, ef")
	f.Add("sha256=ab,,=,v1==,t=")
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
		v, r := signed(b, s, body)
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
