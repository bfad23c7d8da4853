// Package client is the command line. There is one file for each command, or for each noun of
// commands. They share root.go (the tree of commands), client.go (how a command reaches a server)
// and target.go (which server it means).
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"triphammer/cmd/triphammer/client/help"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/schema"
)

// Version is the version of this program; main sets it.
var Version = "dev"

// Execute runs a command on a host, and returns its exit status (SPEC 3.4).
func Execute(host Host, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := NewRoot(host)
	root.SetArgs(args)
	root.SetOut(term.Standard(os.Stdout))
	root.SetErr(term.Standard(os.Stderr))
	refuseOtherShells(root)
	c, err := root.ExecuteContextC(ctx)
	if err != nil {
		err = plainMistake(c, err)
	}
	status := exit.Report(root.ErrOrStderr(), err)
	if log, ok := root.ErrOrStderr().(interface{ End() }); ok { // the log of a server
		log.End()
	}
	return status
}

// NewRoot builds the tree of commands.
func NewRoot(host Host) *cobra.Command {
	here = host
	root := &cobra.Command{
		Use:   "triphammer",
		Short: "Events start coding agents, and you can always say why one did or did not",
		Long: `Triphammer serves webhooks and automations that are files in a Git repository.
Each accepted delivery starts an agent run for every automation whose filter it matches.

Begin with:  triphammer init demo && cd demo && triphammer dev`,
		Version:       Version,
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
	add("definitions", initCommand(), validateCommand(), testCommand(), planCommand(), schemaCommand())
	add("server", here.Commands()...)
	add("server", statusCommand(), openCommand(), statsCommand(), applyCommand(), sendCommand(), samplesCommand(), mcpCommand(), apiCommand(), connectCommand(), contextCommand(), authCommand(), clockCommand())
	add("objects", factoriesCommand(), webhooksCommand(), automationsCommand(), environmentsCommand(), agentsCommand(), deliveriesCommand(), runsCommand(), inboxCommand(), subjectsCommand(), workersCommand(), schedulesCommand(),
		appliesCommand(), definitionCommand(), secretsCommand(), keysCommand(), auditCommand(), schemesCommand())
	serve, _, _ := root.Find([]string{"serve"}) // it was added above
	root.AddCommand(versionCommand(), help.ManCommand(Version, Exactly("DIR")), help.VariablesCommand(serve.Flags()),
		&cobra.Command{Use: "exit-codes", Short: "What the exit statuses mean", Long: exit.Topic})
	addCompletion(root)
	for _, c := range root.Commands() {
		c.Aliases = append(c.Aliases, aliasesOf(root, c)...)
	}
	term.ColourFlag(root)
	root.Args = cobra.ArbitraryArgs
	root.RunE = withoutCommand
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			if found, rest, err := root.Find(args); err == nil && found == root && len(rest) > 0 {
				return withoutCommand(root, rest)
			}
			return nil
		}
	}
	cobra.AddTemplateFunc("flagUsages", settings.Usages)
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), ".LocalFlags.FlagUsages", "flagUsages .", 1))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.With(exit.Usage, "%s (see: %s --help)", flagMistake(c, err), c.CommandPath())
	})
	return root
}

// flagMistake says what is wrong with a flag that was given, in words.
func flagMistake(c *cobra.Command, err error) string {
	unknown, invalid := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil)
	switch {
	case errors.As(err, &unknown) && c.Flags().Lookup("output") != nil && slices.Contains([]string{"json", "format"}, unknown.GetSpecifiedName()):
		return fmt.Sprintf("%v; did you mean -o json?", err)
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1:
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := schema.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Sprintf("%v; did you mean --%s?", err, near)
		}
	case errors.As(err, &invalid):
		wants := map[string]string{
			"int": "a whole number", "int64": "a whole number", "float64": "a number", "duration": "a duration, such as 90s, 5m, 2h30m or 7d", "bool": "true or false",
		}[invalid.GetFlag().Value.Type()]
		if wants != "" {
			return fmt.Sprintf("--%s %q: it takes %s", invalid.GetFlag().Name, invalid.GetValue(), wants)
		}
		return fmt.Sprintf("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return err.Error()
}

// flagGroup finds the flags in what cobra says of a group of them.
var flagGroup = regexp.MustCompile(`flags in the group \[([^\]]*)\]`)

// argumentMistake is how what cobra says of the arguments of a command begins.
var argumentMistake = regexp.MustCompile(`^(accepts |requires at least )`)

// extraArgument finds the first argument of a command that takes none.
var extraArgument = regexp.MustCompile(`^unknown command "(.*)" for `)

// plainMistake says in words what cobra says of arguments, and of flags that need or exclude each
// other.
func plainMistake(c *cobra.Command, err error) error {
	if said := (*exit.Error)(nil); errors.As(err, &said) {
		return err
	}
	if extra := extraArgument.FindStringSubmatch(err.Error()); extra != nil {
		return exit.With(exit.Usage, "%s takes no arguments, and got %q: see %s --help", strings.TrimPrefix(c.CommandPath(), "triphammer "), extra[1], c.CommandPath())
	}
	if argumentMistake.MatchString(err.Error()) {
		return exit.With(exit.Usage, "wrong number of arguments: write %s (see: %s --help)", strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
	}
	found := flagGroup.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	flags := "--" + strings.Join(strings.Fields(found[1]), ", --")
	if strings.HasPrefix(err.Error(), "at least one") {
		return exit.With(exit.Usage, "give one of %s", flags)
	}
	return exit.With(exit.Usage, "give one alone of %s", flags)
}

// refuseOtherShells makes the command completion refuse a shell for which there is no script.
func refuseOtherShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args, c.RunE = cobra.ArbitraryArgs, withoutCommand
	}
}

