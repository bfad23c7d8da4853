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
		Use: "show SUBJECT", Short: "Show everything about a subject: deliveries, runs, pull requests, cost", Args: Exactly("SUBJECT"),
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

// printStory prints what came of a subject, and then its runs and deliveries.
func printStory(w io.Writer, s api.SubjectStory) error {
	fmt.Fprintln(w, s.Subject)
	for _, in := range s.Factories {
		fmt.Fprintf(w, "in %s: %s, %s, %d of them waiting or at work, %s, %s\n", in.Factory, terms.Counted(in.Deliveries, "delivery"),
			terms.Counted(in.Runs, "run"), in.Active, terms.Counted(in.Tokens, "token"), dollars(in.CostUSD))
	}
	var tables []term.Table
	if len(s.PullRequests) > 0 {
		pulls := term.Table{Header: []string{"PULL REQUEST", "RUN"}}
		for _, p := range s.PullRequests {
			pulls.Add(p.URL, p.RunID)
		}
		tables = append(tables, pulls)
	}
	if len(s.Runs) > 0 {
		runs := term.Table{Header: []string{"RUN", "CREATED", "AUTOMATION", "STATE", "COST", "DETAIL"}}
		for _, r := range s.Runs {
			cost := ""
			if r.Usage != nil {
				cost = dollars(r.Usage.InferenceCostUSD)
			}
			runs.Add(r.RunID, r.CreatedAt, r.Automation, r.State, cost, term.Prose(r.StatusMessage))
		}
		tables = append(tables, runs)
	}
	if len(s.Deliveries) > 0 {
		deliveries := term.Table{Header: []string{"DELIVERY", "RECEIVED", "WEBHOOK", "OUTCOME", "RUNS"}}
		for _, d := range s.Deliveries {
			deliveries.Add(d.ID, d.ReceivedAt, d.Webhook, OutcomeText(d), strings.Join(d.Runs, " "))
		}
		tables = append(tables, deliveries)
	}
	for _, t := range tables {
		fmt.Fprintln(w)
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if s.Truncated {
		fmt.Fprintln(w, "\nOnly the newest are shown: runs list and deliveries list take --subject.")
	}
	return nil
}
