package factory

import (
	"fmt"
	"regexp"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema"
)

// Sender is the service whose events the webhook raises (SPEC 16.1); nil: there is none.
func (w *Webhook) Sender() *native.Sender {
	if w.Scheme == nil {
		return nil
	}
	return native.ByScheme(w.Scheme.Name)
}

// accounts reads the accounts of a webhook (SPEC 16.6).
func (l *loader) accounts(d *document, w *Webhook) {
	n := d.Root.Get("accounts")
	if n == nil || l.opt.Strict || !d.suits(w, "accounts", func(s *native.Sender) bool { return s.Accounts != "" }, "no event of %s is about accounts") {
		return
	}
	for _, item := range itemsOf(n) {
		if name, marked := strings.CutPrefix(strings.TrimSpace(textOf(item)), "@"); marked {
			d.Error(item.At, schema.InvalidValue, "write "+name, "accounts takes "+w.Sender().Accounts)
		}
	}
	w.Accounts = textsOf(n)
}

// connect reads how the server fetches the deliveries of a sender that does not call it (SPEC 29.1).
func (l *loader) connect(d *document, w *Webhook) {
	n, token := d.Root.Get("connect"), d.Root.Get("appTokenName")
	if l.opt.Strict {
		n, token = nil, nil
	}
	if n == nil && d.Root.Get("secretName") == nil {
		d.Error(d.Root.At, schema.MissingRequired, "add secretName: TEXT", `key "secretName" is missing`)
	}
	switch {
	case n == nil && token == nil:
		return
	case n == nil:
		d.Error(d.Root.KeyAt("appTokenName"), schema.MissingRequired, "add connect: socket, or take appTokenName out", "appTokenName means nothing without connect: socket")
		return
	case !d.suits(w, "connect", connects, "%s calls the URL of the webhook"):
		return
	case token == nil:
		d.Error(d.Root.KeyAt("connect"), schema.MissingRequired, "add appTokenName: NAME, a managed secret with the app-level token (xapp-…)", `key "appTokenName" is missing: connect needs it`)
		return
	}
	w.AppTokenName = strings.TrimSpace(textOf(token))
	if w.AppTokenName == "" {
		return
	}
	l.later(d, d.Root.KeyAt("appTokenName"), "appTokenName", kindSecret, w.AppTokenName)
	for _, other := range l.factory.Webhooks {
		if w.Enabled && other.Enabled && other.AppTokenName == w.AppTokenName {
			d.Error(d.Root.KeyAt("appTokenName"), schema.InvalidValue, "make one webhook take the events of the app, and select by the automations' filters",
				fmt.Sprintf("appTokenName: %s opens a connection for %s already, and Slack gives each event to one connection only", w.AppTokenName, other.Path))
		}
	}
}

// connects tells whether a sender gives its deliveries over a connection that the receiver opens.
func connects(s *native.Sender) bool { return s.Provider == "slack" }

// apiURL is the address of an API: over plain HTTP only on this machine, because a credential
// goes there.
var apiURL = regexp.MustCompile(`^(https://[A-Za-z0-9.-]+|http://(localhost|127\.0\.0\.1))(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// api reads how to ask the sender's API for data that deliveries lack (SPEC 16.3).
func (l *loader) api(d *document, w *Webhook) {
	name, address := d.Root.Get("apiSecretName"), d.Root.Get("apiURL")
	if l.opt.Strict || name == nil && address == nil {
		return
	}
	if name == nil && d.Root.Get("connect") == nil {
		d.Error(d.Root.KeyAt("apiURL"), schema.MissingRequired, "add apiSecretName: NAME, or take apiURL out", "apiURL means nothing without apiSecretName")
		return
	}
	if name != nil && !d.suits(w, "apiSecretName", takesAPI, "the API of %s is not asked for anything") {
		return
	}
	if name != nil && address == nil && w.Sender().API == "" {
		d.Error(d.Root.KeyAt("apiSecretName"), schema.MissingRequired, "add apiURL: https://HOST", "apiSecretName needs apiURL: each customer of "+w.Sender().Title+" has an address")
	}
	w.APISecretName, w.APIURL = strings.TrimSpace(textOf(name)), textOf(address)
	if w.APISecretName != "" {
		l.later(d, d.Root.KeyAt("apiSecretName"), "apiSecretName", kindSecret, w.APISecretName)
	}
	if address != nil && address.Kind == schema.String && !apiURL.MatchString(w.APIURL) {
		d.Error(address.At, schema.InvalidValue, "such as https://github.example.com/api/v3", "apiURL takes an https address without a query")
	}
}

// suits reports a key that means nothing with the webhook's sender; why says the reason.
func (d *document) suits(w *Webhook, key string, means func(*native.Sender) bool, why string) bool {
	at := d.Root.KeyAt(key)
	switch sender := w.Sender(); {
	case w.AuthMode == Token || w.AuthMode == URLToken:
		d.Error(at, schema.InvalidValue, "add authMode: signature, or take the key out", fmt.Sprintf("%s means nothing with authMode %s", key, w.AuthMode))
	case w.Scheme == nil: // reported before
	case sender == nil:
		d.Error(at, schema.InvalidValue, schemesHint(means), fmt.Sprintf("%s means nothing with signatureScheme %s: no trigger names events of %s", key, w.Scheme.Name, w.Scheme.Provider))
	case !means(sender):
		d.Error(at, schema.InvalidValue, schemesHint(means), fmt.Sprintf("%s means nothing with signatureScheme %s: "+why, key, w.Scheme.Name, sender.Title))
	default:
		return true
	}
	return false
}

func schemesHint(means func(*native.Sender) bool) string {
	return "take it out; it counts with " + strings.Join(schemesOf(means), ", ")
}

// schemesOf are the signature schemes of some senders.
func schemesOf(which func(*native.Sender) bool) (schemes []string) {
	for _, s := range native.Senders() {
		if which(s) {
			schemes = append(schemes, s.Schemes...)
		}
	}
	return schemes
}
