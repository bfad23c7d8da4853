package sandbox

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"triphammer/server/run/event"
)

// Limits of looking at a workspace.
const (
	maxEntries   = 200_000   // files looked at
	maxHashed    = 512 << 20 // bytes read per look; beyond it only size and times are compared
	maxKept      = 64 << 20  // bytes of old text kept for diffs
	maxDiffFile  = 256 << 10 // bytes of a file that gets a diff
	maxDiff      = 64 << 10  // bytes of one diff
	maxDiffs     = 1 << 20   // bytes of all diffs of a run
	maxChanges   = 2000      // files listed
	binaryWindow = 8000      // a file with a NUL in its first so many bytes is not text
)

// snapshot is the content of a workspace before the agent started. It keeps the folder
// open, so that another folder of the same name is not mistaken for it. It keeps the old
// texts in a file without a name, so that the agent cannot change them.
type snapshot struct {
	root  *os.Root
	files map[string]entry
	texts *os.File
	kept  int64
}

// entry is one file. Symbolic links are entries themselves, and not followed.
type entry struct {
	info   fileInfo
	hashed bool
	sum    [sha256.Size]byte
	text   bool // kept at offset
	offset int64
}

// fileInfo differs after every change of a file, because no program can set ctime.
type fileInfo struct {
	mode         fs.FileMode
	size         int64
	mtime, ctime syscall.Timespec
	inode        uint64
}

// openNonblock opens a pipe without waiting for its other end.
const openNonblock = syscall.O_NONBLOCK

var errTooMany = fmt.Errorf("the workspace holds more than %d files", maxEntries)

// takeSnapshot looks at the folder. It keeps texts in a file in the folder temp. It must be
// closed.
func takeSnapshot(dir, temp string) (_ *snapshot, err error) {
	s := &snapshot{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, err
	}
	if s.texts, err = os.CreateTemp(temp, ".before-*"); err != nil {
		return nil, err
	}
	if err := os.Remove(s.texts.Name()); err != nil {
		return nil, err
	}
	s.files, err = s.look(func(name string, e *entry, data []byte) {
		if isText(data) && s.kept+int64(len(data)) <= maxKept {
			if _, err := s.texts.WriteAt(data, s.kept); err == nil {
				e.text, e.offset = true, s.kept
				s.kept += int64(len(data))
			}
		}
	})
	if errors.Is(err, errTooMany) {
		s.files, err = nil, nil // changes reports it
	}
	return s, err
}

func (s *snapshot) close() {
	if s.root != nil {
		_ = s.root.Close()
	}
	if s.texts != nil {
		_ = s.texts.Close()
	}
}

// look walks the folder. small gets the content of each file that is small
// enough for a diff.
func (s *snapshot) look(small func(name string, e *entry, data []byte)) (map[string]entry, error) {
	files := make(map[string]entry)
	budget := int64(maxHashed)
	err := fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return nil // it is gone, or we may not read it
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0:
			return nil
		case len(files) >= maxEntries:
			return errTooMany
		}
		info, err := s.root.Lstat(name)
		if err != nil {
			return nil
		}
		e := entry{info: infoOf(info)}
		if info.Mode().IsRegular() && info.Size() <= budget {
			budget -= info.Size()
			s.read(name, &e, small)
		}
		files[name] = e
		return nil
	})
	return files, err
}

func infoOf(info fs.FileInfo) fileInfo {
	f := fileInfo{mode: info.Mode(), size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.mtime, f.ctime, f.inode = st.Mtim, st.Ctim, st.Ino
	}
	return f
}

// read hashes a file. One that cannot be read is compared by its times alone.
func (s *snapshot) read(name string, e *entry, small func(string, *entry, []byte)) {
	// The file may have become a pipe meanwhile; opening that would block.
	f, err := s.root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if e.info.size > maxDiffFile {
		if _, err := io.Copy(h, io.LimitReader(f, e.info.size)); err == nil {
			e.hashed = true
			h.Sum(e.sum[:0])
		}
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, maxDiffFile))
	if err != nil {
		return
	}
	h.Write(data)
	e.hashed = true
	h.Sum(e.sum[:0])
	small(name, e, data)
}

func isText(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), binaryWindow)], 0) < 0 && utf8.Valid(data)
}

// changes are the differences between then and now, sorted by path.
func (s *snapshot) changes(tell func(event.File)) error {
	if s.files == nil {
		return errTooMany
	}
	texts := make(map[string][]byte) // new texts of changed files
	held := 0
	after, err := s.look(func(name string, e *entry, data []byte) {
		old, was := s.files[name]
		if (!was || old.info != e.info && !same(old, *e)) && isText(data) && held < maxKept {
			texts[name] = data
			held += len(data)
		}
	})
	if err != nil {
		return err
	}
	var changed []string
	for name, e := range after {
		if old, was := s.files[name]; !was || old.info != e.info && !same(old, e) {
			changed = append(changed, name)
		}
	}
	for name := range s.files {
		if _, is := after[name]; !is {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	room := maxDiffs
	for i, name := range changed {
		if i == maxChanges {
			return fmt.Errorf("%d more files changed", len(changed)-i)
		}
		f := s.describe(name, after, texts)
		if len(f.Diff) > room {
			f.Diff, f.Omitted = "", "the diffs of this run are too long"
		}
		room -= len(f.Diff)
		tell(f)
	}
	return nil
}

// same tells whether two files with different times have the same content.
func same(a, b entry) bool {
	return a.info.mode == b.info.mode && a.hashed && b.hashed && a.sum == b.sum
}

func (s *snapshot) describe(name string, after map[string]entry, texts map[string][]byte) event.File {
	now, is := after[name]
	old, was := s.files[name]
	f := event.File{Path: strings.ToValidUTF8(name, "\uFFFD"), Change: event.FileModified, Size: now.info.size}
	var before, text []byte
	switch {
	case !was:
		f.Change = event.FileCreated
	case !is:
		f.Change = event.FileDeleted
	}
	known := true
	if was {
		before, known = s.oldText(old)
	}
	if is && known {
		text, known = texts[name]
	}
	if !known {
		f.Omitted = "it is not text, or too long"
		return f
	}
	if f.Diff = unifiedDiff(f.Path, before, text, was, is); len(f.Diff) > maxDiff {
		f.Diff, f.Omitted = "", "it is too long"
	}
	return f
}

func (s *snapshot) oldText(e entry) ([]byte, bool) {
	if !e.text {
		return nil, false
	}
	data := make([]byte, e.info.size)
	n, err := s.texts.ReadAt(data, e.offset)
	return data[:n], err == nil || errors.Is(err, io.EOF)
}
