// Package authoring changes definitions, for whoever asks: a request, a page, a command.
//
//   - A change of a factory that lives here is one commit in the name of the caller. It is checked as
//     an apply would, and applied before the method returns. [Made] says what became of it.
//   - A change that is refused leaves the branch, what serves and the secrets as they were. An [Error]
//     or an edit.Error says why.
//   - Of a factory elsewhere, nothing is changed: the error names the file and the line to edit there.
//   - One change at a time is made from the files that are there, so that the second of two callers
//     sees what the first has done. If others have changed the same file since the caller saw it, the
//     change is refused, and the error says who.
//   - A webhook's new secret is stored before the commit that names it, and taken back if that commit
//     or the apply fails.
//
// The package knows no HTTP: it takes values of package api and gives back [Made] or an error. Package
// server makes answers of both. The view of a caller says what the caller may use.
package authoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/hosted"
)

// Config is what an Author needs.
type Config struct {
	// Home is the repository of a factory that lives here; nil: the factory lives elsewhere.
	Home func(factory string) *hosted.Repository
	// URL is the address at which a factory that lives here is cloned.
	URL    func(factory string) string
	Now    func() time.Time
	Logger *slog.Logger
}

// Author makes changes.
type Author struct {
	cfg Config
	// turns lets one request at a time make files from those that are there.
	turns *semaphore.Weighted
}

// New makes an Author.
func New(cfg Config) *Author { return &Author{cfg, semaphore.NewWeighted(1)} }

// Caller is who asks for a change.
type Caller struct {
	*access.View
	// Log writes what was done into the audit log.
	Log func(action, object, factory, details string)
}

// Made is what became of a change.
type Made struct {
	api.Change        // without Apply
	ApplyID    string // of the apply that the change caused, if that was recorded
}

// What a change is refused for.
var (
	ErrRequest    = errors.New("the request says what cannot be")
	ErrDefinition = errors.New("the definitions would not be valid")
	ErrConflict   = errors.New("the change does not fit what is there")
	ErrNoServer   = errors.New("the factory lives here, and no server is running")
)

// An Error says why a change was refused. Nothing has changed then. Errors of package edit come as
// they are.
type Error struct {
	Kind    error // one of the above
	Message string
	// Field is what the error is about, in the request or in the answer, and Value what is wrong
	// with it.
	Field, Value string
	Verdict      *schema.Answer // of ErrDefinition
	Moved        *api.Moved     // of ErrConflict: others changed the same files
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Kind }

// refuse refuses the value of a field of a request.
func refuse(field, value, format string, args ...any) error {
	return &Error{Kind: ErrRequest, Message: fmt.Sprintf(format, args...), Field: field, Value: value}
}

// invalid is refuse for a text that continues a sentence after the name of the field.
func invalid(field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return refuse(field, message, "%s %s", field, message)
}

// Draft is a change of one definition. Without a Message, the commit says what was done.
type Draft struct {
	api.Commit
	edit.Change
	Kind, Name string
}

// did is the message of a commit that says what was done.
func (d *Draft) did(verb string) string { return verb + " " + d.Kind + " " + d.Name }

// Create makes a definition.
func (a *Author) Create(ctx context.Context, by Caller, f access.Factory, d Draft) (Made, error) {
	return a.inTurn(ctx, by, f, d, "Create", func(tree fs.FS) (edit.Files, error) {
		return edit.Create(tree, d.Kind, d.Name, d.Change)
	})
}

// Update changes a definition.
func (a *Author) Update(ctx context.Context, by Caller, f access.Factory, d Draft) (Made, error) {
	return a.inTurn(ctx, by, f, d, edit.Verb(d.Change), func(tree fs.FS) (edit.Files, error) {
		return edit.Update(tree, d.Kind, d.Name, d.Change)
	})
}

// Delete removes a definition. Of a webhook, senders get 404 at once. Automations that selected it
// stay, and so do its secret and its log.
func (a *Author) Delete(ctx context.Context, by Caller, f access.Factory, d Draft) (Made, error) {
	return a.inTurn(ctx, by, f, d, "Delete", func(tree fs.FS) (edit.Files, error) { return edit.Delete(tree, d.Kind, d.Name) })
}

