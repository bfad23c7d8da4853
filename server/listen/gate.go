package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Cause is why a connection was closed early or refused. It is a label of a metric.
type Cause string

const (
	Full          Cause = "full"        // the limit of all connections was reached
	FullAddress   Cause = "address"     // the limit of one address was reached
	NoDescriptors Cause = "descriptors" // the process had no descriptor left
)

// Step is how many bytes of a request count as progress. Less than that leaves a connection among
// those that keep the server waiting.
const Step = 16 << 10

const (
	// leastWait is how long a connection must keep the server waiting before it can be
	// closed in favour of another.
	leastWait = 250 * time.Millisecond
	// blockedWrite is how long a write must be blocked by a slow reader before it counts as
	// waiting.
	blockedWrite = 5 * time.Second
	// tryAgain is when to try to admit a connection again, if none is closed meanwhile.
	tryAgain = 50 * time.Millisecond
	// maxHTTP2 is how many connections speak HTTP/2 at once; others are offered HTTP/1.1 alone. A
	// client that reads no answer makes each of maxStreams requests of its connection cost some
	// 30 kB (RFC 9113, section 10.5).
	maxHTTP2 = 64
	// maxStreams is how many requests an HTTP/2 connection has open at once: an open page has one
	// for its changes, and all pages of a browser share a connection.
	maxStreams = 32
)

// gate is a listener that limits the number of open connections, in all and from one
// address. At the limit, it closes the connection that has kept the server waiting the
// longest, and admits the new one. A connection keeps the server waiting if it is idle,
// does not send its request or body, or does not read its answer. A connection whose
// request is being handled is never closed.
type gate struct {
	net.Listener
	max, perAddress int                           // 0: no limit
	networkOf       func(netip.Addr) netip.Prefix // see Config
	closed          func(Cause, netip.Prefix)

	mu      sync.Mutex
	conns   map[*gatedConn]struct{}
	address map[netip.Prefix]int
	http2   int           // connections that may speak HTTP/2
	left    chan struct{} // signalled when a connection was closed
	over    chan struct{} // closed together with the listener
	end     sync.Once
}

func newGate(l net.Listener, limit, perAddress int, networkOf func(netip.Addr) netip.Prefix, closed func(Cause, netip.Prefix)) *gate {
	return &gate{
		Listener: l, max: limit, perAddress: perAddress, networkOf: networkOf, closed: closed,
		conns: make(map[*gatedConn]struct{}), address: make(map[netip.Prefix]int), left: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// Accept implements net.Listener. When the process has no descriptors left, it waits.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			if !g.closeLongest(NoDescriptors, netip.Prefix{}) {
				g.closed(NoDescriptors, netip.Prefix{}) // nothing to close: tell all the same
			}
			if !g.wait() {
				return nil, net.ErrClosed
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		c := &gatedConn{Conn: conn, gate: g, network: g.network(conn)}
		c.progress()
		if admitted, err := g.admit(c); err != nil {
			return nil, err
		} else if admitted {
			return c, nil
		}
	}
}

// network is the network to whose limit a connection counts. Zero means that it counts
// only to the limit of all.
func (g *gate) network(conn net.Conn) netip.Prefix {
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	return g.networkOf(from.Addr())
}