// Noun makes a command that only groups other commands.
func Noun(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: withoutCommand}
	c.AddCommand(commands...)
	return c
}

// withoutCommand is run if what follows a noun is no command.
func withoutCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 && !c.HasParent() {
		return nextHere(c)
	}
	if len(args) == 0 {
		return c.Help()
	}
	if near := meant(c, args); near != "" {
		return exit.With(exit.Usage, "unknown command %q: did you mean %q? See: %s --help", args[0], near, c.CommandPath())
	}
	return exit.With(exit.Usage, "unknown command %q; see: %s --help", args[0], c.CommandPath())
}

// elsewhere are words of gh, flux, stripe, kubectl, docker and woodpecker-cli, with the commands that do the same
// here: of the noun before the word, or of the program.
var elsewhere = map[string][]string{
	"view": {"show"}, "get": {"show"}, "describe": {"show"}, "status": {"show", "whoami"}, "ls": {"list"}, "ps": {"runs list"}, "history": {"list", "definition history"},
	"add": {"create"}, "new": {"create", "init"}, "rm": {"delete", "revoke", "remove"}, "remove": {"delete", "revoke"}, "delete": {"revoke", "remove"},
	"stop": {"cancel", "disable"}, "rerun": {"retry"}, "download": {"artifacts"}, "resend": {"replay", "deliveries replay"}, "redeliver": {"replay", "deliveries replay"},
	"logs": {"runs logs"}, "tail": {"deliveries tail"}, "listen": {"deliveries tail"}, "events": {"deliveries list"}, "trigger": {"send", "run"}, "browse": {"open"},
	"login": {"auth login"}, "logout": {"auth logout"}, "whoami": {"auth whoami"}, "suspend": {"pause"}, "reconcile": {"apply"}, "sync": {"apply"},
	"check": {"validate"}, "lint": {"validate"}, "diff": {"plan"}, "rollback": {"pin", "definition pin"}, "trace": {"deliveries explain"}, "start": {"retry", "serve"}, "backup": {"db backup"}, "restore": {"db restore"},
	"pipeline": {"runs"}, "cron": {"schedules"}, "info": {"show"}, "kill": {"cancel"}, "queue": {"runs list"}, "approve": {"inbox approve"}, "decline": {"inbox decline"},
}

// meant is the command below c that the words after it may have meant, as it is written after c:
// by another program's word, with the verb before the noun, or with a typo. It is empty if
// nothing is near.
func meant(c *cobra.Command, args []string) string {
	for _, word := range append([]string{args[0]}, elsewhere[args[0]]...) {
		if found, rest, err := c.Find(strings.Fields(word)); err == nil && found != c && len(rest) == 0 {
			return strings.TrimPrefix(found.CommandPath(), c.CommandPath()+" ")
		}
	}
	if len(args) > 1 {
		if noun, _, err := c.Find(args[1:2]); err == nil && noun != c && noun.HasSubCommands() {
			verb := args[0]
			if verb == "get" && len(args) == 2 { // kubectl and flux list so
				verb = "list"
			}
			if verb = meant(noun, []string{verb}); verb != "" {
				return noun.Name() + " " + verb
			}
		}
	}
	of := make(map[string]string)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			for _, name := range append(sub.Aliases, sub.Name()) {
				of[name] = sub.Name()
			}
		}
	}
	return of[schema.Nearest(args[0], slices.Sorted(maps.Keys(of)))]
}

// nextHere says what to do next in this folder, with the server that commands reach from it.
func nextHere(root *cobra.Command) error {
	out := root.OutOrStdout()
	say := func(heading string, steps ...string) {
		fmt.Fprintf(out, "%s\n", heading)
		for _, step := range steps {
			command, does, _ := strings.Cut(step, ": ")
			fmt.Fprintf(out, "  triphammer %-32s %s\n", command, does)
		}
		fmt.Fprintln(out)
	}
	status, _, err := root.Find([]string{"status"})
	if err != nil {
		return err
	}
	t, err := TargetOf(status)
	if err != nil {
		return err
	}
	info, err := os.Stat("factory.yaml")
	factory := err == nil && !info.IsDir()
	if factory {
		say("This folder is a factory.", "validate: check its definitions", "test: run its filter tests", "dev: serve it here, and show what happens")
	}
	switch {
	case !t.None():
		say(fmt.Sprintf("Commands reach %s, by %s.", cmp.Or(t.server, t.Data), t.by), "status: what serves, and what is wrong", "deliveries list: what came", "runs list: what it started", "open: the pages")
	case !factory:
		say("Nothing is here yet, and no server is named.", "init demo: write a small factory into the folder demo; then: cd demo && triphammer dev", "context add NAME --server URL: save a server that runs elsewhere")
	}
	_, err = fmt.Fprintln(out, "triphammer help lists all commands.")
	return err
}

// shortNames are aliases that are no singular.
var shortNames = map[string][]string{"environments": {"env"}}

// aliasesOf are other names of a noun: its singular, unless that is a verb.
func aliasesOf(root, c *cobra.Command) []string {
	if !c.HasSubCommands() {
		return nil
	}
	var all []string
	name, plural := strings.CutSuffix(c.Name(), "s")
	if stem, is := strings.CutSuffix(name, "ie"); is {
		name = stem + "y"
	}
	if plural && !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) }) {
		all = append(all, name)
	}
	return append(all, shortNames[c.Name()]...)
}

// Exactly is cobra.ExactArgs with an error that names the arguments.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return exit.With(exit.Usage, "%s needs %s: see %s --help", strings.TrimPrefix(c.CommandPath(), "triphammer "), strings.Join(names, " and "), c.CommandPath())
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(c.OutOrStdout(), "triphammer", Version)
		return err
	}}
}
