package gateway

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/inside/relay"

	"triphammer/applier/gitrepo/gittest"
)

// inside starts a forwarder to the proxy and returns its address.
func (w *world) inside() string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Forward(ctx, l, w.socket) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestGitPassesProxy: git clones by https through the forwarder, by the variables alone, and
// is told why it may not.
func TestGitPassesProxy(t *testing.T) {
	root := t.TempDir()
	gittest.Git(t, root, "init", "--bare", "--initial-branch=main", "site.git")
	gittest.Git(t, root, "init", "--initial-branch=main", "work")
	work := filepath.Join(root, "work")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, work, "add", ".")
	gittest.Git(t, work, "commit", "-m", "begin")
	gittest.Git(t, work, "push", filepath.Join(root, "site.git"), "main")
	server := gittest.Serve(t, root)
	port := portOf(server.URL)
	w := start(t, []string{"example.com:" + port}, func(w *world) {
		w.to = server.Listener.Addr().String()
		w.answers["example.com"] = []string{"93.184.215.14"}
	})
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_SSL_CAINFO=" + server.CAFile, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1"}
	for name, value := range Environ(w.inside()) {
		env = append(env, name+"="+value)
	}
	clone := func(host string) (string, error) {
		c := exec.CommandContext(t.Context(), "git", "clone", "https://"+host+":"+port+"/site.git", filepath.Join(t.TempDir(), "clone"))
		c.Env = env
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := clone("example.com"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := clone("evil.example"); err == nil || !strings.Contains(out, "403") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEnviron: every program finds the proxy under the name that it reads.
func TestEnviron(t *testing.T) {
	vars := Environ("127.0.0.1:3128")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "YARN_HTTPS_PROXY"} {
		if u, err := url.Parse(vars[name]); err != nil || u.Host != "127.0.0.1:3128" || u.Scheme != "http" {
			t.Errorf("%s is %q", name, vars[name])
		}
	}
	if vars["NODE_USE_ENV_PROXY"] != "1" || !strings.Contains(vars["no_proxy"], "127.0.0.1") || vars["NO_PROXY"] != vars["no_proxy"] {
		t.Error(vars)
	}
}
