package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/githubapp"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) listSecrets(ctx context.Context, c *call, all *store.Store) (api.List[api.Secret], error) {
	infos, err := all.Secrets.List(ctx)
	if err != nil {
		return api.List[api.Secret]{}, err
	}
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	values, err := all.Secrets.Newest(ctx, names)
	return listOf(infos, func(info store.SecretInfo) api.Secret {
		shown := c.showSecret(info)
		shown.GitHubApp = showApp(values[info.Name].Value)
		return shown
	}), err
}

// showApp is what may be shown of a value that is a GitHub App; nil: it is none.
func showApp(v secret.Value) *api.GitHubApp {
	if !githubapp.Is(v) {
		return nil
	}
	app, err := githubapp.Parse(v)
	if err != nil {
		return &api.GitHubApp{Problem: err.Error()}
	}
	return &api.GitHubApp{ID: app.ID}
}

// connectApp makes two managed secrets of an App that GitHub has made from a manifest: the App,
// and the secret of its webhook. The key goes from GitHub to the store, and nowhere else.
func (s *Server) connectApp(ctx context.Context, c *call, all *store.Store) (shown api.ConnectedApp, err error) {
	req, err := body[api.ConnectApp](c)
	if err != nil {
		return shown, err
	}
	names := []string{req.SecretName, req.WebhookSecretName}
	taken, err := all.Secrets.Newest(ctx, names)
	if err != nil {
		return shown, err
	}
	for i, field := range []string{"secret_name", "webhook_secret_name"} {
		_, is := taken[names[i]]
		switch {
		case !secret.ValidName(names[i]):
			return shown, refuse(field, names[i], secret.NameRule)
		case is:
			return shown, api.Refuse(api.Conflict, fmt.Sprintf("there is a secret %s: choose another name, or delete it (triphammer secrets delete %[1]s)", names[i]))
		case names[0] == names[1]:
			return shown, refuse(field, names[i], "the App and its webhook need a secret each")
		}
	}
	made, err := s.cfg.Apps.Convert(ctx, req.APIURL, req.Code)
	if no := (*githubapp.Error)(nil); errors.As(err, &no) {
		return shown, api.Refuse(api.Conflict, no.Text)
	}
	if err != nil {
		return shown, err
	}
	ctx = context.WithoutCancel(ctx) // GitHub tells the key once
	for i, value := range []secret.Value{made.App, made.WebhookSecret} {
		generation, err := all.Secrets.Set(ctx, names[i], value)
		if err != nil {
			return shown, err
		}
		c.audit("secret.set", names[i], "", fmt.Sprintf("generation %d, of GitHub App %d", generation, made.ID))
		c.SecretSet(names[i])
	}
	return api.ConnectedApp{ID: made.ID, Install: made.Install}, nil
}

// checkApp asks GitHub about the App of a secret.
func (s *Server) checkApp(ctx context.Context, c *call, all *store.Store) (told api.CheckedApp, err error) {
	name := c.Param("name")
	values, err := all.Secrets.Newest(ctx, []string{name})
	if err != nil {
		return told, err
	}
	v, is := values[name]
	switch {
	case !is:
		return told, fmt.Errorf("secret %s: %w", name, store.ErrNotFound)
	case !githubapp.Is(v.Value):
		return told, refuse("name", name, "the secret is no GitHub App")
	}
	about, err := s.cfg.Apps.About(ctx, name, v.Value)
	if no := (*githubapp.Error)(nil); errors.As(err, &no) {
		return told, api.Refuse(api.Conflict, no.Text)
	}
	told = api.CheckedApp{Slug: about.Slug, Install: about.Install, Lacking: []string{}}
	for _, w := range terms.AppPermissions {
		for _, lacking := range githubapp.Lacking(map[string]string{w.Name: w.Level}, about.Permissions) {
			told.Lacking = append(told.Lacking, lacking+" ("+w.For+")")
		}
	}
	return told, err
}

func (c *call) showSecret(info store.SecretInfo) api.Secret {
	shown := api.Secret{Name: info.Name, Generation: info.Generation, SetAt: info.SetAt, Source: info.Source, UsedBy: c.usesOf(info.Name)}
	for _, use := range shown.UsedBy {
		shown.Pending = shown.Pending || use.Kind == "webhook" && use.Generation != info.Generation
	}
	return shown
}

// usesOf lists the uses of a secret in the live revisions.
func (c *call) usesOf(name string) []api.SecretUse {
	uses := []api.SecretUse{}
	for _, r := range c.Revisions("") {
		for _, w := range r.Webhooks {
			if w.Def.SecretName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "webhook", Name: w.Def.Name, Generation: w.SecretGeneration})
			}
			if w.Def.AppTokenName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "connection", Name: w.Def.Name})
			}
			if w.Def.APISecretName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "sender's API", Name: w.Def.Name})
			}
			if w.Def.Report.Hook.SecretName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "report", Name: w.Def.Name})
			}
		}
		for _, a := range r.Automations {
			if slices.Contains(a.Def.Settings.Secrets, name) || a.Def.Settings.Harness.AuthSecret == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "automation", Name: a.Def.Name})
			}
			if a.Def.Report.Hook.SecretName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "report", Name: a.Def.Name})
			}
		}
		for _, e := range r.Definition.Environments {
			if slices.Contains(e.Secrets, name) || slices.ContainsFunc(e.Services, func(s factory.Service) bool { return s.Secret == name }) {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "environment", Name: e.Name})
			}
		}
	}
	return uses
}

