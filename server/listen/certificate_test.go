package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/listen/listentest"
)

// TestCertificateEnds: the end of the TLS certificate is told from 14 days before on, and an
// expired one is an error (SPEC 13.3).
func TestCertificateEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(14*24*time.Hour + 30*time.Minute).Truncate(time.Second)
		listentest.WritePair(t, dir, "x", end)
		var logs lockedBuffer
		l := Listeners{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
		if err := l.LoadCertificate(time.Now, slog.New(slog.NewTextHandler(&logs, nil))); err != nil {
			t.Fatal(err)
		}
		go l.certificate.watch(t.Context())
		synctest.Wait()
		if s := l.certificate.State(); !s.Valid || s.Problem != "" || logs.String() != "" {
			t.Errorf("15 days before: %+v, %s", s, logs.String())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := l.certificate.State(); !s.Valid || !strings.Contains(s.Problem, "expires at") || strings.Count(logs.String(), "level=WARN") != 1 {
			t.Errorf("14 days before: %+v, %s", s, logs.String())
		}
		time.Sleep(14 * 24 * time.Hour)
		synctest.Wait()
		if s := l.certificate.State(); s.Valid || !strings.Contains(s.Problem, "expired at") || strings.Count(logs.String(), "level=ERROR") != 1 {
			t.Errorf("after the end: %+v, %s", s, logs.String())
		}
		if n := strings.Count(logs.String(), "level=WARN"); n != 14 {
			t.Errorf("warned %d times in 14 days", n)
		}
	})
}

// TestHalfWrittenCertificate: while the files do not fit, the old pair serves,
// and the log says so once.
func TestHalfWrittenCertificate(t *testing.T) {
	dir := t.TempDir()
	listentest.WritePair(t, dir, "first", time.Now().Add(time.Hour))
	var logs bytes.Buffer
	c := &Certificate{certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem"), now: time.Now, logger: slog.New(slog.NewTextHandler(&logs, nil))}
	first, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	look := func() *tls.Certificate {
		c.checked = time.Time{} // as if a second had passed
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	if err := os.WriteFile(c.certFile, []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if look() != first {
			t.Error("a pair that does not fit is served")
		}
	}
	if n := strings.Count(logs.String(), "cannot be used"); n != 1 {
		t.Errorf("told %d times:\n%s", n, logs.String())
	}
	if err := os.Remove(c.keyFile); err != nil {
		t.Fatal(err)
	}
	if look() != first {
		t.Error("without a file nothing serves")
	}
	listentest.WritePair(t, dir, "second", time.Now().Add(time.Hour))
	if look() == first {
		t.Error("the new pair is not served")
	}
}

// TestTLS: the certificate is read again when its files change (SPEC 13.3), and
// a stop lets what was taken finish.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	listentest.WritePair(t, dir, "first", time.Now().Add(time.Hour))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, door := make(chan error, 1), newDoor(t)
	go func() {
		done <- door.Serve(ctx, Listeners{TCP: l, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}, nothing, nil)
	}()
	name := func() string {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Errorf("certificate %s", got)
	}
	listentest.WritePair(t, dir, "second", time.Now().Add(time.Hour))
	for deadline := time.Now().Add(10 * time.Second); name() != "second"; {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not served")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := newDoor(t).Serve(t.Context(), Listeners{TCP: l, CertFile: filepath.Join(dir, "none.pem"), KeyFile: filepath.Join(dir, "key.pem")}, nothing, nil); err == nil {
		t.Error("served without a certificate")
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
