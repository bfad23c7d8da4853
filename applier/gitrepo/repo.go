// Package gitrepo reads definitions from Git. It opens a commit as a read-only file
// tree, without a checkout.
//
// A [Repo] is a repository on this machine. A [Remote] is a repository on another
// machine, fetched over https or ssh into a cache. A [WorkTree] is a plain folder,
// which `dev` and `validate` read like a commit.
//
// The package guarantees:
//
//   - It reads the objects of one commit. A push during the reading changes nothing.
//   - It runs no program, hook or filter, and writes nothing to a local repository.
//   - Sizes and times are limited, and a credential appears in no error.
//
// Each read opens the repository afresh, because a long-lived handle becomes stale
// when the repository is repacked.
//
// The package does not know what a definition is. It decides neither when to read nor
// whether a commit is applied.
package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"triphammer/schema"
)

// Errors that callers tell apart. A returned error wraps one of these errors, and says where
// the problem is and what to do.
var (
	ErrNoRepository  = errors.New("no Git repository")
	ErrUnsupported   = errors.New("unsupported kind of Git repository")
	ErrNoBranch      = errors.New("no such branch")
	ErrEmpty         = fmt.Errorf("%w: the repository has none yet", ErrNoBranch)
	ErrNoCommit      = errors.New("no such commit")
	ErrNoFolder      = errors.New("no such folder in the commit")
	ErrCorrupt       = errors.New("the repository is damaged")
	ErrDenied        = errors.New("access to the repository is denied")
	ErrUnreachable   = errors.New("the repository cannot be reached")
	ErrMisconfigured = errors.New("the server's settings for the repository cannot be used")
)

// Commit describes one commit.
type Commit struct {
	Hash        string    `json:"hash"`
	AuthorName  string    `json:"author_name"`
	AuthorEmail string    `json:"author_email"`
	Subject     string    `json:"subject"` // first line of the message
	Time        time.Time `json:"time"`    // when the author wrote it
}

// Repo is a local repository with its production branch. It may be bare, or a linked
// worktree.
type Repo struct {
	path   string // the folder that holds .git, or the bare repository itself
	branch string

	mu   sync.Mutex
	head Commit   // the newest commit that Head has read
	kept *objects // the objects that Head opened to read head, for the next Tree
}

