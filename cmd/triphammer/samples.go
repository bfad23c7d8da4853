package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed samples/*.json
var sampleFiles embed.FS

// sample is an example of a delivery of a provider. The payloads have the real structure,
// but invented content.
type sample struct {
	Provider string            `json:"provider"` // a signature scheme
	Event    string            `json:"event"`
	Headers  map[string]string `json:"headers"` // besides those of the signature
	Body     json.RawMessage   `json:"body"`
}

// samples are all samples, sorted by provider and event.
func samples() []sample {
	entries, _ := sampleFiles.ReadDir("samples") // embedded files can always be read
	var all []sample
	for _, e := range entries {
		text, _ := sampleFiles.ReadFile(path.Join("samples", e.Name()))
		var s sample
		_ = json.Unmarshal(text, &s) // a test checks that each is JSON
		s.Provider, s.Event, _ = strings.Cut(strings.TrimSuffix(e.Name(), ".json"), ".")
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b sample) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Event, b.Event))
	})
	return all
}

// findSample finds a sample of a provider. If event is empty, it is the first one.
func findSample(provider, event string) (sample, error) {
	for _, s := range samples() {
		if s.Provider == provider && (event == "" || s.Event == event) {
			return s, nil
		}
	}
	events := sampleEvents(provider)
	if events == nil {
		return sample{}, exitWith(exitNotFound, "there is no sample of %q; there are samples of %s", provider, strings.Join(sampleProviders(), ", "))
	}
	return sample{}, exitWith(exitNotFound, "there is no sample of %s's event %q; there are %s", provider, event, strings.Join(events, ", "))
}

func sampleProviders() []string {
	var all []string
	for _, s := range samples() {
		all = append(all, s.Provider)
	}
	return slices.Compact(all)
}

func sampleEvents(provider string) []string {
	var all []string
	for _, s := range samples() {
		if s.Provider == provider {
			all = append(all, s.Event)
		}
	}
	return all
}

func samplesCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List sample payloads", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return emitList(c, samples(), func(s sample) string { return s.Provider + " " + s.Event },
				[]string{"PROVIDER", "EVENT", "SIZE"}, func(s sample) []string {
					return []string{s.Provider, s.Event, fmt.Sprint(len(s.Body))}
				})
		},
	}
	outputFlag(list)
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
			s, err := findSample(args[0], strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			return emit(c, s, []string{s.Provider + " " + s.Event}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n", s.Body)
				return err
			})
		},
	}
	outputFlag(show)
	return noun("samples", "Payloads that senders could send, to try filters with", list, show)
}
