package applier

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Snapshot is the definition files of one apply, byte for byte.
type Snapshot struct{ Files []File }

// File is a definition file of a Snapshot.
type File struct {
	Path string // from the root of the factory, with slashes
	Data []byte
}

// FS is the snapshot as a file tree. It shares the files' bytes.
func (s Snapshot) FS() fs.FS {
	tree := snapshotFS{".": &entry{name: ".", folder: true}}
	for _, f := range s.Files {
		if ValidFile(f.Path) {
			tree.add(f.Path, &entry{data: f.Data})
		}
	}
	for _, e := range tree {
		slices.SortFunc(e.entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return tree
}

// ValidFile tells whether a snapshot can have a file at the path.
func ValidFile(path string) bool { return fs.ValidPath(path) && path != "." }

// snapshotFS holds every file and folder of a snapshot by its path.
type snapshotFS map[string]*entry

// add puts a file or folder, and the folders that it is in; the first of two at
// one path stays.
func (t snapshotFS) add(name string, e *entry) *entry {
	if there := t[name]; there != nil {
		return there
	}
	e.name = path.Base(name)
	t[name] = e
	parent := t.add(path.Dir(name), &entry{folder: true})
	parent.entries = append(parent.entries, e)
	return e
}

func (t snapshotFS) lookup(op, name string) (*entry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if e := t[name]; e != nil {
		return e, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Open implements fs.FS.
func (t snapshotFS) Open(name string) (fs.File, error) {
	e, err := t.lookup("open", name)
	if err != nil {
		return nil, err
	}
	return &opened{entry: e, Reader: bytes.NewReader(e.data), rest: e.entries}, nil
}

// ReadDir implements fs.ReadDirFS.
func (t snapshotFS) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := t.lookup("readdir", name)
	if err != nil {
		return nil, err
	}
	if !e.folder {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a folder")}
	}
	return slices.Clone(e.entries), nil
}

// ReadFile implements fs.ReadFileFS.
func (t snapshotFS) ReadFile(name string) ([]byte, error) {
	e, err := t.lookup("read", name)
	if err != nil {
		return nil, err
	}
	if e.folder {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("a folder")}
	}
	return slices.Clone(e.data), nil
}

// entry is a file or folder, as fs.DirEntry and fs.FileInfo.
type entry struct {
	name    string
	folder  bool
	data    []byte        // of a file
	entries []fs.DirEntry // of a folder
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.folder }
func (e *entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return int64(len(e.data)) }
func (e *entry) ModTime() time.Time         { return time.Time{} }
func (e *entry) Sys() any                   { return nil }

func (e *entry) Mode() fs.FileMode {
	if e.folder {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

// opened is an open file or folder.
type opened struct {
	*entry
	*bytes.Reader
	rest []fs.DirEntry
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.entry, nil }
func (o *opened) Size() int64                { return o.entry.Size() }
func (o *opened) Close() error               { return nil }

func (o *opened) Read(p []byte) (int, error) {
	if o.folder {
		return 0, &fs.PathError{Op: "read", Path: o.name, Err: errors.New("a folder")}
	}
	return o.Reader.Read(p)
}

func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) {
	switch {
	case !o.folder:
		return nil, &fs.PathError{Op: "readdir", Path: o.name, Err: errors.New("not a folder")}
	case n <= 0:
		n = len(o.rest)
	case len(o.rest) == 0:
		return nil, io.EOF
	}
	n = min(n, len(o.rest))
	some := slices.Clone(o.rest[:n])
	o.rest = o.rest[n:]
	return some, nil
}

// Recorder is a tree that keeps what is read of it, so that a snapshot is exactly
// what was validated. It is for one goroutine.
type Recorder struct {
	fs.FS
	read map[string][]byte
}

// NewRecorder records the reading of a tree.
func NewRecorder(tree fs.FS) *Recorder {
	return &Recorder{FS: tree, read: make(map[string][]byte)}
}

// ReadDir implements fs.ReadDirFS.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.FS, name) }

// ReadFile implements fs.ReadFileFS.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.FS, name)
	if err == nil {
		r.read[name] = data
	}
	return data, err
}

// Snapshot is what was read so far.
func (r *Recorder) Snapshot() Snapshot {
	var s Snapshot
	for _, name := range slices.Sorted(maps.Keys(r.read)) {
		s.Files = append(s.Files, File{Path: name, Data: r.read[name]})
	}
	return s
}
