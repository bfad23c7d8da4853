package authoring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/hosted"
)

// maxMessage is the largest message of a change, in bytes.
const maxMessage = 10_000

// Change makes a commit to a hosted factory, in the name of the caller, who may manage it.
// It checks the definitions as an apply would, moves the branch, applies the commit and
// writes the audit log.
//
// It is refused with ErrConflict if the factory is not hosted here (the text names the files to
// edit there), or if others have changed the same files since req.Base (Moved says what); with
// ErrDefinition if the change brings errors (Verdict has them); with ErrRequest if a path cannot
// be. A change that changes nothing is no error. Errors that the newest commit has already do not
// refuse a change, so that a broken factory can be repaired step by step.
//
// Whoever makes new texts of files from those that are there reads them by Newest, and
// gives its commit as req.Base.
func (a *Author) Change(ctx context.Context, by Caller, f access.Factory, req api.ChangeRequest) (made Made, err error) {
	home, err := a.Home(f, slices.Sorted(maps.Keys(req.Files))...)
	if err != nil {
		return made, err
	}
	folder := f.State().Path
	change, err := changeOf(req, folder)
	if err != nil {
		return made, err
	}
	change.Author, change.Time = by.Owner, a.cfg.Now()
	var on hosted.Committed
	done, err := f.Move(ctx, "change", func(ctx context.Context) (err error) {
		on, err = home.Commit(ctx, change, func(ctx context.Context, hash, parent string) error { return checkCommit(ctx, f, hash, parent) })
		return err
	})
	made.Since = editsOf(folder, on.Since)
	if errors.Is(err, hosted.ErrNothing) {
		made.Unchanged = true
		if made.Commit, err = home.Tip(ctx); err == nil {
			state := f.State()
			made.Live = state.Applied != nil && state.Applied.Commit.Hash == made.Commit
			made.Waits = Waits(state)
		}
		return made, err
	}
	if err != nil {
		return made, refusalOfChange(folder, err)
	}
	subject, _, _ := strings.Cut(change.Message, "\n")
	by.Log("factory.change", f.Name, f.Name, on.Hash+": "+subject)
	made.Commit = on.Hash
	if done != nil {
		made.ApplyID = done.ID
	}
	// What was applied is the commit, or one that was pushed on top of it at once.
	if made.Live = done != nil && done.Outcome == applier.Applied; !made.Live {
		made.Waits = Waits(f.State())
	}
	return made, nil
}

// Waits says why the newest commit does not serve; empty: it serves.
func Waits(state applier.State) string {
	if state.Pin != nil {
		return fmt.Sprintf("commit %.12s is pinned: %s", state.Pin.Commit, state.Pin.Reason)
	}
	return state.Error
}

// Home is the repository of a hosted factory. The error of any other factory says where
// to change the files instead.
func (a *Author) Home(f access.Factory, files ...string) (*hosted.Repository, error) {
	if home := a.cfg.Home(f.Name); home != nil {
		return home, nil
	}
	const named = 5
	state := f.State()
	if state.Repository == a.cfg.URL(f.Name) { // a command asks, and its process has not opened it
		return nil, &Error{
			Kind:    ErrNoServer,
			Message: "the factory " + f.Name + " is hosted here, and no server is running: start it (triphammer serve --data DIR), and send this again",
		}
	}
	what := "its files"
	if len(files) > 0 && len(files) <= named {
		there := make([]string, len(files))
		for i, file := range files {
			there[i] = path.Join(state.Path, file)
		}
		what = strings.Join(there, ", ")
	}
	return nil, &Error{
		Kind:    ErrConflict,
		Message: fmt.Sprintf("the factory %s is not hosted here: edit %s in %s, branch %s; then commit and push", f.Name, what, state.Repository, state.Branch),
	}
}

