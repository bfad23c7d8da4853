package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/schema"
	"triphammer/server/api"
)

// putCommand sends changed files to a hosted factory.
func putCommand() *cobra.Command {
	var req api.ChangeRequest
	var remove []string
	c := &cobra.Command{
		Use: "put [PATH[=FILE]…] [--remove PATH]", Short: "Change files of a factory whose repository lives on the server",
		Long: `Change files of a factory whose repository lives on the server: one commit in your name, which is checked and applied
at once. Nothing changes if the definitions would not be valid. PATH is from the folder that holds factory.yaml. The new
text is in the file of the same path here, or in FILE; - is standard input.

With --base COMMIT (the one that "definition show --newest" prints), the change is refused if somebody else has changed
the same files since.`,
		Args: cobra.ArbitraryArgs,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			req.Files = make(map[string]*string)
			for _, arg := range args {
				name, from, named := strings.Cut(arg, "=")
				if !named {
					from = name
				}
				name = path.Clean(filepath.ToSlash(name))
				text, err := newText(c, from)
				if err != nil {
					return err
				}
				req.Files[name] = &text
			}
			for _, name := range remove {
				if req.Files[name] != nil {
					return exit.With(exit.Usage, "%s is both put and removed", name)
				}
				req.Files[name] = nil
			}
			if len(req.Files) == 0 {
				return exit.With(exit.Usage, "which files? Name paths such as webhooks/ci.yaml, or --remove PATH")
			}
			return change(c, cl, req)
		}),
	}
	c.Flags().StringArrayVar(&remove, "remove", nil, "path of a file to remove")
	changeFlags(c, &req)
	c.Flags().StringVar(&req.Base, "base", "", "commit that you have seen")
	return c
}

// editCommand opens a file of a hosted factory in an editor.
func editCommand() *cobra.Command {
	var req api.ChangeRequest
	c := &cobra.Command{
		Use: "edit PATH", Short: "Edit a file of a factory whose repository lives on the server", Args: Exactly("PATH"),
		Long: `Open the newest text of a file in the editor (VISUAL or EDITOR), and commit what you have written, as "definition put" does.
If the definitions would not be valid, or somebody else has changed the file meanwhile, your text is kept in a file.`,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			name := path.Clean(filepath.ToSlash(args[0]))
			factory, err := cl.only(c.Context())
			if err != nil {
				return err
			}
			var list api.FactoryFiles
			if err := cl.Get(c.Context(), "/factories/"+url.PathEscape(factory)+"/files", &list); err != nil {
				return err
			}
			var file api.FileText // a new file is empty
			err = cl.Get(c.Context(), filePath(factory, name), &file)
			if e := (*exit.Error)(nil); err != nil && (!errors.As(err, &e) || e.Code != exit.NotFound) {
				return err
			}
			if file.Encoding != "" {
				return exit.With(exit.Usage, "%s is not text: change it with git", name)
			}
			text, kept, err := edited(c, path.Base(name), file.Content)
			if err != nil {
				return err
			}
			if text == file.Content {
				fmt.Fprintln(c.ErrOrStderr(), "Nothing has changed.")
				return os.RemoveAll(filepath.Dir(kept))
			}
			req.Base, req.Files = list.Commit, map[string]*string{name: &text}
			if file.Commit != "" {
				req.Base = file.Commit
			}
			if err := change(c, cl, req); err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "Your text is in %s\n", kept)
				return err
			}
			return os.RemoveAll(filepath.Dir(kept))
		}),
	}
	changeFlags(c, &req)
	return c
}

func changeFlags(c *cobra.Command, req *api.ChangeRequest) {
	c.Flags().StringVarP(&req.Message, "message", "m", "", "why; the message of the commit")
}

// filePath is where the newest text of a file is.
func filePath(factory, name string) string {
	return "/factories/" + url.PathEscape(factory) + "/files/" + url.PathEscape(name)
}

// newText reads the new text of a file. JSON can carry only UTF-8.
func newText(c *cobra.Command, from string) (string, error) {
	var text []byte
	var err error
	if from == "-" {
		text, err = io.ReadAll(io.LimitReader(c.InOrStdin(), schema.MaxFile+1))
	} else {
		text, err = os.ReadFile(from)
	}
	switch {
	case err != nil:
		return "", exit.With(exit.Usage, "%w", err)
	case !utf8.Valid(text):
		return "", exit.With(exit.Usage, "%s is not text in UTF-8: commit it with git", from)
	}
	return string(text), nil
}

