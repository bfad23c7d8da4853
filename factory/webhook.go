package factory

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/factory/signature"
	"triphammer/schema"
)

// Webhook is webhooks/<name>.yaml.
type Webhook struct {
	Name, Path       string
	At               schema.At // of secretName
	AuthMode         AuthMode
	Scheme           *signature.Scheme // with the options of Signature; nil unless AuthMode is Signature
	Signature        SignatureOptions
	SecretName       string // empty: no request to the webhook's URL is taken, which needs AppTokenName
	DeliveryIDHeader string
	ReplayWindow     time.Duration // for how long a signed body is refused under another identity (SPEC 5.13); 0: it is not
	Accounts         []string      // the sender's accounts that stand for the factory (SPEC 16.6)
	AppTokenName     string        // secret with the token for the connection that brings the deliveries (SPEC 29.1); empty: senders call the URL
	APISecretName    string        // secret with the credential for the sender's API; empty: the API is not asked (SPEC 16.3)
	APIURL           string        // address of the sender's API; empty: the address of the sender's own service
	Report           Report        // what is told of the runs of its events
	Replies          bool          // a reply in a thread goes on with the run that was told there (SPEC 21.6)
	Enabled          bool
}

// SignatureOptions are the keys of the file's signature mapping.
type SignatureOptions = signature.Options

// AuthMode is how a webhook's senders authenticate (SPEC C5.2).
type AuthMode string

// The modes.
const (
	Token     AuthMode = "token"
	URLToken  AuthMode = "url_token"
	Signature AuthMode = "signature"
)

// Verifier makes the verifier of the webhook with its secret.
func (w *Webhook) Verifier(secret string) (*signature.Verifier, error) {
	switch w.AuthMode {
	case URLToken:
		return signature.PathToken(secret)
	case Signature:
		return w.Scheme.Verifier(secret)
	}
	return signature.Bearer(secret)
}

