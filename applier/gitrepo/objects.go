package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// maxObject is the largest object that is read, in bytes. Reading an object holds several
// whole copies of it in memory, so its size is checked first.
const maxObject = 32 << 20

// objects is a repository that was opened for one use: its references and objects as they
// are now.
type objects struct {
	path     string // of the repository, for messages
	storage  *filesystem.Storage
	borrowed []*filesystem.Storage // repositories in objects/info/alternates
}

// openObjects opens the repository that has its .git at path, or that is bare.
//
// The library's own open refuses partial clones and repositories with a configuration per
// worktree, although both can be read. It also does not find objects that are borrowed from
// another repository.
func openObjects(path string) (*objects, error) {
	dir := gitDir(path)
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoRepository, path, err)
	}
	var files billy.Filesystem = osfs.New(dir)
	if common := commonDir(dir); common != dir {
		files = dotgit.NewRepositoryFilesystem(files, osfs.New(common))
	}
	system := osfs.New(string(filepath.Separator))
	o := &objects{path: path, storage: filesystem.NewStorageWithOptions(files, cache.NewObjectLRUDefault(), filesystem.Options{
		AlternatesFS: system,
	})}
	if err := supported(path, o.storage); err != nil {
		return nil, err
	}
	lenders, _ := dotgit.NewWithOptions(files, dotgit.Options{AlternatesFS: system}).Alternates() // usually none
	for _, lender := range lenders {
		o.borrowed = append(o.borrowed, filesystem.NewStorage(lender.Fs(), cache.NewObjectLRU(0)))
	}
	return o, nil
}

// supported refuses repositories whose format for references or objects this package
// cannot read.
func supported(path string, storage *filesystem.Storage) error {
	cfg, err := storage.Config()
	if err != nil {
		return fmt.Errorf("%w: the configuration of %s: %w", ErrCorrupt, path, err)
	}
	for _, option := range cfg.Raw.Section("extensions").Options {
		key, value := strings.ToLower(option.Key), strings.ToLower(option.Value)
		switch {
		case key == "objectformat" && value == "sha1", key == "refstorage" && value == "files":
		case key == "noop", key == "preciousobjects", key == "partialclone", key == "worktreeconfig", key == "relativeworktrees":
			// These extensions concern only writers and checkouts.
		default:
			return fmt.Errorf("%w: %s uses extension %s = %s; make one with: git init --object-format=sha1 --ref-format=files",
				ErrUnsupported, path, option.Key, option.Value)
		}
	}
	return nil
}

func (o *objects) commit(hash plumbing.Hash) (*object.Commit, error) {
	if err := o.bounded(hash, "commit"); err != nil {
		return nil, err
	}
	c, err := object.GetCommit(o.storage, hash)
	return c, o.damaged(err, "commit", hash)
}

func (o *objects) tree(hash plumbing.Hash) (*object.Tree, error) {
	if err := o.bounded(hash, "tree"); err != nil {
		return nil, err
	}
	t, err := object.GetTree(o.storage, hash)
	return t, o.damaged(err, "tree", hash)
}

// blob reads the content of a file that has size bytes.
func (o *objects) blob(hash plumbing.Hash, size int64) ([]byte, error) {
	if err := o.readable(hash, "file", size); err != nil {
		return nil, err
	}
	b, err := object.GetBlob(o.storage, hash)
	if err != nil {
		return nil, o.damaged(err, "file", hash)
	}
	r, err := b.Reader()
	if err != nil {
		return nil, o.damaged(err, "file", hash)
	}
	defer func() { _ = r.Close() }() // of memory
	data, err := io.ReadAll(r)
	return data, o.damaged(err, "file", hash)
}

// size is the size of an object in bytes, without reading its content.
func (o *objects) size(hash plumbing.Hash) (int64, error) {
	n, err := o.storage.EncodedObjectSize(hash)
	for _, lender := range o.borrowed { // the library asks lenders only for content
		if err == nil {
			break
		}
		n, err = lender.EncodedObjectSize(hash)
	}
	return n, o.damaged(err, "object", hash)
}

func (o *objects) bounded(hash plumbing.Hash, what string) error {
	size, err := o.size(hash)
	if err != nil {
		return err
	}
	return o.readable(hash, what, size)
}

func (o *objects) readable(hash plumbing.Hash, what string, size int64) error {
	if size > maxObject {
		return fmt.Errorf("%s %s of %s has %d bytes, more than the %d that are read", what, hash, o.path, size, maxObject)
	}
	return nil
}

// moved tells whether an object that could not be read may be found when the repository
// is opened again. A repack moves objects from one file to another.
func moved(err error) bool {
	return errors.Is(err, plumbing.ErrObjectNotFound) || errors.Is(err, dotgit.ErrPackfileNotFound) ||
		errors.Is(err, dotgit.ErrIdxNotFound) || errors.Is(err, fs.ErrNotExist)
}

// damaged explains an object that cannot be read.
func (o *objects) damaged(err error, what string, hash plumbing.Hash) error {
	if err == nil || errors.Is(err, ErrCorrupt) {
		return err
	}
	hint := "see: git fsck"
	if _, e := os.Stat(filepath.Join(commonDir(gitDir(o.path)), "objects", "info", "alternates")); e == nil {
		hint = "it borrows objects from another repository (objects/info/alternates); make it whole with: git repack -a -d"
	}
	return fmt.Errorf("%w: %s %s of %s: %w; %s", ErrCorrupt, what, hash, o.path, err, hint)
}

// survive turns a panic over a malformed object or revision into an error. The content of
// a repository must not stop the server.
func survive(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrCorrupt, p)
	}
}
