// Package relay forwards connections at both ends of a run's way to the network, inside the walls
// and outside. It does not look into the data.
package relay

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Listener accepts a limited number of connections at once, and can close all of them.
// More connections wait in the queue of the kernel.
type Listener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{} // closed when no more connections are wanted
	once  sync.Once

	mu    sync.Mutex
	conns map[*slotConn]bool
}

// NewListener makes a Listener with at most most open connections.
func NewListener(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, slots: make(chan struct{}, most), done: make(chan struct{}), conns: make(map[*slotConn]bool)}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	s := &slotConn{Conn: c, of: l}
	l.mu.Lock()
	l.conns[s] = true
	l.mu.Unlock()
	select {
	case <-l.done: // CloseAll may not have seen this connection
		_ = s.Close()
		return nil, net.ErrClosed
	default:
		return s, nil
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// CloseAll closes the listener and all connections.
func (l *Listener) CloseAll() {
	_ = l.Close()
	l.mu.Lock()
	all := make([]*slotConn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// slotConn is a connection that gives its slot back when it is closed.
type slotConn struct {
	net.Conn
	of   *Listener
	once sync.Once
}

// Close implements net.Conn.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.conns, c)
		c.of.mu.Unlock()
		<-c.of.slots
	})
	return err
}

// CloseWrite ends the stream to the peer.
func (c *slotConn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite ends the stream to the peer of a connection, if its kind can do that.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Join copies between two connections until both directions have ended or one has failed. Then
// it closes both connections. It reads fromA instead of a.
func Join(a, b net.Conn, fromA io.Reader) {
	closeBoth := func() {
		_ = a.Close()
		_ = b.Close()
	}
	defer closeBoth()
	pipe := func(to net.Conn, from io.Reader) {
		if _, err := io.Copy(to, from); err != nil || CloseWrite(to) != nil {
			closeBoth()
		}
	}
	var other sync.WaitGroup
	other.Go(func() { pipe(a, b) })
	pipe(b, fromA)
	other.Wait()
}

// MaxConnections is how many connections of a run may be open at once; further connections wait.
const MaxConnections = 256
