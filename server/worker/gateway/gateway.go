package gateway

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"triphammer/factory/hosts"
	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// Repository is a Git repository that a run reaches by a Gateway.
type Repository struct {
	URL        string // https://…, or http://… on this machine
	Secret     string // name of the credential, for messages
	Credential secret.Value
	// Mint makes the credential for each request, if it ends while the run goes on; nil: it is
	// Credential.
	Mint     func(context.Context) (task.Minted, error)
	ReadOnly bool
	Branch   string // of the pull request that the event of the run is about; empty: there is none
}

// GatewayConfig is what NewGateway needs.
type GatewayConfig struct {
	Repositories []Repository
	Roots        *x509.CertPool      // root certificates for the forges; nil: the system's
	Own          []netip.AddrPort    // addresses on which this server listens
	Report       func(event.Egress)  // like Config.Report
	Resolver     Resolver            // nil means net.DefaultResolver
	Token        string              // the run must show it; empty: a random token
	Pushes       task.Pushes         // what the run may push
	Pushed       func(event.Push)    // takes each update that the run asks for; nil: nobody is told
	Pulled       func(event.Request) // takes each pull request that the run opens, and if it has bounds, each that it asks for; nil: nobody is told

	Mirrors *Mirrors // what this worker keeps of repositories; nil: nothing
	Factory string   // whose run it is; other factories have other mirrors

	Services []task.Service
	Meter    task.Meter         // counts the requests to models; nil: nobody counts
	Tell     func(event.Status) // takes what went wrong with services; nil: nobody is told
}

// Gateway is the way of one run to what needs a credential: private repositories, models and
// other services (service.go). For repositories it is a Git server outside the walls, which
// passes requests on to the code forge and adds the credential. So Git works inside, and the
// credential is not there.
//
// It also opens pull requests (pull.go).
//
// It answers only requests with its token, because other runs and programs of the machine may
// reach its address. The token is inside the walls, and is worth nothing once the run has
// ended. A run can do only what Git needs, and only with these repositories. Nothing that the
// run sends becomes a part of an address to which the credential goes, and the gateway follows
// no redirect. The network of the run need not allow the host, because the definition names
// it; otherwise the rules of a [Proxy] hold.
type Gateway struct {
	proxy     *Proxy // connects, and reports
	token     string
	served    []*served
	transport *http.Transport
	pushes    *pushes
	services  *services
	mirrors   *Mirrors
	factory   string

	mu      sync.Mutex
	problem error
}

// served is a repository of a gateway.
type served struct {
	Repository
	url   *url.URL    // without a user
	path  string      // on the gateway, without .git: /HOST/PATH
	fixed *credential // nil: it is minted
	main  string      // the default branch, once the forge has told it; of the push that has the turn

	mirrored atomic.Int32 // requests that were for its mirror

	mu   sync.Mutex
	kind *pullAPI // once the host has told it
	root string   // the path below which the forge is, on a host that has more than the forge
}

// credential is what a request to a forge proves itself with.
type credential struct {
	token string
	basic string // Authorization
	hide  *secret.Redactor
	// forget makes the next credential another one; nil: it stays.
	forget func()
}

// took looks at an answer of a forge: of a credential that it does not take, there may be another.
func (c *credential) took(resp *http.Response) {
	if resp.StatusCode == http.StatusUnauthorized && c.forget != nil {
		c.forget()
	}
}

// usernames are the user names for tokens without one, at forges that do not take
// usualUsername.
var usernames = map[string]string{"gitlab.com": "oauth2", "bitbucket.org": "x-token-auth"}

const usualUsername = "x-access-token" // GitHub's; other forges take any name

// NewGateway makes a gateway. The error says which repository has no usable credential.
func NewGateway(cfg GatewayConfig) (*Gateway, error) {
	g := &Gateway{token: cmp.Or(cfg.Token, secret.RandomText(43)), pushes: newPushes(cfg), mirrors: cfg.Mirrors, factory: cfg.Factory}
	var listed []string
	for _, r := range cfg.Repositories {
		s, err := newServed(r)
		if err != nil {
			return nil, err
		}
		twin := slices.IndexFunc(g.served, func(other *served) bool { return other.path == s.path })
		switch {
		case twin < 0:
			g.served, listed = append(g.served, s), append(listed, address(s.url))
			if s.url.Host == "github.com" {
				listed = append(listed, githubAPI+":443")
			}
		case !g.served[twin].sameCredential(s) || g.served[twin].ReadOnly != s.ReadOnly:
			return nil, fmt.Errorf("the repository %s is named twice, with different secrets or access: name both alike", s.url)
		}
	}
	var err error
	if g.services, err = newServices(cfg); err != nil {
		return nil, err
	}
	for _, s := range g.services.all {
		listed = append(listed, address(s.url))
	}
	if g.proxy, err = New(Config{Hosts: listed, Own: cfg.Own, Report: cfg.Report, Resolver: cfg.Resolver}); err != nil {
		return nil, err
	}
	g.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			h, err := hosts.ParseHost(to, 0)
			if err != nil {
				return nil, err
			}
			if g.proxy.list.Match(h) == hosts.None { // the operator's own proxy
				return g.proxy.dial(ctx, network, to)
			}
			return g.proxy.connect(ctx, h)
		},
		TLSHandshakeTimeout: connectTime, IdleConnTimeout: keepTime, DisableCompression: true, MaxResponseHeaderBytes: 4 * maxHeader,
	}
	g.services.connect(g.transport)
	return g, nil
}

