package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Tree opens the folder dir of a commit as a file system: read-only, sizes known
// before reading, links and submodules told by their mode and not followed.
func (r *Repo) Tree(ctx context.Context, hash, dir string) (fs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	repo, err := r.open()
	if err != nil {
		return nil, err
	}
	c, err := object.GetCommit(repo.Storer, plumbing.NewHash(hash))
	if err != nil {
		return nil, fmt.Errorf("reading commit %s: %w", hash, err)
	}
	root, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("reading the tree of %s: %w", hash, err)
	}
	if dir = path.Clean(dir); dir != "." {
		if root, err = root.Tree(dir); err != nil {
			return nil, fmt.Errorf("%w: %s in %.12s", ErrNoFolder, dir, hash)
		}
	}
	return &treeFS{objects: repo.Storer, root: root, trees: map[string]*object.Tree{".": root}}, nil
}

// treeFS is a tree object as an fs.FS. It is not safe for concurrent use.
type treeFS struct {
	objects storer.EncodedObjectStorer
	root    *object.Tree
	trees   map[string]*object.Tree // by path, those read so far
}

func (t *treeFS) tree(name string) (*object.Tree, error) {
	if known := t.trees[name]; known != nil {
		return known, nil
	}
	parent, err := t.tree(path.Dir(name))
	if err != nil {
		return nil, err
	}
	e, err := entryIn(parent, path.Base(name))
	if err != nil {
		return nil, err
	}
	if e.Mode != filemode.Dir {
		return nil, errors.New("not a folder")
	}
	sub, err := object.GetTree(t.objects, e.Hash)
	if err != nil {
		return nil, err
	}
	t.trees[name] = sub
	return sub, nil
}

func entryIn(tree *object.Tree, name string) (object.TreeEntry, error) {
	for _, e := range tree.Entries {
		if e.Name == name {
			return e, nil
		}
	}
	return object.TreeEntry{}, fs.ErrNotExist
}

func (t *treeFS) entry(op, name string) (*treeEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return &treeEntry{fs: t, TreeEntry: object.TreeEntry{Name: ".", Mode: filemode.Dir}}, nil
	}
	parent, err := t.tree(path.Dir(name))
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	e, err := entryIn(parent, path.Base(name))
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return &treeEntry{fs: t, TreeEntry: e}, nil
}

// Open implements fs.FS.
func (t *treeFS) Open(name string) (fs.File, error) {
	e, err := t.entry("open", name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		entries, err := t.ReadDir(name)
		if err != nil {
			return nil, err
		}
		return &folder{treeEntry: e, entries: entries}, nil
	}
	if !e.Type().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("a link or submodule")}
	}
	blob, err := object.GetBlob(t.objects, e.Hash)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{treeEntry: e, ReadCloser: r}, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	tree, err := t.tree(name)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, 0, len(tree.Entries))
	for _, e := range tree.Entries {
		// A name that is no path segment would let a tree reach out of itself.
		if fs.ValidPath(e.Name) && path.Base(e.Name) == e.Name && e.Name != "." {
			entries = append(entries, &treeEntry{fs: t, TreeEntry: e})
		}
	}
	return entries, nil
}

// treeEntry is an entry as fs.DirEntry and fs.FileInfo.
type treeEntry struct {
	object.TreeEntry
	fs   *treeFS
	size int64
}

func (e *treeEntry) Name() string { return e.TreeEntry.Name }
func (e *treeEntry) IsDir() bool  { return e.TreeEntry.Mode == filemode.Dir }

func (e *treeEntry) Type() fs.FileMode { return e.Mode().Type() }

func (e *treeEntry) Mode() fs.FileMode {
	switch e.TreeEntry.Mode {
	case filemode.Dir:
		return fs.ModeDir | 0o555
	case filemode.Regular, filemode.Deprecated, filemode.Executable:
		return 0o444
	case filemode.Symlink:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// Info looks up the size, which reads no content.
func (e *treeEntry) Info() (fs.FileInfo, error) {
	if e.Type().IsRegular() {
		size, err := e.fs.objects.EncodedObjectSize(e.Hash)
		if err != nil {
			return nil, fmt.Errorf("object %s: %w", e.Hash, err)
		}
		e.size = size
	}
	return e, nil
}

func (e *treeEntry) Size() int64        { return e.size }
func (e *treeEntry) ModTime() time.Time { return time.Time{} }
func (e *treeEntry) Sys() any           { return nil }

type file struct {
	*treeEntry
	io.ReadCloser
}

func (f *file) Stat() (fs.FileInfo, error) { return f.Info() }

type folder struct {
	*treeEntry
	entries []fs.DirEntry
}

func (f *folder) Stat() (fs.FileInfo, error) { return f.Info() }

func (f *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("a folder")}
}

func (f *folder) Close() error { return nil }

func (f *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		rest := f.entries
		f.entries = nil
		return rest, nil
	}
	if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	some := f.entries[:n]
	f.entries = f.entries[n:]
	return some, nil
}
