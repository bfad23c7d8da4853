package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo/gittest"
)

const canary = "tok3n-c4nary"

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token+"\n")
	return file
}

func remote(t *testing.T, cfg RemoteConfig) *Remote {
	t.Helper()
	if cfg.Branch == "" {
		cfg.Branch = "main"
	}
	if cfg.Cache == "" {
		cfg.Cache = filepath.Join(t.TempDir(), "cache")
	}
	r, err := OpenRemote(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func remoteHead(t *testing.T, r *Remote, want string) {
	t.Helper()
	c, err := r.Head(t.Context())
	if err != nil || c.Hash != want {
		t.Fatalf("head %s, %v; want %s", c.Hash, err, want)
	}
	tree, err := r.Tree(t.Context(), want, ".")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(tree, "factory.yaml"); err != nil || !bytes.Contains(text, []byte("schemaVersion")) {
		t.Fatalf("factory.yaml is %q, %v", text, err)
	}
}

func refused(t *testing.T, r *Remote, want error, text string) {
	t.Helper()
	c, err := r.Head(t.Context())
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("head %q, %v; want %v with %q", c.Hash, err, want, text)
	}
	if err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("the error shows the credential: %v", err)
	}
}

// TestHTTPS: a branch is followed over https whatever happens to it, with each
// kind of credential, which is read at each attempt and is nowhere in the cache
// (SPEC 4.1, 4.8, 4.9).
func TestHTTPS(t *testing.T) {
	const branch = "release/2026"
	bare, work := clone(t, branch)
	s := gittest.Serve(t, filepath.Dir(bare))
	file := tokenFile(t, canary)
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Branch: branch, Credentials: Credentials{TokenFile: file, CAFile: s.CAFile}})
	s.Basic("", canary)
	first := runGit(t, work, "rev-parse", "HEAD")
	remoteHead(t, r, first)
	if repository, b := r.Describe(); repository != s.URL+"/factory.git" || b != branch {
		t.Errorf("described as %s %s", repository, b)
	}

	s.Bearer(canary)
	write(t, filepath.Join(work, "webhooks/a.yaml"), "secretName: S\n")
	second := commit(t, work, "Second")
	runGit(t, work, "push", "-q", "origin", branch)
	remoteHead(t, r, second)
	if n := runGit(t, r.Cache, "rev-list", "--count", branch); n != "1" {
		t.Errorf("the cache holds %s commits of history", n)
	}
	if out := runGit(t, r.Cache, "fsck", "--full"); strings.Contains(out, "missing") {
		t.Errorf("fsck of the cache: %s", out)
	}

	runGit(t, work, "reset", "-q", "--hard", "HEAD~1")
	forced := commit(t, work, "Forced")
	runGit(t, work, "push", "-qf", "origin", branch)
	remoteHead(t, r, forced)
	runGit(t, bare, "gc", "-q", "--prune=now")
	remoteHead(t, r, forced)
	runGit(t, work, "push", "-qf", "origin", first+":refs/heads/"+branch)
	remoteHead(t, r, first) // back to what the server holds, and the cache held once

	runGit(t, work, "push", "-q", "origin", first+":refs/heads/other")
	runGit(t, bare, "update-ref", "-d", "refs/heads/"+branch)
	refused(t, r, ErrNoBranch, "it has other")
	runGit(t, work, "push", "-q", "origin", forced+":refs/heads/"+branch)
	remoteHead(t, r, forced)

	// Credentials: refused, rotated, unreadable.
	s.Basic("deploy", "rotated")
	refused(t, r, ErrDenied, "--git-token-file")
	write(t, file, "rotated")
	refused(t, r, ErrDenied, "--git-username")
	r.Username = "deploy"
	remoteHead(t, r, forced)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused(t, r, ErrMisconfigured, "put the token there")
	r.TokenFile = ""
	refused(t, r, ErrDenied, "give --git-token-file")
	write(t, file, canary+"\n"+canary)
	r.TokenFile = file
	refused(t, r, ErrMisconfigured, "one line")

	err := filepath.WalkDir(r.Cache, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(s.URL)) {
			t.Errorf("%s names the remote or its credential", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// commitTo makes a commit in a bare repository.
func commitTo(t *testing.T, bare string) {
	t.Helper()
	tree := runGit(t, bare, "write-tree")
	runGit(t, bare, "update-ref", "HEAD", runGit(t, bare, "commit-tree", "-m", "x", tree))
}

// TestHTTPSFailures: whatever a server does, the error says what is wrong and
// what to do, and the next good answer heals it.
func TestHTTPSFailures(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	s.Basic("", canary)
	cfg := RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{TokenFile: tokenFile(t, canary), CAFile: s.CAFile}}

	other := cfg
	other.CAFile = ""
	refused(t, remote(t, other), ErrUnreachable, "certificate")
	other.CAFile = other.TokenFile
	refused(t, remote(t, other), ErrMisconfigured, "no certificate")
	other = cfg
	other.URL = s.URL + "/none.git"
	refused(t, remote(t, other), ErrDenied, "no repository at "+other.URL)
	runGit(t, filepath.Dir(bare), "init", "-q", "--bare", "empty.git")
	other.URL = s.URL + "/empty.git"
	refused(t, remote(t, other), ErrEmpty, "waits for the first push")

	runGit(t, filepath.Dir(bare), "init", "-q", "--bare", "--object-format=sha256", "new.git")
	other.URL = s.URL + "/new.git"
	refused(t, remote(t, other), ErrEmpty, "first push") // nothing tells them apart yet
	commitTo(t, filepath.Join(filepath.Dir(bare), "new.git"))
	refused(t, remote(t, other), ErrUnsupported, "SHA-256")
	for kind, text := range map[string]string{"text/html; charset=utf-8": "with a web page", "text/plain": `with "text/plain"`, "": "not as a Git repository"} {
		r := remote(t, cfg)
		for _, at := range []string{"/info/refs", "/git-upload-pack"} {
			s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, at) {
					w.Header()["Content-Type"] = []string{kind}
					_, _ = w.Write([]byte("<!DOCTYPE html><title>Sign in</title>"))
				}
				return strings.HasSuffix(r.URL.Path, at)
			})
			refused(t, r, ErrNoRepository, text)
		}
		s.Fault(nil)
		remoteHead(t, r, head)
	}

	// A server that redirects does not get the credential at its other address.
	elsewhere := gittest.Serve(t, filepath.Dir(bare))
	elsewhere.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("a redirect was followed: %s", r.URL)
		return false
	})
	r := remote(t, cfg)
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
		return true
	})
	refused(t, r, ErrUnreachable, "moved to "+elsewhere.URL+"/factory.git")

	for name, fault := range map[string]func(http.ResponseWriter){
		"nonsense":     func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>hello</html>")) },
		"nothing":      func(http.ResponseWriter) {},
		"an error":     func(w http.ResponseWriter) { http.Error(w, "out of order", http.StatusServiceUnavailable) },
		"a broken end": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		for _, at := range []string{"/info/refs", "/git-upload-pack"} {
			if err := os.RemoveAll(r.Cache); err != nil {
				t.Fatal(err)
			}
			s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, at) {
					return false
				}
				fault(w)
				return true
			})
			if _, err := r.Head(t.Context()); err == nil {
				t.Errorf("%s at %s is no error", name, at)
			}
			s.Fault(nil)
			remoteHead(t, r, head)
		}
	}

	// Whoever waits for a server that says nothing can stop waiting.
	release := make(chan struct{})
	defer close(release)
	asked := make(chan struct{}, 10)
	s.Fault(func(http.ResponseWriter, *http.Request) bool { asked <- struct{}{}; <-release; return true })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Head(ctx); done <- err }()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.com/team/f.git":            "",
		"https://example.com:8443/f":                "",
		"ssh://git@example.com:2222/f.git":          "",
		"ssh://example.com/f.git":                   "",
		"git@example.com:team/f.git":                "",
		"http://127.0.0.1:3000/f.git":               "",
		"http://localhost/f.git":                    "",
		"https://ada@example.com/f.git":             "--git-token-file",
		"https://ada:" + canary + "@example.com/f":  "--git-token-file",
		"ssh://git:" + canary + "@example.com/f":    "credential",
		"http://example.com/f.git":                  "use https",
		"git://example.com/f.git":                   "https or ssh",
		"ext::sh -c true":                           "",
		"https://example.com":                       "names no repository",
		"https:///f.git":                            "names no repository",
		"ssh://-oProxyCommand=x/f":                  "names no repository",
		"https://example.com/f.git?token=" + canary: "after ?",
		"https://example.com/%zz":                   "cannot be read",
	} {
		_, err := parseRemote(address)
		switch {
		case address == "ext::sh -c true": // the host ext, the path :sh -c true: no command
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error shows the credential: %v", address, err)
		}
	}
	for name, want := range map[string]bool{
		"/srv/f.git": false, ".": false, "f.git": false, "a/b:c": false, "file:///srv/f.git": false, "git@h:f": true, "https://h/f": true, "h:f": true,
	} {
		if IsRemote(name) != want {
			t.Errorf("IsRemote(%q) is not %t", name, want)
		}
	}
	if _, err := OpenRemote(RemoteConfig{URL: "https://h/f", Branch: "a..b"}); err == nil {
		t.Error("a..b is a branch name")
	}
}

