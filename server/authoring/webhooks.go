package authoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// MadeWebhook is what became of a change of a webhook.
type MadeWebhook struct {
	Made
	Def       *factory.Webhook // as the newest commit has it
	Secret    string           // the value that the secret has from now on; empty: as before
	Generated bool             // the secret was made here, so the caller must be shown it
	Warning   string           // about the secret
}

// has adds the secret of the webhook.
func (m *MadeWebhook) has(own *ownSecret) {
	m.Secret, m.Generated, m.Warning = own.value, own.Generate, own.warning
}

// CreateWebhook makes a webhook. Its secret is stored before the commit that names it is
// applied, and removed if that commit is refused.
func (a *Author) CreateWebhook(ctx context.Context, by Caller, f access.Factory, req api.NewWebhook) (made MadeWebhook, err error) {
	commit, tree, done, err := a.turn(ctx, f)
	if err != nil {
		return made, err
	}
	defer done()
	own := ownSecret{WebhookSecret: req.Secret, name: req.Secret.Name}
	if own.name == "" && req.SecretName != nil {
		own.name = *req.SecretName
	}
	if err := own.choose(ctx, by, req.Name); err != nil {
		return made, err
	}
	req.SecretName = &own.name
	if own.Later {
		off := false
		req.Enabled = &off
	}
	d := Draft{Kind: "webhook", Name: req.Name, Commit: req.Commit}
	if d.Keys, err = keysOf(req.WebhookKeys); err != nil {
		return made, err
	}
	files, err := edit.Create(tree, d.Kind, d.Name, d.Change)
	if err != nil {
		return made, err
	}
	if err := a.editable(f, d, tree, files); err != nil {
		return made, err
	}
	made.Def = webhookIn(req.Name, files)
	if made.Def != nil { // else the commit is refused with the findings
		if err := own.make(made.Def); err != nil {
			return made, err
		}
	}
	if own.value != "" {
		// From here on it is done whole, although the client may go away: a browser does that
		// when somebody clicks twice, and the second request must find what the first has made.
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer stop()
		if _, err := a.storeSecret(ctx, by, own.name, own.value); err != nil {
			return made, err
		}
	}
	made.Made, err = a.commit(ctx, by, f, d, "Create", commit, tree, files)
	if err != nil {
		if own.value != "" && !a.has(ctx, f, d.Name) {
			a.dropSecret(ctx, by, own.name)
		}
		return made, err
	}
	if made.Def == nil {
		made.Def, err = a.newestWebhook(ctx, f, d.Name)
	}
	made.has(&own)
	return made, err
}

// ownSecret is the secret of a new webhook.
type ownSecret struct {
	api.WebhookSecret
	name, value, warning string
}

// choose finds out where the secret comes from, and its name.
func (o *ownSecret) choose(ctx context.Context, by Caller, webhook string) error {
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
		return refuse("secret_name", o.name, "%s", secret.NameRule)
	case len(o.Value) > secret.MaxValue:
		return refuse("secret.value", "is too long", "the value is longer than %d bytes", secret.MaxValue)
	case o.Name != "":
		return nil
	}
	all, err := by.Whole()
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
		return &Error{
			Kind: ErrConflict, Field: "secret_name", Value: o.name,
			Message: fmt.Sprintf("there is a secret %s: to use it, name it as secret.name; else choose another secret_name", o.name),
		}
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
	o.warning = secret.Warning(o.value)
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
func (a *Author) storeSecret(ctx context.Context, by Caller, name, value string) (generation int64, err error) {
	all, err := by.Whole()
	if err == nil {
		generation, err = all.Secrets.Set(ctx, name, secret.New(value))
	}
	if err != nil {
		return 0, err
	}
	by.Log("secret.set", name, "", fmt.Sprintf("generation %d", generation))
	by.SecretSet(name)
	return generation, nil
}

// dropSecret removes a secret whose webhook was refused. If that fails, the secret is unused,
// which the list of secrets shows.
func (a *Author) dropSecret(ctx context.Context, by Caller, name string) {
	all, err := by.Whole()
	if err == nil {
		err = all.Secrets.Delete(context.WithoutCancel(ctx), name, nil)
	}
	if err != nil {
		a.cfg.Logger.Error("the secret of a webhook that was refused could not be removed", "secret", name, "error", err)
		return
	}
	by.Log("secret.delete", name, "", "its webhook was refused")
}