// Read reads what a definition says in the newest commit.
func (a *Author) Read(ctx context.Context, f access.Factory, kind, name string) (commit string, d *edit.Definition, err error) {
	commit, tree, err := a.Newest(ctx, f)
	if err == nil {
		d, err = edit.Read(tree, kind, name)
	}
	return commit, d, err
}

// Newest opens the newest files of a factory, and names their commit: the head of the branch if it
// lives here, else what serves. Without a commit, there are no files.
func (a *Author) Newest(ctx context.Context, f access.Factory) (commit string, tree fs.FS, err error) {
	open := f.Serving
	if a.cfg.Home(f.Name) != nil {
		open = f.Newest
	}
	head, tree, err := open(ctx)
	return head.Hash, tree, err
}

// Begin gives a factory that has no commit yet its first file.
func (a *Author) Begin(ctx context.Context, by Caller, f access.Factory) (Made, error) {
	text := firstFile(f.Name)
	return a.Change(ctx, by, f, api.ChangeRequest{Message: "Start the factory " + f.Name, Files: map[string]*string{root: &text}})
}

// root is the file that a factory cannot be without.
const root = "factory.yaml"

// firstFile is the factory.yaml with which a factory begins.
func firstFile(name string) string {
	return "schemaVersion: " + schema.Version + "\nname: " + name + "\n"
}

// turn waits until no other request changes definitions, and reads the newest files: the second of
// two requests sees the changes of the first. The caller calls done when its change is made, so that
// the next request begins.
func (a *Author) turn(ctx context.Context, f access.Factory) (commit string, tree fs.FS, done func(), err error) {
	if err := a.turns.Acquire(ctx, 1); err != nil {
		return "", nil, nil, err
	}
	if commit, tree, err = a.Newest(ctx, f); err != nil {
		a.turns.Release(1)
		return "", nil, nil, err
	}
	return commit, tree, func() { a.turns.Release(1) }, nil
}

// inTurn makes a change in its turn: make makes the files from the newest ones.
func (a *Author) inTurn(
	ctx context.Context, by Caller, f access.Factory, d Draft, verb string, make func(tree fs.FS) (edit.Files, error),
) (Made, error) {
	commit, tree, done, err := a.turn(ctx, f)
	if err != nil {
		return Made{}, err
	}
	defer done()
	files, err := make(tree)
	if err != nil {
		return Made{}, err
	}
	return a.commit(ctx, by, f, d, verb, commit, tree, files)
}

// commit makes a commit of files that were made from the tree of a commit.
func (a *Author) commit(
	ctx context.Context, by Caller, f access.Factory, d Draft, verb, commit string, tree fs.FS, files edit.Files,
) (Made, error) {
	if err := a.editable(f, d, tree, files); err != nil {
		return Made{}, err
	}
	if len(files) == 0 {
		state := f.State()
		live := state.Applied != nil && state.Applied.Commit.Hash == commit
		return Made{Change: api.Change{Commit: commit, Unchanged: true, Live: live, Waits: Waits(state), Since: []api.FileEdit{}}}, nil
	}
	texts := make(map[string]*string, len(files))
	for name, data := range files {
		if texts[name] = nil; data != nil {
			text := string(data)
			texts[name] = &text
		}
	}
	if texts[root] == nil && commit == "" { // nobody has pushed to it yet
		text := firstFile(f.Name)
		texts[root] = &text
	}
	req := api.ChangeRequest{Base: cmp.Or(d.Base, commit), Message: cmp.Or(strings.TrimSpace(d.Message), d.did(verb)), Files: texts}
	return a.Change(ctx, by, f, req)
}

// editable refuses a change of a factory that lives elsewhere. The error names the file and the
// line to edit there.
func (a *Author) editable(f access.Factory, d Draft, tree fs.FS, files edit.Files) error {
	paths := files.Paths()
	at := ""
	if there, err := edit.Read(tree, d.Kind, d.Name); err == nil {
		paths, at = []string{there.Path}, fmt.Sprintf(":%d", there.Line(d.Change))
	}
	named := make([]string, len(paths))
	for i, path := range paths {
		named[i] = path + at
	}
	_, err := a.Home(f, named...)
	if refused, ok := errors.AsType[*Error](err); ok && len(paths) > 0 {
		refused.Field, refused.Value = "path", paths[0]+at
	}
	return err
}
