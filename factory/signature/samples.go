package signature

import (
	"cmp"
	"embed"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed samples/*.json
var sampleFiles embed.FS

// Sample is an example of a delivery. Those of providers have the real structure, but invented
// content.
type Sample struct {
	Provider string            `json:"provider"` // a scheme; empty: of no provider
	Event    string            `json:"event"`
	Headers  map[string]string `json:"headers"` // besides those of the signature
	Body     json.RawMessage   `json:"body"`
}

// Samples are those of all providers, sorted by provider and event. Nobody may change them.
var Samples = sync.OnceValue(func() (all []Sample) {
	entries, _ := sampleFiles.ReadDir("samples") // embedded files can always be read
	for _, e := range entries {
		text, _ := sampleFiles.ReadFile(path.Join("samples", e.Name()))
		var s Sample
		_ = json.Unmarshal(text, &s) // a test checks that each is JSON
		s.Provider, s.Event, _ = strings.Cut(strings.TrimSuffix(e.Name(), ".json"), ".")
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Sample) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Event, b.Event))
	})
	return all
})

// SamplesOf are the samples of a provider.
func SamplesOf(provider string) (all []Sample) {
	for _, s := range Samples() {
		if s.Provider == provider {
			all = append(all, s)
		}
	}
	return all
}

// PlainSample is a sample for senders whose deliveries are not known. No two are equal.
func PlainSample(now time.Time) Sample {
	body, _ := json.Marshal(map[string]string{"event": "test", "sent_at": now.UTC().Format(time.RFC3339Nano)}) // strings can always be encoded
	return Sample{Event: "test", Headers: map[string]string{}, Body: body}
}
