package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"triphammer/server/api"
	"triphammer/server/store"
)

func statsCommand() *cobra.Command {
	var since, factory string
	c := &cobra.Command{
		Use: "stats", Short: "Count deliveries, runs and their cost", Args: cobra.NoArgs,
		Long: `Count the deliveries of a time by what became of them, and the runs that ended in it by state, with their cost: in all, by the
hour or the day, by webhook and by automation.`,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			query := url.Values{"since": {since}, "wait": {"true"}}
			if factory != "" {
				query.Set("factory", factory)
			}
			var s api.Stats
			if err := cl.get(c.Context(), "/stats?"+query.Encode(), &s); err != nil {
				return err
			}
			return emit(c, s, nil, func(w io.Writer) error { return printStats(w, s) })
		}),
	}
	c.Flags().StringVar(&since, "since", "24h", "a duration such as 24h, or a time in RFC 3339, of the last 30 days")
	c.Flags().StringVar(&factory, "factory", "", "of one factory")
	clientFlags(c)
	outputFlag(c)
	return c
}

func printStats(w io.Writer, s api.Stats) error {
	t := s.Total
	fmt.Fprintf(w, "since %s: %s, of which %d started %s\n", stamp(s.Since), counted(int(t.Deliveries), "delivery", "deliveries"), t.Wanted, counted(int(t.Started), "run", "runs"))
	var left []string
	for _, stage := range store.Stages {
		if n := t.Stopped[stage]; n > 0 {
			left = append(left, fmt.Sprintf("%d at %s", n, stage))
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "left the belt: %s\n", strings.Join(left, ", "))
	}
	fmt.Fprintf(w, "runs that ended: %s, $%.2f\n", endedRuns(t.Runs), t.CostUSD)
	if !s.Complete {
		fmt.Fprintln(w, "not everything is counted yet")
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Webhooks) > 0 {
		fmt.Fprintln(columns, "\nWEBHOOK\tDELIVERIES\tSTARTED A RUN\tREFUSED")
		for _, h := range s.Webhooks {
			refused := int64(0)
			for _, n := range h.Refused {
				refused += n
			}
			fmt.Fprintf(columns, "%s/%s\t%d\t%d\t%d\n", h.Factory, h.Webhook, h.Deliveries, h.Wanted, refused)
		}
	}
	if len(s.Automations) > 0 {
		fmt.Fprintln(columns, "\nAUTOMATION\tRUNS\tCOST\tTOKENS")
		for _, a := range s.Automations {
			fmt.Fprintf(columns, "%s/%s\t%s\t$%.2f\t%d\n", a.Factory, a.Automation, endedRuns(a.Runs), a.CostUSD, a.Tokens)
		}
	}
	fmt.Fprintf(columns, "\n%s\tDELIVERIES\tSTARTED A RUN\tRUNS ENDED\tCOST\n", strings.ToUpper(s.Step))
	for _, at := range s.Times {
		ended := int64(0)
		for _, n := range at.Runs {
			ended += n
		}
		if at.Deliveries > 0 || ended > 0 {
			fmt.Fprintf(columns, "%s\t%d\t%d\t%d\t$%.2f\n", at.At.Format(time.DateTime)[:16], at.Deliveries, at.Wanted, ended, at.CostUSD)
		}
	}
	return columns.Flush()
}

// endedRuns says how many runs ended in which state.
func endedRuns(by map[string]int64) string {
	var parts []string
	for _, state := range []store.RunState{store.Succeeded, store.FailedRun, store.Cancelled} {
		if n := by[string(state)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
