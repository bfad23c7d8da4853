package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// certificateNotice is how long before its end the server warns of a certificate.
	certificateNotice = 14 * 24 * time.Hour
	// certificateLook is how often the server looks at the end of its certificate.
	certificateLook = time.Hour
)

// Certificate is a key pair that is read again when its files change.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time
	logger            *slog.Logger

	mu      sync.Mutex
	stamp   string // of the files of pair
	failed  string // of the last files that did not fit together, so that they are logged once
	checked time.Time
	pair    *tls.Certificate
}

func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.checked) < time.Second {
		return c.pair, nil
	}
	c.checked = time.Now()
	stamp := stampOf(c.certFile) + stampOf(c.keyFile)
	if stamp == c.stamp {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		if c.pair == nil {
			return nil, fmt.Errorf("reading the TLS certificate: %w", err)
		}
		// The files may be half-written. The old pair serves until both fit together.
		if stamp != c.failed {
			c.failed = stamp
			c.logger.Warn("the new TLS certificate cannot be used, the old one serves", "error", err)
		}
		return c.pair, nil
	}
	c.pair, c.stamp = &pair, stamp
	return c.pair, nil
}

func stampOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "absent"
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}

// LoadCertificate reads the certificate and its key, if there is to be TLS, so that a server
// which cannot use them fails before it does anything. It tells the log, at once and then once
// a day as long as the server serves, if the certificate ends within 14 days.
func (l *Listeners) LoadCertificate(now func() time.Time, logger *slog.Logger) error {
	if l.CertFile == "" || l.certificate != nil {
		return nil
	}
	c := &Certificate{certFile: l.CertFile, keyFile: l.KeyFile, now: now, logger: logger}
	if _, err := c.get(nil); err != nil {
		return err
	}
	l.certificate = c
	return nil
}

// State is when a certificate ends, and what is wrong with that.
type State struct {
	ExpiresAt time.Time
	Valid     bool   // by the machine's clock
	Problem   string // a text for people, from 14 days before the end on
}

// State is the state of the certificate that serves.
func (c *Certificate) State() *State {
	pair, err := c.get(nil)
	if err != nil {
		return nil // one was read at the start, and serves until another one can be read
	}
	leaf, now := pair.Leaf, c.now()
	out := &State{ExpiresAt: leaf.NotAfter.UTC(), Valid: true}
	at := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case !now.Before(leaf.NotAfter):
		out.Valid, out.Problem = false, fmt.Sprintf("the TLS certificate %s expired at %s: senders and browsers refuse to connect. Put a new one in its place; no restart is needed", c.certFile, at)
	case now.Before(leaf.NotBefore):
		out.Valid, out.Problem = false, fmt.Sprintf("the TLS certificate %s is valid only from %s on: until then senders and browsers refuse to connect", c.certFile, leaf.NotBefore.UTC().Format(time.RFC3339))
	case leaf.NotAfter.Sub(now) < certificateNotice:
		out.Problem = fmt.Sprintf("the TLS certificate %s expires at %s. Put a new one in its place; no restart is needed", c.certFile, at)
	}
	return out
}

// watch tells the log of a certificate that ends soon or has ended, until ctx is done.
func (c *Certificate) watch(ctx context.Context) {
	ticker := time.NewTicker(certificateLook)
	defer ticker.Stop()
	var told string
	var at time.Time
	for {
		if s := c.State(); s != nil && s.Problem != "" && (s.Problem != told || c.now().Sub(at) >= 24*time.Hour) {
			told, at = s.Problem, c.now()
			level := slog.LevelWarn
			if !s.Valid {
				level = slog.LevelError
			}
			c.logger.Log(ctx, level, "the TLS certificate is to be renewed", "problem", s.Problem)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
