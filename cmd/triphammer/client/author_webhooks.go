package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory/edit"
	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// webhookAuthor are the flags of the commands that make and change webhooks.
type webhookAuthor struct {
	author
	mode, scheme, header, secretName string
	options                          []string
	fromStdin, later, yes            bool
}

func webhookAuthorCommands() []*cobra.Command {
	var w webhookAuthor // shared, because only one of the commands runs
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a webhook, and show its URL and its secret once", Args: Exactly("NAME"),
		Long: `Make a webhook: its file webhooks/NAME.yaml, and its secret. Without a word about the secret, one is generated in the form
that the sender takes, and printed once. With --secret-stdin it is the one that the sender made; with --secret-name one that
is set already; with --later the webhook is disabled until "webhooks rotate NAME --secret-stdin" brings it, for senders that
tell it only when they have the URL.` + authorHelp,
		Example: `  triphammer webhooks create ci
  triphammer webhooks create github-main --scheme github
  triphammer webhooks create payments --scheme stripe --later
  triphammer webhooks create alerts --auth-mode url_token -o json | jq -r .url_with_token`,
		RunE: func(c *cobra.Command, args []string) error { return w.create(c, args[0]) },
	}
	change := &cobra.Command{
		Use: "edit NAME", Short: "Change how a webhook's senders prove themselves, or how deliveries are told apart", Args: Exactly("NAME"),
		Long: `Change keys of a webhook's file. An empty value takes a key out.` + authorHelp,
		Example: `  triphammer webhooks edit ci --delivery-id-header X-CI-Run-Id
  triphammer webhooks edit ci --scheme github`,
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := w.keys(c)
			if err != nil {
				return err
			}
			return w.patch(c, args[0], keys)
		},
	}
	for _, c := range []*cobra.Command{create, change} {
		f := c.Flags()
		f.StringVar(&w.mode, "auth-mode", "",
			"how senders prove themselves: "+strings.Join(schema.AuthModes, ", ")+"; default: token, or signature with --scheme")
		f.StringVar(&w.scheme, "scheme", "", "signature scheme of the sender (triphammer schemes list)")
		f.StringVar(&w.header, "delivery-id-header", "", "header in which the sender puts its event's id")
		f.StringVar(&w.secretName, "secret-name", "", "managed secret that is set already")
		f.StringArrayVar(&w.options, "signature", nil, "option of the scheme: key=value, such as header=X-Signature")
		_ = c.RegisterFlagCompletionFunc("auth-mode", cobra.FixedCompletions(schema.AuthModes, cobra.ShellCompDirectiveNoFileComp))
		_ = c.RegisterFlagCompletionFunc("scheme", cobra.FixedCompletions(signature.Names(), cobra.ShellCompDirectiveNoFileComp))
	}
	create.Flags().BoolVar(&w.fromStdin, "secret-stdin", false, "read the secret that the sender made from standard input")
	create.Flags().BoolVar(&w.later, "later", false, "the sender tells its secret later: disabled until then")
	create.MarkFlagsMutuallyExclusive("secret-stdin", "secret-name", "later")
	rotate := &cobra.Command{
		Use: "rotate NAME", Short: "Give a webhook a new secret; the old one is dead at once", Args: Exactly("NAME"),
		Long: `Give the managed secret of a webhook a new value, and apply it: from then on the old one is refused, also by other webhooks
with the same secret. The new value is generated and printed once, or read with --secret-stdin. A webhook that waited for its
secret is enabled. To move a sender without a gap, make a second webhook, move the sender, and delete the first.

Of a factory whose repository is elsewhere, the value is set, and serves from the next apply on.`,
		RunE: func(c *cobra.Command, args []string) error { return w.rotate(c, args[0]) },
	}
	rotate.Flags().BoolVar(&w.fromStdin, "secret-stdin", false, "read the new secret from standard input")
	remove := &cobra.Command{
		Use: "delete NAME --yes", Short: "Delete a webhook; its senders get 404 at once", Args: Exactly("NAME"),
		Long: `Delete a webhook. Its senders get 404 at once. Automations that select it stay and say so. Its secret and its deliveries stay
too. If the same file comes back, so does its URL.` + authorHelp,
		RunE: func(c *cobra.Command, args []string) error {
			if err := confirmed(w.yes, "deletes the webhook "+args[0]); err != nil {
				return err
			}
			return w.send(c, args[0], func(cl *Client, factory string) (made api.WebhookChange, err error) {
				return made, cl.Call(c.Context(), http.MethodDelete, w.deletePath(factory, "webhook", args[0]), nil, &made)
			}, func(tree fs.FS) (edit.Files, error) { return edit.Delete(tree, "webhook", args[0]) }, w.showDeleted)
		},
	}
	remove.Flags().BoolVar(&w.yes, "yes", false, "do it")
	all := []*cobra.Command{create, change}
	for _, on := range []bool{true, false} {
		use, short := "enable NAME", "Make a webhook take deliveries again"
		if !on {
			use, short = "disable NAME", "Stop a webhook: its senders get 404 at once"
		}
		all = append(all, &cobra.Command{
			Use: use, Short: short, Args: Exactly("NAME"),
			Long: short + ". Its automations, its secret and its log stay." + authorHelp,
			RunE: func(c *cobra.Command, args []string) error { return w.patch(c, args[0], api.WebhookKeys{Enabled: &on}) },
		})
	}
	all = append(all, rotate, remove)
	for _, c := range all {
		if c == rotate {
			term.OutputFlag(c)
			ClientFlags(c)
			continue
		}
		w.flags(c)
	}
	return all
}

