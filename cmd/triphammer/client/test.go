package client

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/cmd/triphammer/client/tree"
	"triphammer/factory"
	"triphammer/schema"
)

var testFormats = []string{"text", "json", "junit"}

func testCommand() *cobra.Command {
	o := &treeOptions{}
	c := &cobra.Command{
		Use:   "test [PATH]",
		Short: "Run the filter tests in tests/",
		Long:  `Run the filter tests of the working tree in PATH: for each payload, which automations would start. It exits with 1 if any test fails.`,
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return runTests(c, o, PathArgument(args)) },
	}
	c.Flags().StringVar(&o.rev, "rev", "", "test a commit (branch, tag, hash) instead of the working tree")
	o.formatFlag(c, testFormats)
	return c
}

func runTests(c *cobra.Command, o *treeOptions, dir string) error {
	if err := checkRev(c, o.rev); err != nil {
		return err
	}
	r, err := tree.Open(c.Context(), dir, o.rev)
	if err != nil {
		return err
	}
	defer r.Release()
	f, report, err := factory.Load(c.Context(), r.FS, factory.Options{})
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	if report.Diagnostics.HasErrors() {
		_ = schema.Print(c.ErrOrStderr(), "text", report, schema.PrintOptions{Prefix: r.Prefix, Source: r.Source})
		return exit.With(exit.Usage, "the definitions are not valid: nothing was tested")
	}
	results, failed := f.RunTests(), 0
	for _, t := range results {
		if !t.Passed {
			failed++
		}
	}
	out := c.OutOrStdout()
	switch o.format {
	case "text":
		for _, t := range results {
			printTest(out, r.Prefix, t)
		}
		fmt.Fprintf(out, "%d of %d tests pass\n", len(results)-failed, len(results))
	case "json":
		err = term.WriteJSON(out, testsShown(r.Prefix, results))
	case "junit":
		var cases []schema.Case
		for _, t := range results {
			one := schema.Case{Class: r.Prefix + t.Path, Name: t.Name}
			if !t.Passed {
				one.Failure = fmt.Sprintf("%s:%d: %s", one.Class, t.Line, t.Failure())
			}
			cases = append(cases, one)
		}
		err = schema.WriteJUnit(out, "triphammer test", cases)
	default:
		return exit.With(exit.Usage, "--format %s: it can be %s", o.format, strings.Join(testFormats, ", "))
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		return exit.Silently(exit.Bad)
	}
	return nil
}

func printTest(w io.Writer, prefix string, t factory.TestResult) {
	if t.Passed {
		fmt.Fprintf(w, "ok    %s\n", t.Name)
		return
	}
	fmt.Fprintf(w, "FAIL  %s  (%s%s:%d)\n", t.Name, prefix, t.Path, t.Line)
	for line := range strings.Lines(t.Failure()) {
		fmt.Fprintf(w, "      %s\n", strings.TrimRight(line, "\n"))
	}
}

// testShown is a filter test in `test --format json`.
type testShown struct {
	Name    string   `json:"name"`
	Path    string   `json:"path"`
	Line    int      `json:"line"`
	Passed  bool     `json:"passed"`
	Failure string   `json:"failure,omitempty"`
	Expect  []string `json:"expect"`
	Got     []string `json:"got"`
}

func testsShown(prefix string, results []factory.TestResult) []testShown {
	all := make([]testShown, len(results))
	for i, t := range results {
		all[i] = testShown{
			Name: t.Name, Path: prefix + t.Path, Line: t.Line, Passed: t.Passed, Expect: append([]string{}, t.Expect...), Got: append([]string{}, t.Got...),
		}
		if !t.Passed {
			all[i].Failure = t.Failure()
		}
	}
	return all
}
