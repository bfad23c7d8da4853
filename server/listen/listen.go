// Package listen is how connections come into a server: listeners, TLS, timeouts, limits of
// connections, and the end of all that when a server stops. It is what a stranger meets first, so
// it knows nothing but the handlers that it is given.
package listen

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
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
	certificate       *Certificate // that LoadCertificate has read
	// Unix is the socket for the owner of the data directory. It may be nil.
	Unix net.Listener
}

// Config is what a Door needs. All of it is required.
type Config struct {
	// Network is the network to whose limit a connection from the address counts. Zero: the
	// connection counts only to the limit of all, because many clients share the address.
	Network func(netip.Addr) netip.Prefix
	// Closed is called when a connection was closed in favour of another, or was refused, with its
	// network.
	Closed func(Cause, netip.Prefix)
	// Encrypted is called once with the certificate that serves, if there is TLS, before a
	// connection is accepted. After its error, Serve accepts none.
	Encrypted func(*Certificate) error
	// Draining is called once, just before the listeners close: handlers that wait on purpose are
	// then to answer.
	Draining func()
	// RequestTime is how long a request may take to arrive. Handlers that want more extend it.
	RequestTime time.Duration
	// MaxBody is how many bytes of bodies an HTTP/2 connection may send before handlers read
	// them.
	MaxBody int
	Now     func() time.Time // the clock by which certificates end
	Logger  *slog.Logger
}

// Door accepts connections, and passes their requests on to handlers.
type Door struct {
	cfg     Config
	leaving atomic.Bool // Leave was called
}

// New makes a Door.
func New(cfg Config) *Door { return &Door{cfg: cfg} }

// Serve accepts connections until ctx is done. Requests over TCP go to remote, those over the
// unix socket to local. It returns when the accepted requests are answered, or after drainTime
// (15 seconds). Its error says why it could not accept connections.
func (d *Door) Serve(ctx context.Context, l Listeners, remote, local http.Handler) error {
	network := d.HTTPServer(remote)
	servers := []*http.Server{network}
	gate := newGate(l.TCP, l.MaxConnections, l.MaxPerAddress, d.cfg.Network, d.cfg.Closed)
	tcp := net.Listener(gate)
	if err := l.LoadCertificate(d.cfg.Now, d.cfg.Logger); err != nil {
		return err
	}
	var accepting sync.WaitGroup
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	if cert := l.certificate; cert != nil {
		if err := d.cfg.Encrypted(cert); err != nil {
			return err
		}
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
		owner := d.HTTPServer(local)
		servers = append(servers, owner)
		accepting.Go(func() { serve(owner, newGate(l.Unix, maxLocal, 0, d.cfg.Network, d.cfg.Closed)) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("accepting connections: %w", err)
	}
	unwatch()
	d.cfg.Draining()
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

// Leave prepares a stop. The door goes on accepting, but each answer closes its connection: by
// "Connection: close", or by GOAWAY (RFC 9113, section 6.8), after which a client knows which of its
// requests were not handled.
func (d *Door) Leave() { d.leaving.Store(true) }

// Leaving tells whether Leave was called.
func (d *Door) Leaving() bool { return d.leaving.Load() }

// HTTPServer makes a server of h with the limits of time and size for requests: 10 seconds and
// 16 KiB for headers, Config.RequestTime for the whole request, 2 minutes for the answer. It does
// not limit the number of connections, as Serve does.
func (d *Door) HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: d.cfg.RequestTime, WriteTimeout: writeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: d.cfg.MaxBody},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
		ErrorLog: slog.NewLogLogger(d.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// Promptly makes a handler that answers without waiting for a body that next does not read. It
// then closes the connection after the answer, because the rest of the body may still arrive. It
// also tells the connection when the server no longer waits for the sender.
func (d *Door) Promptly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*gatedConn) // nil without a connection
		work := func(n int64) {
			if conn != nil {
				conn.work(n)
			}
		}
		if d.leaving.Load() {
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
			if !body.elsewhere && !d.leaving.Load() {
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

// ReadElsewhere tells that another goroutine than that of the handler reads the body of r, which
// Promptly has passed on.
func ReadElsewhere(r *http.Request) {
	if b, ok := r.Body.(*requestBody); ok {
		b.elsewhere = true
	}
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.ended != nil {
		b.ended()
		b.ended = nil
	}
	return n, err
}
