// Package server is the HTTP surface: the ingress, the run API, the management API and the
// pages, with their keys, problems and limits. It is the only user of gin.
//
// It does not decide about deliveries (package delivery), runs (package run) or definitions
// (package authoring). Package listen accepts its connections.
package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/authoring"
	"triphammer/server/bodies"
	"triphammer/server/disk"
	"triphammer/server/githubapp"
	"triphammer/server/hosted"
	"triphammer/server/listen"
	"triphammer/server/metrics"
	"triphammer/server/oidc"
)

// Config is what a Server needs.
type Config struct {
	// Data is the data of the server. It checks what a caller may use.
	Data *access.Data
	// SchedulesChanged, if set, is called after a request has changed a schedule.
	SchedulesChanged func()
	Metrics          *metrics.Metrics // nil: the Server makes its own
	// Disk tells how much disk space is free. If it is nil, the disk is not watched.
	Disk *disk.Watch
	// Isolation tells which walls the runs have, and Machine which programs they find here.
	// Both are nil if this process starts no runs.
	Isolation func() *api.Isolation
	Machine   func() *api.Machine
	// BaseURL is the address at which senders and people reach the server, without a slash
	// at its end. It may have a path. Requests are then served with that path, and also
	// without it, because a proxy may remove it.
	BaseURL string
	// SyncSecrets has, by factory, the name of the managed secret with which services sign
	// push notifications.
	SyncSecrets map[string]string
	// Place tells where the repository of a factory is. If it is nil, none lives here.
	Place func(factory string) Place
	// Connection is how the connection of a webhook is, by its UID. If Connection is nil, this
	// process has none.
	Connection func(uid string) *api.Connection
	// Dir is the data directory.
	Dir string
	// Host makes a factory that lives here, and begins to serve it. If it is nil, this process
	// cannot. Its errors are answers.
	Host func(ctx context.Context, name, by string) error
	// SignIn is where people sign in, besides by links; nil: nowhere.
	SignIn *oidc.Provider
	// Apps asks GitHub about Apps; nil: githubapp.New.
	Apps *githubapp.Minter
	// Behind says why this server does not serve what other servers made live; empty, or nil: it
	// does.
	Behind func() string
	// ValidateKey makes the validate endpoint require a key.
	ValidateKey    bool
	TrustedProxies []netip.Prefix // proxies whose X-Forwarded-For is trusted (SPEC 5.9)
	Version        string
	Now            func() time.Time
	Logger         *slog.Logger
}

// Place is where the repository of a factory is.
type Place struct {
	Home  *hosted.Repository // here; nil: elsewhere
	Links *api.Links         // the pages of the service that has it; nil: unknown
}

// Server is the HTTP surface.
type Server struct {
	cfg    Config
	engine *gin.Engine
	base   string // the path of the base URL: empty, or such as /triphammer
	// document is openapi.yaml with that path. All answers share it: strangers may ask for it, and
	// read slowly.
	document []byte
	// known and strangers limit the memory for ingress bodies: known for senders with a
	// verified credential, strangers for all others.
	known, strangers *bodies.Budget
	// pushes limits the memory for push notifications.
	pushes *bodies.Budget
	// trees limits the memory for definitions that the validate endpoint checks. checked
	// limits how many it checks at the same time.
	trees   *bodies.Budget
	checked *semaphore.Weighted
	authors *authoring.Author
	// bodyTime is how long the body of a request may take. patience is how long a request
	// waits for memory of a budget.
	bodyTime, patience time.Duration
	streams            streams
	door               *listen.Door // accepts the connections
	watch              watch
	seldom             seldom
	checking           sync.Mutex                         // held while the store is checked
	certificate        atomic.Pointer[listen.Certificate] // that serves; nil: no TLS
	pinged             atomic.Int64                       // when a test commit of the store last succeeded, in Unix nanoseconds
}

// Limits of the memory for bodies, in bytes, in all and for one network. A flood of slow
// bodies is dropped, and hardly affects fast ones.
const (
	maxKnown       = 64 << 20
	maxStrangers   = 32 << 20
	shareStrangers = 8 << 20
	maxPushes      = 2 * sharePushes
	sharePushes    = maxPush + 1 // one notification of the largest size
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
	if cfg.Place == nil {
		cfg.Place = func(string) Place { return Place{} }
	}
	if cfg.SchedulesChanged == nil {
		cfg.SchedulesChanged = func() {}
	}
	if cfg.Apps == nil {
		cfg.Apps = githubapp.New(cfg.Now)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(cfg.Version)
	}
	gin.SetMode(gin.ReleaseMode)
	s := &Server{cfg: cfg, engine: gin.New(), bodyTime: bodyTime, patience: patience, watch: watch{data: cfg.Data}}
	s.door = s.newDoor()
	s.known = bodies.NewBudget(maxKnown, maxKnown, s.bodyDropped("known"))
	s.strangers = bodies.NewBudget(maxStrangers, shareStrangers, s.bodyDropped("strangers"))
	s.pushes = bodies.NewBudget(maxPushes, sharePushes, s.bodyDropped("pushes"))
	s.trees, s.checked = bodies.NewBudget(maxTrees, shareTrees, s.bodyDropped("trees")), semaphore.NewWeighted(maxChecked)
	s.authors = authoring.New(authoring.Config{
		Home:   func(factory string) *hosted.Repository { return cfg.Place(factory).Home },
		URL:    func(factory string) string { return HostedURL(cfg.BaseURL, factory) },
		Now:    cfg.Now,
		Logger: cfg.Logger,
	})
	e := s.engine
	// The Location of a redirect would contain the token of a url_token URL.
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
	s.document = documentAt(s.base)
	return s, nil
}

// setBase sets the base path from the base URL. It refuses a path that begins like one of
// the server's own routes, because the two could not be told apart.
func (s *Server) setBase() error {
	u, err := url.Parse(s.cfg.BaseURL)
	if err != nil || u.Path == "" {
		s.base = ""
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

// Handler serves requests from the network.
func (s *Server) Handler() http.Handler {
	inner := s.door.Promptly(s.engine)
	if s.base == "" {
		return inner
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, under := strings.CutPrefix(r.URL.Path, s.base)
		if under && (rest == "" || rest[0] == '/') {
			// The base path has no escapes, so both forms begin with it.
			at := *r.URL
			at.Path, at.RawPath = cmp.Or(rest, "/"), strings.TrimPrefix(r.URL.RawPath, s.base)
			r = r.WithContext(r.Context()) // a copy, because the request belongs to net/http
			r.URL = &at
		}
		inner.ServeHTTP(w, r)
	})
}

// LocalHandler serves requests of the owner of the data directory, which come over the
// unix socket or from this process.
func (s *Server) LocalHandler(actor string) http.Handler { return asLocal(s.Handler(), actor) }

// withKey answers only requests that show the key, as a bearer token. A process that can
// open the socket, such as one of a run, need not be the owner's.
func (s *Server) withKey(key string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(shown[:], want[:]) != 1 {
			s.seldom.say("socket without key", func(times int) {
				s.cfg.Logger.Warn("the local socket was asked without the key of this server (admin.key)", "times", times)
			})
			http.Error(w, "show the contents of admin.key, in the data directory, as a bearer token", http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		next.ServeHTTP(w, r)
	})
}

// recover answers a panic with a problem. It logs the text of the panic only if that is an
// error, and otherwise only its type, because the value may hold anything.
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
