package signature

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// code is a scheme that no row can describe.
type code interface {
	verify(s *Scheme, key []byte, r *Request) *Error
	sign(s *Scheme, key []byte, r *Request) error
	bindsBody() bool
	words() string
}

var codeRows = []*Scheme{
	{
		Name: "adyen", Provider: "Adyen", Source: "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures/",
		Setup: "Customer Area → Developers → Webhooks → Standard webhook: the URL as server configuration, method JSON; generate the HMAC key there. It is the secret, in hex.",
		Note:  "Eight fields of each item are signed, not the body: somebody who sees an item can change its other fields. No time is signed.",
		Proof: Published, Key: KeyHex, Encoding: Base64,
		Forms: []Form{{Field: "notificationItems.*.NotificationRequestItem.additionalData.hmacSignature"}},
		code:  adyen{},
	},
	{
		Name: "contentful", Provider: "Contentful", Source: "https://www.contentful.com/developers/docs/webhooks/request-verification/",
		Setup: "Space settings → Webhooks → Settings → Enable request verification, which shows the secret of 64 characters; then add the webhook with the URL.",
		Proof: Package, Tolerance: 30 * time.Second, Time: UnixMillis, Options: []string{"toleranceSeconds"},
		Forms: []Form{{Signature: "X-Contentful-Signature", Timestamp: "X-Contentful-Timestamp", Also: []string{"X-Contentful-Signed-Headers"}}},
		code:  contentful{},
	},
	{
		Name: "hygraph", Provider: "Hygraph", Source: "https://hygraph.com/docs/api-reference/basics/webhooks",
		Setup: "Project settings → Webhooks → Add: the URL, and a secret key of your choice.",
		Note:  "A time is signed, but Hygraph states no limit of its age; set `signature.toleranceSeconds` for one.",
		Proof: Package, Encoding: Base64, Time: UnixMillis, Options: []string{"toleranceSeconds"},
		Forms: []Form{{Signature: "Gcms-Signature"}},
		code:  hygraph{},
	},
	{
		Name: "twilio_json", Provider: "Twilio", Source: "https://www.twilio.com/docs/usage/webhooks/webhooks-security",
		Setup: "For Twilio products that send JSON (such as Event Streams, Voice Insights): enter the URL there. The secret is the account's Auth Token.",
		Note:  "The URL is signed with the bodySHA256 that Twilio appends to it. What Twilio sends as a form (incoming messages and calls) is no JSON, so this server refuses it.",
		Proof: Published, Algorithm: HMACSHA1, Encoding: Base64,
		Forms:    []Form{{Signature: "X-Twilio-Signature"}},
		Identity: []string{"I-Twilio-Idempotency-Token"},
		code:     twilioJSON{},
		written: &Guide{
			Steps: []string{
				"Only for what Twilio sends as JSON, such as Event Streams. Incoming messages and calls come as forms, which are refused.",
				"Enter {url} as the URL of the sink or of the product.",
				"Set {secret} to the **Auth Token** of the account.",
			},
		},
	},
}

// adyen signs eight fields of each item, inside the item.
type adyen struct{}

func (adyen) bindsBody() bool { return false }

func (adyen) words() string {
	return "each item of the body carries `additionalData.hmacSignature`: hmac-sha256, in base64, keyed with the hex-decoded secret, of eight of its fields joined by `:`"
}

// adyenFields are the signed fields of an item, in order.
var adyenFields = []string{
	"pspReference", "originalReference", "merchantAccountCode", "merchantReference",
	"amount.value", "amount.currency", "eventCode", "success",
}

// sum computes the signature of an item. A missing field counts as empty.
func (adyen) sum(key []byte, item json.RawMessage) []byte {
	var values []string
	for _, path := range adyenFields {
		value, _ := field(item, path)
		values = append(values, value)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join(values, ":")))
	return mac.Sum(nil)
}

// items are the signed items of a body.
func (adyen) items(body []byte) (items []json.RawMessage, ok bool) {
	var whole map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if json.Unmarshal(body, &whole) != nil || json.Unmarshal(whole["notificationItems"], &list) != nil {
		return nil, false
	}
	for _, entry := range list {
		items = append(items, entry["NotificationRequestItem"])
	}
	return items, len(items) > 0
}

