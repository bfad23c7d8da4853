// Package settings has what commands know of the settings of a server: the groups of their flags, and
// the variables and files that fill flags.
package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
)

// The groups of the settings of a server.
const (
	Served   = "What it serves"
	Listen   = "Where it listens"
	People   = "Who may come in"
	Runs     = "Runs"
	Walls    = "Walls"
	Limits   = "Limits"
	Store    = "Store"
	Messages = "Telling others"
)

// Group is a group of settings that answer one question. --help, the manual, the
// variables, `config show` and docs/operating.md have the groups in the order of Groups.
type Group struct{ Name, about string }

// Groups are all groups.
var Groups = []Group{
	{Served, "the repository of the definitions, and how the server reads it"},
	{Listen, "the address, and how senders and people reach it"},
	{People, "how people sign in to the pages"},
	{Runs, "how many run, where, with which harness, and how long their workspaces stay"},
	{Walls, "what a run can reach and use"},
	{Limits, "what senders, runs and money are limited to"},
	{Store, "where the server keeps what it knows, and for how long"},
	{Messages, "who hears of commits and ended runs"},
}

// Usual are those that --help shows without --all.
var Usual = []string{
	"repo", "hosted", "config", "listen", "base-url", "tls-cert", "tls-key", "oidc-issuer", "max-runs", "isolation", "data", "store",
}

// groupAnnotation is the annotation of a flag with the name of its group.
const groupAnnotation = "triphammer_group"

// In adds the flags that add makes to a group of settings.
func In(f *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	own := pflag.NewFlagSet(group, pflag.ContinueOnError)
	add(own)
	own.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations == nil {
			flag.Annotations = make(map[string][]string)
		}
		if GroupOf(flag) == "" {
			flag.Annotations[groupAnnotation] = []string{group}
		}
	})
	own.SortFlags = false // AddFlagSet keeps this order
	f.SortFlags = false
	f.AddFlagSet(own)
}

// GroupOf is the group of a setting; empty: the flag is no setting of a server.
func GroupOf(f *pflag.Flag) string {
	if group := f.Annotations[groupAnnotation]; len(group) > 0 {
		return group[0]
	}
	return ""
}

// Among are the settings among some flags, in the order of the groups, and in each as they
// were added.
func Among(flags *pflag.FlagSet) (all []*pflag.Flag) {
	flags.VisitAll(func(f *pflag.Flag) {
		if GroupOf(f) != "" {
			all = append(all, f)
		}
	})
	slices.SortStableFunc(all, func(a, b *pflag.Flag) int { return groupPlace(a) - groupPlace(b) })
	return all
}

func groupPlace(f *pflag.Flag) int {
	return slices.IndexFunc(Groups, func(g Group) bool { return g.Name == GroupOf(f) })
}

// Help makes --help of a command show its usual settings, and with --all each of them.
func Help(c *cobra.Command) {
	c.Flags().Bool("all", false, "with --help: show every setting")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if all, _ := c.Flags().GetBool("all"); all {
			return exit.With(exit.Usage, "--all goes with --help: %s --help --all", c.CommandPath())
		}
		return nil
	}
}

// Usages is what --help says of the flags of a command.
func Usages(c *cobra.Command) string {
	flags := c.LocalFlags()
	settings := Among(flags)
	if len(settings) == 0 {
		return flags.FlagUsages()
	}
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if GroupOf(f) == "" {
			own.AddFlag(f)
		}
	})
	var b strings.Builder
	b.WriteString(own.FlagUsages())
	all, _ := flags.GetBool("all")
	for _, group := range Groups {
		shown, more := pflag.NewFlagSet(group.Name, pflag.ContinueOnError), 0
		shown.SortFlags = false
		for _, f := range settings {
			switch {
			case GroupOf(f) != group.Name || f.Hidden:
			case all || slices.Contains(Usual, f.Name):
				shown.AddFlag(f)
			default:
				more++
			}
		}
		if shown.HasFlags() || more > 0 {
			fmt.Fprintf(&b, "\n%s: %s\n%s", group.Name, group.about, shown.FlagUsages())
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

// StoreFlags are the flags of whatever can make a store that several servers share.
func StoreFlags(f *pflag.FlagSet, address, file *string) {
	f.StringVar(address, "store", "",
		"PostgreSQL database that keeps what the server knows, for several servers at once: postgres://USER@HOST/DATABASE (default: a file in the data directory)")
	f.StringVar(file, "store-file", "", "file with the address of --store, if it has a password")
}

// GivenStore tells whether a flag of a command names a shared store.
func GivenStore(c *cobra.Command) bool {
	return c.Flags().Changed("store") || c.Flags().Changed("store-file")
}

// FromEnvironment fills flags that were not given, first from TRIPHAMMER_* variables and
// then from the configuration file (SPEC 12). With names, it fills only these flags. That
// matters for an agent that calls a command: its variable TRIPHAMMER_WEBHOOK is not meant
// as --webhook.
func FromEnvironment(flags *pflag.FlagSet, file map[string]string, names ...string) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || len(names) > 0 && !slices.Contains(names, f.Name) {
			return
		}
		name := VariableOf(f)
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
			err = exit.With(exit.Usage, "%s: %w", source, setErr)
		}
	})
	return err
}

// VariableOf is the name of the variable for a flag.
func VariableOf(f *pflag.Flag) string {
	return "TRIPHAMMER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// TargetFlags are the flags that name a server. Of their variables, an earlier one wins.
var TargetFlags = []string{"server", "data", "context"}
