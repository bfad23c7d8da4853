// Package githubtest serves tests as GitHub does: Apps, installation tokens, the flow that makes
// an App from a manifest, and private repositories. It is made from GitHub's published API.
package githubtest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/githubapp"
	"triphammer/server/secret"
)

// Grant is a token that was minted.
type Grant struct {
	Token       string
	Repository  string // OWNER/NAME
	Permissions map[string]string
	Expires     time.Time
}

// Server is a GitHub on this machine, with one App.
type Server struct {
	*httptest.Server
	ID  int64
	PEM string // private key of the App

	// Set these before the server is asked, or with Change.
	Installed   map[string]int64  // installations by repository, OWNER/NAME
	Permissions map[string]string // of the App and its installations
	Suspended   bool
	Life        time.Duration // of tokens
	Now         func() time.Time
	Fault       func(http.ResponseWriter, *http.Request) bool // answers instead where it returns true

	key *rsa.PrivateKey
	git http.Handler

	mu     sync.Mutex
	grants []Grant
	asked  []string
	used   map[string]bool           // tokens with which Git was served
	codes  map[string]map[string]any // manifests by the code of their conversion
}

var (
	keyOnce sync.Once
	testKey *rsa.PrivateKey
)

// Key is a private key for tests.
func Key(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	keyOnce.Do(func() {
		var err error
		if testKey, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	})
	return testKey
}

// PEM is a private key as GitHub gives it.
func PEM(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// Start starts a GitHub until the test ends. root has the bare repositories OWNER/NAME.git; empty:
// there are none.
func Start(t testing.TB, root string) *Server {
	t.Helper()
	s := &Server{
		ID: 4711, key: Key(t), Installed: make(map[string]int64), codes: make(map[string]map[string]any), used: make(map[string]bool), Life: time.Hour, Now: time.Now,
		Permissions: map[string]string{"metadata": "read", "contents": "write", "pull_requests": "write", "issues": "write", "checks": "write", "members": "read"},
	}
	s.PEM = PEM(s.key)
	if root != "" {
		s.git = gittest.Serve(t, root).Backend
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// API is the address of the API.
func (s *Server) API() string { return s.URL + "/api/v3" }

// Secret is the value of a managed secret that is the App.
func (s *Server) Secret(t testing.TB) secret.Value {
	t.Helper()
	v, err := githubapp.Value(s.ID, s.PEM, s.API())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Change changes the server while it may be asked.
func (s *Server) Change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Grants are the tokens that were minted, in order.
func (s *Server) Grants() []Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.grants)
}

// Asked are the requests so far.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	fault := s.Fault
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	path, isAPI := strings.CutPrefix(r.URL.Path, "/api/v3")
	part := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case !isAPI && strings.HasSuffix(r.URL.Path, "/settings/apps/new"):
		s.newApp(w, r)
	case !isAPI:
		s.serveGit(w, r)
	case len(part) == 3 && part[0] == "app-manifests" && part[2] == "conversions" && r.Method == http.MethodPost:
		s.convert(w, part[1])
	case path == "/app" || part[len(part)-1] == "installation" || len(part) == 4 && part[3] == "access_tokens":
		s.asApp(w, r, part)
	default:
		s.asInstallation(w, r, path)
	}
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func problem(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"message": message, "documentation_url": "https://docs.github.com/rest"})
}

// proved tells whether a request is the App's, by the signature and the times of its proof.
func (s *Server) proved(r *http.Request) bool {
	part := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if len(part) != 3 {
		return false
	}
	text, _ := base64.RawURLEncoding.DecodeString(part[1])
	signature, _ := base64.RawURLEncoding.DecodeString(part[2])
	var claims struct {
		Issuer   string `json:"iss"`
		From, To int64
		IssuedAt int64 `json:"iat"`
		Expires  int64 `json:"exp"`
	}
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	now := s.Now().Unix()
	return json.Unmarshal(text, &claims) == nil && claims.Issuer == strconv.FormatInt(s.ID, 10) &&
		claims.IssuedAt <= now && claims.Expires > now && claims.Expires-now <= 600 &&
		rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, sum[:], signature) == nil
}

func (s *Server) asApp(w http.ResponseWriter, r *http.Request, part []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.proved(r) {
		problem(w, http.StatusUnauthorized, "A JSON web token could not be decoded")
		return
	}
	switch part[len(part)-1] {
	case "app":
		answer(w, http.StatusOK, map[string]any{
			"id": s.ID, "slug": "acme-hammer", "html_url": s.URL + "/apps/acme-hammer", "permissions": s.Permissions, "events": []string{"issues"},
		})
	case "installation":
		id, is := s.Installed[strings.Join(part[1:len(part)-1], "/")]
		if !is {
			problem(w, http.StatusNotFound, "Not Found")
			return
		}
		told := map[string]any{"id": id, "app_slug": "acme-hammer", "html_url": fmt.Sprint(s.URL, "/settings/installations/", id), "permissions": s.Permissions, "suspended_at": nil}
		if s.Suspended {
			told["suspended_at"] = "2026-01-01T00:00:00Z"
		}
		answer(w, http.StatusOK, told)
	case "access_tokens":
		s.mint(w, r, part[2])
	}
}

