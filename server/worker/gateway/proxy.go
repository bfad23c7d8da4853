// Package gateway is the way of a run to the network (SPEC 14.5).
//
// A run with a limited network has its own network namespace, with only a loopback
// interface. Package inside listens there on a loopback port, and passes each connection on
// to a unix socket. At the other end of the socket, outside the walls, a [Proxy] serves the
// run: an HTTP proxy that connects only to listed hosts, and reports each host that the run
// asks for. [Environ] has the variables with which programs find the proxy.
//
// The proxy itself resolves names, but only listed names, and connects to exactly the
// addresses that it has checked. So a name that later resolves differently gains nothing.
// The proxy refuses an address that is not public unless the list allows it:
//
//   - a private address (RFC 1918 and its like) may belong to a host that is listed in full,
//     but not to a host that only a pattern with * includes;
//   - loopback, link-local, multicast and metadata addresses must be listed themselves, or
//     as localhost;
//   - the addresses on which the server listens are always refused.
//
// If a tunnel begins with TLS, the name in its first message must be listed too.
//
// The proxy does not look into encrypted connections. It cannot stop a listed host from
// passing data on. Examples are a host that takes uploads, and a server of many names that
// answers for a name that is not in the TLS handshake (domain fronting, encrypted client
// hello). With a pattern such as *.example.com, a run can tell the name servers of
// example.com anything, in the names that it asks for. Programs that use no proxy, and
// protocols over UDP, reach nothing.
//
// A run with the network "on" needs no proxy: it has the network of the host.
//
// A [Gateway] is the way to private Git repositories, for every kind of network: it adds their
// credentials outside the walls.
package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"time"

	"triphammer/factory/hosts"
	"triphammer/server/inside/relay"
	"triphammer/server/run/event"
)

// Limits of the proxy of one run.
const (
	maxHeader   = 64 << 10
	headerTime  = 10 * time.Second // to send the header of a request
	keepTime    = 2 * time.Minute  // between two requests on a connection
	idleTime    = 15 * time.Minute // without a byte in either direction
	connectTime = 30 * time.Second // to resolve a name and connect
	leastTime   = 2 * time.Second  // least part of connectTime for each address
	endTime     = 5 * time.Second  // for the handlers, when all connections are closed
)

// Resolver finds the addresses of names, like *net.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what New needs.
type Config struct {
	Hosts    []string           // patterns of package hosts; empty: every host is refused
	Own      []netip.AddrPort   // addresses on which this server listens
	Report   func(event.Egress) // takes each contact; called from several goroutines, one at a time
	Resolver Resolver           // nil means net.DefaultResolver
}

// Proxy is the proxy of one run.
type Proxy struct {
	list     hosts.List
	own      []netip.AddrPort
	resolver Resolver
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	reports  *reports
	forward  *httputil.ReverseProxy
	handlers sync.WaitGroup
	idle     time.Duration
	header   time.Duration
}

// New makes a proxy. The error names a host that cannot be read.
func New(cfg Config) (*Proxy, error) {
	list, err := hosts.ParseList(cfg.Hosts)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		list: list, own: cfg.Own, resolver: cfg.Resolver, dial: (&net.Dialer{}).DialContext,
		reports: newReports(cfg.Report), idle: idleTime, header: headerTime,
	}
	if p.resolver == nil {
		p.resolver = net.DefaultResolver
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = "" // means the host of the URL, which was checked
			r.Out.URL.RawQuery = r.In.URL.RawQuery
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				h, err := hosts.ParseHost(address, 0)
				if err != nil {
					return nil, err
				}
				return p.connect(ctx, h)
			},
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 4 * maxHeader,
		},
		FlushInterval: -1, // pass on the server's bytes at once
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
		ErrorLog:      nowhere,
	}
	return p, nil
}

// nowhere takes the messages of net/http. They are about the misbehaviour of runs and of
// hosts, which must not fill the server's log.
var nowhere = log.New(io.Discard, "", 0)

