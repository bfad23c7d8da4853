package listen

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"triphammer/server/listen/listentest"
)

// nothing answers every request with 200 and no body.
var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// newDoor makes a Door of which every client is a network of its own.
func newDoor(t *testing.T) *Door {
	return New(Config{
		Network:   func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) },
		Closed:    func(cause Cause, network netip.Prefix) { t.Errorf("closed: %s of %s", cause, network) },
		Encrypted: func(*Certificate) error { return nil }, Draining: func() {},
		RequestTime: time.Minute, MaxBody: 1 << 18, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func waitUntil(t *testing.T, otherwise string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// TestMostHTTP2: only so many connections speak HTTP/2, and further ones HTTP/1.1. Clients that
// speak HTTP/1.1 alone take no place of the others.
func TestMostHTTP2(t *testing.T) {
	dir := t.TempDir()
	listentest.WritePair(t, dir, "x", time.Now().Add(time.Hour))
	l := Listeners{TCP: listenTCP(t), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	ctx, cancel := context.WithCancel(t.Context())
	done, door := make(chan error, 1), newDoor(t)
	go func() { done <- door.Serve(ctx, l, nothing, nil) }()
	dial := func(protocols ...string) *tls.Conn {
		conn, err := tls.Dial("tcp", l.TCP.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var open []net.Conn
	for range maxHTTP2 {
		open = append(open, dial("http/1.1"))
	}
	for n := range maxHTTP2 + 1 {
		conn := dial("h2", "http/1.1")
		open = append(open, conn)
		if got, want := conn.ConnectionState().NegotiatedProtocol, map[bool]string{true: "h2", false: "http/1.1"}[n < maxHTTP2]; got != want {
			t.Errorf("connection %d speaks %s, want %s", n, got, want)
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
