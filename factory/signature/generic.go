package signature

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Options are the keys of the signature mapping in a webhook file. An empty option leaves
// the row unchanged.
type Options struct {
	Header          string      `json:"header,omitempty"`
	Algorithm       string      `json:"algorithm,omitempty"` // sha256, sha1, sha512
	Encoding        Encoding    `json:"encoding,omitempty"`
	SecretEncoding  KeyEncoding `json:"secretEncoding,omitempty"` // text, base64, hex
	Prefix          string      `json:"prefix,omitempty"`
	Separator       string      `json:"separator,omitempty"`
	Template        string      `json:"template,omitempty"`
	TimestampHeader string      `json:"timestampHeader,omitempty"`
	TimestampPrefix string      `json:"timestampPrefix,omitempty"`
	TimestampFormat TimeFormat  `json:"timestampFormat,omitempty"`
	IDHeader        string      `json:"idHeader,omitempty"`
	Tolerance       *int        `json:"toleranceSeconds,omitempty"` // 0: the signed time is not compared with the clock
}

// OptionError says what is wrong with one of the Options.
type OptionError struct{ Key, Problem, Hint string }

func (e *OptionError) Error() string { return "signature: " + e.Key + " " + e.Problem }

// The generic schemes: the webhook file says how their sender signs.
var genericRows = []*Scheme{
	{
		Name: "hmac", Provider: "any sender (HMAC)", Source: "https://www.rfc-editor.org/rfc/rfc2104",
		Proof: Published,
		Setup: "State in `signature` of the webhook file how the sender signs: at least `header`.",
		Forms: []Form{{Signature: "X-Signature"}},
		Options: []string{
			"header", "algorithm", "encoding", "secretEncoding", "prefix", "separator", "template",
			"timestampHeader", "timestampPrefix", "timestampFormat", "idHeader", "toleranceSeconds",
		},
	},
	{
		Name: "ed25519", Provider: "any sender (Ed25519)", Source: "https://www.rfc-editor.org/rfc/rfc8032",
		Proof:     Published,
		Setup:     "State in `signature` of the webhook file how the sender signs: at least `header`. The secret is the sender's public key.",
		Algorithm: Ed25519, Key: KeyBase64, Encoding: Base64,
		Forms: []Form{{Signature: "X-Signature"}},
		Options: []string{
			"header", "encoding", "secretEncoding", "prefix", "separator", "template",
			"timestampHeader", "timestampPrefix", "timestampFormat", "idHeader", "toleranceSeconds",
		},
	},
	{
		Name: "token_header", Provider: "any sender (secret in a header)", Source: "https://www.rfc-editor.org/rfc/rfc9110#section-11.4",
		Setup:     "For senders that can add a header of your choice to what they send: enter the header and the secret there, and name the header in `signature.header` of the webhook file.",
		Algorithm: Token, Forms: []Form{{Signature: "X-Webhook-Token"}}, Options: []string{"header", "prefix"},
		written: &Guide{
			Steps: []string{
				"For senders that can add a header to what they send, such as Datadog (**Custom Headers** of its Webhooks integration).",
				"Enter {url} as the URL, and the value of {secret} as the value of a header of your choice.",
				"Name that header in `signature.header` of the webhook's file.",
				"If the sender has a template for the body, make it one JSON object.",
			},
		},
	},
	{
		Name: "basic", Provider: "any sender (basic authentication)", Source: "https://www.rfc-editor.org/rfc/rfc7617",
		Proof:     Published,
		Setup:     "For senders that take a user and a password, or a URL of the form https://user:password@…: the webhook's secret is `user:password`.",
		Algorithm: Basic, Forms: []Form{{Signature: "Authorization"}},
	},
}

// Generic tells whether the scheme needs Options.
func (s *Scheme) Generic() bool {
	return slices.Contains(s.Options, "header") && slices.Contains([]string{"hmac", "ed25519", "token_header"}, s.Name)
}

// maxTolerance is the largest tolerance that a webhook file may state: one week.
const maxTolerance = 7 * 24 * 60 * 60

