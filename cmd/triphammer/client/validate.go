package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/api"
)

// treeOptions are the flags of commands that read a tree on this machine.
type treeOptions struct {
	rev, format string
	strict, all bool
}

func validateCommand() *cobra.Command {
	o := &treeOptions{}
	c := &cobra.Command{
		Use:   "validate [PATH...]",
		Short: "Check definitions, as the server will",
		Long: `Check the definitions in PATH (the folder that holds factory.yaml; default: this one) with the code that the server
runs. It needs no server, network or configuration. It exits with 0 if they are valid, with 1 if not, and with 2 if
it could not check.

With --server (or --data) that server also says whether the secrets and UIDs that they name exist. Then it exits as
every command that asks a server: with 4 if the key is refused, with 7 if the server does not answer.`,
		Example: `  triphammer validate
  triphammer validate --rev HEAD~1 --format github
  triphammer validate --all .            # every factory in the repository
  triphammer validate --server https://hammer.example.com`,
		RunE: func(c *cobra.Command, args []string) error { return validate(c, o, args) },
	}
	c.Flags().StringVar(&o.rev, "rev", "", "check a commit (branch, tag, hash) instead of the working tree")
	c.Flags().BoolVar(&o.strict, "strict", false, "the format's own verdict, without this server's extensions")
	c.Flags().BoolVar(&o.all, "all", false, "check every folder below PATH that holds a factory.yaml")
	o.formatFlag(c, schema.Formats)
	ClientFlags(c)
	c.MarkFlagsMutuallyExclusive("strict", "server")
	c.MarkFlagsMutuallyExclusive("strict", "data")
	c.MarkFlagsMutuallyExclusive("strict", "context")
	return c
}

