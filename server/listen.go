package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"sync"
	"time"

	"triphammer/server/delivery"
)

const (
	// drainTime is how long a stopping server waits for the requests that it has accepted.
	drainTime = 15 * time.Second
	// headerTime is how long the headers of a request may take to arrive.
	headerTime = 10 * time.Second
	// writeTime is how long an answer may take after the headers of the request. Handlers
	// that wait on purpose extend it.
	writeTime = 2 * time.Minute
	// lingerTime is how long a sender may go on sending a body that is not read. If the
	// connection were closed at once, the sender could lose the answer.
	lingerTime = time.Second
	// lingerSize is how many bytes of such a body are read and dropped at most.
	lingerSize = 8 << 20
	// maxHeader limits the headers of a request, in bytes. net/http adds 4 KiB.
	maxHeader = 16 << 10
	// maxLocal limits the connections over the unix socket.
	maxLocal = 128
)

// Listeners are the listeners on which a server accepts connections.
type Listeners struct {
	TCP net.Listener
	// MaxConnections limits the open TCP connections. MaxPerAddress limits those from one
	// address, or from one /64 network with IPv6. 0 means no limit.
	MaxConnections, MaxPerAddress int
	// CertFile and KeyFile, if set, turn on TLS for the TCP listener. They are read again
	// when they change (SPEC 13.3).
	CertFile, KeyFile string
	certificate       *certificate // that LoadCertificate has read
	// Unix is the socket for the owner of the data directory. It may be nil. It answers only
	// requests that show UnixKey (SPEC 14.4).
	Unix    net.Listener
	UnixKey string
}

// Serve accepts connections until ctx is done. It returns when the accepted requests are
// answered, or after drainTime.
func (s *Server) Serve(ctx context.Context, l Listeners) error {
	network := s.httpServer(s.Handler())
	servers := []*http.Server{network}
	gate := newGate(l.TCP, l.MaxConnections, l.MaxPerAddress, s.sharedAddress, s.connectionClosed)
	tcp := net.Listener(gate)
	if err := l.LoadCertificate(s.cfg.Now, s.cfg.Logger); err != nil {
		return err
	}
	var accepting sync.WaitGroup
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	if cert := l.certificate; cert != nil {
		if err := s.cfg.Metrics.certificate(cert); err != nil {
			return err
		}
		s.certificate.Store(cert)
		accepting.Go(func() { cert.watch(watching) })
		plain := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: cert.get}
		both := plain.Clone()
		both.NextProtos = []string{"h2", "http/1.1"}
		both.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Contains(hello.SupportedProtos, "h2") && gate.mayHTTP2(hello.Conn) {
				return nil, nil
			}
			return plain, nil
		}
		tcp = tls.NewListener(tcp, both)
	}
	failed := make(chan error, 2)
	serve := func(server *http.Server, on net.Listener) {
		if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	accepting.Go(func() { serve(network, tcp) })
	if l.Unix != nil {
		local := s.httpServer(s.withKey(l.UnixKey, s.LocalHandler(localActor())))
		servers = append(servers, local)
		accepting.Go(func() { serve(local, newGate(l.Unix, maxLocal, 0, s.sharedAddress, s.connectionClosed)) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("accepting connections: %w", err)
	}
	unwatch()
	s.streams.stop()
	s.cfg.Data.Stop()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	// All servers shut down at the same time, so that none accepts requests while another
	// one waits.
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

// Leave makes /readyz answer 503, so that load balancers move on. The server goes on accepting, but
// each answer closes its connection: by "Connection: close", or by GOAWAY (RFC 9113, section 6.8),
// after which a client knows which of its requests were not handled.
func (s *Server) Leave() { s.leaving.Store(true) }

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: requestDeadline, WriteTimeout: writeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: delivery.MaxBody},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey, c)
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// promptly answers without waiting for a body that the route does not read. It then closes
// the connection after the answer, because the rest of the body may still arrive. It also
// tells the connection when the server no longer waits for the sender.
func (s *Server) promptly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey).(*gatedConn) // nil without a connection
		work := func(n int64) {
			if conn != nil {
				conn.work(n)
			}
		}
		if s.leaving.Load() {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY for it in HTTP/2
		}
		if r.Body == nil || r.Body == http.NoBody {
			work(1)
			defer work(-1)
			next.ServeHTTP(w, r)
			return
		}
		work(0) // the headers have arrived
		body := &requestBody{ReadCloser: r.Body}
		body.ended = func() {
			if !body.elsewhere && !s.leaving.Load() {
				w.Header().Del("Connection")
			}
			work(1)
		}
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		with := *r // a copy, because net/http uses its own body
		with.Body = body
		next.ServeHTTP(w, &with)
		switch {
		case body.ended == nil:
			work(-1)
		case r.ProtoMajor == 1:
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTime)) // fails without a connection
			if conn != nil {
				conn.unread.Store(true)
			}
		}
	})
}

