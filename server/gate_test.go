package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/server/store"
)

// unread are requests whose body nobody sends, and the answer that does not wait
// for it.
func (f *fixture) unread() map[string]int {
	return map[string]int{
		"GET /healthz": 200, "GET /": 401, "GET /metrics": 401, "GET /nothing": 404, "POST /api/v1/agent/runs": 401, "DELETE /healthz": 405,
		"GET " + ingress + f.uids()["hook"]: 405, "POST " + ingress + f.uids()["hook"]: 401, "POST " + ingress + "whk_none": 404,
		"POST /api/v1/factories/default/sync": 401, "GET /openapi.yaml": 200, "POST /auth/logout": 200,
	}
}

// unsent is a request of a body that is announced and not sent.
func unsent(route string, header ...string) string {
	return route + " HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n" + lines(header) + "\r\n"
}

// TestUnreadBodies: no route waits for a body that it does not want, however it
// is announced; the connection is closed.
func TestUnreadBodies(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	type asked struct {
		text string
		conn net.Conn
		want int
	}
	var all []asked
	began := time.Now()
	for route, want := range f.unread() {
		for _, text := range []string{
			unsent(route), route + " HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n1", route + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n1",
		} {
			all = append(all, asked{text, f.dial(text), want})
		}
	}
	for _, a := range all {
		resp, err := http.ReadResponse(bufio.NewReader(a.conn), nil)
		if err != nil || resp.StatusCode != a.want || !resp.Close {
			t.Errorf("%q: %+v, %v", a.text, resp, err)
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("%q: %v", a.text, err)
		}
		if _, err := a.conn.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: still open, or %v", a.text, err)
		}
	}
	// Within the time of a body that is read, they would be closed for another reason.
	if took := time.Since(began); took > bodyTime*2/3 {
		t.Errorf("they are open for %v", took)
	}
}

// TestLateReader: a sender that reads the answer only after it has sent all, as proxies do,
// gets the answer, although the server wants none of the body. Proxies send "Connection: close".
func TestLateReader(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	dir := t.TempDir()
	writePair(t, dir, "x")
	for _, l := range []Listeners{{}, {CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}} {
		f.serveWith(l)
		for route, want := range f.unread() {
			for _, header := range []string{"X-A: b", "Connection: close"} {
				path, isPost := strings.CutPrefix(route, "POST ")
				if !isPost {
					continue
				}
				conn := f.dial("")
				if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil { // what is written waits for the server, not in the kernel
					t.Fatal(err)
				}
				if l.CertFile != "" {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				what := fmt.Sprintf("%s with %s, TLS %t", route, header, l.CertFile != "")
				if _, err := io.WriteString(conn, post(path, strings.Repeat("x", lingerSize/2), header)); err != nil {
					t.Errorf("%s: %v", what, err)
				} else if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want {
					t.Errorf("%s: %+v, %v", what, resp, err)
				}
			}
		}
	}
}

// TestEveryRouteAnswers: without a key, no route but that which checks anybody's
// definitions reads a body.
func TestEveryRouteAnswers(t *testing.T) {
	f := newFixture(t)
	for _, r := range f.engine.Routes() {
		if strings.HasSuffix(r.Path, "/validate") {
			continue // it reads for requestDeadline at most
		}
		conn := f.dial(unsent(r.Method + " " + regexp.MustCompile(`:\w+`).ReplaceAllString(r.Path, "x")))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.Method}); err != nil || !resp.Close {
			t.Errorf("%s %s: %+v, %v", r.Method, r.Path, resp, err)
		}
		_ = conn.Close()
	}
}

// serveWith serves on a port of its own, to which f.url then leads.
func (f *fixture) serveWith(l Listeners) {
	f.t.Helper()
	l.TCP = listen(f.t, "tcp", "127.0.0.1:0")
	f.url = "http://" + l.TCP.Addr().String()
	f.serve(l)
}

