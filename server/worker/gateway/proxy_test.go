package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/inside/relay"
	"triphammer/server/run/event"
)

// world is a proxy that serves, and what is on both of its sides.
type world struct {
	t      *testing.T
	proxy  *Proxy
	socket string
	end    func() // returns when Serve has returned

	mu      sync.Mutex
	events  []event.Egress
	answers map[string][]string // addresses of names; the second lookup gets the second set, separated by |
	lookups []string
	dialled []string
	to      string // where every connection goes instead, unless it is empty
}

// LookupNetIP implements Resolver.
func (w *world) LookupNetIP(_ context.Context, _, host string) (addrs []netip.Addr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	sets := w.answers[host]
	if len(sets) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "192.0.2.1:53", IsNotFound: true}
	}
	if len(sets) > 1 {
		w.answers[host] = sets[1:]
	}
	for text := range strings.FieldsSeq(sets[0]) {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, nil
}

func start(t *testing.T, list []string, change func(*world)) *world {
	t.Helper()
	w := &world{t: t, answers: make(map[string][]string), socket: filepath.Join(t.TempDir(), "s")}
	p, err := New(Config{Hosts: list, Resolver: w, Report: func(e event.Egress) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		w.dialled = append(w.dialled, address)
		if w.to != "" {
			address = w.to
		}
		w.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	w.proxy = p
	if change != nil {
		change(w)
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error("serving:", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

func (w *world) connect() *net.UnixConn {
	w.t.Helper()
	c, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// send sends raw bytes and reads the header of the answer.
func (w *world) send(request string) (*net.UnixConn, *bufio.Reader, *http.Response) {
	w.t.Helper()
	c := w.connect()
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("%.100q: %v", request, err)
	}
	return c, r, resp
}

// ask sends a request and returns the status, and the body unless it is a tunnel.
func (w *world) ask(request string) (int, string) {
	w.t.Helper()
	c, _, resp := w.send(request)
	defer func() { _ = c.Close() }()
	if resp.StatusCode == 200 && strings.HasPrefix(request, "CONNECT") {
		return 200, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (w *world) reported() []event.Egress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// client is an HTTP client that uses the proxy.
func (w *world) client(config *tls.Config) *http.Client {
	t := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
		},
		TLSClientConfig: config,
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 20 * time.Second}
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// site is a server that answers with what it was asked.
func site(t *testing.T, secure bool) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s host=%s proxy=%q body=%s", r.Method, r.RequestURI, r.Host, r.Header["Proxy-Connection"], body)
	}))
	s.Config.ErrorLog = nowhere
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// TestProxyServesClients: plain HTTP and HTTPS by an ordinary client.
func TestProxyServesClients(t *testing.T) {
	plain, secure := site(t, false), site(t, true)
	_, securePort, _ := net.SplitHostPort(secure.Listener.Addr().String())
	w := start(t, []string{"localhost:" + portOf(plain.URL), "example.com:" + securePort}, func(w *world) {
		w.answers["localhost"] = []string{"::1 127.0.0.1"}
		w.answers["example.com"] = []string{"93.184.215.14"}
	})
	resp, err := w.client(nil).Post("http://LOCALHOST.:"+portOf(plain.URL)+"/a%2Fb?x=1;y", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if want := "POST /a%2Fb?x=1;y host=localhost:" + portOf(plain.URL) + " proxy=[] body=hello"; string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
	w.mu.Lock()
	w.to = secure.Listener.Addr().String()
	w.mu.Unlock()
	client := w.client(secure.Client().Transport.(*http.Transport).TLSClientConfig)
	for range 2 {
		resp, err = client.Get("https://example.com:" + securePort + "/x")
		if err != nil {
			t.Fatal(err)
		}
		body, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !strings.HasPrefix(string(body), "GET /x host=example.com") {
			t.Errorf("%s", body)
		}
		client.CloseIdleConnections()
	}
	w.end()
	port := func(s string) (n int) { _, _ = fmt.Sscan(s, &n); return n }
	want := []event.Egress{
		{Host: "localhost", Port: port(portOf(plain.URL)), Allowed: true},
		{Host: "example.com", Port: port(securePort), Allowed: true},
		{Host: "example.com", Port: port(securePort), Allowed: true, Count: 1},
	}
	if got := w.reported(); !slices.Equal(got, want) {
		t.Errorf("reported %+v, want %+v", got, want)
	}
	if !slices.Contains(w.dialled, "93.184.215.14:"+securePort) {
		t.Errorf("dialled %v", w.dialled)
	}
}

// TestProxyRefuses: what no request may get, with the reason that the agent sees.
func TestProxyRefuses(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:8787")
	w := start(t, []string{
		"api.example.com", "*.wild.example", "10.1.2.3:8080", "127.0.0.1:8787", "private.example", "loop.example", "meta.example", "many.example",
		"169.254.169.254:80", "localhost:8787", "azure.example", "mapped.example",
		"nat64.example", "sixtofour.example", "zero.example", "link.example", "none.example",
	}, func(w *world) {
		w.proxy.own = []netip.AddrPort{own}
		w.to = "127.0.0.1:1" // nothing answers
		for name, addrs := range map[string]string{
			"private.example": "10.0.0.1", "loop.example": "127.0.0.1", "meta.example": "169.254.169.254", "in.wild.example": "192.168.1.1",
			"many.example": "127.0.0.1 ::1 10.9.9.9 fe80::1", "localhost": "127.0.0.1",
			"azure.example": "168.63.129.16", "mapped.example": "::ffff:127.0.0.1",
			"nat64.example": "64:ff9b::7f00:1", "sixtofour.example": "2002:7f00:1::", "zero.example": "0.0.0.0", "link.example": "fe80::1",
			"api.example.com": "203.0.114.1",
		} {
			w.answers[name] = []string{addrs}
		}
	})
	for target, want := range map[string]string{
		"evil.example:443":                "403 it is not listed",
		"api.example.com.evil.org:443":    "403 it is not listed",
		"wild.example:443":                "403 it is not listed",
		"api.example.com:80":              "403 it is listed with port 443, not with 80",
		"10.1.2.3:443":                    "403 it is listed with port 8080",
		"8.8.8.8:443":                     "403 it is not listed",
		"[2606:4700::1111]:443":           "403 it is not listed",
		"in.wild.example:443":             "403 192.168.1.1 is a private address",
		"loop.example:443":                "403 127.0.0.1 is a loopback address",
		"mapped.example:443":              "403 127.0.0.1 is a loopback address",
		"nat64.example:443":               "403 64:ff9b::7f00:1 is a loopback address",
		"sixtofour.example:443":           "403 2002:7f00:1:: is a loopback address",
		"zero.example:443":                "403 0.0.0.0 is no address of the public network",
		"link.example:443":                "403 fe80::1 is a link-local address",
		"meta.example:443":                "403 169.254.169.254 is an address of a cloud's metadata",
		"azure.example:443":               "403 168.63.129.16 is an address of a cloud's metadata",
		"127.0.0.1:8787":                  "403 it is this server",
		"localhost:8787":                  "403 it is this server",
		"[::ffff:127.0.0.1]:8787":         "403 it is this server",
		"none.example:443":                "502 none.example has no address: no such host",
		"private.example:443":             "502 private.example:443 does not answer: connect: connection refused",
		"many.example:443":                "502 many.example:443 does not answer",
		"10.1.2.3:8080":                   "502 10.1.2.3:8080 does not answer",
		"169.254.169.254:80":              "502 169.254.169.254:80 does not answer",
		"api.example.com.:443":            "502 api.example.com:443 does not answer",
		"API.Example.Com:443":             "502 api.example.com:443 does not answer",
		"127.1:443":                       `400 "127.1" is neither a name nor an address`,
		"2130706433:443":                  "400 ",
		"0x7f000001:443":                  "400 ",
		"0177.0.0.1:443":                  "400 ",
		"api.example.com":                 "400 it has no port",
		"api.example.com:0443":            "400 ",
		"api.example.com:443:443":         "400 ",
		"api.example.com@evil.org:443":    "400 ",
		"user:pw@api.example.com:443":     "400 ",
		"api.example.com%00.evil:443":     "400 ",
		"[fe80::1%25eth0]:443":            "400 ",
		"xn--mnchen-3ya.example:443":      "403 it is not listed",
		strings.Repeat("a.", 200) + "a:1": "400 ",
	} {
		status, body := w.ask("CONNECT " + target + " HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(status) != code || !strings.Contains(body, text) {
			t.Errorf("CONNECT %s: %d %s, want %s", target, status, body, want)
		}
	}
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                                                   400,
		"GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                            400,
		"GET ftp://api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n":                                            400,
		"GET http://u:p@evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n":                                          400,
		"GET http://evil.example/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                                403,
		"GET http://api.example.com:443/ HTTP/1.1\r\nHost: x\r\n\r\n":                                       502,
		"GET http://[::1]/ HTTP/1.1\r\nHost: x\r\n\r\n":                                                     403,
		"GET http://[::1%25lo]/ HTTP/1.1\r\nHost: x\r\n\r\n":                                                400,
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                                                             400,
		"GET http:api.example.com HTTP/1.1\r\nHost: x\r\n\r\n":                                              400,
		"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n":                                                         400,
		"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n":                                                            400,
		"GET http://xn--mnchen-3ya.example/ HTTP/1.1\r\nHost: x\r\n\r\n":                                    403,
		"GET http://m%C3%BCnchen.example/ HTTP/1.1\r\nHost: x\r\n\r\n":                                      400,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                  400,
		"GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 200000) + "\r\n\r\n": 431,
	} {
		if status, body := w.ask(request); status != want {
			t.Errorf("%.80q: %d %.200s, want %d", request, status, body, want)
		}
	}
	w.end()
	for _, e := range w.reported() {
		failed := strings.Contains(e.Reason, "does not answer") || strings.Contains(e.Reason, "no such host")
		if e.Reason == "" || e.Allowed != failed {
			t.Errorf("reported %+v", e)
		}
	}
	for _, name := range w.lookups {
		if _, known := w.answers[name]; !known && name != "none.example" {
			t.Errorf("%s was looked up, and is not listed", name)
		}
	}
	for _, address := range w.dialled {
		if !slices.Contains([]string{"10.0.0.1:443", "10.9.9.9:443", "10.1.2.3:8080", "169.254.169.254:80", "203.0.114.1:443"}, address) {
			t.Errorf("%s was dialled", address)
		}
	}
}

// TestProxyDefeatsRebinding: the address that was checked is the one that is dialled.
func TestProxyDefeatsRebinding(t *testing.T) {
	s := site(t, false)
	w := start(t, []string{"rebind.example:80"}, func(w *world) {
		w.to = s.Listener.Addr().String()
		w.answers["rebind.example"] = []string{"93.184.215.14", "127.0.0.1", "169.254.169.254"}
	})
	for i, want := range []int{200, 403, 403} {
		if status, body := w.ask("GET http://rebind.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); status != want {
			t.Errorf("%d: %d %s", i, status, body)
		}
	}
	if !slices.Equal(w.dialled, []string{"93.184.215.14:80"}) || len(w.lookups) != 3 {
		t.Errorf("dialled %v, looked up %v", w.dialled, w.lookups)
	}
}

// TestProxyTriesEveryAddress: one dead address of a host does not make it unreachable.
func TestProxyTriesEveryAddress(t *testing.T) {
	s := site(t, false)
	w := start(t, []string{"*:" + portOf(s.URL), "127.0.0.1:" + portOf(s.URL)}, func(w *world) {
		w.answers["two.example"] = []string{"127.0.0.9 93.184.215.14 93.184.215.15"}
		dial := w.proxy.dial
		w.proxy.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "93.184.215.14:"+portOf(s.URL) {
				return nil, errors.New("unreachable")
			}
			return dial(ctx, network, s.Listener.Addr().String())
		}
	})
	if status, body := w.ask("GET http://two.example:" + portOf(s.URL) + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// TestProxyHalfClose: each direction of a tunnel ends by itself, also when the client has
// sent its first bytes with the request, and when the server speaks first.
func TestProxyHalfClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, "220 welcome\n")
				all, _ := io.ReadAll(c)
				_, _ = fmt.Fprintf(c, "got %d bytes", len(all))
			}()
		}
	}()
	w := start(t, []string{l.Addr().String()}, nil)
	c, r, resp := w.send("CONNECT " + l.Addr().String() + " HTTP/1.1\r\nHost: x\r\n\r\nearly")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	if line, err := r.ReadString('\n'); line != "220 welcome\n" {
		t.Fatalf("%q, %v", line, err)
	}
	big := bytes.Repeat([]byte("x"), 1<<20)
	if _, err := c.Write(big); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if want := fmt.Sprintf("got %d bytes", len(big)+len("early")); string(rest) != want || err != nil {
		t.Errorf("%q, %v, want %q", rest, err, want)
	}
}

