package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"html/template"
	"maps"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// recentTests are the tests of an automation with the last deliveries to its webhooks.
type recentTests struct {
	Tests  []Tested // newest first
	Wanted int      // deliveries that matched
	Why    []whyNot // why the others did not match, the most frequent reason first
}

// whyNot is the path of a condition, and how many deliveries failed there first.
type whyNot struct {
	Path  string
	Count int
}

// Strip draws the tests.
func (r recentTests) Strip() template.HTML { return stripOf(r.Tests) }

// Others is the number of deliveries that would not start the automation.
func (r recentTests) Others() int { return len(r.Tests) - r.Wanted }

// recentTests tests the payload filters of an automation with the last deliveries to the
// webhooks that it selects, whether it is enabled or not.
func (v *Visit) recentTests(a api.Automation) (recent recentTests, err error) {
	var names []string
	for _, t := range a.Triggers {
		names = append(names, slices.Concat(t.Webhooks, t.WebhookIDs)...)
	}
	slices.Sort(names)
	var deliveries []api.Delivery
	for _, name := range slices.Compact(names) {
		some, err := v.recent(a.Factory, name)
		if err != nil {
			return recent, err
		}
		deliveries = append(deliveries, some...)
	}
	slices.SortFunc(deliveries, func(a, b api.Delivery) int { return cmp.Compare(b.ID, a.ID) })
	deliveries = slices.CompactFunc(deliveries, func(a, b api.Delivery) bool { return a.ID == b.ID })
	failed := make(map[string]int)
	for _, d := range deliveries[:min(len(deliveries), backTests)] {
		var verdict api.FilterVerdict
		if err := v.Send("POST", "/filters/test", api.TestFilter{Factory: a.Factory, Automation: a.Name, DeliveryID: d.ID}, &verdict); err != nil {
			if refused := (*Refused)(nil); errors.As(err, &refused) {
				continue // the delivery was deleted meanwhile, or is damaged
			}
			return recent, err
		}
		recent.Tests = append(recent.Tests, Tested{d, verdict.PayloadCheck.OK})
		if verdict.PayloadCheck.OK {
			recent.Wanted++
		} else {
			failed[verdict.PayloadCheck.Path]++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(failed)) {
		recent.Why = append(recent.Why, whyNot{path, failed[path]})
	}
	slices.SortStableFunc(recent.Why, func(a, b whyNot) int { return cmp.Compare(b.Count, a.Count) })
	recent.Why = recent.Why[:min(len(recent.Why), 3)]
	return recent, nil
}

// valueInWords is the value of a key of a definition file, for people.
func valueInWords(key string, raw json.RawMessage) string {
	var list []json.RawMessage
	var mapping map[string]json.RawMessage
	var text string
	var parts []string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &list) == nil:
		for _, one := range list {
			parts = append(parts, valueInWords("", one))
		}
	case json.Unmarshal(raw, &mapping) != nil:
		return string(raw)
	case key == "budget":
		parts = budgetInWords(mapping)
	default:
		for _, name := range slices.Sorted(maps.Keys(mapping)) {
			parts = append(parts, name+": "+valueInWords(name, mapping[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// budgetInWords are the parts of a budget, beginning with the limits of one run.
func budgetInWords(budget map[string]json.RawMessage) (parts []string) {
	for _, part := range []struct{ key, thing, of string }{
		{"usd", "", "a run"}, {"tokens", "token", "a run"}, {"turns", "turn", "a run"}, {"usdPerDay", "", "a day"}, {"tokensPerDay", "token", "a day"},
	} {
		var n float64
		raw, there := budget[part.key]
		if !there || json.Unmarshal(raw, &n) != nil {
			continue
		}
		text := plural(int64(n), part.thing)
		if part.thing == "" {
			text = event.USD(n)
		}
		parts = append(parts, text+" "+part.of)
	}
	return parts
}
