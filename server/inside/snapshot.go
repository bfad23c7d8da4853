package inside

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"triphammer/server/run/event"
)

// Limits of looking at a workspace.
const (
	maxEntries   = 200_000         // files remembered from before the agent
	maxVisited   = 10 * maxEntries // files and folders looked at after the agent
	maxHashed    = 512 << 20       // bytes read in one look; of further files only size and times are compared
	maxKept      = 128 << 20       // bytes of old content kept for diffs
	maxFile      = 4 << 20         // bytes of a file whose content is compared
	maxDiff      = 64 << 10        // bytes of one diff of the transcript
	maxDiffs     = 1 << 20         // bytes of all diffs of the transcript
	maxChanges   = 2000            // files listed
	maxIgnored   = 100             // ignored files and folders listed
	maxRoots     = 16              // repositories whose view is asked for
	maxDepth     = 200             // of folders
	binaryWindow = 8000            // a file with a NUL in this number of first bytes is binary, as for Git
)

// snapshot is the content of a workspace before the agent started. It keeps the folder
// open, so that another folder of the same name is not mistaken for it. It keeps the old
// content in a file without a name, so that the agent cannot change it.
type snapshot struct {
	root    *os.Root
	files   map[string]*entry // without files that Git ignores
	roots   map[string]bool   // folders of repositories, and whether the agent made them
	partial bool              // a part of the workspace was not looked at
	began   time.Time         // when the agent began, by the clock of the file system
	texts   *os.File
	kept    int64
}

// entry is one file, symbolic link or submodule. The content of a link is its target, and the
// content of a submodule is its commit.
type entry struct {
	info   fileInfo
	hashed bool
	blob   blobID
	kept   bool // the content is in snapshot.texts at offset
	offset int64
	size   int
	seen   bool // also seen after the agent
}

// blobID is Git's name of a content.
type blobID [sha1.Size]byte

// fileInfo differs after every change of a file, because no program can set ctime.
type fileInfo struct {
	mode         fs.FileMode
	size         int64
	mtime, ctime syscall.Timespec
	inode        uint64
	commit       blobID // of a submodule
}

// submodule is the mode of a submodule's entry.
const submodule = fs.ModeDir

