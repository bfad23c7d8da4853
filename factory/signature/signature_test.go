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
		return s.KeyPrefix + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))
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
		for _, empty := range []string{"", " ", s.KeyPrefix} {
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