// Serve serves the run's connections until ctx ends. Then it closes the connections and the
// listener, makes the last reports, and returns. Call it only once.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error { return p.serve(ctx, l, p) }

func (p *Proxy) serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	bounded := relay.NewListener(l, relay.MaxConnections)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: p.header, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader, ErrorLog: nowhere,
		BaseContext:                  func(net.Listener) context.Context { return serving },
		DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, bounded.CloseAll)
	err := server.Serve(bounded)
	stop()
	stopServing()
	bounded.CloseAll()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	shutdownErr := server.Shutdown(ending) // no handler begins after it
	if shutdownErr == nil {
		p.handlers.Wait()
	}
	p.reports.close()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, shutdownErr)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.handlers.Add(1)
	defer p.handlers.Done()
	if r.Method == http.MethodConnect {
		h, err := hosts.ParseHost(r.RequestURI, 0)
		if err != nil {
			p.malformed(w, err)
			return
		}
		p.tunnel(w, r, h)
		return
	}
	switch {
	case !r.URL.IsAbs():
		p.malformed(w, errors.New("this is a proxy: ask for a whole URL"))
		return
	case r.URL.Scheme != "http" || r.URL.User != nil || r.URL.Opaque != "":
		p.malformed(w, errors.New("ask for http://HOST/…, or for a tunnel by CONNECT HOST:PORT"))
		return
	}
	h, err := hosts.ParseHost(r.URL.Host, 80)
	if err != nil {
		p.malformed(w, err)
		return
	}
	if r.URL.Host = h.String(); h.Port == 80 {
		r.URL.Host = h.Display()
	}
	p.forward.ServeHTTP(w, r)
}

// malformed answers a request that does not name a host.
func (p *Proxy) malformed(w http.ResponseWriter, err error) {
	p.reports.add(event.Egress{Reason: err.Error()})
	answer(w, http.StatusBadRequest, err)
}

// refusal is the error of a connection that is not allowed.
type refusal struct {
	to     hosts.Host
	reason string
}

func (e *refusal) Error() string {
	return fmt.Sprintf("this run may not reach %v: %s (network of its environment, or --run-network of the server)", e.to, e.reason)
}

// refuse answers a request that could not be passed on.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if no := (*refusal)(nil); errors.As(err, &no) {
		status, err = http.StatusForbidden, no
	}
	answer(w, status, err)
}

func answer(w http.ResponseWriter, status int, err error) {
	http.Error(w, "triphammer: "+err.Error(), status)
}

// connect connects to a host if the run may reach it, and reports it.
func (p *Proxy) connect(ctx context.Context, h hosts.Host) (net.Conn, error) {
	conn, err := p.open(ctx, h)
	contact := event.Egress{Host: strings.Trim(h.Display(), "[]"), Port: int(h.Port), Allowed: true}
	if no := (*refusal)(nil); errors.As(err, &no) {
		contact.Allowed, contact.Reason = false, no.reason
	} else if err != nil {
		contact.Reason = err.Error()
	}
	p.reports.add(contact)
	if err != nil {
		return nil, err
	}
	return &idleConn{conn, p.idle}, nil
}

