package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/secret"
)

// createTime is how long a webhook may take to be made when nobody waits for it.
const createTime = time.Minute

// createWebhook makes a webhook. Its secret is stored before the commit that names it is
// applied, and removed if that commit is refused.
func (s *Server) createWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	secretly(c)
	req, err := body[api.NewWebhook](c)
	if err != nil {
		return shown, err
	}
	commit, tree, done, err := s.turn(ctx, f)
	if err != nil {
		return shown, err
	}
	defer done()
	own := ownSecret{WebhookSecret: req.Secret, name: cmp.Or(req.Secret.Name, deref(req.SecretName))}
	if err := own.choose(ctx, c, req.Name); err != nil {
		return shown, err
	}
	req.SecretName = &own.name
	if own.Later {
		off := false
		req.Enabled = &off
	}
	d := draft{kind: "webhook", name: req.Name, Commit: req.Commit, message: "Create webhook " + req.Name}
	if d.change.Keys, err = keysOf(req.WebhookKeys); err != nil {
		return shown, err
	}
	files, err := edit.Create(tree, d.kind, d.name, d.change)
	if err != nil {
		return shown, refusalOfEdit(err)
	}
	if err := s.editable(f, &d, tree, files); err != nil {
		return shown, err
	}
	def := webhookIn(req.Name, files)
	if def != nil { // else the commit is refused with the findings
		if err := own.make(def); err != nil {
			return shown, err
		}
	}
	if own.value != "" {
		// From here on it is done whole, although the client may go away: a browser does that
		// when somebody clicks twice, and the second request must find what the first has made.
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer stop()
		if _, err := s.storeSecret(ctx, c, own.name, own.value); err != nil {
			return shown, err
		}
	}
	shown.Change, err = s.commit(ctx, c, f, &d, commit, tree, files)
	if err != nil {
		if own.value != "" && !s.has(ctx, f, d.name) {
			s.dropSecret(ctx, c, own.name)
		}
		return shown, err
	}
	if def == nil {
		if def, err = s.newestWebhook(ctx, f, d.name); err != nil {
			return shown, err
		}
	}
	s.showWebhookChange(c, f, def, &shown)
	shown.Warning = own.warning
	if own.Generate {
		shown.Secret = own.value
	}
	if own.value != "" && def.AuthMode == factory.URLToken {
		shown.URLWithToken = strings.ReplaceAll(shown.URL, "{token}", own.value)
	}
	return shown, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ownSecret is the secret of a new webhook.
type ownSecret struct {
	api.WebhookSecret
	name, value, warning string
}

// choose finds out where the secret comes from, and its name.
func (o *ownSecret) choose(ctx context.Context, c *call, webhook string) error {
	ways := 0
	for _, is := range []bool{o.Generate, o.Value != "", o.Name != "", o.Later} {
		if is {
			ways++
		}
	}
	switch {
	case ways > 1:
		return invalid("secret", "takes one of generate, value, name and later")
	case o.name != "" && !secret.ValidName(o.name):
		return refuse("secret_name", o.name, "%s", secretNames)
	case len(o.Value) > secret.MaxValue:
		return refuse("secret.value", "is too long", "the value is longer than %d bytes", secret.MaxValue)
	case o.Name != "":
		return nil
	}
	all, err := c.Whole()
	if err != nil {
		return err
	}
	infos, err := all.Secrets.List(ctx)
	if err != nil {
		return err
	}
	taken := make(map[string]bool, len(infos))
	for _, i := range infos {
		taken[i.Name] = true
	}
	if o.name != "" && taken[o.name] {
		return api.Refuse(api.Conflict,
			fmt.Sprintf("there is a secret %s: to use it, name it as secret.name; else choose another secret_name", o.name),
			api.FieldProblem{Field: "secret_name", Message: o.name})
	}
	if o.name == "" {
		suggested := edit.SecretName(webhook)
		o.name = suggested
		for n := 2; taken[o.name]; n++ {
			o.name = fmt.Sprintf("%s_%d", suggested, n)
		}
	}
	return nil
}

// make makes the value of the secret for a webhook, or checks the one that was given.
func (o *ownSecret) make(w *factory.Webhook) error {
	if o.Name != "" || o.Later {
		return nil
	}
	if o.Value == "" && !o.Generate {
		if o.Generate = w.ChoosesSecret(); !o.Generate {
			return invalid("secret", "is missing: %s issues it after you give it the URL. Say now that it comes later, or give it if you have it", w.Scheme.Provider)
		}
	}
	if o.value = o.Value; o.Generate {
		made, ok := w.NewSecret()
		if !ok {
			return invalid("secret", "cannot be generated: with signature_scheme %s it is a key of the sender. Give it if you have it, or say that it comes later",
				w.Scheme.Name)
		}
		o.value = made
		return nil
	}
	o.warning = secretWarning(o.value)
	return suits(w, "secret.value", o.value)
}

