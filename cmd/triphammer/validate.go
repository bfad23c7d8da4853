package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
)

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "validate [PATH]",
		Short: "Check definitions, as the server will",
		Long: `Check the definitions in PATH (the folder that holds factory.yaml; default: this one) with the code that the server
runs. It needs no server, network or configuration. It exits with 0 if they are valid, with 1 if not, and with 2 if
it could not check.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return validate(c, pathArgument(args)) },
	}
	c.Flags().String("rev", "", "check a commit (branch, tag, hash) instead of the working tree")
	c.Flags().Bool("strict", false, "the format's own verdict, without this server's extensions")
	c.Flags().String("format", "text", strings.Join(schema.Formats, ", "))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(schema.Formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func pathArgument(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

func validate(c *cobra.Command, dir string) error {
	rev, _ := c.Flags().GetString("rev")
	strict, _ := c.Flags().GetBool("strict")
	format, _ := c.Flags().GetString("format")
	tree, prefix, release, err := openTree(c, dir, rev)
	if err != nil {
		return err
	}
	defer release()
	_, report, err := factory.Load(c.Context(), tree, factory.Options{Strict: strict})
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	opt := schema.PrintOptions{Prefix: prefix, Version: version, Source: func(path string) []byte {
		text, _ := fs.ReadFile(tree, path) // without it the line is not shown
		return text
	}}
	if err := schema.Print(c.OutOrStdout(), format, report, opt); err != nil {
		return exitWith(exitUsage, "--format: %w", err)
	}
	if format == "github" {
		if err := writeStepSummary(report, opt); err != nil {
			return exitWith(exitUsage, "the step summary: %w", err)
		}
	}
	if report.Diagnostics.HasErrors() {
		return silently(exitBad)
	}
	return nil
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

// openTree opens the definitions in a folder: as they are, or as they are in a
// commit. The prefix is the folder within its repository, or what was asked for.
func openTree(c *cobra.Command, dir, rev string) (tree fs.FS, prefix string, release func(), err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, "", nil, exitWith(exitUsage, "%w", err)
	}
	if !info.IsDir() {
		return nil, "", nil, exitWith(exitUsage, "%s is not a folder: name the one that holds factory.yaml", dir)
	}
	if rev == "" {
		w, err := gitrepo.OpenWorkTree(dir)
		if err != nil {
			return nil, "", nil, exitWith(exitUsage, "%w", err)
		}
		return w.FS(), slashed(filepath.Clean(dir)), func() { _ = w.Close() }, nil
	}
	repo, err := gitrepo.Open(dir, "main")
	if err != nil {
		return nil, "", nil, exitWith(exitUsage, "%w", err)
	}
	commit, err := repo.Commit(c.Context(), rev)
	if err != nil {
		return nil, "", nil, exitWith(exitUsage, "--rev: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", nil, err
	}
	sub, err := filepath.Rel(repo.Root(), abs)
	if err != nil {
		return nil, "", nil, err
	}
	tree, err = repo.Tree(c.Context(), commit.Hash, filepath.ToSlash(sub))
	if err != nil {
		return nil, "", nil, exitWith(exitUsage, "%w", err)
	}
	return tree, slashed(sub), func() {}, nil
}

func slashed(dir string) string {
	if dir == "." {
		return ""
	}
	return path.Clean(filepath.ToSlash(dir)) + "/"
}

func testCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run the filter tests in tests/",
		Long:  `Run the filter tests of the working tree in PATH: for each payload, which automations would start. It exits with 1 if any test fails.`,
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return runTests(c, pathArgument(args)) },
	}
}

func runTests(c *cobra.Command, dir string) error {
	tree, prefix, release, err := openTree(c, dir, "")
	if err != nil {
		return err
	}
	defer release()
	f, report, err := factory.Load(c.Context(), tree, factory.Options{})
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if report.Diagnostics.HasErrors() {
		_ = schema.Print(c.ErrOrStderr(), "text", report, schema.PrintOptions{Prefix: prefix})
		return exitWith(exitUsage, "the definitions are not valid: nothing was tested")
	}
	out, failed := c.OutOrStdout(), 0
	results := f.RunTests()
	for _, r := range results {
		if r.Passed {
			fmt.Fprintf(out, "ok    %s\n", r.Name)
			continue
		}
		failed++
		fmt.Fprintf(out, "FAIL  %s  (%s%s:%d)\n", r.Name, prefix, r.Path, r.Line)
		if r.Problem != "" {
			fmt.Fprintf(out, "      %s\n", r.Problem)
			continue
		}
		fmt.Fprintf(out, "      - want %v\n      + got  %v\n", r.Expect, r.Got)
		for _, why := range r.Why {
			if why.Matched {
				fmt.Fprintf(out, "      %s: would trigger\n", why.Automation)
			} else {
				fmt.Fprintf(out, "      %s: would not trigger: %s: wanted %s, came %s\n", why.Automation, why.Path, why.Want, why.Got)
			}
		}
	}
	fmt.Fprintf(out, "%d of %d tests pass\n", len(results)-failed, len(results))
	if failed > 0 {
		return silently(exitBad)
	}
	return nil
}