// TestFullOfSilence: where all connections that may be open keep the server
// waiting, in whatever way, the next ones are served all the same. Streams and
// requests at work are not touched.
func TestFullOfSilence(t *testing.T) {
	const most = 16
	var logs lockedBuffer
	f := newFixtureWith(t, options{files: hooks, rate: 1000, logger: slog.New(slog.NewTextHandler(&logs, nil))})
	key := f.key("k", "runs", "read")
	lease := f.claimed(key)
	f.serveWith(Listeners{MaxConnections: most})
	stream := f.follow(key, lease.RunID.String(), "")
	for name, text := range map[string]string{
		"nothing":            "",
		"half a header":      "POST /healthz HTTP/1.1\r\nHost:",
		"an idle connection": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"no body":            unsent("POST "+ingress+f.uids()["signed"], "X-Hub-Signature-256: x"),
		"no notification":    unsent("POST /api/v1/factories/default/sync", "X-Hub-Signature-256: x"),
		"no definitions":     unsent("POST /api/v1/factory-files/validate"),
	} {
		for range 2 * most {
			f.dial(text)
		}
		for n := range most {
			body := fmt.Sprintf(`{"n":%d,"x":%q}`, n, name)
			if status, answer, _ := f.raw(post(ingress+f.uids()["signed"], body, signed(t, "github", body, time.Now())...)); status != http.StatusAccepted {
				t.Fatalf("%s: delivery %d: %d\n%s", name, n, status, answer)
			}
		}
	}
	if err := f.store.Leases.Finish(t.Context(), lease, store.Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := stream.rest(t); len(got) == 0 || !strings.Contains(got[len(got)-1], string(store.Succeeded)) {
		t.Errorf("the stream ended early: %v", got)
	}
	metrics := f.get("/metrics", "").body
	if !regexp.MustCompile(`triphammer_connections_closed_total\{cause="full"\} [1-9]`).Match(metrics) {
		t.Errorf("no closed connection among the metrics:\n%s", metrics)
	}
	if n := strings.Count(logs.String(), "see=--max-connections"); n != 1 {
		t.Errorf("the log tells of it %d times:\n%s", n, logs.String())
	}
}

// TestOneAddress: an address that has as many connections as it may loses those
// that keep the server waiting, and nobody else loses any. Whoever is behind an
// address that many share is bound by the total alone.
func TestOneAddress(t *testing.T) {
	inner := listen(t, "tcp", "127.0.0.1:0")
	var closed atomic.Int64
	shared := netip.MustParseAddr("127.0.0.9")
	networkOf := func(a netip.Addr) netip.Prefix {
		if a == shared {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(a, a.BitLen())
	}
	g := newGate(inner, 20, 3, networkOf, func(cause Cause, network netip.Prefix) {
		if cause != FullAddress || network != netip.MustParsePrefix("127.0.0.1/32") {
			t.Errorf("%s of %s", cause, network)
		}
		closed.Add(1)
	})
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(g) }()
	defer func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	ask := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		return err
	}
	other, behind := dial("127.0.0.2"), make([]net.Conn, 6)
	for i := range behind {
		behind[i] = dial(shared.String())
	}
	first, second, third := dial("127.0.0.1"), dial("127.0.0.1"), dial("127.0.0.1")
	waitUntil(t, "not all are accepted", func() bool { return g.count(netip.Prefix{}) == 10 })
	waitSince := func(at time.Time, conns ...net.Conn) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for c := range g.conns {
			for _, conn := range conns {
				if c.RemoteAddr().String() == conn.LocalAddr().String() {
					c.since.Store(at.UnixNano())
				}
			}
		}
	}
	// While nobody has kept it waiting for long, the fourth is refused at once.
	waitSince(time.Now().Add(time.Hour), append(behind, first, second, third)...)
	if err := ask(dial("127.0.0.1")); err == nil {
		t.Error("the fourth connection of one address is served")
	}
	waitSince(time.Now().Add(-time.Minute), append(behind, other, second)...)
	waitSince(time.Now().Add(-time.Second), first)
	if err := ask(dial("127.0.0.1")); err != nil {
		t.Errorf("beside silent connections of the same address: %v", err)
	}
	if err := ask(second); err == nil {
		t.Error("the one that waited the longest is still served")
	}
	for _, conn := range append(behind, other, first, third) {
		if err := ask(conn); err != nil {
			t.Errorf("another address: %v", err)
		}
	}
	if n := closed.Load(); n != 2 {
		t.Errorf("%d were closed", n)
	}
}

