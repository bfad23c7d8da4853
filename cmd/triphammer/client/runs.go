package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func runsCommand() *cobra.Command {
	interrupt := &cobra.Command{
		Use: "interrupt ID", Short: "Stop the turn of a run in progress, and keep its session", Args: Exactly("ID"),
		Long: "Stop the turn of a run in progress, and keep its session. The run ends as CANCELLED; runs followup goes on with its conversation.",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.Call(c.Context(), http.MethodPost, "/agent/runs/"+url.PathEscape(args[0])+"/interrupt", nil, nil)
		}),
	}
	answer := &cobra.Command{
		Use: "answer ID", Short: "Send the answers of a run again, and do its outputs, that were given up", Args: Exactly("ID"),
		Long: "Send the answers of a run again, and do its outputs, that were given up, after what kept them back is cured. What may stand at the sender is looked for first,\n" +
			"if it can be searched. Answers that wait are sent by themselves.",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.Call(c.Context(), http.MethodPost, "/agent/runs/"+url.PathEscape(args[0])+"/answer", nil, nil)
		}),
	}
	all := slices.Concat(runReaders(), []*cobra.Command{artifactsCommand(), cancelCommand(), interrupt, answer}, runStarters())
	for _, c := range all {
		ClientFlags(c)
	}
	return Noun("runs", "Agent runs and their transcripts", all...)
}

