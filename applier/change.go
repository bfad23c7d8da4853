package applier

import (
	"context"
	"errors"
	"io/fs"

	"triphammer/applier/gitrepo"
	"triphammer/schema"
)

// Newest opens the files of the newest commit of the branch. While the branch does not exist,
// it returns a zero commit and an empty tree.
func (a *Applier) Newest(ctx context.Context) (gitrepo.Commit, fs.FS, error) {
	head, err := a.cfg.Source.Head(ctx)
	if errors.Is(err, gitrepo.ErrNoBranch) {
		return gitrepo.Commit{}, Snapshot{}.FS(), nil
	}
	if err != nil {
		return head, nil, err
	}
	tree, err := a.cfg.Source.Tree(ctx, head.Hash, a.cfg.Path)
	if errors.Is(err, gitrepo.ErrNoFolder) {
		return head, Snapshot{}.FS(), nil
	}
	return head, tree, err
}

// At opens the files of a commit of the repository. It fetches nothing from a remote.
func (a *Applier) At(ctx context.Context, hash string) (fs.FS, error) {
	tree, err := a.cfg.Source.Tree(ctx, hash, a.cfg.Path)
	if errors.Is(err, gitrepo.ErrNoFolder) {
		return Snapshot{}.FS(), nil
	}
	return tree, err
}

// Serving opens the definition files of the commit that serves. While no commit serves, it
// returns a zero commit and an empty tree.
func (a *Applier) Serving(ctx context.Context) (gitrepo.Commit, fs.FS, error) {
	r := a.State().Applied
	if r == nil {
		return gitrepo.Commit{}, Snapshot{}.FS(), nil
	}
	return a.cfg.Ledger.Past(ctx, a.cfg.Factory, r.Commit.Hash)
}

// Check says what an apply of a commit would do, and changes nothing. The commit need not
// be on the branch.
func (a *Applier) Check(ctx context.Context, hash string) (*Proposal, error) {
	done := &Apply{Commit: gitrepo.Commit{Hash: hash}}
	found, err := a.verify(ctx, done)
	if err != nil && !errors.Is(err, gitrepo.ErrUnverified) {
		return nil, err
	}
	tree, missing, err := a.tree(ctx, done)
	if err != nil {
		return nil, err
	}
	if found = append(found, missing...); tree == nil {
		return &Proposal{Diagnostics: found, Plan: Diff(nil, nil)}, nil
	}
	p, err := a.Propose(ctx, tree, 0)
	if err == nil {
		p.Diagnostics = append(found, p.Diagnostics...)
	}
	return p, err
}

// tree opens the files of a commit. If the commit lacks the folder of the factory, tree is
// nil, and missing says so.
func (a *Applier) tree(ctx context.Context, done *Apply) (tree fs.FS, missing schema.Diagnostics, err error) {
	if done.past != nil {
		return done.past, nil, nil
	}
	tree, err = a.cfg.Source.Tree(ctx, done.Commit.Hash, a.cfg.Path)
	if errors.Is(err, gitrepo.ErrNoFolder) {
		c := schema.Collector{Path: "factory.yaml"}
		c.Error(schema.At{}, schema.MissingFactory, "", err.Error())
		return nil, c.Found, nil
	}
	return tree, nil, err
}

// Move calls move, which moves the branch, and then applies the head. The worker applies
// nothing in between. If move fails, Move returns its error, and applies nothing. While the
// factory is pinned, Move moves the branch, applies nothing, and returns a nil done.
//
// Once the branch has moved, the end of ctx stops nothing.
func (a *Applier) Move(ctx context.Context, trigger string, move func(context.Context) error) (done *Apply, err error) {
	defer a.ask()()
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := move(ctx); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if pin, err := a.pinned(ctx); err == nil && pin != nil { // the attempt meets the same error
		return nil, nil
	}
	return a.attempt(ctx, trigger, true), nil
}

// ask makes the worker leave the next look to a caller, until the returned function is
// called.
func (a *Applier) ask() (end func()) {
	a.mu.Lock()
	a.asked++
	if a.stop != nil {
		a.stop()
	}
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		a.asked--
		a.mu.Unlock()
		a.Kick(watched) // the worker's next attempt may now be due at another time
	}
}