// Open finds the repository at path or above it. The branch is a short name (main) or a full
// name (refs/heads/main), and need not exist yet. A name that Git does not allow is an
// error, because the name becomes part of a path.
func Open(path, branch string) (*Repo, error) {
	branch = strings.TrimPrefix(branch, "refs/heads/")
	if err := plumbing.NewBranchReferenceName(branch).Validate(); err != nil {
		return nil, fmt.Errorf("%q is not a branch name", branch)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for dir := abs; ; dir = filepath.Dir(dir) {
		if isRepository(dir) {
			return &Repo{path: dir, branch: branch}, nil
		}
		if dir == filepath.Dir(dir) {
			return nil, fmt.Errorf("%w at %s; make one with: git init", ErrNoRepository, path)
		}
	}
}

func isRepository(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
		return true
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// Root is the folder of the repository: its working tree, or the bare
// repository itself.
func (r *Repo) Root() string { return r.path }

// Describe names the repository and the branch.
func (r *Repo) Describe() (repository, branch string) { return r.path, r.branch }

// Head is the newest commit of the production branch. Its errors are ErrNoBranch (which
// ErrEmpty wraps), ErrNoRepository, ErrUnsupported and ErrCorrupt. All of them may be
// temporary (SPEC 4.8).
func (r *Repo) Head(ctx context.Context) (Commit, error) {
	r.mu.Lock()
	known := r.head
	r.kept = nil
	r.mu.Unlock()
	c, o, err := r.resolve(ctx, known, func(o *objects) (plumbing.Hash, error) {
		ref, err := storer.ResolveReference(o.storage, plumbing.NewBranchReferenceName(r.branch))
		if errors.Is(err, plumbing.ErrReferenceNotFound) {
			return plumbing.ZeroHash, r.noBranch(o)
		}
		if err != nil {
			return plumbing.ZeroHash, fmt.Errorf("%w: branch %s of %s: %w", ErrCorrupt, r.branch, r.path, err)
		}
		return ref.Hash(), nil
	})
	if err == nil && c.Hash != known.Hash {
		r.mu.Lock()
		r.head, r.kept = c, o
		r.mu.Unlock()
	}
	return c, err
}

// objectsOf opens the objects for a commit. If Head has just read the commit, it returns
// the objects that Head opened, so that the index of a large repository is read once.
func (r *Repo) objectsOf(hash string) (*objects, error) {
	r.mu.Lock()
	o, of := r.kept, r.head.Hash
	r.kept = nil
	r.mu.Unlock()
	if o != nil && of == hash {
		return o, nil
	}
	return openObjects(r.path)
}

// Commit resolves a revision: a branch, a tag, a hash, HEAD~2. The error is ErrNoCommit if
// the repository has no such commit.
func (r *Repo) Commit(ctx context.Context, rev string) (Commit, error) {
	c, _, err := r.resolve(ctx, Commit{}, func(o *objects) (plumbing.Hash, error) {
		if plumbing.IsHash(rev) { // the object may be in another repository, from which this one borrows
			hash := plumbing.NewHash(rev)
			if _, err := o.size(hash); errors.Is(err, plumbing.ErrObjectNotFound) {
				return hash, fmt.Errorf("%w: %s in %s", ErrNoCommit, rev, r.path)
			}
			return hash, nil
		}
		if at := strings.IndexAny(rev, ":{"); at > 0 && rev[at] == ':' { // the library would ignore the path
			return plumbing.ZeroHash, fmt.Errorf("%w: %s names a file or folder, not a commit", ErrNoCommit, rev)
		}
		repo := &git.Repository{Storer: o.storage}
		hash, err := repo.ResolveRevision(plumbing.Revision(rev))
		if err != nil {
			return plumbing.ZeroHash, fmt.Errorf("%w: %s in %s", ErrNoCommit, rev, r.path)
		}
		return *hash, nil
	})
	return c, err
}

// resolve reads the commit that find returns, unless that is the known one. If the
// repository was repacked in between, resolve tries once more.
func (r *Repo) resolve(ctx context.Context, known Commit, find func(*objects) (plumbing.Hash, error)) (Commit, *objects, error) {
	var err error
	for range 2 {
		if err := ctx.Err(); err != nil {
			return Commit{}, nil, err
		}
		var c Commit
		var o *objects
		if c, o, err = r.resolveOnce(known, find); !errors.Is(err, ErrCorrupt) || !moved(err) {
			return c, o, err
		}
	}
	return Commit{}, nil, err
}

func (r *Repo) resolveOnce(known Commit, find func(*objects) (plumbing.Hash, error)) (c Commit, _ *objects, err error) {
	defer survive(&err)
	o, err := openObjects(r.path)
	if err != nil {
		return Commit{}, nil, err
	}
	hash, err := find(o)
	if err != nil {
		return Commit{}, nil, err
	}
	if hash.String() == known.Hash {
		return known, o, nil
	}
	read, err := o.commit(hash)
	if err != nil {
		return Commit{}, nil, err
	}
	subject, _, _ := strings.Cut(strings.TrimSpace(read.Message), "\n")
	return Commit{
		Hash:       hash.String(),
		AuthorName: strings.ToValidUTF8(read.Author.Name, "?"), AuthorEmail: strings.ToValidUTF8(read.Author.Email, "?"),
		Subject: strings.ToValidUTF8(strings.TrimSpace(subject), "?"), Time: read.Author.When,
	}, o, nil
}

// noBranch is an error that lists the existing branches, those with similar names first.
func (r *Repo) noBranch(o *objects) error {
	var names []string
	if all, err := o.storage.IterReferences(); err == nil {
		_ = all.ForEach(func(ref *plumbing.Reference) error { // the function returns no error
			if ref.Name().IsBranch() {
				names = append(names, ref.Name().Short())
			}
			return nil
		})
	}
	return missingBranch(r.path, r.branch, names)
}

func missingBranch(where, branch string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: %s waits for the first push to %q", ErrEmpty, where, branch)
	}
	const shown = 5
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int { return schema.Distance(a, branch) - schema.Distance(b, branch) })
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
		names = names[:shown]
	}
	return fmt.Errorf("%w: %s has no branch %q; it has %s%s", ErrNoBranch, where, branch, strings.Join(names, ", "), more)
}