// runReaders are the commands that show runs.
func runReaders() []*cobra.Command {
	var selected runSelection
	var span timespan
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			query := selected.query()
			if err := span.query(query, "created_after", "created_before"); err != nil {
				return err
			}
			return listRuns(c, cl, query, limit)
		}),
	}
	selected.flags(list)
	list.Flags().StringVar(&selected.subject, "subject", "", "those that are about a subject")
	list.Flags().StringVar(&selected.event, "event", "", "those that an event started, by a part of its name, such as issue_labeled")
	list.Flags().StringVar(&selected.person, "person", "", "those whose event a person caused, as the sender names people")
	list.Flags().StringSliceVar(&selected.states, "state", nil, "BLOCKED, QUEUED, INPROGRESS, SUCCEEDED, FAILED, CANCELLED")
	span.flags(list)
	term.LimitFlag(list, &limit, 20)
	show := &cobra.Command{
		Use: "show ID", Short: "Show a run", Args: Exactly("ID"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var r api.Run
			if err := cl.Get(c.Context(), "/agent/runs/"+url.PathEscape(args[0]), &r); err != nil {
				return err
			}
			return term.Emit(c, r, []string{r.RunID}, func(w io.Writer) error { return printRun(w, r) })
		}),
	}
	term.OutputFlag(list)
	term.OutputFlag(show)
	var follow bool
	var view term.TranscriptView
	var timeout time.Duration // shared, because only one of the commands runs
	logs := &cobra.Command{
		Use: "logs ID", Short: "Print a run's transcript", Args: Exactly("ID"),
		Long: `Print a run's transcript. Lines that begin with [kind] are Triphammer's; each line that begins with │ is what the agent, or
a program that it ran, has written. Of long input and output only the beginning and the end is printed, and of reasoning
one line, unless --full or --reasoning asks for all. Control characters, invisible ones and those that turn the direction of text are
shown as escapes. -o json has the texts as they are.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			if follow {
				if !term.IsTable(c) {
					return exit.With(exit.Usage, "--follow prints for people: leave out --follow or -o")
				}
				return WatchRun(c, cl, args[0], timeout, term.NewTranscriptWriter(term.ForPeople(c, c.OutOrStdout()), view))
			}
			t, err := readTranscript(c, cl, args[0])
			if err != nil {
				return err
			}
			value := any(t)
			if term.OutputOf(c) == term.FormatJSONL {
				value = t.Events // each has a line
			}
			return term.Emit(c, value, nil, func(w io.Writer) error {
				shown := term.NewTranscriptWriter(w, view)
				return errors.Join(shown.Events(t.Events), shown.End())
			})
		}),
	}
	term.OutputFlagOf(logs, []string{term.FormatTable, "json", term.FormatJSONL, "yaml"})
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has finished, like watch")
	logs.Flags().DurationVar(&timeout, "timeout", 2*time.Hour, "how long to follow")
	watch := &cobra.Command{
		Use: "watch ID", Short: "Print a run's transcript as it happens, to its end", Args: Exactly("ID"),
		Long: "Print a run's transcript as it happens, also across a restart of the server. " +
			"It exits with 0 if the run has SUCCEEDED, with 1 if it has FAILED or was CANCELLED, and with 8 after --timeout.",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return WatchRun(c, cl, args[0], timeout, term.NewTranscriptWriter(term.ForPeople(c, c.OutOrStdout()), view))
		}),
	}
	for _, c := range []*cobra.Command{logs, watch} {
		view.Flags(c)
	}
	watch.Flags().DurationVar(&timeout, "timeout", 2*time.Hour, "how long to wait")
	return []*cobra.Command{list, show, logs, watch}
}

// runStarters are the commands that start a run.
func runStarters() []*cobra.Command {
	var run newRun
	followup := &cobra.Command{
		Use: "followup ID --message TEXT", Short: "Go on with the conversation of a run", Args: Exactly("ID"),
		Long: `Go on with the conversation of a run: start a new run with its agent, environment, workspace and session. It waits until
the runs before it in the conversation have ended. Without --message, the message is read from standard input.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			message := run.prompt
			message = cmp.Or(message, "-")
			message, err := textOf(c, message)
			if err != nil {
				return err
			}
			body := map[string]any{"message": message}
			if run.mode != "" {
				body["mode"] = run.mode
			}
			return run.start(c, cl, "/agent/runs/"+url.PathEscape(args[0])+"/followups", body)
		}),
	}
	followup.Flags().StringVarP(&run.prompt, "message", "m", "", "what the agent is to do now; - reads standard input")
	var resume bool
	retry := &cobra.Command{
		Use: "retry ID", Short: "Do again what a run did that has ended", Args: Exactly("ID"),
		Long: "Start a new run with the definition, delivery and payload of a run that has ended, whatever was pushed since. " +
			"With --resume it goes on in the workspace and the session of that run; without, it begins afresh.",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return run.start(c, cl, "/agent/runs/"+url.PathEscape(args[0])+"/retry", map[string]any{"resume": resume})
		}),
	}
	retry.Flags().BoolVar(&resume, "resume", false, "go on in the workspace and the session of the run")
	create := &cobra.Command{
		Use: "create --prompt TEXT", Short: "Start a run", Args: cobra.NoArgs,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error { return run.create(c, cl) }),
	}
	f := create.Flags()
	f.StringVar(&run.prompt, "prompt", "", "what the agent is to do; - reads standard input")
	f.StringVar(&run.environment, "environment", "", "where it runs: NAME or FACTORY/NAME")
	f.StringVar(&run.agent, "agent", "", "the agent that it runs as: NAME or FACTORY/NAME")
	f.StringVar(&run.skill, "skill", "", "the skill by which it works: NAME, or REPOSITORY:PATH of one in a repository of the run")
	f.StringVar(&run.title, "title", "", "how lists show it")
	f.StringVar(&run.conversation, "conversation", "", "go on with this conversation, instead of an environment")
	f.Int64Var(&run.priority, "priority", 0, "from -10 to 10: queued runs of a higher one start first (default: 1 for people's runs, 0 for others)")
	for _, c := range []*cobra.Command{create, followup} {
		c.Flags().StringVar(&run.mode, "mode", "", "plan: the agent changes nothing, and says what it would do; normal is the default")
	}
	for _, c := range []*cobra.Command{create, followup, retry} {
		c.Flags().BoolVar(&run.wait, "wait", false, "print its transcript, and exit with 1 unless it has SUCCEEDED")
		c.Flags().DurationVar(&run.timeout, "timeout", 2*time.Hour, "how long to wait")
		term.OutputFlag(c)
	}
	return []*cobra.Command{create, followup, retry}
}

// runSelection selects runs by what started them.
type runSelection struct {
	states                                                         []string
	automation, delivery, webhook, creator, subject, event, person string
}

func (s *runSelection) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.automation, "automation", "", "those of one automation")
	c.Flags().StringVar(&s.delivery, "delivery", "", "those that a delivery started")
	c.Flags().StringVar(&s.webhook, "webhook", "", "those that deliveries of one webhook started")
	c.Flags().StringVar(&s.creator, "creator", "", "those that a person started, or an automation")
}