// FuzzAddress: no address makes the parser fall over, and a password in one is
// neither taken nor repeated.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"https://example.com/f", "git@example.com:f", "ssh://a:b@c/d", "::", "a@b@c:d", "https://[::1]:x/f", "://", "%:/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		u, err := parseRemote(address)
		if err == nil {
			if _, has := u.User.Password(); has || u.Hostname() == "" || u.Scheme != "ssh" && u.User != nil {
				t.Errorf("%q became %q", address, u)
			}
			if again, err := parseRemote(u.String()); err != nil || again.String() != u.String() {
				t.Errorf("%q became %q, and that %v, %v", address, u, again, err)
			}
		}
		if _, err := parseRemote("https://user:" + canary + "@" + address); err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("the error shows the credential: %v", err)
		}
	})
}

// TestRemoteWatch: a look at once, then one a minute, never quite on the minute.
func TestRemoteWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := remote(t, RemoteConfig{URL: "https://example.com/f.git", Cache: "/nowhere"})
		ctx, cancel := context.WithCancel(t.Context())
		var looks []time.Duration
		begin, done := time.Now(), make(chan error, 1)
		go func() { done <- r.Watch(ctx, func() { looks = append(looks, time.Since(begin)) }) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if looks[0] != 0 || len(looks) < 54 || len(looks) > 68 {
			t.Errorf("%d looks in an hour", len(looks))
		}
		gaps := map[time.Duration]bool{}
		for i, at := range looks[1:] {
			gap := at - looks[i]
			if gap < 54*time.Second || gap > 66*time.Second {
				t.Errorf("a gap of %s", gap)
			}
			gaps[gap] = true
		}
		if len(gaps) < 10 {
			t.Error("the looks do not vary")
		}
	})
}

