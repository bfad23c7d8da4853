package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/server/api"
)

func schemesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "schemes [NAME]", Short: "List the signature schemes of webhooks, or show one",
		Long: `List the senders whose signatures this server verifies, or show one: where its webhook is set up, how it signs, and how this is known.
A likely scheme is known from one implementation alone, or disputed in a detail; the others are certain.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exitWith(exitUsage, "%s takes one NAME at most", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(signature.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return showOneScheme(c, args[0])
			}
			var all []api.SignatureScheme
			for _, s := range signature.All() {
				all = append(all, api.ShowScheme(s))
			}
			return emitList(c, all, func(s api.SignatureScheme) string { return s.Name },
				[]string{"NAME", "PROVIDER", "CERTAINTY", "ALGORITHM", "PROOF STANDS IN", "NAMED BY"}, func(s api.SignatureScheme) cells {
					headers := s.Headers
					if len(headers) > 2 {
						headers = append(headers[:2:2], "…")
					}
					return cells{s.Name, prose(s.Provider), prose(s.Certainty), prose(s.Algorithm), prose(strings.Join(headers, ", ")), prose(strings.Join(s.Identity, ", "))}
				})
		},
	}
	outputFlag(c)
	return c
}

func showOneScheme(c *cobra.Command, name string) error {
	found, ok := signature.Lookup(name)
	if !ok {
		hint := cmp.Or(schema.OneOf(name, signature.Names()), "triphammer schemes lists them")
		return exitWith(exitNotFound, "there is no signature scheme %q; %s", name, hint)
	}
	s := api.ShowScheme(found)
	return emit(c, s, []string{s.Name}, func(out io.Writer) error {
		t := table{header: []string{"name", s.Name}}
		t.add("provider", s.Provider)
		t.add("certainty", s.Certainty)
		t.add("proof", found.Proof.Words())
		t.add("set up", s.Setup)
		t.add("proves itself", s.Method)
		t.add("time", found.TimeWords())
		t.add("named by", strings.Join(s.Identity, ", "))
		t.add("signature keys", strings.Join(s.Options, ", "))
		for _, ask := range s.Asks {
			t.add("asks", ask)
		}
		t.add("note", s.Note)
		t.add("documented at", s.Source)
		if err := t.write(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
		return printGuide(out, s.Guide)
	})
}

// guideMarks are the marks of an api.Guide, which a terminal does without.
var guideMarks = strings.NewReplacer("**", "", "`", "", "{url}", "URL", "{secret}", "SECRET")

func printGuide(out io.Writer, g api.Guide) error {
	for i, step := range g.Steps {
		fmt.Fprintf(out, "%2d. %s\n", i+1, guideMarks.Replace(step))
	}
	if g.First != "" {
		fmt.Fprintf(out, "\n%s\n", guideMarks.Replace(g.First))
	}
	return nil
}
