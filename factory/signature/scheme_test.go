package signature

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRows holds every row to what the engine assumes of it, so that a slip in a
// new row fails here and not at a sender's first delivery.
func TestRows(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, s := range All() {
		bad := func(format string, args ...any) {
			t.Helper()
			t.Errorf(s.Name+": "+format, args...)
		}
		if !name.MatchString(s.Name) || seen[s.Name] {
			bad("the name is not snake_case, or there twice")
		}
		seen[s.Name] = true
		if !strings.HasPrefix(s.Source, "https://") || s.Provider == "" || !strings.HasSuffix(s.Setup, ".") || s.Note != "" && !strings.HasSuffix(s.Note, ".") {
			bad("provider %q, source %q, setup %q, note %q", s.Provider, s.Source, s.Setup, s.Note)
		}
		if !slices.Contains([]Algorithm{HMACSHA1, HMACSHA256, HMACSHA512, SHA1, SHA256, Ed25519, ECDSAP256, RSASHA256, JWTHS256, Token, Basic}, s.Algorithm) ||
			!slices.Contains([]KeyEncoding{KeyText, KeyNFKD, KeyBase64, KeyHex, KeyPEM}, s.Key) ||
			!slices.Contains([]Encoding{Hex, Base64, Base64URL}, s.Encoding) ||
			!slices.Contains([]TimeFormat{"", UnixSeconds, UnixMillis, UnixAuto, RFC3339}, s.Time) {
			bad("a word that the engine does not know")
		}
		if len(s.Forms) == 0 || (s.Algorithm == JWTHS256) != (s.JWT != nil) || s.Method() == "" {
			bad("forms %v, JWT %v", s.Forms, s.JWT)
			continue
		}
		if s.code == nil && s.JWT == nil && s.Algorithm != Token && s.Algorithm != Basic {
			templateFits(bad, s)
		}
		for _, f := range s.Forms {
			for _, h := range append([]string{f.Signature, f.Timestamp, f.ID}, f.Also...) {
				if h != http.CanonicalHeaderKey(h) {
					bad("%q is not canonical", h)
				}
			}
			if (f.Field == "") == (f.Signature == "") || s.Parse.Group != "" && len(f.Also) > 0 {
				bad("form %+v", f)
			}
		}
		for _, h := range s.CredentialHeaders() {
			if !IsCredentialHeader(strings.ToLower(h)) || slices.Contains(s.IdentityHeaders(), h) {
				bad("%s is not a credential, or an identity too", h)
			}
		}
		for _, h := range s.IdentityHeaders() {
			if h != http.CanonicalHeaderKey(h) || IsCredentialHeader(h) {
				bad("identity header %q", h)
			}
		}
		if got, ok := Lookup(s.Name); !ok || got != s {
			bad("Lookup does not find it")
		}
	}
	if !slices.IsSorted(Names()) || len(Names()) != len(All()) {
		t.Errorf("Names %q", Names())
	}
	if _, ok := Lookup("GitHub"); ok {
		t.Error("names are taken in another case") // definition files are exact
	}
}

// templateFits holds a row's template to its forms.
func templateFits(bad func(string, ...any), s *Scheme) {
	problem := templateProblem(s.Template, true)
	if problem == "lacks {body}" && s.Note != "" {
		problem = "" // the note tells
	}
	if problem != "" {
		bad("the template %s", problem)
	}
	has := func(variable string) bool { return strings.Contains(s.Template, "{"+variable+"}") }
	if has("secret") != (s.Algorithm == SHA1 || s.Algorithm == SHA256) {
		bad("a plain digest without the secret, or the reverse")
	}
	if !s.timed() && s.Tolerance > 0 {
		bad("a tolerance without a signed timestamp")
	}
	if s.timed() && s.Tolerance == 0 && !strings.Contains(s.Note, "toleranceSeconds") {
		bad("a time is signed but not limited, and the note does not tell")
	}
	for _, f := range s.Forms {
		if timestamp := f.Timestamp != "" || s.Parse.TimestampKey != "" || s.Parse.TimestampFirst; timestamp != has("ts") {
			bad("form %s: timestamp %v", f.Signature, timestamp)
		}
		if (f.ID != "") != has("id") {
			bad("form %s: id %q", f.Signature, f.ID)
		}
	}
}

