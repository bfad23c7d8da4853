package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func runGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := gitCommand(dir, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func gitCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	return cmd
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// clone makes a bare repository and a clone of it with one commit pushed.
func clone(t testing.TB, branch string) (bare, work string) {
	t.Helper()
	dir := t.TempDir()
	bare, work = filepath.Join(dir, "factory.git"), filepath.Join(dir, "work")
	runGit(t, dir, "init", "-q", "--bare", "--initial-branch="+branch, bare)
	runGit(t, dir, "clone", "-q", bare, work)
	runGit(t, work, "checkout", "-q", "-b", branch)
	write(t, filepath.Join(work, "factory.yaml"), "schemaVersion: v1alpha1\nname: x\n")
	commit(t, work, "First\n\nbody")
	runGit(t, work, "push", "-q", "origin", branch)
	return bare, work
}

func commit(t testing.TB, work, message string) string {
	t.Helper()
	runGit(t, work, "add", "-A")
	runGit(t, work, "commit", "-q", "--allow-empty", "-m", message)
	return runGit(t, work, "rev-parse", "HEAD")
}

func head(t testing.TB, r *Repo) Commit {
	t.Helper()
	c, err := r.Head(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestHead: whatever Git does to its files, the head is what git says.
func TestHead(t *testing.T) {
	for _, branch := range []string{"main", "release/2026/autumn"} {
		bare, work := clone(t, branch)
		r, err := Open(bare, branch)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string) {
			t.Helper()
			if got, want := head(t, r).Hash, runGit(t, bare, "rev-parse", branch); got != want {
				t.Errorf("%s: head %s, want %s", what, got, want)
			}
		}
		check("first push")
		if c := head(t, r); c.Subject != "First" || c.AuthorName != "Ada" || c.AuthorEmail != "ada@example.com" || c.Time.IsZero() {
			t.Errorf("commit %+v", c)
		}
		commit(t, work, "Second")
		runGit(t, work, "push", "-q", "origin", branch)
		check("second push")
		runGit(t, bare, "pack-refs", "--all")
		runGit(t, bare, "gc", "-q", "--prune=now")
		check("gc")
		runGit(t, work, "reset", "-q", "--hard", "HEAD~1")
		runGit(t, work, "push", "-qf", "origin", branch)
		check("force-push")
		runGit(t, bare, "update-ref", "-d", "refs/heads/"+branch)
		if _, err := r.Head(context.Background()); !errors.Is(err, ErrNoBranch) {
			t.Errorf("deleted branch: %v", err)
		}
		runGit(t, work, "push", "-q", "origin", branch)
		check("restored")
	}
}

func TestOpen(t *testing.T) {
	bare, work := clone(t, "main")
	linked := filepath.Join(t.TempDir(), "linked")
	runGit(t, work, "worktree", "add", "-q", "-b", "side", linked)
	write(t, filepath.Join(work, "sub/x"), "")
	for _, path := range []string{bare, work, linked, filepath.Join(work, "sub")} {
		r, err := Open(path, "main")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := head(t, r).Hash, runGit(t, work, "rev-parse", "main"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if _, err := Open(t.TempDir(), "main"); !errors.Is(err, ErrNoRepository) {
		t.Errorf("no repository: %v", err)
	}
	r, _ := Open(work, "mian")
	if _, err := r.Head(context.Background()); !errors.Is(err, ErrNoBranch) || !strings.Contains(err.Error(), "it has main, side") {
		t.Errorf("wrong branch: %v", err)
	}
	if _, err := r.Commit(context.Background(), "nope"); !errors.Is(err, ErrNoCommit) {
		t.Errorf("no commit: %v", err)
	}
	if c, err := r.Commit(context.Background(), "main"); err != nil || c.Subject != "First" {
		t.Errorf("commit: %+v %v", c, err)
	}
}

// TestTree: a commit is a file system whose links and submodules are told and
// not followed (SPEC 2.4).
func TestTree(t *testing.T) {
	bare, work := clone(t, "main")
	write(t, filepath.Join(work, "sub/webhooks/höök.yaml"), "secretName: S\n")
	write(t, filepath.Join(work, "sub/factory.yaml"), "name: sub\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(work, "sub/link")); err != nil {
		t.Fatal(err)
	}
	runGit(t, work, "update-index", "--add", "--cacheinfo", "160000,"+runGit(t, work, "rev-parse", "HEAD")+",sub/module")
	runGit(t, work, "add", "-A", "sub/webhooks", "sub/factory.yaml", "sub/link")
	runGit(t, work, "commit", "-qm", "Sub")
	runGit(t, work, "push", "-q", "origin", "main")
	r, err := Open(bare, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(context.Background(), head(t, r).Hash, "sub")
	if err != nil {
		t.Fatal(err)
	}
	modes := make(map[string]fs.FileMode)
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			modes[name] = d.Type()
		}
		return err
	})
	if err != nil || modes["link"] != fs.ModeSymlink || modes["module"] != fs.ModeIrregular || modes["webhooks"] != fs.ModeDir || modes["webhooks/höök.yaml"] != 0 {
		t.Errorf("%v, %v", modes, err)
	}
	if _, err := tree.Open("link"); err == nil {
		t.Error("a link was opened")
	}
	info, err := fs.Stat(tree, "factory.yaml")
	if err != nil || info.Size() != 10 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := r.Tree(context.Background(), head(t, r).Hash, "nope"); !errors.Is(err, ErrNoFolder) {
		t.Errorf("no folder: %v", err)
	}
	// What the standard library expects of a file system.
	runGit(t, work, "rm", "-q", "--cached", "sub/link", "sub/module")
	runGit(t, work, "commit", "-qm", "Plain")
	runGit(t, work, "push", "-q", "origin", "main")
	if tree, err = r.Tree(context.Background(), head(t, r).Hash, "."); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(tree, "factory.yaml", "sub/webhooks/höök.yaml"); err != nil {
		t.Error(err)
	}
}

// TestWatch: each kind of move of the branch is noticed by notification, long
// before the poll.
func TestWatch(t *testing.T) {
	bare, work := clone(t, "a/b")
	r, err := Open(bare, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	kicks := watched(t, r.Watch)
	for _, move := range []func(){
		func() { commit(t, work, "push"); runGit(t, work, "push", "-q", "origin", "a/b") },
		func() { runGit(t, bare, "pack-refs", "--all", "--prune") },
		func() { runGit(t, bare, "update-ref", "-d", "refs/heads/a/b") },
		func() { runGit(t, work, "push", "-q", "origin", "a/b") },
	} {
		move()
		select {
		case <-kicks:
		case <-time.After(pollEvery - time.Second):
			t.Fatal("no kick")
		}
		for len(kicks) > 0 {
			<-kicks
		}
	}
}

// watched runs a Watch for the length of the test.
func watched(t *testing.T, watch func(context.Context, func()) error) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	kicks, done := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		done <- watch(ctx, func() {
			select {
			case kicks <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-kicks // armed
	return kicks
}

func TestWorkTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "factory.yaml"), "name: x\n")
	write(t, filepath.Join(dir, ".triphammer/data/x.yaml"), "hidden")
	w, err := OpenWorkTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	ctx := context.Background()
	first, err := w.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".triphammer/data/x.yaml"), "changed")
	if again, _ := w.Head(ctx); again.Hash != first.Hash {
		t.Error("a hidden file changed the head")
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "webhooks")); err != nil {
		t.Fatal(err)
	}
	tree, err := w.Tree(ctx, "", ".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(tree, "webhooks/passwd"); err == nil {
		t.Error("a link led out of the folder")
	}
	kicks := watched(t, w.Watch)
	write(t, filepath.Join(dir, "agents/a/agent.md"), "---\n---\n")
	<-kicks
	if again, _ := w.Head(ctx); again.Hash == first.Hash {
		t.Error("a new file did not change the head")
	}
}
