package gateway

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

const forgeToken = "c4nary-of-the-forge"

// gatewayWorld is a gateway that serves, with a forge that has the private repository
// /example/app.git.
type gatewayWorld struct {
	t       testing.TB
	gateway *Gateway
	forge   *gittest.Server
	root    string // of the forge
	address string // of the gateway
	host    string // of the forge
	end     func() // returns when Serve has returned

	mu    sync.Mutex
	asked []string // of the forge

	pushed []event.Push
	pulled []event.Request
}

func startGateway(t testing.TB, readOnly bool) *gatewayWorld {
	t.Helper()
	return startGatewayWith(t, readOnly, task.Pushes{Branches: []string{"main", "*"}, Max: 3, MaxBytes: 1 << 30})
}

func startGatewayWith(t testing.TB, readOnly bool, rules task.Pushes) *gatewayWorld {
	t.Helper()
	w := &gatewayWorld{t: t, root: t.TempDir()}
	gittest.Git(t, w.root, "init", "-q", "--bare", "-b", "main", "example/app.git")
	gittest.Git(t, filepath.Join(w.root, "example/app.git"), "config", "http.receivepack", "true")
	w.forge = gittest.Serve(t, w.root)
	w.forge.Basic("x-access-token", forgeToken)
	w.host = w.forge.Listener.Addr().String()
	w.fault(func(http.ResponseWriter, *http.Request) bool { return false })
	pool := x509.NewCertPool()
	pool.AddCert(w.forge.Certificate())
	var err error
	w.gateway, err = NewGateway(GatewayConfig{
		Repositories: []Repository{{URL: w.forge.URL + "/example/app.git", Secret: "FORGE", Credential: secret.New(forgeToken), ReadOnly: readOnly}},
		Roots:        pool, Report: func(event.Egress) {}, Pushes: rules,
		Pushed: func(e event.Push) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pushed = append(w.pushed, e)
		},
		Pulled: func(e event.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pulled = append(w.pulled, e)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.gateway.Serve(ctx, l) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error("serving:", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// fault lets the forge answer by itself where the function returns true.
func (w *gatewayWorld) fault(answer func(http.ResponseWriter, *http.Request) bool) {
	w.forge.Fault(func(rw http.ResponseWriter, r *http.Request) bool {
		w.mu.Lock()
		w.asked = append(w.asked, r.Method+" "+r.URL.String())
		w.mu.Unlock()
		return answer(rw, r)
	})
}

func (w *gatewayWorld) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// ask sends a request for a path of the forge, and returns the answer with its text.
func (w *gatewayWorld) ask(method, path, authorization string) (*http.Response, string) {
	w.t.Helper()
	return w.send(method, path, authorization, "")
}

func (w *gatewayWorld) send(method, path, authorization, body string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.URL.Opaque = "/" + w.host + path // as it is
	r.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if all := fmt.Sprint(resp.Header) + string(text); strings.Contains(all, forgeToken) {
		w.t.Errorf("%s %s: the answer has the token: %s", method, path, all)
	}
	return resp, string(text)
}

func (w *gatewayWorld) bearer() string { return "Bearer " + w.gateway.token }

const refs = "/info/refs?service=git-upload-pack"

// TestGatewayAnswers: only who has the token is answered, and only what Git needs of the one
// repository is passed on.
func TestGatewayAnswers(t *testing.T) {
	w := startGateway(t, true)
	if resp, text := w.ask(http.MethodGet, "/example/app.git"+refs, w.bearer()); resp.StatusCode != http.StatusOK || !strings.Contains(text, "git-upload-pack") {
		t.Fatalf("%s %q", resp.Status, text)
	}
	if resp, _ := w.ask(http.MethodGet, "/example/app"+refs+"&secret=x", w.bearer()); resp.StatusCode != http.StatusOK {
		t.Errorf("without .git: %s", resp.Status)
	}
	if got := w.seen(); !slices.Equal(got, []string{"GET /example/app.git" + refs, "GET /example/app.git" + refs}) {
		t.Fatalf("the forge was asked for %q", got)
	}
	for _, authorization := range []string{"", "Bearer ", "Bearer wrong", "Basic " + w.gateway.token, "Bearer " + w.gateway.token[1:], "Bearer " + w.gateway.token + "x"} {
		if resp, text := w.ask(http.MethodGet, "/example/app.git"+refs, authorization); resp.StatusCode != http.StatusForbidden {
			t.Errorf("with %q: %s %q", authorization, resp.Status, text)
		}
	}
	for _, request := range []string{
		"GET /example/app.git/HEAD", "GET /example/app.git/info/refs", "GET /example/app.git/objects/info/packs", "GET /example/app.git/git-upload-pack",
		"POST /example/app.git/info/refs?service=git-upload-pack", "PUT /example/app.git/git-upload-pack", "GET /example/app.git",
		"POST /example/app.git/info/lfs/objects/batch", "POST /example/app.git/git-upload-archive", "GET /example/app.git/info/refs?service=git-upload-pack/../../..",
		"GET /example/app.git/../other.git" + refs, "GET /example/app.git/%2e%2e/other.git" + refs, "GET /example/app.git//info/refs?service=git-upload-pack",
		"GET /example/app.git.git" + refs, "GET /other/app.git" + refs, "GET /", "POST /example/app-of-others.git/git-upload-pack",
		"GET /example/app.git/info/refs?service=git-receive-pack", "POST /example/app.git/git-receive-pack",
	} {
		method, path, _ := strings.Cut(request, " ")
		resp, text := w.ask(method, path, w.bearer())
		if resp.StatusCode < 400 && resp.Header.Get("Location") != w.forge.URL+path {
			t.Errorf("%s: %s %v %q", request, resp.Status, resp.Header, text)
		}
	}
	if got := w.seen(); len(got) > 2 {
		t.Errorf("the forge was asked for %q", got[2:])
	}
	// A repository whose name begins the same is not this one.
	resp, _ := w.ask(http.MethodGet, "/example/app-of-others.git"+refs, w.bearer())
	if want := w.forge.URL + "/example/app-of-others.git" + refs; resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Location") != want {
		t.Errorf("another repository: %s %v", resp.Status, resp.Header)
	}
}

// TestGatewayForge: what a forge answers reaches the run without the credential, and is
// explained.
func TestGatewayForge(t *testing.T) {
	var elsewhere int
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		status int
		want   string
	}{
		{"the token comes back", func(rw http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			http.Error(rw, "no "+password+" "+r.Header.Get("Authorization"), http.StatusForbidden)
		}, http.StatusForbidden, "refuses the secret FORGE (403 Forbidden: no [redacted]"},
		{"headers", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Set-Cookie", "session="+r.Header.Get("Authorization"))
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(rw, "refs")
		}, http.StatusOK, "refs"},
		{"to another host", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, other.URL+r.URL.String(), http.StatusMovedPermanently)
		}, http.StatusForbidden, "has moved to " + other.URL + "/example/app.git, where the secret FORGE is not sent"},
		{"to another repository", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/example/new.git/info/refs", http.StatusFound)
		}, http.StatusForbidden, "/example/new.git, where the secret"},
		{"not there", http.NotFound, http.StatusForbidden, "404 Not Found"},
		{"down", func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "<b>sorry</b>", http.StatusServiceUnavailable)
		}, http.StatusForbidden, "answers 503 Service Unavailable"},
		{"hung up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusBadGateway, "/example/app.git cannot be reached: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startGateway(t, false)
			w.fault(func(rw http.ResponseWriter, r *http.Request) bool { tt.answer(rw, r); return true })
			resp, text := w.ask(http.MethodGet, "/example/app.git"+refs, w.bearer())
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) || resp.Header.Get("Set-Cookie")+resp.Header.Get("Location") != "" {
				t.Errorf("%s %v %q, want %d %q", resp.Status, resp.Header, text, tt.status, tt.want)
			}
			if problem := w.gateway.Problem(); (problem == nil) != (tt.status == http.StatusOK) {
				t.Errorf("the problem is %v", problem)
			}
		})
	}
	if elsewhere > 0 {
		t.Error("a redirect was followed")
	}
}

