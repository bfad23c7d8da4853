package factory

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"triphammer/factory/filter"
	"triphammer/factory/signature"
	"triphammer/schema"
)

// SenderIDHeader is the header in which any sender can state the identity of a delivery
// (SPEC 5.12).
const SenderIDHeader = "X-Service-Delivery-Id"

// keptHeaders are kept with the deliveries of every webhook, as senders spell them. It is
// an allow-list, because any other header may be a credential.
var keptHeaders = append(signature.EventHeaders(), "Content-Type", "Content-Encoding", "User-Agent", "X-Request-Id", "Traceparent", SenderIDHeader)

// keptByAll has the canonical names of keptHeaders.
var keptByAll = func() map[string]bool {
	all := make(map[string]bool)
	for _, name := range keptHeaders {
		all[http.CanonicalHeaderKey(name)] = true
	}
	return all
}()

// KeepsHeader tells whether a header is kept with the deliveries of the webhook, so that
// triggers can filter on it (SPEC 5.10). A header that carries a credential is never kept.
func (w *Webhook) KeepsHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	if !keptByAll[name] && !strings.EqualFold(name, w.DeliveryIDHeader) && (w.Scheme == nil || !w.Scheme.IsIdentityHeader(name)) {
		return false
	}
	// In some schemes the webhook file names the header of the credential, which can be any
	// header.
	return w.Scheme == nil || !w.Scheme.IsCredentialHeader(name)
}

// KeptHeaders are the headers that are kept with the deliveries of the webhook, sorted.
func (w *Webhook) KeptHeaders() []string {
	all := slices.Clone(keptHeaders)
	if w.DeliveryIDHeader != "" {
		all = append(all, w.DeliveryIDHeader)
	}
	if w.Scheme != nil {
		all = append(all, w.Scheme.IdentityHeaders()...)
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !w.KeepsHeader(name) })
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(http.CanonicalHeaderKey(a), http.CanonicalHeaderKey(b)) })
	return slices.CompactFunc(all, strings.EqualFold)
}

// headers reads the header filter of a webhook trigger. A header that is not kept could
// not be shown, so it cannot be asked for either.
func (l *loader) headers(d *document, n *schema.Node, t *Trigger, where string) {
	h, problems := filter.CompileHeaders(valueOf(n))
	d.problems(problems, where+".filter.")
	t.Headers = h
	for _, f := range n.Fields {
		path := fmt.Sprintf("%s.filter.headers.%s", where, f.Key)
		switch {
		case !signature.IsHeaderName(f.Key):
			d.Error(f.At, schema.InvalidFilter, "write letters, digits and dashes, such as X-Event-Type", fmt.Sprintf("%s: %q is not a header name", path, f.Key))
		case signature.IsCredentialHeader(f.Key):
			d.Error(f.At, schema.InvalidFilter, "name the header in which the sender says what happened", path+" carries a credential, which is never kept with a delivery")
		default:
			l.kept(d, f, t, path)
		}
	}
}

// kept checks that the webhooks which the trigger selects keep a header. A UID may belong
// to any webhook of the tree.
func (l *loader) kept(d *document, f schema.Field, t *Trigger, path string) {
	hooks := slices.Clone(l.factory.Webhooks)
	if len(t.WebhookIDs) == 0 {
		hooks = slices.DeleteFunc(hooks, func(w *Webhook) bool { return !slices.Contains(t.Webhooks, w.Name) })
	}
	if keptByAll[http.CanonicalHeaderKey(f.Key)] || slices.ContainsFunc(hooks, func(w *Webhook) bool { return w.KeepsHeader(f.Key) }) {
		return
	}
	known, of := (&Webhook{}).KeptHeaders(), "any webhook"
	if len(hooks) > 0 && len(t.WebhookIDs) == 0 {
		known, of = hooks[0].KeptHeaders(), "webhook "+hooks[0].Name
	}
	hint := d.OneOf(f.Key, known)
	if !strings.HasPrefix(hint, "did you mean") {
		hint = "kept are " + strings.Join(known, ", ") + ", and what deliveryIdHeader of the webhook's file names"
	}
	d.Error(f.At, schema.InvalidFilter, hint, fmt.Sprintf("%s is not kept with deliveries of %s, so it cannot be filtered on", path, of))
}