// admit admits a connection or closes it. While all open connections have requests that
// are being handled, the new one waits here, and further ones wait in the queue of the
// operating system.
func (g *gate) admit(c *gatedConn) (bool, error) {
	if c.network.IsValid() && g.perAddress > 0 && g.count(c.network) >= g.perAddress && !g.closeLongest(FullAddress, c.network) {
		g.closed(FullAddress, c.network)
		return false, c.Conn.Close()
	}
	for g.max > 0 && g.count(netip.Prefix{}) >= g.max && !g.closeLongest(Full, netip.Prefix{}) {
		if !g.wait() {
			return false, errors.Join(net.ErrClosed, c.Conn.Close())
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
	g.address[c.network]++
	return true, nil
}

// wait waits a moment for a connection to close. It returns false if the listener is
// closed.
func (g *gate) wait() bool {
	timer := time.NewTimer(tryAgain)
	defer timer.Stop()
	select {
	case <-g.over:
		return false
	case <-g.left:
	case <-timer.C:
	}
	return true
}

// count counts the connections of a network, or all of them.
func (g *gate) count(network netip.Prefix) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if network.IsValid() {
		return g.address[network]
	}
	return len(g.conns)
}

// closeLongest closes the connection that has kept the server waiting the
// longest, of one network or of all.
func (g *gate) closeLongest(cause Cause, network netip.Prefix) bool {
	now := time.Now().UnixNano()
	var longest *gatedConn
	since := now - int64(leastWait)
	g.mu.Lock()
	for c := range g.conns {
		if network.IsValid() && c.network != network {
			continue
		}
		if from, waits := c.waiting(now); waits && from < since {
			longest, since = c, from
		}
	}
	g.mu.Unlock()
	if longest == nil {
		return false
	}
	_ = longest.closeNow() // its descriptor is free now, even after an error
	g.closed(cause, longest.network)
	return true
}

func (g *gate) leave(c *gatedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.conns[c]; !ok {
		return
	}
	delete(g.conns, c)
	if c.http2 {
		g.http2--
	}
	if g.address[c.network]--; g.address[c.network] == 0 {
		delete(g.address, c.network)
	}
	select {
	case g.left <- struct{}{}:
	default:
	}
}

// mayHTTP2 tells whether a connection is offered HTTP/2: not if too many speak it.
func (g *gate) mayHTTP2(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := conn.(*gatedConn)
	if _, open := g.conns[c]; !ok || !open || g.http2 == maxHTTP2 {
		return false
	}
	c.http2 = true
	g.http2++
	return true
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.end.Do(func() { close(g.over) })
	return g.Listener.Close()
}

// gatedConn is a connection that records since when it keeps the server waiting.
type gatedConn struct {
	net.Conn
	gate    *gate
	network netip.Prefix
	http2   bool // counts for maxHTTP2; under the lock of the gate

	since   atomic.Int64 // when the server began to wait for its next step
	read    atomic.Int64 // bytes of the present step
	writing atomic.Int64 // when the unfinished write began; 0: none
	busy    atomic.Int64 // requests that have arrived completely and are being handled
	unread  atomic.Bool  // the answer was given before the body was read to its end
}

// waiting tells whether the connection keeps the server waiting, and since when.
func (c *gatedConn) waiting(now int64) (since int64, ok bool) {
	if began := c.writing.Load(); began != 0 && now-began > int64(blockedWrite) {
		return began, true
	}
	return c.since.Load(), c.busy.Load() == 0
}

// work records that a request has arrived completely (1) or was answered (-1). With 0 it
// only records progress.
func (c *gatedConn) work(n int64) {
	c.progress()
	c.busy.Add(n)
}

func (c *gatedConn) progress() {
	c.since.Store(time.Now().UnixNano())
	c.read.Store(0)
}

// Read implements net.Conn.
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read.Add(int64(n)) >= Step {
		c.progress()
	}
	return n, err
}

// Write implements net.Conn.
func (c *gatedConn) Write(p []byte) (int, error) {
	c.writing.Store(time.Now().UnixNano())
	defer c.writing.Store(0)
	return c.Conn.Write(p)
}

// CloseWrite ends the answer while the sender is still sending. What still comes is read and
// dropped, up to lingerTime and lingerSize: to close before would reset the connection, and a
// sender or a proxy that is still writing would lose the answer (RFC 9112, section 9.6).
//
// net/http calls it for some bodies that were not read, but not if the request says
// "Connection: close", nor under TLS. Close makes up for that.
func (c *gatedConn) CloseWrite() error {
	c.unread.Store(false)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c.Conn, lingerSize)
	if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// Close implements net.Conn. It waits for the rest of a body that was not read.
func (c *gatedConn) Close() error {
	if c.unread.Load() {
		_ = c.CloseWrite() // the sender may have gone
	}
	return c.closeNow()
}

func (c *gatedConn) closeNow() error {
	c.gate.leave(c)
	return c.Conn.Close()
}
