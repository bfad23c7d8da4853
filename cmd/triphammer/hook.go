package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/inert"
)

// hookOptions are the flags of the hook commands.
type hookOptions struct {
	branch, folder string
	strict         bool
}

func hookCommand() *cobra.Command {
	var o hookOptions // shared, because only one of the commands runs
	install := &cobra.Command{
		Use:   "install REPO",
		Short: "Refuse pushes of definitions that are not valid",
		Long: `Install a pre-receive hook in the bare repository REPO: it checks what is pushed to the production branch with the
code that the server runs, and refuses the push with the findings if it is not valid. Other branches are not looked at.`,
		Args: exactly("REPO"),
		RunE: func(c *cobra.Command, args []string) error { return o.install(c, args[0]) },
	}
	receive := &cobra.Command{
		Use:   "pre-receive",
		Short: "Check a push: git runs this",
		Long: `Check what is pushed, as git's pre-receive hook: each line of standard input names the old commit, the new one and the
ref. It exits with 1, which refuses the push, if the definitions are not valid or cannot be read.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.receive(c) },
	}
	for _, c := range []*cobra.Command{install, receive} {
		c.Flags().StringVar(&o.branch, "branch", "main", "production branch")
		c.Flags().StringVar(&o.folder, "path", ".", "folder of the factory in the repository")
		c.Flags().BoolVar(&o.strict, "strict", false, "the format's own verdict, without this server's extensions")
	}
	return noun("hook", "Check definitions where they are pushed", install, receive)
}

const hookMark = "# Installed by triphammer hook install."

func (o *hookOptions) install(c *cobra.Command, dir string) error {
	hooks := filepath.Join(dir, "hooks")
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		hooks = filepath.Join(dir, ".git", "hooks")
	} else if _, err := os.Stat(filepath.Join(dir, "objects")); err != nil {
		return exitWith(exitUsage, "%s is no Git repository", dir)
	}
	program, err := os.Executable()
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	// A hook with a wrong branch would let everything pass, or nothing.
	repo, err := gitrepo.Open(dir, o.branch)
	if err != nil {
		return exitWith(exitUsage, "--branch: %w", err)
	}
	if _, err := repo.Head(c.Context()); errors.Is(err, gitrepo.ErrUnsupported) {
		return exitWith(exitUsage, "%w", err)
	}
	if !fs.ValidPath(path.Clean(o.folder)) {
		return exitWith(exitUsage, "--path %s: name a folder of the repository, such as factory", o.folder)
	}
	command := []string{gitrepo.ShellQuote(program), "hook", "pre-receive", "--branch", gitrepo.ShellQuote(o.branch), "--path", gitrepo.ShellQuote(o.folder)}
	if o.strict {
		command = append(command, "--strict")
	}
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s\n", hookMark, strings.Join(command, " "))
	if used := usedHooks(c, dir); used != "" && used != hooks {
		return exitWith(exitConflict, "git runs the hooks of %s here (core.hooksPath); call this from the pre-receive there:\n  %s",
			used, strings.Join(command, " "))
	}
	name := filepath.Join(hooks, "pre-receive")
	switch there, err := os.ReadFile(name); {
	case err == nil && !strings.Contains(string(there), hookMark):
		return exitWith(exitConflict, "%s exists and is not ours; call this from it:\n  %s", name, strings.Join(command, " "))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exitWith(exitUsage, "%w", err)
	}
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if err := os.Chmod(name, 0o755); err != nil { // a file that existed has kept its mode
		return exitWith(exitUsage, "%w", err)
	}
	fmt.Fprintf(c.OutOrStdout(), "Installed %s: pushes to %s are checked.\n", name, o.branch)
	return nil
}

// usedHooks is the folder whose hooks git runs; empty if git does not tell.
func usedHooks(c *cobra.Command, dir string) string {
	out, err := exec.CommandContext(c.Context(), "git", "-C", dir, "rev-parse", "--git-path", "hooks").Output()
	used := strings.TrimSuffix(string(out), "\n")
	if err != nil || filepath.IsAbs(used) {
		return used
	}
	return filepath.Join(dir, used)
}

func (o *hookOptions) receive(c *cobra.Command) error {
	const heads = "refs/heads/"
	branch := strings.TrimPrefix(o.branch, heads)
	scanner, pushed, other := bufio.NewScanner(c.InOrStdin()), "", ""
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		switch {
		case len(fields) != 3 || strings.Trim(fields[1], "0") == "":
		case fields[2] == heads+branch:
			pushed = fields[1]
		case strings.HasPrefix(fields[2], heads):
			other = strings.TrimPrefix(fields[2], heads)
		}
	}
	if err := scanner.Err(); err != nil {
		return exitWith(exitBad, "reading what is pushed: %w", err)
	}
	if pushed == "" { // another branch, or a deletion, after which a server keeps serving
		if other != "" {
			fmt.Fprintf(c.ErrOrStderr(), "%s is kept, and nothing of it is checked or applied: the branch that serves is %s\n", inert.Text(other), branch)
		}
		return nil
	}
	view, err := incoming()
	if err != nil {
		return exitWith(exitBad, "%w", err)
	}
	defer func() { _ = os.RemoveAll(view) }()
	repo, err := gitrepo.Open(view, o.branch)
	if err != nil {
		return exitWith(exitBad, "%w", err)
	}
	r, err := openCommit(c, repo, pushed, o.folder)
	if errors.Is(err, gitrepo.ErrNoFolder) {
		r, err = root{tree: applier.Snapshot{}.FS(), prefix: slashed(o.folder)}, nil // an empty tree, without factory.yaml
	}
	if err != nil {
		return exitWith(exitBad, "the definitions of %s cannot be read: %w", shortHash(pushed), err)
	}
	_, report, err := factory.Load(c.Context(), r.tree, factory.Options{Strict: o.strict})
	if err != nil {
		return exitWith(exitBad, "%w", err)
	}
	// git shows standard error to the user who pushes.
	if err := schema.Print(c.ErrOrStderr(), "text", report, schema.PrintOptions{Prefix: r.prefix, Source: r.source}); err != nil {
		return exitWith(exitBad, "%w", err)
	}
	if report.Diagnostics.HasErrors() {
		return silently(exitBad)
	}
	return nil
}

// incoming makes a temporary repository that has the objects of a push. Until the hook has
// agreed, git keeps new objects in a separate folder, and names all folders of objects in
// the environment of the hook (git-receive-pack, "Quarantine Environment").
func incoming() (dir string, err error) {
	own := os.Getenv("GIT_OBJECT_DIRECTORY")
	if own == "" {
		return "", errors.New("git names no folder of objects: this is run by git, as a pre-receive hook")
	}
	own = filepath.Clean(own)
	// In the folder next to the new objects, they can be linked instead of copied. If this
	// process cannot remove the folder, git gc does, because it knows names of this form.
	if dir, err = os.MkdirTemp(filepath.Dir(own), "tmp_objdir-incoming-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	objects := filepath.Join(dir, "objects")
	if err := linkTree(own, objects); err != nil {
		return "", err
	}
	var alternates strings.Builder
	for _, lender := range filepath.SplitList(os.Getenv("GIT_ALTERNATE_OBJECT_DIRECTORIES")) {
		lender, err := filepath.Abs(lender)
		if err != nil {
			return "", err
		}
		for _, folder := range lenders(lender, maxLenders) {
			fmt.Fprintln(&alternates, folder)
		}
	}
	for name, text := range map[string]string{
		"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n", "refs/heads/.keep": "",
		"objects/info/alternates": alternates.String(),
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// maxLenders is how many levels of borrowed objects git itself follows.
const maxLenders = 5

// lenders are a folder of objects and the folders from which it borrows objects
// (gitrepository-layout, "objects/info/alternates").
func lenders(objects string, deep int) []string {
	found := []string{objects}
	text, err := os.ReadFile(filepath.Join(objects, "info", "alternates"))
	if err != nil || deep == 0 {
		return found // most folders borrow nothing
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(objects, line)
		}
		found = append(found, lenders(line, deep-1)...)
	}
	return found
}

// linkTree makes hard links to the files of a folder in another folder.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(name, from))
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return os.Link(name, target)
	})
}
