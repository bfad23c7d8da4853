package applier

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"testing/fstest"
)

// Snapshot is the definition files of one apply, byte for byte.
type Snapshot struct{ Files []File }

// File is a definition file of a Snapshot.
type File struct {
	Path       string // from the root of the factory, with slashes
	Data       []byte
	Executable bool
}

// FS is the snapshot as a file tree. It shares the files' bytes.
func (s Snapshot) FS() fs.FS {
	t := snapshotFS{".": {}}
	for _, f := range s.Files {
		if ValidFile(f.Path) {
			mode := fs.FileMode(0o444)
			if f.Executable {
				mode = 0o555
			}
			t.add(f.Path, &fstest.MapFile{Data: f.Data, Mode: mode})
		}
	}
	return t
}

// ValidFile tells whether a snapshot can have a file at the path.
func ValidFile(path string) bool { return fs.ValidPath(path) && path != "." }

// snapshotFS holds one fstest.MapFS for each folder of a snapshot. A single MapFS for the
// whole tree would scan all files each time that a folder is listed.
type snapshotFS map[string]fstest.MapFS

// add adds a file or folder, and its parent folders. If the path is taken, the earlier
// entry stays.
func (t snapshotFS) add(name string, f *fstest.MapFile) {
	dir, base := path.Dir(name), path.Base(name)
	if t[dir] == nil {
		t.add(dir, &fstest.MapFile{Mode: fs.ModeDir | 0o555})
	}
	if t[dir] == nil || t[dir][base] != nil {
		return // the parent is a file, or the path is taken
	}
	t[dir][base] = f
	if f.Mode.IsDir() {
		t[name] = fstest.MapFS{}
	}
}

// Open implements fs.FS.
func (t snapshotFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	dir, base := t[path.Dir(name)], path.Base(name)
	f, err := dir.Open(base)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if entries := t[name]; entries != nil && name != "." {
		inside, err := entries.Open(".")
		folder, _ := inside.(fs.ReadDirFile)
		return openFolder{folder, f}, err
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS.
func (t snapshotFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if t[name] == nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return t[name].ReadDir(".")
}

// openFolder is an open folder. Its entries come from its own MapFS, and its information
// from the MapFS of its parent.
type openFolder struct {
	fs.ReadDirFile
	self fs.File
}

func (o openFolder) Stat() (fs.FileInfo, error) { return o.self.Stat() }

// Recorder is a tree that keeps every file that is read, so that a snapshot is exactly
// what was validated. It must be used by only one goroutine.
type Recorder struct {
	fs.FS
	read map[string]File
}

// NewRecorder makes a Recorder of a tree.
func NewRecorder(tree fs.FS) *Recorder {
	return &Recorder{FS: tree, read: make(map[string]File)}
}

// ReadDir implements fs.ReadDirFS.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.FS, name) }

// ReadFile implements fs.ReadFileFS.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.FS, name)
	if err == nil {
		info, err := fs.Stat(r.FS, name)
		r.read[name] = File{Path: name, Data: data, Executable: err == nil && info.Mode()&0o100 != 0}
	}
	return data, err
}

// Snapshot has the files that were read so far.
func (r *Recorder) Snapshot() Snapshot {
	var s Snapshot
	for _, name := range slices.Sorted(maps.Keys(r.read)) {
		s.Files = append(s.Files, r.read[name])
	}
	return s
}
