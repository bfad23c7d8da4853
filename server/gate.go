package server

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"triphammer/server/delivery"
)

// Why a connection was closed before its time: labels of a metric.
const (
	closedFull        = "full"        // as many were open as may be
	closedAddress     = "address"     // as many of one address
	closedDescriptors = "descriptors" // the process had no descriptor left
)

const (
	// leastWait is how long a connection may keep the server waiting before it can
	// be closed in favour of another.
	leastWait = 250 * time.Millisecond
	// blockedWrite is how long a reader may leave an answer unread before that
	// counts as waiting.
	blockedWrite = 5 * time.Second
	// tryAgain is when to look for a place again, if none is given back.
	tryAgain = 50 * time.Millisecond
)

// gate is a listener with a bound of open connections, and of those of one
// address. When it is reached, the connection that has kept the server waiting
// the longest is closed in favour of the next: one that is idle, sends no request
// or no body, or reads no answer. One whose request is at work is never closed.
type gate struct {
	net.Listener
	max, perAddress int                   // 0: no limit
	shared          func(netip.Addr) bool // everybody can be behind this address
	closed          func(cause string, network netip.Prefix)

	mu      sync.Mutex
	conns   map[*gatedConn]struct{}
	address map[netip.Prefix]int
	left    chan struct{} // gets one when a connection was closed
	over    chan struct{} // closed with the listener
	end     sync.Once
}

func newGate(l net.Listener, limit, perAddress int, shared func(netip.Addr) bool, closed func(string, netip.Prefix)) *gate {
	return &gate{
		Listener: l, max: limit, perAddress: perAddress, shared: shared, closed: closed,
		conns: make(map[*gatedConn]struct{}), address: make(map[netip.Prefix]int), left: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// Accept implements net.Listener. It survives that descriptors run out.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			if !g.closeLongest(closedDescriptors, netip.Prefix{}) {
				g.closed(closedDescriptors, netip.Prefix{}) // nothing to close: tell all the same
			}
			if !g.wait() {
				return nil, net.ErrClosed
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		c := &gatedConn{Conn: conn, gate: g, network: g.networkOf(conn)}
		c.progress()
		if admitted, err := g.admit(c); err != nil {
			return nil, err
		} else if admitted {
			return c, nil
		}
	}
}

// networkOf is whose bound a connection counts for; the zero one: only that of all.
func (g *gate) networkOf(conn net.Conn) netip.Prefix {
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || g.shared(from.Addr().Unmap()) {
		return netip.Prefix{}
	}
	return delivery.Network(from.Addr())
}

// admit takes the connection in, or closes it. While all places are held by
// requests at work, the next one waits here, and others in the system's queue.
func (g *gate) admit(c *gatedConn) (bool, error) {
	if c.network.IsValid() && g.perAddress > 0 && g.count(c.network) >= g.perAddress && !g.closeLongest(closedAddress, c.network) {
		g.closed(closedAddress, c.network)
		return false, c.Conn.Close()
	}
	for g.max > 0 && g.count(netip.Prefix{}) >= g.max && !g.closeLongest(closedFull, netip.Prefix{}) {
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

// wait waits a moment for a place, and tells whether the listener is open.
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
func (g *gate) closeLongest(cause string, network netip.Prefix) bool {
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
	_ = longest.Close() // its descriptor is free now, whatever the error
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
	if g.address[c.network]--; g.address[c.network] == 0 {
		delete(g.address, c.network)
	}
	select {
	case g.left <- struct{}{}:
	default:
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.end.Do(func() { close(g.over) })
	return g.Listener.Close()
}

// gatedConn is a connection that knows since when it keeps the server waiting.
type gatedConn struct {
	net.Conn
	gate    *gate
	network netip.Prefix

	since   atomic.Int64 // when the server began to wait for its next step
	read    atomic.Int64 // bytes of that step
	writing atomic.Int64 // when a write began that has not ended; 0: none
	busy    atomic.Int64 // requests at work: nothing more of them is to come
}

// waiting tells since when the connection keeps the server waiting, if it does.
func (c *gatedConn) waiting(now int64) (since int64, ok bool) {
	if began := c.writing.Load(); began != 0 && now-began > int64(blockedWrite) {
		return began, true
	}
	return c.since.Load(), c.busy.Load() == 0
}

// work notes that a request has come whole, or (-1) that it is answered.
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
	if c.read.Add(int64(n)) >= step {
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

// CloseWrite lets an HTTP server take leave of a sender that is still sending.
func (c *gatedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.gate.leave(c)
	return c.Conn.Close()
}