func (o *treeOptions) formatFlag(c *cobra.Command, formats []string) {
	c.Flags().StringVar(&o.format, "format", "text", strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// PathArgument is the folder that the arguments of a command name, or else this one.
func PathArgument(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

func validate(c *cobra.Command, o *treeOptions, paths []string) error {
	if err := checkRev(c, o.rev); err != nil {
		return err
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	var roots []Folder
	defer func() {
		for _, r := range roots {
			r.release()
		}
	}()
	for _, dir := range paths {
		r, err := openTree(c, dir, o.rev)
		if err != nil {
			return err
		}
		if o.format != "text" && o.format != "json" {
			r.prefix = inRepository(dir, r.prefix)
		}
		roots = append(roots, r)
		if !o.all {
			continue
		}
		below, err := factoriesBelow(r)
		if err != nil {
			return exit.With(exit.Usage, "%w", err)
		}
		if len(below) == 0 {
			return exit.With(exit.Usage, "no folder of %s holds a factory.yaml", dir)
		}
		roots[len(roots)-1] = below[0]
		roots = append(roots, below[1:]...)
	}
	reports := make([]*schema.Report, len(roots))
	for i, r := range roots {
		report, err := check(c, r, o.strict)
		if err != nil {
			return err
		}
		reports[i] = report
	}
	// With one factory, paths are relative to it, and the printer adds the prefix. With
	// several, merged adds the prefix to tell them apart.
	report, opt := reports[0], schema.PrintOptions{Version: Version, Prefix: roots[0].prefix, Source: roots[0].Source}
	if len(roots) > 1 {
		report, opt = merged(roots, reports), schema.PrintOptions{Version: Version, Source: func(name string) []byte {
			for _, r := range roots {
				if rest, ok := strings.CutPrefix(name, r.prefix); ok {
					if text := r.Source(rest); text != nil {
						return text
					}
				}
			}
			return nil
		}}
	}
	if err := schema.Print(c.OutOrStdout(), o.format, report, opt); err != nil {
		return exit.With(exit.Usage, "--format: %w", err)
	}
	if o.format == "github" {
		if err := writeStepSummary(report, opt); err != nil {
			return exit.With(exit.Usage, "the step summary: %w", err)
		}
	}
	if report.Diagnostics.HasErrors() {
		return exit.Silently(exit.Bad)
	}
	return nil
}

// check validates one factory, on this machine and with --server also on that server.
func check(c *cobra.Command, r Folder, strict bool) (*schema.Report, error) {
	read := applier.NewRecorder(r.Tree)
	_, report, err := factory.Load(c.Context(), read, factory.Options{Strict: strict})
	if err != nil {
		return nil, exit.With(exit.Usage, "%w", err)
	}
	if !asksServer(c) || report.Diagnostics.HasErrors() {
		return report, nil
	}
	cl, err := Connect(c, false)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	answer, err := cl.propose(c.Context(), read.Snapshot(), 0)
	if err != nil {
		return nil, err
	}
	if cl.Offline {
		fmt.Fprintln(c.ErrOrStderr(), OfflineNotice)
	}
	report.Diagnostics, report.Deferred, report.Checked = answer.Findings(), answer.Deferred, true
	return report, nil
}

// asksServer tells whether a flag names a server, for a command that needs none. Variables
// do not count, so that `validate` gives the same answer on every machine.
func asksServer(c *cobra.Command) bool {
	return c.Flags().Changed("server") || c.Flags().Changed("data") || c.Flags().Changed("context")
}

// propose asks the server what an apply of a tree would do.
func (cl *Client) propose(ctx context.Context, tree applier.Snapshot, deliveries int) (*api.PlanAnswer, error) {
	factory, err := cl.only(ctx)
	if err != nil {
		return nil, err
	}
	req := api.DefinitionFiles{Files: []api.DefinitionFile{}}
	for _, f := range tree.Files {
		content, encoding := api.EncodeContent(f.Data)
		req.Files = append(req.Files, api.DefinitionFile{Path: f.Path, Content: &content, Encoding: encoding, Executable: f.Executable})
	}
	var answer api.PlanAnswer
	err = cl.Call(ctx, "POST", fmt.Sprintf("/factories/%s/plan?deliveries=%d", factory, deliveries), req, &answer)
	return &answer, err
}

func merged(roots []Folder, reports []*schema.Report) *schema.Report {
	all := &schema.Report{SchemaVersion: schema.Version}
	for i, report := range reports {
		all.Partial, all.Checked = all.Partial || report.Partial, report.Checked
		prefix := roots[i].prefix
		for _, name := range report.Files {
			all.Files = append(all.Files, prefix+name)
		}
		for _, d := range report.Diagnostics {
			d.Path = prefix + d.Path
			all.Diagnostics = append(all.Diagnostics, d)
		}
		for _, d := range report.Deferred {
			d.Path = prefix + d.Path
			all.Deferred = append(all.Deferred, d)
		}
	}
	all.Diagnostics.Sort()
	return all
}

func writeStepSummary(report *schema.Report, opt schema.PrintOptions) error {
	name := os.Getenv("GITHUB_STEP_SUMMARY")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(schema.WriteStepSummary(f, report, opt), f.Close())
}

// Folder is a folder of definitions, in the working tree or in a commit.
type Folder struct {
	Tree    fs.FS
	prefix  string // the folder within its repository, or the given one; ends in a slash
	release func()
}

// Source reads a file of the folder; nil if the file cannot be read.
func (r Folder) Source(name string) []byte {
	text, err := fs.ReadFile(r.Tree, name)
	if err != nil {
		return nil
	}
	return text
}

// checkRev refuses an empty --rev, because it usually comes from an unset variable of a
// script.
func checkRev(c *cobra.Command, rev string) error {
	if rev == "" && c.Flags().Changed("rev") {
		return exit.With(exit.Usage, "--rev is empty: name a commit, or leave it out for the working tree")
	}
	return nil
}

// openTree opens the definitions in a folder. With rev, the folder need not exist any more.
func openTree(c *cobra.Command, dir, rev string) (Folder, error) {
	if rev != "" {
		repo, folder, err := repositoryOf(dir)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		commit, err := repo.Commit(c.Context(), rev)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		tree, err := repo.Tree(c.Context(), commit.Hash, folder)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		return Folder{tree, slashed(folder), func() {}}, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return Folder{}, exit.With(exit.Usage, "%w", err)
	}
	if !info.IsDir() {
		return Folder{}, exit.With(exit.Usage, "%s is not a folder: name the one that holds factory.yaml", dir)
	}
	w, err := gitrepo.OpenWorkTree(dir)
	if err != nil {
		return Folder{}, exit.With(exit.Usage, "%w", err)
	}
	return Folder{w.FS(), slashed(filepath.Clean(dir)), func() { _ = w.Close() }}, nil
}

// repositoryOf finds the repository of a folder, and the path of the folder in it. It
// follows links in the part of the path that exists. The rest may exist only in a commit,
// or in a bare repository.
func repositoryOf(dir string) (repo *gitrepo.Repo, folder string, err error) {
	there, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	for rest := ""; ; there = filepath.Dir(there) {
		target, err := filepath.EvalSymlinks(there)
		if err == nil {
			there = filepath.Join(target, rest)
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
		rest = filepath.Join(filepath.Base(there), rest)
	}
	if repo, err = gitrepo.Open(there, "main"); err != nil {
		return nil, "", err
	}
	folder, err = filepath.Rel(repo.Root(), there)
	return repo, filepath.ToSlash(folder), err
}

// inRepository is the path of a folder in its repository. Services name files by that
// path, wherever the job ran. Outside of a repository, it is the given path.
func inRepository(dir, asked string) string {
	_, folder, err := repositoryOf(dir)
	if err != nil {
		return asked
	}
	return slashed(folder)
}

func slashed(dir string) string {
	if dir == "." {
		return ""
	}
	return path.Clean(filepath.ToSlash(dir)) + "/"
}

// factoriesBelow finds the factories in a folder, including the folder itself and those inside
// another factory. It does not look into hidden folders and node_modules.
func factoriesBelow(r Folder) ([]Folder, error) {
	var found []Folder
	err := fs.WalkDir(r.Tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "node_modules") {
			return fs.SkipDir
		}
		entries, err := fs.ReadDir(r.Tree, name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == "factory.yaml" {
				sub, err := fs.Sub(r.Tree, name)
				if err != nil {
					return err
				}
				found = append(found, Folder{sub, r.prefix + slashed(name), func() {}})
				break
			}
		}
		return nil
	})
	if len(found) > 0 {
		found[0].release = r.release
	}
	return found, err
}