// requestBody is a body that calls ended when it was read to its end.
type requestBody struct {
	io.ReadCloser
	ended func() // nil after it was called
	// elsewhere tells that another goroutine than that of the handler reads it, which must
	// leave the header of the answer alone.
	elsewhere bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.ended != nil {
		b.ended()
		b.ended = nil
	}
	return n, err
}

// sharedAddress tells whether many clients share an address. That is true for a trusted
// proxy, and for an address of this machine, which can be that of a tunnel.
func (s *Server) sharedAddress(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.ContainsFunc(s.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// networkOf is the network whose share a request uses. Zero means no share.
func (s *Server) networkOf(client netip.Addr) netip.Prefix {
	if client = client.Unmap(); !client.IsValid() || s.sharedAddress(client) {
		return netip.Prefix{}
	}
	return delivery.Network(client)
}

// connectionClosed counts and logs that a connection was closed in favour of another.
func (s *Server) connectionClosed(cause string, network netip.Prefix) {
	s.cfg.Metrics.closed.WithLabelValues(cause).Inc()
	s.seldom.say("connection "+cause, func(times int) {
		why, hint := "the limit of connections is reached: the one that kept the server waiting the longest was closed", "--max-connections"
		switch cause {
		case closedAddress:
			why, hint = "one address has reached its limit of connections: one of them was closed", "--max-connections-per-address"
		case closedDescriptors:
			why, hint = "no file descriptor is left: the connection that kept the server waiting the longest was closed", "LimitNOFILE, ulimit -n"
		}
		s.cfg.Logger.Warn(why, "address", networkText(network), "times", times, "see", hint)
	})
}

// bodyDropped returns a function that counts and logs a body that was dropped in favour of
// another.
func (s *Server) bodyDropped(of string) func(netip.Prefix) {
	counter := s.cfg.Metrics.dropped.WithLabelValues(of)
	return func(network netip.Prefix) {
		counter.Inc()
		s.seldom.say("body "+of, func(times int) {
			s.cfg.Logger.Warn("the memory for bodies is full: the one that came slowest was dropped", "of", of, "address", networkText(network), "times", times)
		})
	}
}

// networkText is the text of a network in the log.
func networkText(network netip.Prefix) string {
	switch {
	case !network.IsValid():
		return "" // an address that many clients share
	case network.IsSingleIP():
		return network.Addr().String()
	}
	return network.String()
}

// seldom logs at most one line a minute about an event that can happen many times a
// second.
type seldom struct {
	mu     sync.Mutex
	causes map[string]*untold // by cause; there are few
}

type untold struct {
	last  time.Time
	times int
}

// say counts a cause. If the last line is long enough ago, it calls write with the count
// since then.
func (s *seldom) say(cause string, write func(times int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.causes == nil {
		s.causes = make(map[string]*untold)
	}
	u := s.causes[cause]
	if u == nil {
		u = &untold{}
		s.causes[cause] = u
	}
	u.times++
	if now := time.Now(); now.Sub(u.last) >= time.Minute {
		times := u.times
		u.last, u.times = now, 0
		write(times)
	}
}

// localActor is the name of the user who runs this process, for the audit log.
func localActor() string {
	if name := os.Getenv("USER"); name != "" { // containers do not set it
		return name
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
