package signature

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

const fineSecret = "correct horse battery staple"

func request(header, value, body string) *Request {
	return &Request{Method: "POST", URL: address, Header: http.Header{header: {value}}, Body: []byte(body), Now: now}
}

// TestTokensOfLater: of every scheme that takes a token, one that is issued or
// begins a day ahead is refused, whatever it says of its end, and one of a clock
// that is slightly ahead passes (RFC 7519 4.1.5, 4.1.6).
func TestTokensOfLater(t *testing.T) {
	const day, soon = 24 * 60 * 60, 30
	tried := 0
	for _, name := range Names() {
		s, _ := Lookup(name)
		if s.JWT == nil {
			continue
		}
		tried++
		v, err := s.Verifier(fineSecret)
		if err != nil {
			t.Fatal(err)
		}
		key := []byte(fineSecret)
		if s.JWT.Keys {
			key = []byte(strings.Fields(fineSecret)[0])
		}
		for what, c := range map[string]struct {
			claims map[string]int64
			want   string
		}{
			"as the sender makes it":          {nil, "<nil>"},
			"issued a day ahead":              {map[string]int64{"iat": day, "exp": 2 * day}, TimestampInFuture},
			"begins a day ahead":              {map[string]int64{"nbf": day, "exp": 2 * day}, TimestampInFuture},
			"issued a day ahead, without end": {map[string]int64{"iat": day}, TimestampInFuture},
			"of a clock ahead":                {map[string]int64{"iat": soon, "nbf": soon, "exp": 5 * soon}, "<nil>"},
			"ended a day ago":                 {map[string]int64{"exp": -day}, TimestampTooOld},
		} {
			r := &Request{Method: "POST", URL: address, Header: http.Header{}, Body: []byte("{}"), Now: now}
			if err := s.Sign(fineSecret, r); err != nil {
				t.Fatal(err)
			}
			header := s.Forms[0].Signature
			word, text := "", r.Header.Get(header)
			if before, after, ok := strings.Cut(text, " "); ok {
				word, text = before+" ", after
			}
			parts := strings.Split(text, ".")
			payload, err := raw64.DecodeString(parts[1])
			if err != nil {
				t.Fatal(err)
			}
			var claims map[string]any
			if err := json.Unmarshal(payload, &claims); err != nil {
				t.Fatal(err)
			}
			if c.claims != nil && !s.JWT.Expires {
				delete(claims, "exp")
			}
			for name, ahead := range c.claims {
				claims[name] = now.Unix() + ahead
			}
			if payload, err = json.Marshal(claims); err != nil {
				t.Fatal(err)
			}
			text = parts[0] + "." + raw64.EncodeToString(payload)
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(text))
			r.Header.Set(header, word+text+"."+raw64.EncodeToString(mac.Sum(nil)))
			if got := reason(v.Verify(r)); got != c.want {
				t.Errorf("%s, %s: %s, want %s", s.Name, what, got, c.want)
			}
		}
	}
	if tried < 7 {
		t.Errorf("%d schemes have a token", tried)
	}
}

// TestForms: where a sender signs a form in another way, a form is not called a
// forgery; a forgery that is none is.
func TestForms(t *testing.T) {
	for _, name := range Names() {
		s, _ := Lookup(name)
		if s.FormAdvice == "" {
			continue
		}
		secret := s.SecretFrom(strings.Repeat("k", 32))
		v, err := s.Verifier(secret)
		if err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]string{
			"application/x-www-form-urlencoded":                FormBody,
			"Application/X-WWW-Form-Urlencoded; charset=UTF-8": FormBody,
			"multipart/form-data; boundary=x":                  FormBody,
			"application/json":                                 SignatureMismatch,
			"":                                                 SignatureMismatch,
		} {
			r := &Request{Method: "POST", URL: address, Header: http.Header{"Content-Type": {kind}, "X-Plivo-Signature-V3-Nonce": {"1"}}, Body: []byte("From=1&To=2"), Now: now}
			if err := s.Sign(secret, r); err != nil {
				t.Fatal(err)
			}
			r.URL += "?x"
			r.Body = append(r.Body, 'x')
			err := v.Verify(r)
			if got := reason(err); got != want || want == FormBody && !strings.Contains(err.Error(), s.FormAdvice) {
				t.Errorf("%s, %q: %v, want %s", name, kind, err, want)
			}
			r.Header.Del(s.Forms[0].Signature)
			if got := reason(v.Verify(r)); got != HeaderMissing {
				t.Errorf("%s, %q without a signature: %s", name, kind, got)
			}
		}
	}
}

