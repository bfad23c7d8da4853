package client

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func subjectsCommand() *cobra.Command {
	var span timespan
	var text string
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List what events are about, the newest first", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			query := url.Values{}
			if text != "" {
				query.Set("text", text)
			}
			if err := span.query(query, "since", ""); err != nil {
				return err
			}
			all, err := Collect[api.Subject](c.Context(), cl, "/subjects", query, limit)
			if err != nil {
				return err
			}
			return term.EmitOf(c, all, func(s api.Subject) string { return s.Factory }, func(s api.Subject) string { return s.Subject },
				[]string{"SUBJECT", "NEWEST", "DELIVERIES", "RUNS", "ACTIVE", "COST"}, func(s api.Subject) term.Cells {
					return term.Cells{s.Subject, s.NewestAt, s.Deliveries, s.Runs, s.Active, dollars(s.CostUSD)}
				})
		}),
	}
	list.Flags().StringVar(&text, "text", "", "those whose name has this text, in any case")
	span.sinceFlag(list)
	term.LimitFlag(list, &limit, 20)
	show := &cobra.Command{
		Use: "show SUBJECT", Short: "Show everything about a subject: deliveries, runs, pull requests, answers, cost", Args: Exactly("SUBJECT"),
		Example: "  triphammer subjects show 'github:acme/app#12'",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var story api.SubjectStory
			if err := cl.Get(c.Context(), "/subjects/story?"+url.Values{"subject": {args[0]}}.Encode(), &story); err != nil {
				return err
			}
			return term.Emit(c, story, []string{story.Subject}, func(w io.Writer) error { return printStory(w, story) })
		}),
	}
	term.OutputFlag(list)
	term.OutputFlag(show)
	for _, c := range []*cobra.Command{list, show} {
		ClientFlags(c)
	}
	return Noun("subjects", "What events are about: issues, pull requests, threads, alerts", list, show)
}

func dollars(usd float64) string {
	return fmt.Sprintf("$%.2f", usd)
}

// printStory prints what came of a subject, the oldest first, after what needs a person.
func printStory(w io.Writer, s api.SubjectStory) error {
	fmt.Fprintln(w, s.Subject)
	for _, in := range s.Factories {
		fmt.Fprintf(w, "in %s: %s, %s, %d of them waiting or at work, %s, %s\n", in.Factory, terms.Counted(in.Deliveries, "delivery"),
			terms.Counted(in.Runs, "run"), in.Active, terms.Counted(in.Tokens, "token"), dollars(in.CostUSD))
	}
	t := term.Table{Header: []string{"AT", "WHAT", "ID", "STATE", "COST", "DETAIL"}}
	for _, c := range s.Story {
		switch {
		case c.Delivery != nil:
			t.Add(c.At, "delivery", c.Delivery.ID, OutcomeText(*c.Delivery), "", term.Prose("to "+c.Delivery.Webhook))
		case c.Run != nil:
			r, cost, detail := c.Run, "", c.Run.StatusMessage
			if r.Usage != nil {
				cost = dollars(r.Usage.InferenceCostUSD)
			}
			if (r.State == "QUEUED" || r.State == "BLOCKED") && len(r.Belt) > 0 {
				_, detail, _ = strings.Cut(r.Belt[0].Detail, " UTC: ")
			}
			t.Add(c.At, "run", r.RunID, r.State, cost, term.Prose(term.Joined(": ", r.Automation, detail)))
		case c.PullRequest != nil:
			t.Add(c.At, "pull request", c.PullRequest.RunID, "", "", term.Prose(c.PullRequest.URL))
		case c.Answer != nil:
			if c.Answer.Status == "failed" {
				fmt.Fprintf(w, "%s: %s\n", c.Answer.RunID, c.Answer.Detail)
			}
			t.Add(c.At, "answer", c.Answer.RunID, c.Answer.Status, "", term.Prose(c.Answer.Kind+": "+c.Answer.Detail))
		case c.Output != nil:
			if c.Output.Status == "failed" {
				fmt.Fprintf(w, "%s: %s: %s\n", c.Output.RunID, c.Output.Kind, c.Output.Detail)
			}
			t.Add(c.At, "output", c.Output.RunID, c.Output.Status, "", term.Prose(term.Joined(": ", c.Output.Kind, term.Joined(" ", c.Output.Text, c.Output.URL, c.Output.Detail))))
		}
	}
	fmt.Fprintln(w)
	if err := t.Write(w); err != nil {
		return err
	}
	if s.Truncated {
		fmt.Fprintln(w, "\nOnly the newest are shown: runs list and deliveries list take --subject.")
	}
	return nil
}
