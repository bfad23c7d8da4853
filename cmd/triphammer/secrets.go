package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func secretsCommand() *cobra.Command {
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Give a managed secret a new value, read from standard input",
		Long: `Give a managed secret a new value. It is read from standard input (one newline at its end is dropped) and never comes
out again. A webhook uses it from the next apply on: a new commit, or triphammer apply. A data directory that is missing
is made.`,
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := readSecret(c.InOrStdin(), c.ErrOrStderr(), args[0])
			if err != nil {
				return err
			}
			cl, err := connectOrMake(c)
			if err != nil {
				return err
			}
			defer cl.close()
			var s api.Secret
			if err := cl.call(c.Context(), http.MethodPut, "/secrets/"+url.PathEscape(args[0]), api.SetSecret{Value: value}, &s); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s: generation %d is set\n", s.Name, s.Generation)
			if s.Pending {
				fmt.Fprintln(c.ErrOrStderr(), "The webhooks that use it take it at the next apply: triphammer apply")
			}
			if s.Warning != "" {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", s.Warning)
			}
			return nil
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List managed secrets: names, generations, who uses them", Args: cobra.NoArgs,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			all, err := collect[api.Secret](c.Context(), cl, "/secrets", url.Values{}, 0)
			if err != nil {
				return err
			}
			return emitList(c, all, func(s api.Secret) string { return s.Name },
				[]string{"NAME", "GENERATION", "SET", "SOURCE", "USED BY", ""}, func(s api.Secret) []string {
					var uses []string
					several := slices.ContainsFunc(s.UsedBy, func(u api.SecretUse) bool { return u.Factory != s.UsedBy[0].Factory })
					for _, u := range s.UsedBy {
						if several {
							u.Name = u.Factory + "/" + u.Name
						}
						uses = append(uses, u.Kind+" "+u.Name)
					}
					note := ""
					if s.Pending {
						note = "newer value waits for the next apply"
					}
					return []string{s.Name, fmt.Sprint(s.Generation), stamp(s.SetAt), s.Source, strings.Join(uses, ", "), note}
				})
		}),
	}
	outputFlag(list)
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Delete a secret that nothing uses", Args: exactly("NAME"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			return cl.call(c.Context(), http.MethodDelete, "/secrets/"+url.PathEscape(args[0]), nil, nil)
		}),
	}
	pending := &cobra.Command{
		Use: "pending", Short: "List secrets that senders gave in their handshakes",
		Long: `List secrets that senders gave in their handshakes (asana, notion): when, from where, for which webhook; never the values.
Whoever knows the URL could have sent one. If it came when you set the sender up, confirm it.`,
		Args: cobra.NoArgs,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			all, err := collect[api.PendingSecret](c.Context(), cl, "/pending-secrets", url.Values{}, 0)
			if err != nil {
				return err
			}
			return emitList(c, all, func(p api.PendingSecret) string { return p.ID },
				[]string{"ID", "WEBHOOK", "SECRET", "RECEIVED", "FROM"}, func(p api.PendingSecret) []string {
					return []string{p.ID, p.Webhook, p.SecretName, stamp(p.ReceivedAt), p.From}
				})
		}),
	}
	outputFlag(pending)
	confirm := &cobra.Command{
		Use: "confirm ID", Short: "Make a pending secret the managed one", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			var s api.Secret
			if err := cl.call(c.Context(), http.MethodPost, "/pending-secrets/"+url.PathEscape(args[0])+"/confirm", nil, &s); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.ErrOrStderr(), "%s: generation %d is set\nThe webhooks that use it take it at the next apply: triphammer apply\n",
				s.Name, s.Generation)
			return err
		}),
	}
	dismiss := &cobra.Command{
		Use: "dismiss ID", Short: "Forget a pending secret", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			return cl.call(c.Context(), http.MethodDelete, "/pending-secrets/"+url.PathEscape(args[0]), nil, nil)
		}),
	}
	all := []*cobra.Command{set, list, remove, pending, confirm, dismiss}
	for _, c := range all {
		clientFlags(c)
	}
	var dir string
	reseal := &cobra.Command{
		Use: "reseal", Short: "Replace the key that seals the secrets", Args: cobra.NoArgs,
		Long: `Make a new sealing key and seal every secret with it. No server may be running. The key file (DIR/key, or what
TRIPHAMMER_KEY_FILE names) is replaced; backups of the database from before need the old key: keep a copy of it for
as long as you keep them. A run of this that is cut off is completed, or has changed nothing, when the data
directory is opened next.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnvironment(c.Flags(), nil, "data"); err != nil {
				return err
			}
			return resealSecrets(c, dir)
		},
	}
	reseal.Flags().StringVar(&dir, "data", "", "data directory")
	return noun("secrets", "Managed secrets", append(all, reseal)...)
}

func resealSecrets(c *cobra.Command, dir string) error {
	if dir == "" {
		return exitWith(exitUsage, "which data directory? Give --data DIR (or TRIPHAMMER_DATA)")
	}
	in, err := openInstance(c.Context(), dir, instanceOptions{impatient: true})
	if errors.Is(err, errLocked) {
		return exitWith(exitConflict, "a server is running on %s: stop it first", dir)
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.close() }()
	keyFile := keyFileOf(in.dir)
	key, err := secret.CreateNextKey(keyFile)
	if err != nil {
		return exitWith(exitUsage, "making the new key: %w", err)
	}
	count, err := in.store.Reseal(c.Context(), key)
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if err := secret.TakeNextKey(keyFile); err != nil {
		return exitWith(exitUsage, "the secrets are sealed with the key in %s, which could not be put in the place of %s: %w",
			secret.NextKeyFile(keyFile), keyFile, err)
	}
	err = in.store.Audit(c.Context(), store.AuditEntry{Actor: "local " + userName(), Action: "secret.reseal", Object: "all", Origin: "local"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%d values are sealed with the new key in %s\n", count, keyFile)
	return err
}

var variablePrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secretSources are the sources of managed secrets besides the store.
func secretSources(dir, prefix string) ([]secret.Source, error) {
	var all []secret.Source
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, exitWith(exitUsage, "--secrets-dir %s is no folder that can be read", dir)
		}
		all = append(all, secret.Dir(dir))
	}
	if prefix != "" && !variablePrefix.MatchString(prefix) {
		return nil, exitWith(exitUsage, "--secrets-env %q begins no variable's name: letters, digits and _, such as HAMMER_SECRET_", prefix)
	}
	if prefix != "" {
		all = append(all, secret.Environment(prefix))
	}
	return all, nil
}

// maxInput is how many bytes are read as a secret. The server accepts fewer.
const maxInput = 1 << 20

// readSecret reads a secret value. From a terminal it reads without echo. Otherwise it
// reads all of standard input, except one newline at the end (SPEC 13.6).
func readSecret(in io.Reader, prompt io.Writer, name string) (string, error) {
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(prompt, "Value of %s: ", name)
		value, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(prompt)
		return string(value), err
	}
	value, err := io.ReadAll(io.LimitReader(bufio.NewReader(in), maxInput))
	if err != nil {
		return "", exitWith(exitUsage, "reading the value: %w", err)
	}
	return dropNewline(string(value)), nil
}

// dropNewline drops the newline at the end that an editor or echo adds.
func dropNewline(s string) string {
	if cut, ok := strings.CutSuffix(s, "\r\n"); ok {
		return cut
	}
	return strings.TrimSuffix(s, "\n")
}
