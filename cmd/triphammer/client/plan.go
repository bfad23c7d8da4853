package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/cmd/triphammer/client/tree"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// planOptions are the flags of plan.
type planOptions struct {
	rev, against string
	deliveries   int
	exitCode     bool
}

func planCommand() *cobra.Command {
	o := &planOptions{}
	c := &cobra.Command{
		Use:   "plan [PATH]",
		Short: "What applying the working tree would change",
		Long: `Say what applying the definitions in PATH (the folder that holds factory.yaml; default: this one) would create,
update and delete, and call out what gives senders or agents more than they had.

They are compared with HEAD, or with the commit of --against, offline. With --server or --data they are compared with
what that server serves: it also checks that secrets and UIDs exist, and evaluates the newest deliveries of each
webhook by both, so that you see how many runs each changed automation would have started before and after.`,
		Example: `  triphammer plan
  triphammer plan --against main --exit-code
  triphammer plan --server https://hammer.example.com --deliveries 200
  triphammer plan --server https://hammer.example.com -o markdown > comment.md`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return plan(c, o, PathArgument(args)) },
	}
	c.Flags().StringVar(&o.rev, "rev", "", "plan a commit (branch, tag, hash) instead of the working tree")
	c.Flags().StringVar(&o.against, "against", "", "commit (branch, tag, hash) to compare with (default HEAD)")
	c.Flags().IntVar(&o.deliveries, "deliveries", 50, "with a server: how many of the newest deliveries of each webhook to evaluate")
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with 3 if anything would change")
	ClientFlags(c)
	c.MarkFlagsMutuallyExclusive("against", "server")
	c.MarkFlagsMutuallyExclusive("against", "data")
	c.MarkFlagsMutuallyExclusive("against", "context")
	term.OutputFlag(c, "markdown")
	return c
}

func plan(c *cobra.Command, o *planOptions, dir string) error {
	answer, prefix, err := planned(c, o, dir)
	if err != nil {
		return err
	}
	var names []string
	for _, group := range PlanGroups(&answer.Plan) {
		for _, change := range group.Changes {
			names = append(names, change.Path)
		}
	}
	format := term.OutputOf(c)
	switch {
	case format == "markdown":
		err = writePlanMarkdown(c.OutOrStdout(), answer, prefix)
	case !answer.Valid && (term.IsTable(c) || format == "name"):
		// Print no plan. The findings below say why it would be refused.
	default:
		err = term.Emit(c, answer, names, func(w io.Writer) error { return printPlanned(w, answer) })
	}
	if err != nil {
		return err
	}
	if !answer.Valid {
		_ = schema.Print(c.ErrOrStderr(), "text", &schema.Report{Diagnostics: answer.Findings()}, schema.PrintOptions{Prefix: prefix})
		return exit.With(exit.Bad, "the definitions are not valid: they would be refused")
	}
	if o.exitCode && answer.Plan.Pending() {
		return exit.Silently(exit.Pending)
	}
	return nil
}

// planned compares a folder with the definitions that a server serves, or with a commit.
func planned(c *cobra.Command, o *planOptions, dir string) (answer *api.PlanAnswer, prefix string, err error) {
	if err := checkRev(c, o.rev); err != nil {
		return nil, "", err
	}
	r, err := tree.Open(c.Context(), dir, o.rev)
	if err != nil {
		return nil, "", err
	}
	defer r.Release()
	read := applier.NewRecorder(r.FS)
	next, err := buildTree(c.Context(), read)
	if err != nil {
		return nil, "", err
	}
	answer = &api.PlanAnswer{
		Answer: schema.NewAnswer(&schema.Report{SchemaVersion: schema.Version, Diagnostics: next.Diagnostics, Deferred: next.Deferred}, false),
		Plan:   applier.Diff(nil, nil), BackTests: []applier.BackTest{},
	}
	switch {
	case !answer.Valid:
		return answer, r.Prefix, nil
	case asksServer(c):
		cl, err := Connect(c, false)
		if err != nil {
			return nil, "", err
		}
		defer cl.Close()
		answer, err = cl.propose(c.Context(), read.Snapshot(), o.deliveries)
		if err == nil && cl.Offline {
			fmt.Fprintln(c.ErrOrStderr(), OfflineNotice)
		}
		return answer, r.Prefix, err
	}
	answer.Against = cmp.Or(o.against, "HEAD")
	old, err := tree.Open(c.Context(), dir, answer.Against)
	if errors.Is(err, gitrepo.ErrNoFolder) { // a new factory
		answer.Plan = applier.Diff(nil, next.Revision)
		return answer, r.Prefix, nil
	}
	if err != nil {
		return nil, "", err
	}
	defer old.Release()
	before, err := buildTree(c.Context(), applier.NewRecorder(old.FS))
	if err != nil {
		return nil, "", err
	}
	if before.Revision == nil && !slices.ContainsFunc(before.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == schema.MissingFactory }) {
		return nil, "", exit.With(exit.Usage, "the definitions of %s are not valid: there is nothing to compare with", answer.Against)
	}
	answer.Plan = applier.Diff(before.Revision, next.Revision)
	return answer, r.Prefix, nil
}

