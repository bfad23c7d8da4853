package factory

import (
	"fmt"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema"
)

// Sender is the service whose events the webhook raises (SPEC 16.1), nil if there is none.
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

// suits reports a key that means nothing with the webhook's sender, of which why says the reason.
func (d *document) suits(w *Webhook, key string, means func(*native.Sender) bool, why string) bool {
	at := d.Root.KeyAt(key)
	switch sender := w.Sender(); {
	case w.AuthMode == Token || w.AuthMode == URLToken:
		d.Error(at, schema.InvalidValue, "add authMode: signature, or take the key out", fmt.Sprintf("%s means nothing with authMode %s", key, w.AuthMode))
	case w.Scheme == nil: // which is reported
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
