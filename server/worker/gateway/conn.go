package gateway

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// listener accepts a limited number of connections at once, and can close all of them.
// More connections wait in the queue of the kernel.
type listener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{} // closed when no more connections are wanted
	once  sync.Once

	mu    sync.Mutex
	conns map[*slotConn]bool
}

func newListener(l net.Listener, most int) *listener {
	return &listener{Listener: l, slots: make(chan struct{}, most), done: make(chan struct{}), conns: make(map[*slotConn]bool)}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
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
	case <-l.done: // closeAll may not have seen it
		_ = s.Close()
		return nil, net.ErrClosed
	default:
		return s, nil
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// closeAll closes the listener and all connections.
func (l *listener) closeAll() {
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
	of   *listener
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
func (c *slotConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
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
func (c *idleConn) CloseWrite() error { return closeWrite(c.Conn) }

// join copies between two connections until both directions have ended, or one has
// failed. It closes both. fromA is what is read instead of a.
func join(a, b net.Conn, fromA io.Reader) {
	closeBoth := func() {
		_ = a.Close()
		_ = b.Close()
	}
	defer closeBoth()
	pipe := func(to net.Conn, from io.Reader) {
		if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
			closeBoth()
		}
	}
	var other sync.WaitGroup
	other.Go(func() { pipe(a, b) })
	pipe(b, fromA)
	other.Wait()
}