func (a adyen) verify(_ *Scheme, key []byte, r *Request) *Error {
	items, ok := a.items(r.Body)
	if !ok {
		return failure(HeaderMissing, "the body has no notificationItems")
	}
	if len(items) > maxCandidates {
		return failure(HeaderMalformed, "more than %d items", maxCandidates)
	}
	st := &state{}
	for i, item := range items {
		signature, ok := field(item, "additionalData.hmacSignature")
		if !ok {
			return failure(HeaderMissing, "item %d has no hmacSignature", i)
		}
		if got, ok := st.decode(Base64, signature); !ok || !hmac.Equal(got, a.sum(key, item)) {
			return failure(SignatureMismatch, "the signature of item %d is not of it with the webhook's secret", i)
		}
	}
	return nil
}

func (a adyen) sign(s *Scheme, key []byte, r *Request) error {
	items, ok := a.items(r.Body)
	if !ok {
		return errors.New("adyen signs the notificationItems of the body, which has none")
	}
	var entries []map[string]json.RawMessage
	for _, item := range items {
		signature, _ := json.Marshal(base64.StdEncoding.EncodeToString(a.sum(key, item))) // a string always encodes
		entries = append(entries, map[string]json.RawMessage{
			"NotificationRequestItem": withField(item, []string{"additionalData", "hmacSignature"}, signature),
		})
	}
	list, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	r.Body = withField(r.Body, []string{"notificationItems"}, list)
	if _, ok := fields(r.Body, s.Forms[0].Field); !ok {
		return errors.New("an item of notificationItems is no JSON object")
	}
	return nil
}

// contentful signs method, path, headers and body; the request says which
// headers.
type contentful struct{}

func (contentful) bindsBody() bool { return true }

func (contentful) words() string {
	return "`X-Contentful-Signature`: hmac-sha256, in hex, of method, path, the headers that `X-Contentful-Signed-Headers` names, and body; `X-Contentful-Timestamp` is the time in milliseconds"
}

const (
	contentfulTime = "x-contentful-timestamp"
	contentfulList = "x-contentful-signed-headers"
)

// sum computes the signature over the named headers, in lower case and sorted.
func (contentful) sum(key []byte, names []string, r *Request) ([]byte, *Error) {
	var headers []string
	for _, name := range names {
		value, err := one(r.Header, name)
		if err != nil {
			return nil, err
		}
		headers = append(headers, name+":"+strings.TrimSpace(value))
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n", r.Method, contentfulPath(r.URL), strings.Join(headers, ";"))
	mac.Write(r.Body)
	return mac.Sum(nil), nil
}

// contentfulPath is the path and query as the sender's package escapes them: the
// query twice.
func contentfulPath(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	path := escape(u.EscapedPath(), ";,/?:@&=+$#-_.!~*'()")
	if u.RawQuery != "" {
		path += "?" + escape(escape(u.RawQuery, "-_.!~*'()"), ";,/?:@&=+$#-_.!~*'()")
	}
	return path
}

// escape percent-encodes all but letters, digits and some more characters.
func escape(text, unescaped string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(unescaped, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (c contentful) verify(s *Scheme, key []byte, r *Request) *Error {
	signature, err := one(r.Header, "X-Contentful-Signature")
	if err != nil {
		return err
	}
	ts, err := one(r.Header, contentfulTime)
	if err != nil {
		return err
	}
	list, err := one(r.Header, contentfulList)
	if err != nil {
		return err
	}
	names := strings.Split(list, ",")
	if len(names) > maxCandidates || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) || strings.ToLower(list) != list ||
		!slices.Contains(names, contentfulTime) || !slices.Contains(names, contentfulList) {
		return failure(HeaderMalformed, "X-Contentful-Signed-Headers is not a sorted list with itself and the timestamp in it")
	}
	want, err := c.sum(key, names, r)
	if err != nil {
		return err
	}
	st := &state{}
	if got, ok := st.decode(Hex, signature); !ok || !hmac.Equal(got, want) {
		return failure(SignatureMismatch, "the signature is not of this request with the webhook's secret")
	}
	if s.Tolerance == 0 {
		return nil
	}
	return s.checkAge(ts, r.Now)
}

func (c contentful) sign(s *Scheme, key []byte, r *Request) error {
	names := []string{contentfulList, contentfulTime}
	r.Header.Set(contentfulTime, s.Time.format(r.Now))
	r.Header.Set(contentfulList, strings.Join(names, ","))
	sum, err := c.sum(key, names, r)
	if err != nil {
		return err
	}
	r.Header.Set("X-Contentful-Signature", hex.EncodeToString(sum))
	return nil
}

// hygraph signs a JSON document that holds the body as a string.
type hygraph struct{}

func (hygraph) bindsBody() bool { return true }

func (hygraph) words() string {
	return "`gcms-signature: sign=…, env=…, t=…`: hmac-sha256, in base64, of a JSON document that holds the body, the environment's name and the time in milliseconds"
}

func (hygraph) sum(key, body []byte, env, ts string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(`{"Body":`))
	writeScriptString(mac, body)
	mac.Write([]byte(`,"EnvironmentName":`))
	writeScriptString(mac, []byte(env))
	mac.Write([]byte(`,"TimeStamp":` + ts + "}"))
	return mac.Sum(nil)
}

// writeScriptString writes the text as JSON.stringify of ECMAScript does.
func writeScriptString(w io.Writer, text []byte) {
	quote := []byte(`"`)
	_, _ = w.Write(quote) // a hash never fails
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		_, _ = w.Write(text[from:i])
		from = i + 1
		escape := []byte{'\\', c}
		switch {
		case c >= ' ':
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			escape[1] = "btn_fr"[c-'\b']
		default:
			escape = fmt.Appendf(nil, `\u%04x`, c)
		}
		_, _ = w.Write(escape)
	}
	_, _ = w.Write(text[from:])
	_, _ = w.Write(quote)
}

