package client

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/examples"
	"triphammer/schema"
	"triphammer/server/terms"
)

//go:embed template
var templates embed.FS

func initCommand() *cobra.Command {
	example := ""
	c := &cobra.Command{
		Use:   "init DIR | init --example NAME [DIR]",
		Short: "Write a small factory to begin with, or an example",

		DisableFlagsInUseLine: true,

		Long: `Write a small factory into a new or empty folder, as a Git repository with one commit: a webhook, an automation, an
environment with a demonstration agent that needs no account, and a filter test.

With --example it is one of these, each with prompts, tests and a README that says what to set. DIR is then NAME, unless
you name another:

` + exampleTable(),
		Example: `  triphammer init demo
  triphammer init --example github-issue-triage`,
		Args: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("example") && len(args) == 0 {
				return nil
			}
			return Exactly("DIR")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("example") {
				return initFactory(c, args[0])
			}
			dir := example
			if len(args) > 0 {
				dir = args[0]
			}
			return initExample(c, example, dir)
		},
	}
	c.Flags().Bool("yes", false, "ask nothing (there is nothing to ask yet)")
	c.Flags().StringVar(&example, "example", "", "write this example")
	_ = c.RegisterFlagCompletionFunc("example", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		all := terms.Each(examples.All(), func(e examples.Example) string { return e.Name + "\t" + e.Description })
		return all, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// exampleTable is a line for each example.
func exampleTable() string {
	var b strings.Builder
	for _, e := range examples.All() {
		fmt.Fprintf(&b, "  %-20s %s\n", e.Name, e.Description)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func initFactory(c *cobra.Command, dir string) error {
	if err := writeFactory(dir, templates, "template"); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), `Wrote a factory to %s: a Git repository with one commit.

Next:
  cd %s
  triphammer dev        # serve it here, send it one delivery, and show what happens
`, dir, dir)
	return nil
}

func initExample(c *cobra.Command, name, dir string) error {
	names := terms.Each(examples.All(), func(e examples.Example) string { return e.Name })
	if !slices.Contains(names, name) {
		hint := ""
		if near := schema.Nearest(name, names); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return exit.With(exit.NotFound, "there is no example %q%s\n%s", name, hint, exampleTable())
	}
	if err := writeFactory(dir, examples.Files, name); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), `Wrote the example %s to %s: a Git repository with one commit.

Next:
  cd %s
  triphammer test       # what each payload in tests/ would start
  triphammer dev        # serve it here, send it one delivery, and show what happens
  cat README.md         # what to set for a sender and an agent of yours
`, name, dir, dir)
	return nil
}

// writeFactory writes the files below root into a new or empty folder, with what every
// factory begins with, and makes it a repository.
func writeFactory(dir string, files fs.FS, root string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Usage, "%w", err)
	case len(entries) > 0:
		return exit.With(exit.Conflict, "%s is not empty; name a new folder", dir)
	}
	err = errors.Join(writeTree(dir, files, root), writeSchemas(filepath.Join(dir, schemaFolder)), writeIgnore(dir))
	if err != nil {
		return exit.With(exit.Usage, "writing the factory: %w", err)
	}
	return firstCommit(dir)
}

func writeTree(dir string, files fs.FS, root string) error {
	return fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(name, root)))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
}

// writeIgnore keeps the data of dev out of the repository.
func writeIgnore(dir string) error {
	return os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("/.triphammer/\n"), 0o644)
}

// firstCommit makes the folder a repository with one commit. It also works for a user who
// has not configured a name for git.
func firstCommit(dir string) error {
	git := func(args ...string) error {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, os.Environ()
		if args[0] == "commit" && !knowsAuthor(dir) {
			name, address := UserName(), strings.ReplaceAll(UserName(), " ", "-")+"@localhost"
			cmd.Env = append(cmd.Env, "GIT_AUTHOR_NAME="+name, "GIT_AUTHOR_EMAIL="+address, "GIT_COMMITTER_NAME="+name, "GIT_COMMITTER_EMAIL="+address)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return exit.With(exit.Usage, "git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := git("init", "-q", "--initial-branch=main"); err != nil {
		return err
	}
	if err := git("add", "-A"); err != nil {
		return err
	}
	return git("commit", "-q", "-m", "A factory to begin with")
}

// knowsAuthor tells whether a name and an address for commits are configured, so that git
// does not guess them from the machine.
func knowsAuthor(dir string) bool {
	for _, who := range []string{"GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"} {
		cmd := exec.Command("git", "-c", "user.useConfigOnly=true", "var", who)
		cmd.Dir = dir
		if cmd.Run() != nil {
			return false
		}
	}
	return true
}
