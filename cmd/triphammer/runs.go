package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/spf13/cobra"
)

func runsCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List runs, newest first", Args: cobra.NoArgs, RunE: listRuns}
	list.Flags().StringSlice("state", nil, "QUEUED, INPROGRESS, SUCCEEDED, FAILED, CANCELLED")
	list.Flags().String("automation", "", "those of one automation")
	list.Flags().Int("limit", 20, "how many; 0: all")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a run", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			var r api.Run
			if err := cl.get(c.Context(), "/agent/runs/"+url.PathEscape(args[0]), &r); err != nil {
				return err
			}
			return emit(c, r, []string{r.RunID}, func(w io.Writer) error { return printRun(w, r) })
		}),
	}
	outputFlag(list)
	outputFlag(show)
	logs := &cobra.Command{
		Use: "logs ID", Short: "Print a run's transcript", Args: exactly("ID"),
		Long: `Print a run's transcript. Lines that begin with [kind] are Triphammer's; each line that begins with │ is what the agent, or
a program that it ran, has written. Control characters, invisible ones and those that turn the direction of text are
shown as escapes. -o json has the texts as they are.`,
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			if follow, _ := c.Flags().GetBool("follow"); follow {
				timeout, _ := c.Flags().GetDuration("timeout")
				return watchRun(c, cl, args[0], timeout, c.OutOrStdout())
			}
			t, err := readTranscript(c, cl, args[0])
			if err != nil {
				return err
			}
			if format, _ := c.Flags().GetString("output"); format == "json" {
				return writeJSON(c.OutOrStdout(), t)
			}
			shown := newTranscriptWriter(c.OutOrStdout())
			return errors.Join(shown.events(t.Events), shown.end())
		}),
	}
	logs.Flags().StringP("output", "o", "table", "table or json")
	logs.Flags().BoolP("follow", "f", false, "go on until the run has finished, like watch")
	logs.Flags().Duration("timeout", 2*time.Hour, "how long to follow")
	watch := &cobra.Command{
		Use: "watch ID", Short: "Print a run's transcript as it happens, to its end", Args: exactly("ID"),
		Long: "Print a run's transcript as it happens, also across a restart of the server. It exits with 0 if the run has SUCCEEDED, with 1 if it has FAILED or was CANCELLED, and with 8 after --timeout.",
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			timeout, _ := c.Flags().GetDuration("timeout")
			return watchRun(c, cl, args[0], timeout, c.OutOrStdout())
		}),
	}
	watch.Flags().Duration("timeout", 2*time.Hour, "how long to wait")
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a run", Args: exactly("ID"),
		RunE: withServer(false, func(c *cobra.Command, args []string, cl *client) error {
			return cl.call(c.Context(), http.MethodPost, "/agent/runs/"+url.PathEscape(args[0])+"/cancel", nil, nil)
		}),
	}
	create := &cobra.Command{Use: "create --prompt TEXT --environment ID", Short: "Start a run", Args: cobra.NoArgs, RunE: createRun}
	f := create.Flags()
	f.String("prompt", "", "what the agent is to do; - reads standard input")
	f.String("environment", "", "where it runs: NAME or FACTORY/NAME")
	f.String("title", "", "how lists show it")
	f.Bool("wait", false, "print its transcript, and exit with 1 unless it has SUCCEEDED")
	f.Duration("timeout", 2*time.Hour, "how long to wait")
	outputFlag(create)
	for _, c := range []*cobra.Command{list, show, logs, watch, cancel, create} {
		clientFlags(c)
	}
	return noun("runs", "Agent runs and their transcripts", list, show, logs, watch, cancel, create)
}

func listRuns(c *cobra.Command, _ []string) error {
	cl, err := connect(c, false)
	if err != nil {
		return err
	}
	defer cl.close()
	query := url.Values{"sort_by": {"created_at"}}
	query["state"], _ = c.Flags().GetStringSlice("state")
	if name, _ := c.Flags().GetString("automation"); name != "" {
		query.Set("automation", name)
	}
	limit, _ := c.Flags().GetInt("limit")
	all, err := collect[api.Run](c.Context(), cl, "/agent/runs", "runs", query, limit)
	if err != nil {
		return err
	}
	return emitOf(c, all, func(r api.Run) string { return r.Factory }, func(r api.Run) string { return r.RunID }, []string{"ID", "CREATED", "TITLE", "STATE", "SOURCE", "DETAIL"}, func(r api.Run) []string {
		return []string{r.RunID, stamp(r.CreatedAt), r.Title, r.State, r.Source, r.StatusMessage}
	})
}

func printRun(w io.Writer, r api.Run) error {
	t := table{header: []string{"run", r.RunID}}
	for _, row := range [][2]string{
		{"title", r.Title},
		{"state", r.State},
		{"status", r.StatusMessage},
		{"source", r.Source},
		{"automation", r.Automation},
		{"environment", r.EnvironmentID},
		{"delivery", r.DeliveryID},
		{"commit", r.Commit},
		{"definition", pathAt(r.Path, r.Blob)},
		{"creator", r.Creator.Type + " " + r.Creator.DisplayName},
		{"created", stamp(r.CreatedAt)},
		{"started", stampOf(r.StartedAt)},
		{"finished", stampOf(r.FinishedAt)},
		{"transcript", r.SessionLink},
	} {
		t.add(row[0], row[1])
	}
	return t.write(w)
}

