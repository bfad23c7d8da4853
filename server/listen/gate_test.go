package listen

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestOneAddress: an address that has as many connections as it may loses those
// that keep the server waiting, and nobody else loses any. Whoever is behind an
// address that many share is bound by the total alone.
func TestOneAddress(t *testing.T) {
	inner := listenTCP(t)
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
	inner := &exhausted{Listener: listenTCP(t)}
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
	go func() { _, _ = b.Write(make([]byte, Step)) }()
	if _, err := io.ReadFull(c, make([]byte, Step-1)); err != nil || c.since.Load() != before {
		t.Errorf("less than a step is progress: %v", err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil || c.since.Load() == before {
		t.Errorf("a step is no progress: %v", err)
	}
}
