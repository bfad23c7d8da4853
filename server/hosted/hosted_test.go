package hosted

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, check ...string) *Repository {
	t.Helper()
	if check == nil {
		check = []string{"true"}
	}
	r, err := Open(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "one's.git"), Branch: "main", Check: check})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func agree(context.Context, string) error { return nil }

func (r *Repository) must(t *testing.T, c Commit) string {
	t.Helper()
	hash, err := r.Commit(t.Context(), c, agree)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func (r *Repository) show(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCommit(t *testing.T) {
	r := open(t)
	if tip, err := r.Tip(t.Context()); tip != "" || err != nil {
		t.Fatal(tip, err)
	}
	at := time.Unix(1_700_000_000, 0)
	odd := "webhooks/a \"b\" \\ é\t.yaml"
	first := r.must(t, Commit{Author: "Ada <ada>\n", Message: "Begin\n\nBecause.", Time: at, Files: map[string][]byte{"factory.yaml": []byte("name: x\n"), "empty": {}}})
	if _, err := r.Commit(t.Context(), Commit{Base: first, Files: map[string][]byte{odd: {}}}, agree); err == nil {
		t.Error("a path with a tab was taken")
	}
	odd = strings.ReplaceAll(odd, "\t", "")
	second := r.must(t, Commit{Base: first, Author: "Ben", Message: "More", Time: at, Files: map[string][]byte{odd: []byte("x\ndone\n"), "empty": nil}})
	if got := r.show(t, "log", "--format=%an|%s|%b|%at|%H", "--reverse", "main"); got != "Ada ada|Begin|Because.|1700000000|"+first+"\nBen|More||1700000000|"+second {
		t.Errorf("%q", got)
	}
	if got := r.show(t, "-c", "core.quotePath=false", "ls-tree", "-r", "-z", "--name-only", "main"); got != "factory.yaml\x00"+odd+"\x00" {
		t.Errorf("%q", got)
	}
	if got := r.show(t, "show", "main:"+odd); got != "x\ndone" {
		t.Errorf("%q", got)
	}
	refused := errors.New("no")
	for _, tt := range []struct {
		name  string
		c     Commit
		check func(context.Context, string) error
		want  error
	}{
		{"an old version", Commit{Base: first, Files: map[string][]byte{"x": {}}}, agree, ErrMoved},
		{"no version", Commit{Files: map[string][]byte{"x": {}}}, agree, ErrMoved},
		{"the same", Commit{Base: second, Files: map[string][]byte{"factory.yaml": []byte("name: x\n")}}, agree, ErrNothing},
		{"no files", Commit{Base: second}, agree, ErrNothing},
		{"removing what is not there", Commit{Base: second, Files: map[string][]byte{"nothing": nil}}, agree, ErrNothing},
		{"refused", Commit{Base: second, Files: map[string][]byte{"x": {}}}, func(context.Context, string) error { return refused }, refused},
		{"a push meanwhile", Commit{Base: second, Files: map[string][]byte{"x": {}}}, func(ctx context.Context, _ string) error {
			_, err := r.git(ctx, nil, "update-ref", "refs/heads/main", first)
			return err
		}, ErrMoved},
	} {
		if _, err := r.Commit(t.Context(), tt.c, tt.check); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if refs := r.show(t, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
			t.Errorf("%s: left %s", tt.name, refs)
		}
	}
	for _, path := range []string{"../x", "/x", "a/../b", ".git/hooks/x", "a/.GIT/config", "a\nD factory.yaml", "", "."} {
		if _, err := r.Commit(t.Context(), Commit{Base: first, Files: map[string][]byte{path: {}}}, agree); err == nil {
			t.Errorf("the path %q was taken", path)
		}
	}
}

// TestManyAuthors: of those who commit at once to the same version, one does, and the
// others are told.
func TestManyAuthors(t *testing.T) {
	r := open(t)
	base := r.must(t, Commit{Author: "Ada", Files: map[string][]byte{"a": {}}})
	var all sync.WaitGroup
	done := make(chan error, 8)
	for i := range cap(done) {
		all.Go(func() {
			_, err := r.Commit(t.Context(), Commit{Base: base, Author: "Ada", Files: map[string][]byte{"b": {byte('0' + i)}}}, agree)
			done <- err
		})
	}
	all.Wait()
	close(done)
	made := 0
	for err := range done {
		if err == nil {
			made++
		} else if !errors.Is(err, ErrMoved) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d commits to one version", made)
	}
}

// serve serves a repository, without a question who asks.
func serve(t *testing.T, r *Repository) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Serve(w, req, Visit{Path: req.URL.Path, Person: "Ada", Logger: slog.New(slog.DiscardHandler)})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func command(t *testing.T, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func clone(t *testing.T, url string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "clone")
	if out, err := command(t, "", "clone", "--quiet", url, dir); err != nil {
		t.Fatal(err, out)
	}
	return dir
}

func commitFile(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"add", "-A"}, {"commit", "--quiet", "-m", name}} {
		if out, err := command(t, dir, args...); err != nil {
			t.Fatal(err, out)
		}
	}
}

// TestPush: what the check refuses does not arrive, and nobody rewrites the branch.
func TestPush(t *testing.T) {
	// The check refuses a commit that has the file bad.
	r := open(t, "sh", "-c", `while read old new ref; do if git cat-file -e "$new:bad" 2>/dev/null; then echo "it's bad" >&2; exit 1; fi; done`)
	r.must(t, Commit{Author: "Ada", Files: map[string][]byte{"a": {}}})
	url := serve(t, r)
	one, two := clone(t, url), clone(t, url)

	large := make([]byte, 3<<20) // git sends this in chunks
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	commitFile(t, one, "large", large)
	if out, err := command(t, one, "-c", "http.postBuffer=65536", "push", "--quiet"); err != nil {
		t.Fatal(err, out)
	}
	tip, err := r.Tip(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	commitFile(t, two, "b", nil)
	if out, err := command(t, two, "push"); err == nil || !strings.Contains(out, "fetch first") {
		t.Error("a push that is behind:", err, out)
	}
	if out, err := command(t, two, "push", "--force"); err == nil || !strings.Contains(out, "non-fast-forward") {
		t.Error("a push that rewrites:", err, out)
	}
	if out, err := command(t, two, "push", "origin", ":main"); err == nil {
		t.Error("a push that deletes:", out)
	}
	commitFile(t, one, "bad", nil)
	if out, err := command(t, one, "push"); err == nil || !strings.Contains(out, "it's bad") {
		t.Error("a bad push:", err, out)
	}
	if now, err := r.Tip(t.Context()); now != tip || err != nil {
		t.Error("the branch moved", err)
	}
	if out, err := command(t, two, "push", "origin", "HEAD:refs/triphammer/pending"); err == nil {
		t.Error("a push to a hidden ref:", out)
	}
}

// TestReopen: a repository that exists keeps what it has, and gets the settings of today.
func TestReopen(t *testing.T) {
	r := open(t)
	tip := r.must(t, Commit{Author: "Ada", Files: map[string][]byte{"a": {}}})
	r.show(t, "config", "receive.denyDeletes", "false")
	again, err := Open(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Tip(t.Context()); got != tip || err != nil {
		t.Error(got, err)
	}
	if again.show(t, "config", "receive.denyDeletes") != "true" {
		t.Error("a setting is old")
	}
}
