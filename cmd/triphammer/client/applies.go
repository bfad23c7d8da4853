package client

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

func appliesCommand() *cobra.Command {
	var limit int
	var span timespan
	list := &cobra.Command{
		Use: "list", Short: "List applies, newest first", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			query := make(url.Values)
			if err := span.query(query, "since", "until"); err != nil {
				return err
			}
			all, err := Collect[api.Apply](c.Context(), cl, "/applies", query, limit)
			if err != nil {
				return err
			}
			return term.EmitOf(c, all, func(a api.Apply) string { return a.Factory }, func(a api.Apply) string { return a.ID },
				[]string{"ID", "AT", "COMMIT", "OUTCOME", "TRIGGER", "SUBJECT"}, func(a api.Apply) term.Cells {
					return term.Cells{a.ID, a.FinishedAt, term.ShortHash(a.Commit), a.Outcome, a.Trigger, term.Prose(a.Subject)}
				})
		}),
	}
	span.flags(list)
	term.LimitFlag(list, &limit, 20)
	show := &cobra.Command{
		Use: "show ID", Short: "Show an apply with its plan and findings", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var a api.Apply
			if err := cl.Get(c.Context(), "/applies/"+url.PathEscape(args[0]), &a); err != nil {
				return err
			}
			return term.Emit(c, a, []string{a.ID}, func(w io.Writer) error { return printApply(w, a) })
		}),
	}
	for _, c := range []*cobra.Command{list, show} {
		term.OutputFlag(c)
		ClientFlags(c)
	}
	return Noun("applies", "What was applied, refused or failed", list, show)
}

// auditFilters are the filters of the audit log.
var auditFilters = []string{"actor", "action", "object"}

func auditCommand() *cobra.Command {
	var limit int
	var span timespan
	list := &cobra.Command{
		Use: "list", Short: "List changes of state: who, what, when, from where", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			query := make(url.Values)
			for _, name := range auditFilters {
				if value, _ := c.Flags().GetString(name); value != "" {
					query.Set(name, value)
				}
			}
			if err := span.query(query, "since", "until"); err != nil {
				return err
			}
			all, err := Collect[api.AuditEntry](c.Context(), cl, "/audit", query, limit)
			if err != nil {
				return err
			}
			return term.EmitList(c, all, func(e api.AuditEntry) string { return e.ID },
				[]string{"AT", "WHO", "WHAT", "OBJECT", "DETAILS", "FROM"}, func(e api.AuditEntry) term.Cells {
					return term.Cells{e.At, term.Prose(e.Actor), e.Action, e.Object, term.Prose(e.Details), e.From}
				})
		}),
	}
	term.LimitFlag(list, &limit, 20)
	for _, name := range auditFilters {
		list.Flags().String(name, "", "only entries with this in their "+name)
	}
	span.flags(list)
	term.OutputFlag(list)
	ClientFlags(list)
	return Noun("audit", "The audit log", list)
}

func authCommand() *cobra.Command {
	var req api.CreateLoginLink
	login := &cobra.Command{
		Use: "login", Short: "Print a link that opens the pages once", Args: cobra.NoArgs,
		Long: `Print a link that signs somebody in to the pages once, within 10 minutes: you, with the role of your key, or whom you
name. A viewer reads everything; an operator also starts, cancels and replays, pauses, applies and pins; a manager does
everything. On the server's own machine you are a manager.`,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error {
			var link api.LoginLink
			if err := cl.Call(c.Context(), http.MethodPost, "/auth/links", req, &link); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "This link signs %s in to the pages once, as %s, until %s:\n", link.Name, link.Role, term.When(c.ErrOrStderr(), link.ExpiresAt))
			_, err := fmt.Fprintln(c.OutOrStdout(), link.URL)
			return err
		}),
	}
	login.Flags().StringVar(&req.Role, "role", "", "viewer, operator or manager (default: what your key may)")
	login.Flags().StringVar(&req.To, "to", "", "path of the page that it opens, such as /runs (default: the first page)")
	login.Flags().StringVar(&req.Name, "name", "", "who signs in with it (default: you)")
	var everybody bool
	logout := &cobra.Command{
		Use: "logout --all", Short: "Sign everybody out of the pages", Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if !everybody {
				return exit.With(exit.Usage, "this signs everybody out: give --all")
			}
			return nil
		},
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var ended api.Ended
			err := cl.Call(c.Context(), http.MethodDelete, "/auth/sessions", nil, &ended)
			if err == nil {
				fmt.Fprintf(c.ErrOrStderr(), "Sessions ended: %d, unused links: %d\n", ended.Sessions, ended.LoginLinks)
			}
			return err
		}),
	}
	logout.Flags().BoolVar(&everybody, "all", false, "every session and every unused link")
	ClientFlags(login)
	ClientFlags(logout)
	return Noun("auth", "Who you are, and signing in to the pages", login, logout, whoamiCommand(), sessionsCommand())
}

func sessionsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List who is signed in to the pages", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.Session](c.Context(), cl, "/auth/sessions", url.Values{}, 0)
			if err != nil {
				return err
			}
			return term.EmitList(c, all, func(n api.Session) string { return n.ID },
				[]string{"WHO", "ROLE", "VIA", "SINCE", "LAST SEEN", "ENDS", "FROM", "BROWSER", "ID"}, func(n api.Session) term.Cells {
					return term.Cells{n.Name, n.Role, n.Via, n.CreatedAt, n.SeenAt, n.ExpiresAt, n.From, term.Prose(n.Browser), n.ID}
				})
		}),
	}
	term.OutputFlag(list)
	end := &cobra.Command{
		Use: "end ID", Short: "Sign somebody out of the pages at once", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var n api.Session
			err := cl.Call(c.Context(), http.MethodDelete, "/auth/sessions/"+url.PathEscape(args[0]), nil, &n)
			if err == nil {
				fmt.Fprintf(c.ErrOrStderr(), "%s (%s) is signed out of this session.\n", n.Name, n.Role)
			}
			return err
		}),
	}
	ClientFlags(list)
	ClientFlags(end)
	return Noun("sessions", "Who is signed in to the pages", list, end)
}