// suits refuses a secret that does not suit a webhook.
func suits(w *factory.Webhook, field, value string) error {
	if _, err := w.Verifier(value); err != nil {
		return refuse(field, "does not suit", "webhook %s cannot have that value: %v", w.Name, err)
	}
	return nil
}

// storeSecret stores a new value of a secret, and returns its generation.
func (s *Server) storeSecret(ctx context.Context, c *call, name, value string) (generation int64, err error) {
	all, err := c.Whole()
	if err == nil {
		generation, err = all.Secrets.Set(ctx, name, secret.New(value))
	}
	if err != nil {
		return 0, err
	}
	c.audit("secret.set", name, "", fmt.Sprintf("generation %d", generation))
	s.secretSet(c, name, generation)
	return generation, nil
}

// dropSecret removes a secret whose webhook was refused. If that fails, the secret is unused,
// which the list of secrets shows.
func (s *Server) dropSecret(ctx context.Context, c *call, name string) {
	all, err := c.Whole()
	if err == nil {
		err = all.Secrets.Delete(context.WithoutCancel(ctx), name, nil)
	}
	if err != nil {
		s.cfg.Logger.Error("the secret of a webhook that was refused could not be removed", "secret", name, "error", err)
		return
	}
	c.audit("secret.delete", name, "", "its webhook was refused")
}

// has tells whether the newest commit has a webhook.
func (s *Server) has(ctx context.Context, f access.Factory, name string) bool {
	_, err := s.definition(context.WithoutCancel(ctx), f, "webhook", name)
	return err == nil
}

// keysOf are the keys of the file for those of a request.
func keysOf(keys api.WebhookKeys) (*schema.Node, error) {
	patch, err := keys.Patch()
	if err != nil {
		return nil, invalid("signature", "is not what is expected: %v", err)
	}
	return patch, nil
}

// webhookIn is the webhook of a file, nil if the file is not valid.
func webhookIn(name string, files edit.Files) *factory.Webhook {
	f, found := edit.Alone(name, files)
	if found.HasErrors() {
		return nil
	}
	return f.Webhook(name)
}

// live is a webhook as it serves, nil if it does not.
func (c *call) live(f access.Factory, name string) *applier.Webhook {
	for _, r := range c.Revisions(f.Name) {
		for _, w := range r.Webhooks {
			if w.Def.Name == name {
				return w
			}
		}
	}
	return nil
}

// showWebhookChange completes the answer with the webhook. Without a live one, it is what the
// definition says.
func (s *Server) showWebhookChange(c *call, f access.Factory, def *factory.Webhook, shown *api.WebhookChange) {
	w := c.live(f, def.Name)
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

func (s *Server) patchWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	req, err := body[api.WebhookPatch](c)
	if err != nil {
		return shown, err
	}
	d := draft{kind: "webhook", name: c.Param("webhook"), Commit: req.Commit}
	if d.change.Keys, err = keysOf(req.WebhookKeys); err != nil {
		return shown, err
	}
	d.message = edit.Verb(d.change) + " webhook " + d.name
	shown.Change, err = s.author(ctx, c, f, &d, func(tree fs.FS) (edit.Files, error) {
		return edit.Update(tree, d.kind, d.name, d.change)
	})
	if err != nil {
		return shown, err
	}
	def, err := s.newestWebhook(ctx, f, d.name)
	if err == nil {
		s.showWebhookChange(c, f, def, &shown)
	}
	return shown, err
}

// newestWebhook is a webhook as the newest commit has it.
func (s *Server) newestWebhook(ctx context.Context, f access.Factory, name string) (*factory.Webhook, error) {
	_, tree, err := s.newestFiles(ctx, f)
	if err != nil {
		return nil, err
	}
	d, err := edit.Read(tree, "webhook", name)
	if err != nil {
		return nil, refusalOfEdit(err)
	}
	def := webhookIn(name, edit.Files{d.Path: d.Data})
	if def == nil {
		return nil, api.Refuse(api.Conflict, d.Path+" is not valid: mend that first")
	}
	return def, nil
}

// deleteWebhook removes a webhook. Its senders get 404 at once. Automations that selected it
// stay, and so do its secret and its log.
func (s *Server) deleteWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	d := draft{kind: "webhook", name: c.Param("webhook"), Commit: commitOf(c), message: "Delete webhook " + c.Param("webhook")}
	if w := c.live(f, d.name); w != nil {
		s.showWebhookChange(c, f, w.Def, &shown)
	} else {
		shown.Name, shown.Factory, shown.Listeners = d.name, f.Name, []string{}
	}
	shown.Change, err = s.author(ctx, c, f, &d, func(tree fs.FS) (edit.Files, error) { return edit.Delete(tree, d.kind, d.name) })
	return shown, err
}