// TestProxyChecksTLSName: a tunnel to a listed host carries no handshake for another one,
// as it would with a host that serves many.
func TestProxyChecksTLSName(t *testing.T) {
	s := site(t, true)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig
	w := start(t, []string{"example.com", "*.wild.example", s.Listener.Addr().String()}, func(w *world) {
		w.to = s.Listener.Addr().String()
		w.answers["example.com"] = []string{"93.184.215.14"}
	})
	for _, c := range []struct {
		target, name string
		ok           bool
	}{
		{"example.com:443", "example.com", true},
		{"example.com:443", "EXAMPLE.com", true},
		{"example.com:443", "", true},
		{"example.com:443", "a.wild.example", true},
		{"example.com:443", "evil.example", false},
		{s.Listener.Addr().String(), "any.name", true},
	} {
		conn, _, resp := w.send("CONNECT " + c.target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		own := config.Clone()
		own.ServerName, own.InsecureSkipVerify = c.name, true
		err := tls.Client(conn, own).Handshake()
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// What begins like TLS and is not does not pass; what does not begin like TLS does.
	for first, passes := range map[string]bool{"\x16\x03\x01\x00\x05hello": false, "\x16": false, "SSH-2.0-x\r\n": true} {
		conn, r, resp := w.send("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		if _, err := io.WriteString(conn, first); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(r)
		if got := !bytes.HasSuffix(answer, accessDenied); got != passes {
			t.Errorf("%q: answered %q", first, answer)
		}
	}
	w.end()
	evil := func(e event.Egress) bool { return e.Host == "evil.example" && !e.Allowed && e.Port == 443 }
	if got := w.reported(); !slices.ContainsFunc(got, evil) {
		t.Errorf("reported %+v", got)
	}
}

// TestProxySlowClients: a client that does not finish its request loses its connection,
// and the others are served.
func TestProxySlowClients(t *testing.T) {
	t.Parallel()
	s := site(t, false)
	w := start(t, []string{s.Listener.Addr().String()}, func(w *world) { w.proxy.header = time.Second })
	var slow []*net.UnixConn
	for range relay.MaxConnections {
		c := w.connect()
		_, _ = io.WriteString(c, "CONNECT ") // it may have been closed already
		slow = append(slow, c)
	}
	if status, body := w.ask("GET http://" + s.Listener.Addr().String() + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	for _, c := range slow {
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("a slow client kept its connection")
		}
	}
}

// TestProxyIdleTunnel: a tunnel through which nothing passes ends; one with traffic in one
// direction does not.
func TestProxyIdleTunnel(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range 30 {
			<-tick.C
			if _, err := io.WriteString(c, "."); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c) // and now it is silent
	}()
	w := start(t, []string{l.Addr().String()}, func(w *world) { w.proxy.idle = time.Second })
	_, r, resp := w.send("CONNECT " + l.Addr().String() + " HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	all, err := io.ReadAll(r)
	if len(all) != 30 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d bytes, %v", len(all), err)
	}
}

// TestProxyManyConnections: a thousand connections at once are all served, in turn, through
// the forwarder.
func TestProxyManyConnections(t *testing.T) {
	s := site(t, false)
	w := start(t, []string{s.Listener.Addr().String()}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	forwarded := make(chan error, 1)
	go func() { forwarded <- relay.Forward(ctx, l, w.socket) }()
	proxy := &url.URL{Scheme: "http", Host: l.Addr().String()}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}, Timeout: time.Minute}
	const many = 1000
	errs := make(chan error, many)
	for range many {
		go func() {
			resp, err := client.Get("http://" + s.Listener.Addr().String() + "/")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					err = errors.New(resp.Status)
				}
			}
			errs <- err
		}()
	}
	for range many {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-forwarded; err != nil {
		t.Error(err)
	}
	w.end()
	got := w.reported()
	if len(got) != 2 || got[0].Count != 0 || got[1].Count != many-1 || !got[0].Allowed {
		t.Errorf("reported %+v", got)
	}
}

