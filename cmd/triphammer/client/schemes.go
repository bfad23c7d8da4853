package client

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
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
				return exit.With(exit.Usage, "%s takes one NAME at most", c.CommandPath())
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
			return term.EmitList(c, all, func(s api.SignatureScheme) string { return s.Name },
				[]string{"NAME", "PROVIDER", "CERTAINTY", "ALGORITHM", "PROOF STANDS IN", "NAMED BY"}, func(s api.SignatureScheme) term.Cells {
					headers := s.Headers
					if len(headers) > 2 {
						headers = append(headers[:2:2], "…")
					}
					return term.Cells{s.Name, term.Prose(s.Provider), term.Prose(s.Certainty), term.Prose(s.Algorithm), term.Prose(strings.Join(headers, ", ")), term.Prose(strings.Join(s.Identity, ", "))}
				})
		},
	}
	term.OutputFlag(c)
	return c
}

func showOneScheme(c *cobra.Command, name string) error {
	found, ok := signature.Lookup(name)
	if !ok {
		hint := cmp.Or(schema.OneOf(name, signature.Names()), "triphammer schemes lists them")
		return exit.With(exit.NotFound, "there is no signature scheme %q; %s", name, hint)
	}
	s := api.ShowScheme(found)
	return term.Emit(c, s, []string{s.Name}, func(out io.Writer) error {
		t := term.Table{Header: []string{"name", s.Name}}
		t.Add("provider", s.Provider)
		t.Add("certainty", s.Certainty)
		t.Add("proof", found.Proof.Words())
		t.Add("set up", s.Setup)
		t.Add("proves itself", s.Method)
		t.Add("time", found.TimeWords())
		t.Add("named by", strings.Join(s.Identity, ", "))
		t.Add("signature keys", strings.Join(s.Options, ", "))
		for _, ask := range s.Asks {
			t.Add("asks", ask)
		}
		t.Add("note", s.Note)
		t.Add("documented at", s.Source)
		if err := t.Write(out); err != nil {
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
