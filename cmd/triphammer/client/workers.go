package client

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func workersCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the processes that execute runs", Args: cobra.NoArgs,
		Long: "List the processes that execute runs, of a server that is alone or of all that share a store. Those that have stopped, or are lost, are listed for a day.",
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var all api.WorkerList
			if err := cl.Get(c.Context(), "/workers", &all); err != nil {
				return err
			}
			return emitWorkers(c, all.Workers)
		}),
	}
	term.OutputFlag(list)
	ClientFlags(list)
	ask := func(action, short, long string) *cobra.Command {
		c := &cobra.Command{
			Use: action + " NAME", Short: short, Args: Exactly("NAME"), Long: long,
			RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
				var asked api.WorkerList
				if err := cl.Call(c.Context(), http.MethodPost, "/workers/"+url.PathEscape(args[0])+"/"+action, nil, &asked); err != nil {
					return err
				}
				return emitWorkers(c, asked.Workers)
			}),
		}
		term.OutputFlag(c)
		ClientFlags(c)
		return c
	}
	return Noun("workers", "List and drain the processes that execute runs", list,
		ask("drain", "Stop workers from starting further runs", `Stop the workers of a name, an id or a host from starting further runs, from the end of this command on. What they have in progress goes on.
It lasts until they are resumed, also over restarts.`),
		ask("resume", "Make workers that were drained start runs again", ""))
}

func emitWorkers(c *cobra.Command, all []api.Worker) error {
	return term.EmitList(c, all, func(w api.Worker) string { return w.ID },
		[]string{"NAME", "STATE", "RUNS", "ISOLATION", "HOST", "VERSION", "LABELS", "LAST HEARD OF", "WHY"}, func(w api.Worker) term.Cells {
			labels := terms.Each(slices.Sorted(maps.Keys(w.Labels)), func(key string) string { return key + "=" + w.Labels[key] })
			name := w.Name
			if len(w.Names) > 1 {
				name = strings.Join(w.Names, ",")
			}
			return term.Cells{
				name, w.State, fmt.Sprintf("%d of %d", w.InProgress, w.MaxRuns), w.Isolation, w.Host, w.Version, term.Prose(strings.Join(labels, ",")), w.LastHeartbeat, term.Prose(w.Blocked),
			}
		})
}