func (s *runSelection) query() url.Values {
	query := url.Values{"sort_by": {"created_at"}, "state": s.states}
	for name, value := range map[string]string{"automation": s.automation, "delivery_id": s.delivery, "webhook": s.webhook, "creator": s.creator, "subject": s.subject, "event": s.event, "person": s.person} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

func cancelCommand() *cobra.Command {
	var selected runSelection
	var all, yes bool
	c := &cobra.Command{
		Use: "cancel (ID | --automation NAME | --webhook NAME | --delivery ID | --creator NAME | --all)", Short: "Cancel a run, or all of an automation",
		Long: `Cancel a run, or every run that the flags select and that has not ended. Without --yes, those are listed and nothing is
cancelled. An automation starts more runs when its events come: pause it first.`,
		Example: `  triphammer runs cancel run_0123456789abc
  triphammer automations pause triage --reason "it went wild" && triphammer runs cancel --automation triage --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			some := selected.automation+selected.delivery+selected.webhook+selected.creator != ""
			switch {
			case (some || all) && len(args) == 1:
				return exit.With(exit.Usage, "name a run, or select runs by flags: not both")
			case some && all:
				return exit.With(exit.Usage, "--all selects every run: leave it out to cancel those that the other flags select")
			case some || all:
				return cancelRuns(c, cl, selected.query(), yes)
			case len(args) == 0:
				return exit.With(exit.Usage, "which run? Give its ID, a flag that selects runs, such as --automation, or --all")
			}
			return cl.Call(c.Context(), http.MethodPost, "/agent/runs/"+url.PathEscape(args[0])+"/cancel", nil, nil)
		}),
	}
	selected.flags(c)
	c.Flags().BoolVar(&all, "all", false, "every run that has not ended")
	c.Flags().BoolVar(&yes, "yes", false, "do it: without it, the runs are listed")
	term.OutputFlag(c)
	return c
}

// cancelRuns cancels the selected runs that have not ended: those that wait first, so that none
// begins because another has ended. It prints them.
func cancelRuns(c *cobra.Command, cl *Client, query url.Values, yes bool) error {
	var found []api.Run
	for _, state := range []string{"BLOCKED", "QUEUED", "INPROGRESS"} {
		query.Set("state", state)
		query.Del("cursor")
		some, err := Collect[api.Run](c.Context(), cl, "/agent/runs", query, 0)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	if err := printRuns(c, found); err != nil || len(found) == 0 {
		return err
	}
	if err := confirmed(yes, "cancels "+terms.Counted(len(found), "run")); err != nil {
		return err
	}
	for _, r := range found {
		err := cl.Call(c.Context(), http.MethodPost, "/agent/runs/"+url.PathEscape(r.RunID)+"/cancel", nil, nil)
		p := (*problem)(nil)
		if err != nil && !(errors.As(err, &p) && (p.Status == http.StatusConflict || p.Status == http.StatusNotFound)) { // it has ended meanwhile
			return err
		}
	}
	return nil
}

func listRuns(c *cobra.Command, cl *Client, query url.Values, limit int) error {
	all, err := Collect[api.Run](c.Context(), cl, "/agent/runs", query, limit)
	if err != nil {
		return err
	}
	return printRuns(c, all)
}

func printRuns(c *cobra.Command, all []api.Run) error {
	return term.EmitOf(c, all, func(r api.Run) string { return r.Factory }, func(r api.Run) string { return r.RunID },
		[]string{"ID", "CREATED", "TITLE", "STATE", "SOURCE", "DETAIL"}, func(r api.Run) term.Cells {
			return term.Cells{r.RunID, r.CreatedAt, term.Prose(r.Title), r.State, r.Source, term.Prose(r.StatusMessage)}
		})
}

func printRun(w io.Writer, r api.Run) error {
	t := term.Table{Header: []string{"run", r.RunID}}
	for _, row := range []term.Cells{
		{"title", r.Title},
		{"state", r.State},
		{"status", r.StatusMessage},
		{"attempt", attemptOf(w, r)},
		{"source", r.Source},
		{"automation", r.Automation},
		{"environment", r.EnvironmentID},
		{"delivery", r.DeliveryID},
		{"subject", r.Subject},
		{"person", r.Person},
		{"replaced by", r.ReplacedBy},
		{"conversation", conversationOf(r)},
		{"retry of", r.RetryOf},
		{"commit", r.Commit},
		{"definition", pathAt(r.Path, r.Blob)},
		{"creator", r.Creator.Type + " " + r.Creator.DisplayName},
		{"created", r.CreatedAt},
		{"started", r.StartedAt},
		{"finished", r.FinishedAt},
		{"worker", r.Worker},
		{"transcript", r.SessionLink},
		{"workspace", workspaceOf(w, r.Workspace)},
	} {
		t.Add(row...)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	printBelt(w, "  ", 12, r.Belt)
	if q := r.Question; q != nil {
		fmt.Fprintf(w, "\nasks         %s\n", term.OneLine.Replace(q.Text))
		if q.Status == "asked" {
			fmt.Fprintf(w, "             a reply counts from %s, at %s\n", whoReplies(*q), term.OneLine.Replace(q.Place))
		}
	}
	if len(r.Outputs) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	asked := term.Table{Header: []string{"ASKED FOR", "STATUS", "WHAT", "DETAIL"}}
	for _, o := range r.Outputs {
		asked.Add(o.Kind, o.Status, term.Prose(o.Text), term.Prose(term.Joined(" ", o.URL, o.Detail)))
	}
	if err := asked.Write(w); err != nil {
		return err
	}
	for _, o := range r.Outputs {
		if o.Status == "waiting" {
			fmt.Fprintf(w, "\n%d. %s waits for a person:\n", o.Number, o.Kind)
			printRequest(term.Printable{W: w}, o)
			printAdded(term.Printable{W: w}, o)
		}
	}
	return nil
}

// whoReplies says whose reply to a question counts.
func whoReplies(q api.Question) string {
	if len(q.From) == 0 {
		return "whoever can write there"
	}
	return term.OneLine.Replace(strings.Join(q.From, ", "))
}

// attemptOf is empty for the only attempt of a run.
func attemptOf(w io.Writer, r api.Run) string {
	if r.Attempts <= 1 {
		return ""
	}
	text := fmt.Sprintf("%d of at most %d", r.Attempt, r.Attempts)
	if r.NextAttempt != nil {
		text += ", the next one not before " + term.When(w, *r.NextAttempt)
	}
	return text
}

// workspaceOf says where the files of a run are, and until when.
func workspaceOf(out io.Writer, w *api.Workspace) string {
	switch {
	case w == nil:
		return ""
	case w.Removed:
		return "removed"
	case w.KeptUntil == nil:
		return w.Path
	}
	return w.Path + ", kept until " + term.When(out, *w.KeptUntil)
}

// conversationOf is empty for the first run of a conversation.
func conversationOf(r api.Run) string {
	if r.ConversationID == r.RunID {
		return ""
	}
	return r.ConversationID
}

// readTranscript reads a whole transcript.
func readTranscript(c *cobra.Command, cl *Client, id string) (*api.Transcript, error) {
	all := &api.Transcript{Events: []api.Event{}}
	for after := int64(0); ; {
		var page api.Transcript
		if err := cl.Get(c.Context(), fmt.Sprintf("/agent/runs/%s/transcript?after=%d", url.PathEscape(id), after), &page); err != nil {
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

// WatchRun prints events as they happen until the run has finished. It continues after a
// restart of the server. The exit status is that of the run.
func WatchRun(c *cobra.Command, cl *Client, id string, timeout time.Duration, shown *term.TranscriptWriter) error {
	var last api.StateEvent
	var err error
	if cl.Offline {
		last, err = pastRun(c, cl, id, shown)
	} else {
		last, err = followRun(c, cl, id, timeout, shown)
	}
	if err := errors.Join(err, shown.End()); err != nil {
		return err
	}
	fmt.Fprintln(term.Printable{W: shown.W}, last.State)
	if last.State != "SUCCEEDED" {
		if last.StatusMessage != "" {
			// The first line is from the server. Output of the agent may follow.
			fmt.Fprintln(term.ForPeople(c, c.ErrOrStderr()), strings.ReplaceAll(last.StatusMessage, "\n", "\n"+term.Gutter))
		}
		return exit.Silently(exit.Bad)
	}
	return nil
}

// pastRun prints a run while no server runs. It does not wait for the run, because no
// server executes it, and because waiting would keep the data directory locked.
func pastRun(c *cobra.Command, cl *Client, id string, shown *term.TranscriptWriter) (api.StateEvent, error) {
	t, err := readTranscript(c, cl, id)
	var r api.Run
	if err == nil {
		err = cl.Get(c.Context(), "/agent/runs/"+url.PathEscape(id), &r)
	}
	if err != nil {
		return api.StateEvent{}, err
	}
	if r.FinishedAt == nil {
		err = exit.With(exit.Unreachable, "no server is running that could execute the run: it is %s", r.State)
	}
	return api.StateEvent{State: r.State, StatusMessage: r.StatusMessage}, errors.Join(shown.Events(t.Events), err)
}

// reconnectTime is the first pause before an attempt to continue a stream.
const reconnectTime = 300 * time.Millisecond

func followRun(c *cobra.Command, cl *Client, id string, timeout time.Duration, shown *term.TranscriptWriter) (last api.StateEvent, err error) {
	ctx, cancel := context.WithTimeoutCause(c.Context(), timeout, exit.With(exit.Timeout, "after %s: the run has not finished", timeout))
	defer cancel()
	finished, seen, failures := false, "", 0
	for {
		err := cl.Stream(ctx, "/agent/runs/"+url.PathEscape(id)+"/events", seen, func(eventID, kind string, data []byte) error {
			seen, failures = eventID, 0
			if kind == "transcript" {
				var e api.Event
				if err := json.Unmarshal(data, &e); err != nil {
					return err
				}
				return shown.Events([]api.Event{e})
			}
			if err := json.Unmarshal(data, &last); err != nil {
				return err
			}
			finished = last.State != "BLOCKED" && last.State != "QUEUED" && last.State != "INPROGRESS"
			return nil
		})
		e := (*exit.Error)(nil)
		switch {
		case finished:
			return last, nil
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case errors.As(err, &e) && (e.Code != exit.Unreachable || seen == ""):
			return last, err // the server has answered, or there never was one
		}
		// The server is being restarted, or a proxy has closed the connection.
		select {
		case <-ctx.Done():
		case <-time.After(min(reconnectTime<<min(failures, 4), 5*time.Second)):
		}
		failures++
	}
}

// newRun holds the flags of create, followup and retry.
type newRun struct {
	prompt, environment, title string
	agent, skill, mode         string
	conversation               string
	priority                   int64
	wait                       bool
	timeout                    time.Duration
}

// textOf is the text of a flag, or standard input for -.
func textOf(c *cobra.Command, flag string) (string, error) {
	if flag != "-" {
		return flag, nil
	}
	text, err := io.ReadAll(c.InOrStdin())
	return string(text), err
}

func (n *newRun) create(c *cobra.Command, cl *Client) error {
	prompt, err := textOf(c, n.prompt)
	if err != nil {
		return err
	}
	body := map[string]any{"prompt": prompt}
	if n.environment != "" || n.conversation == "" {
		body["config"] = map[string]string{"environment_id": n.environment}
	}
	if n.conversation != "" {
		body["conversation_id"] = n.conversation
	}
	for field, value := range map[string]string{"title": n.title, "agent_identity_uid": n.agent, "skill": n.skill, "mode": n.mode} {
		if value != "" {
			body[field] = value
		}
	}
	if c.Flags().Changed("priority") {
		body["priority"] = n.priority
	}
	return n.start(c, cl, "/agent/runs", body)
}

// start makes the server start a run, and shows it.
func (n *newRun) start(c *cobra.Command, cl *Client, path string, body map[string]any) error {
	var r api.CreatedRun
	if err := cl.Call(c.Context(), http.MethodPost, path, body, &r); err != nil {
		return err
	}
	if n.wait {
		fmt.Fprintln(c.ErrOrStderr(), r.RunID)
		return WatchRun(c, cl, r.RunID, n.timeout, term.NewTranscriptWriter(term.ForPeople(c, c.OutOrStdout()), term.TranscriptView{}))
	}
	return term.Emit(c, r, []string{r.RunID}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, r.RunID, r.State)
		return err
	})
}
