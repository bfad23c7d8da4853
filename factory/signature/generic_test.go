package signature

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func seconds(n int) *int { return &n }

// TestWith: a webhook file's words make a scheme that works, or say what is
// wrong with them (SPEC 6.2).
func TestWith(t *testing.T) {
	for _, c := range []struct {
		scheme  string
		options Options
		want    string // what the error says; empty: it works
	}{
		{"hmac", Options{Header: "x-farm-signature"}, ""},
		{"hmac", Options{Header: "X-A", Algorithm: "sha512", Encoding: Base64URL, SecretEncoding: KeyBase64, Prefix: "HMAC "}, ""},
		{"hmac", Options{Header: "X-A", Algorithm: "sha1", Separator: ",", Prefix: "v1=", TimestampPrefix: "t=", Template: "{ts}.{body}", TimestampFormat: UnixMillis, Tolerance: seconds(10)}, ""},
		{"hmac", Options{Header: "X-A", TimestampHeader: "X-B", IDHeader: "X-C", Template: "{id}.{ts}.{body}", TimestampFormat: RFC3339}, ""},
		{"hmac", Options{Header: "X-A", Template: "{method} {url}\n{h:X-Nonce}\n{body}"}, ""},
		{"ed25519", Options{Header: "X-A", TimestampHeader: "X-B", Template: "{ts}{body}", Encoding: Hex}, ""},
		{"token_header", Options{Header: "Authorization", Prefix: "Token "}, ""},
		{"stripe", Options{Tolerance: seconds(900)}, ""},
		{"linear", Options{Tolerance: seconds(900)}, ""},
		{"discord", Options{Tolerance: seconds(60)}, ""},
		{"contentful", Options{Tolerance: seconds(60)}, ""},
		{"hygraph", Options{Tolerance: seconds(60)}, ""},
		{"livekit", Options{Tolerance: seconds(60)}, ""},
		{"grafana", Options{Header: "X-Grafana"}, ""},
		{"grafana_timestamped", Options{Header: "X-Grafana", TimestampHeader: "X-Time", Tolerance: seconds(60)}, ""},
		{"okta", Options{Header: "X-Okta-Token"}, ""},

		{"hmac", Options{}, "header is missing"},
		{"token_header", Options{Prefix: "Token "}, "header is missing"},
		{"hmac", Options{Header: "Cookie"}, `header cannot be "Cookie"`},
		{"token_header", Options{Header: "x-service-delivery-id"}, `header cannot be "x-service-delivery-id"`}, // SPEC 5.10, 5.12
		{"hmac", Options{Header: "a b"}, `header cannot be "a b"`},
		{"hmac", Options{Header: "X-A", Algorithm: "md5"}, `algorithm cannot be "md5"`},
		{"hmac", Options{Header: "X-A", Encoding: "base32"}, `encoding cannot be "base32"`},
		{"hmac", Options{Header: "X-A", SecretEncoding: KeyPEM}, `secretEncoding cannot be "pem"`},
		{"hmac", Options{Header: "X-A", Template: "{ts}"}, "template lacks {body}"},
		{"hmac", Options{Header: "X-A", Template: "{secret}{body}"}, "unknown variable {secret}"},
		{"hmac", Options{Header: "X-A", Template: "{body}{"}, "without its other half"},
		{"hmac", Options{Header: "X-A", Template: "}{body}{x"}, "without its other half"},
		{"hmac", Options{Header: "X-A", Template: "{h:}{body}"}, "unknown variable {h:}"},
		{"hmac", Options{Header: "X-A", Template: "{ts}{body}"}, "where the time stands is not said"},
		{"hmac", Options{Header: "X-A", TimestampHeader: "X-B"}, "lacks {ts}"},
		{"hmac", Options{Header: "X-A", Tolerance: seconds(5)}, "lacks {ts}"},
		{"hmac", Options{Header: "X-A", TimestampPrefix: "t=", Template: "{ts}{body}"}, "separator is missing"},
		{"hmac", Options{Header: "X-A", Separator: ",", TimestampPrefix: "t=", TimestampHeader: "X-B", Template: "{ts}{body}"}, "exclude each other"},
		{"hmac", Options{Header: "X-A", Template: "{id}{body}"}, "need each other"},
		{"hmac", Options{Header: "X-A", IDHeader: "X-B"}, "need each other"},
		{"hmac", Options{Header: "X-A", TimestampHeader: "x-a", Template: "{ts}{body}"}, "named twice"},
		{"hmac", Options{Header: "X-A", TimestampHeader: "X-B", Template: "{ts}{body}", Tolerance: seconds(-1)}, "0 to 604800"},
		{"ed25519", Options{Header: "X-A", Algorithm: "sha256"}, "means nothing with signatureScheme ed25519"},
		{"ed25519", Options{Header: "X-A", SecretEncoding: KeyText}, `secretEncoding cannot be "text"`},
		{"token_header", Options{Header: "X-A", Template: "{body}"}, "means nothing"},
		{"basic", Options{Header: "X-A"}, "means nothing"},
		{"github", Options{Tolerance: seconds(5)}, "toleranceSeconds means nothing"},
		{"stripe", Options{Header: "X-A"}, "header means nothing"},
	} {
		s, _ := Lookup(c.scheme)
		with, err := s.With(c.options)
		if c.want != "" {
			if e := (*OptionError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %+v: %v, want %s", c.scheme, c.options, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %+v: %v", c.scheme, c.options, err)
			continue
		}
		v, r := signed(t, with, `{"n":1}`)
		if err := v.Verify(r); err != nil {
			t.Errorf("%s %+v: %v", c.scheme, c.options, err)
		}
		if o := c.options; o.Header != "" && (r.Header.Get(o.Header) == "" || !with.IsCredentialHeader(o.Header)) {
			t.Errorf("%s %+v: the proof is not in its header: %v", c.scheme, o, r.Header)
		}
		if with.BindsBody() {
			r.Body[1] ^= 1
			if v.Verify(r) == nil {
				t.Errorf("%s %+v: another body is accepted", c.scheme, c.options)
			}
			r.Body[1] ^= 1
		}
		if with.timed() && with.Tolerance > 0 {
			r.Now = now.Add(with.Tolerance + tokenLife + time.Second)
			if got := reason(v.Verify(r)); got != TimestampTooOld {
				t.Errorf("%s %+v: late: %s", c.scheme, c.options, got)
			}
		}
		if original, _ := Lookup(c.scheme); original != s || original.Tolerance == with.Tolerance && c.options.Tolerance != nil && c.scheme != "livekit" && c.scheme != "hmac" {
			t.Errorf("%s: the row itself has changed", c.scheme)
		}
	}
}

// FuzzWith: whatever a file says, the scheme refuses it or works with it.
func FuzzWith(f *testing.F) {
	f.Add("X-A", "v1=", ",", "{ts}.{body}", "", "t=", "", 300)
	f.Add("X-A", "", "", "{id}{ts}{h:X-N}{body}", "X-T", "", "X-I", 0)
	s, _ := Lookup("hmac")
	f.Fuzz(func(t *testing.T, header, prefix, separator, template, tsHeader, tsPrefix, idHeader string, tolerance int) {
		o := Options{Header: header, Prefix: prefix, Separator: separator, Template: template, TimestampHeader: tsHeader, TimestampPrefix: tsPrefix, IDHeader: idHeader}
		if template != "" && strings.Contains(template, "{ts}") {
			o.Tolerance = &tolerance
		}
		with, err := s.With(o)
		if err != nil {
			return
		}
		v, err := with.Verifier("secret")
		if err != nil {
			t.Fatal(err)
		}
		if v.Verify(&Request{Header: everyHeader(header), Now: now}) == nil {
			t.Errorf("%+v accepts what nobody signed", o)
		}
	})
}