func address(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
}

func newServed(r Repository) (*served, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && onLoopback(u.Hostname())) {
		return nil, fmt.Errorf("the secret %s goes only to a repository with an address such as https://HOST/PATH", r.Secret)
	}
	s := &served{Repository: r, url: u}
	if r.Mint == nil {
		if s.fixed, err = s.credential(r.Credential); err != nil {
			return nil, err
		}
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	s.path = "/" + u.Host + strings.TrimSuffix(u.Path, ".git")
	return s, nil
}

// credential reads the value of a secret: a token, or USER:TOKEN.
func (s *served) credential(v secret.Value) (*credential, error) {
	user, token, both := strings.Cut(strings.TrimSpace(v.Reveal()), ":")
	if !both {
		user, token = cmp.Or(s.url.User.Username(), usernames[s.url.Hostname()], usualUsername), user
	}
	if token == "" || strings.ContainsFunc(user+token, unicode.IsControl) {
		return nil, fmt.Errorf("the secret %s does not hold one line with a token, or USER:TOKEN, for the repository %s: set it again with `triphammer secrets set %s` (a private key does not do)",
			s.Secret, s.url.Redacted(), s.Secret)
	}
	return &credential{
		token: token, basic: "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token)),
		hide: secret.NewRedactor(secret.New(token), secret.New(user+":"+token)),
	}, nil
}

// current is the credential for a request now. It does not outlive the request.
func (s *served) current(ctx context.Context) (*credential, error) {
	if s.fixed != nil {
		return s.fixed, nil
	}
	minted, err := s.Mint(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.credential(minted.Token)
	if err == nil {
		c.forget = minted.Forget
	}
	return c, err
}

func (s *served) sameCredential(other *served) bool {
	if s.fixed == nil || other.fixed == nil {
		return s.fixed == other.fixed && s.Secret == other.Secret
	}
	return s.fixed.basic == other.fixed.basic
}

// onLoopback tells whether a host is this machine, by its name.
func onLoopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.IsLoopback()
}

// Settings are settings that make Git go through the gateway, at an address HOST:PORT. A URL in
// a clone stays as in the definition. The token is in a header, because everybody can read the
// command lines of Git, which have the URL.
func (g *Gateway) Settings(address string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[http \"http://%s/\"]\n\textraHeader = \"Authorization: Bearer %s\"\n", address, g.token)
	for _, s := range g.served {
		to := url.URL{Scheme: "http", Host: address, Path: s.path}
		fmt.Fprintf(&b, "[url %s]\n", quoted(to.String()))
		// Match the URL with and without .git and its user.
		given := strings.TrimSuffix(strings.TrimRight(s.URL, "/"), ".git")
		plain := strings.TrimSuffix(s.url.String(), ".git")
		for _, from := range slices.Compact([]string{given, plain}) {
			fmt.Fprintf(&b, "\tinsteadOf = %s\n", quoted(from))
		}
	}
	return b.String()
}

// quoted is a value in a file of settings of Git.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// Problem is the last reason why a forge did not serve this run; nil: there was none.
func (g *Gateway) Problem() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.problem
}

// failed keeps the reason why a forge did not serve this run.
func (g *Gateway) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problem = err
}

// Serve serves the run until ctx ends, like Proxy.Serve.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	defer g.transport.CloseIdleConnections()
	defer g.services.transport.CloseIdleConnections()
	return g.proxy.serve(ctx, l, g)
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.proxy.handlers.Add(1)
	defer g.proxy.handlers.Done()
	if strings.HasPrefix(r.URL.EscapedPath(), task.ServicePath) {
		g.services.ServeHTTP(w, r)
		return
	}
	shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(shown), []byte(g.token)) != 1 {
		w.Header().Set("Connection", "close")
		answer(w, http.StatusForbidden, errors.New("this is the gateway of a run to its repositories, for Git of that run alone"))
		return
	}
	var other *served // its address is a prefix of the requested address
	for _, s := range g.served {
		rest, ok := strings.CutPrefix(r.URL.Path, s.path)
		if !ok {
			continue
		}
		if rest = strings.TrimPrefix(rest, ".git"); strings.HasPrefix(rest, "/") {
			g.pass(w, r, s, rest)
			return
		}
		other = s
	}
	if other == nil || r.Method != http.MethodGet {
		answer(w, http.StatusNotFound, errors.New("this gateway has no such repository"))
		return
	}
	// The request is for another repository, which Git would reach without a gateway.
	to := *other.url
	to.Path = strings.TrimPrefix(r.URL.Path, "/"+to.Host)
	to.RawQuery = r.URL.RawQuery
	http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
}

const (
	fetching = "git-upload-pack"
	pushing  = "git-receive-pack"
)