// TestProxyEndsWithRun: open tunnels, half requests and forwarded connections end with the
// run; Serve returns.
func TestProxyEndsWithRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	w := start(t, []string{l.Addr().String()}, nil)
	tunnel, _, resp := w.send("CONNECT " + l.Addr().String() + " HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	upstream, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upstream.Close() }()
	half := w.connect()
	if _, err := io.WriteString(half, "GET http://a"); err != nil {
		t.Fatal(err)
	}
	w.end()
	for name, c := range map[string]net.Conn{"tunnel": tunnel, "upstream": upstream, "half request": half} {
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s is still open", name)
		}
	}
	if c, err := net.Dial("unix", w.socket); err == nil {
		_ = c.Close()
		t.Error("the proxy still listens")
	}
}

// TestReportsAreBounded: an agent that asks for ever new hosts fills no transcript, and
// what it is refused does not hide what it is allowed.
func TestReportsAreBounded(t *testing.T) {
	var got []event.Egress
	r := newReports(func(e event.Egress) { got = append(got, e) })
	for i := range 100_000 {
		r.add(event.Egress{Host: fmt.Sprint("h", i), Port: 443, Reason: "it is not listed"})
	}
	r.add(event.Egress{Host: "good.example", Port: 443, Allowed: true})
	r.close()
	if len(got) != mostReported+2 || len(r.more) > mostReported+2 {
		t.Fatalf("%d events, %d kept", len(got), len(r.more))
	}
	if e := got[mostReported]; e.Host != "good.example" {
		t.Errorf("%+v", e)
	}
	if e := got[mostReported+1]; e.Host != "*" || e.Count != 100_000-mostReported || e.Allowed {
		t.Errorf("%+v", e)
	}
}

func TestNewNamesBadHost(t *testing.T) {
	if _, err := New(Config{Hosts: []string{"ok.example", "not a host"}}); err == nil || !strings.Contains(err.Error(), `"not a host"`) {
		t.Error(err)
	}
}

// TestOwnAddresses: a server that listens on every address is recognized at each.
func TestOwnAddresses(t *testing.T) {
	p := &Proxy{own: []netip.AddrPort{netip.MustParseAddrPort("[::]:8787")}}
	addrs, err := net.InterfaceAddrs()
	if err != nil || len(addrs) == 0 {
		t.Fatal(addrs, err)
	}
	for _, a := range addrs {
		to := netip.AddrPortFrom(netip.MustParsePrefix(a.String()).Addr(), 8787)
		if !p.isOwn(to) || p.isOwn(netip.AddrPortFrom(to.Addr(), 8788)) {
			t.Error(to)
		}
	}
	for text, want := range map[string]bool{"93.184.215.14:8787": false, "0.0.0.0:8787": true, "127.3.2.1:8787": true} {
		if p.isOwn(netip.MustParseAddrPort(text)) != want {
			t.Error(text, "is not", want)
		}
	}
}
