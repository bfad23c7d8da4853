package client

import (
	"cmp"
	"fmt"
	"io"
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

func deliveriesCommand() *cobra.Command {
	var selected selectOptions
	list := &cobra.Command{
		Use: "list", Short: "List deliveries, newest first", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error { return listDeliveries(c, cl, &selected) }),
	}
	selected.flags(list)
	selected.timespan.flags(list)
	list.Flags().StringVar(&selected.subject, "subject", "", "those that are about a subject")
	list.Flags().StringVar(&selected.event, "event", "", "those that report an event, by a part of its name, such as issue_labeled")
	list.Flags().StringVar(&selected.person, "person", "", "those that a person caused, as the sender names people")
	list.Flags().StringVar(&selected.automation, "automation", "", "those that an automation wanted, also if it started nothing")
	term.LimitFlag(list, &selected.limit, 20)
	show := &cobra.Command{
		Use: "show ID", Short: "Show a delivery and its belt: why it ran, or why not", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var d api.DeliveryDetail
			if err := cl.Get(c.Context(), "/deliveries/"+url.PathEscape(args[0]), &d); err != nil {
				return err
			}
			return term.Emit(c, d, []string{d.ID}, func(w io.Writer) error { return PrintDelivery(w, d) })
		}),
	}
	term.OutputFlag(list)
	term.OutputFlag(show)
	payload := &cobra.Command{
		Use: "payload ID", Short: "Write the stored body, byte for byte", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			body, err := cl.do(c.Context(), http.MethodGet, "/deliveries/"+url.PathEscape(args[0])+"/payload", nil)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(body)
			return err
		}),
	}
	var automation string
	explain := &cobra.Command{
		Use: "explain ID", Short: "Show every condition of every automation on a delivery", Args: Exactly("ID"),
		Long: `Show a delivery's belt, and for each automation that selects its webhook every condition of its payload filter: what was
wanted, and what came. The one that came nearest to a match is named.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var d api.DeliveryDetail
			if err := cl.Get(c.Context(), "/deliveries/"+url.PathEscape(args[0]), &d); err != nil {
				return err
			}
			if automation != "" {
				another := func(m api.Match) bool { return m.Automation != automation }
				d.Matches, d.Disabled = slices.DeleteFunc(d.Matches, another), slices.DeleteFunc(d.Disabled, another)
				if len(d.Matches)+len(d.Disabled) == 0 {
					return exit.With(exit.NotFound, "no automation %q selected webhook %s when %s came", automation, d.Webhook, d.ID)
				}
			}
			return term.Emit(c, d, []string{d.ID}, func(w io.Writer) error { return explainDelivery(w, d) })
		}),
	}
	explain.Flags().StringVar(&automation, "automation", "", "explain only this automation")
	term.OutputFlag(explain)
	replay := &cobra.Command{
		Use: "replay ID...", Short: "Start what matches stored deliveries now", Args: cobra.MinimumNArgs(1),
		Long: `Start what matches a stored delivery now, by the definitions that serve now: as a new delivery, linked to the old one.
Several are replayed in the order in which they are named, up to the first that fails.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var all []api.Replayed
			var names []string
			var failure error
			for _, id := range args {
				var r api.Replayed
				if failure = cl.Call(c.Context(), http.MethodPost, "/deliveries/"+url.PathEscape(id)+"/replay", nil, &r); failure != nil {
					break
				}
				all, names = append(all, r), append(names, r.DeliveryID)
			}
			var value any = all
			if len(args) == 1 && len(all) == 1 {
				value = all[0]
			}
			if len(all) == 0 {
				return failure
			}
			err := term.Emit(c, value, names, func(w io.Writer) error {
				for i, r := range all {
					fmt.Fprintf(w, "%s replays %s: %s %s\n", r.DeliveryID, args[i], terms.Counted(len(r.Runs), "run"), strings.Join(r.Runs, " "))
				}
				return nil
			})
			return cmp.Or(failure, err)
		}),
	}
	term.OutputFlag(replay)
	all := []*cobra.Command{list, show, explain, payload, replay, tailCommand(), exportCommand()}
	for _, c := range all {
		ClientFlags(c)
	}
	return Noun("deliveries", "The delivery log", all...)
}