// changeOf makes a change of the repository from a request about the folder of the factory.
func changeOf(req api.ChangeRequest, folder string) (change hosted.Change, err error) {
	change = hosted.Change{Base: req.Base, Message: strings.TrimSpace(req.Message), Files: make(map[string][]byte)}
	if len(req.Files) == 0 {
		return change, refuse("files", "", "files is empty: a change has the new text of at least one file, by its path")
	}
	if len(req.Files) > factory.DefaultMaxFiles {
		return change, refuse("files", "", "%d files; a change has at most %d", len(req.Files), factory.DefaultMaxFiles)
	}
	if len(change.Message) > maxMessage {
		return change, refuse("message", "", "message has %d bytes; at most %d", len(change.Message), maxMessage)
	}
	for name, text := range req.Files {
		switch {
		case !applier.ValidFile(name): // joined to the folder, it could be outside
			return change, refuse("files", name, "%q is not a path from the folder that holds factory.yaml, such as webhooks/ci.yaml", name)
		case text == nil:
			change.Files[path.Join(folder, name)] = nil
		case len(*text) > schema.MaxFile:
			return change, refuse("files", name, "%s has %d bytes; a file has at most %d", name, len(*text), schema.MaxFile)
		default:
			change.Files[path.Join(folder, name)] = []byte(*text)
		}
	}
	if change.Message == "" {
		change.Message = fmt.Sprintf("Change %d files", len(req.Files))
		if len(req.Files) == 1 {
			for name, text := range req.Files {
				change.Message = map[bool]string{true: "Remove ", false: "Change "}[text == nil] + name
			}
		}
	}
	return change, nil
}

// checkCommit refuses a commit that brings errors which its parent does not have.
func checkCommit(ctx context.Context, f access.Factory, hash, parent string) error {
	p, err := f.Check(ctx, hash)
	if err != nil || !p.Diagnostics.HasErrors() {
		return err
	}
	type problem struct{ code, path, message string }
	known := make(map[problem]bool)
	if parent != "" {
		before, err := f.Check(ctx, parent)
		if err != nil {
			return err
		}
		for _, d := range before.Diagnostics {
			known[problem{d.Code, d.Path, d.Message}] = true
		}
	}
	for _, d := range p.Diagnostics {
		if d.Severity == schema.Error && (d.Code == schema.UnverifiedCommit || !known[problem{d.Code, d.Path, d.Message}]) {
			return refuseDefinition(p, d)
		}
	}
	return nil
}

// refuseDefinition refuses definitions for their errors. The detail tells the first one.
func refuseDefinition(p *applier.Proposal, first schema.Diagnostic) error {
	report := &schema.Report{SchemaVersion: schema.Version, Diagnostics: p.Diagnostics, Deferred: p.Deferred}
	verdict := schema.NewAnswer(report, true)
	where := first.Path
	if first.Line > 0 {
		where += fmt.Sprintf(":%d", first.Line)
	}
	detail := strings.TrimPrefix(where+": "+first.Message, ": ")
	if n := len(verdict.Diagnostics); n > 1 {
		detail += fmt.Sprintf(" (and %d more)", n-1)
	}
	return &Error{Kind: ErrDefinition, Message: detail, Verdict: &verdict}
}

// refusalOfChange is the Error for one of hosted.Repository.Commit.
func refusalOfChange(folder string, err error) error {
	if bad, ok := errors.AsType[*hosted.BadError](err); ok {
		name := inFolder(folder, bad.Path)
		return refuse("files", name, "%q %s", name, bad.Why)
	}
	moved, ok := errors.AsType[*hosted.MovedError](err)
	if !ok {
		return err
	}
	shown := &api.Moved{Tip: moved.Tip, Since: editsOf(folder, moved.Since)}
	for _, name := range moved.Both {
		shown.Paths = append(shown.Paths, inFolder(folder, name))
	}
	detail := fmt.Sprintf("the branch has moved to %.12s, and others changed %s", moved.Tip, strings.Join(shown.Paths, ", "))
	if i := slices.IndexFunc(shown.Since, func(e api.FileEdit) bool { return e.Commit != "" && slices.Contains(shown.Paths, e.Path) }); i >= 0 {
		e := shown.Since[i]
		detail += fmt.Sprintf(" (%s, %s: %s)", e.Author, e.Time.UTC().Format(time.RFC3339), e.Subject)
	}
	return &Error{Kind: ErrConflict, Message: detail + "; take the newest, and make the change again", Moved: shown}
}

// editsOf shows edits with paths from the folder of the factory.
func editsOf(folder string, edits []hosted.Edit) []api.FileEdit {
	shown := make([]api.FileEdit, len(edits))
	for i, e := range edits {
		shown[i] = api.FileEdit{Path: inFolder(folder, e.Path), Commit: e.Commit, Author: e.Author, Subject: e.Subject, Time: e.Time}
	}
	return shown
}

// inFolder is a path of the repository as one from the folder of the factory. What is
// outside stays as it is.
func inFolder(folder, name string) string { return strings.TrimPrefix(name, path.Clean(folder)+"/") }