// exhausted is a listener without descriptors for a while.
type exhausted struct {
	net.Listener
	fails atomic.Int64
}

func (e *exhausted) Accept() (net.Conn, error) {
	if e.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return e.Listener.Accept()
}

// TestNoDescriptors: accepting goes on when there are descriptors again, and a
// connection that keeps the server waiting makes one free.
func TestNoDescriptors(t *testing.T) {
	inner := &exhausted{Listener: listen(t, "tcp", "127.0.0.1:0")}
	causes := make(chan Cause, 100)
	g := newGate(inner, 0, 0, func(netip.Addr) netip.Prefix { return netip.Prefix{} }, func(cause Cause, _ netip.Prefix) { causes <- cause })
	defer func() { _ = g.Close() }()
	accept := func() net.Conn {
		t.Helper()
		other, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		conn, err := g.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	inner.fails.Store(2)
	silent := accept() // there is none to close
	waiting := silent.(*gatedConn)
	waitUntil(t, "", func() bool { return time.Since(time.Unix(0, waiting.since.Load())) > 2*leastWait })
	inner.fails.Store(1)
	_ = accept().Close()
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the silent connection: %v", err)
	}
	for range 3 {
		if cause := <-causes; cause != NoDescriptors {
			t.Error(cause)
		}
	}
	inner.fails.Store(1 << 30)
	done := make(chan error, 1)
	go func() {
		_, err := g.Accept()
		done <- err
	}()
	<-causes
	_ = g.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}

// TestWaiting: which connection keeps the server waiting, and since when.
func TestWaiting(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _ = b.Close() }()
	g := newGate(nil, 0, 0, nil, nil)
	c := &gatedConn{Conn: a, gate: g}
	defer func() { _ = c.Close() }()
	c.progress()
	at := func(after time.Duration) bool {
		_, waits := c.waiting(time.Now().Add(after).UnixNano())
		return waits
	}
	if !at(0) {
		t.Error("of a request that has not come, nobody waits")
	}
	c.work(1)
	if at(time.Hour) {
		t.Error("a request at work keeps the server waiting")
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("x"))
		written <- err
	}()
	waitUntil(t, "nothing is written", func() bool { return c.writing.Load() != 0 })
	if at(blockedWrite/2) || !at(2*blockedWrite) {
		t.Error("an answer that nobody reads")
	}
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil || at(time.Hour) {
		t.Errorf("an answer that was read: %v", err)
	}
	c.work(-1)
	before := c.since.Load()
	go func() { _, _ = b.Write(make([]byte, step)) }()
	if _, err := io.ReadFull(c, make([]byte, step-1)); err != nil || c.since.Load() != before {
		t.Errorf("less than a step is progress: %v", err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil || c.since.Load() == before {
		t.Errorf("a step is no progress: %v", err)
	}
}

// TestSeldom: one line a minute, which counts.
func TestSeldom(t *testing.T) {
	var s seldom
	var told []int
	for range 5 {
		s.say("a", func(n int) { told = append(told, n) })
	}
	s.causes["a"].last = time.Now().Add(-time.Minute)
	s.say("a", func(n int) { told = append(told, n) })
	s.say("b", func(n int) { told = append(told, n) })
	if fmt.Sprint(told) != "[1 5 1]" {
		t.Errorf("told %v", told)
	}
}