// genericTolerance is the tolerance of a generic scheme whose webhook file states none.
const genericTolerance = 5 * time.Minute

// With returns the scheme with the options of a webhook file. If they do not suit, the error
// is an *OptionError.
func (s *Scheme) With(o Options) (*Scheme, error) {
	if err := s.takes(o); err != nil {
		return nil, err
	}
	with := *s
	form := s.Forms[0]
	with.Forms = []Form{form}
	for _, h := range []struct {
		key, value string
		place      *string
	}{{"header", o.Header, &form.Signature}, {"timestampHeader", o.TimestampHeader, &form.Timestamp}, {"idHeader", o.IDHeader, &form.ID}} {
		if h.value == "" {
			continue
		}
		if name := http.CanonicalHeaderKey(h.value); IsHeaderName(name) && !slices.Contains(unusable, name) {
			*h.place = name
			continue
		}
		hint := "name a header that the sender sets"
		if h.key == "idHeader" {
			hint = "name the header in which the sender puts the delivery's id"
		}
		return nil, &OptionError{h.key, fmt.Sprintf("cannot be %q", h.value), hint}
	}
	if o.Header+o.TimestampHeader+o.IDHeader != "" {
		with.Forms[0] = form
	} else {
		with.Forms = s.Forms
	}
	if o.Algorithm != "" {
		with.Algorithm = Algorithm("hmac-" + o.Algorithm)
	}
	for _, text := range []struct {
		value string
		place *string
	}{
		{o.Prefix, &with.Parse.Prefix},
		{o.Separator, &with.Parse.Separator},
		{o.Template, &with.Template},
		{o.TimestampPrefix, &with.Parse.TimestampKey},
		{string(o.Encoding), (*string)(&with.Encoding)},
		{string(o.SecretEncoding), (*string)(&with.Key)},
		{string(o.TimestampFormat), (*string)(&with.Time)},
	} {
		if text.value != "" {
			*text.place = text.value
		}
	}
	if err := with.coherent(o); err != nil {
		return nil, err
	}
	if with.timed() && s.Generic() {
		with.Tolerance = genericTolerance
		with.Time = cmp.Or(with.Time, UnixSeconds)
	}
	if o.Tolerance != nil {
		with.Tolerance = time.Duration(*o.Tolerance) * time.Second
	}
	return &with, nil
}

// unusable are headers that cannot hold a proof: every request has them, a proxy writes
// them, or the pages show them because they identify a delivery (SPEC 5.12).
var unusable = []string{"X-Service-Delivery-Id", "Host", "Cookie", "Set-Cookie", "Proxy-Authorization", "Content-Length", "Content-Type", "Connection", "Transfer-Encoding"}

// takes checks that the scheme allows the options, and that their values are known.
func (s *Scheme) takes(o Options) error {
	tolerance := ""
	if o.Tolerance != nil {
		tolerance = fmt.Sprint(*o.Tolerance)
		if *o.Tolerance < 0 || *o.Tolerance > maxTolerance {
			return &OptionError{"toleranceSeconds", fmt.Sprintf("is %s where 0 to %d is expected", tolerance, maxTolerance), "a week at most; 0 is any time"}
		}
	}
	for _, option := range []struct {
		key, value string
		words      []string
	}{
		{"header", o.Header, nil},
		{"algorithm", o.Algorithm, []string{"sha256", "sha1", "sha512"}},
		{"encoding", string(o.Encoding), []string{"hex", "base64", "base64url"}},
		{"secretEncoding", string(o.SecretEncoding), []string{"text", "base64", "hex", "pem"}},
		{"prefix", o.Prefix, nil},
		{"separator", o.Separator, nil},
		{"template", o.Template, nil},
		{"timestampHeader", o.TimestampHeader, nil},
		{"timestampPrefix", o.TimestampPrefix, nil},
		{"timestampFormat", string(o.TimestampFormat), []string{"seconds", "milliseconds", "rfc3339"}},
		{"idHeader", o.IDHeader, nil},
		{"toleranceSeconds", tolerance, nil},
	} {
		switch {
		case option.value == "":
		case !slices.Contains(s.Options, option.key):
			hint := "the scheme says all of it; take the key out"
			if len(s.Options) > 0 {
				hint = s.Name + " takes " + strings.Join(s.Options, ", ")
			}
			return &OptionError{option.key, "means nothing with signatureScheme " + s.Name, hint}
		case len(option.words) > 0 && !slices.Contains(option.words, option.value):
			return &OptionError{option.key, fmt.Sprintf("cannot be %q", option.value), "it can be " + strings.Join(option.words, ", ")}
		case option.value == "pem" && !s.asymmetric() || option.value == "text" && option.key == "secretEncoding" && s.asymmetric():
			return &OptionError{option.key, fmt.Sprintf("cannot be %q with %s", option.value, s.Name), "leave it out for the usual one"}
		}
	}
	if s.Generic() && o.Header == "" {
		return &OptionError{"header", "is missing", "name the header that holds the proof"}
	}
	return nil
}

