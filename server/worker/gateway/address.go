package gateway

import (
	"net"
	"net/netip"

	"triphammer/factory/hosts"
)

// class is how far a connection to an address may be trusted.
type class int

const (
	public  class = iota
	private       // of the own organization: only for a host that is listed in full
	special       // of this machine, its link or its cloud: only if the list names it
)

// networks are the ranges of addresses that are not public (the special-purpose
// registries of IANA), and addresses at which clouds give credentials to their machines.
// The first range that contains an address decides.
var networks = []struct {
	class class
	what  string
	in    []netip.Prefix
}{
	{special, "an address of a cloud's metadata", prefixes("169.254.169.254/32", "169.254.170.2/32", "168.63.129.16/32", "100.100.100.200/32",
		"192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128")},
	{special, "a loopback address", prefixes("127.0.0.0/8", "::1/128")},
	{special, "a link-local address", prefixes("169.254.0.0/16", "fe80::/10")},
	{special, "a multicast address", prefixes("224.0.0.0/4", "ff00::/8")},
	{private, "a private address", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")},
	{special, "no address of the public network", prefixes("0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20")},
}

// Ranges that carry an IPv4 address, and global unicast. No IPv6 address outside global unicast
// is public.
var (
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// classify tells the class of an address, and what it is in words.
func classify(addr netip.Addr) (class, string) {
	addr = addr.Unmap().WithZone("")
	if b := addr.As16(); nat64.Contains(addr) {
		return classify(netip.AddrFrom4([4]byte(b[12:])))
	} else if sixToFour.Contains(addr) {
		return classify(netip.AddrFrom4([4]byte(b[2:6])))
	}
	for _, n := range networks {
		for _, p := range n.in {
			if p.Contains(addr) {
				return n.class, n.what
			}
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return special, "no address of the public network"
	}
	return public, ""
}

// refused tells why a host may not be reached at an address; empty: it may.
func (p *Proxy) refused(h hosts.Host, m hosts.Match, addr netip.Addr) string {
	addr = addr.Unmap()
	if p.isOwn(netip.AddrPortFrom(addr, h.Port)) {
		return "it is this server, which no run may reach"
	}
	c, what := classify(addr)
	named := h.Addr.IsValid() || c == private || h.Name == "localhost" && addr.IsLoopback()
	switch {
	case c == public, m == hosts.InFull && named:
		return ""
	case c == private:
		return addr.String() + " is " + what + ", which only a host that is listed in full may have"
	}
	return addr.String() + " is " + what + ", which is only reached if the list has the address itself"
}

// isOwn tells whether the server itself listens on an address.
func (p *Proxy) isOwn(to netip.AddrPort) bool {
	for _, own := range p.own {
		if own.Port() != to.Port() {
			continue
		}
		if addr := own.Addr().Unmap(); addr == to.Addr() || to.Addr().IsUnspecified() || addr.IsUnspecified() && local(to.Addr()) {
			return true
		}
	}
	return false
}

// local tells whether an address is of this machine. If that is not known, local returns true.
func local(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr.Unmap() {
			return true
		}
	}
	return false
}
