package server

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"sync"
	"time"

	"triphammer/server/delivery"
	"triphammer/server/listen"
)

// Serve accepts connections until ctx is done. It returns when the accepted requests are
// answered, or 15 seconds after ctx is done. The unix socket answers only requests that show unixKey
// (SPEC 14.4).
func (s *Server) Serve(ctx context.Context, l listen.Listeners, unixKey string) error {
	return s.door.Serve(ctx, l, s.Handler(), s.withKey(unixKey, s.LocalHandler(localActor())))
}

// Leave makes /readyz answer 503, so that load balancers move on. The server goes on accepting,
// but each answer closes its connection.
func (s *Server) Leave() { s.door.Leave() }

// newDoor makes what accepts the connections of the server.
func (s *Server) newDoor() *listen.Door {
	return listen.New(listen.Config{
		Network: s.networkOf, Closed: s.connectionClosed, Encrypted: s.encrypted,
		Draining: func() {
			s.streams.stop()
			s.cfg.Data.Stop()
		},
		RequestTime: requestDeadline, MaxBody: delivery.MaxBody, Now: s.cfg.Now, Logger: s.cfg.Logger,
	})
}

// encrypted makes status and metrics show the certificate that serves.
func (s *Server) encrypted(cert *listen.Certificate) error {
	if err := s.cfg.Metrics.Certificate(cert); err != nil {
		return err
	}
	s.certificate.Store(cert)
	return nil
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
func (s *Server) connectionClosed(cause listen.Cause, network netip.Prefix) {
	s.cfg.Metrics.Closed(cause)
	s.seldom.say("connection "+string(cause), func(times int) {
		why, hint := "the limit of connections is reached: the one that kept the server waiting the longest was closed", "--max-connections"
		switch cause {
		case listen.FullAddress:
			why, hint = "one address has reached its limit of connections: one of them was closed", "--max-connections-per-address"
		case listen.NoDescriptors:
			why, hint = "no file descriptor is left: the connection that kept the server waiting the longest was closed", "LimitNOFILE, ulimit -n"
		}
		s.cfg.Logger.Warn(why, "address", networkText(network), "times", times, "see", hint)
	})
}

// bodyDropped returns a function that counts and logs a body that was dropped in favour of
// another.
func (s *Server) bodyDropped(of string) func(netip.Prefix) {
	count := s.cfg.Metrics.Dropped(of)
	return func(network netip.Prefix) {
		count()
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
