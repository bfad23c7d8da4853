package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/authoring"
)

// authored are the kinds of definitions that requests make and change, beside webhooks.
var authored = []string{"automation", "environment", "agent"}

// authoring adds the routes that make, change and delete definitions (SPEC 18.3). Each change
// is a commit to a hosted factory, by s.authors. Of a factory elsewhere, the answer says what to
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

// author is the caller as one who changes definitions. The answer has no deadline, because reading a
// repository has its own limits.
func (c *call) author() authoring.Caller {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
	return authoring.Caller{View: c.View, Log: c.audit}
}

// showMade is a change, with the record of its apply.
func (c *call) showMade(ctx context.Context, made authoring.Made) api.Change {
	if made.ApplyID != "" {
		// The change has happened, whatever becomes of its record.
		if stored, err := c.Apply(context.WithoutCancel(ctx), made.ApplyID, ""); err == nil {
			shown := showApply(stored.Apply)
			made.Apply = &shown
		}
	}
	return made.Change
}

// postChange makes a commit to a hosted factory, as one step: it is checked, put on the
// branch and applied.
func (s *Server) postChange(ctx context.Context, c *call, f access.Factory) (any, error) {
	data, err := readBody(c.Context, maxPlanBody)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, refuse("files", "", "the body is not UTF-8: commit such a file with git")
	}
	var req api.ChangeRequest
	if err := decode(data, &req); err != nil {
		return nil, err
	}
	done, err := s.authors.Change(ctx, c.author(), f, req)
	made := c.showMade(ctx, done)
	if err != nil || made.Unchanged {
		return made, err
	}
	c.JSON(http.StatusCreated, made)
	return written{}, nil
}

type definitionRoute = func(context.Context, *call, access.Factory) (api.DefinitionChange, error)

func (s *Server) createDefinition(kind string) definitionRoute {
	return s.writeDefinition(kind, s.authors.Create)
}

func (s *Server) patchDefinition(kind string) definitionRoute {
	return s.writeDefinition(kind, s.authors.Update)
}

// writeDefinition is the route of a change of a definition.
func (s *Server) writeDefinition(
	kind string, write func(context.Context, authoring.Caller, access.Factory, authoring.Draft) (authoring.Made, error),
) definitionRoute {
	return func(ctx context.Context, c *call, f access.Factory) (shown api.DefinitionChange, err error) {
		req, err := body[api.DefinitionPatch](c)
		if err != nil {
			return shown, err
		}
		d := authoring.Draft{Kind: kind, Name: cmp.Or(c.Param(kind), req.Name), Commit: req.Commit, Change: edit.Change{Text: req.Prompt}}
		if len(req.Definition) > 0 {
			if d.Keys, err = schema.NodeOf(req.Definition); err != nil || d.Keys.Kind != schema.Mapping {
				return shown, invalid("definition", "is not an object of the keys of the file: %v", cmp.Or(err, errors.New("it is another value")))
			}
		}
		if kind == "environment" && req.Prompt != nil {
			return shown, invalid("prompt", "means nothing here: an environment has none")
		}
		made, err := write(ctx, c.author(), f, d)
		if err == nil {
			shown.Change = c.showMade(ctx, made)
			shown.Definition, err = s.definition(ctx, c, f, kind, d.Name)
		}
		return shown, err
	}
}

func (s *Server) deleteDefinition(kind string) definitionRoute {
	return func(ctx context.Context, c *call, f access.Factory) (shown api.DefinitionChange, err error) {
		made, err := s.authors.Delete(ctx, c.author(), f, authoring.Draft{Kind: kind, Name: c.Param(kind), Commit: commitOf(c)})
		shown.Change = c.showMade(ctx, made)
		return shown, err
	}
}

// commitOf is what a request without a body says of its commit.
func commitOf(c *call) api.Commit {
	return api.Commit{Base: c.Query("base"), Message: c.Query("message")}
}

// getDefinition answers with what a definition says in the newest commit, or with ?commit= in another.
func (s *Server) getDefinition(kind string) func(context.Context, *call, access.Factory) (*api.Definition, error) {
	return func(ctx context.Context, c *call, f access.Factory) (*api.Definition, error) {
		return s.definition(ctx, c, f, kind, c.Param(kind))
	}
}

func (s *Server) definition(ctx context.Context, c *call, f access.Factory, kind, name string) (*api.Definition, error) {
	commit, tree, err := s.requestedFiles(ctx, c, f)
	if err != nil {
		return nil, err
	}
	d, err := edit.Read(tree, kind, name)
	if err != nil {
		return nil, err
	}
	return &api.Definition{
		Kind: kind, Name: name, Factory: f.Name, Path: d.Path, Commit: commit, Keys: d.Keys.AppendJSON(nil), Prompt: d.Text,
	}, nil
}

