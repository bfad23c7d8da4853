package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/schema"
	"triphammer/server"
)

func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan [PATH]",
		Short: "What applying the working tree would change",
		Long: `Compare the working tree in PATH (the folder that holds factory.yaml; default: this one) with a commit of its
repository: what would be created, updated and deleted. The commit is that of --against; or, with --server or --data,
the one which that server has applied; or else HEAD.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return plan(c, pathArgument(args)) },
	}
	c.Flags().String("against", "", "commit (branch, tag, hash) to compare with")
	c.Flags().Bool("exit-code", false, "exit with 3 if anything would change")
	clientFlags(c)
	outputFlag(c)
	return c
}

func plan(c *cobra.Command, dir string) error {
	against, err := planBase(c)
	if err != nil {
		return err
	}
	next, err := buildTree(c, dir, "")
	if err != nil {
		return err
	}
	before, err := buildTree(c, dir, against)
	if err != nil {
		return err
	}
	changes := applier.Diff(before, next)
	var names []string
	pending := false
	for _, group := range [][]applier.Change{changes.Create, changes.Update, changes.Delete} {
		for _, change := range group {
			names, pending = append(names, change.Path), true
		}
	}
	if err := emit(c, changes, names, func(w io.Writer) error {
		printPlan(w, changes)
		_, err := fmt.Fprintf(w, "%d to create, %d to update, %d to delete, %d unchanged since %s\n",
			len(changes.Create), len(changes.Update), len(changes.Delete), len(changes.Unchanged), against)
		return err
	}); err != nil {
		return err
	}
	if exitCode, _ := c.Flags().GetBool("exit-code"); exitCode && pending {
		return silently(exitPending)
	}
	return nil
}

// planBase is the commit to compare with.
func planBase(c *cobra.Command) (string, error) {
	if against, _ := c.Flags().GetString("against"); against != "" {
		return against, nil
	}
	if !c.Flags().Changed("server") && !c.Flags().Changed("data") {
		return "HEAD", nil
	}
	cl, err := connect(c, false)
	if err != nil {
		return "", err
	}
	defer cl.close()
	var s server.Status
	if err := cl.get(c.Context(), "/status", &s); err != nil {
		return "", err
	}
	if len(s.Factories) != 1 || s.Factories[0].Applied == nil {
		return "", exitWith(exitNotFound, "that server has applied nothing yet; name a commit: --against REV")
	}
	return s.Factories[0].Applied.Commit, nil
}

// buildTree makes a revision of a folder as it is, or as it is in a commit, as
// far as that goes without a server: with no secrets and with made-up UIDs.
func buildTree(c *cobra.Command, dir, rev string) (*applier.Revision, error) {
	tree, prefix, release, err := openTree(c, dir, rev)
	if err != nil {
		return nil, err
	}
	defer release()
	built, err := applier.Build(c.Context(), applier.BuildInput{
		Factory: factoryName, Tree: tree,
		UIDs: func(_ context.Context, names []string) (map[string]string, error) {
			uids := make(map[string]string, len(names))
			for _, name := range names {
				uids[name] = name
			}
			return uids, nil
		},
	})
	switch {
	case err != nil:
		return nil, exitWith(exitUsage, "%w", err)
	case built.Revision != nil:
		return built.Revision, nil
	case rev != "":
		return nil, exitWith(exitUsage, "the definitions of %s are not valid: there is nothing to compare with", rev)
	}
	_ = schema.Print(c.ErrOrStderr(), "text", &schema.Report{Diagnostics: built.Diagnostics}, schema.PrintOptions{Prefix: prefix})
	return nil, exitWith(exitBad, "the definitions are not valid: they would be refused")
}

func printPlan(w io.Writer, p applier.Plan) {
	for _, group := range []struct {
		verb    string
		changes []applier.Change
	}{{"create", p.Create}, {"update", p.Update}, {"delete", p.Delete}} {
		for _, change := range group.changes {
			fmt.Fprintf(w, "  %s %s %s", group.verb, change.Kind, change.Name)
			if len(change.Keys) > 0 {
				fmt.Fprintf(w, " %v", change.Keys)
			}
			fmt.Fprintln(w)
		}
	}
}
