package signature

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// TestForeignID (R11): the id of a header form that was not verified is not signed,
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

// TestBindsIdentity: whoever has captured a delivery can state another identity for it exactly where
// BindsIdentity says so (SPEC 5.13).
func TestBindsIdentity(t *testing.T) {
	bound := 0
	for _, s := range All() {
		if !s.BindsBody() {
			continue
		}
		verifies := false
		for _, name := range append(s.IdentityHeaders(), "X-Service-Delivery-Id") {
			v, r := signed(t, s, bodyFor(s))
			r.Header.Set(name, "another")
			verifies = verifies || v.Verify(r) == nil && (name != "X-Service-Delivery-Id" || !s.BindsIdentity()) // which counts only without the provider's own
		}
		if verifies == s.BindsIdentity() {
			t.Errorf("%s: a captured delivery verifies under another identity: %v", s.Name, verifies)
		}
		if s.BindsIdentity() {
			bound++
		}
	}
	if bound < 20 {
		t.Errorf("only %d schemes sign the identity", bound)
	}
}