// open resolves a host and connects to the first address that answers. Its errors leave out
// details that differ between two attempts, so that equal reports are counted together.
func (p *Proxy) open(ctx context.Context, h hosts.Host) (net.Conn, error) {
	match := p.list.Match(h)
	if match == hosts.None {
		return nil, p.notListed(h)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	addrs := []netip.Addr{h.Addr}
	if h.Name != "" {
		var err error
		if addrs, err = p.resolver.LookupNetIP(ctx, "ip", h.Name); err != nil {
			return nil, fmt.Errorf("%s has no address: %w", h.Name, plain(err))
		}
	}
	reason := ""
	allowed := addrs[:0:0]
	for _, addr := range addrs {
		if why := p.refused(h, match, addr); why == "" {
			allowed = append(allowed, addr.Unmap())
		} else if reason == "" {
			reason = why
		}
	}
	if len(allowed) == 0 {
		if reason == "" {
			return nil, fmt.Errorf("%s has no address", h.Name)
		}
		return nil, &refusal{h, reason}
	}
	var err error
	deadline, _ := ctx.Deadline()
	for i, addr := range allowed {
		var conn net.Conn
		share := max(leastTime, time.Until(deadline)/time.Duration(len(allowed)-i))
		attempt, cancel := context.WithTimeout(ctx, share)
		conn, err = p.dial(attempt, "tcp", netip.AddrPortFrom(addr, h.Port).String())
		cancel()
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%v does not answer: %w", h, plain(err))
}

// notListed says what to do about a host that is not listed.
func (p *Proxy) notListed(h hosts.Host) error {
	if ports := p.list.Ports(h); len(ports) > 0 {
		return &refusal{h, fmt.Sprintf("it is listed with port %d, not with %d", ports[0], h.Port)}
	}
	return &refusal{h, "it is not listed"}
}

// plain is the cause of a network error, without addresses and ports of this machine.
func plain(err error) error {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return errors.New(dns.Err) // without the name server
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}

// established is the answer to a CONNECT that succeeded.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request, h hosts.Host) {
	upstream, err := p.connect(r.Context(), h)
	if err != nil {
		refuse(w, err)
		return
	}
	hijacked, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = upstream.Close()
		refuse(w, err)
		return
	}
	// The connections also end with the run, even while nothing is read from them.
	defer context.AfterFunc(r.Context(), func() { _ = upstream.Close() })()
	client := &idleConn{hijacked, p.idle}
	if _, err := io.WriteString(client, established); err != nil {
		_ = upstream.Close()
		_ = client.Close()
		return
	}
	// The buffered reader would take the end of the client's data for the end of the client.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	relay.Join(client, upstream, &helloReader{proxy: p, host: h, client: client, from: io.MultiReader(bytes.NewReader(early), client)})
}

// helloReader reads the data of a tunnel's client. It fails if the data begins with a TLS
// handshake for a name that is not listed.
type helloReader struct {
	proxy   *Proxy
	host    hosts.Host
	client  net.Conn
	from    io.Reader
	checked bool
	ready   []byte // bytes that were read to find the name
}

// Read implements io.Reader.
func (r *helloReader) Read(p []byte) (int, error) {
	if !r.checked {
		r.checked = true
		name, read, err := readHello(r.from)
		r.ready = read
		if err == nil && name != "" {
			err = r.proxy.checkName(r.host, name)
		}
		if errors.Is(err, errNoHello) {
			err = &refusal{r.host, err.Error()}
		}
		if no := (*refusal)(nil); errors.As(err, &no) {
			r.proxy.reports.add(event.Egress{Host: strings.Trim(no.to.Display(), "[]"), Port: int(no.to.Port), Reason: no.reason})
			_, _ = r.client.Write(accessDenied)
		}
		if err != nil && (len(read) == 0 || !errors.Is(err, io.EOF)) {
			return 0, err
		}
	}
	if len(r.ready) > 0 {
		n := copy(p, r.ready)
		r.ready = r.ready[n:]
		return n, nil
	}
	return r.from.Read(p)
}

// checkName refuses a name in a TLS handshake with a host if the name is not listed. A host that
// is listed by its address may have any name.
func (p *Proxy) checkName(h hosts.Host, name string) error {
	asked, err := hosts.ParseHost(name, h.Port)
	if err != nil {
		return &refusal{h, "its TLS handshake is for " + err.Error()}
	}
	asked.Port = h.Port
	if h.Addr.IsValid() && p.list.Match(h) == hosts.InFull || p.list.Match(asked) != hosts.None {
		return nil
	}
	return &refusal{asked, fmt.Sprintf("a TLS handshake with %v is for this name, which is not listed", h)}
}

// idleConn is a connection that fails when nothing passes in either direction for a time.
type idleConn struct {
	net.Conn
	idle time.Duration
}

// Read implements net.Conn.
func (c *idleConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *idleConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite ends the stream to the peer.
func (c *idleConn) CloseWrite() error { return relay.CloseWrite(c.Conn) }
