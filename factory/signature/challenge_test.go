package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
)

// TestChallenges: the questions of senders that come by POST, and what is no such question (SPEC 6.2).
func TestChallenges(t *testing.T) {
	const secret = "correct horse battery staple"
	mac := func(text string) string {
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte(text))
		return hex.EncodeToString(m.Sum(nil))
	}
	type header = http.Header
	for _, c := range []struct {
		scheme, body string
		header       header
		query        string
		want         string // status, type, body; empty: no question
		secret       string
	}{
		{scheme: "slack", body: `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`, want: "200 text/plain; charset=utf-8 3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"},
		{scheme: "slack", body: `{"challenge":"abc","type":"event_callback"}`},
		{scheme: "slack", body: `{"challenge":"<script>","type":"url_verification"}`},
		{scheme: "slack", body: `{"challenge":"` + strings.Repeat("a", 513) + `","type":"url_verification"}`},
		{scheme: "slack", body: `{"challenge":7.5,"type":"url_verification"}`, want: "200 text/plain; charset=utf-8 7.5"},
		{scheme: "slack", body: `{"type":"url_verification"}`},
		{scheme: "slack", body: `[{"type":"url_verification"}]`},
		{scheme: "discord", body: `{"version":1,"application_id":"1","type":0}`, want: "204  "},
		{scheme: "discord", body: `{"id":"1","type":1}`, want: `200 application/json {"type":1}`},
		{scheme: "discord", body: `{"version":1,"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}`},
		{scheme: "zoom", body: `{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}`, want: `200 application/json {"encryptedToken":"` + mac("qgg8vlvZRS6UYooatFL8Aw") + `","plainToken":"qgg8vlvZRS6UYooatFL8Aw"}`},
		{scheme: "zoom", body: `{"event":"meeting.started","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}`},
		{scheme: "twitch", body: `{"challenge":"pogchamp-kappa-360noscope-vohiyo"}`, header: header{"Twitch-Eventsub-Message-Type": {"webhook_callback_verification"}}, want: "200 text/plain; charset=utf-8 pogchamp-kappa-360noscope-vohiyo"},
		{scheme: "twitch", body: `{"challenge":"abc"}`, header: header{"Twitch-Eventsub-Message-Type": {"notification"}}},
		{scheme: "twitch", body: `{"challenge":"abc"}`},
		{scheme: "line", body: `{"destination":"U1","events":[]}`, want: "200  "},
		{scheme: "line", body: `{"events":[{}]}`},
		{scheme: "line", body: `{"events":null}`},
		{scheme: "xero", body: `{"events":[],"firstEventSequence":0}`, want: "200  "},
		{scheme: "github", body: `{"challenge":"abc","type":"url_verification"}`},
		{scheme: "x", body: `{"crc_token":"abc"}`},
		{scheme: "asana", header: header{"X-Hook-Secret": {"b537207f20cbfa02357cf448134da559"}}, want: "200  ", secret: "b537207f20cbfa02357cf448134da559"},
		{scheme: "asana", body: `{"events":[]}`},
		{scheme: "asana", header: header{"X-Hook-Secret": {"a", "b"}}},
		{scheme: "asana", header: header{"X-Hook-Secret": {"a\r\nX-Evil: 1"}}},
		{scheme: "notion", body: `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`, want: "200  ", secret: "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"},
		{scheme: "notion", body: `{"verification_token":"secret_a","id":"1"}`},
		{scheme: "monday", body: `{"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`, want: `200 application/json {"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`},
		{scheme: "monday", body: `{"challenge":"abc","event":{}}`},
		{scheme: "microsoft_graph", query: "?validationToken=Validation%3a+Testing+client+application+reachability", want: "200 text/plain; charset=utf-8 Validation: Testing client application reachability"},
		{scheme: "microsoft_graph", query: "?validationToken=%3Cscript%3E"},
		{scheme: "microsoft_graph", body: `{"value":[]}`},
		{scheme: "woocommerce", body: "webhook_id=17", want: "200  "},
		{scheme: "woocommerce", body: "webhook_id=17&x=y"},
	} {
		s, _ := Lookup(c.scheme)
		r := &Request{Method: "POST", URL: address + c.query, Header: c.header, Body: []byte(c.body), Now: now}
		v, err := s.Verifier(secret)
		if s.Name == "discord" {
			v, err = verifier(t, s), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		signedOne, ok1 := v.Challenge(r)
		greeting, ok2 := s.Greet(r)
		if ok1 && ok2 || ok2 && !s.Handshake.Unsigned || ok1 && s.Handshake.Unsigned {
			t.Errorf("%s: answered signed %v, unsigned %v", c.scheme, ok1, ok2)
		}
		reply := signedOne
		if ok2 {
			reply = greeting
		}
		got := ""
		if ok1 || ok2 {
			got = strings.TrimRight(strings.Join([]string{http.StatusText(reply.Status), reply.ContentType, string(reply.Body)}, "|"), "|")
		}
		want := ""
		if c.want != "" {
			status, rest, _ := strings.Cut(c.want, " ")
			text := map[string]string{"200": "OK", "204": "No Content"}[status]
			at := strings.LastIndex(rest, " ")
			if strings.Contains(rest, "utf-8 ") {
				at = strings.Index(rest, "utf-8 ") + len("utf-8")
			}
			want = strings.TrimRight(text+"|"+rest[:at]+"|"+rest[at+1:], "|")
		}
		if got != want || reply.Secret != c.secret {
			t.Errorf("%s %s%s %v: got %q, want %q; secret %q", c.scheme, c.body, c.query, c.header, got, want, reply.Secret)
		}
		if s.Name == "asana" && ok2 && reply.Header.Get("X-Hook-Secret") != c.secret {
			t.Errorf("asana: the header is not given back: %v", reply.Header)
		}
		r.Method = http.MethodGet
		if _, ok := v.Challenge(r); ok {
			t.Errorf("%s answers a GET", c.scheme)
		}
		if _, ok := s.Greet(r); ok {
			t.Errorf("%s answers a GET", c.scheme)
		}
	}
}

// TestOracle: no answer that is made with the key is the signature of something
// that a delivery could be.
func TestOracle(t *testing.T) {
	s, _ := Lookup("zoom")
	v := verifier(t, s)
	for _, token := range []string{`v0:1700000000:{}`, `v0:1700000000:`, `{}`, `{\"forged\":1}`, "a b", "", strings.Repeat("a", 513), "é"} {
		r := &Request{Method: "POST", URL: address, Body: []byte(`{"event":"endpoint.url_validation","payload":{"plainToken":"` + token + `"}}`)}
		if reply, ok := v.Challenge(r); ok {
			t.Errorf("signs %q: %s", token, reply.Body)
		}
	}
	for _, s := range All() {
		if s.Handshake == nil {
			continue
		}
		for _, ask := range s.Handshake.Asks {
			if ask.Echo == EchoSigned && s.Name != "zoom" {
				t.Errorf("%s signs answers, and nothing here looks at it", s.Name)
			}
			if ask.Status/100 != 2 {
				t.Errorf("%s: status %d", s.Name, ask.Status)
			}
		}
		if len(s.Asks()) == 0 || (s.Handshake.Method == http.MethodPost) != (len(s.Handshake.Asks) > 0) {
			t.Errorf("%s: %+v", s.Name, s.Handshake)
		}
	}
}
