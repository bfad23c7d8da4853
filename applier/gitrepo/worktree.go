package gitrepo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// WorkTree is a plain folder as a source of definitions. It follows no link out
// of the folder.
type WorkTree struct {
	path string
	root *os.Root
}

// OpenWorkTree opens a folder; Close releases it.
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

// Describe names the folder; there is no branch.
func (w *WorkTree) Describe() (repository, branch string) { return w.path, "" }

// FS is the folder as it is now.
func (w *WorkTree) FS() fs.FS { return w.root.FS() }

// Head stands in for a commit: its hash is over what the files hold.
func (w *WorkTree) Head(ctx context.Context) (Commit, error) {
	h := sha256.New()
	err := w.walk(ctx, func(name string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || !isText(name) {
			return nil
		}
		data, err := w.root.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile: the next look finds out
		}
		fmt.Fprintf(h, "%s\x00%d\x00", name, len(data))
		h.Write(data)
		return err
	})
	if err != nil {
		return Commit{}, fmt.Errorf("reading %s: %w", w.path, err)
	}
	return Commit{Hash: hex.EncodeToString(h.Sum(nil)[:20]), Subject: "working tree", Time: time.Now()}, nil
}

// isText tells whether a file can matter to a definition tree.
func isText(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".md", ".json":
		return true
	}
	return false
}

// Tree is the folder dir as it is now, whatever the hash.
func (w *WorkTree) Tree(_ context.Context, _, dir string) (fs.FS, error) {
	if dir == "" || dir == "." {
		return w.root.FS(), nil
	}
	return fs.Sub(w.root.FS(), dir)
}

// Watch calls kick whenever a file may have changed, until ctx is done.
func (w *WorkTree) Watch(ctx context.Context, kick func()) error {
	return watch(ctx, kick, func() []string {
		dirs := []string{w.path}
		_ = w.walk(ctx, func(name string, d fs.DirEntry) error { // unreadable folders are not watched
			if d.IsDir() && len(dirs) < 1000 {
				dirs = append(dirs, filepath.Join(w.path, name))
			}
			return nil
		})
		return dirs
	})
}

// walk visits what is not hidden.
func (w *WorkTree) walk(ctx context.Context, visit func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(w.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name == "." {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return visit(name, d)
	})
}
