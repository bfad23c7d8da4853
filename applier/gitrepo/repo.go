// Package gitrepo reads definitions from Git: it is the only code that talks to
// a repository.
//
// A [Repo] resolves the production branch and opens a commit as a read-only file
// tree, without a checkout. The repository is opened afresh for each read,
// because a long-lived handle goes stale when the repository is repacked (DESIGN
// 3.6). A [WorkTree] is the same for a plain folder, for `dev` and `validate`.
package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Errors that callers tell apart.
var (
	ErrNoRepository = errors.New("no Git repository")
	ErrNoBranch     = errors.New("no such branch")
	ErrNoCommit     = errors.New("no such commit")
	ErrNoFolder     = errors.New("no such folder in the commit")
)

// Commit is what a revision resolves to.
type Commit struct {
	Hash        string    `json:"hash"`
	AuthorName  string    `json:"author_name"`
	AuthorEmail string    `json:"author_email"`
	Subject     string    `json:"subject"` // first line of the message
	Time        time.Time `json:"time"`    // of the author
}

// Repo is a local repository, bare or not, or a linked worktree, and its
// production branch.
type Repo struct {
	path   string // where .git is, or the bare repository itself
	branch string
}

// Open finds the repository at path or above it. It reads nothing else: the
// branch may come into being later.
func Open(path, branch string) (*Repo, error) {
	if branch == "" || strings.HasPrefix(branch, "-") {
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

func (r *Repo) open() (*git.Repository, error) {
	repo, err := git.PlainOpenWithOptions(r.path, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%w at %s", ErrNoRepository, r.path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", r.path, err)
	}
	return repo, nil
}

// Head is the newest commit of the production branch.
func (r *Repo) Head(ctx context.Context) (Commit, error) {
	if err := ctx.Err(); err != nil {
		return Commit{}, err
	}
	repo, err := r.open()
	if err != nil {
		return Commit{}, err
	}
	ref, err := repo.Reference(plumbing.NewBranchReferenceName(r.branch), true)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return Commit{}, fmt.Errorf("%w: %s has no branch %q%s", ErrNoBranch, r.path, r.branch, r.branches(repo))
	}
	if err != nil {
		return Commit{}, fmt.Errorf("resolving branch %s: %w", r.branch, err)
	}
	return commitOf(repo, ref.Hash())
}

// branches names what there is, for somebody who got the name wrong.
func (r *Repo) branches(repo *git.Repository) string {
	all, err := repo.Branches()
	if err != nil {
		return ""
	}
	var names []string
	_ = all.ForEach(func(ref *plumbing.Reference) error { // stops at no error of ours
		if len(names) < 10 {
			names = append(names, ref.Name().Short())
		}
		return nil
	})
	if len(names) == 0 {
		return "; it has no commits yet"
	}
	return "; it has " + strings.Join(names, ", ")
}

// Commit resolves any revision: a branch, a tag, a hash, HEAD~2.
func (r *Repo) Commit(ctx context.Context, rev string) (Commit, error) {
	if err := ctx.Err(); err != nil {
		return Commit{}, err
	}
	repo, err := r.open()
	if err != nil {
		return Commit{}, err
	}
	hash, err := repo.ResolveRevision(plumbing.Revision(rev))
	if err != nil {
		return Commit{}, fmt.Errorf("%w: %s in %s", ErrNoCommit, rev, r.path)
	}
	return commitOf(repo, *hash)
}

func commitOf(repo *git.Repository, hash plumbing.Hash) (Commit, error) {
	c, err := object.GetCommit(repo.Storer, hash)
	if err != nil {
		return Commit{}, fmt.Errorf("reading commit %s: %w", hash, err)
	}
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return Commit{
		Hash:       hash.String(),
		AuthorName: strings.ToValidUTF8(c.Author.Name, "?"), AuthorEmail: strings.ToValidUTF8(c.Author.Email, "?"),
		Subject: strings.ToValidUTF8(strings.TrimSpace(subject), "?"), Time: c.Author.When,
	}, nil
}
