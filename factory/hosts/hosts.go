// Package hosts implements lists of the hosts that a run may reach (SPEC 14.5). It parses
// the patterns that definitions and flags use, and tells whether they include a host that
// a program asks for.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// DefaultPort is the port of a pattern that names no port: the port of HTTPS.
const DefaultPort = 443

// Host is a host as a program asks for it.
type Host struct {
	Name string     // in lower case and without a dot at the end; empty if Addr is valid
	Addr netip.Addr // valid if the host is named by its address
	Port uint16
}

// String is the form HOST:PORT.
func (h Host) String() string { return h.Display() + ":" + strconv.Itoa(int(h.Port)) }

// Display is the host without its port, in the form of a URL.
func (h Host) Display() string {
	switch {
	case !h.Addr.IsValid():
		return h.Name
	case h.Addr.Is6():
		return "[" + h.Addr.String() + "]"
	}
	return h.Addr.String()
}

// ParseHost reads HOST or HOST:PORT. port is the port of a host without PORT; if it is 0, the
// text must have PORT. HOST is a name in ASCII, an IPv4 address in its usual form, or an IPv6
// address in brackets without a zone.
func ParseHost(text string, port uint16) (Host, error) {
	host, digits := split(text)
	if digits != "" {
		n, err := strconv.ParseUint(digits[1:], 10, 16)
		if err != nil || digits[1] == '0' {
			return Host{}, fmt.Errorf("%s is not a port: write a number from 1 to 65535", clip(digits[1:]))
		}
		port = uint16(n)
	}
	if port == 0 {
		return Host{}, errors.New("it has no port")
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !strings.HasSuffix(inner, "]") || !addr.Is6() || addr.Zone() != "" {
			return Host{}, fmt.Errorf("%s is not an IPv6 address", clip(host))
		}
		return Host{Addr: addr.Unmap(), Port: port}, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return Host{Addr: addr, Port: port}, nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if err := checkName(name); err != nil {
		return Host{}, err
	}
	return Host{Name: name, Port: port}, nil
}

// split cuts text before the colon of the port.
func split(text string) (host, port string) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.LastIndexByte(text, ']') > i {
		return text, ""
	}
	return text[:i], text[i:]
}

// maxName is the longest name of a host (RFC 1035), maxLabel its longest part.
const (
	maxName  = 253
	maxLabel = 63
)

// checkName tells why a name in lower case cannot be the name of a host. The last part of a
// name must begin with a letter: resolvers read some other names, such as 127.1 and
// 0x7f000001, as addresses.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%s is not the name of a host", clip(name))
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%s is not the name of a host", clip(name))
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			case c >= 0x80:
				return fmt.Errorf("%s has letters outside ASCII: write the name as it is in the DNS (xn--…)", clip(name))
			default:
				return fmt.Errorf("%s is not the name of a host", clip(name))
			}
		}
		last = label
	}
	if last[0] < 'a' || last[0] > 'z' {
		return fmt.Errorf("%s is neither a name nor an address", clip(name))
	}
	return nil
}

// clip shortens and quotes text that a stranger may have sent.
func clip(text string) string {
	const enough = 80
	if len(text) > enough {
		return strconv.QuoteToASCII(text[:enough]) + "…"
	}
	return strconv.QuoteToASCII(text)
}

// Pattern is one entry of a list of hosts.
type Pattern struct {
	host Host
	wild bool // includes every name below host.Name; if host.Name is empty, every host
}

// Port is the port of the hosts that the pattern includes.
func (p Pattern) Port() uint16 { return p.host.Port }

// Syntax is the regular expression of a pattern, and MaxText its longest text in bytes.
const (
	Syntax  = `^(\*|(\*\.)?(` + label + `\.)*` + last + `|` + address + `)(:` + port + `)?$`
	MaxText = maxName

	label   = `[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?`
	last    = `[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?`
	address = byteText + `(\.` + byteText + `){3}`

	byteText = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	port     = `(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})`
)

var syntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(Syntax) }) // large: compiled when it is needed

// Parse reads a pattern: NAME, *.NAME for all names below it, an IPv4 ADDRESS, or * for
// every host of the public network; then :PORT, unless it is DefaultPort.
func Parse(text string) (Pattern, error) {
	if len(text) > MaxText || !syntax().MatchString(text) {
		return Pattern{}, fmt.Errorf("%s is not a host such as api.example.com, *.example.com or 10.0.0.1:8080", clip(text))
	}
	rest, wild := strings.CutPrefix(text, "*")
	if wild && !strings.HasPrefix(rest, ".") {
		every, err := ParseHost("every"+rest, DefaultPort)
		return Pattern{host: Host{Port: every.Port}, wild: true}, err
	}
	host, err := ParseHost(strings.TrimPrefix(rest, "."), DefaultPort)
	return Pattern{host: host, wild: wild}, err
}

// List is a list of patterns.
type List []Pattern

// ParseList reads patterns. The error names the pattern that is wrong.
func ParseList(texts []string) (List, error) {
	l := make(List, 0, len(texts))
	for _, text := range texts {
		p, err := Parse(text)
		if err != nil {
			return nil, err
		}
		l = append(l, p)
	}
	return l, nil
}

// Match is how a list includes a host.
type Match int

// Values of Match, in ascending order.
const (
	None   Match = iota
	ByWild       // by a pattern with *
	InFull       // by its own name or address
)

// Match tells how the list includes a host.
func (l List) Match(h Host) Match {
	best := None
	for _, p := range l {
		if p.host.Port == h.Port {
			best = max(best, p.match(h))
		}
	}
	return best
}

// Ports are the ports at which the list includes a host, whatever the port of h is.
func (l List) Ports(h Host) (ports []uint16) {
	for _, p := range l {
		if p.match(h) != None {
			ports = append(ports, p.host.Port)
		}
	}
	return ports
}

func (p Pattern) match(h Host) Match {
	switch {
	case p.wild && (p.host.Name == "" || strings.HasSuffix(h.Name, "."+p.host.Name)):
		return ByWild
	case !p.wild && p.host.Name == h.Name && p.host.Addr == h.Addr:
		return InFull
	}
	return None
}
