package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot builds the tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "triphammer",
		Short: "Events start coding agents, and you can always say why one did or did not",
		Long: `Triphammer serves webhooks and automations that are files in a Git repository.
Each accepted delivery starts an agent run for every automation that wants it.

Begin with:  triphammer init demo && cd demo && triphammer dev`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("triphammer {{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: "definitions", Title: "Definitions:"},
		&cobra.Group{ID: "server", Title: "Server:"},
		&cobra.Group{ID: "objects", Title: "What the server holds:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("definitions", initCommand(), validateCommand(), testCommand(), planCommand(), hookCommand(), schemaCommand())
	add("server", devCommand(), serveCommand(), statusCommand(), statsCommand(), applyCommand(), doctorCommand(), dbCommand(),
		sendCommand(), samplesCommand(), mcpCommand(), configCommand(), authCommand(), clockCommand())
	add("objects", factoriesCommand(), webhooksCommand(), automationsCommand(), environmentsCommand(), agentsCommand(), deliveriesCommand(), runsCommand(), schedulesCommand(),
		appliesCommand(), definitionCommand(), secretsCommand(), keysCommand(), auditCommand(), schemesCommand())
	root.AddCommand(versionCommand(), demoAgentCommand(), &cobra.Command{Use: "exit-codes", Short: "What the exit statuses mean", Long: exitTopic})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exitWith(exitUsage, "%w (see: %s --help)", err, c.CommandPath())
	})
	return root
}

// noun makes a command that only groups other commands.
func noun(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exitWith(exitUsage, "unknown command %q; see: %s --help", args[0], c.CommandPath())
			}
			return c.Help()
		},
	}
	c.AddCommand(commands...)
	return c
}

// exactly is cobra.ExactArgs with an error that names the arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return exitWith(exitUsage, "%s takes %s; see: %s --help", c.CommandPath(), strings.Join(names, " and "), c.CommandPath())
	}
}

// fromEnvironment fills flags that were not given, first from TRIPHAMMER_* variables and
// then from the configuration file (SPEC 12). With names, it fills only these flags. That
// matters for an agent that calls a command: its variable TRIPHAMMER_WEBHOOK is not meant
// as --webhook.
func fromEnvironment(flags *pflag.FlagSet, file map[string]string, names ...string) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || len(names) > 0 && !slices.Contains(names, f.Name) {
			return
		}
		name := variableOf(f)
		value, ok := os.LookupEnv(name)
		source := name
		if !ok {
			value, ok = file[f.Name]
			source = "the configuration file"
		}
		if !ok {
			return
		}
		if setErr := flags.Set(f.Name, value); setErr != nil {
			err = exitWith(exitUsage, "%s: %w", source, setErr)
		}
	})
	return err
}

// variableOf is the name of the variable for a flag.
func variableOf(f *pflag.Flag) string {
	return "TRIPHAMMER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(c.OutOrStdout(), "triphammer", version)
		return err
	}}
}