// readTranscript reads a whole transcript.
func readTranscript(c *cobra.Command, cl *client, id string) (*api.Transcript, error) {
	all := &api.Transcript{Events: []api.Event{}}
	for after := int64(0); ; {
		var page api.Transcript
		if err := cl.get(c.Context(), fmt.Sprintf("/agent/runs/%s/transcript?after=%d", url.PathEscape(id), after), &page); err != nil {
			return nil, err
		}
		all.RunID, all.State = page.RunID, page.State
		all.Events = append(all.Events, page.Events...)
		if !page.PageInfo.HasNextPage || len(page.Events) == 0 {
			return all, nil
		}
		after = page.Events[len(page.Events)-1].Seq
	}
}

// watchRun prints events as they happen until the run has finished, also across
// a restart of the server. Its exit status is that of the run.
func watchRun(c *cobra.Command, cl *client, id string, timeout time.Duration, w io.Writer) error {
	var last api.StateEvent
	var err error
	shown := newTranscriptWriter(w)
	if cl.offline {
		last, err = pastRun(c, cl, id, shown)
	} else {
		last, err = followRun(c, cl, id, timeout, shown)
	}
	if err := errors.Join(err, shown.end()); err != nil {
		return err
	}
	fmt.Fprintln(w, last.State)
	if last.State != "SUCCEEDED" {
		if last.StatusMessage != "" {
			// Its first line is the server's; what an agent said may follow.
			fmt.Fprintln(printable{c.ErrOrStderr()}, strings.ReplaceAll(last.StatusMessage, "\n", "\n"+gutter))
		}
		return silently(exitBad)
	}
	return nil
}

// pastRun prints a run while no server runs that could execute it. Waiting would
// keep a server from the data directory.
func pastRun(c *cobra.Command, cl *client, id string, shown *transcriptWriter) (api.StateEvent, error) {
	t, err := readTranscript(c, cl, id)
	var r api.Run
	if err == nil {
		err = cl.get(c.Context(), "/agent/runs/"+url.PathEscape(id), &r)
	}
	if err != nil {
		return api.StateEvent{}, err
	}
	if r.FinishedAt == nil {
		err = exitWith(exitUnreachable, "no server is running that could execute the run: it is %s", r.State)
	}
	return api.StateEvent{State: r.State, StatusMessage: r.StatusMessage}, errors.Join(shown.events(t.Events), err)
}

// reconnectTime is the time between attempts to go on with a stream.
const reconnectTime = 300 * time.Millisecond

func followRun(c *cobra.Command, cl *client, id string, timeout time.Duration, shown *transcriptWriter) (last api.StateEvent, err error) {
	ctx, cancel := context.WithTimeoutCause(c.Context(), timeout, exitWith(exitTimeout, "after %s: the run has not finished", timeout))
	defer cancel()
	finished, seen, failures := false, "", 0
	for {
		err := cl.stream(ctx, "/agent/runs/"+url.PathEscape(id)+"/events", seen, func(eventID, kind string, data []byte) error {
			seen, failures = eventID, 0
			if kind == "transcript" {
				var e api.Event
				if err := json.Unmarshal(data, &e); err != nil {
					return err
				}
				return shown.events([]api.Event{e})
			}
			if err := json.Unmarshal(data, &last); err != nil {
				return err
			}
			finished = last.State != "QUEUED" && last.State != "INPROGRESS"
			return nil
		})
		e := (*exitError)(nil)
		switch {
		case finished:
			return last, nil
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case errors.As(err, &e) && (e.code != exitUnreachable || seen == ""):
			return last, err // it is an answer, or there never was a server
		}
		// The server is being restarted, or a proxy has had enough.
		select {
		case <-ctx.Done():
		case <-time.After(min(reconnectTime<<min(failures, 4), 5*time.Second)):
		}
		failures++
	}
}

func createRun(c *cobra.Command, _ []string) error {
	f := c.Flags()
	prompt, _ := f.GetString("prompt")
	environment, _ := f.GetString("environment")
	title, _ := f.GetString("title")
	if prompt == "-" {
		text, err := io.ReadAll(c.InOrStdin())
		if err != nil {
			return err
		}
		prompt = string(text)
	}
	cl, err := connect(c, true)
	if err != nil {
		return err
	}
	defer cl.close()
	body := map[string]any{"prompt": prompt, "config": map[string]string{"environment_id": environment}}
	if title != "" {
		body["title"] = title
	}
	var r api.CreatedRun
	if err := cl.call(c.Context(), http.MethodPost, "/agent/runs", body, &r); err != nil {
		return err
	}
	if wait, _ := f.GetBool("wait"); wait {
		fmt.Fprintln(c.ErrOrStderr(), r.RunID)
		timeout, _ := f.GetDuration("timeout")
		return watchRun(c, cl, r.RunID, timeout, c.OutOrStdout())
	}
	return emit(c, r, []string{r.RunID}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, r.RunID, r.State)
		return err
	})
}
