package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"triphammer/server/store"
)

// SenderIDHeader is the sender-set identity header (SPEC 5.12).
const SenderIDHeader = "X-Service-Delivery-Id"

// maxIdentity is the longest identity kept as it came; longer ones are hashed
// (SPEC 5.6). It is also where a kept header is cut.
const maxIdentity = 255

// keptHeaders are the headers worth keeping with a delivery. It is an
// allow-list: a header that is not known to be harmless may be a
// credential. Beside these a delivery keeps its own identity headers.
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

func (a *attempt) authenticate() error { return a.hook.Verifier.Verify(a.signed()) }

// failureKey is whose budget a failed authentication spends.
func (a *attempt) failureKey() failureKey { return failureKey{a.hook.UID, Network(a.Client)} }

// Network is what counts as one client: an IPv4 address, as neighbours of one are
// often strangers to it, and of IPv6 the /64, which a sender has to itself.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // of no address, none
	return network
}

// identity names the delivery by the first source that has a value
// (SPEC C6.2).
func (a *attempt) identity() store.Identity {
	if name := a.hook.Def.DeliveryIDHeader; name != "" {
		if value := headerValue(a.Header, name); value != "" {
			return store.Identity{Source: store.IdentityHeader, Value: value}
		}
	}
	for _, name := range a.providerHeaders() {
		if value := headerValue(a.Header, name); value != "" {
			return store.Identity{Source: store.IdentityProvider, Value: value}
		}
	}
	if value := headerValue(a.Header, SenderIDHeader); value != "" {
		return store.Identity{Source: store.IdentitySender, Value: value}
	}
	return store.Identity{Source: store.IdentityBody, Value: digest(a.body)}
}

// providerHeaders are the provider's own delivery headers; only a signed
// webhook has a provider.
func (a *attempt) providerHeaders() []string {
	if a.hook.Def.Scheme == nil {
		return nil
	}
	return a.hook.Def.Scheme.IdentityHeaders()
}

func headerValue(header http.Header, name string) string {
	value := strings.TrimSpace(header.Get(name))
	if len(value) > maxIdentity {
		return digest([]byte(value))
	}
	return value
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// keptHeaders are the headers stored with the delivery; no credential is ever
// among them (SPEC 5.10).
func (a *attempt) keptHeaders() map[string]string {
	var kept map[string]string
	keep := func(name string) {
		value := a.Header.Get(name)
		// Where a scheme lets the webhook file name the header of its proof, that can be any.
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
	return kept
}

// clientAddr is how an address is written in the log.
func clientAddr(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.Unmap().String()
}
