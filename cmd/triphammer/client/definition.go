package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// definitionCommand has the commands that show which commits served, and that pin one.
func definitionCommand() *cobra.Command {
	var limit int
	var until string
	var pinning api.PinRequest
	history := &cobra.Command{
		Use: "history", Short: "List the commits that were applied or refused, newest first", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.Apply](c.Context(), cl, "/applies", url.Values{}, limit)
			if err != nil {
				return err
			}
			return term.EmitOf(c, all, func(a api.Apply) string { return a.Factory }, func(a api.Apply) string { return a.Commit },
				[]string{"COMMIT", "AT", "OUTCOME", "TRIGGER", "AUTHOR", "SUBJECT"}, func(a api.Apply) term.Cells {
					return term.Cells{term.ShortHash(a.Commit), a.FinishedAt, a.Outcome, a.Trigger, term.Prose(a.Author), term.Prose(a.Subject)}
				})
		}),
	}
	term.LimitFlag(history, &limit, 20)
	diff := &cobra.Command{
		Use: "diff FROM [TO]", Short: "What changed between two commits that were applied", Args: cobra.RangeArgs(1, 2),
		Long: `Show what changed from one commit that was applied to another, or to the one that serves, as a plan does. The commits
can be shortened, or be ids of applies.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			to, err := commitOrLive(c, cl, args[1:])
			if err != nil {
				return err
			}
			query := url.Values{"from": {args[0]}}
			var d api.ApplyDiff
			if err := cl.Get(c.Context(), "/applies/"+url.PathEscape(to)+"/diff?"+query.Encode(), &d); err != nil {
				return err
			}
			return term.Emit(c, d, []string{d.From, d.To}, func(w io.Writer) error {
				fmt.Fprintf(w, "from %s to %s\n", term.ShortHash(d.FromCommit), term.ShortHash(d.ToCommit))
				printPlan(w, d.Plan)
				return nil
			})
		}),
	}
	pin := &cobra.Command{
		Use: "pin COMMIT --reason TEXT", Short: "Serve a commit that was applied before, whatever is pushed", Args: Exactly("COMMIT"),
		Long: `Apply a commit that was applied before, and keep to it: a way back without a push, and without the repository. What is
pushed meanwhile waits until the pin ends, by "definition unpin" or at --until. COMMIT can be shortened.`,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			pinning.Commit = args[0]
			if until != "" {
				at, err := parseUntil(until, time.Now())
				if err != nil {
					return err
				}
				pinning.Until = &at
			}
			return pinned(c, cl, http.MethodPost, pinning)
		}),
	}
	pin.Flags().StringVar(&pinning.Reason, "reason", "", "why; it is shown wherever the pin is")
	pin.Flags().StringVar(&until, "until", "", "when the pin ends by itself: a time such as 2026-01-31T18:00:00Z, or 2h from now")
	unpin := &cobra.Command{
		Use: "unpin", Short: "Follow the branch again, and apply its head now", Args: cobra.NoArgs,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error { return pinned(c, cl, http.MethodDelete, nil) }),
	}
	show, put, edit := showDefinitionCommand(), putCommand(), editCommand()
	for _, c := range []*cobra.Command{history, show, diff, put, edit, pin, unpin} {
		ClientFlags(c)
		term.OutputFlag(c)
	}
	return Noun("definition", "What served when, changes and the way back", history, show, diff, put, edit, pin, unpin)
}

func showDefinitionCommand() *cobra.Command {
	var newest bool
	var file string
	show := &cobra.Command{
		Use: "show [COMMIT]", Short: "List the definition files of a commit that was applied, or print one", Args: cobra.MaximumNArgs(1),
		Long: `List the definition files of a commit that was applied, with their Git object names; without COMMIT of the one that
serves. COMMIT can be shortened, or be the id of an apply. With --file it prints that file, byte for byte. With --newest
it shows all files of the newest commit of a factory whose repository lives on the server, whether it serves or not.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			if newest && len(args) > 0 {
				return exit.With(exit.Usage, "--newest and a commit exclude each other")
			}
			if newest {
				return printNewest(c.Context(), c, cl, file)
			}
			commit, err := commitOrLive(c, cl, args)
			if err != nil {
				return err
			}
			query := url.Values{}
			if file != "" {
				query.Set("path", file)
			}
			var files api.ApplyFiles
			if err := cl.Get(c.Context(), "/applies/"+url.PathEscape(commit)+"/files?"+query.Encode(), &files); err != nil {
				return err
			}
			if file != "" && term.IsTable(c) {
				data, err := api.DecodeContent(files.Files[0].Content, files.Files[0].Encoding)
				if err == nil {
					_, err = c.OutOrStdout().Write(data)
				}
				return err
			}
			var names []string
			t := term.Table{List: true, Header: []string{"PATH", "BLOB", "SIZE"}}
			for _, f := range files.Files {
				names = append(names, f.Path)
				t.Add(f.Path, term.ShortHash(f.Blob), f.Size)
			}
			return term.Emit(c, files, names, func(w io.Writer) error {
				fmt.Fprintf(w, "commit %s, apply %s\n", files.Commit, files.ID)
				return t.Write(w)
			})
		}),
	}
	show.Flags().BoolVar(&newest, "newest", false, "of the newest commit")
	show.Flags().StringVar(&file, "file", "", "path of a definition file to print")
	return show
}

// commitOrLive is the commit in the arguments, or else the apply that serves.
func commitOrLive(c *cobra.Command, cl *Client, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	name, err := cl.only(c.Context())
	if err != nil {
		return "", err
	}
	var s api.Status
	if err := cl.Get(c.Context(), "/status", &s); err != nil {
		return "", err
	}
	for _, f := range s.Factories {
		if f.Name == name && f.Applied != nil {
			return f.Applied.ApplyID, nil
		}
	}
	return "", exit.With(exit.NotFound, "factory %s serves nothing yet", name)
}

// pinned sets or ends the pin, and prints the apply that follows.
func pinned(c *cobra.Command, cl *Client, method string, req any) error {
	name, err := cl.only(c.Context())
	if err != nil {
		return err
	}
	what, ask := "applying the pinned commit", (func(context.Context) string)(nil)
	if method == http.MethodDelete { // which reads the repository
		what, ask = "applying the newest commit", cl.look(name)
	}
	shown := term.ShowProgress(c, what, ask)
	defer shown.End()
	var a api.Apply
	if err := cl.Call(c.Context(), method, "/factories/"+url.PathEscape(name)+"/pin", req, &a); err != nil {
		return err
	}
	shown.End()
	if err := term.Emit(c, a, []string{a.ID}, func(w io.Writer) error { return printApply(w, a) }); err != nil {
		return err
	}
	if a.Outcome != "applied" {
		return exit.Silently(exit.Bad)
	}
	return nil
}

// parseUntil reads a time, or a duration from now.
func parseUntil(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, exit.With(exit.Usage, "--until %s: a time such as 2026-01-31T18:00:00Z, or 2h from now", text)
}