func (s *Server) mint(w http.ResponseWriter, r *http.Request, installation string) {
	var asked struct {
		Repositories []string
		Permissions  map[string]string
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Repositories) > 1 {
		problem(w, http.StatusUnprocessableEntity, "this test wants one repository")
		return
	}
	for name, id := range s.Installed {
		if strconv.FormatInt(id, 10) != installation || strings.Join(append([]string{""}, asked.Repositories...), "/") != name[len(strings.SplitN(name, "/", 2)[0]):] {
			continue
		}
		if lacking := githubapp.Lacking(asked.Permissions, s.Permissions); len(lacking) > 0 {
			problem(w, http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
			return
		}
		g := Grant{"ghs_" + strings.ToLower(rand.Text()) + rand.Text(), name, asked.Permissions, s.Now().Add(s.Life)}
		s.grants = append(s.grants, g)
		answer(w, http.StatusCreated, map[string]any{"token": g.Token, "expires_at": g.Expires.UTC().Format(time.RFC3339), "permissions": asked.Permissions})
		return
	}
	problem(w, http.StatusNotFound, "Not Found")
}

// Granted tells whether a token may do something with a repository now.
func (s *Server) Granted(token, repository, permission, level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.grants, func(g Grant) bool {
		return g.Token == token && g.Repository == repository && s.Now().Before(g.Expires) &&
			len(githubapp.Lacking(map[string]string{permission: level}, g.Permissions)) == 0
	})
}

// Used tells whether Git was served with a token.
func (s *Server) Used(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used[token]
}

// asInstallation answers a request for data of a repository.
func (s *Server) asInstallation(w http.ResponseWriter, r *http.Request, path string) {
	part := strings.SplitN(strings.Trim(path, "/"), "/", 4)
	if len(part) == 4 && part[0] == "orgs" && s.Granted(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), part[1], "members", "read") {
		answer(w, http.StatusOK, map[string]any{"state": "active", "user": map[string]any{"id": 1, "login": part[3]}})
		return
	}
	if len(part) == 3 && part[0] == "repos" && r.Method == http.MethodGet && s.Granted(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), part[1]+"/"+part[2], "metadata", "read") {
		answer(w, http.StatusOK, map[string]any{"default_branch": "main"})
		return
	}
	if len(part) < 4 || part[0] != "repos" {
		problem(w, http.StatusForbidden, "Resource not accessible by integration")
		return
	}
	level := "read"
	if r.Method != http.MethodGet {
		level = "write"
	}
	permission := map[string]string{"pulls": "pull_requests", "issues": "issues", "check-runs": "checks"}[strings.SplitN(part[3], "/", 2)[0]]
	if !s.Granted(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), part[1]+"/"+part[2], permission, level) {
		problem(w, http.StatusForbidden, "Resource not accessible by integration")
		return
	}
	if strings.HasSuffix(path, "/files") {
		answer(w, http.StatusOK, []map[string]string{{"filename": "docs/a.md"}})
		return
	}
	answer(w, http.StatusOK, map[string]any{"number": 7, "user": map[string]string{"login": "ada"}, "labels": []map[string]string{{"name": "bug"}}})
}

// serveGit serves private repositories with Git.
func (s *Server) serveGit(w http.ResponseWriter, r *http.Request) {
	name, _, is := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	level := "read"
	if r.URL.Query().Get("service") == "git-receive-pack" || strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		level = "write"
	}
	user, token, _ := r.BasicAuth()
	if s.git == nil || !is || user != "x-access-token" || !s.Granted(token, name, "contents", level) {
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		http.Error(w, "Repository not found.", http.StatusUnauthorized)
		return
	}
	s.Change(func() { s.used[token] = true })
	s.git.ServeHTTP(w, r)
}

// newApp is the page that makes an App from a manifest. It agrees at once.
func (s *Server) newApp(w http.ResponseWriter, r *http.Request) {
	var manifest map[string]any
	if err := json.Unmarshal([]byte(r.FormValue("manifest")), &manifest); err != nil || r.Method != http.MethodPost {
		http.Error(w, "no manifest", http.StatusBadRequest)
		return
	}
	back, err := url.Parse(fmt.Sprint(manifest["redirect_url"]))
	if err != nil {
		http.Error(w, "no redirect_url", http.StatusBadRequest)
		return
	}
	code := s.Code()
	s.Change(func() { s.codes[code] = manifest })
	q := back.Query()
	q.Set("code", code)
	if state := r.FormValue("state"); state != "" {
		q.Set("state", state)
	}
	back.RawQuery = q.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// Code is the code of an App that somebody has agreed to make.
func (s *Server) Code() string {
	code := rand.Text()
	s.Change(func() { s.codes[code] = map[string]any{"name": "made"} })
	return code
}

// convert makes the App of a manifest. A code counts once.
func (s *Server) convert(w http.ResponseWriter, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	manifest, is := s.codes[code]
	delete(s.codes, code)
	if !is {
		problem(w, http.StatusNotFound, "Not Found")
		return
	}
	answer(w, http.StatusCreated, map[string]any{
		"id": s.ID, "slug": "acme-hammer", "name": manifest["name"], "html_url": s.URL + "/apps/acme-hammer", "pem": s.PEM,
		"client_id": "Iv1.0123456789abcdef", "client_secret": strings.Repeat("c", 40), "webhook_secret": "the-secret-of-the-webhook-at-github",
		"permissions": manifest["default_permissions"], "events": manifest["default_events"],
	})
}