// selectOptions select entries of the delivery log.
type selectOptions struct {
	timespan
	webhook, outcome, stopped, text, duplicateOf, replayOf, subject, event, person, automation string
	limit                                                                                      int
}

// flags are those of tail too, but for the times.
func (o *selectOptions) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.webhook, "webhook", "", "those of one webhook")
	c.Flags().StringVar(&o.outcome, "outcome", "", "accepted, duplicate, rejected_auth, rejected_invalid_json, rejected_too_large, or refused: any of the last three")
	c.Flags().StringVar(&o.stopped, "stopped", "", "those that left the belt at a stage: "+strings.Join(terms.Stages, ", ")+"; "+terms.Went+": those that started a run")
	c.Flags().StringVar(&o.text, "text", "", "those that have this text in the id, identity, reason, address, headers or payload, in any case")
	c.Flags().StringVar(&o.duplicateOf, "duplicate-of", "", "those that repeat a delivery")
	c.Flags().StringVar(&o.replayOf, "replay-of", "", "those that replay a delivery")
}

func (o *selectOptions) query() (url.Values, error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"webhook": o.webhook, "outcome": o.outcome, "stopped": o.stopped, "text": o.text, "duplicate_of": o.duplicateOf, "replay_of": o.replayOf, "subject": o.subject, "event": o.event,
		"person": o.person, "automation": o.automation,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query, o.timespan.query(query, "since", "until")
}

func listDeliveries(c *cobra.Command, cl *Client, selected *selectOptions) error {
	query, err := selected.query()
	if err != nil {
		return err
	}
	query.Set("about", "true")
	all, err := Collect[api.Delivery](c.Context(), cl, "/deliveries", query, selected.limit)
	if err != nil {
		return err
	}
	if name := query.Get("webhook"); len(all) == 0 && name != "" {
		// The log can have entries of a deleted webhook. Without entries, the webhook may
		// never have existed.
		if err := cl.Get(c.Context(), "/webhooks/"+url.PathEscape(name), nil); err != nil {
			return err
		}
	}
	return term.EmitOf(c, all, func(d api.Delivery) string { return d.Factory }, func(d api.Delivery) string { return d.ID },
		[]string{"ID", "RECEIVED", "WEBHOOK", "EVENT", "BY", "OUTCOME", "REASON", "RUNS"}, func(d api.Delivery) term.Cells {
			return term.Cells{d.ID, d.ReceivedAt, d.Webhook, term.Prose(d.Event), term.Prose(d.Person), OutcomeText(d), term.Prose(reasonOf(d)), strings.Join(d.Runs, " ")}
		})
}

// reasonOf says in a few words why a delivery started nothing, if that is known.
func reasonOf(d api.Delivery) string {
	if m := d.Nearest; m != nil && m.Why() != "" {
		return fmt.Sprintf("nearest %s: %s", m.Automation, m.Why())
	}
	return d.Reason
}

// OutcomeText is the label of a delivery, with the number of runs that it started.
func OutcomeText(d api.Delivery) string {
	if d.RunsStarted == nil {
		return d.Label
	}
	return d.Label + ", " + terms.Outcome(d.Outcome).Came(*d.RunsStarted)
}

// explainDelivery prints the belt and every condition.
func explainDelivery(w io.Writer, d api.DeliveryDetail) error {
	matches, disabled := d.Matches, d.Disabled
	d.Matches, d.Disabled = nil, nil
	if err := PrintDelivery(w, d); err != nil {
		return err
	}
	for _, m := range matches {
		verdict := "would not trigger"
		if m.Matched {
			verdict = "would trigger"
		}
		explainMatch(w, m, verdict)
	}
	for _, m := range disabled {
		explainMatch(w, m, disabledVerdict(m))
	}
	if near := api.Nearest(matches); near != nil && !near.Matched {
		fmt.Fprintf(w, "\nnearest: %s (%d of %d conditions hold)\n", near.Automation, near.Held(), len(near.Conditions))
	}
	return nil
}

