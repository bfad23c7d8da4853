package delivery

import (
	"net/http"
	"net/netip"
	"strings"
)

// keptHeaders are the headers that are stored with every delivery. It is an allow-list,
// because any other header may be a credential. The identity headers of the webhook are
// stored as well.
var keptHeaders = []string{
	"Content-Type",
	"Content-Encoding",
	"User-Agent",
	"X-Request-Id",
	"X-Event-Key",
	"X-Event-Type",
	"X-Github-Event",
	"X-Github-Hook-Id",
	"X-Gitlab-Event",
	"X-Gitea-Event",
	"X-Forgejo-Event",
	"Sentry-Hook-Resource",
}

func (a *incoming) authenticate() error { return a.hook.Verifier.Verify(a.signed()) }

// failureKey says whose budget a failed authentication spends.
func (a *incoming) failureKey() failureKey { return failureKey{a.hook.UID, Network(a.Client)} }

// Network is the range of addresses that counts as one client. For IPv4 that is one
// address, because the neighbouring ones often belong to others. For IPv6 it is the /64
// network, which usually belongs to one sender.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // no network for an invalid address
	return network
}

func headerValue(header http.Header, name string) string {
	value := strings.TrimSpace(header.Get(name))
	if len(value) > maxIdentity {
		return digest([]byte(value))
	}
	return value
}

// keptHeaders are the headers that are stored with the delivery. They never hold a
// credential (SPEC 5.10).
func (a *incoming) keptHeaders() map[string]string {
	if a.kept != nil {
		return a.kept
	}
	var kept map[string]string
	keep := func(name string) {
		value := a.Header.Get(name)
		// In some schemes the webhook file names the header of the credential, so that it
		// can be any header.
		if value == "" || a.hook.Def.Scheme != nil && a.hook.Def.Scheme.IsCredentialHeader(name) {
			return
		}
		if kept == nil {
			kept = make(map[string]string, 4)
		}
		if len(value) > maxIdentity {
			value = strings.ToValidUTF8(value[:maxIdentity], "") + "…"
		}
		kept[http.CanonicalHeaderKey(name)] = value
	}
	for _, name := range keptHeaders {
		keep(name)
	}
	keep(SenderIDHeader)
	if name := a.hook.Def.DeliveryIDHeader; name != "" {
		keep(name)
	}
	for _, name := range a.providerHeaders() {
		keep(name)
	}
	a.kept = kept
	return kept
}

// clientAddr is the text of an address in the log; empty if it is invalid.
func clientAddr(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.Unmap().String()
}