// has tells whether the newest commit has a webhook.
func (a *Author) has(ctx context.Context, f access.Factory, name string) bool {
	_, _, err := a.Read(context.WithoutCancel(ctx), f, "webhook", name)
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

// UpdateWebhook changes keys of a webhook.
func (a *Author) UpdateWebhook(ctx context.Context, by Caller, f access.Factory, name string, req api.WebhookPatch) (made MadeWebhook, err error) {
	d := Draft{Kind: "webhook", Name: name, Commit: req.Commit}
	if d.Keys, err = keysOf(req.WebhookKeys); err != nil {
		return made, err
	}
	if made.Made, err = a.Update(ctx, by, f, d); err == nil {
		made.Def, err = a.newestWebhook(ctx, f, name)
	}
	return made, err
}

// newestWebhook is a webhook as the newest commit has it.
func (a *Author) newestWebhook(ctx context.Context, f access.Factory, name string) (*factory.Webhook, error) {
	_, d, err := a.Read(ctx, f, "webhook", name)
	if err != nil {
		return nil, err
	}
	def := webhookIn(name, edit.Files{d.Path: d.Data})
	if def == nil {
		return nil, &Error{Kind: ErrConflict, Message: d.Path + " is not valid: mend that first"}
	}
	return def, nil
}

// RotateWebhook gives the secret of a webhook a new value, and applies: the old one is dead at
// once (SPEC C3.3). A webhook that waits for its secret is enabled with it. If the apply
// fails, the old value is the newest again. Without a value, a new one is generated.
func (a *Author) RotateWebhook(ctx context.Context, by Caller, f access.Factory, name, value string) (made MadeWebhook, err error) {
	commit, tree, done, err := a.turn(ctx, f)
	if err != nil {
		return made, err
	}
	defer done()
	def, err := a.newestWebhook(ctx, f, name)
	if err != nil {
		return made, err
	}
	own, err := a.successor(by, f, def, value)
	if err != nil {
		return made, err
	}
	all, err := by.Whole()
	if err != nil {
		return made, err
	}
	values, err := all.Secrets.Newest(ctx, []string{def.SecretName})
	if err != nil {
		return made, err
	}
	old, had := values[def.SecretName]
	// From here on it goes to its end, whether the caller waits or not.
	ctx = context.WithoutCancel(ctx)
	generation, err := a.storeSecret(ctx, by, def.SecretName, own.value)
	if err != nil {
		return made, err
	}
	if !had && !def.Enabled {
		made.Made, err = a.enable(ctx, by, f, def, commit, tree)
	} else {
		made.Made, err = reapply(ctx, f, commit)
	}
	if w := by.LiveWebhook(f.Name, def.Name); err == nil && (w == nil || w.SecretGeneration != generation) {
		err = &Error{Kind: ErrConflict, Message: "the new secret does not serve: " + cmp.Or(made.Waits, "the webhook is not live")}
	}
	if err != nil {
		if had {
			_, restore := a.storeSecret(ctx, by, def.SecretName, old.Value.Reveal())
			err = errors.Join(err, restore)
		} else {
			a.dropSecret(ctx, by, def.SecretName)
		}
		return MadeWebhook{}, err
	}
	by.Log("webhook.rotate", def.Name, f.Name, fmt.Sprintf("%s generation %d", def.SecretName, generation))
	made.Def = def
	made.has(own)
	return made, nil
}

// successor is the value with which a webhook's secret can be replaced: the one that is given, or
// else a new one. It suits all webhooks of the secret.
func (a *Author) successor(by Caller, f access.Factory, def *factory.Webhook, value string) (*ownSecret, error) {
	if def.SecretName == "" {
		return nil, invalid("value", "means nothing: the webhook takes no requests. Set a new token of its connection (triphammer secrets set %s)", def.AppTokenName)
	}
	if a.cfg.Home(f.Name) == nil {
		return nil, &Error{Kind: ErrConflict, Field: "secret_name", Value: def.SecretName, Message: fmt.Sprintf(
			"the factory %s is not hosted here: its webhooks take a new value of the secret %s at the next apply. "+
				"Set it (triphammer secrets set %s), then triphammer apply",
			f.Name, def.SecretName, def.SecretName)}
	}
	own := &ownSecret{WebhookSecret: api.WebhookSecret{Value: value, Generate: value == ""}, name: def.SecretName}
	if len(value) > secret.MaxValue {
		return nil, refuse("value", "is too long", "the value is longer than %d bytes", secret.MaxValue)
	}
	if own.Generate && !def.ChoosesSecret() {
		return nil, invalid("value", "is missing: %s makes the secret. Make a new one there, and give it as value", def.Scheme.Provider)
	}
	if err := own.make(def); err != nil {
		return nil, err
	}
	for _, r := range by.Revisions(f.Name) {
		for _, w := range r.Webhooks {
			if w.Def.SecretName == def.SecretName {
				if err := suits(w.Def, "value", own.value); err != nil {
					return nil, err
				}
			}
		}
	}
	return own, nil
}

// enable commits that a webhook is enabled.
func (a *Author) enable(ctx context.Context, by Caller, f access.Factory, def *factory.Webhook, commit string, tree fs.FS) (Made, error) {
	on := &schema.Node{Kind: schema.Bool, Text: "true"}
	d := Draft{Kind: "webhook", Name: def.Name}
	d.Keys = &schema.Node{Kind: schema.Mapping, Fields: []schema.Field{{Key: "enabled", Value: on}}}
	files, err := edit.Update(tree, d.Kind, d.Name, d.Change)
	if err != nil {
		return Made{}, err
	}
	return a.commit(ctx, by, f, d, "Enable", commit, tree, files)
}

// reapply applies the head anew.
func reapply(ctx context.Context, f access.Factory, commit string) (made Made, err error) {
	done, err := f.Apply(ctx, "secret")
	if err != nil {
		return made, err
	}
	made.ApplyID = done.ID
	made.Change = api.Change{Commit: commit, Unchanged: true, Live: done.Outcome == applier.Applied, Since: []api.FileEdit{}}
	if !made.Live {
		made.Waits = cmp.Or(Waits(f.State()), done.Error)
	}
	return made, nil
}
