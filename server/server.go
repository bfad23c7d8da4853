// Package server is the HTTP surface: the ingress, the run API, the management
// API and the pages, with their keys, problems and limits. It decides nothing
// about deliveries or runs; it is the only user of gin.
package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/disk"
)

// Config is what a Server needs.
type Config struct {
	// Data is all that the server has, as far as a caller may touch it.
	Data *access.Data
	// SchedulesChanged is called after a request changed a schedule; nil: nobody
	// cares.
	SchedulesChanged func()
	Metrics          *Metrics // nil: of its own
	// Disk tells how much room there is; nil: nobody looks.
	Disk *disk.Watch
	// BaseURL is how senders and people reach the server, without a slash at its
	// end. It may have a path: requests are then served under it, and also without
	// it, as they come from a proxy that takes it off.
	BaseURL string
	// SyncSecrets name, by factory, the managed secret with which services sign
	// push notifications.
	SyncSecrets map[string]string
	// ValidateKey asks callers of the validate endpoint for a key.
	ValidateKey    bool
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed (SPEC 5.9)
	Version        string
	Now            func() time.Time
	Logger         *slog.Logger
}

// Server is the HTTP surface.
type Server struct {
	cfg    Config
	engine *gin.Engine
	base   string // the path of the base URL: empty, or such as /triphammer
	// known and strangers bound the bytes of ingress bodies that are in memory at
	// once, of senders with a verified credential and of all others.
	known, strangers *bodies
	// pushes is that of push notifications.
	pushes *bodies
	// trees is that of definitions that anybody may have checked, checked the places
	// to do so.
	trees   *bodies
	checked *semaphore.Weighted
	// bodyTime is how long a sender has to send its body, patience how long a
	// request waits for its part of a budget.
	bodyTime, patience time.Duration
	streams            streams
	seldom             seldom
	checking           sync.Mutex // of the store
}

// The most bytes of bodies in memory at once, and of those of one network: a flood
// of slow ones gives way, what comes at once hardly notices.
const (
	maxKnown       = 64 << 20
	maxStrangers   = 32 << 20
	shareStrangers = 8 << 20
	maxPushes      = 2 * sharePushes
	sharePushes    = maxPush + 1 // one of the largest
)

const (
	bodyTime = 15 * time.Second
	patience = 5 * time.Second
)

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.SchedulesChanged == nil {
		cfg.SchedulesChanged = func() {}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	gin.SetMode(gin.ReleaseMode)
	s := &Server{cfg: cfg, engine: gin.New(), bodyTime: bodyTime, patience: patience}
	s.known = newBodies(maxKnown, maxKnown, s.bodyDropped("known"))
	s.strangers = newBodies(maxStrangers, shareStrangers, s.bodyDropped("strangers"))
	s.pushes = newBodies(maxPushes, sharePushes, s.bodyDropped("pushes"))
	s.trees, s.checked = newBodies(maxTrees, shareTrees, s.bodyDropped("trees")), semaphore.NewWeighted(maxChecked)
	e := s.engine
	// A redirect would carry the token of a url_token URL in its Location.
	e.RedirectTrailingSlash, e.RedirectFixedPath, e.HandleMethodNotAllowed = false, false, false
	proxies := make([]string, len(cfg.TrustedProxies))
	for i, p := range cfg.TrustedProxies {
		proxies[i] = p.String()
	}
	if err := e.SetTrustedProxies(proxies); err != nil {
		return nil, fmt.Errorf("trusted proxies: %w", err)
	}
	e.Use(s.recover)
	s.routes(e)
	if err := s.setBase(); err != nil {
		return nil, err
	}
	return s, nil
}

// setBase takes the path of the base URL. One that begins like a route of the
// server's own is refused: nobody could tell the two apart.
func (s *Server) setBase() error {
	u, err := url.Parse(s.cfg.BaseURL)
	if err != nil || u.Path == "" {
		return err
	}
	first := func(p string) string {
		segment, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		return segment
	}
	for _, r := range s.engine.Routes() {
		if first(r.Path) == first(u.Path) {
			return fmt.Errorf("the path of the base URL %s begins with /%s, which the server itself uses: choose another", s.cfg.BaseURL, first(u.Path))
		}
	}
	s.base = u.Path
	return nil
}

// Handler serves requests that come over the network.
func (s *Server) Handler() http.Handler {
	inner := promptly(s.engine)
	if s.base == "" {
		return inner
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, under := strings.CutPrefix(r.URL.Path, s.base)
		if under && (rest == "" || rest[0] == '/') {
			// The base path has no escapes, so both forms begin with it.
			at := *r.URL
			at.Path, at.RawPath = cmp.Or(rest, "/"), strings.TrimPrefix(r.URL.RawPath, s.base)
			r = r.WithContext(r.Context()) // a copy: the request is the server's
			r.URL = &at
		}
		inner.ServeHTTP(w, r)
	})
}

// LocalHandler serves requests of somebody who owns the data directory: those
// that come over the unix socket, or from this process.
func (s *Server) LocalHandler(actor string) http.Handler { return asLocal(s.Handler(), actor) }

// recover answers a panic with a problem. Its value may hold anything, so only
// its type is logged.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		if r := recover(); r != nil {
			if r == http.ErrAbortHandler {
				panic(r)
			}
			s.cfg.Logger.Error("a handler panicked", "route", c.FullPath(), "panic", panicText(r), "stack", string(debug.Stack()))
			if !c.Writer.Written() {
				fail(c, api.InternalError, "")
			}
		}
	}()
	c.Next()
}