// edited lets a person edit a text. kept is the file that has what they wrote.
func edited(c *cobra.Command, name, text string) (written, kept string, err error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
	if editor == "" {
		return "", "", exit.With(exit.Usage, "which editor? Set EDITOR, or write the file and use: triphammer definition put")
	}
	dir, err := os.MkdirTemp("", "triphammer-edit-")
	if err != nil {
		return "", "", err
	}
	kept = filepath.Join(dir, name)
	if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
		return "", "", err
	}
	// EDITOR may have arguments, as git and crontab allow.
	cmd := exec.CommandContext(c.Context(), "sh", "-c", editor+` "$1"`, "sh", kept)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", "", exit.With(exit.Bad, "the editor %s: %w", editor, err)
	}
	written, err = newText(c, kept)
	return written, kept, err
}

// change sends a change to the factory of --factory, and prints what came of it.
func change(c *cobra.Command, cl *Client, req api.ChangeRequest) error {
	factory, err := cl.only(c.Context())
	if err != nil {
		return err
	}
	var made api.Change
	if err := cl.Call(c.Context(), http.MethodPost, "/factories/"+url.PathEscape(factory)+"/changes", req, &made); err != nil {
		return explained(c, err)
	}
	if err := term.Emit(c, made, []string{made.Commit}, func(w io.Writer) error { return printChange(w, made) }); err != nil {
		return err
	}
	if !made.Live && !made.Unchanged {
		return exit.Silently(exit.Bad)
	}
	return nil
}

// explained prints what a problem of a change has beside its text: the findings, or what
// others changed.
func explained(c *cobra.Command, err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		return err
	}
	w := term.ForPeople(c, c.ErrOrStderr())
	if p.Verdict != nil {
		answer := schema.Answer(*p.Verdict)
		report := &schema.Report{SchemaVersion: schema.Version, Diagnostics: answer.Findings()}
		if printErr := schema.Print(w, "text", report, schema.PrintOptions{}); printErr != nil {
			return printErr
		}
		return exit.With(exit.Bad, "nothing has changed: the definitions would not be valid")
	}
	if p.Moved != nil {
		printEdits(w, p.Moved.Since)
	}
	return err
}

func printChange(w io.Writer, made api.Change) error {
	switch {
	case made.Unchanged:
		fmt.Fprintf(w, "nothing to change: %s is like this already\n", term.ShortHash(made.Commit))
	case made.Live:
		fmt.Fprintf(w, "committed %s, and it serves\n", term.ShortHash(made.Commit))
	default:
		fmt.Fprintf(w, "committed %s, but it does not serve: %s\n", term.ShortHash(made.Commit), made.Waits)
	}
	if len(made.Since) > 0 {
		fmt.Fprintln(w, "Others changed other files since, and the commit has that too:")
		printEdits(w, made.Since)
	}
	var plan applier.Plan
	if made.Apply != nil && made.Live && json.Unmarshal(made.Apply.Plan, &plan) == nil {
		PrintDiagnostics(w, made.Apply.Diagnostics)
		printPlan(w, plan)
	}
	return nil
}

// printEdits lists what others changed.
func printEdits(w io.Writer, all []api.FileEdit) {
	t := term.Table{List: true, Header: []string{"PATH", "COMMIT", "AT", "AUTHOR", "SUBJECT"}}
	for _, e := range all {
		t.Add(e.Path, term.ShortHash(e.Commit), e.Time, term.Prose(e.Author), term.Prose(e.Subject))
	}
	_ = t.Write(w) // what follows fails too
}

// printNewest lists the newest files of a factory, or prints one.
func printNewest(ctx context.Context, c *cobra.Command, cl *Client, file string) error {
	factory, err := cl.only(ctx)
	if err != nil {
		return err
	}
	if file != "" {
		var f api.FileText
		if err := cl.Get(ctx, filePath(factory, file), &f); err != nil {
			return err
		}
		return term.Emit(c, f, []string{f.Path}, func(io.Writer) error {
			data, err := api.DecodeContent(f.Content, f.Encoding)
			if err == nil {
				_, err = io.Copy(c.OutOrStdout(), bytes.NewReader(data)) // byte for byte
			}
			return err
		})
	}
	var list api.FactoryFiles
	if err := cl.Get(ctx, "/factories/"+url.PathEscape(factory)+"/files", &list); err != nil {
		return err
	}
	var names []string
	t := term.Table{List: true, Header: []string{"PATH", "SIZE"}}
	for _, f := range list.Files {
		names = append(names, f.Path)
		t.Add(f.Path, fmt.Sprint(f.Size))
	}
	return term.Emit(c, list, names, func(w io.Writer) error {
		fmt.Fprintf(w, "commit %s\n", list.Commit)
		return t.Write(w)
	})
}
