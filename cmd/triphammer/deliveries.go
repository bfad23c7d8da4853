package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/server"
)

func deliveriesCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List deliveries, newest first", Args: cobra.NoArgs, RunE: listDeliveries}
	list.Flags().String("webhook", "", "those of one webhook")
	list.Flags().String("outcome", "", "accepted, duplicate, rejected_auth, rejected_invalid_json or rejected_too_large")
	list.Flags().Int("limit", 20, "how many; 0: all")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a delivery and its belt: why it ran, or why not", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			var d server.DeliveryDetail
			if err := cl.get(c.Context(), "/deliveries/"+url.PathEscape(args[0]), &d); err != nil {
				return err
			}
			return emit(c, d, []string{d.ID}, func(w io.Writer) error { return printDelivery(w, d) })
		}),
	}
	outputFlag(list)
	outputFlag(show)
	payload := &cobra.Command{
		Use: "payload ID", Short: "Write the stored body, byte for byte", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			body, err := cl.do(c.Context(), http.MethodGet, "/deliveries/"+url.PathEscape(args[0])+"/payload", nil)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(body)
			return err
		}),
	}
	replay := &cobra.Command{
		Use: "replay ID", Short: "Start what matches a stored delivery now", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			var r server.Replayed
			if err := cl.call(c.Context(), http.MethodPost, "/deliveries/"+url.PathEscape(args[0])+"/replay", nil, &r); err != nil {
				return err
			}
			return emit(c, r, []string{r.DeliveryID}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s replays %s: %d runs %s\n", r.DeliveryID, args[0], len(r.Runs), strings.Join(r.Runs, " "))
				return err
			})
		}),
	}
	outputFlag(replay)
	for _, c := range []*cobra.Command{list, show, payload, replay} {
		clientFlags(c)
	}
	return noun("deliveries", "The delivery log", list, show, payload, replay)
}

func listDeliveries(c *cobra.Command, _ []string) error {
	cl, err := connect(c, false)
	if err != nil {
		return err
	}
	defer cl.close()
	query := url.Values{}
	for _, name := range []string{"webhook", "outcome"} {
		if value, _ := c.Flags().GetString(name); value != "" {
			query.Set(name, value)
		}
	}
	limit, _ := c.Flags().GetInt("limit")
	all, err := collect[server.Delivery](c.Context(), cl, "/deliveries", "deliveries", query, limit)
	if err != nil {
		return err
	}
	return emitList(c, all, func(d server.Delivery) string { return d.ID }, []string{"ID", "RECEIVED", "WEBHOOK", "OUTCOME", "REASON", "SIZE", "RUNS"}, func(d server.Delivery) []string {
		return []string{d.ID, stamp(d.ReceivedAt), d.Webhook, d.Label, d.Reason, fmt.Sprint(d.Size), strings.Join(d.Runs, " ")}
	})
}

// printDelivery prints the belt.
func printDelivery(w io.Writer, d server.DeliveryDetail) error {
	fmt.Fprintf(w, "%s  %s  %s  %s\n", d.ID, d.Label, d.Webhook, stamp(d.ReceivedAt))
	if d.Commit != "" {
		fmt.Fprintf(w, "decided by commit %s %s\n", shortHash(d.Commit), pathAt(d.Path, d.Blob))
	}
	fmt.Fprintln(w)
	marks := map[string]string{"passed": "✓", "stopped": "✗", "not_reached": "·"}
	for _, s := range d.Belt {
		fmt.Fprintf(w, "  %s %-14s %s\n", marks[s.Outcome], s.Stage, s.Detail)
	}
	if len(d.Matches) > 0 {
		fmt.Fprintln(w)
	}
	for _, m := range d.Matches {
		if m.Matched {
			fmt.Fprintf(w, "  %s: would trigger  %s\n", m.Automation, pathAt(m.Definition, m.Blob))
			continue
		}
		fmt.Fprintf(w, "  %s: would not trigger\n      %s\n      wanted %s\n      came   %s\n", m.Automation, m.Path, m.Want, m.Got)
	}
	return nil
}

// pathAt names a definition file and the text that it had.
func pathAt(path, blob string) string {
	if path == "" || blob == "" {
		return path
	}
	return path + "@" + shortHash(blob)
}
