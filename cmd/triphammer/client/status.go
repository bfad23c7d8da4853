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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/terms"
)

func statusCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	c := &cobra.Command{
		Use: "status", Short: "What serves, and why not something newer", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if wait {
				if err := waitUntilServing(c, timeout); err != nil {
					return err
				}
			}
			cl, err := Connect(c, false)
			if err != nil {
				return err
			}
			defer cl.Close()
			var s api.Status
			if err := cl.Get(c.Context(), "/status", &s); err != nil {
				return err
			}
			names := terms.Each(s.Factories, func(f api.FactoryStatus) string { return f.Name })
			return term.Emit(c, s, names, func(w io.Writer) error { return printStatus(w, s, cl.Offline) })
		},
	}
	ClientFlags(c)
	term.OutputFlag(c)
	c.Flags().BoolVar(&wait, "wait", false, "wait until a server runs and has looked at the newest commit, whatever came of it")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait")
	return c
}

// waitUntilServing waits until a server answers and an apply of the head has ended. The
// head need not have been applied: it may be refused.
func waitUntilServing(c *cobra.Command, timeout time.Duration) error {
	shown := term.ShowProgress(c, "waiting for a server", nil)
	defer shown.End()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	return WaitFor(c.Context(), timeout, "no server has looked at the newest commit", func() (bool, error) {
		cl, err := Connect(c, true)
		if err != nil {
			if isUnreachable(err) {
				err = nil
			}
			return false, err
		}
		defer cl.Close()
		var s api.Status
		if err := cl.Get(ctx, "/status", &s); err != nil {
			if isUnreachable(err) || errors.Is(err, context.DeadlineExceeded) {
				err = nil // the server is starting: ask again
			}
			return false, err
		}
		for _, f := range s.Factories {
			applied := f.Applied != nil && f.Applied.Commit == f.Head
			if f.Pin != nil && f.Applied != nil && f.Applied.Commit == f.Pin.Commit {
				applied = true // pushed commits wait while a commit is pinned
			}
			ended := f.LastApply != nil && f.LastApply.Commit == f.Head && f.Head != ""
			if !applied && !ended && !f.Empty() {
				shown.Set(lookText(f))
				return false, nil
			}
		}
		return true, nil
	})
}

func isUnreachable(err error) bool {
	e := (*exit.Error)(nil)
	return errors.As(err, &e) && e.Code == exit.Unreachable
}

// longLook is how long a look at the repository lasts before status mentions it.
const longLook = 2 * time.Second

func printStatus(w io.Writer, s api.Status, offline bool) error {
	if offline {
		fmt.Fprintln(w, "No server is running; this is what the data directory holds.")
	}
	if len(s.Factories) == 0 {
		fmt.Fprintln(w, "factory      none yet: make one with triphammer factories create NAME, or start the server with --repo")
	}
	for _, f := range s.Factories {
		printFactory(w, f)
	}
	if s.Clock.Problem != "" {
		fmt.Fprintf(w, "clock        %s\n", s.Clock.Problem)
	}
	if cert := s.Certificate; cert != nil && cert.Problem != "" {
		fmt.Fprintf(w, "certificate  %s\n", cert.Problem)
	}
	for _, problem := range s.Storage.Problems {
		fmt.Fprintf(w, "storage      %s\n", problem)
	}
	if i := s.Isolation; i != nil {
		name := cmp.Or(i.Name, "no run can start")
		if i.User != "" {
			name += ", as the user " + i.User
		}
		fmt.Fprintf(w, "isolation    %s\n", name)
		if i.Containers != "" {
			fmt.Fprintf(w, "containers   %s, for runs that demand an image or a container\n", i.Containers)
		}
		for _, problem := range i.Lacking {
			fmt.Fprintf(w, "             without %s\n", problem)
		}
	}
	waits := ""
	if n := s.Runs["BLOCKED"]; n > 0 {
		waits = fmt.Sprintf(", %d waiting for a person (triphammer inbox)", n)
	}
	_, err := fmt.Fprintf(w, "runs         %d queued, %d in progress%s\n", s.Runs["QUEUED"], s.Runs["INPROGRESS"], waits)
	return err
}