// keys are the keys that the flags give.
func (w *webhookAuthor) keys(c *cobra.Command) (keys api.WebhookKeys, err error) {
	text := func(flag, value string) *string {
		if !c.Flags().Changed(flag) {
			return nil
		}
		return &value
	}
	keys.AuthMode, keys.SignatureScheme = text("auth-mode", w.mode), text("scheme", w.scheme)
	if keys.AuthMode == nil && w.scheme != "" {
		mode := "signature"
		keys.AuthMode = &mode
	}
	keys.DeliveryIDHeader, keys.SecretName = text("delivery-id-header", w.header), text("secret-name", w.secretName)
	for _, option := range w.options {
		key, value, ok := strings.Cut(option, "=")
		if !ok {
			return keys, exit.With(exit.Usage, "--signature %s: write key=value, such as header=X-Signature", option)
		}
		if keys.Signature == nil {
			keys.Signature = make(map[string]any)
		}
		node, err := valueFor(factoryShape("webhook"), []string{"signature", key}, value)
		if err != nil {
			return keys, exit.With(exit.Usage, "--signature %s: %w", option, err)
		}
		if keys.Signature[key] = node.Text; node.Kind == schema.Int {
			keys.Signature[key] = json.Number(node.Text)
		}
		if value == "" {
			keys.Signature[key] = nil
		}
	}
	return keys, nil
}

func (w *webhookAuthor) create(c *cobra.Command, name string) error {
	keys, err := w.keys(c)
	if err != nil {
		return err
	}
	keys.SecretName = nil
	req := api.NewWebhook{Commit: w.commit, WebhookKeys: keys, Name: name, Secret: api.WebhookSecret{Name: w.secretName, Later: w.later}}
	if w.fromStdin {
		if req.Secret.Value, err = readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "the secret of the sender"); err != nil {
			return err
		}
		if req.Secret.Value == "" {
			return exit.With(exit.Usage, "the secret is empty")
		}
	}
	cl, factory, err := w.server(c)
	if err != nil {
		return err
	}
	if cl != nil {
		defer cl.Close()
		var made api.WebhookChange
		err := cl.Call(c.Context(), http.MethodPost, definitionPath(factory, "webhook", ""), req, &made)
		if err == nil {
			return w.show(c, made, w.showMade)
		}
		if !isElsewhere(err) {
			return explained(c, err)
		}
	}
	return w.createHere(c, cl, req)
}

