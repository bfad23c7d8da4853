package delivery

import (
	"net/http"
	"net/netip"
	"strings"

	"triphammer/factory/filter"
)

func (a *incoming) authenticate() error { return a.hook.Verifier.Verify(a.signed()) }

// failureKey names the budget that a failed authentication spends.
func (a *incoming) failureKey() failureKey { return failureKey{a.hook.UID, Network(a.Client)} }

// Network is the range of addresses that counts as one client. For IPv4 it is one address,
// because the neighbouring addresses often belong to others. For IPv6 it is the /64 network,
// which usually belongs to one sender.
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

// keptHeaders are the headers that are stored with the delivery, and that triggers filter
// on. They never hold a credential (SPEC 5.10).
func (a *incoming) keptHeaders() map[string]string {
	if a.kept != nil {
		return a.kept
	}
	a.kept = make(map[string]string, 4)
	for name, values := range a.Header {
		if len(values) == 0 || values[0] == "" || !a.hook.Def.KeepsHeader(name) {
			continue
		}
		value := strings.ToValidUTF8(values[0], "\uFFFD") // so that a later explanation matches the same text
		if len(value) > filter.MaxHeader {
			value = strings.ToValidUTF8(value[:filter.MaxHeader], "") + "…"
		}
		a.kept[name] = value
	}
	return a.kept
}

// clientAddr is the text of an address in the log; empty if it is invalid.
func clientAddr(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.Unmap().String()
}
