package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Tree opens the folder dir of a commit as a read-only file system. The size of a file is
// known before it is read. Links and submodules have the modes fs.ModeSymlink and
// fs.ModeIrregular, and are not followed. The error is ErrNoFolder if the commit does not
// have the folder, and ErrCorrupt if an object cannot be read.
//
// The tree implements fs.ReadDirFS, fs.ReadFileFS and fs.StatFS, may be used by
// several goroutines, and survives a repack of the repository.
func (r *Repo) Tree(ctx context.Context, hash, dir string) (_ fs.FS, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !plumbing.IsHash(hash) {
		return nil, fmt.Errorf("%w: %q is not a hash", ErrNoCommit, hash)
	}
	o, err := r.objectsOf(hash)
	if err != nil {
		return nil, err
	}
	t := &treeFS{objects: o, root: &node{hash: plumbing.NewHash(hash), name: ".", mode: fs.ModeDir | 0o555, commit: true}}
	t.root.tree = t
	if dir = path.Clean(dir); dir == "." {
		_, err = t.children(t.root)
		return t, err
	}
	noFolder := fmt.Errorf("%w: %s in %.12s", ErrNoFolder, dir, hash)
	if !fs.ValidPath(dir) {
		return nil, noFolder
	}
	at, err := t.find(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !at.IsDir():
		return nil, noFolder
	case err != nil:
		return nil, err
	}
	root := *at
	root.name = "."
	t.root = &root
	return t, nil
}

// treeFS is a tree object as an fs.FS.
type treeFS struct {
	root    *node
	damaged func() // called when an object cannot be read; may be nil
	partial bool   // missing files have at least tooBig bytes

	mu      sync.Mutex // guards objects, and the children and sizes of all nodes
	objects *objects
}

// node is an entry of a tree, as fs.DirEntry and fs.FileInfo.
type node struct {
	tree   *treeFS
	hash   plumbing.Hash
	name   string
	mode   fs.FileMode
	commit bool // hash names a commit, and the node is the root of its tree

	listed   bool
	children map[string]*node
	entries  []fs.DirEntry // the children, sorted by name
	sized    bool
	size     int64
}

// read calls do with the objects. If an object has moved, it opens the repository again,
// and calls do once more.
func (t *treeFS) read(do func(*objects) error) (err error) {
	defer func() {
		if errors.Is(err, ErrCorrupt) && t.damaged != nil {
			t.damaged()
		}
	}()
	defer survive(&err)
	if err = do(t.objects); !moved(err) {
		return err
	}
	fresh, openErr := openObjects(t.objects.path)
	if openErr != nil {
		return err
	}
	t.objects = fresh
	return do(fresh)
}

func (t *treeFS) children(n *node) (map[string]*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.listed {
		return n.children, nil
	}
	err := t.read(func(o *objects) error {
		hash := n.hash
		if n.commit {
			c, err := o.commit(hash)
			if err != nil {
				return err
			}
			hash = c.TreeHash
		}
		listed, err := o.tree(hash)
		if err != nil {
			return err
		}
		n.children, n.entries = make(map[string]*node, len(listed.Entries)), make([]fs.DirEntry, 0, len(listed.Entries))
		for _, e := range listed.Entries {
			child := &node{tree: t, hash: e.Hash, name: e.Name, mode: modeOf(e.Mode)}
			if !plainName(e.Name) {
				child.name, child.mode = shownName(e.Name), fs.ModeIrregular
			}
			if _, twice := n.children[child.name]; twice {
				continue
			}
			n.children[child.name] = child
			n.entries = append(n.entries, child)
		}
		// Git sorts a folder as if its name ended in a slash.
		slices.SortFunc(n.entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return nil
	})
	n.listed = err == nil
	return n.children, err
}

func modeOf(m filemode.FileMode) fs.FileMode {
	switch m {
	case filemode.Dir:
		return fs.ModeDir | 0o555
	case filemode.Regular, filemode.Deprecated:
		return 0o444
	case filemode.Executable:
		return 0o555
	case filemode.Symlink:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// plainName tells whether a name is one element of a path. Any other name could lead out
// of its folder, or could not be opened.
func plainName(name string) bool {
	return fs.ValidPath(name) && name != "." && !strings.ContainsAny(name, "/\\\x00")
}

// shownName is a substitute for a name that is not plain. The entry is listed as an
// irregular file, so that it is reported and not silently ignored.
func shownName(name string) string {
	shown := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == 0 {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	if !plainName(shown) {
		return "_" + strings.TrimLeft(shown, ".")
	}
	return shown
}

// find walks from the root to a valid path.
func (t *treeFS) find(name string) (*node, error) {
	at := t.root
	if name == "." {
		return at, nil
	}
	for element := range strings.SplitSeq(name, "/") {
		if !at.IsDir() {
			return nil, fs.ErrNotExist
		}
		children, err := t.children(at)
		if err != nil {
			return nil, err
		}
		if at = children[element]; at == nil {
			return nil, fs.ErrNotExist
		}
	}
	return at, nil
}

func (t *treeFS) lookup(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := t.find(name)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Open implements fs.FS.
func (t *treeFS) Open(name string) (fs.File, error) {
	n, err := t.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if n.IsDir() {
		entries, err := t.ReadDir(name)
		if err != nil {
			return nil, err
		}
		return &folder{node: n, entries: entries}, nil
	}
	data, err := t.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return &file{node: n, Reader: bytes.NewReader(data)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (t *treeFS) ReadFile(name string) ([]byte, error) {
	n, err := t.lookup("read", name)
	if err != nil {
		return nil, err
	}
	var data []byte
	if n.mode.IsRegular() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err = t.measure(n); err == nil {
			err = t.read(func(o *objects) (err error) {
				data, err = o.blob(n.hash, n.size)
				return err
			})
		}
	} else {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.lookup("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a folder")}
	}
	if _, err := t.children(n); err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return slices.Clone(n.entries), nil
}

// Stat implements fs.StatFS. It follows no link.
func (t *treeFS) Stat(name string) (fs.FileInfo, error) {
	n, err := t.lookup("stat", name)
	if err != nil {
		return nil, err
	}
	info, err := n.Info()
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return info, nil
}

func (n *node) Name() string       { return n.name }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Type() fs.FileMode  { return n.mode.Type() }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Time{} }
func (n *node) Sys() any           { return nil }

// Size is known after Info was called.
func (n *node) Size() int64 {
	n.tree.mu.Lock()
	defer n.tree.mu.Unlock()
	return n.size
}

// Info looks up the size, without reading the content.
func (n *node) Info() (fs.FileInfo, error) {
	if !n.mode.IsRegular() {
		return n, nil
	}
	n.tree.mu.Lock()
	defer n.tree.mu.Unlock()
	if err := n.tree.measure(n); err != nil {
		return nil, err
	}
	return n, nil
}

// measure looks up the size of a file, once. The caller holds t.mu.
func (t *treeFS) measure(n *node) error {
	if n.sized {
		return nil
	}
	err := t.read(func(o *objects) (err error) {
		if n.size, err = o.size(n.hash); t.partial && errors.Is(err, plumbing.ErrObjectNotFound) {
			n.size, err = tooBig, nil
		}
		return err
	})
	n.sized = err == nil
	return err
}

type file struct {
	*node
	*bytes.Reader
}

func (f *file) Stat() (fs.FileInfo, error) { return f.Info() }
func (f *file) Size() int64                { return f.Reader.Size() }
func (f *file) Close() error               { return nil }

type folder struct {
	*node
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