// pass passes on a request of Git that is part of a fetch or a push, and refuses others.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, s *served, rest string) {
	to := *s.url
	to.Path += rest
	service := strings.TrimPrefix(rest, "/")
	if rest == "/info/refs" {
		service = r.URL.Query().Get("service")
		to.RawQuery = url.Values{"service": {service}}.Encode()
	}
	writes := service == pushing || rest == pulls
	switch {
	case rest == pulls && g.pushes.rules.Waits > 0:
		answer(w, http.StatusForbidden, fmt.Errorf("what leaves this run waits for the approval of a person: ask for the pull request with the tool %s (outputs of the automation)", output.Pull))
		return
	case writes && s.ReadOnly:
		answer(w, http.StatusForbidden, fmt.Errorf("%s is read-only for this run: its environment says access: read, or the run works on the code of another repository", s.url))
		return
	case rest == pulls && r.Method == http.MethodPost:
		g.openPull(w, r, s)
		return
	case service != fetching && service != pushing, r.Method != map[bool]string{true: http.MethodGet, false: http.MethodPost}[rest == "/info/refs"]:
		answer(w, http.StatusForbidden, fmt.Errorf("a run reaches %s to fetch and to push with Git, not for %s %s (Git LFS is not passed on)", s.url, r.Method, clip(rest)))
		return
	}
	c, err := s.current(r.Context())
	if err != nil {
		g.failed(err)
		answer(w, http.StatusForbidden, fmt.Errorf("there is no credential for %s: %w", s.url, err))
		return
	}
	proxy := g.toForge(s, c, service, &to)
	if rest == "/"+pushing {
		g.push(w, r, s, c, proxy)
		return
	}
	if rest != "/"+fetching || !g.mirrored(w, r, s, c) {
		proxy.ServeHTTP(w, r)
	}
}

// toForge passes on a request of Git to a forge, with the credential.
func (g *Gateway) toForge(s *served, c *credential, service string, to *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, ""
			p.Out.Header = chosen(p.In.Header, "Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding", "Content-Type", "Git-Protocol", "User-Agent")
			p.Out.Header.Set("Authorization", c.basic)
			if service == pushing { // the forge's report is read
				p.Out.Header.Del("Accept-Encoding")
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			c.took(resp)
			if resp.StatusCode != http.StatusOK {
				return s.refused(resp, service, c)
			}
			resp.Header = chosen(resp.Header, "Cache-Control", "Content-Encoding", "Content-Type")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusForbidden // after a 401, Git would ask for a password
			if no := (*forgeRefusal)(nil); !errors.As(err, &no) {
				status, err = http.StatusBadGateway, s.unreached(err)
			}
			g.failed(err)
			answer(w, status, err)
		},
		Transport: g.transport, ErrorLog: nowhere,
		FlushInterval: -1, // Git sees progress when the forge tells it
	}
}

func chosen(all http.Header, names ...string) http.Header {
	some := make(http.Header)
	for _, name := range names {
		if values := all.Values(name); len(values) > 0 {
			some[name] = values
		}
	}
	return some
}

// forgeRefusal is the error for an answer that Git cannot use.
type forgeRefusal struct{ text string }

func (e *forgeRefusal) Error() string { return e.text }

// refused explains an answer of a forge, and says what to do.
func (s *served) refused(resp *http.Response, service string, c *credential) error {
	said := resp.Status
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/plain" && resp.Header.Get("Content-Encoding") == "" {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if text := clip(string(c.hide.Redact(text))); text != "" {
			said += ": " + text
		}
	}
	may := map[string]string{fetching: "read", pushing: "write to"}[service]
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound:
		if s.fixed == nil {
			return &forgeRefusal{fmt.Sprintf("%s refuses the token of the GitHub App of the secret %s (%s): the App may not %s this repository", s.url, s.Secret, said, may)}
		}
		return &forgeRefusal{fmt.Sprintf("%s refuses the secret %s (%s): it takes a token that is valid, and that may %s this repository; set one with `triphammer secrets set %s`",
			s.url, s.Secret, said, may, s.Secret)}
	case code >= 300 && code < 400:
		to := "another address"
		if u, err := resp.Location(); err == nil {
			moved := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/info/refs")}
			to = clip(string(c.hide.Redact([]byte(moved.String()))))
		}
		return &forgeRefusal{fmt.Sprintf("%s has moved to %s, where the secret %s is not sent: if that is right, write it as the url of the repository", s.url, to, s.Secret)}
	}
	return &forgeRefusal{fmt.Sprintf("%s answers %s", s.url, said)}
}

// unreached says why the forge gave no answer.
func (s *served) unreached(err error) error {
	if no := (*refusal)(nil); errors.As(err, &no) {
		return fmt.Errorf("%s may not be reached: %s", s.url, no.reason)
	}
	hint := ""
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		hint = " (the server can be told of a certificate with --git-ca-file)"
	}
	return fmt.Errorf("%s cannot be reached: %w%s", s.url, plain(err), hint)
}

// clip is a stranger's text on one short line.
func clip(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}
