package gitrepo

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing"
)

// TestHeadErrors: each way in which a branch cannot be read is told apart, says
// where it is, and heals (SPEC 4.8).
func TestHeadErrors(t *testing.T) {
	bare, work := clone(t, "main")
	runGit(t, work, "push", "-q", "origin", "main:production", "main:mainly", "main:x/1", "main:x/2", "main:x/3", "main:x/4")
	empty := filepath.Join(t.TempDir(), "empty.git")
	runGit(t, work, "init", "-q", "--bare", empty)
	sha256 := filepath.Join(t.TempDir(), "sha256.git")
	runGit(t, work, "init", "-q", "--bare", "--object-format=sha256", sha256)
	gone := filepath.Join(t.TempDir(), "gone.git")
	runGit(t, work, "init", "-q", "--bare", gone)
	damaged := filepath.Join(t.TempDir(), "damaged.git")
	runGit(t, work, "clone", "-q", "--bare", "--no-hardlinks", bare, damaged)
	if err := os.RemoveAll(filepath.Join(damaged, "objects", "pack")); err != nil {
		t.Fatal(err)
	}
	removeLoose(t, damaged)
	for _, test := range []struct {
		name, path, branch string
		is                 error
		says               string
	}{
		{"empty", empty, "main", ErrEmpty, `waits for the first push to "main"`},
		{"empty is also without the branch", empty, "main", ErrNoBranch, empty},
		{"near names come first", bare, "mian", ErrNoBranch, "it has main, mainly, "},
		{"not all names", bare, "producton", ErrNoBranch, "it has production, "},
		{"the rest is counted", bare, "zzz", ErrNoBranch, " and 2 more"},
		{"another hash", sha256, "main", ErrUnsupported, "git init --object-format=sha1"},
		{"missing objects", damaged, "main", ErrCorrupt, "git fsck"},
		{"removed", gone, "main", ErrNoRepository, gone},
	} {
		r, err := Open(test.path, test.branch)
		if err != nil {
			t.Fatal(err)
		}
		if test.path == gone {
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Head(t.Context()); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for _, branch := range []string{"", "-x", "../../HEAD", "a/../../b", "a b", "a.lock", "/a", "a\x00"} {
		if _, err := Open(bare, branch); err == nil {
			t.Errorf("branch %q was taken", branch)
		}
	}
	if r, err := Open(bare, "refs/heads/main"); err != nil || head(t, r).Subject != "First" {
		t.Errorf("a full name: %v", err)
	}
}

// removeLoose deletes all loose objects of a bare repository.
func removeLoose(t *testing.T, bare string) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(bare, "objects", "[0-9a-f][0-9a-f]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenKinds: repositories that Git makes in everyday work are read whatever
// extension they carry.
func TestOpenKinds(t *testing.T) {
	_, work := clone(t, "main")
	want := runGit(t, work, "rev-parse", "main")
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"borrowing":      {"clone", "-q", "--shared", work},
		"borrowing bare": {"clone", "-q", "--shared", "--bare", work},
		"partial":        {"-c", "protocol.version=2", "clone", "-q", "--filter=blob:none", "--no-checkout", "file://" + work},
		"shallow":        {"clone", "-q", "--depth=1", "file://" + work},
		"mirror":         {"clone", "-q", "--mirror", work},
	} {
		path := filepath.Join(dir, name)
		runGit(t, dir, append(args, path)...)
		if name == "partial" {
			runGit(t, path, "config", "core.repositoryFormatVersion", "1")
			runGit(t, path, "config", "extensions.worktreeConfig", "true")
		}
		r, err := Open(path, "main")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := r.Head(t.Context()); err != nil || c.Hash != want {
			t.Errorf("%s: %s, %v", name, c.Hash, err)
		}
	}
}

// TestCommit: revisions resolve, and whatever is none is ErrNoCommit.
func TestCommit(t *testing.T) {
	_, work := clone(t, "main")
	first := runGit(t, work, "rev-parse", "HEAD")
	second := commit(t, work, "Second")
	runGit(t, work, "tag", "-a", "-m", "tag", "v1", first)
	r, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	for rev, want := range map[string]string{"main": second, "HEAD": second, "HEAD~1": first, "main^": first, "v1": first, first[:8]: first, second: second} {
		if c, err := r.Commit(t.Context(), rev); err != nil || c.Hash != want {
			t.Errorf("%s: %s, %v; want %s", rev, c.Hash, err, want)
		}
	}
	for _, rev := range []string{"", "^", "@{", "HEAD~9", ":/nothing", "nope", "HEAD:", "HEAD:sub", "../HEAD", "\x00", strings.Repeat("de", 20)} {
		if _, err := r.Commit(t.Context(), rev); !errors.Is(err, ErrNoCommit) {
			t.Errorf("%q: %v", rev, err)
		}
	}
}

// TestTreeSurvivesRepack: a tree that was opened before a gc reads on after it.
func TestTreeSurvivesRepack(t *testing.T) {
	bare, work := clone(t, "main")
	write(t, filepath.Join(work, "webhooks/a.yaml"), "secretName: A\n")
	write(t, filepath.Join(work, "webhooks/b.yaml"), "secretName: B\n")
	commit(t, work, "Hooks")
	runGit(t, work, "push", "-q", "origin", "main")
	r, err := Open(bare, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(t.Context(), head(t, r).Hash, ".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(tree, "webhooks/a.yaml"); err != nil {
		t.Fatal(err)
	}
	runGit(t, bare, "gc", "-q", "--prune=now")
	if data, err := fs.ReadFile(tree, "webhooks/b.yaml"); err != nil || string(data) != "secretName: B\n" {
		t.Errorf("after a gc: %q, %v", data, err)
	}
	// From one pack to another.
	commit(t, work, "Third")
	runGit(t, work, "push", "-q", "origin", "main")
	runGit(t, bare, "repack", "-q", "-a", "-d", "-f")
	if _, err := fs.Stat(tree, "factory.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(tree, "factory.yaml"); err != nil {
		t.Error(err)
	}
}

// TestTreeDamaged: an object that is missing below the commit is no missing
// folder. The difference is that between waiting for a repair and for a commit.
func TestTreeDamaged(t *testing.T) {
	_, work := clone(t, "main")
	write(t, filepath.Join(work, "sub/factory.yaml"), "name: x\n")
	hash := commit(t, work, "Sub")
	object := runGit(t, work, "rev-parse", "HEAD:sub")
	r, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(work, ".git/objects", object[:2], object[2:])); err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(t.Context(), hash, "sub")
	if err == nil {
		_, err = fs.ReadDir(tree, ".")
	}
	if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNoFolder) {
		t.Errorf("a missing tree object: %v", err)
	}
	for _, dir := range []string{"nope", "factory.yaml", "../work", "/sub", "sub/nope"} {
		if _, err := r.Tree(t.Context(), hash, dir); err == nil || dir != "sub/nope" && !errors.Is(err, ErrNoFolder) {
			t.Errorf("folder %q: %v", dir, err)
		}
	}
	if _, err := r.Tree(t.Context(), "main", "."); !errors.Is(err, ErrNoCommit) {
		t.Errorf("a tree by a name: %v", err)
	}
}

// TestTreeOddNames: names that are no path are listed as what cannot be read,
// and lead nowhere (SPEC 2.4).
func TestTreeOddNames(t *testing.T) {
	_, work := clone(t, "main")
	blob, err := hex.DecodeString(runGit(t, work, "rev-parse", "HEAD:factory.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object bytes.Buffer
	for _, name := range []string{"a\nb.yaml", "b\\c.yaml", "con", "h\xf6k.yaml", "plain.yaml", "\u202ek.yaml"} {
		object.WriteString("100644 " + name + "\x00")
		object.Write(blob)
	}
	hash := literal(t, work, "tree", object.Bytes())
	runGit(t, work, "update-ref", "refs/heads/odd", runGit(t, work, "commit-tree", "-m", "odd", hash))
	r, err := Open(work, "odd")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(t.Context(), head(t, r).Hash, ".")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(tree, ".")
	if err != nil || len(entries) != 6 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		odd := strings.ContainsAny(e.Name(), "_\uFFFD")
		if !fs.ValidPath(e.Name()) || odd != (e.Type() == fs.ModeIrregular) {
			t.Errorf("%q has type %v", e.Name(), e.Type())
		}
		if _, err := fs.ReadFile(tree, e.Name()); (err != nil) != odd {
			t.Errorf("%q: %v", e.Name(), err)
		}
	}
}

// literal writes an object as it is, however malformed, and returns its hash.
func literal(t testing.TB, repository, kind string, data []byte) string {
	t.Helper()
	cmd := exec.Command("git", "hash-object", "-t", kind, "-w", "--literally", "--stdin")
	cmd.Dir, cmd.Stdin = repository, bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestTreeLargeFile: the size of a large file is known, and nothing reads it.
func TestTreeLargeFile(t *testing.T) {
	_, work := clone(t, "main")
	write(t, filepath.Join(work, "large.yaml"), strings.Repeat("a", maxObject+1))
	hash := commit(t, work, "Large")
	r, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.Tree(t.Context(), hash, ".")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := fs.Stat(tree, "large.yaml"); err != nil || info.Size() != maxObject+1 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := fs.ReadFile(tree, "large.yaml"); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("reading it: %v", err)
	}
}

// TestWorkTreeTree: a plain folder is the same kind of tree as a commit.
func TestWorkTreeTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "factory.yaml"), "name: x\n")
	write(t, filepath.Join(dir, "sub/webhooks/a.yaml"), "secretName: A\n")
	write(t, filepath.Join(dir, ".git/HEAD"), "x")
	write(t, filepath.Join(dir, ".triphammer/x.yaml"), "x")
	write(t, filepath.Join(dir, "b\\c.yaml"), "x")
	w, err := OpenWorkTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	entries, err := fs.ReadDir(w.FS(), ".")
	if err != nil || len(entries) != 3 || entries[0].Name() != "b_c.yaml" || entries[0].Type() != fs.ModeIrregular {
		t.Errorf("%v, %v", entries, err)
	}
	sub, err := w.Tree(t.Context(), "", "sub")
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(sub, "webhooks/a.yaml"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"nope", "factory.yaml", "../x", "/"} {
		if _, err := w.Tree(t.Context(), "", name); !errors.Is(err, ErrNoFolder) {
			t.Errorf("folder %q: %v", name, err)
		}
	}
}