// gitMode is the mode that Git has for a file.
func (i fileInfo) gitMode() string {
	switch {
	case i.mode&submodule != 0:
		return "160000"
	case i.mode&fs.ModeSymlink != 0:
		return "120000"
	case i.mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// since tells whether the file was changed after a time.
func (i fileInfo) since(t time.Time) bool { return time.Unix(i.ctime.Unix()).After(t) }

// openNonblock opens a pipe without waiting for its other end.
const openNonblock = syscall.O_NONBLOCK

var (
	errTooMany = fmt.Errorf("the workspace holds more than %d files", maxEntries)
	errTooDeep = fmt.Errorf("the workspace has folders %d deep", maxDepth)
)

// view tells which paths Git ignores in the repository of a folder of the workspace, and the
// commits of its submodules. Paths are below the folder.
type view func(dir string) (ignored []string, submodules map[string]blobID)

// takeSnapshot looks at the folder dir. roots are the folders of the run's repositories in dir.
// A file in the folder temp keeps the old content. The caller closes the snapshot.
func takeSnapshot(dir, temp string, roots []string, git view) (_ *snapshot, err error) {
	s := &snapshot{files: make(map[string]*entry), roots: make(map[string]bool)}
	for _, r := range roots {
		s.roots[r] = false
	}
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
	info, err := s.texts.Stat()
	if err != nil {
		return nil, err
	}
	now := infoOf(info)
	defer func() { s.began = time.Unix(now.ctime.Unix()) }()
	budget := int64(maxHashed)
	err = s.walk(git, func(name, ignored string, info fileInfo) error {
		switch {
		case ignored != "":
			return nil
		case len(s.files) >= maxEntries:
			return errTooMany
		}
		e := &entry{info: info}
		if data, small := s.read(name, e, &budget); small && s.kept+int64(len(data)) <= maxKept {
			if _, err := s.texts.WriteAt(data, s.kept); err == nil {
				e.kept, e.offset, e.size = true, s.kept, len(data)
				s.kept += int64(len(data))
			}
		}
		s.files[name] = e
		return nil
	})
	if s.partial = errors.Is(err, errTooMany) || errors.Is(err, errTooDeep); s.partial {
		err = nil
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

// walk visits the files of the workspace, except Git's own. ignored is the file, or the folder
// around it, that Git ignores; empty: Git does not ignore the file.
func (s *snapshot) walk(git view, visit func(name, ignored string, info fileInfo) error) error {
	ignored, under, visited, deep, failed := make(map[string]bool), "", 0, error(nil), error(nil)
	enter := func(name string) {
		if _, err := s.root.Lstat(path.Join(name, ".git")); err != nil || !s.has(name) && len(s.roots) >= maxRoots {
			return
		}
		if !s.has(name) {
			s.roots[name] = !s.began.IsZero()
		}
		none, submodules := git(name)
		for _, p := range none {
			ignored[path.Join(name, p)] = true
		}
		for p, commit := range submodules {
			failed = cmp.Or(failed, visit(path.Join(name, p), "", fileInfo{mode: submodule, commit: commit}))
		}
	}
	enter(".")
	err := walkDir(s.root, ".", func(name string, d fs.DirEntry) error {
		if visited++; visited > maxVisited {
			return errTooMany
		}
		if under != "" && !strings.HasPrefix(name, under+"/") {
			under = ""
		}
		switch {
		case d.Name() == ".git" && d.IsDir():
			return fs.SkipDir
		case d.Name() == ".git":
			return nil // the .git of a worktree or submodule
		case d.IsDir() && strings.Count(name, "/") >= maxDepth:
			deep = errTooDeep // looking at the folder would take the square of its depth
			return fs.SkipDir
		case d.IsDir() && under == "" && ignored[name]:
			under = name
			return nil
		case d.IsDir():
			if under == "" {
				enter(name)
			}
			return nil
		case !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		info, err := s.root.Lstat(name)
		if err != nil {
			return nil
		}
		by := under
		if by == "" && ignored[name] {
			by = name
		}
		return visit(name, by, infoOf(info))
	})
	return cmp.Or(err, failed, deep)
}

// walkDir visits everything below a folder, sorted by name, like filepath.WalkDir. It also visits
// names that are not UTF-8, which fs.FS forbids. It skips files that are gone or not readable.
func walkDir(root *os.Root, dir string, visit func(name string, d fs.DirEntry) error) error {
	f, err := root.Open(dir)
	if err != nil {
		return nil
	}
	entries, _ := f.ReadDir(-1) // also partial results
	_ = f.Close()
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, d := range entries {
		name := path.Join(dir, d.Name())
		err := visit(name, d)
		if err == nil && d.IsDir() {
			err = walkDir(root, name, visit)
		}
		if err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
	}
	return nil
}

// repository is the folder of the repository that a file belongs to; ".": the workspace itself,
// or no repository.
func (s *snapshot) repository(name string) string {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if dir == "." || s.has(dir) {
			return dir
		}
	}
}

// has tells whether a folder is a repository's folder.
func (s *snapshot) has(dir string) bool {
	_, is := s.roots[dir]
	return is
}

func infoOf(info fs.FileInfo) fileInfo {
	f := fileInfo{mode: info.Mode(), size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.mtime, f.ctime, f.inode = st.Mtim, st.Ctim, st.Ino
	}
	return f
}

// read hashes a file, and returns its content if it is small. A file that cannot be read is
// compared only by its times.
func (s *snapshot) read(name string, e *entry, budget *int64) (content []byte, small bool) {
	if e.info.mode&submodule != 0 {
		e.hashed, e.blob = true, e.info.commit
		return fmt.Appendf(nil, "Subproject commit %x\n", e.blob), true
	}
	if e.info.size > *budget {
		return nil, false
	}
	*budget -= e.info.size
	if e.info.mode&fs.ModeSymlink != 0 {
		target, err := s.root.Readlink(name)
		e.hashed, e.blob = err == nil, blobOf([]byte(target))
		return []byte(target), err == nil
	}
	// The file may have become a pipe meanwhile; opening that would block.
	f, err := s.root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	if small = e.info.size <= maxFile; small {
		if content, err = io.ReadAll(io.LimitReader(f, maxFile)); err != nil {
			return nil, false
		}
		e.hashed, e.blob = true, blobOf(content)
		return content, true
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", e.info.size)
	n, err := io.Copy(h, io.LimitReader(f, e.info.size))
	e.hashed = err == nil && n == e.info.size
	h.Sum(e.blob[:0])
	return nil, false
}

// blobOf is the ID of a content in a repository with SHA-1.
func blobOf(data []byte) blobID {
	return sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
}

func isText(data []byte) bool { return bytes.IndexByte(data[:min(len(data), binaryWindow)], 0) < 0 }

// change is one changed file.
type change struct {
	name       string // path in the workspace
	repository string // as snapshot.repository returns it
	was, is    *entry // nil: there was, or is, no file
}

// changes are the differences between then and now in the files that Git does not ignore, sorted
// by repository and name, with the repository first at the beginning. ignored counts the written
// files that Git ignores, by the file or folder that it ignores.
func (s *snapshot) changes(git view, first string) (all []change, ignored map[string]int, err error) {
	ignored = make(map[string]int)
	budget := int64(maxHashed)
	err = s.walk(git, func(name, by string, info fileInfo) error {
		old := s.files[name]
		if old != nil {
			old.seen = true
		}
		switch now := (&entry{info: info}); {
		case by != "":
			if info.since(s.began) {
				ignored[by]++
			}
		case old == nil && s.partial && !info.since(s.began): // the file was not looked at before
		case old != nil && old.info == info:
		case len(all) >= maxEntries:
			return errTooMany
		default:
			if s.read(name, now, &budget); old == nil || !same(old, now) {
				all = append(all, change{name, s.repository(name), old, now})
			}
		}
		return nil
	})
	for name, old := range s.files {
		if (err == nil || errors.Is(err, errTooDeep)) && !old.seen {
			all = append(all, change{name, s.repository(name), old, nil})
		}
	}
	slices.SortFunc(all, func(a, b change) int {
		if a.repository != b.repository && (a.repository == first || b.repository == first) {
			if a.repository == first {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.repository, b.repository), cmp.Compare(a.name, b.name))
	})
	return all, ignored, err
}

// same tells whether two files with different times are the same for Git.
func same(a, b *entry) bool {
	return a.info.gitMode() == b.info.gitMode() && a.hashed && b.hashed && a.blob == b.blob
}

// describe makes the event of a change. before and after are the contents; nil: not known.
func (c change) describe(before, after []byte, room int) event.File {
	f := event.File{Path: strings.ToValidUTF8(c.name, "\uFFFD"), Change: event.FileModified}
	from, to := "a/"+f.Path, "b/"+f.Path
	if c.is != nil {
		f.Size = c.is.info.size
	}
	switch {
	case c.was == nil:
		f.Change, from = event.FileCreated, "/dev/null"
	case c.is == nil:
		f.Change, to = event.FileDeleted, "/dev/null"
	}
	switch {
	case before == nil || after == nil:
		f.Omitted = "it is too large"
	case !isText(before) || !isText(after) || !utf8.Valid(before) || !utf8.Valid(after):
		f.Omitted = "it is not text"
	default:
		if f.Diff = unifiedDiff(from, to, before, after); len(f.Diff) > min(maxDiff, room) {
			f.Diff, f.Omitted = "", "it is too long"
		}
	}
	return f
}

// contents are the old and the new content of a file. They are empty if there is no file, and nil
// if they are not known.
func (s *snapshot) contents(c change) (before, after []byte) {
	if before = []byte{}; c.was != nil {
		before = s.before(c.was)
	}
	if after = []byte{}; c.is != nil {
		budget, small := int64(maxFile), false
		if after, small = s.read(c.name, c.is, &budget); !small {
			after = nil
		}
	}
	return before, after
}

// open opens the new content of a file that is too large for contents.
func (s *snapshot) open(c change) (io.ReadCloser, error) {
	f, err := s.root.OpenFile(c.name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, c.is.info.size), f}, nil
}

func (s *snapshot) before(e *entry) []byte {
	if !e.kept {
		return nil
	}
	data := make([]byte, e.size)
	n, err := s.texts.ReadAt(data, e.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return data[:n]
}