// disabledVerdict is the verdict on a disabled automation.
func disabledVerdict(m api.Match) string {
	if m.Matched {
		return "would not trigger: it is disabled; if enabled, it would"
	}
	return "would not trigger: it is disabled; if enabled, it would not either"
}

// explainMatch prints every condition.
func explainMatch(w io.Writer, m api.Match, verdict string) {
	fmt.Fprintf(w, "\n  %s: %s", m.Automation, verdict)
	if m.Definition != "" {
		fmt.Fprintf(w, "  (%s)", m.Definition)
	}
	fmt.Fprintln(w)
	printSubject(w, "    ", m.Subject, m.SubjectLacks)
	if len(m.Conditions) == 0 {
		fmt.Fprintln(w, "    ✓ it has no payload filter")
	}
	printConditions(w, "    ", m.Conditions)
}

// printSubject says what an event is about, or why it is about nothing. It says nothing of an event
// without a subject of an automation that says no subject itself.
func printSubject(w io.Writer, indent, subject, lacks string) {
	switch {
	case subject != "":
		fmt.Fprintf(w, "%sabout %s\n", indent, subject)
	case lacks != "":
		fmt.Fprintf(w, "%sno subject: the payload lacks %s\n", indent, lacks)
	}
}

func printConditions(w io.Writer, indent string, conditions []api.Condition) {
	for _, one := range conditions {
		fmt.Fprintf(w, "%s%s %s: wanted %s, came %s\n", indent, markOf(one.OK), one.Path, one.Want, one.Got)
	}
}

func markOf(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// PrintDelivery prints the belt.
func PrintDelivery(w io.Writer, d api.DeliveryDetail) error {
	fmt.Fprintf(w, "%s  %s  %s  %s\n", d.ID, OutcomeText(d.Delivery), d.Webhook, term.When(w, d.ReceivedAt))
	if d.Commit != "" {
		fmt.Fprintf(w, "decided by commit %s %s\n", term.ShortHash(d.Commit), pathAt(d.Path, d.Blob))
	}
	fmt.Fprintln(w)
	printBelt(w, "  ", 14, d.Belt)
	for _, r := range d.RunBelts {
		again := ""
		if r.RetryOf != "" {
			again = ", again"
		}
		fmt.Fprintf(w, "\n    %s (%s%s)  %s\n", r.RunID, r.Automation, again, r.Link)
		printBelt(w, "    ", 12, r.Belt)
	}
	if len(d.Matches)+len(d.Disabled) > 0 {
		fmt.Fprintln(w)
	}
	for _, m := range d.Matches {
		if m.Matched {
			fmt.Fprintf(w, "  %s: would trigger  %s\n", m.Automation, pathAt(m.Definition, m.Blob))
			continue
		}
		fmt.Fprintf(w, "  %s: would not trigger\n      %s\n      wanted %s\n      came   %s\n", m.Automation, m.Path, m.Want, m.Got)
	}
	for _, m := range d.Disabled {
		fmt.Fprintf(w, "  %s: %s  %s\n", m.Automation, disabledVerdict(m), pathAt(m.Definition, m.Blob))
	}
	return nil
}

func printBelt(w io.Writer, indent string, width int, belt []api.Stage) {
	for _, s := range belt {
		line := fmt.Sprintf("%s%s %-*s %s", indent, terms.Mark(s.Outcome), width, s.Stage, s.Detail)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// pathAt is the path of a definition file, with the hash of its content at that time.
func pathAt(path, blob string) string {
	if path == "" || blob == "" {
		return path
	}
	return path + "@" + term.ShortHash(blob)
}
