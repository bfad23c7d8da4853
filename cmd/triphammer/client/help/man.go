// Package help is the help of triphammer beside the commands' own: the variables, and manual pages.
package help

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
)

// ManCommand writes the manual pages that packages install. The text is that of --help, so
// there is one text to keep right.
func ManCommand(version string, args cobra.PositionalArgs) *cobra.Command {
	var date string
	c := &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command into a folder", Hidden: true, Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return exit.With(exit.Usage, "%w", err)
			}
			return writeManual(c.Root(), args[0], manual{date: date, version: version})
		},
	}
	c.Flags().StringVar(&date, "date", "", "the day that the pages name")
	return c
}

// manual is what all pages say.
type manual struct{ date, version string }

// writeManual writes the page of a command, and those of the commands below it.
func writeManual(c *cobra.Command, dir string, m manual) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), []byte(manPage(c, m)), 0o644); err != nil {
		return exit.With(exit.Bad, "%w", err)
	}
	for _, below := range c.Commands() {
		if err := writeManual(below, dir, m); err != nil {
			return err
		}
	}
	return nil
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command in the language of man(7).
func manPage(c *cobra.Command, m manual) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, ".SH %s\n", name) }
	fmt.Fprintf(&b, ".TH %q 1 %q %q %q\n", strings.ToUpper(manName(c)), m.date, "triphammer "+m.version, "Triphammer")
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", manText(manName(c)), manText(c.Short))
	section("SYNOPSIS")
	use := c.UseLine()
	if !c.Runnable() || c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, ".nf\n%s\n.fi\n", manText(use))
	if long := strings.TrimSpace(c.Long); long != "" {
		section("DESCRIPTION")
		// The text of --help has its lines broken where they mean something.
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", manText(long))
	}
	if c.HasAvailableSubCommands() {
		section("COMMANDS")
		for _, below := range c.Commands() {
			if !below.Hidden && below.Name() != "help" {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR(1)\n%s\n", manText(manName(below)), manText(below.Short))
			}
		}
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		section("OPTIONS")
		flags.VisitAll(func(f *pflag.Flag) {
			if settings.GroupOf(f) == "" {
				manFlag(&b, f)
			}
		})
		last := ""
		for _, f := range settings.Among(flags) {
			if group := settings.GroupOf(f); group != last {
				last = group
				fmt.Fprintf(&b, ".SS %s\n", manText(group))
			}
			manFlag(&b, f)
		}
	}
	if c.Example != "" {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", manText(strings.TrimRight(c.Example, "\n")))
	}
	section("SEE ALSO")
	see := `\fBtriphammer\fR(1), \fBtriphammer-exit-codes\fR(1)`
	if parent := c.Parent(); parent != nil && parent.HasParent() {
		see = fmt.Sprintf(`\fB%s\fR(1), %s`, manText(manName(parent)), see)
	}
	fmt.Fprintf(&b, "%s\n.PP\nThe guides: /usr/share/doc/triphammer/docs\n", see)
	return b.String()
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR", manText(name))
	if kind != "" {
		fmt.Fprintf(b, ` \fI%s\fR`, manText(kind))
	}
	fmt.Fprintf(b, "\n%s\n", manText(usage))
	switch f.DefValue {
	case "", "0", "[]", "false", "0s":
	default:
		fmt.Fprintf(b, "(default %s)\n", manText(f.DefValue))
	}
}

// manText is text without the signs that man(7) reads as its own, in ASCII.
func manText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > 127:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