func (s *Scheme) coherent(o Options) error {
	if !s.Generic() || s.Algorithm == Token {
		return nil
	}
	if problem := templateProblem(s.Template, false); problem != "" {
		return &OptionError{"template", problem, "such as \"{ts}.{body}\""}
	}
	variables := func(name string) bool { return strings.Contains(s.Template, "{"+name+"}") }
	form := s.Forms[0]
	switch {
	case s.Parse.TimestampKey != "" && s.Parse.Separator == "":
		return &OptionError{"separator", "is missing: timestampPrefix is of an item of a list", "such as \",\""}
	case s.Parse.TimestampKey != "" && form.Timestamp != "":
		return &OptionError{"timestampHeader", "and timestampPrefix exclude each other", "keep the one that the sender uses"}
	case variables("ts") && form.Timestamp == "" && s.Parse.TimestampKey == "":
		return &OptionError{"template", "has {ts}, but where the time stands is not said", "add timestampHeader or timestampPrefix"}
	case !s.timed() && (form.Timestamp != "" || s.Parse.TimestampKey != "" || o.TimestampFormat != "" || o.Tolerance != nil):
		return &OptionError{"template", "lacks {ts}: a time that is not signed proves nothing", "such as \"{ts}.{body}\""}
	case variables("id") != (form.ID != ""):
		return &OptionError{"idHeader", "and {id} in the template need each other", "an id that is not signed belongs in deliveryIdHeader"}
	}
	for _, name := range []string{form.Timestamp, form.ID} {
		if name != "" && name == form.Signature {
			return &OptionError{"header", "is named twice", "proof, time and id stand in different headers"}
		}
	}
	return nil
}

// templateProblem says what is wrong with a template; digest tells that it is for a plain
// digest. It is empty if nothing is wrong.
func templateProblem(template string, digest bool) string {
	if strings.Count(template, "{") != strings.Count(template, "}") {
		return "has a brace without its other half"
	}
	binds := false
	for _, part := range parseTemplate(template) {
		v := part.variable
		name, header := strings.CutPrefix(v, headerVariable)
		_, inBody := strings.CutPrefix(v, fieldVariable)
		switch {
		case part.literal != "" && strings.Contains(part.literal, "}"):
			return "has a brace without its other half"
		case part.literal != "", v == "secret" && digest, slices.Contains([]string{"ts", "id", "method", "url", "base"}, v), header && IsHeaderName(name), inBody && v != fieldVariable:
		case v == "body":
			binds = true
		default:
			return fmt.Sprintf("has the unknown variable {%s}", v)
		}
	}
	if !binds {
		return "lacks {body}"
	}
	return ""
}

// IsHeaderName tells whether s is a token of RFC 9110 5.6.2, of at most 100
// characters.
func IsHeaderName(s string) bool {
	return s != "" && len(s) <= 100 && strings.IndexFunc(s, func(c rune) bool {
		return c >= 0x80 || c != '_' && !unreserved(byte(c)) && !strings.ContainsRune("!#$%&'*+^`|", c)
	}) < 0
}
