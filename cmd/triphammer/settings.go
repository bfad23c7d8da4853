package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of the settings of a server.
const (
	settingsServed   = "What it serves"
	settingsListen   = "Where it listens"
	settingsPeople   = "Who may come in"
	settingsRuns     = "Runs"
	settingsWalls    = "Walls"
	settingsLimits   = "Limits"
	settingsStore    = "Store"
	settingsMessages = "Telling others"
)

// settingGroup is a group of settings that answer one question. --help, the manual, the
// variables, `config show` and docs/operating.md have the groups in the order of settingGroups.
type settingGroup struct{ name, about string }

var settingGroups = []settingGroup{
	{settingsServed, "the repository of the definitions, and how the server reads it"},
	{settingsListen, "the address, and how senders and people reach it"},
	{settingsPeople, "how people sign in to the pages"},
	{settingsRuns, "how many run, where, with which harness, and how long their workspaces stay"},
	{settingsWalls, "what a run can reach and use"},
	{settingsLimits, "what senders, runs and money are limited to"},
	{settingsStore, "where the server keeps what it knows, and for how long"},
	{settingsMessages, "who hears of commits and ended runs"},
}

// usualSettings are those that --help shows without --all.
var usualSettings = []string{
	"repo", "hosted", "config", "listen", "base-url", "tls-cert", "tls-key", "oidc-issuer", "max-runs", "isolation", "data", "store",
}

// groupAnnotation is the annotation of a flag with the name of its group.
const groupAnnotation = "triphammer_group"

// inGroup adds the flags that add makes to a group of settings.
func inGroup(f *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	own := pflag.NewFlagSet(group, pflag.ContinueOnError)
	add(own)
	own.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations == nil {
			flag.Annotations = make(map[string][]string)
		}
		if groupOf(flag) == "" {
			flag.Annotations[groupAnnotation] = []string{group}
		}
	})
	own.SortFlags = false // AddFlagSet keeps this order
	f.SortFlags = false
	f.AddFlagSet(own)
}

// groupOf is the group of a setting; empty: the flag is no setting of a server.
func groupOf(f *pflag.Flag) string {
	if group := f.Annotations[groupAnnotation]; len(group) > 0 {
		return group[0]
	}
	return ""
}

// inGroups are the settings among some flags, in the order of the groups, and in each as they
// were added.
func inGroups(flags *pflag.FlagSet) (all []*pflag.Flag) {
	flags.VisitAll(func(f *pflag.Flag) {
		if groupOf(f) != "" {
			all = append(all, f)
		}
	})
	slices.SortStableFunc(all, func(a, b *pflag.Flag) int { return groupPlace(a) - groupPlace(b) })
	return all
}

func groupPlace(f *pflag.Flag) int {
	return slices.IndexFunc(settingGroups, func(g settingGroup) bool { return g.name == groupOf(f) })
}

// helpInGroups makes --help of a command show its usual settings, and with --all each of them.
func helpInGroups(c *cobra.Command) {
	c.Flags().Bool("all", false, "with --help: show every setting")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if all, _ := c.Flags().GetBool("all"); all {
			return exitWith(exitUsage, "--all goes with --help: %s --help --all", c.CommandPath())
		}
		return nil
	}
}

// flagUsages is what --help says of the flags of a command.
func flagUsages(c *cobra.Command) string {
	flags := c.LocalFlags()
	settings := inGroups(flags)
	if len(settings) == 0 {
		return flags.FlagUsages()
	}
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if groupOf(f) == "" {
			own.AddFlag(f)
		}
	})
	var b strings.Builder
	b.WriteString(own.FlagUsages())
	all, _ := flags.GetBool("all")
	for _, group := range settingGroups {
		shown, more := pflag.NewFlagSet(group.name, pflag.ContinueOnError), 0
		shown.SortFlags = false
		for _, f := range settings {
			switch {
			case groupOf(f) != group.name || f.Hidden:
			case all || slices.Contains(usualSettings, f.Name):
				shown.AddFlag(f)
			default:
				more++
			}
		}
		if shown.HasFlags() || more > 0 {
			fmt.Fprintf(&b, "\n%s: %s\n%s", group.name, group.about, shown.FlagUsages())
		}
		if more > 0 {
			fmt.Fprintf(&b, "      and %d more\n", more)
		}
	}
	if !all {
		fmt.Fprintf(&b, "\nAll of them: %s --help --all", c.CommandPath())
	}
	return b.String()
}

// storeFlags are the flags of whatever can make a store that several servers share.
func storeFlags(f *pflag.FlagSet, address, file *string) {
	f.StringVar(address, "store", "",
		"PostgreSQL database that keeps what the server knows, for several servers at once: postgres://USER@HOST/DATABASE (default: a file in the data directory)")
	f.StringVar(file, "store-file", "", "file with the address of --store, if it has a password")
}

// givenStore tells whether a flag of a command names a shared store.
func givenStore(c *cobra.Command) bool {
	return c.Flags().Changed("store") || c.Flags().Changed("store-file")
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
