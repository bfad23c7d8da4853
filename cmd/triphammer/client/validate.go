package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/tree"
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
	var roots []tree.Folder
	defer func() {
		for _, r := range roots {
			r.Release()
		}
	}()
	for _, dir := range paths {
		r, err := tree.Open(c.Context(), dir, o.rev)
		if err != nil {
			return err
		}
		if o.format != "text" && o.format != "json" {
			r.Prefix = tree.InRepository(dir, r.Prefix)
		}
		roots = append(roots, r)
		if !o.all {
			continue
		}
		below, err := tree.Below(r)
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
	report, opt := reports[0], schema.PrintOptions{Version: Version, Prefix: roots[0].Prefix, Source: roots[0].Source}
	if len(roots) > 1 {
		report, opt = merged(roots, reports), schema.PrintOptions{Version: Version, Source: func(name string) []byte {
			for _, r := range roots {
				if rest, ok := strings.CutPrefix(name, r.Prefix); ok {
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
func check(c *cobra.Command, r tree.Folder, strict bool) (*schema.Report, error) {
	read := applier.NewRecorder(r.FS)
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

func merged(roots []tree.Folder, reports []*schema.Report) *schema.Report {
	all := &schema.Report{SchemaVersion: schema.Version}
	for i, report := range reports {
		all.Partial, all.Checked = all.Partial || report.Partial, report.Checked
		prefix := roots[i].Prefix
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

// checkRev refuses an empty --rev, because it usually comes from an unset variable of a
// script.
func checkRev(c *cobra.Command, rev string) error {
	if rev == "" && c.Flags().Changed("rev") {
		return exit.With(exit.Usage, "--rev is empty: name a commit, or leave it out for the working tree")
	}
	return nil
}
