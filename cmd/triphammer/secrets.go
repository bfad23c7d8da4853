package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/server/api"
)

func secretsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List managed secrets: names, generations, who uses them", Args: cobra.NoArgs,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			all, err := collect[api.Secret](c.Context(), cl, "/secrets", url.Values{}, 0)
			if err != nil {
				return err
			}
			return emitList(c, all, func(s api.Secret) string { return s.Name },
				[]string{"NAME", "GENERATION", "SET", "SOURCE", "USED BY", "NOTE"}, func(s api.Secret) cells {
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
					return cells{s.Name, fmt.Sprint(s.Generation), s.SetAt, prose(s.Source), prose(strings.Join(uses, ", ")), prose(note)}
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
	all := append([]*cobra.Command{setSecretCommand(), list, remove}, pendingSecretCommands()...)
	for _, c := range all {
		clientFlags(c)
	}
	return noun("secrets", "Managed secrets", append(all, resealCommand())...)
}

func setSecretCommand() *cobra.Command {
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Give a managed secret a new value, read from standard input",
		Long: `Give a managed secret a new value. It is read from standard input (one newline at its end is dropped) and never comes
out again. A webhook uses it from the next apply on: a new commit, or triphammer apply. A data directory that is missing
is made, and with --store (or TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE) the tables of the database, too.`,
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), args[0])
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
				fmt.Fprintln(c.ErrOrStderr(), cl.nextApply())
			}
			if s.Warning != "" {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", s.Warning)
			}
			return nil
		},
	}
	storeFlags(set.Flags(), new(string), new(string))
	return set
}

// pendingSecretCommands are about the secrets that senders gave in their handshakes.
func pendingSecretCommands() []*cobra.Command {
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
				[]string{"ID", "WEBHOOK", "SECRET", "RECEIVED", "FROM"}, func(p api.PendingSecret) cells {
					return cells{p.ID, p.Webhook, p.SecretName, p.ReceivedAt, p.From}
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
			_, err := fmt.Fprintf(c.ErrOrStderr(), "%s: generation %d is set\n%s\n", s.Name, s.Generation, cl.nextApply())
			return err
		}),
	}
	dismiss := &cobra.Command{
		Use: "dismiss ID", Short: "Forget a pending secret", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			return cl.call(c.Context(), http.MethodDelete, "/pending-secrets/"+url.PathEscape(args[0]), nil, nil)
		}),
	}
	return []*cobra.Command{pending, confirm, dismiss}
}

func resealCommand() *cobra.Command {
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
			return here.Reseal(c, dir)
		},
	}
	reseal.Flags().StringVar(&dir, "data", "", "data directory")
	return reseal
}

// maxInput is how many bytes are read as a secret. The server accepts fewer.
const maxInput = 1 << 20

// readSecret reads a secret value. From a terminal it reads without echo. Otherwise it
// reads all of standard input, except one newline at the end (SPEC 13.6).
func readSecret(ctx context.Context, in io.Reader, prompt io.Writer, name string) (string, error) {
	if f, ok := in.(*os.File); ok && terminalOf(f) != nil {
		fmt.Fprintf(prompt, "Value of %s: ", name)
		value, err := readUnseen(ctx, int(f.Fd()))
		fmt.Fprintln(prompt)
		return value, err
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