// Sign signs a request as a genuine sender of the webhook would. The URL may hold {token}.
// For a scheme with a public key, the secret is the private key.
func (w *Webhook) Sign(secret string, r *signature.Request) error {
	switch w.AuthMode {
	case URLToken:
		r.PathToken, r.URL = secret, strings.ReplaceAll(r.URL, "{token}", url.PathEscape(secret))
		return nil
	case Signature:
		return w.Scheme.Sign(secret, r)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	return nil
}

// NewSecret makes a secret that suits the webhook. ok is false if only the sender can make it.
func (w *Webhook) NewSecret() (secret string, ok bool) {
	if w.AuthMode == Signature {
		return w.Scheme.NewSecret()
	}
	return signature.NewToken(), true
}

// ChoosesSecret tells whether the receiver chooses the secret, and not the sender.
func (w *Webhook) ChoosesSecret() bool { return w.AuthMode != Signature || w.Scheme.SecretIsYours() }

// formatSchemes are the signatureScheme values of the format itself; the others
// are ours (SPEC 2.2d).
var formatSchemes = []string{"github", "pagerduty", "sentry", "standard_webhooks", "stripe", "vercel"}

func (l *loader) webhook(d *document) *Webhook {
	n := d.Root
	w := &Webhook{
		Name: d.name, Path: d.Path, At: n.KeyAt("secretName"),
		AuthMode:         AuthMode(textOf(n.Get("authMode"))),
		SecretName:       strings.TrimSpace(textOf(n.Get("secretName"))),
		DeliveryIDHeader: textOf(n.Get("deliveryIdHeader")),
		Enabled:          boolOf(n.Get("enabled"), true),
	}
	w.AuthMode = cmp.Or(w.AuthMode, Token)
	if w.SecretName != "" {
		l.later(d, w.At, "secretName", kindSecret, w.SecretName)
	}
	l.scheme(d, w)
	l.signature(d, w)
	l.accounts(d, w)
	l.connect(d, w)
	l.api(d, w)
	l.replayWindow(d, w)
	w.Report = l.webhookReport(d, w)
	if w.DeliveryIDHeader != "" {
		switch at := n.Get("deliveryIdHeader").At; {
		case !signature.IsHeaderName(w.DeliveryIDHeader):
			d.Error(at, schema.InvalidValue, "write letters, digits and dashes, such as X-Event-Id", fmt.Sprintf("deliveryIdHeader: %q is not a header name", w.DeliveryIDHeader))
		case signature.IsCredentialHeader(w.DeliveryIDHeader) || w.Scheme != nil && w.Scheme.IsCredentialHeader(w.DeliveryIDHeader):
			d.Error(at, schema.InvalidValue, "name the header in which the sender puts its event's id", fmt.Sprintf("deliveryIdHeader cannot be %s, which carries a credential", w.DeliveryIDHeader))
		case signature.IsSharedHeader(w.DeliveryIDHeader):
			l.sharedHeader(d, at, "deliveryIdHeader", w.DeliveryIDHeader, identityHint(w.Scheme))
		}
	}
	return w
}

// Replayable tells whether whoever has captured a signed delivery can send its body again as another one,
// because the signature does not cover the identity (SPEC C6.2). If not, why says what keeps them from it, or
// that they can do more than that; it is empty if the definition is not valid.
func (w *Webhook) Replayable() (why string, ok bool) {
	switch {
	case w.AuthMode != Signature:
		return fmt.Sprintf("with authMode %s: whoever has captured a delivery has the secret, and can send any body", w.AuthMode), false
	case w.Scheme == nil:
		return "", false
	case !w.Scheme.BindsBody():
		return fmt.Sprintf("with signatureScheme %s: it does not sign the body, so whoever has captured a delivery can send any body", w.Scheme.Name), false
	case w.Scheme.BindsIdentity() && (w.DeliveryIDHeader == "" || slices.Contains(w.Scheme.IdentityHeaders(), http.CanonicalHeaderKey(w.DeliveryIDHeader))):
		return fmt.Sprintf("with signatureScheme %s: it signs the id, so a captured delivery that comes again is a duplicate", w.Scheme.Name), false
	case w.SecretName == "":
		return "without secretName: no request to the URL is taken", false
	}
	return "", true
}

// replayWindows are the durations from 1m to 72h that the key replayWindow takes, in one unit.
var replayWindows = regexp.MustCompile(`^(?:[1-9][0-9]{0,2}m|(?:[1-9]|[1-6][0-9]|7[0-2])h)$`)

// ShortDuration is a duration as a definition says it: 10m, and not 10m0s.
func ShortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if rest, ok := strings.CutSuffix(text, zero); ok {
			text = rest + zero[:1]
		}
	}
	return text
}

// replayWindow reads for how long a signed body is refused under another identity.
func (l *loader) replayWindow(d *document, w *Webhook) {
	n := d.Root.Get("replayWindow")
	if n == nil || l.opt.Strict || textOf(n) == "" {
		return
	}
	if !replayWindows.MatchString(textOf(n)) {
		d.Error(n.At, schema.InvalidValue, "replayWindow: 10m is an example", fmt.Sprintf("replayWindow is %q where minutes or hours are expected, from 1m to 72h", textOf(n)))
		return
	}
	if why, ok := w.Replayable(); !ok {
		if why != "" {
			d.Error(d.Root.KeyAt("replayWindow"), schema.InvalidValue, "take it out", "replayWindow does nothing "+why)
		}
		return
	}
	w.ReplayWindow, _ = time.ParseDuration(textOf(n))
}

// sharedHeader reports a deliveryIdHeader that has the same value in many deliveries. A
// tree that was applied before may name it, because the rule is newer than the key.
func (l *loader) sharedHeader(d *document, at schema.At, key, header, hint string) {
	report := d.Error
	if l.opt.Applied {
		report = d.Warn
	}
	report(at, schema.InvalidValue, hint, fmt.Sprintf("%s cannot be %s, which tells no delivery from another: each would repeat the first", key, header))
}

