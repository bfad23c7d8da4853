package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
)

// authored are the kinds of definitions that requests make and change, beside webhooks.
var authored = []string{"automation", "environment", "agent"}

// authoring adds the routes that make, change and delete definitions (SPEC 18.3). Each change
// is a commit to a hosted factory, by s.change. Of a factory elsewhere, the answer says what to
// edit.
func (s *Server) authoring(read, manage *gin.RouterGroup) {
	const of = "/factories/:name/"
	for _, kind := range authored {
		manage.POST(of+kind+"s", created(on(aFactory, s.createDefinition(kind))))
		manage.PATCH(of+kind+"s/:"+kind, serve(on(aFactory, s.patchDefinition(kind))))
		manage.DELETE(of+kind+"s/:"+kind, serve(on(aFactory, s.deleteDefinition(kind))))
	}
	for _, kind := range append([]string{"webhook"}, authored...) {
		read.GET(of+kind+"s/:"+kind, serve(on(aFactory, s.getDefinition(kind))))
	}
	manage.POST(of+"webhooks", created(on(aFactory, s.createWebhook)))
	manage.PATCH(of+"webhooks/:webhook", serve(on(aFactory, s.patchWebhook)))
	manage.DELETE(of+"webhooks/:webhook", serve(on(aFactory, s.deleteWebhook)))
	manage.POST(of+"webhooks/:webhook/rotate", serve(on(aFactory, s.rotateWebhook)))
}

type definitionRoute = func(context.Context, *call, access.Factory) (api.DefinitionChange, error)

func (s *Server) createDefinition(kind string) definitionRoute {
	return s.writeDefinition(kind, func(tree fs.FS, req api.DefinitionPatch, c edit.Change) (string, edit.Files, error) {
		files, err := edit.Create(tree, kind, req.Name, c)
		return "Create " + kind + " " + req.Name, files, err
	})
}

func (s *Server) patchDefinition(kind string) definitionRoute {
	return s.writeDefinition(kind, func(tree fs.FS, req api.DefinitionPatch, c edit.Change) (string, edit.Files, error) {
		files, err := edit.Update(tree, kind, req.Name, c)
		return edit.Verb(c) + " " + kind + " " + req.Name, files, err
	})
}

// writeDefinition is the route of a change whose files make makes.
func (s *Server) writeDefinition(
	kind string, make func(fs.FS, api.DefinitionPatch, edit.Change) (message string, files edit.Files, err error),
) definitionRoute {
	return func(ctx context.Context, c *call, f access.Factory) (shown api.DefinitionChange, err error) {
		req, err := body[api.DefinitionPatch](c)
		if err != nil {
			return shown, err
		}
		req.Name = cmp.Or(c.Param(kind), req.Name)
		change := edit.Change{Text: req.Prompt}
		if len(req.Definition) > 0 {
			if change.Keys, err = schema.NodeOf(req.Definition); err != nil || change.Keys.Kind != schema.Mapping {
				return shown, invalid("definition", "is not an object of the keys of the file: %v", cmp.Or(err, errors.New("it is another value")))
			}
		}
		if kind == "environment" && req.Prompt != nil {
			return shown, invalid("prompt", "means nothing here: an environment has none")
		}
		d := draft{kind: kind, name: req.Name, change: change, Commit: req.Commit}
		shown.Change, err = s.author(ctx, c, f, &d, func(tree fs.FS) (files edit.Files, err error) {
			d.message, files, err = make(tree, req, change)
			return files, err
		})
		if err == nil {
			shown.Definition, err = s.definition(ctx, f, kind, req.Name)
		}
		return shown, err
	}
}

func (s *Server) deleteDefinition(kind string) definitionRoute {
	return func(ctx context.Context, c *call, f access.Factory) (shown api.DefinitionChange, err error) {
		d := draft{kind: kind, name: c.Param(kind), Commit: commitOf(c), message: "Delete " + kind + " " + c.Param(kind)}
		shown.Change, err = s.author(ctx, c, f, &d, func(tree fs.FS) (edit.Files, error) { return edit.Delete(tree, kind, d.name) })
		return shown, err
	}
}

// commitOf is what a request without a body says of its commit.
func commitOf(c *call) api.Commit {
	return api.Commit{Base: c.Query("base"), Message: c.Query("message")}
}

// getDefinition answers with what a definition says in the newest commit.
func (s *Server) getDefinition(kind string) func(context.Context, *call, access.Factory) (*api.Definition, error) {
	return func(ctx context.Context, c *call, f access.Factory) (*api.Definition, error) {
		return s.definition(ctx, f, kind, c.Param(kind))
	}
}

