package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// factoriesCommand has the commands for the factories of a server.
func factoriesCommand() *cobra.Command {
	var req api.FactoryRequest
	list := &cobra.Command{
		Use: "list", Short: "List the factories, and where their repositories are", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var all api.List[api.FactoryStatus]
			if err := cl.Get(c.Context(), "/factories", &all); err != nil {
				return err
			}
			return term.EmitList(c, all.Entries, func(f api.FactoryStatus) string { return f.Name },
				[]string{"NAME", "STATE", "SERVES", "NEWEST", "HOSTED", "REPOSITORY", "BRANCH"}, func(f api.FactoryStatus) term.Cells {
					serves := ""
					if f.Applied != nil {
						serves = term.ShortHash(f.Applied.Commit)
					}
					return term.Cells{f.Name, f.State, serves, term.ShortHash(f.Head), term.YesNo(f.Hosted), term.Prose(f.Repository), f.Branch}
				})
		}),
	}
	show := &cobra.Command{
		Use: "show [NAME]", Short: "Show a factory", Args: cobra.MaximumNArgs(1),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			name, err := cl.named(c.Context(), args)
			if err != nil {
				return err
			}
			var f api.FactoryStatus
			if err := cl.Get(c.Context(), "/factories/"+url.PathEscape(name), &f); err != nil {
				return err
			}
			return term.Emit(c, f, []string{f.Name}, func(w io.Writer) error {
				printFactory(w, f)
				return nil
			})
		}),
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a factory whose repository lives on the server", Args: Exactly("NAME"),
		Long: `Make a factory whose repository lives on the server, and serve it from now on, also after restarts. It begins with a
commit that has a factory.yaml; with --empty it waits for a first push instead.`,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			req.Name = args[0]
			var f api.FactoryStatus
			if err := cl.Call(c.Context(), http.MethodPost, "/factories", req, &f); err != nil {
				return err
			}
			return term.Emit(c, f, []string{f.Name}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, `Made the factory %s. Next:

  triphammer definition put PATH…      # change its files
  git clone %s   # or with git; the password is an API key
`, f.Name, f.CloneURL)
				return err
			})
		}),
	}
	create.Flags().BoolVar(&req.Empty, "empty", false, "make no first commit: a first push will")
	log := &cobra.Command{
		Use: "log [NAME]", Short: "List the newest commits of a factory whose repository lives on the server", Args: cobra.MaximumNArgs(1),
		Long: `List the newest commits of a factory whose repository lives on the server, whether they were applied or not; "definition
history" has what was applied.`,
	}
	limit := 0
	term.LimitFlag(log, &limit, 20)
	log.RunE = WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
		name, err := cl.named(c.Context(), args)
		if err != nil {
			return err
		}
		limit = cmp.Or(limit, 500)
		var all api.List[api.FactoryCommit]
		if err := cl.Get(c.Context(), fmt.Sprintf("/factories/%s/log?limit=%d", url.PathEscape(name), limit), &all); err != nil {
			return err
		}
		return term.EmitList(c, all.Entries, func(f api.FactoryCommit) string { return f.Commit },
			[]string{"COMMIT", "AT", "AUTHOR", "SUBJECT"}, func(f api.FactoryCommit) term.Cells {
				return term.Cells{term.ShortHash(f.Commit), f.Time, term.Prose(f.Author), term.Prose(f.Subject)}
			})
	})
	for _, c := range []*cobra.Command{list, show, create, log} {
		ClientFlags(c)
		term.OutputFlag(c)
	}
	return Noun("factories", "The factories of a server, and those whose repositories live on it", list, show, create, log)
}

// named is the factory of an argument, of --factory, or the only one of the server.
func (cl *Client) named(ctx context.Context, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return cl.only(ctx)
}
