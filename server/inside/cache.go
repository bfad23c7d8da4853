package inside

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/server/run/event"
)

// Cache is what the setup commands of runs keep for each other (SPEC 15.9): archives of files, each under
// the key of the lock files that it was made from.
type Cache struct {
	Dir   string   `json:"dir"` // the archives, by key
	Of    string   `json:"of"`  // what a key depends on beside Files
	Paths []string `json:"paths"`
	Files []string `json:"files"`
	Keeps bool     `json:"keeps,omitempty"` // whether the run may keep an archive; all runs may read
}

// MaxCache is how many bytes of files an archive may have.
const MaxCache = 4 << 30

// cachePlaces are the folders that the paths of an archive begin with.
var cachePlaces = []string{"work", "home"}

// setUp runs the setup commands between restoring the cache and keeping it. A cache that fails costs time, and
// the run goes on.
func (j *Job) setUp(s *supervising, f Folder, dir string, commands func() error) error {
	c := j.Cache
	if c == nil {
		return commands()
	}
	a, err := c.open(f, dir)
	if err != nil {
		s.add(event.Status{Message: "the cache is not used: " + err.Error()})
		return commands()
	}
	defer a.close()
	restored, err := a.restore(filepath.Join(c.Dir, a.key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.add(event.Status{Message: "cache: nothing is kept for these lock files yet"})
	case err != nil:
		s.add(event.Status{Message: "the cache was not restored completely: " + err.Error()})
	default:
		s.add(event.Status{Message: fmt.Sprintf("cache: restored %.1f MB", float64(restored)/1e6)})
		_ = s.report.Tell(FrameCached, a.key)
	}
	if err := commands(); err != nil {
		return err
	}
	if !c.Keeps || err == nil {
		return nil
	}
	kept, err := a.save(c.Paths, frames{s.report})
	if err == nil {
		err = s.report.Tell(FrameCached, a.key)
	}
	if err != nil {
		s.add(event.Status{Message: "the cache is not kept: " + err.Error()})
		return nil
	}
	s.add(event.Status{Message: fmt.Sprintf("cache: kept %.1f MB for later runs", float64(kept)/1e6)})
	return nil
}

// frames writes an archive as frames of a report.
type frames struct{ to *FrameWriter }

func (f frames) Write(p []byte) (int, error) {
	for part := range slices.Chunk(p, MaxFrame/4) {
		if err := f.to.write(FrameCache, part); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// archived are the folders that an archive is restored into and made from. No path and no link in an archive
// leads out of them.
type archived struct {
	key   string
	roots map[string]*os.Root // by cachePlaces
}

// open finds the key, from the lock files as the clone left them.
func (c *Cache) open(f Folder, dir string) (*archived, error) {
	a := &archived{roots: make(map[string]*os.Root)}
	for i, place := range []string{dir, f.Home()} {
		root, err := os.OpenRoot(place)
		if err != nil {
			a.close()
			return nil, err
		}
		a.roots[cachePlaces[i]] = root
	}
	err := c.find(a)
	if err != nil {
		a.close()
	}
	return a, err
}

func (c *Cache) find(a *archived) error {
	work, key := a.roots[cachePlaces[0]].FS(), sha256.New()
	fmt.Fprintf(key, "%q", c.Of)
	found := 0
	for _, pattern := range c.Files {
		names, err := fs.Glob(work, pattern)
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		for _, name := range names {
			content := sha256.New()
			file, err := work.Open(name)
			if err == nil {
				_, err = io.Copy(content, file)
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				return fmt.Errorf("reading the lock file %s: %w", name, err)
			}
			found++
			fmt.Fprintf(key, "%q%x", name, content.Sum(nil))
		}
	}
	if found == 0 {
		return fmt.Errorf("the repository has no file %s", strings.Join(c.Files, ", "))
	}
	a.key = hex.EncodeToString(key.Sum(nil))
	return nil
}

func (a *archived) close() {
	for _, root := range a.roots {
		_ = root.Close()
	}
}

// at finds the place of a name in an archive.
func (a *archived) at(name string) (*os.Root, string, error) {
	place, rest, _ := strings.Cut(name, "/")
	root := a.roots[place]
	if root == nil || rest == "" {
		return nil, "", fmt.Errorf("the archive has the name %q", name)
	}
	return root, rest, nil
}

// restore unpacks an archive, and tells how many bytes its files have. What stands in its way stays, and is an
// error.
func (a *archived) restore(name string) (size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	var folders []*tar.Header
	for from := tar.NewReader(file); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return size, err
		}
		root, rest, err := a.at(strings.TrimSuffix(h.Name, "/"))
		if err != nil {
			return size, err
		}
		if err := root.MkdirAll(path.Dir(rest), 0o755); err != nil {
			return size, err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			folders = append(folders, h) // their modes may forbid what follows
			err = root.MkdirAll(rest, 0o755)
		case tar.TypeSymlink:
			_ = root.Remove(rest)
			err = root.Symlink(h.Linkname, rest)
		default:
			size += h.Size
			err = unpack(root, rest, h, from)
		}
		if err != nil {
			return size, err
		}
	}
	for _, h := range slices.Backward(folders) {
		root, rest, _ := a.at(strings.TrimSuffix(h.Name, "/"))
		if err := errors.Join(root.Chmod(rest, h.FileInfo().Mode().Perm()), root.Chtimes(rest, h.ModTime, h.ModTime)); err != nil {
			return size, err
		}
	}
	return size, nil
}

func unpack(root *os.Root, name string, h *tar.Header, from io.Reader) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Chmod(h.FileInfo().Mode().Perm()), file.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
}

// save makes an archive of paths, and tells how many bytes its files have. Paths that are not there are left out.
func (a *archived) save(paths []string, to io.Writer) (size int64, err error) {
	archive := tar.NewWriter(to)
	for _, p := range paths {
		place := cachePlaces[0]
		if rest, home := strings.CutPrefix(p, "~/"); home {
			place, p = cachePlaces[1], rest
		}
		root := a.roots[place]
		err := fs.WalkDir(root.FS(), path.Clean(p), func(name string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := root.Lstat(name)
			if err != nil {
				return err
			}
			if size += info.Size(); size > MaxCache {
				return fmt.Errorf("its files have more than %d bytes", int64(MaxCache))
			}
			return add(archive, root, place, name, info)
		})
		if err != nil {
			return size, err
		}
	}
	return size, archive.Close()
}

func add(archive *tar.Writer, root *os.Root, place, name string, info fs.FileInfo) (err error) {
	link := ""
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	case fs.ModeDir, 0:
	default:
		return nil // a socket, say
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = place+"/"+name, 0, 0, "", ""
	if err := archive.WriteHeader(h); err != nil || info.Mode().Type() != 0 {
		return err
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, info.Size())
	return errors.Join(err, file.Close())
}
