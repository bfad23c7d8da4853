package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"sync"
	"time"
)

// drainTime is how long a stopping server waits for the requests it has taken.
const drainTime = 15 * time.Second

// writeTime is how long an answer may take from the request's headers on. What
// waits on purpose extends it.
const writeTime = 2 * time.Minute

// Listeners are where a server accepts connections.
type Listeners struct {
	TCP net.Listener
	// CertFile and KeyFile, if set, make the TCP listener one of TLS. They are
	// read again when they change (SPEC 13.3).
	CertFile, KeyFile string
	// Unix is the socket of whoever owns the data directory; may be nil.
	Unix net.Listener
}

// Serve accepts connections until ctx is done; then it takes no more, and
// returns when the requests that it took are answered.
func (s *Server) Serve(ctx context.Context, l Listeners) error {
	network := s.httpServer(s.Handler())
	servers := []*http.Server{network}
	tcp := l.TCP
	if l.CertFile != "" {
		cert := &certificate{certFile: l.CertFile, keyFile: l.KeyFile, logger: s.cfg.Logger}
		if _, err := cert.get(nil); err != nil {
			return err
		}
		tcp = tls.NewListener(tcp, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: cert.get})
	}
	failed := make(chan error, 2)
	serve := func(server *http.Server, on net.Listener) {
		if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	var accepting sync.WaitGroup
	accepting.Go(func() { serve(network, tcp) })
	if l.Unix != nil {
		local := s.httpServer(s.LocalHandler(localActor()))
		servers = append(servers, local)
		accepting.Go(func() { serve(local, l.Unix) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("accepting connections: %w", err)
	}
	s.streams.stop()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	// All at once: none accepts anything while another waits for its requests.
	for _, server := range servers {
		accepting.Go(func() {
			if server.Shutdown(drain) != nil {
				_ = server.Close() // the drain time is over
			}
		})
	}
	accepting.Wait()
	return err
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// localActor is who owns this process, for the audit log.
func localActor() string {
	if name := os.Getenv("USER"); name != "" { // a container, for one, does not set it
		return name
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// certificate is a key pair that is read again when its files change.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu      sync.Mutex
	stamp   string // of the files of pair
	failed  string // of files that were no pair, so that it is told once
	checked time.Time
	pair    *tls.Certificate
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
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
		// Half-written: the old pair serves until both fit.
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