func (s *Server) setSecret(ctx context.Context, c *call, all *store.Store) (shown api.Secret, err error) {
	name := c.Param("name")
	req, err := body[api.SetSecret](c)
	switch {
	case err != nil:
		return shown, err
	case !secret.ValidName(name):
		return shown, refuse("name", name, secret.NameRule)
	case req.GitHubApp != nil && req.Value != "":
		return shown, refuse("value", "is too much", "a secret is a value or a GitHub App, not both")
	case req.GitHubApp != nil:
		value, err := githubapp.Value(req.GitHubApp.ID, req.GitHubApp.Key, req.GitHubApp.APIURL)
		if err != nil {
			return shown, refuse("github_app", "cannot be used", "%v", err)
		}
		req.Value = value.Reveal()
	case req.Value == "":
		return shown, refuse("value", "is empty", "the value is empty")
	}
	if len(req.Value) > secret.MaxValue {
		return shown, refuse("value", "is too long", "the value is longer than %d bytes", secret.MaxValue)
	}
	value := secret.New(req.Value)
	app := showApp(value)
	if app != nil && app.Problem != "" {
		return shown, refuse("value", "cannot be used", "%s", app.Problem)
	}
	generation, err := all.Secrets.Set(ctx, name, value)
	if err != nil {
		return shown, err
	}
	c.audit("secret.set", name, "", fmt.Sprintf("generation %d", generation))
	shown = s.secretSet(c, name, generation)
	if shown.GitHubApp = app; app == nil {
		shown.Warning = secret.Warning(req.Value)
	}
	return shown, nil
}

// secretSet tells the factories that a secret has a new generation, and makes the answer.
func (s *Server) secretSet(c *call, name string, generation int64) api.Secret {
	c.SecretSet(name)
	return c.showSecret(store.SecretInfo{Name: name, Generation: generation, SetAt: s.cfg.Now()})
}

// listPendingSecrets lists the secrets that senders gave in their handshakes, without the
// values.
func (s *Server) listPendingSecrets(ctx context.Context, _ *call, all *store.Store) (api.List[api.PendingSecret], error) {
	found, err := all.Secrets.Pending(ctx, "")
	return listOf(found, func(p store.PendingSecret) api.PendingSecret {
		return api.PendingSecret{
			ID: p.ID.String(), Factory: p.Factory, Webhook: p.Webhook,
			SecretName: p.SecretName, ReceivedAt: p.ReceivedAt, From: p.ClientAddr,
		}
	}), err
}

// confirmSecret stores a pending secret as the managed secret.
func (s *Server) confirmSecret(ctx context.Context, c *call, all *store.Store) (shown api.Secret, err error) {
	id, err := store.ParseID[store.PendingSecret](c.Param("id"))
	if err != nil {
		return shown, err
	}
	name, generation, err := all.Secrets.Confirm(ctx, id)
	if err != nil {
		return shown, err
	}
	c.audit("secret.confirm", name, "", fmt.Sprintf("generation %d from %s", generation, c.Param("id")))
	return s.secretSet(c, name, generation), nil
}

func (s *Server) dismissSecret(ctx context.Context, c *call, all *store.Store) (done written, err error) {
	id, err := store.ParseID[store.PendingSecret](c.Param("id"))
	if err == nil {
		err = all.Secrets.Dismiss(context.WithoutCancel(ctx), id)
	}
	if err != nil {
		return done, err
	}
	c.audit("secret.dismiss", c.Param("id"), "", "")
	c.Status(http.StatusNoContent)
	return done, nil
}

func (s *Server) deleteSecret(ctx context.Context, c *call, all *store.Store) (done written, err error) {
	name := c.Param("name")
	for try := 1; ; try++ {
		seen, err := c.followAll(ctx)
		if err != nil {
			return done, err
		}
		if uses := c.usesOf(name); len(uses) > 0 {
			return done, api.Refuse(api.Conflict, fmt.Sprintf("%s %s of factory %s uses it", uses[0].Kind, uses[0].Name, uses[0].Factory))
		}
		err = all.Secrets.Delete(context.WithoutCancel(ctx), name, seen)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrStale) || try == 5 {
			return done, err
		}
	}
	c.audit("secret.delete", name, "", "")
	c.Status(http.StatusNoContent)
	return done, nil
}

// followAll makes all factories serve here what is live by the store, and returns by which
// applies.
func (c *call) followAll(ctx context.Context) (map[string]store.ApplyID, error) {
	seen := make(map[string]store.ApplyID)
	for _, f := range c.Factories() {
		if err := f.Follow(ctx); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Revisions("") {
		seen[r.Factory], _ = store.ParseID[store.Apply](r.ApplyID)
	}
	return seen, nil
}