// TestProviders: how many senders are known by name, and that the names which
// the format itself has are among them (SPEC 2.2d).
func TestProviders(t *testing.T) {
	providers := map[string]bool{}
	certain := 0
	for _, s := range All() {
		if !s.Generic() && s.Name != "basic" {
			providers[s.Provider] = true
		}
		if !s.Likely {
			certain++
		}
	}
	if len(providers) < 150 || certain < 100 {
		t.Errorf("%d providers, %d certain schemes", len(providers), certain)
	}
	for _, name := range []string{"github", "pagerduty", "sentry", "standard_webhooks", "stripe", "vercel"} {
		if s, ok := Lookup(name); !ok || s.Likely {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestIdentity: the providers' own delivery headers (SPEC C6.2). Sign
// makes one up where the request has none.
func TestIdentity(t *testing.T) {
	for scheme, want := range map[string][]string{
		"github": {"X-Github-Delivery"}, "gitlab": {"Idempotency-Key"}, "pagerduty": {"X-Webhook-Id"}, "sentry": {"Request-Id"},
		"shopify": {"X-Shopify-Webhook-Id", "Shopify-Webhook-Id"}, "gitea": {"X-Gitea-Delivery"}, "forgejo": {"X-Forgejo-Delivery", "X-Gitea-Delivery"},
		"linear": {"Linear-Delivery"}, "zoom": {"X-Zm-Trackingid"}, "box": {"Box-Delivery-Id"}, "zendesk": {"X-Zendesk-Webhook-Invocation-Id"},
		"twitch": {"Twitch-Eventsub-Message-Id"}, "razorpay": {"X-Razorpay-Event-Id"}, "wise": {"X-Delivery-Id"}, "sanity": {"Idempotency-Key"},
		"standard_webhooks": {"Webhook-Id", "Svix-Id"}, "resend": {"Svix-Id", "Webhook-Id"}, "finch": {"Finch-Event-Id"}, "stripe": nil,
	} {
		s, _ := Lookup(scheme)
		if got := s.IdentityHeaders(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", scheme, got, want)
		}
		if _, r := signed(t, s, "{}"); len(want) > 0 && r.Header.Get(want[0]) == "" {
			t.Errorf("%s: Sign names no delivery: %v", scheme, r.Header)
		}
	}
}

// TestCredentialHeaders (SPEC 5.7).
func TestCredentialHeaders(t *testing.T) {
	for name, want := range map[string]bool{
		"authorization": true, "Proxy-Authorization": true, "COOKIE": true, "stripe-signature": true,
		"X-Hub-Signature-256": true, "Webhook-Timestamp": true, "Svix-Signature": true,
		"Webhook-Id": false, "X-GitHub-Delivery": false, "Content-Type": false, "": false,
	} {
		if got := IsCredentialHeader(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// TestVocabulary runs rows of senders that are not in the table yet, so that the
// words no row uses today are proven too. The signatures are the providers'
// published examples, or computed with OpenSSL where it says so.
func TestVocabulary(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	for _, c := range []struct {
		row    Scheme
		secret string
		r      Request
	}{
		{ // base64url, milliseconds
			Scheme{
				Name: "sanity", Algorithm: HMACSHA256, Key: KeyText, Encoding: Base64URL, Time: UnixMillis, Tolerance: 5 * time.Minute,
				Forms: []Form{{Signature: "Sanity-Webhook-Signature"}}, Template: "{ts}.{body}",
				Parse: Parse{Separator: ",", Prefix: "v1=", TimestampKey: "t="},
			},
			"try-me",
			Request{
				Header: header("sanity-webhook-signature", "t=1633518820676,v1=e7C9h2sfbFfc4V7TEz7PSOp4IoNzl0UdVsBV-1wgdeA"),
				Body:   []byte(`{"title":"GROQ-Hooks are neat"}`), Now: time.Unix(1633518821, 0),
			},
		},
		{ // a literal that begins the template, a prefix without a list
			Scheme{
				Name: "slack", Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex, Tolerance: 5 * time.Minute,
				Forms:    []Form{{Signature: "X-Slack-Signature", Timestamp: "X-Slack-Request-Timestamp"}},
				Template: "v0:{ts}:{body}", Parse: Parse{Prefix: "v0="},
			},
			"8f742231b10e8888abcd99yyyzzz85a5",
			Request{
				Header: header("x-slack-request-timestamp", "1531420618",
					"x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
				Body: []byte(slackBody), Now: time.Unix(1531420618, 0),
			},
		},
		{ // the URL, plain base64
			Scheme{
				Name: "square", Algorithm: HMACSHA256, Key: KeyText, Encoding: Base64,
				Forms: []Form{{Signature: "X-Square-Hmacsha256-Signature"}}, Template: "{url}{body}",
			},
			"asdf1234",
			Request{
				URL: "https://example.com/webhook", Body: []byte(`{"hello":"world"}`),
				Header: header("x-square-hmacsha256-signature", "2kRE5qRU2tR+tBGlDwMEw2avJ7QM4ikPYD/PJ3bd9Og="),
			},
		},
		{ // SHA-512, a hex key, RFC 3339, the method and a header; from OpenSSL
			Scheme{
				Name: "everything", Algorithm: HMACSHA512, Key: KeyHex, Encoding: Hex, Time: RFC3339, Tolerance: time.Minute,
				Forms: []Form{{Signature: "X-Signed", Timestamp: "X-At"}}, Template: "{method}\n{h:X-Nonce}\n{ts}\n{body}",
			},
			"00ff10",
			Request{
				Method: "POST", Body: []byte("{}"), Now: time.Unix(1700000000, 0),
				Header: header("X-At", "2023-11-14T22:13:20Z", "X-Nonce", "n-1", "X-Signed", openSSL),
			},
		},
	} {
		c.row.complete()
		v, err := c.row.Verifier(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Verify(&c.r); err != nil {
			t.Errorf("%s: %v", c.row.Name, err)
		}
		again := c.r
		again.Header = c.r.Header.Clone()
		again.Header.Del(c.row.Forms[0].Signature)
		if err := c.row.Sign(c.secret, &again); err != nil || v.Verify(&again) != nil {
			t.Errorf("%s: what Sign makes is refused: %v", c.row.Name, err)
		}
		for what, change := range map[string]func(*Request){
			"body":   func(r *Request) { r.Body = append(slices.Clone(r.Body), ' ') },
			"url":    func(r *Request) { r.URL += "/" },
			"method": func(r *Request) { r.Method = "PUT" },
			"nonce":  func(r *Request) { r.Header.Set("X-Nonce", "n-2") },
			"none":   func(r *Request) { r.Header.Del("X-Nonce") },
		} {
			variable := map[string]string{"nonce": "{h:X-Nonce}", "none": "{h:X-Nonce}"}[what]
			if variable == "" {
				variable = "{" + what + "}"
			}
			changed := c.r
			changed.Header = c.r.Header.Clone()
			change(&changed)
			if accepted := v.Verify(&changed) == nil; accepted == strings.Contains(c.row.Template, variable) {
				t.Errorf("%s: another %s: accepted %v", c.row.Name, what, accepted)
			}
		}
	}
	lacking := &Scheme{Name: "x", Algorithm: HMACSHA256, Key: KeyText, Encoding: Hex, Forms: []Form{{Signature: "X-S"}}, Template: "{h:X-Nonce}{body}"}
	if r := (&Request{}); lacking.Sign("secret", r) != nil || r.Header.Get("X-Nonce") == "" {
		t.Errorf("a header that it signs is missing: %v", r.Header)
	}
}

const openSSL = "c821b794ea60ecab8674e30c88ddedcfa903263242b63210bed07a3f87f1e80111af4eb0eb322af040006cc44d2b59f2bc6fc402cec48f60933c17fc6cb5ffdd"

func TestTimeFormats(t *testing.T) {
	at := time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC)
	for f, text := range map[TimeFormat]string{UnixSeconds: "1700000000", UnixMillis: "1700000000000", UnixAuto: "1700000000000", RFC3339: "2023-11-14T22:13:20Z"} {
		if got := f.format(at); got != text {
			t.Errorf("%q writes %q", f, got)
		}
		if got, ok := f.parse(text); !ok || !got.Equal(at) {
			t.Errorf("%q reads %v, %v", f, got, ok)
		}
		for _, bad := range []string{"", "-1", "+1700000000", " 1700000000", "1.7e9", "0x1", "999999999999999", "١", "yesterday"} {
			if _, ok := f.parse(bad); ok {
				t.Errorf("%q reads %q", f, bad)
			}
		}
	}
}

// TestSharedHeaders: no header in which a sender names its deliveries is one of
// those that tell none from another; the case of a name does not matter.
func TestSharedHeaders(t *testing.T) {
	for _, s := range allSchemes() {
		for _, name := range s.IdentityHeaders() {
			if IsSharedHeader(name) {
				t.Errorf("%s: %s", s.Name, name)
			}
		}
	}
	for name := range sharedHeaders {
		if IsCredentialHeader(name) {
			t.Errorf("%s", name)
		}
	}
	if !slices.IsSorted(eventHeaders) {
		t.Error("eventHeaders are not sorted")
	}
	for name, want := range map[string]bool{
		"content-type": true, "HOST": true, "x-forwarded-for": true, "X-Forwarded-Anything": true, "sec-fetch-site": true, "x-github-event": true,
		"X-Request-Id": false, "X-Event-Id": false, "X-GitHub-Delivery": false, "Idempotency-Key": false, "X-Forwarded": false, "webhook-id": false,
	} {
		if IsSharedHeader(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