// TestTokensByHand: tokens that the key signed, and that are refused for what
// they say (RFC 7515 4.1.11, RFC 7519 4.1, RFC 8725 3.1).
func TestTokensByHand(t *testing.T) {
	const body = "{}"
	sum := sha256.Sum256([]byte(body))
	token := func(head string, c map[string]any) string {
		payload, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		text := raw64.EncodeToString([]byte(head)) + "." + raw64.EncodeToString(payload)
		mac := hmac.New(sha256.New, []byte(fineSecret))
		mac.Write([]byte(text))
		return text + "." + raw64.EncodeToString(mac.Sum(nil))
	}
	const plainHead = `{"alg":"HS256","typ":"JWT"}`
	with := func(more map[string]any, without ...string) map[string]any {
		c := map[string]any{
			"iss": "Upstash", "sub": address, "body": base64.URLEncoding.EncodeToString(sum[:]),
			"nbf": now.Unix(), "exp": now.Unix() + 300, "iat": now.Unix(),
		}
		for name, value := range more {
			c[name] = value
		}
		for _, name := range without {
			delete(c, name)
		}
		return c
	}
	qstash, _ := Lookup("qstash")
	// The secret holds spaces, so it is given to the row without Keys.
	row := *qstash
	jwt := *qstash.JWT
	jwt.Keys = false
	row.JWT = &jwt
	v, err := row.Verifier(fineSecret)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token, want string
	}{
		{token(plainHead, with(nil)), "<nil>"},
		{token(`{"alg":"HS256"}`, with(map[string]any{"sub": []string{"x", address}})), "<nil>"},
		{token(plainHead, with(map[string]any{"exp": float64(now.Unix()) + 0.5})), "<nil>"},
		{token(plainHead, with(map[string]any{"exp": now.Unix() - 60})), "<nil>"},
		{token(plainHead, with(map[string]any{"exp": now.Unix() - 61})), TimestampTooOld},
		{token(plainHead, with(map[string]any{"nbf": now.Unix() + 60})), "<nil>"},
		{token(plainHead, with(map[string]any{"nbf": now.Unix() + 61})), TimestampInFuture},
		{token(plainHead, with(map[string]any{"iat": now.Unix() + 60})), "<nil>"},
		{token(plainHead, with(map[string]any{"iat": now.Unix() + 61})), TimestampInFuture},
		{token(plainHead, with(map[string]any{"iat": now.Unix() + 86400, "nbf": now.Unix() + 86400, "exp": now.Unix() + 86700})), TimestampInFuture},
		{token(plainHead, with(nil, "exp")), HeaderMalformed},
		{token(plainHead, with(map[string]any{"exp": "never"})), HeaderMalformed},
		{token(plainHead, with(map[string]any{"exp": -1})), HeaderMalformed},
		{token(plainHead, with(map[string]any{"exp": 1e300})), HeaderMalformed},
		{token(plainHead, with(nil, "iss")), SignatureMismatch},
		{token(plainHead, with(map[string]any{"iss": "upstash"})), SignatureMismatch},
		{token(plainHead, with(nil, "sub")), SignatureMismatch},
		{token(plainHead, with(map[string]any{"sub": address + "/"})), SignatureMismatch},
		{token(plainHead, with(nil, "body")), SignatureMismatch},
		{token(plainHead, with(map[string]any{"body": ""})), SignatureMismatch},
		{token(plainHead, with(map[string]any{"body": hex.EncodeToString(sum[:])})), SignatureMismatch},
		{token(`{"alg":"none"}`, with(nil)), HeaderMalformed},
		{token(`{"alg":"HS512"}`, with(nil)), HeaderMalformed},
		{token(`{"alg":"hs256"}`, with(nil)), HeaderMalformed},
		{token(`{"Alg":"HS256"}`, with(nil)), HeaderMalformed},
		{token(`{"alg":"HS256","crit":["b64"],"b64":false}`, with(nil)), HeaderMalformed},
		{token(`[]`, with(nil)), HeaderMalformed},
		{token(plainHead, with(nil)) + "=", HeaderMalformed},
		{token(plainHead, with(nil)) + ".x", HeaderMalformed},
		{"Bearer " + token(plainHead, with(nil)), HeaderMalformed},
		{strings.Repeat("a", 9000), HeaderMalformed},
	} {
		if got := reason(v.Verify(request("Upstash-Signature", c.token, body))); got != c.want {
			t.Errorf("%s: %s, want %s", c.token, got, c.want)
		}
	}
	vonage, _ := Lookup("vonage")
	if v, err = vonage.Verifier(fineSecret); err != nil {
		t.Fatal(err)
	}
	hash := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		claims map[string]any
		want   string
	}{
		{map[string]any{"iat": now.Unix(), "payload_hash": hash}, "<nil>"},
		{map[string]any{"iat": now.Unix()}, SignatureMismatch}, // the sender's package does not look at the body
		{map[string]any{"payload_hash": hash}, HeaderMalformed},
		{map[string]any{"iat": now.Unix() - 301, "payload_hash": hash}, TimestampTooOld},
		{map[string]any{"iat": now.Unix() - 301, "exp": now.Unix(), "payload_hash": hash}, "<nil>"},
	} {
		if got := reason(v.Verify(request("Authorization", "bearer "+token(plainHead, c.claims), body))); got != c.want {
			t.Errorf("vonage %v: %s, want %s", c.claims, got, c.want)
		}
	}
}

