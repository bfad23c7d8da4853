package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func inboxCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List everything that waits for a person", Args: cobra.NoArgs,
		Long: `List everything that waits for a person: runs that wait to start, what agents asked for and waits to be done, answers and outputs that were given up, what is paused, and commits that do not serve.
What ends first comes first.`,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var all struct {
				Items []api.InboxItem `json:"items"`
			}
			if err := cl.Get(c.Context(), "/inbox", &all); err != nil {
				return err
			}
			return term.EmitOf(c, all.Items, func(i api.InboxItem) string { return i.Factory }, func(i api.InboxItem) string { return i.RunID },
				[]string{"RUN", "KIND", "SINCE", "UNTIL", "FROM", "WHAT"}, func(i api.InboxItem) term.Cells {
					return term.Cells{i.RunID, i.Kind, i.Since, i.EndsAt, term.Prose(i.Person), term.Prose(asks(i))}
				})
		}),
	}
	term.OutputFlag(list)
	all := []*cobra.Command{
		list,
		decideCommand("approve", "Approve what waits of a run", `Approve what waits of a run: its start, or what its agent asked for, all of it or one output. The command prints what it approves.
It is refused if that has changed since it was read, and if somebody has decided before.`),
		decideCommand("decline", "Decline what waits of a run", "Decline what waits of a run: a run that waits to start is cancelled, and what an agent asked for is discarded, all of it or one output."),
	}
	for _, c := range all {
		ClientFlags(c)
	}
	inbox := Noun("inbox", "What waits for a person, and its approval", all...)
	inbox.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return withoutCommand(c, args)
		}
		return list.RunE(c, nil)
	}
	term.OutputFlag(inbox)
	ClientFlags(inbox)
	return inbox
}

// asks is what an item asks of a person, in one line.
func asks(i api.InboxItem) string {
	text := term.Joined(": ", i.Title, i.Text)
	parts := terms.Each(i.Outputs, func(o api.Output) string { return term.Joined(" ", fmt.Sprintf("%d. %s", o.Number, o.Kind), o.Text) })
	return term.Joined(": ", text, strings.Join(parts, "; "))
}

// printRequest prints what the text of an output leaves out: an approval is of all that the agent asks for (SPEC 26.1).
// A field that a part of the text only looks like is printed.
func printRequest(w io.Writer, o api.Output) {
	var fields map[string]any
	if err := json.Unmarshal(o.Request, &fields); err != nil {
		return // a server sends no other
	}
	delete(fields, "kind")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, is := fields[name].(string)
		if !is {
			data, _ := json.Marshal(fields[name]) // what was read always encodes
			text = string(data)
		}
		if text == o.Text || (name == "title" || name == "body") && strings.HasPrefix(o.Text, text+" (") || name == "head" && strings.HasSuffix(o.Text, " ("+text+")") {
			continue
		}
		fmt.Fprintf(w, "  %s: %s\n", name, strings.ReplaceAll(text, "\n", "\n    "))
	}
}

// printAdded prints what the automation adds to an output, and where it is done (SPEC 26.4).
func printAdded(w io.Writer, o api.Output) {
	var bounds map[string]json.RawMessage
	_ = json.Unmarshal(o.Bounds, &bounds) // without bounds, the automation adds nothing
	for _, name := range []string{"base", "draft", "labels", "titlePrefix"} {
		if added := bounds[name]; added != nil {
			fmt.Fprintf(w, "  %s, by the automation: %s\n", name, added)
		}
	}
	if o.Where != "" {
		fmt.Fprintf(w, "  where: %s\n", term.OneLine.Replace(o.Where))
	}
}

func decideCommand(decision, short, long string) *cobra.Command {
	var reason, shown string
	var number int64
	c := &cobra.Command{
		Use: decision + " ID", Short: short, Long: long, Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			at := "/agent/runs/" + url.PathEscape(args[0])
			var r api.Run
			if err := cl.Get(c.Context(), at, &r); err != nil {
				return err
			}
			asked, what := api.Decide{Decision: decision, Shown: r.Undecided, Output: number, Reason: reason}, new(strings.Builder)
			if r.State == "BLOCKED" {
				fmt.Fprintf(what, "%sd: %s\n", decision, term.OneLine.Replace(term.Joined(", for ", "the start of "+r.Title, r.Person)))
			}
			for _, o := range r.Outputs {
				if o.Approval == nil || o.Approval.Decision != "" || number != 0 && number != o.Number {
					continue
				}
				fmt.Fprintf(what, "%sd: %s\n", decision, term.OneLine.Replace(term.Joined(": ", fmt.Sprintf("output %d, %s", o.Number, o.Kind), o.Text)))
				printRequest(what, o)
				if number != 0 {
					asked.Shown = o.Approval.Shown
				}
			}
			if c.Flags().Changed("output") && number < 1 {
				return exit.With(exit.Usage, "--output is the number of an output, from 1: triphammer runs show %s has them", args[0])
			}
			if shown != "" {
				asked.Shown = shown
			}
			asked.Shown = cmp.Or(asked.Shown, "nothing") // the server says who has decided, or that nothing waits
			var done api.Decided
			if err := cl.Call(c.Context(), http.MethodPost, at+"/decision", asked, &done); err != nil {
				return err
			}
			_, err := io.WriteString(term.Printable{W: c.OutOrStdout()}, what.String())
			return err
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why, in one line")
	c.Flags().Int64Var(&number, "output", 0, "only the output of this number")
	c.Flags().StringVar(&shown, "shown", "", "the hash or the code of what was shown to you, instead of what waits now")
	return c
}
