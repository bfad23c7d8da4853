package client

import (
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// listing is how the entries of a noun are shown: as rows of a list, and each alone.
type listing[T api.Listed] struct {
	kind    string         // the noun in the singular
	path    string         // of the list in the API
	factory func(T) string // nil: they belong to no factory
	name    func(T) string
	header  []string // begins with the name
	row     func(io.Writer, T) term.Cells
}

func (l *listing[T]) all(c *cobra.Command, cl *Client) ([]T, error) {
	return Collect[T](c.Context(), cl, l.path, url.Values{}, 0)
}

// emit prints the entries as a list.
func (l *listing[T]) emit(c *cobra.Command, all []T) error {
	row := func(one T) term.Cells { return l.row(c.OutOrStdout(), one) }
	if l.factory == nil {
		return term.EmitList(c, all, l.name, l.header, row)
	}
	return term.EmitOf(c, all, l.factory, l.name, l.header, row)
}

// show is the command that shows the entry of a name. What a row of the list has is a line each.
func (l *listing[T]) show() *cobra.Command {
	what := articleOf(l.kind) + " " + l.kind
	c := &cobra.Command{
		Use: "show NAME", Short: "Show " + what, Args: Exactly("NAME"),
		Long: "Show " + what + ": what the list says of it. -o yaml has all that the server says.",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			all, err := l.all(c, cl)
			if err != nil {
				return err
			}
			var found []T
			var names []string
			for _, one := range all {
				names = append(names, l.name(one))
				if l.name(one) == args[0] {
					found = append(found, one)
				}
			}
			switch len(found) {
			case 0:
				return exit.With(exit.NotFound, "%s", api.NoneNamed(l.kind, args[0], names))
			case 1:
			default:
				return exit.With(exit.Usage, "several factories have the %s %s: say which with --factory", l.kind, args[0])
			}
			return term.Emit(c, found[0], args, func(w io.Writer) error {
				t := term.Table{Header: []string{l.kind, args[0]}}
				for i, cell := range l.row(w, found[0])[1:] {
					t.Add(strings.ToLower(l.header[i+1]), cell)
				}
				return t.Write(w)
			})
		}),
	}
	term.OutputFlag(c)
	ClientFlags(c)
	return c
}

// commands are list, with its short help, and show.
func (l *listing[T]) commands(short string) []*cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := l.all(c, cl)
			if err != nil {
				return err
			}
			return l.emit(c, all)
		}),
	}
	term.OutputFlag(list)
	ClientFlags(list)
	return []*cobra.Command{list, l.show()}
}
