package hosted

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

func (r *Repository) show(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// begin makes the first commit, by a push.
func begin(t *testing.T, r *Repository) (url string) {
	t.Helper()
	url = serve(t, r)
	dir := clone(t, url)
	commitFile(t, dir, "a", nil)
	if out, err := command(t, dir, "push", "--quiet", "origin", "HEAD:main"); err != nil {
		t.Fatal(err, out)
	}
	return url
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

// withoutBad is a check that refuses a commit with the file bad. It finds the commit in the
// repository that it is given, and not by the environment of the hook.
var withoutBad = []string{"sh", "-c", `if env -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES git --git-dir="$2" ls-tree --name-only "$1" | grep -qx a
then
	if git cat-file -e "$1:bad" 2>/dev/null; then echo "it's bad" >&2; exit 1; fi
else
	echo "the commit cannot be read" >&2; exit 1
fi`, "check"}

// TestPush: what the check refuses does not arrive, and nobody rewrites the branch.
func TestPush(t *testing.T) {
	r := open(t, withoutBad...)
	if tip, err := r.Tip(t.Context()); tip != "" || err != nil {
		t.Fatal(tip, err)
	}
	url := begin(t, r)
	one, two := clone(t, url), clone(t, url)

	large := make([]byte, 3<<20) // git sends this in chunks
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	commitFile(t, one, "large", large)
	if out, err := command(t, one, "-c", "http.postBuffer=65536", "push", "--quiet"); err != nil || out != "" {
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
	// Other refs of a push do not take the place of the branch that is checked.
	for _, ref := range []string{"refs/heads/x,refs/heads/main", "refs/heads/main,refs/heads/main", "refs/tags/main", "refs/heads/a/main"} {
		for _, refs := range [][]string{{"HEAD:refs/heads/main", tip + ":" + ref}, {tip + ":" + ref, "HEAD:refs/heads/main"}} {
			if out, err := command(t, one, append([]string{"push", "origin"}, refs...)...); err == nil || !strings.Contains(out, "it's bad") {
				t.Error("a bad push beside", ref, err, out)
			}
		}
	}
	// One request that moves the branch twice, as the git program does not: of two, it takes the first.
	id := func(args ...string) string {
		out, err := command(t, one, args...)
		if err != nil {
			t.Fatal(out)
		}
		return strings.TrimSpace(out)
	}
	bad, good := id("rev-parse", "HEAD"), id("commit-tree", tip+"^{tree}", "-p", tip, "-m", "good")
	pack := exec.CommandContext(t.Context(), "git", "pack-objects", "--revs", "--stdout", "--quiet")
	pack.Dir, pack.Stdin = one, strings.NewReader(bad+"\n"+good+"\n^"+tip+"\n")
	packed, err := pack.Output()
	if err != nil {
		t.Fatal(err)
	}
	first, second := tip+" "+bad+" refs/heads/main\x00report-status", tip+" "+good+" refs/heads/main"
	body := fmt.Sprintf("%04x%s%04x%s0000%s", len(first)+4, first, len(second)+4, second, packed)
	resp, err := http.Post(url+"/"+Push, "application/x-git-receive-pack-request", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || strings.Contains(string(answer), "ok refs/heads/main") {
		t.Errorf("a push that moves the branch twice: %v %q", err, answer)
	}
	if now, err := r.Tip(t.Context()); now != tip || err != nil {
		t.Error("the branch moved", err)
	}
}

// TestPushed: what a push wanted to move is told, with what became of it.
func TestPushed(t *testing.T) {
	r := open(t, withoutBad...)
	told := make(chan []Pushed, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		pushed := r.Serve(w, req, Visit{Path: req.URL.Path, Person: "Ada", Logger: slog.New(slog.DiscardHandler)})
		if req.URL.Path == "/"+Push {
			told <- pushed
		}
	}))
	t.Cleanup(s.Close)
	dir := clone(t, s.URL)
	commitFile(t, dir, "a", nil)
	head, err := command(t, dir, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(head)
	}
	head = strings.TrimSpace(head)
	if out, err := command(t, dir, "push", "--quiet", "origin", "HEAD:main", "HEAD:refs/tags/v1"); err != nil {
		t.Fatal(out)
	}
	if got := fmt.Sprint(<-told); got != fmt.Sprint([]Pushed{{"refs/heads/main", head, true}, {"refs/tags/v1", head, true}}) {
		t.Error(got)
	}
	commitFile(t, dir, "bad", nil)
	bad, err := command(t, dir, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(bad)
	}
	bad = strings.TrimSpace(bad)
	if out, err := command(t, dir, "push", "--quiet", "origin", "HEAD:main", head+":refs/heads/good"); err == nil {
		t.Fatal(out)
	}
	if got := fmt.Sprint(<-told); got != fmt.Sprint([]Pushed{{"refs/heads/main", bad, false}, {"refs/heads/good", head, false}}) {
		t.Error(got)
	}
	if left, _ := filepath.Glob(filepath.Join(r.Dir(), toldFolder+"*")); left != nil {
		t.Error(left, "is left")
	}
}

// TestPushOfALargeFile: a small push with a file that is large makes no program large.
func TestPushOfALargeFile(t *testing.T) {
	const size = 64 << 20
	r := open(t)
	dir := clone(t, serve(t, r))
	name := filepath.Join(dir, "large")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	largest := func() int64 { // of all programs that this process has waited for, in bytes
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
			t.Fatal(err)
		}
		return used.Maxrss << 10
	}
	var before int64
	for _, args := range [][]string{{"add", "-A"}, {"commit", "--quiet", "-m", "large"}, {"push", "--quiet", "origin", "HEAD:main"}} {
		before = largest()
		if out, err := command(t, dir, append([]string{"-c", "core.bigFileThreshold=1m"}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}
	if now := largest(); now > before+size/4 {
		t.Errorf("a push took %d MB", now>>20)
	}
}

// TestSilentClones: people whose clones never say what they want keep nobody from cloning or pushing.
func TestSilentClones(t *testing.T) {
	r := open(t)
	url := begin(t, r)
	var slow []*io.PipeWriter
	for range maxServing + 1 {
		body, w := io.Pipe()
		slow = append(slow, w)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/"+Fetch, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	t.Cleanup(func() {
		for _, w := range slow {
			_ = w.Close()
		}
	})
	dir := filepath.Join(t.TempDir(), "work")
	if out, err := command(t, "", "init", "--quiet", "--initial-branch=other", dir); err != nil {
		t.Fatal(out)
	}
	commitFile(t, dir, "b", nil)
	if out, err := command(t, dir, "push", "--quiet", url, "HEAD:other"); err != nil {
		t.Error(err, out)
	}
	clone(t, url)
}

// TestOtherRefs: a push moves branches and tags alone, and a replacement or a graft that is there
// all the same changes nothing of what is served or committed.
func TestOtherRefs(t *testing.T) {
	r := open(t)
	url := begin(t, r)
	dir := clone(t, url)
	run := func(args ...string) string {
		t.Helper()
		out, err := command(t, dir, args...)
		if err != nil {
			t.Fatal(args, err, out)
		}
		return strings.TrimSpace(out)
	}
	tip := run("rev-parse", "HEAD")
	run("checkout", "--quiet", "--orphan", "other")
	commitFile(t, dir, "hidden", nil)
	other := run("rev-parse", "HEAD")
	for _, ref := range []string{"refs/replace/" + tip, "refs/notes/commits", "refs/triphammer/x", "refs/pull/1/head"} {
		out, err := command(t, dir, "push", url, other+":refs/heads/fine", other+":"+ref)
		if err == nil || !strings.Contains(out, ref+" is neither a branch nor a tag") && !strings.Contains(out, "hidden ref") {
			t.Errorf("%s: %v\n%s", ref, err, out)
		}
	}
	// As an older version took them.
	run("push", "--quiet", url, other+":refs/heads/other", tip+":refs/tags/v1")
	r.show(t, "update-ref", "refs/replace/"+tip, other)
	info := filepath.Join(r.Dir(), "info")
	if err := errors.Join(os.MkdirAll(info, 0o700), os.WriteFile(filepath.Join(info, "grafts"), []byte(other+" "+tip+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, dir, "push", "--force", url, other+":main"); err == nil {
		t.Error("a graft or a replacement makes an orphan a descendant:", out)
	}
	if files := r.show(t, "ls-tree", "--name-only", "main"); files != "a" {
		t.Errorf("the branch has %q", files)
	}
	if log := r.show(t, "log", "--format=%H", "other"); log != other {
		t.Errorf("the orphan has %q", log)
	}
	if refs := run("ls-remote", url); strings.Contains(refs, "replace") || !strings.Contains(refs, "refs/tags/v1") {
		t.Error(refs)
	}
}

// TestServiceOnce: git is asked for the service that was allowed.
func TestServiceOnce(t *testing.T) {
	url := begin(t, open(t))
	for query, want := range map[string]string{
		"service=" + Fetch + "&service=" + Push: "# service=" + Fetch, "service=" + Push + "&service=" + Fetch: "# service=" + Push, "service=x%26service%3D" + Push: "",
	} {
		resp, err := http.Get(url + "/info/refs?" + query)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || want == "" && resp.StatusCode == http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %.60q, %v", query, resp.StatusCode, text, err)
		}
	}
}

// TestReopen: a repository that exists keeps what it has, and gets the settings of today.
func TestReopen(t *testing.T) {
	r := open(t)
	begin(t, r)
	tip, err := r.Tip(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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

// TestLocks: locks that killed programs left behind keep nobody from pushing.
func TestLocks(t *testing.T) {
	r := open(t)
	url := begin(t, r)
	r.show(t, "pack-refs", "--all")
	old := time.Now().Add(-lockLife)
	for _, name := range []string{"config", "HEAD", "packed-refs", "refs/heads/main", "refs/triphammer/pending", "objects/info/commit-graph"} {
		name = filepath.Join(r.Dir(), name+".lock")
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Commit(t.Context(), Change{Files: map[string][]byte{"a": []byte("1")}}, agree); err == nil {
		t.Error("a lock keeps nobody from committing: the test is wrong")
	}
	r, err := Open(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.must(t, Change{Files: map[string][]byte{"a": []byte("1")}})
	dir := clone(t, url)
	commitFile(t, dir, "b", nil)
	if out, err := command(t, dir, "push"); err != nil {
		t.Error(err, out)
	}
}

// TestPushesAtOnce: of pushes at once to the same commit, one arrives, and the others are told
// to fetch.
func TestPushesAtOnce(t *testing.T) {
	r := open(t)
	url := begin(t, r)
	var all sync.WaitGroup
	results := make(chan error, 4)
	var dirs []string
	for i := range cap(results) {
		dirs = append(dirs, clone(t, url))
		commitFile(t, dirs[i], fmt.Sprint("own", i), nil)
	}
	for _, dir := range dirs {
		all.Go(func() {
			out, err := command(t, dir, "push", "--quiet")
			if err != nil && !strings.Contains(out, "fetch first") && !strings.Contains(out, "failed to update ref") && !strings.Contains(out, "cannot lock ref") &&
				!strings.Contains(out, "incorrect old value") && !strings.Contains(out, "non-fast-forward") {
				t.Error(out)
			}
			results <- err
		})
	}
	all.Wait()
	close(results)
	arrived := 0
	for err := range results {
		if err == nil {
			arrived++
		}
	}
	if arrived != 1 {
		t.Errorf("%d pushes arrived", arrived)
	}
	if got := r.show(t, "ls-tree", "--name-only", "main"); strings.Count(got, "own") != 1 {
		t.Error(got)
	}
	r.show(t, "fsck", "--no-dangling")
}