// TestQueryHash: Atlassian's canonical query, by its documented rules.
func TestQueryHash(t *testing.T) {
	same := queryHash("POST", "https://h/p?b=2&a=1&a=0&c=x%20y*")
	for _, address := range []string{"https://h/p/?a=0&a=1&b=2&c=x+y*", "http://other/p?jwt=t&c=x%20y%2A&b=2&a=0&a=1"} {
		if queryHash("post", address) != same {
			t.Errorf("%s has another hash", address)
		}
	}
	for _, address := range []string{"https://h/q?a=0&a=1&b=2&c=x+y*", "https://h/p?a=0&a=1&b=2", "https://h/p?A=0&a=1&b=2&c=x+y*"} {
		if queryHash("POST", address) == same {
			t.Errorf("%s has the same hash", address)
		}
	}
}

// TestItems: every item of a notification is verified, by the very names of its
// fields.
func TestItems(t *testing.T) {
	s, _ := Lookup("adyen")
	v, r := signed(t, s, bodyFor(s))
	for _, c := range []struct{ from, to string }{
		{`"pspReference":"2"`, `"pspReference":"3"`},
		{`"pspReference":"2"`, `"pspReference":"3","PSPREFERENCE":"2"`},
		{`"value":7`, `"value":7.0`},
		{`"value":7`, `"value":70`},
		{`"hmacSignature"`, `"hmacsignature"`},
	} {
		changed := *r
		changed.Body = []byte(strings.Replace(string(r.Body), c.from, c.to, 1))
		if string(changed.Body) == string(r.Body) {
			t.Fatalf("no %s in %s", c.from, r.Body)
		}
		if v.Verify(&changed) == nil {
			t.Errorf("accepted with %s", c.to)
		}
	}
	at := strings.LastIndex(string(r.Body), `"hmacSignature":"`) + len(`"hmacSignature":"`) + 4
	changed := *r
	changed.Body = []byte(string(r.Body[:at]) + `\n` + string(r.Body[at:]))
	if v.Verify(&changed) == nil {
		t.Error("accepted with a line break in the signature")
	}
	for _, body := range []string{`{"notificationItems":[]}`, `{"notificationItems":[{}]}`, `{"notificationItems":{}}`, `[]`, ``} {
		if got := reason(v.Verify(request("X", "", body))); got != HeaderMissing {
			t.Errorf("%s: %s", body, got)
		}
		if err := s.Sign("00ff", &Request{Body: []byte(body)}); err == nil && !strings.Contains(body, "[{}]") {
			t.Errorf("%s is signed", body)
		}
	}
}

// TestSignedHeaders: the list of signed headers covers itself and the time.
func TestSignedHeaders(t *testing.T) {
	s, _ := Lookup("contentful")
	v, err := s.Verifier(fineSecret)
	if err != nil {
		t.Fatal(err)
	}
	for list, want := range map[string]string{
		"x-contentful-signed-headers,x-contentful-timestamp":         "<nil>",
		"x-a,x-contentful-signed-headers,x-contentful-timestamp":     "<nil>",
		"x-b,x-contentful-signed-headers,x-contentful-timestamp":     HeaderMissing, // named, and not there
		"x-contentful-signed-headers":                                HeaderMalformed,
		"x-contentful-timestamp":                                     HeaderMalformed,
		"x-contentful-timestamp,x-contentful-signed-headers":         HeaderMalformed,
		"x-a,x-a,x-contentful-signed-headers,x-contentful-timestamp": HeaderMalformed,
		"X-A,x-contentful-signed-headers,x-contentful-timestamp":     HeaderMalformed,
	} {
		r := &Request{Method: "POST", URL: address, Header: http.Header{}, Body: []byte("{}"), Now: now}
		r.Header.Set(contentfulTime, s.Time.format(now))
		r.Header.Set(contentfulList, list)
		r.Header.Set("X-A", "1")
		r.Header.Set("X-Contentful-Signature", "00")
		if sum, err := (contentful{}).sum([]byte(fineSecret), strings.Split(list, ","), r); err == nil {
			r.Header.Set("X-Contentful-Signature", hex.EncodeToString(sum))
		}
		if got := reason(v.Verify(r)); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
		if r.Header.Set("X-A", "2"); strings.Contains(list, "x-a,x-contentful") && want == "<nil>" && v.Verify(r) == nil {
			t.Error("another value of a signed header is accepted")
		}
	}
}