// TestRemoteProgress: a look tells what it has received, and what the server says of its work.
func TestRemoteProgress(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	s.Basic(anyUsername, canary)
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile, TokenFile: tokenFile(t, canary)}})
	remoteHead(t, r, head)
	first := r.Progress()
	if first.Received == 0 || !strings.HasPrefix(first.Said, "Total ") { // the last line of git
		t.Errorf("the first look: %+v", first)
	}
	remoteHead(t, r, head)
	if second := r.Progress(); second.Received == 0 || second.Received >= first.Received || second.Said != "" {
		t.Errorf("a look that finds nothing new: %+v after %+v", second, first)
	}
}

// TestTelling: what a server says of its work is one visible line without the credential.
func TestTelling(t *testing.T) {
	for said, want := range map[string]string{
		"":                                              "",
		"Counting objects: 50% (1/2)\r":                 "Counting objects: 50% (1/2)",
		"Counting: 50%\rCounting: 100%, do":             "Counting: 50%",
		"one\n\n \r":                                    "one",
		"a\x1b[2Jb\u202ec \t d\xff\x00e\n":              "a [2Jb c d? e",
		"token " + canary + " and dTpw\n":               "token … and …",
		"kept\n" + strings.Repeat("x", 300) + "\n":      "kept",
		"\n" + strings.Repeat("x", 190) + canary + "\n": "",
		strings.Repeat("y", maxTold) + "\n":             strings.Repeat("y", maxTold),
	} {
		for _, size := range []int{1, 7, 1000} { // of the pieces in which it comes
			var got telling
			got.begin(canary, "", "dTpw")
			for piece := range slices.Chunk([]byte(said), size) {
				if n, err := got.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			if got.last() != want {
				t.Errorf("%q in pieces of %d: %q, not %q", said, size, got.last(), want)
			}
		}
	}
}
