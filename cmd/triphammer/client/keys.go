package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

func keysCommand() *cobra.Command {
	var req api.CreateKey
	var expires time.Duration
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key; it is shown once",
		Long: `Make an API key. It is printed once, and stored as a hash alone. A personal key's runs belong to its owner; one made
with --agent is for an agent, whose runs they are. A data directory that is missing is made, and with --store (or
TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE) the tables of the database, too.`,
		Args: Exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			req.Name = args[0]
			return createKey(c, req, expires)
		},
	}
	f := create.Flags()
	settings.StoreFlags(f, new(string), new(string))
	f.StringSliceVar(&req.Scopes, "scope", []string{"runs"}, "runs (create, read and cancel runs), read (read everything), operate (runs and read, and tests, replay, pause, apply, pin), manage (everything)")
	f.StringVar(&req.Agent, "agent", "", "the agent whose key this is")
	f.StringVar(&req.Owner, "owner", "", "the person whose key this is (default: you)")
	f.StringVar(&req.Factory, "factory", "", "the only factory that it reaches")
	f.DurationVar(&expires, "expires", 0, "how long it works, such as 30d (default: until it is revoked)")
	list := &cobra.Command{
		Use: "list", Short: "List API keys", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.Key](c.Context(), cl, "/keys", url.Values{}, 0)
			if err != nil {
				return err
			}
			return term.EmitList(c, all, func(k api.Key) string { return k.ID },
				[]string{"NAME", "KIND", "OWNER", "SCOPES", "FACTORY", "EXPIRES", "REVOKED", "LAST USED", "ID"}, func(k api.Key) term.Cells {
					return term.Cells{
						k.Name, k.Kind, term.Prose(k.Owner), term.Prose(strings.Join(k.Scopes, ",")), k.Factory, k.ExpiresAt, k.RevokedAt, k.LastUsedAt, k.ID,
					}
				})
		}),
	}
	term.OutputFlag(list)
	revoke := &cobra.Command{
		Use: "revoke NAME|ID", Short: "End an API key at once",
		Long: `End an API key at once, and what was made with it: its open streams, the sessions of the pages and the links that
nobody used. Its schedules pause until somebody resumes them. Runs go on, and keys that it made stay: see "triphammer
audit list".`,
		Args: Exactly("NAME|ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var k api.Key
			err := cl.Call(c.Context(), http.MethodDelete, "/keys/"+url.PathEscape(args[0]), nil, &k)
			if err == nil && k.Ended != nil && *k.Ended != (api.Ended{}) {
				fmt.Fprintf(c.ErrOrStderr(), "With it, sessions ended: %d, unused links: %d, schedules paused: %d\n",
					k.Ended.Sessions, k.Ended.LoginLinks, k.Ended.Schedules)
			}
			return err
		}),
	}
	for _, c := range []*cobra.Command{create, list, revoke} {
		ClientFlags(c)
	}
	return Noun("keys", "API keys", create, list, revoke)
}

func createKey(c *cobra.Command, req api.CreateKey, expires time.Duration) error {
	cl, err := connectOrMake(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if c.Flags().Changed("expires") && expires < time.Second {
		return exit.With(exit.Usage, "--expires %s: a key works for at least a second", expires)
	}
	req.ExpiresSeconds = int64(expires.Seconds())
	var k api.Key
	if err := cl.Call(c.Context(), http.MethodPost, "/keys", req, &k); err != nil {
		return err
	}
	if term.TerminalOf(c.OutOrStdout()) != nil {
		fmt.Fprintf(c.ErrOrStderr(), "Key %s (%s of %s, scopes %s). It is shown this once:\n", k.Name, k.Kind, k.Owner, strings.Join(k.Scopes, ","))
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), k.Key)
	return err
}
