package gitrepo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxHashed is the largest file, in bytes, whose content goes into the hash. A larger
	// file cannot be a definition; its size and time go into the hash.
	maxHashed = 1 << 20
	// racy is how old the last change of a file must be before an equal size and time
	// prove that the content is equal. Two changes within one tick of the clock have the
	// same time.
	racy = 2 * time.Second
	// maxWatched limits the number of folders that are watched with notifications.
	// Polling finds changes in the others.
	maxWatched = 1000
)

// WorkTree is a plain folder as a source of definitions. It follows no links out of the
// folder. It leaves out .git, .triphammer and node_modules.
type WorkTree struct {
	path string
	root *os.Root

	mu   sync.Mutex
	seen map[string]seen // by name, from the last Head
}

// seen is the state of a file when it was last read.
type seen struct {
	size    int64
	changed time.Time
	sum     [sha256.Size]byte
}

// OpenWorkTree opens a folder. Close releases it.
func OpenWorkTree(path string) (*WorkTree, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	return &WorkTree{path: abs, root: root}, nil
}

// Close releases the folder.
func (w *WorkTree) Close() error { return w.root.Close() }

// Describe names the folder. There is no branch.
func (w *WorkTree) Describe() (repository, branch string) { return w.path, "" }

// FS is the folder as it is now. Links are listed as links. A link that leads out of the
// folder cannot be opened.
func (w *WorkTree) FS() fs.FS { return folderFS{w.root.FS()} }

// Head makes a Commit of the folder. The hash covers the content of the definition files,
// and the time is the time of the newest file.
func (w *WorkTree) Head(ctx context.Context) (Commit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Commit{Subject: "working tree"}
	all, now := sha256.New(), make(map[string]seen)
	err := w.walk(ctx, func(name string, d fs.DirEntry) error {
		if link := d.Type() == fs.ModeSymlink; d.IsDir() || !link && !isText(name) {
			return nil
		}
		file, err := w.look(name, d)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil // the file was removed meanwhile, or is unreadable, as in walk
		}
		if err != nil {
			return err
		}
		now[name] = file
		if file.changed.After(c.Time) {
			c.Time = file.changed
		}
		fmt.Fprintf(all, "%d %s %s %x\n", len(name), name, d.Type(), file.sum)
		return nil
	})
	if err != nil {
		return Commit{}, fmt.Errorf("reading %s: %w", w.path, err)
	}
	w.seen = now
	c.Hash = hex.EncodeToString(all.Sum(nil)[:20])
	return c, nil
}

// look reads a file or a link, unless it is certainly unchanged.
func (w *WorkTree) look(name string, d fs.DirEntry) (seen, error) {
	info, err := d.Info()
	if err != nil {
		return seen{}, err
	}
	now := seen{size: info.Size(), changed: info.ModTime()}
	var content []byte
	switch known, ok := w.seen[name]; {
	case d.Type() == fs.ModeSymlink:
		var target string
		target, err = w.root.Readlink(name)
		content = []byte(target)
	case !d.Type().IsRegular():
	case ok && known.size == now.size && known.changed.Equal(now.changed) && time.Since(known.changed) > racy:
		return known, nil
	case info.Size() > maxHashed:
		content = fmt.Append(nil, now.size, now.changed.UnixNano())
	default:
		content, err = w.root.ReadFile(name)
	}
	now.sum = sha256.Sum256(content)
	return now, err
}

// isText tells whether a file can be part of a definition tree.
func isText(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".md", ".json":
		return true
	}
	return false
}

// Tree is the folder dir as it is now, whatever the hash. If a file changed after Head, the
// next Head returns another hash.
func (w *WorkTree) Tree(_ context.Context, _, dir string) (fs.FS, error) {
	if dir = path.Clean(dir); dir == "." {
		return w.FS(), nil
	}
	noFolder := fmt.Errorf("%w: %s in %s", ErrNoFolder, dir, w.path)
	if !fs.ValidPath(dir) {
		return nil, noFolder
	}
	switch info, err := w.root.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
		return nil, noFolder
	case err != nil:
		return nil, err
	}
	return fs.Sub(w.FS(), dir)
}

// Watch calls kick once at the start and whenever a file may have changed, until ctx is
// done.
func (w *WorkTree) Watch(ctx context.Context, kick func()) error {
	return watch(ctx, kick, func() []string {
		dirs := []string{w.path}
		_ = w.walk(ctx, func(name string, d fs.DirEntry) error { // unreadable folders are not watched
			if d.IsDir() {
				dirs = append(dirs, filepath.Join(w.path, filepath.FromSlash(name)))
			}
			if len(dirs) >= maxWatched {
				return fs.SkipAll
			}
			return nil
		})
		return dirs
	})
}

// walk visits everything in the folder, in order.
func (w *WorkTree) walk(ctx context.Context, visit func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(w.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case name == ".":
			return err
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil // loading the definitions reports it if it matters
		case err != nil:
			return err
		}
		return visit(name, d)
	})
}

// folderFS shows a folder of the operating system in the way of a commit's tree.
type folderFS struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (f folderFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	kept := entries[:0]
	for _, e := range entries {
		switch e.Name() {
		case ".git", ".triphammer", "node_modules":
			continue
		}
		if !plainName(e.Name()) {
			e = oddEntry{e}
		}
		kept = append(kept, e)
	}
	return kept, err
}

// ReadFile implements fs.ReadFileFS.
func (f folderFS) ReadFile(name string) ([]byte, error) { return fs.ReadFile(f.FS, name) }

// Stat implements fs.StatFS.
func (f folderFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(f.FS, name) }

// oddEntry is a file whose name cannot be part of a path (see shownName).
type oddEntry struct{ fs.DirEntry }

func (e oddEntry) Name() string               { return shownName(e.DirEntry.Name()) }
func (e oddEntry) IsDir() bool                { return false }
func (e oddEntry) Type() fs.FileMode          { return fs.ModeIrregular }
func (e oddEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e oddEntry) Size() int64                { return 0 }
func (e oddEntry) Mode() fs.FileMode          { return fs.ModeIrregular }
func (e oddEntry) ModTime() time.Time         { return time.Time{} }
func (e oddEntry) Sys() any                   { return nil }