// identityHint says in which header the sender puts its own id.
func identityHint(scheme *signature.Scheme) string {
	if scheme != nil {
		if own := scheme.IdentityHeaders(); len(own) > 0 {
			return fmt.Sprintf("take it out: %s puts its id in %s, which is read without being named", scheme.Provider, own[0])
		}
	}
	return "name the header in which the sender puts its event's id, or take it out: then equal bodies are repetitions"
}

func (l *loader) scheme(d *document, w *Webhook) {
	n := d.Root.Get("signatureScheme")
	switch {
	case w.AuthMode == Signature && n == nil:
		d.Error(d.Root.KeyAt("authMode"), schema.MissingRequired, "such as signatureScheme: standard_webhooks", "key \"signatureScheme\" is missing: authMode signature needs it")
		return
	case n == nil || n.Kind != schema.String || n.Text == "":
		return
	case w.AuthMode == Token || w.AuthMode == URLToken:
		d.Error(d.Root.KeyAt("signatureScheme"), schema.InvalidValue, "add authMode: signature, or take the key out", fmt.Sprintf("signatureScheme means nothing with authMode %s", w.AuthMode))
		return
	}
	allowed := signature.Names()
	if l.opt.Strict {
		allowed = formatSchemes
	}
	if !slices.Contains(allowed, n.Text) {
		hint := cmp.Or(d.OneOf(n.Text, allowed), "triphammer schemes list has them")
		d.Error(n.At, schema.InvalidValue, hint, fmt.Sprintf("signatureScheme cannot be %q", n.Text))
		return
	}
	w.Scheme, _ = signature.Lookup(n.Text)
	if w.Scheme.Likely {
		d.Warn(n.At, schema.LikelyScheme, "try it with a delivery of the sender's before you rely on it",
			fmt.Sprintf("how %s signs is known from one implementation alone, or disputed in a detail", w.Scheme.Provider))
	}
}

func (l *loader) signature(d *document, w *Webhook) {
	n := d.Root.Get("signature")
	switch {
	case n != nil && l.opt.Strict:
		return
	case n != nil && (w.AuthMode == Token || w.AuthMode == URLToken):
		d.Error(d.Root.KeyAt("signature"), schema.InvalidValue, "add authMode: signature, or take the key out", fmt.Sprintf("signature means nothing with authMode %s", w.AuthMode))
		return
	case w.Scheme == nil || n != nil && n.Kind != schema.Mapping:
		return
	}
	var o signature.Options
	for key, place := range map[string]*string{
		"header": &o.Header, "algorithm": &o.Algorithm, "encoding": (*string)(&o.Encoding), "secretEncoding": (*string)(&o.SecretEncoding),
		"prefix": &o.Prefix, "separator": &o.Separator, "template": &o.Template, "timestampHeader": &o.TimestampHeader,
		"timestampPrefix": &o.TimestampPrefix, "timestampFormat": (*string)(&o.TimestampFormat), "idHeader": &o.IDHeader,
	} {
		*place = textOf(n.Get(key))
	}
	if t := n.Get("toleranceSeconds"); t != nil && t.Kind == schema.Int {
		seconds, err := strconv.Atoi(t.Text)
		if err != nil {
			seconds = -1 // With reports it as out of range
		}
		o.Tolerance = &seconds
	}
	with, err := w.Scheme.With(o)
	if bad := (*signature.OptionError)(nil); errors.As(err, &bad) {
		at := d.Root.KeyAt("signatureScheme")
		if n != nil {
			at = n.KeyAt(bad.Key)
		}
		d.Error(at, schema.InvalidValue, bad.Hint, bad.Error())
		return
	}
	w.Scheme, w.Signature = with, o
	if signature.IsSharedHeader(o.IDHeader) {
		l.sharedHeader(d, n.KeyAt("idHeader"), "signature.idHeader", o.IDHeader, "name the header in which the sender puts its event's id")
	}
}
