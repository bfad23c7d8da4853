package client

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/server/terms"
)

// FindSample finds a sample of a provider, which is a signature scheme or the name by which triggers know
// the sender. If event is empty, it is the first one.
func FindSample(provider, event string) (signature.Sample, error) {
	if sender := native.ByProvider(provider); sender != nil {
		provider = sender.Schemes[0]
	}
	for _, s := range signature.SamplesOf(provider) {
		if event == "" || s.Event == event {
			return s, nil
		}
	}
	events := sampleEvents(provider)
	if len(events) == 0 {
		return signature.Sample{}, exit.With(exit.NotFound, "there is no sample of %q; there are samples of %s", provider, strings.Join(sampleProviders(), ", "))
	}
	return signature.Sample{}, exit.With(exit.NotFound, "there is no sample of %s's event %q; there are %s", provider, event, strings.Join(events, ", "))
}

func sampleProviders() []string {
	return slices.Compact(terms.Each(signature.Samples(), func(s signature.Sample) string { return s.Provider }))
}

func sampleEvents(provider string) []string {
	return terms.Each(signature.SamplesOf(provider), func(s signature.Sample) string { return s.Event })
}

// subjectOf is what a sample is about; empty: its sender's events do not say so.
func subjectOf(s signature.Sample) string {
	sender := native.ByScheme(s.Provider)
	if sender == nil {
		return ""
	}
	headers := make(map[string]string)
	for name, value := range s.Headers {
		headers[http.CanonicalHeaderKey(name)] = value
	}
	p := sender.Read(native.Delivery{Header: headers, Body: s.Body})
	for _, e := range p.Events() {
		if subject := e.SubjectOf(p); subject != "" {
			return subject
		}
	}
	return ""
}

func samplesCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List sample payloads", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return term.EmitList(c, signature.Samples(), func(s signature.Sample) string { return s.Provider + " " + s.Event },
				[]string{"PROVIDER", "EVENT", "SIZE", "SUBJECT"}, func(s signature.Sample) term.Cells {
					return term.Cells{s.Provider, s.Event, fmt.Sprint(len(s.Body)), subjectOf(s)}
				})
		},
	}
	term.OutputFlag(list)
	show := &cobra.Command{
		Use: "show PROVIDER [EVENT]", Short: "Print a sample payload",
		Long: "Print a sample payload, such as for a filter test: triphammer samples show github push > tests/payloads/push.json",
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return sampleProviders(), cobra.ShellCompDirectiveNoFileComp
			case 1:
				return sampleEvents(args[0]), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := FindSample(args[0], strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			return term.Emit(c, s, []string{s.Provider + " " + s.Event}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n", s.Body)
				return err
			})
		},
	}
	term.OutputFlag(show)
	return Noun("samples", "Payloads that senders could send, to try filters with", list, show)
}