// TestGatewaySlowForge: a forge that is silent does not keep a run waiting for ever.
func TestGatewaySlowForge(t *testing.T) {
	w := startGateway(t, false)
	w.gateway.proxy.idle = 50 * time.Millisecond
	w.fault(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	if resp, text := w.ask(http.MethodGet, "/example/app.git"+refs, w.bearer()); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, "timeout") {
		t.Errorf("%s %q", resp.Status, text)
	}
}

// TestGatewayEnds: with the run, requests in progress end, at the forge too.
func TestGatewayEnds(t *testing.T) {
	w := startGateway(t, false)
	began, ended := make(chan bool), make(chan bool)
	w.fault(func(_ http.ResponseWriter, r *http.Request) bool {
		began <- true
		<-r.Context().Done()
		close(ended)
		return true
	})
	failed := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.address+"/"+w.host+"/example/app.git"+refs, nil)
		if err == nil {
			r.Header.Set("Authorization", w.bearer())
			var resp *http.Response
			if resp, err = http.DefaultTransport.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
				err = fmt.Errorf("answered %s", resp.Status)
			}
		}
		failed <- err
	}()
	<-began
	w.end()
	<-ended
	if err := <-failed; err == nil {
		t.Error("the request did not fail")
	}
	if conn, err := net.Dial("tcp", w.address); err == nil {
		_ = conn.Close()
		t.Error("the gateway still listens")
	}
}