// TestWorkTreeHead: every change of a definition is another head, also one that
// keeps the size, and nothing else is.
func TestWorkTreeHead(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenWorkTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	file := filepath.Join(dir, "webhooks/a.yaml")
	last := Commit{}
	for _, step := range []struct {
		what    string
		do      func() error
		changes bool
	}{
		{"an empty folder", func() error { return nil }, true},
		{"a file", func() error { write(t, file, "one"); return nil }, true},
		{"the same size", func() error { write(t, file, "two"); return nil }, true},
		{"nothing", func() error { return nil }, false},
		{"no definition", func() error { write(t, filepath.Join(dir, "main.go"), "x"); return nil }, false},
		{"our own data", func() error { write(t, filepath.Join(dir, ".triphammer/a.yaml"), "x"); return nil }, false},
		{"a link", func() error { return os.Symlink("/etc", filepath.Join(dir, "agents")) }, true},
		{"another name", func() error { return os.Rename(file, filepath.Join(dir, "webhooks/b.yaml")) }, true},
		{"a large file", func() error { write(t, filepath.Join(dir, "l.json"), strings.Repeat("x", maxHashed+1)); return nil }, true},
		{"removal", func() error { return os.Remove(filepath.Join(dir, "l.json")) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		c, err := w.Head(context.Background())
		if err != nil || (c.Hash != last.Hash) != step.changes || c.Subject != "working tree" {
			t.Errorf("%s: %+v after %+v, %v", step.what, c, last, err)
		}
		last = c
	}
}

// FuzzTree: whatever a tree object holds, walking it ends, stays inside and
// does not panic.
func FuzzTree(f *testing.F) {
	f.Add([]byte("100644 a.yaml\x00aaaaaaaaaaaaaaaaaaaa40000 ..\x00bbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("120000 .git\x00aaaaaaaaaaaaaaaaaaaa160000 a/b\x00bbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("9 \x00"))
	bare, _ := clone(f, "main")
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := openObjects(bare)
		if err != nil {
			t.Fatal(err)
		}
		object := o.storage.NewEncodedObject()
		object.SetType(plumbing.TreeObject)
		w, _ := object.Writer()
		_, _ = w.Write(data) // to memory
		hash, err := o.storage.SetEncodedObject(object)
		if err != nil {
			t.Fatal(err)
		}
		tree := &treeFS{objects: o, root: &node{hash: hash, name: ".", mode: fs.ModeDir}}
		tree.root.tree = tree
		_ = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if !fs.ValidPath(name) {
				t.Errorf("%q is no path", name)
			}
			if err == nil && d.Type().IsRegular() {
				_, _ = d.Info()
			}
			return nil
		})
	})
}