func printFactory(w io.Writer, f api.FactoryStatus) {
	fmt.Fprintf(w, "factory      %s %s\nrepository   %s %s\n", f.Name, f.Title, f.Repository, f.Branch)
	switch {
	case f.Empty():
		fmt.Fprintln(w, "serves       nothing yet: "+api.WaitsForCommit)
	case f.Applied == nil:
		fmt.Fprintln(w, "serves       nothing yet")
	default:
		fmt.Fprintf(w, "serves       %s since %s\n", term.ShortHash(f.Applied.Commit), term.When(w, f.Applied.At))
	}
	if p := f.Pin; p != nil {
		until := ""
		if !p.Until.IsZero() {
			until = " until " + term.When(w, p.Until)
		}
		fmt.Fprintf(w, "pinned       %s%s by %s: %s\n", term.ShortHash(p.Commit), until, p.By, p.Reason)
	}
	for _, p := range f.Paused {
		fmt.Fprintf(w, "paused       %s %s, %s\n", p.Kind, p.Name, strings.TrimPrefix(pausedText(w, &p.Pause), "paused "))
	}
	for _, q := range f.Questions {
		fmt.Fprintf(w, "asks         %s: %s\n             a reply counts from %s, at %s\n", q.RunID, term.OneLine.Replace(q.Text), whoReplies(q), term.OneLine.Replace(q.Place))
	}
	if b := f.SameBodies; b != nil {
		fmt.Fprintf(w, "same body    %s of the last 24 hours with a signed body that came before, the newest %s (triphammer deliveries show ID)\n", terms.Counted(b.Count, "delivery"), b.Newest)
	}
	if f.Head != "" && (f.Applied == nil || f.Head != f.Applied.Commit) {
		fmt.Fprintf(w, "newest       %s\n", term.ShortHash(f.Head))
	}
	if f.LastApply != nil {
		fmt.Fprintf(w, "last apply   %s of %s at %s\n", f.LastApply.Outcome, term.ShortHash(f.LastApply.Commit), term.When(w, f.LastApply.At))
		PrintDiagnostics(w, f.LastApply.Diagnostics)
	}
	if f.Empty() {
		return
	}
	if f.Error != "" {
		fmt.Fprintf(w, "problem      %s\n", f.Error)
		if f.Since != nil {
			fmt.Fprintf(w, "since        %s\n", term.WhenOf(w, f.Since))
		}
	}
	if f.LookingSince != nil && time.Since(*f.LookingSince) > longLook {
		fmt.Fprintf(w, "looking      at the repository since %s%s\n", term.WhenOf(w, f.LookingSince), received(f))
	}
	if f.NextAttempt != nil {
		fmt.Fprintf(w, "next attempt %s\n", term.WhenOf(w, f.NextAttempt))
	}
}

// received is how far a look at a repository on another machine is, to be added to a sentence.
func received(f api.FactoryStatus) (text string) {
	if f.Received > 0 {
		text = ", " + event.Bytes(f.Received) + " received"
	}
	if f.Said != "" {
		text += "; it says: " + f.Said
	}
	return text
}

// lookText is what the server does to make the newest commit of a factory serve.
func lookText(f api.FactoryStatus) string {
	if f.LookingSince == nil {
		return "applying the newest commit"
	}
	return "reading the repository" + received(f)
}

// look tells, for progress, what the server does to make the newest commit of a factory serve.
func (cl *Client) look(factory string) func(context.Context) string {
	return func(ctx context.Context) string {
		var f api.FactoryStatus
		if cl.Get(ctx, "/factories/"+url.PathEscape(factory), &f) != nil {
			return ""
		}
		return lookText(f)
	}
}

// PrintDiagnostics prints the findings of an apply.
func PrintDiagnostics(w io.Writer, raw json.RawMessage) {
	var found schema.Diagnostics
	if json.Unmarshal(raw, &found) != nil || len(found) == 0 {
		return
	}
	var b strings.Builder
	report := &schema.Report{Diagnostics: found}
	_ = schema.Print(&b, "text", report, schema.PrintOptions{}) // to memory
	// The summary is left out, because the number of files is not known here.
	_, _ = io.WriteString(w, strings.TrimSuffix(b.String(), schema.Summary(report)+"\n"))
}

func clockCommand() *cobra.Command {
	accept := &cobra.Command{
		Use: "accept", Short: "Say that the machine's clock is right, although it jumped", Args: cobra.NoArgs,
		Long: `Say that the machine's clock is right, although it is more than a day ahead of the newest time that the server has
seen, or behind it, or was set while the server ran. Until then, or until it has gone on like that for an hour,
nothing is deleted by its age, and nothing that has ended by the newest time seen works again. What is too old by this
clock goes within the hour.`,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var clock api.Clock
			if err := cl.Call(c.Context(), http.MethodPost, "/clock/accept", nil, &clock); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.ErrOrStderr(), "It is %s\n", term.When(c.ErrOrStderr(), clock.Now))
			return err
		}),
	}
	ClientFlags(accept)
	return Noun("clock", "What the server thinks of the machine's clock", accept)
}

func applyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "apply",
		Short: "Apply the newest commit now, and wait for the outcome",
		Long: `Ask the running server to read the production branch and apply its newest commit now, even if it is live already: new
values of managed secrets are taken into use. It exits with 0 if the commit is live, with 1 if it was refused, and with
7 if no server runs. In a clone of the repository it also says which commits and changes are not pushed yet.`,
		Args: cobra.NoArgs,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error {
			name, err := cl.only(c.Context())
			if err != nil {
				return err
			}
			shown := term.ShowProgress(c, "applying the newest commit", cl.look(name))
			defer shown.End()
			var a api.Apply
			if err := cl.Call(c.Context(), http.MethodPost, "/factories/"+url.PathEscape(name)+"/sync?wait=true", nil, &a); err != nil {
				return err
			}
			shown.End()
			if err := term.Emit(c, a, []string{a.ID}, func(w io.Writer) error { return printApply(w, a) }); err != nil {
				return err
			}
			if text := unpushed(c.Context(), a); text != "" {
				fmt.Fprintln(term.Printable{W: c.ErrOrStderr()}, text)
			}
			if a.Outcome != "applied" {
				return exit.Silently(exit.Bad)
			}
			return nil
		}),
	}
	ClientFlags(c)
	term.OutputFlag(c)
	return c
}

func printApply(w io.Writer, a api.Apply) error {
	fmt.Fprintf(w, "%s %s %s\n", a.Outcome, term.ShortHash(a.Commit), a.Subject)
	if a.Error != "" {
		fmt.Fprintln(w, a.Error)
	}
	PrintDiagnostics(w, a.Diagnostics)
	var changes applier.Plan
	if a.Outcome == "applied" && json.Unmarshal(a.Plan, &changes) == nil {
		printPlan(w, changes)
	}
	return nil
}