func (s *Server) createWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	secretly(c)
	req, err := body[api.NewWebhook](c)
	if err != nil {
		return shown, err
	}
	made, err := s.authors.CreateWebhook(ctx, c.author(), f, req)
	return s.showWebhookChange(ctx, c, f, made, err)
}

func (s *Server) patchWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	req, err := body[api.WebhookPatch](c)
	if err != nil {
		return shown, err
	}
	made, err := s.authors.UpdateWebhook(ctx, c.author(), f, c.Param("webhook"), req)
	return s.showWebhookChange(ctx, c, f, made, err)
}

func (s *Server) rotateWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	secretly(c)
	req, err := optionalBody[api.WebhookRotation](c)
	if err != nil {
		return shown, err
	}
	made, err := s.authors.RotateWebhook(ctx, c.author(), f, c.Param("webhook"), req.Value)
	return s.showWebhookChange(ctx, c, f, made, err)
}

// deleteWebhook shows the webhook as it was.
func (s *Server) deleteWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	name := c.Param("webhook")
	if w := c.LiveWebhook(f.Name, name); w != nil {
		s.showWebhookOf(c, f, w.Def, &shown)
	} else {
		shown.Name, shown.Factory, shown.Listeners = name, f.Name, []string{}
	}
	made, err := s.authors.Delete(ctx, c.author(), f, authoring.Draft{Kind: "webhook", Name: name, Commit: commitOf(c)})
	shown.Change = c.showMade(ctx, made)
	return shown, err
}

// showWebhookChange is the answer to a change of a webhook.
func (s *Server) showWebhookChange(
	ctx context.Context, c *call, f access.Factory, made authoring.MadeWebhook, err error,
) (shown api.WebhookChange, _ error) {
	if err != nil {
		return shown, err
	}
	shown.Change = c.showMade(ctx, made.Made)
	s.showWebhookOf(c, f, made.Def, &shown)
	shown.Warning = made.Warning
	if made.Generated {
		shown.Secret = made.Secret
	}
	if made.Secret != "" && made.Def.AuthMode == factory.URLToken {
		shown.URLWithToken = strings.ReplaceAll(shown.URL, "{token}", made.Secret)
	}
	return shown, nil
}

// showWebhookOf completes the answer with the webhook. Without a live one, it is what the
// definition says.
func (s *Server) showWebhookOf(c *call, f access.Factory, def *factory.Webhook, shown *api.WebhookChange) {
	w := c.LiveWebhook(f.Name, def.Name)
	if w == nil {
		w = &applier.Webhook{Factory: f.Name, Def: def}
	}
	shown.Webhook = s.showWebhook(w)
	if w.UID == "" {
		shown.URL = ""
	}
	shown.Listeners = []string{}
	for _, r := range c.Revisions(f.Name) {
		for _, a := range r.Automations {
			if a.Def.Selects(def, w.UID) {
				shown.Listeners = append(shown.Listeners, a.Def.Name)
			}
		}
	}
	shown.SharedWith = slices.DeleteFunc(c.usesOf(shown.SecretName), func(u api.SecretUse) bool {
		return u.Kind == "webhook" && u.Factory == f.Name && u.Name == def.Name
	})
}

// refusalOfAuthor is the answer for an error of an Author.
func refusalOfAuthor(bad *authoring.Error) *api.Refusal {
	refused := &api.Refusal{Code: api.Conflict, Detail: bad.Message, Verdict: (*api.Verdict)(bad.Verdict), Moved: bad.Moved}
	switch bad.Kind {
	case authoring.ErrRequest:
		refused.Code = api.InvalidRequest
	case authoring.ErrDefinition:
		refused.Code = api.InvalidDefinition
	case authoring.ErrNoServer:
		refused.Code = api.Unavailable
	}
	if bad.Field != "" {
		refused.Fields = []api.FieldProblem{{Field: bad.Field, Message: bad.Value}}
	}
	return refused
}

// refusalOfEdit is the answer for an error of package edit.
func refusalOfEdit(bad *edit.Error) *api.Refusal {
	refused := &api.Refusal{Code: api.NotSupported, Detail: bad.Message}
	about := func(field, message string) { refused.Fields = []api.FieldProblem{{Field: field, Message: message}} }
	switch bad.Kind {
	case edit.ErrNotFound:
		refused.Code = api.NotFound
	case edit.ErrExists:
		refused.Code = api.Conflict
		about("name", bad.Path)
	case edit.ErrUsed:
		verdict := api.Verdict(schema.NewAnswer(&schema.Report{SchemaVersion: schema.Version, Diagnostics: bad.Found}, true))
		refused.Code, refused.Verdict = api.InvalidDefinition, &verdict
	case edit.ErrInvalid:
		refused.Code = api.InvalidRequest
		about("definition", bad.Message)
	case edit.ErrName:
		refused.Code = api.InvalidRequest
		about("name", "cannot be that")
	}
	return refused
}

// secretly keeps an answer with a secret out of caches.
func secretly(c *call) { c.Header("Cache-Control", "no-store") }