// rotateWebhook gives the secret of a webhook a new value, and applies: the old one is dead at
// once (SPEC C3.3). A webhook that waits for its secret is enabled with it. If the apply
// fails, the old value is the newest again.
func (s *Server) rotateWebhook(ctx context.Context, c *call, f access.Factory) (shown api.WebhookChange, err error) {
	secretly(c)
	req, err := optionalBody[api.WebhookRotation](c)
	if err != nil {
		return shown, err
	}
	commit, tree, done, err := s.turn(ctx, f)
	if err != nil {
		return shown, err
	}
	defer done()
	def, err := s.newestWebhook(ctx, f, c.Param("webhook"))
	if err != nil {
		return shown, err
	}
	if s.cfg.Place(f.Name).Home == nil {
		return shown, api.Refuse(api.Conflict, fmt.Sprintf(
			"the factory %s is not hosted here: its webhooks take a new value of the secret %s at the next apply. "+
				"Set it (triphammer secrets set %s), then triphammer apply",
			f.Name, def.SecretName, def.SecretName), api.FieldProblem{Field: "secret_name", Message: def.SecretName})
	}
	own := ownSecret{WebhookSecret: api.WebhookSecret{Value: req.Value, Generate: req.Value == ""}, name: def.SecretName}
	if len(req.Value) > secret.MaxValue {
		return shown, refuse("value", "is too long", "the value is longer than %d bytes", secret.MaxValue)
	}
	if own.Generate && !def.ChoosesSecret() {
		return shown, invalid("value", "is missing: %s makes the secret. Make a new one there, and give it as value", def.Scheme.Provider)
	}
	if err := own.make(def); err != nil {
		return shown, err
	}
	for _, r := range c.Revisions(f.Name) { // the value is for all of them
		for _, w := range r.Webhooks {
			if w.Def.SecretName == def.SecretName {
				if err := suits(w.Def, "value", own.value); err != nil {
					return shown, err
				}
			}
		}
	}
	all, err := c.Whole()
	if err != nil {
		return shown, err
	}
	values, err := all.Secrets.Newest(ctx, []string{def.SecretName})
	if err != nil {
		return shown, err
	}
	old, had := values[def.SecretName]
	// From here on it goes to its end, whether the caller waits or not.
	ctx = context.WithoutCancel(ctx)
	generation, err := s.storeSecret(ctx, c, def.SecretName, own.value)
	if err != nil {
		return shown, err
	}
	if d := (draft{kind: "webhook", name: def.Name, message: "Enable webhook " + def.Name}); !had && !def.Enabled {
		on := &schema.Node{Kind: schema.Bool, Text: "true"}
		d.change.Keys = &schema.Node{Kind: schema.Mapping, Fields: []schema.Field{{Key: "enabled", Value: on}}}
		var files edit.Files
		if files, err = edit.Update(tree, d.kind, d.name, d.change); err == nil {
			shown.Change, err = s.commit(ctx, c, f, &d, commit, tree, files)
		}
	} else {
		shown.Change, err = c.reapply(ctx, f, commit)
	}
	if w := c.live(f, def.Name); err == nil && (w == nil || w.SecretGeneration != generation) {
		err = api.Refuse(api.Conflict, "the new secret does not serve: "+cmp.Or(shown.Waits, "the webhook is not live"))
	}
	if err != nil {
		if had {
			_, restore := s.storeSecret(ctx, c, def.SecretName, old.Value.Reveal())
			err = errors.Join(err, restore)
		} else {
			s.dropSecret(ctx, c, def.SecretName)
		}
		return api.WebhookChange{}, err
	}
	s.showWebhookChange(c, f, def, &shown)
	c.audit("webhook.rotate", def.Name, f.Name, fmt.Sprintf("%s generation %d", def.SecretName, shown.SecretGeneration))
	shown.Warning = own.warning
	if own.Generate {
		shown.Secret = own.value
	}
	if def.AuthMode == factory.URLToken {
		shown.URLWithToken = strings.ReplaceAll(shown.URL, "{token}", own.value)
	}
	return shown, nil
}

// reapply applies the head anew.
func (c *call) reapply(ctx context.Context, f access.Factory, commit string) (shown api.Change, err error) {
	done, err := c.apply(ctx, f, "secret")
	if err != nil {
		return shown, err
	}
	shown = api.Change{Commit: commit, Unchanged: true, Live: done.Outcome == applier.Applied, Since: []api.FileEdit{}}
	if !shown.Live {
		shown.Waits = cmp.Or(waits(f.State()), done.Error)
	}
	if done.ID != "" {
		record, err := c.showDone(ctx, done)
		if err != nil {
			return shown, err
		}
		shown.Apply = &record
	}
	return shown, nil
}
