package client

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

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// secrets are shown with who uses them, never with their values.
var secrets = listing[api.Secret]{
	kind:   "secret",
	path:   "/secrets",
	name:   func(s api.Secret) string { return s.Name },
	header: []string{"NAME", "GENERATION", "SET", "SOURCE", "USED BY", "NOTE"},
	row: func(_ io.Writer, s api.Secret) term.Cells {
		var uses []string
		several := slices.ContainsFunc(s.UsedBy, func(u api.SecretUse) bool { return u.Factory != s.UsedBy[0].Factory })
		for _, u := range s.UsedBy {
			if several {
				u.Name = u.Factory + "/" + u.Name
			}
			uses = append(uses, u.Kind+" "+u.Name)
		}
		var notes []string
		if app := s.GitHubApp; app != nil && app.Problem != "" {
			notes = append(notes, "GitHub App that cannot be used: "+app.Problem)
		} else if app != nil {
			notes = append(notes, fmt.Sprintf("GitHub App %d", app.ID))
		}
		if s.Pending {
			notes = append(notes, "newer value waits for the next apply")
		}
		return term.Cells{s.Name, fmt.Sprint(s.Generation), s.SetAt, term.Prose(s.Source), term.Prose(strings.Join(uses, ", ")), term.Prose(strings.Join(notes, "; "))}
	},
}

func secretsCommand() *cobra.Command {
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Delete a secret that nothing uses", Args: Exactly("NAME"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.Call(c.Context(), http.MethodDelete, "/secrets/"+url.PathEscape(args[0]), nil, nil)
		}),
	}
	all := append([]*cobra.Command{setSecretCommand(), remove}, pendingSecretCommands()...)
	for _, c := range all {
		ClientFlags(c)
	}
	all = append(all, secrets.commands("List managed secrets: names, generations, who uses them")...)
	return Noun("secrets", "Managed secrets", append(all, resealCommand())...)
}

func setSecretCommand() *cobra.Command {
	var app int64
	var keyFile, apiURL string
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Give a managed secret a new value, read from standard input",
		Long: `Give a managed secret a new value. It is read from standard input (one newline at its end is dropped) and never comes
out again. A webhook uses it from the next apply on: a new commit, or triphammer apply. A data directory that is missing
is made, and with --store (or TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE) the tables of the database, too.

With --github-app, the secret is a GitHub App: the server makes tokens with its key, for lookups and for the private
repositories of runs (docs/github.md).`,
		Args: Exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			var req api.SetSecret
			var err error
			if req.GitHubApp, err = newApp(c, app, keyFile, apiURL); err == nil && req.GitHubApp == nil {
				req.Value, err = readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), args[0])
			}
			if err != nil {
				return err
			}
			cl, err := connectOrMake(c)
			if err != nil {
				return err
			}
			defer cl.Close()
			var s api.Secret
			if err := cl.Call(c.Context(), http.MethodPut, "/secrets/"+url.PathEscape(args[0]), req, &s); err != nil {
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
	settings.StoreFlags(set.Flags(), new(string), new(string))
	set.Flags().Int64Var(&app, "github-app", 0, "App ID of a GitHub App, whose private key --key-file has")
	set.Flags().StringVar(&keyFile, "key-file", "", "file with the private key of the GitHub App")
	set.Flags().StringVar(&apiURL, "api-url", "", "API of the GitHub Enterprise Server that has the App, such as https://github.example.com/api/v3")
	return set
}

// newApp is the GitHub App of the flags; nil: they ask for none.
func newApp(c *cobra.Command, id int64, keyFile, apiURL string) (*api.NewGitHubApp, error) {
	if !c.Flags().Changed("github-app") {
		if keyFile != "" || apiURL != "" {
			return nil, exit.With(exit.Usage, "--key-file and --api-url are of a GitHub App: give its id, too (--github-app ID)")
		}
		return nil, nil
	}
	if keyFile == "" {
		return nil, exit.With(exit.Usage, "give the private key of the GitHub App, too: --key-file FILE")
	}
	f, err := os.Open(keyFile)
	if err != nil {
		return nil, exit.With(exit.Usage, "%w", err)
	}
	defer func() { _ = f.Close() }()
	key, err := io.ReadAll(io.LimitReader(f, MaxInput))
	if err != nil {
		return nil, exit.With(exit.Usage, "%w", err)
	}
	return &api.NewGitHubApp{ID: id, Key: string(key), APIURL: apiURL}, nil
}

// pendingSecretCommands are about the secrets that senders gave in their handshakes.
func pendingSecretCommands() []*cobra.Command {
	pending := &cobra.Command{
		Use: "pending", Short: "List secrets that senders gave in their handshakes",
		Long: `List secrets that senders gave in their handshakes (asana, notion): when, from where, for which webhook; never the values.
Whoever knows the URL could have sent one. If it came when you set the sender up, confirm it.`,
		Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.PendingSecret](c.Context(), cl, "/pending-secrets", url.Values{}, 0)
			if err != nil {
				return err
			}
			return term.EmitList(c, all, func(p api.PendingSecret) string { return p.ID },
				[]string{"ID", "WEBHOOK", "SECRET", "RECEIVED", "FROM"}, func(p api.PendingSecret) term.Cells {
					return term.Cells{p.ID, p.Webhook, p.SecretName, p.ReceivedAt, p.From}
				})
		}),
	}
	term.OutputFlag(pending)
	confirm := &cobra.Command{
		Use: "confirm ID", Short: "Make a pending secret the managed one", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var s api.Secret
			if err := cl.Call(c.Context(), http.MethodPost, "/pending-secrets/"+url.PathEscape(args[0])+"/confirm", nil, &s); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.ErrOrStderr(), "%s: generation %d is set\n%s\n", s.Name, s.Generation, cl.nextApply())
			return err
		}),
	}
	dismiss := &cobra.Command{
		Use: "dismiss ID", Short: "Forget a pending secret", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.Call(c.Context(), http.MethodDelete, "/pending-secrets/"+url.PathEscape(args[0]), nil, nil)
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
			if err := settings.FromEnvironment(c.Flags(), nil, "data"); err != nil {
				return err
			}
			return here.Reseal(c, dir)
		},
	}
	reseal.Flags().StringVar(&dir, "data", "", "data directory")
	return reseal
}

// MaxInput is how many bytes are read as a secret. The server accepts fewer.
const MaxInput = 1 << 20

// readSecret reads a secret value. From a terminal it reads without echo. Otherwise it
// reads all of standard input, except one newline at the end (SPEC 13.6).
func readSecret(ctx context.Context, in io.Reader, prompt io.Writer, name string) (string, error) {
	if f, ok := in.(*os.File); ok && term.TerminalOf(f) != nil {
		fmt.Fprintf(prompt, "Value of %s: ", name)
		value, err := term.ReadUnseen(ctx, int(f.Fd()))
		fmt.Fprintln(prompt)
		return value, err
	}
	value, err := io.ReadAll(io.LimitReader(bufio.NewReader(in), MaxInput))
	if err != nil {
		return "", exit.With(exit.Usage, "reading the value: %w", err)
	}
	return DropNewline(string(value)), nil
}

// DropNewline drops the newline at the end that an editor or echo adds.
func DropNewline(s string) string {
	if cut, ok := strings.CutSuffix(s, "\r\n"); ok {
		return cut
	}
	return strings.TrimSuffix(s, "\n")
}
