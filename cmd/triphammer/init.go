package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed template
var templates embed.FS

func initCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Write a small factory to begin with",
		Long: `Write a small factory into a new or empty folder, as a Git repository with one commit: a webhook, an automation, an
environment with a demonstration agent that needs no account, and a filter test.`,
		Args: exactly("DIR"),
		RunE: func(c *cobra.Command, args []string) error { return initFactory(c, args[0]) },
	}
	c.Flags().Bool("yes", false, "ask nothing (there is nothing to ask yet)")
	return c
}

func initFactory(c *cobra.Command, dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exitWith(exitUsage, "%w", err)
	case len(entries) > 0:
		return exitWith(exitConflict, "%s is not empty; name a new folder", dir)
	}
	if err := errors.Join(writeTemplate(dir), writeSchemas(filepath.Join(dir, schemaFolder))); err != nil {
		return exitWith(exitUsage, "writing the factory: %w", err)
	}
	if err := firstCommit(dir); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), `Wrote a factory to %s: a Git repository with one commit.

Next:
  cd %s
  triphammer dev        # serve it here, send it one delivery, run its agent
`, dir, dir)
	return nil
}

func writeTemplate(dir string) error {
	return fs.WalkDir(templates, "template", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, strings.TrimPrefix(strings.TrimPrefix(name, "template"), "/"))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		if d.Name() == "gitignore" {
			target = filepath.Join(dir, ".gitignore")
		}
		return os.WriteFile(target, text, 0o644)
	})
}

// firstCommit makes the folder a repository with one commit. It also works for a user who
// has not configured a name for git.
func firstCommit(dir string) error {
	git := func(args ...string) error {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, os.Environ()
		if args[0] == "commit" && !knowsAuthor(dir) {
			name, address := userName(), strings.ReplaceAll(userName(), " ", "-")+"@localhost"
			cmd.Env = append(cmd.Env, "GIT_AUTHOR_NAME="+name, "GIT_AUTHOR_EMAIL="+address, "GIT_COMMITTER_NAME="+name, "GIT_COMMITTER_EMAIL="+address)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return exitWith(exitUsage, "git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
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
