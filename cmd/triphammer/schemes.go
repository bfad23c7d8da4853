package main

import (
	"cmp"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/factory/signature"
	"triphammer/schema"
)

// scheme is an entry of schemes -o json (SPEC 13.4).
type scheme struct {
	Name      string   `json:"name"`
	Provider  string   `json:"provider"`
	Certainty string   `json:"certainty"` // certain, likely
	Proof     string   `json:"proof"`     // published, package, derived
	Source    string   `json:"source"`
	Algorithm string   `json:"algorithm"`
	Headers   []string `json:"headers"`
	Identity  []string `json:"identity_headers"`
	Seconds   int      `json:"tolerance_seconds"`
	BindsBody bool     `json:"binds_body"`
	Options   []string `json:"signature_keys"`
	Asks      []string `json:"asks"`
	Method    string   `json:"method"`
	Setup     string   `json:"setup"`
	Note      string   `json:"note"`
}

func showScheme(s *signature.Scheme) scheme {
	return scheme{
		s.Name, s.Provider, s.Certainty(), string(s.Proof), s.Source, string(s.Algorithm), append([]string{}, s.CredentialHeaders()...),
		append([]string{}, s.IdentityHeaders()...), int(s.Tolerance.Seconds()), s.BindsBody(), append([]string{}, s.Options...),
		append([]string{}, s.Asks()...), s.Method(), s.Setup, s.Note,
	}
}

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
			var all []scheme
			for _, s := range signature.All() {
				all = append(all, showScheme(s))
			}
			return emitList(c, all, func(s scheme) string { return s.Name },
				[]string{"NAME", "PROVIDER", "CERTAINTY", "ALGORITHM", "PROOF STANDS IN", "NAMED BY"}, func(s scheme) []string {
					headers := s.Headers
					if len(headers) > 2 {
						headers = append(headers[:2:2], "…")
					}
					return []string{s.Name, s.Provider, s.Certainty, s.Algorithm, strings.Join(headers, ", "), strings.Join(s.Identity, ", ")}
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
	s := showScheme(found)
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
		return t.write(out)
	})
}