// createHere makes the file of a webhook in a folder. A secret that is new goes to the server,
// if one is named.
func (w *webhookAuthor) createHere(c *cobra.Command, cl *Client, req api.NewWebhook) error {
	name := req.Secret.Name
	name = cmp.Or(name, edit.SecretName(req.Name))
	req.SecretName = &name
	if req.Secret.Later {
		off := false
		req.Enabled = &off
	}
	value := req.Secret.Value
	done, err := w.inTree(c, "webhook", req.Name, func(tree fs.FS) (edit.Files, error) {
		patch, err := req.WebhookKeys.Patch()
		if err != nil {
			return nil, err
		}
		files, err := edit.Create(tree, "webhook", req.Name, edit.Change{Keys: patch})
		if err != nil {
			return nil, err
		}
		f, found := edit.Alone(req.Name, files)
		if found.HasErrors() || req.Secret.Name != "" || req.Secret.Later {
			return files, nil // the whole tree is checked next
		}
		hook := f.Webhook(req.Name)
		if value == "" {
			if !hook.ChoosesSecret() {
				return nil, exit.With(exit.Usage,
					"%s makes the secret, and shows it when it has the URL: give --secret-stdin or --later", hook.Scheme.Provider)
			}
			value, _ = hook.NewSecret()
		}
		if _, err := hook.Verifier(value); err != nil {
			return nil, exit.With(exit.Usage, "webhook %s: %w", req.Name, err)
		}
		return files, cl.secretIsFree(c, name)
	})
	if err != nil {
		return err
	}
	done.SecretName = name
	if value != "" && cl != nil {
		if err := cl.Call(c.Context(), http.MethodPut, "/secrets/"+url.PathEscape(name), api.SetSecret{Value: value}, nil); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "The file is written, but its secret %s is not set: delete the file, or set the secret.\n", name)
			return err
		}
	}
	if req.Secret.Value == "" {
		done.Secret = value
	}
	if err := done.show(c); err != nil {
		return err
	}
	if !term.IsTable(c) {
		return nil
	}
	out := c.OutOrStdout()
	switch {
	case value != "" && cl != nil:
		fmt.Fprintf(out, "The managed secret %s is set.\n", name)
	case value != "" || req.Secret.Later:
		fmt.Fprintf(out, "Set the managed secret on the server: triphammer secrets set %s\n", name)
	}
	if done.Secret != "" {
		fmt.Fprintf(out, "The secret, which is not shown again:\n%s\n", done.Secret)
	}
	fmt.Fprintf(out, "When the server has applied it, it prints the URL: triphammer webhooks url %s\n", req.Name)
	return nil
}

// secretIsFree refuses the name of a managed secret that the server has already. Without a
// server, cl is nil, and nothing is known.
func (cl *Client) secretIsFree(c *cobra.Command, name string) error {
	if cl == nil {
		return nil
	}
	all, err := Collect[api.Secret](c.Context(), cl, "/secrets", url.Values{}, 0)
	if err == nil && slices.ContainsFunc(all, func(s api.Secret) bool { return s.Name == name }) {
		err = exit.With(exit.Conflict, "the server has a secret %s already: use it with --secret-name %s", name, name)
	}
	return err
}

func (w *webhookAuthor) patch(c *cobra.Command, name string, keys api.WebhookKeys) error {
	patch, err := keys.Patch()
	if err != nil {
		return err
	}
	if len(patch.Fields) == 0 {
		return exit.With(exit.Usage, "what is to change? See: %s --help", c.CommandPath())
	}
	req := api.WebhookPatch{Commit: w.commit, WebhookKeys: keys}
	return w.send(c, name, func(cl *Client, factory string) (made api.WebhookChange, err error) {
		return made, cl.Call(c.Context(), http.MethodPatch, definitionPath(factory, "webhook", name), req, &made)
	}, func(tree fs.FS) (edit.Files, error) {
		return edit.Update(tree, "webhook", name, edit.Change{Keys: patch})
	}, w.showMade)
}

// send makes a change by the server, or in the files of a folder.
func (w *webhookAuthor) send(
	c *cobra.Command, name string, send func(*Client, string) (api.WebhookChange, error), make func(fs.FS) (edit.Files, error),
	show func(io.Writer, api.WebhookChange),
) error {
	return byServerOrTree(c, &w.author, "webhook", name, send, func(made api.WebhookChange) error { return w.show(c, made, show) }, make)
}

func (w *webhookAuthor) rotate(c *cobra.Command, name string) error {
	var req api.WebhookRotation
	var err error
	if w.fromStdin {
		if req.Value, err = readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "the new secret"); err != nil {
			return err
		}
		if req.Value == "" {
			return exit.With(exit.Usage, "the secret is empty")
		}
	}
	cl, err := Connect(c, true)
	if err != nil {
		return err
	}
	defer cl.Close()
	factory, err := cl.only(c.Context())
	if err != nil {
		return err
	}
	var made api.WebhookChange
	err = cl.Call(c.Context(), http.MethodPost, definitionPath(factory, "webhook", name)+"/rotate", req, &made)
	p, ok := errors.AsType[*problem](err)
	if ok && p.Status == http.StatusConflict && len(p.Errors) == 1 && p.Errors[0].Field == "secret_name" {
		return w.rotateElsewhere(c, cl, name, req.Value)
	}
	if err != nil {
		return explained(c, err)
	}
	return w.show(c, made, w.showMade)
}

