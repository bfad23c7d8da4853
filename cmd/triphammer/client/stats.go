package client

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/terms"
)

func statsCommand() *cobra.Command {
	var since, factory string
	c := &cobra.Command{
		Use: "stats", Short: "Count deliveries, runs and their cost", Args: cobra.NoArgs,
		Long: `Count the deliveries of a time by what became of them, and the runs that ended in it by state, with their cost: in all, by the
hour or the day, by webhook and by automation. Then come the models, with what the gateways of runs counted of them; -o json has that
by automation, model and day.`,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			query := url.Values{"since": {inHours(since)}, "wait": {"true"}}
			if factory != "" {
				query.Set("factory", factory)
			}
			var s api.Stats
			if err := cl.Get(c.Context(), "/stats?"+query.Encode(), &s); err != nil {
				return err
			}
			return term.Emit(c, s, nil, func(w io.Writer) error { return printStats(w, s) })
		}),
	}
	c.Flags().StringVar(&since, "since", "24h", "a duration such as 24h or 7d, or a time in RFC 3339, of the last 30 days")
	c.Flags().StringVar(&factory, "factory", "", "of one factory")
	ClientFlags(c)
	term.OutputFlag(c)
	return c
}

func printStats(w io.Writer, s api.Stats) error {
	t := s.Total
	fmt.Fprintf(w, "since %s: %s; %d of them started %s\n", term.When(w, s.Since), terms.Counted(t.Deliveries, "delivery"), t.Wanted, terms.Counted(t.Started, "run"))
	var left []string
	for _, stage := range terms.Stages {
		if n := t.Stopped[stage]; n > 0 {
			left = append(left, fmt.Sprintf("%d at %s", n, stage))
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "left the belt: %s\n", strings.Join(left, ", "))
	}
	fmt.Fprintf(w, "runs that ended: %s, %s\n", endedRuns(t.Runs), event.USD(t.CostUSD))
	if !s.Complete {
		fmt.Fprintln(w, "not everything is counted yet")
	}
	if len(s.Webhooks) > 0 {
		part := term.Table{List: true, Header: []string{"WEBHOOK", "DELIVERIES", "STARTED A RUN", "REFUSED"}}
		for _, h := range s.Webhooks {
			refused := int64(0)
			for _, n := range h.Refused {
				refused += n
			}
			part.Add(h.Factory+"/"+h.Webhook, h.Deliveries, h.Wanted, refused)
		}
		if err := part.After(w); err != nil {
			return err
		}
	}
	if len(s.Automations) > 0 {
		part := term.Table{List: true, Header: []string{"AUTOMATION", "RUNS", "COST", "TOKENS"}}
		for _, a := range s.Automations {
			part.Add(a.Factory+"/"+a.Automation, endedRuns(a.Runs), event.USD(a.CostUSD), a.Tokens)
		}
		if err := part.After(w); err != nil {
			return err
		}
	}
	if len(s.Models) > 0 {
		part := term.Table{List: true, Header: []string{"MODEL", "REQUESTS", "WITHOUT ANSWER", "FIRST TOKEN", "TOKENS", "COST"}}
		for _, m := range api.ByModel(s.Models) {
			part.Add(m.Model, m.Requests, m.Errors, time.Duration(m.FirstTokenMS)*time.Millisecond, m.Tokens(), event.USD(m.CostUSD))
		}
		if err := part.After(w); err != nil {
			return err
		}
	}
	part := term.Table{List: true, Wide: true, Header: []string{strings.ToUpper(s.Step), "DELIVERIES", "STARTED A RUN", "RUNS ENDED", "COST"}}
	for _, at := range s.Times {
		ended := int64(0)
		for _, n := range at.Runs {
			ended += n
		}
		if at.Deliveries > 0 || ended > 0 {
			part.Add(at.At, at.Deliveries, at.Wanted, ended, event.USD(at.CostUSD))
		}
	}
	return part.After(w)
}

// endedRuns says how many runs ended in which state.
func endedRuns(by map[string]int64) string {
	var parts []string
	for _, state := range []terms.RunState{terms.Succeeded, terms.FailedRun, terms.Cancelled} {
		if n := by[string(state)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