// buildTree makes a revision of a tree without a server, so it has no secrets and invented
// UIDs.
func buildTree(ctx context.Context, tree *applier.Recorder) (*applier.Built, error) {
	built, err := applier.Build(ctx, applier.BuildInput{Factory: FactoryName, Tree: tree})
	if err != nil {
		return nil, exit.With(exit.Usage, "%w", err)
	}
	return built, nil
}

type planGroup struct {
	verb, Sign string
	Changes    []applier.Change
}

// PlanGroups are the changes of a plan, in the order in which people read them.
func PlanGroups(p *applier.Plan) []planGroup {
	return []planGroup{{"create", "+", p.Create}, {"update", "~", p.Update}, {"delete", "-", p.Delete}}
}

func printPlanned(w io.Writer, a *api.PlanAnswer) error {
	printPlan(w, a.Plan)
	for _, d := range a.Findings() {
		if d.Code == schema.MissingSecret {
			fmt.Fprintf(w, "  ! %s: %s\n", d.Path, d.Message)
		}
	}
	for _, b := range a.BackTests {
		fmt.Fprintf(w, "  back-test: %s\n", backTestLine(b))
	}
	against := "an empty factory (nothing serves yet)"
	if a.Against != "" {
		against = term.ShortHash(a.Against)
	}
	_, err := fmt.Fprintln(w, planSummary(&a.Plan), "since", against)
	return err
}

func planSummary(p *applier.Plan) string {
	return fmt.Sprintf("%d to create, %d to update, %d to delete, %d unchanged", len(p.Create), len(p.Update), len(p.Delete), len(p.Unchanged))
}

// printPlan lists the changes of a plan or of an apply.
func printPlan(w io.Writer, p applier.Plan) {
	for _, group := range PlanGroups(&p) {
		for _, change := range group.Changes {
			fmt.Fprintf(w, "  %s %s %s %s\n", group.Sign, group.verb, change.Kind, change.Name)
			for _, v := range change.Values {
				fmt.Fprintf(w, "      %s: %s -> %s\n", v.Key, cmp.Or(v.Before, "-"), cmp.Or(v.After, "-"))
			}
		}
	}
	for _, call := range p.Callouts {
		fmt.Fprintf(w, "  ! %s %s: %s\n", call.Kind, call.Name, call.Message)
	}
}

func backTestLine(b applier.BackTest) string {
	line := fmt.Sprintf("%s would have started %s on the last %s (%d before)",
		b.Automation, terms.Counted(b.After, "run"), terms.Counted(b.Deliveries, "delivery"), b.Before)
	if b.Waits > 0 {
		line += fmt.Sprintf("; %d of them would wait for a person", b.Waits)
	}
	if b.Assumed != "" {
		line += "; " + b.Assumed
	}
	if len(b.Started) > 0 {
		line += "; new: " + strings.Join(b.Started, ", ")
	}
	if len(b.Stopped) > 0 {
		line += "; no longer: " + strings.Join(b.Stopped, ", ")
	}
	return line
}

// writePlanMarkdown writes a plan as a comment of a pull request.
func writePlanMarkdown(w io.Writer, a *api.PlanAnswer, prefix string) error {
	text := schema.Markdown
	summary := "not valid, nothing would be applied"
	if a.Valid {
		summary = planSummary(&a.Plan)
	}
	fmt.Fprintf(w, "### Plan: %s\n", summary)
	if findings := a.Findings(); len(findings) > 0 {
		fmt.Fprintln(w)
		if err := schema.WriteFindings(w, findings, schema.PrintOptions{Prefix: prefix}); err != nil {
			return err
		}
	}
	if len(a.Plan.Callouts) > 0 {
		fmt.Fprint(w, "\n**Look twice:**\n\n")
		for _, call := range a.Plan.Callouts {
			fmt.Fprintf(w, "- %s %s: %s\n", call.Kind, text(call.Name), text(call.Message))
		}
	}
	if a.Plan.Pending() {
		fmt.Fprint(w, "\n| | what | name | changes |\n| --- | --- | --- | --- |\n")
		for _, group := range PlanGroups(&a.Plan) {
			for _, change := range group.Changes {
				keys := terms.Each(change.Values, func(v applier.ValueChange) string {
					return fmt.Sprintf("%s: %s → %s", v.Key, cmp.Or(v.Before, "-"), cmp.Or(v.After, "-"))
				})
				fmt.Fprintf(w, "| %s | %s | %s | %s |\n", group.verb, change.Kind, text(change.Name), text(strings.Join(keys, "; ")))
			}
		}
	}
	if len(a.BackTests) > 0 {
		fmt.Fprint(w, "\n| automation | deliveries | runs before | runs after | examples |\n| --- | --- | --- | --- | --- |\n")
		for _, b := range a.BackTests {
			examples := terms.Each(b.Started, func(id string) string { return "+ " + id })
			for _, id := range b.Stopped {
				examples = append(examples, "- "+id)
			}
			if b.Waits > 0 {
				examples = append(examples, fmt.Sprintf("%d would wait for a person", b.Waits))
			}
			if b.Assumed != "" {
				examples = append(examples, b.Assumed)
			}
			fmt.Fprintf(w, "| %s | %d | %d | %d | %s |\n", text(b.Automation), b.Deliveries, b.Before, b.After, strings.Join(examples, ", "))
		}
	}
	return nil
}
