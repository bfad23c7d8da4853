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
	"triphammer/server/terms"
)

func schemesCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the senders whose signatures this server verifies", Args: cobra.NoArgs,
		Long: `List the senders whose signatures this server verifies. A likely scheme is known from one implementation alone, or disputed in a
detail; the others are certain.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return term.EmitList(c, terms.Each(signature.All(), api.ShowScheme), func(s api.SignatureScheme) string { return s.Name },
				[]string{"NAME", "PROVIDER", "CERTAINTY", "ALGORITHM", "PROOF STANDS IN", "NAMED BY"}, func(s api.SignatureScheme) term.Cells {
					headers := s.Headers
					if len(headers) > 2 {
						headers = append(headers[:2:2], "…")
					}
					return term.Cells{s.Name, term.Prose(s.Provider), term.Prose(s.Certainty), term.Prose(s.Algorithm), term.Prose(strings.Join(headers, ", ")), term.Prose(strings.Join(s.Identity, ", "))}
				})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a signature scheme", Args: Exactly("NAME"),
		Long:              "Show a signature scheme: where the sender's webhook is set up, how it signs, and how this is known.",
		ValidArgsFunction: cobra.FixedCompletions(signature.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE:              func(c *cobra.Command, args []string) error { return showOneScheme(c, args[0]) },
	}
	term.OutputFlag(list)
	term.OutputFlag(show)
	return Noun("schemes", "Signature schemes of webhooks", list, show)
}

func showOneScheme(c *cobra.Command, name string) error {
	found, ok := signature.Lookup(name)
	if !ok {
		hint := cmp.Or(schema.OneOf(name, signature.Names()), "triphammer schemes list has them")
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
