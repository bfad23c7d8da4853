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

// Sample is an example of a delivery. The sample of a provider has the real structure, but
// invented content.
type Sample struct {
	Provider string            `json:"provider"` // name of a scheme; empty: the sample belongs to no provider
	Event    string            `json:"event"`
	Headers  map[string]string `json:"headers"` // without the headers of the signature
	Body     json.RawMessage   `json:"body"`
	Default  bool              `json:"default,omitempty"` // the sample to take if no event is named
}

// Samples are the samples of all providers, sorted by provider, the default first, and then by event.
// Callers must not change them. A sender whose events triggers name has a sample for each of these names.
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
		return cmp.Or(strings.Compare(a.Provider, b.Provider), compareBool(b.Default, a.Default), strings.Compare(a.Event, b.Event))
	})
	return all
})

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// SamplesOf are the scheme's own samples, or else the samples of another scheme of the same sender.
func SamplesOf(scheme string) (all []Sample) {
	for _, s := range Samples() {
		if s.Provider == scheme {
			all = append(all, s)
		}
	}
	own, known := Lookup(scheme)
	if all != nil || !known {
		return all
	}
	for _, s := range Samples() {
		if other, _ := Lookup(s.Provider); other != nil && other.sender() == own.sender() {
			all = append(all, s)
		}
	}
	return all
}

// sender is the provider's name, without the words that distinguish its schemes.
func (s *Scheme) sender() string {
	name, _, _ := strings.Cut(s.Provider, " (")
	return name
}

// PlainSample makes a sample for senders whose deliveries are not known. Its body has the time,
// so that no two samples are equal.
func PlainSample(now time.Time) Sample {
	body, _ := json.Marshal(map[string]string{"event": "test", "sent_at": now.UTC().Format(time.RFC3339Nano)}) // strings can always be encoded
	return Sample{Event: "test", Headers: map[string]string{}, Body: body}
}