func (h hygraph) verify(s *Scheme, key []byte, r *Request) *Error {
	value, err := one(r.Header, "Gcms-Signature")
	if err != nil {
		return err
	}
	parts := strings.Split(value, ", ")
	malformed := failure(HeaderMalformed, "gcms-signature is not of the form sign=…, env=…, t=…")
	if len(parts) != 3 {
		return malformed
	}
	sign, ok1 := strings.CutPrefix(parts[0], "sign=")
	env, ok2 := strings.CutPrefix(parts[1], "env=")
	ts, ok3 := strings.CutPrefix(parts[2], "t=")
	if at, ok := s.Time.parse(ts); !ok1 || !ok2 || !ok3 || !ok || ts != strconv.FormatInt(at.UnixMilli(), 10) {
		return malformed
	}
	st := &state{}
	if got, ok := st.decode(Base64, sign); !ok || !hmac.Equal(got, h.sum(key, r.Body, env, ts)) {
		return failure(SignatureMismatch, "the signature is not of this body with the webhook's secret")
	}
	if s.Tolerance == 0 {
		return nil
	}
	return s.checkAge(ts, r.Now)
}

func (h hygraph) sign(s *Scheme, key []byte, r *Request) error {
	ts := s.Time.format(r.Now)
	sum := h.sum(key, r.Body, "master", ts)
	r.Header.Set("Gcms-Signature", "sign="+base64.StdEncoding.EncodeToString(sum)+", env=master, t="+ts)
	return nil
}

// twilioJSON signs the URL, which names the hash of the body.
type twilioJSON struct{}

func (twilioJSON) bindsBody() bool { return true }

func (twilioJSON) words() string {
	return "`X-Twilio-Signature`: hmac-sha1, in base64, of the URL, whose parameter `bodySHA256` is the hex SHA-256 of the body"
}

func (twilioJSON) sum(key []byte, address string) []byte {
	mac := hmac.New(sha1.New, key)
	mac.Write([]byte(address))
	return mac.Sum(nil)
}

func (t twilioJSON) verify(_ *Scheme, key []byte, r *Request) *Error {
	signature, err := one(r.Header, "X-Twilio-Signature")
	if err != nil {
		return err
	}
	u, bad := url.Parse(r.URL)
	if bad != nil {
		return failure(HeaderMalformed, "the URL cannot be read")
	}
	hashes := u.Query()["bodySHA256"]
	if len(hashes) != 1 {
		return failure(HeaderMissing, "the URL has no bodySHA256")
	}
	st := &state{}
	got, ok := st.decode(Base64, signature)
	// Twilio signs the URL with the default port or without it.
	matched := false
	for _, address := range []string{r.URL, withPort(*u)} {
		if ok && hmac.Equal(got, t.sum(key, address)) {
			matched = true
		}
	}
	if !matched {
		return failure(SignatureMismatch, "the signature is not of this URL with the webhook's secret")
	}
	if !sameHash(hashes[0], Hex, r.Body) {
		return failure(SignatureMismatch, "bodySHA256 is not of this body")
	}
	return nil
}

// withPort is the URL with its default port if it has none, or without it.
func withPort(u url.URL) string {
	standard := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	if u.Port() == "" {
		u.Host += standard
	} else {
		u.Host = strings.TrimSuffix(u.Host, standard)
	}
	return u.String()
}

func (t twilioJSON) sign(_ *Scheme, key []byte, r *Request) error {
	u, err := url.Parse(r.URL)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(r.Body)
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "bodySHA256=" + hex.EncodeToString(sum[:])
	r.URL = u.String()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(t.sum(key, r.URL)))
	return nil
}