// TestTimesInLists: one time, and of either unit where the sender's is disputed.
func TestTimesInLists(t *testing.T) {
	s, _ := Lookup("stripe")
	v, r := signed(t, s, "{}")
	good := r.Header.Get("Stripe-Signature")
	for _, value := range []string{good + ",t=1700000000", "t=1700000000," + good} {
		r.Header.Set("Stripe-Signature", value)
		if got := reason(v.Verify(r)); got != HeaderMalformed {
			t.Errorf("two times: %s", got)
		}
	}
	s, _ = Lookup("webflow")
	for text, want := range map[string]string{"1700000000": "<nil>", "1700000000000": "<nil>", "1699990000": TimestampTooOld, "1699990000000": TimestampTooOld, "17000000000000000": HeaderMalformed} {
		mac := hmac.New(sha256.New, []byte(fineSecret))
		mac.Write([]byte(text + ":{}"))
		r := request("X-Webflow-Signature", hex.EncodeToString(mac.Sum(nil)), "{}")
		r.Header.Set("X-Webflow-Timestamp", text)
		v, err := s.Verifier(fineSecret)
		if err != nil {
			t.Fatal(err)
		}
		if got := reason(v.Verify(r)); got != want {
			t.Errorf("webflow %s: %s, want %s", text, got, want)
		}
	}
	linear, _ := Lookup("linear")
	for body, want := range map[string]string{
		`{"webhookTimestamp":1700000000000}`: "<nil>", `{"webhookTimestamp":1}`: TimestampTooOld, `{}`: HeaderMalformed,
		`{"webhookTimestamp":1700000000000,"webhookTimestamp":1}`: TimestampTooOld, `{"webhookTimestamp":17e11}`: HeaderMalformed,
	} {
		mac := hmac.New(sha256.New, []byte(fineSecret))
		mac.Write([]byte(body))
		v, err := linear.Verifier(fineSecret)
		if err != nil {
			t.Fatal(err)
		}
		if got := reason(v.Verify(request("Linear-Signature", hex.EncodeToString(mac.Sum(nil)), body))); got != want {
			t.Errorf("linear %s: %s, want %s", body, got, want)
		}
	}
}

// TestPublicKeys: keys of another kind, of another curve, or too short are
// refused, and no message holds one.
func TestPublicKeys(t *testing.T) {
	encoded := func(public any) string {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	t.Setenv("GODEBUG", "rsa1024min=0") // to make the short one
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"short": encoded(short.Public()), "P-384": encoded(p384.Public()), "text": "hidden part!", "empty": "", "base64": "AAAA", "PEM": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"}
	for a, pair := range keyPairs() {
		keys[string(a)] = pair[1]
		keys[string(a)+" private"] = pair[0]
	}
	for _, s := range All() {
		if !s.asymmetric() {
			continue
		}
		for what, key := range keys {
			_, err := s.Verifier(key)
			if good := what == string(s.Algorithm); (err == nil) != good {
				t.Errorf("%s with the key %s: %v", s.Name, what, err)
			}
			if e := (*SecretError)(nil); err != nil && (!errors.As(err, &e) || strings.Contains(err.Error(), "hidden")) {
				t.Errorf("%s with the key %s: %v", s.Name, what, err)
			}
			if err := s.Sign(key, &Request{Body: []byte("{}"), Now: now.Add(time.Second)}); (err == nil) != (what == string(s.Algorithm)+" private") {
				t.Errorf("%s signs with the key %s: %v", s.Name, what, err)
			}
		}
	}
}

// TestSmallOrderKeys: a public key for which anybody can sign is refused, such as
// the zeros that one sets before the sender has shown its key (SPEC 6.2).
func TestSmallOrderKeys(t *testing.T) {
	for _, y := range []string{ // every encoding of the eight points of small order
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		for _, sign := range []byte{0, 0x80} {
			key, err := hex.DecodeString(y)
			if err != nil {
				t.Fatal(err)
			}
			key[31] |= sign
			spki, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(key))
			if err != nil {
				t.Fatal(err)
			}
			for scheme, secret := range map[string]string{
				"discord":               hex.EncodeToString(key),
				"telnyx":                base64.StdEncoding.EncodeToString(key),
				"standard_webhooks_v1a": "whpk_" + base64.StdEncoding.EncodeToString(key),
				"ed25519":               base64.StdEncoding.EncodeToString(spki),
			} {
				s, _ := Lookup(scheme)
				if _, err := s.Verifier(secret); err == nil || !strings.Contains(err.Error(), "anybody can sign") {
					t.Errorf("%s with %x: %v", scheme, key, err)
				}
			}
		}
	}
}