func (s *Server) definition(ctx context.Context, f access.Factory, kind, name string) (*api.Definition, error) {
	commit, tree, err := s.newestFiles(ctx, f)
	if err != nil {
		return nil, err
	}
	d, err := edit.Read(tree, kind, name)
	if err != nil {
		return nil, refusalOfEdit(err)
	}
	return &api.Definition{
		Kind: kind, Name: name, Factory: f.Name, Path: d.Path, Commit: commit, Keys: d.Keys.AppendJSON(nil), Prompt: d.Text,
	}, nil
}

// draft is a change that a request wants to make.
type draft struct {
	api.Commit
	kind, name string
	change     edit.Change
	message    string // if the request has none
}

// turn waits until no other request changes definitions, and reads the newest files: so the
// second of two requests sees what the first has done. done lets the next one begin.
func (s *Server) turn(ctx context.Context, f access.Factory) (commit string, tree fs.FS, done func(), err error) {
	if err := s.authors.Acquire(ctx, 1); err != nil {
		return "", nil, nil, err
	}
	if commit, tree, err = s.newestFiles(ctx, f); err != nil {
		s.authors.Release(1)
		return "", nil, nil, err
	}
	return commit, tree, func() { s.authors.Release(1) }, nil
}

// author makes a change in its turn: make makes the files from the newest ones.
func (s *Server) author(
	ctx context.Context, c *call, f access.Factory, d *draft, make func(tree fs.FS) (edit.Files, error),
) (api.Change, error) {
	commit, tree, done, err := s.turn(ctx, f)
	if err != nil {
		return api.Change{}, err
	}
	defer done()
	files, err := make(tree)
	if err != nil {
		return api.Change{}, refusalOfEdit(err)
	}
	return s.commit(ctx, c, f, d, commit, tree, files)
}

// commit makes a commit of files that were made from the tree of a commit.
func (s *Server) commit(
	ctx context.Context, c *call, f access.Factory, d *draft, commit string, tree fs.FS, files edit.Files,
) (api.Change, error) {
	if err := s.editable(f, d, tree, files); err != nil {
		return api.Change{}, err
	}
	if len(files) == 0 {
		state := f.State()
		live := state.Applied != nil && state.Applied.Commit.Hash == commit
		return api.Change{Commit: commit, Unchanged: true, Live: live, Waits: waits(state), Since: []api.FileEdit{}}, nil
	}
	texts := make(map[string]*string, len(files))
	for name, data := range files {
		if texts[name] = nil; data != nil {
			text := string(data)
			texts[name] = &text
		}
	}
	const root = "factory.yaml"
	if texts[root] == nil && commit == "" { // nobody has pushed to it yet
		text := firstFile(f.Name)
		texts[root] = &text
	}
	req := api.ChangeRequest{Base: cmp.Or(d.Base, commit), Message: cmp.Or(strings.TrimSpace(d.Message), d.message), Files: texts}
	return s.change(ctx, c, f, req)
}

// editable refuses a change of a factory that is not hosted here. It names the file and the
// line to edit instead.
func (s *Server) editable(f access.Factory, d *draft, tree fs.FS, files edit.Files) error {
	paths := files.Paths()
	at := ""
	if there, err := edit.Read(tree, d.kind, d.name); err == nil {
		paths, at = []string{there.Path}, fmt.Sprintf(":%d", there.Line(d.change))
	}
	named := make([]string, len(paths))
	for i, path := range paths {
		named[i] = path + at
	}
	_, err := s.homeOf(f, named...)
	if refused, ok := errors.AsType[*api.Refusal](err); ok && len(paths) > 0 {
		refused.Fields = []api.FieldProblem{{Field: "path", Message: paths[0] + at}}
	}
	return err
}

// refusalOfEdit is the answer for an error of package edit.
func refusalOfEdit(err error) error {
	bad, ok := errors.AsType[*edit.Error](err)
	if !ok {
		return err
	}
	switch bad.Kind {
	case edit.ErrNotFound:
		return api.Refuse(api.NotFound, bad.Message)
	case edit.ErrExists:
		return api.Refuse(api.Conflict, bad.Message, api.FieldProblem{Field: "name", Message: bad.Path})
	case edit.ErrUsed:
		verdict := api.Verdict(schema.NewAnswer(&schema.Report{SchemaVersion: schema.Version, Diagnostics: bad.Found}, true))
		return &api.Refusal{Code: api.InvalidDefinition, Detail: bad.Message, Verdict: &verdict}
	case edit.ErrInvalid:
		return api.Refuse(api.InvalidRequest, bad.Message, api.FieldProblem{Field: "definition", Message: bad.Message})
	case edit.ErrName:
		return api.Refuse(api.InvalidRequest, bad.Message, api.FieldProblem{Field: "name", Message: "cannot be that"})
	}
	return api.Refuse(api.NotSupported, bad.Message)
}

// secretly keeps an answer with a secret out of caches.
func secretly(c *call) { c.Header("Cache-Control", "no-store") }
