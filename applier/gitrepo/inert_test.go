package gitrepo

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/hash"

	"triphammer/applier/gitrepo/gittest"
)

// trapped puts into a repository's configuration every program that Git would
// start, and into its hooks. Each leaves a file behind.
func trapped(t *testing.T, repository string) (sprung func() bool) {
	t.Helper()
	dir := t.TempDir()
	left, trap := filepath.Join(dir, "sprung"), filepath.Join(dir, "trap")
	write(t, trap, "#!/bin/sh\ntouch '"+left+"'\ncat\n")
	if err := os.Chmod(trap, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-auto-gc"} {
		if err := os.Symlink(trap, filepath.Join(dir, hook)); err != nil {
			t.Fatal(err)
		}
	}
	included := filepath.Join(dir, "included")
	write(t, included, "[core]\n\tpager = "+trap+"\n")
	for _, set := range [][2]string{
		{"filter.evil.smudge", trap},
		{"filter.evil.process", trap},
		{"filter.evil.required", "true"},
		{"core.hooksPath", dir},
		{"core.fsmonitor", trap},
		{"core.sshCommand", trap},
		{"core.gitProxy", trap},
		{"core.askPass", trap},
		{"core.autocrlf", "true"},
		{"credential.helper", "!" + trap},
		{"diff.external", trap},
		{"diff.evil.textconv", trap},
		{"gpg.program", trap},
		{"uploadpack.packObjectsHook", trap},
		{"include.path", included},
	} {
		runGit(t, repository, "config", set[0], set[1])
	}
	return func() bool { _, err := os.Stat(left); return err == nil }
}

// withoutGit runs read where there is no program to start.
func withoutGit(t *testing.T, read func()) {
	t.Helper()
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	read()
	t.Setenv("PATH", path)
}

// TestInert: neither the configuration of a repository nor what it holds makes
// the server start a program or changes what it reads.
func TestInert(t *testing.T) {
	_, work := clone(t, "main")
	const text = "secretName: S\n"
	write(t, filepath.Join(work, ".gitattributes"), "*.yaml filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16\n")
	write(t, filepath.Join(work, ".gitmodules"), "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch\n\tupdate = !touch\n")
	blob := filepath.Join(t.TempDir(), "hook.yaml")
	write(t, blob, text)
	runGit(t, work, "add", ".gitattributes", ".gitmodules")
	runGit(t, work, "update-index", "--add", "--cacheinfo", "100644,"+runGit(t, work, "hash-object", "-w", "--no-filters", blob)+",webhooks/hook.yaml")
	runGit(t, work, "commit", "-q", "-m", "Traps")
	want := runGit(t, work, "rev-parse", "HEAD")
	sprung := trapped(t, work)
	r, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	withoutGit(t, func() {
		c, err := r.Head(t.Context())
		if err != nil || c.Hash != want {
			t.Fatalf("%s, %v", c.Hash, err)
		}
		tree, err := r.Tree(t.Context(), c.Hash, ".")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(tree, "webhooks/hook.yaml"); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	})
	if sprung() {
		t.Error("a program was started")
	}
	// What was set up does start one, as soon as Git is asked.
	_ = gitCommand(work, "checkout", "-q", "-f", "main").Run() // it may fail for them
	if !sprung() {
		t.Error("the traps do not work: this test proves nothing")
	}
}

// TestReplaced: a commit is what its hash names. A repository cannot put another
// one, or another tree, in its place.
func TestReplaced(t *testing.T) {
	_, work := clone(t, "main")
	good := runGit(t, work, "rev-parse", "HEAD")
	goodTree, goodBlob := runGit(t, work, "rev-parse", "HEAD^{tree}"), runGit(t, work, "rev-parse", "HEAD:factory.yaml")
	runGit(t, work, "checkout", "-q", "-b", "evil")
	write(t, filepath.Join(work, "factory.yaml"), "evil")
	evil := commit(t, work, "Evil")
	evilTree, evilBlob := runGit(t, work, "rev-parse", "HEAD^{tree}"), runGit(t, work, "rev-parse", "HEAD:factory.yaml")
	r, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{good, evil}, {goodTree, evilTree}, {goodBlob, evilBlob}} {
		runGit(t, work, "replace", pair[0], pair[1])
		if got := runGit(t, work, "show", "main:factory.yaml"); got != "evil" {
			t.Errorf("git itself shows %q: this test proves nothing", got)
		}
		if c := head(t, r); c.Hash != good || c.Subject != "First" {
			t.Errorf("head %+v", c)
		}
		tree, err := r.Tree(t.Context(), good, ".")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := fs.ReadFile(tree, "factory.yaml"); err != nil || strings.Contains(string(text), "evil") {
			t.Errorf("%q, %v", text, err)
		}
		runGit(t, work, "replace", "-d", pair[0])
	}
}

// TestUserConfiguration: what the configuration of the server's user and its
// environment say to Git sends the server to no other place.
func TestUserConfiguration(t *testing.T) {
	bare, work := clone(t, "main")
	want := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	home := t.TempDir()
	text := "[url \"https://127.0.0.1:1/\"]\n\tinsteadOf = " + s.URL + "/\n[http]\n\tproxy = http://127.0.0.1:1\n\tsslVerify = false\n"
	write(t, filepath.Join(home, ".gitconfig"), text)
	write(t, filepath.Join(home, ".config/git/config"), text)
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	for name, value := range map[string]string{
		"GIT_DIR": home, "GIT_OBJECT_DIRECTORY": home, "GIT_NAMESPACE": "x", "GIT_ASKPASS": "/bin/false", "GIT_SSL_NO_VERIFY": "1",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "url.https://127.0.0.1:1/.insteadOf", "GIT_CONFIG_VALUE_0": s.URL + "/",
	} {
		t.Setenv(name, value)
	}
	withoutGit(t, func() {
		r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
		if c, err := r.Head(t.Context()); err != nil || c.Hash != want {
			t.Errorf("%s, %v", c.Hash, err)
		}
		refused(t, remote(t, RemoteConfig{URL: s.URL + "/factory.git"}), ErrUnreachable, "certificate")
		local, err := Open(bare, "main")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := local.Head(t.Context()); err != nil || c.Hash != want {
			t.Errorf("%s, %v", c.Hash, err)
		}
	})
}

// TestLenders: objects come from another folder of this machine only if whoever
// owns a local repository says so; what a remote sends cannot.
func TestLenders(t *testing.T) {
	bare, work := clone(t, "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
	other := filepath.Join(t.TempDir(), "other")
	runGit(t, filepath.Dir(other), "init", "-q", "--initial-branch=main", other)
	write(t, filepath.Join(other, "factory.yaml"), "name: private\n")
	private := commit(t, other, "Private")
	write(t, filepath.Join(bare, "objects/info/alternates"), filepath.Join(other, ".git/objects")+"\n")
	remoteHead(t, r, runGit(t, work, "rev-parse", "HEAD"))
	if _, err := os.Stat(filepath.Join(r.Cache, "objects/info/alternates")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cache borrows: %v", err)
	}
	if _, err := r.Tree(t.Context(), private, "."); err == nil {
		t.Error("a commit that was not fetched is read")
	}
}

// TestCollisions: objects are named by a SHA-1 that notices the known attack.
func TestCollisions(t *testing.T) {
	if got := fmt.Sprintf("%T", hash.New(crypto.SHA1)); !strings.Contains(got, "sha1cd") {
		t.Errorf("objects are hashed by %s", got)
	}
}