// git runs Git as inside the walls.
func (w *gatewayWorld) git(dir string, args ...string) (string, error) {
	return w.inside(dir, "git", args...)
}

// inside runs a program as inside the walls: with the settings of the gateway alone.
func (w *gatewayWorld) inside(dir, program string, args ...string) (string, error) {
	settings := filepath.Join(w.t.TempDir(), "gitconfig") // its own, because programs run side by side
	if err := os.WriteFile(settings, []byte(w.gateway.Settings(w.address)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	c := exec.CommandContext(w.t.Context(), program, args...)
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.root, "GIT_CONFIG_SYSTEM=" + settings, "GIT_TERMINAL_PROMPT=0", "TRIPHAMMER_ARTIFACTS=" + w.root}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		c.Env = append(c.Env, "GIT_"+who+"_NAME=a", "GIT_"+who+"_EMAIL=a@example.com")
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestGatewayStreams: packs pass both ways, and are never in memory.
func TestGatewayStreams(t *testing.T) { gatewayStreams(t, 8<<20) }

func gatewayStreams(t *testing.T, size int64) {
	t.Helper()
	w := startGateway(t, false)
	// CGI takes no body of unknown length.
	chunked := false
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); len(r.TransferEncoding) == 0 || user != "x-access-token" || password != forgeToken {
			return false
		}
		chunked = true
		file, err := os.CreateTemp(w.root, "pack")
		if err != nil {
			t.Error(err)
			return false
		}
		defer func() { _ = file.Close() }()
		n, err := io.Copy(file, r.Body)
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			t.Error(err)
		}
		r.Body, r.ContentLength, r.TransferEncoding = file, n, nil
		w.forge.Backend.ServeHTTP(rw, r)
		return true
	})
	work := filepath.Join(w.root, "work")
	gittest.Git(t, w.root, "init", "-q", "-b", "main", work)
	file, err := os.Create(filepath.Join(work, "big"))
	if err == nil {
		_, err = io.CopyN(file, rand.Reader, size)
		_ = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, work, "-c", "core.compression=0", "add", ".")
	gittest.Git(t, work, "commit", "-q", "-m", "big")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if out, err := w.git(work, "-c", "core.compression=0", "push", "-q", w.forge.URL+"/example/app.git", "main"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := w.git(w.root, "clone", "-q", w.forge.URL+"/example/app", "clone"); err != nil {
		t.Fatal(err, out)
	}
	runtime.ReadMemStats(&after)
	// Whoever reads a whole pack allocates twice as much, and the race detector half as much.
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(size*3/2) {
		t.Errorf("%d MB were allocated for packs of %d MB", used>>20, size>>20)
	}
	if info, err := os.Stat(filepath.Join(w.root, "clone", "big")); err != nil || info.Size() != size || !chunked {
		t.Errorf("%v: what was cloned: %v, chunked %v", err, info, chunked)
	}
}

// TestGatewayThroughProxy: a server that reaches forges by a proxy of its operator does so for
// its runs.
func TestGatewayThroughProxy(t *testing.T) {
	w := startGateway(t, false)
	operators := start(t, []string{w.host}, nil)
	w.gateway.transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: operators.inside()})
	if resp, text := w.ask(http.MethodGet, "/example/app.git"+refs, w.bearer()); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %q", resp.Status, text)
	}
	operators.mu.Lock()
	defer operators.mu.Unlock()
	if len(operators.events) != 1 || !operators.events[0].Allowed {
		t.Errorf("the proxy saw %+v", operators.events)
	}
}