// rotateElsewhere sets a new value of the secret of a webhook whose factory is not hosted. Its
// next apply takes it.
func (w *webhookAuthor) rotateElsewhere(c *cobra.Command, cl *Client, name, value string) error {
	made := api.WebhookChange{
		Change:    api.Change{Unchanged: true, Waits: "the next apply takes it: triphammer apply", Since: []api.FileEdit{}},
		Listeners: []string{},
	}
	if err := cl.Get(c.Context(), "/webhooks/"+url.PathEscape(name), &made.Webhook); err != nil {
		return err
	}
	if value == "" {
		made.Secret = signature.NewToken()
		if scheme, ok := signature.Lookup(made.SignatureScheme); ok && made.AuthMode == "signature" {
			if made.Secret, _ = scheme.NewSecret(); !scheme.SecretIsYours() {
				return exit.With(exit.Usage, "%s makes the secret: make a new one there, and give it with --secret-stdin", scheme.Provider)
			}
		}
		value = made.Secret
	}
	var set api.Secret
	err := cl.Call(c.Context(), http.MethodPut, "/secrets/"+url.PathEscape(made.SecretName), api.SetSecret{Value: value}, &set)
	if err != nil {
		return err
	}
	made.SecretGeneration, made.Warning = set.Generation, set.Warning
	if set.Warning != "" {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", set.Warning)
	}
	return term.Emit(c, made, []string{name}, func(out io.Writer) error {
		fmt.Fprintf(out, "%s: generation %d is set. %s\n", set.Name, set.Generation, cl.nextApply())
		if made.Secret != "" {
			fmt.Fprintf(out, "The secret, which is not shown again:\n%s\n", made.Secret)
		}
		return nil
	})
}

// show prints the answer of the server. It exits with 1 if what was committed does not serve.
func (w *webhookAuthor) show(c *cobra.Command, made api.WebhookChange, forPeople func(io.Writer, api.WebhookChange)) error {
	err := term.Emit(c, made, []string{made.Name}, func(out io.Writer) error {
		switch {
		case made.Unchanged && made.Apply == nil:
			fmt.Fprintf(out, "nothing to change: webhook %s says so already\n", made.Name)
		case made.Unchanged:
			fmt.Fprintln(out, "applied")
		case made.Live:
			fmt.Fprintf(out, "committed %s, and it serves\n", term.ShortHash(made.Commit))
		default:
			fmt.Fprintf(out, "committed %s, but it does not serve: %s\n", term.ShortHash(made.Commit), made.Waits)
		}
		forPeople(out, made)
		return nil
	})
	if made.Warning != "" {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", made.Warning)
	}
	if err == nil && !made.Live && !made.Unchanged {
		return exit.Silently(exit.Bad)
	}
	return err
}

func (w *webhookAuthor) showMade(out io.Writer, made api.WebhookChange) {
	t := term.Table{Header: []string{"webhook", made.Name}}
	t.Add("url", made.URL)
	t.Add("mode", strings.TrimSpace(made.AuthMode+" "+made.SignatureScheme))
	t.Add("enabled", term.YesNo(made.Enabled))
	t.Add("secret", secretText(made.Webhook))
	t.Add("listening", strings.Join(made.Listeners, ", "))
	_ = t.Write(out) // what follows fails too
	if len(made.SharedWith) > 0 {
		others := terms.Each(made.SharedWith, func(u api.SecretUse) string { return u.Kind + " " + u.Name })
		fmt.Fprintf(out, "The secret is also that of %s.\n", strings.Join(others, ", "))
	}
	switch {
	case made.Secret != "":
		fmt.Fprintf(out, "The secret, which is not shown again:\n%s\n", made.Secret)
	case made.SecretGeneration == 0:
		fmt.Fprintf(out, "When the sender has told its secret: triphammer webhooks rotate %s --secret-stdin\n", made.Name)
	}
	if made.URLWithToken != "" {
		fmt.Fprintf(out, "The whole URL, which is a credential:\n%s\n", made.URLWithToken)
	}
}

func (w *webhookAuthor) showDeleted(out io.Writer, made api.WebhookChange) {
	fmt.Fprintf(out, "The webhook %s is gone: its senders get 404.\n", made.Name)
	if len(made.Listeners) > 0 {
		fmt.Fprintf(out, "These automations selected it. They stay, and it starts none of them any more: %s\n",
			strings.Join(made.Listeners, ", "))
	}
	if made.SecretName != "" && len(made.SharedWith) == 0 {
		fmt.Fprintf(out, "Nothing else uses its secret: triphammer secrets delete %s\n", made.SecretName)
	}
}
