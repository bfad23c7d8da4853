package match

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"triphammer/factory/filter"
	"triphammer/factory/native"
)

func compile(t testing.TB, pattern string) *filter.Filter {
	t.Helper()
	v, err := filter.ParseJSON([]byte(pattern))
	if err != nil {
		t.Fatal(err)
	}
	f, problems := filter.Compile(v)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return f
}

// TestMatch: any trigger that selects the webhook suffices, and an automation
// is named once however many of its triggers match (SPEC 9.2).
func TestMatch(t *testing.T) {
	x := NewIndex([]Candidate{
		{Automation: "all", Triggers: []Trigger{{}}},
		{Automation: "either", Triggers: []Trigger{{Payload: compile(t, `{"a":[1]}`)}, {Payload: compile(t, `{"b":[1]}`)}}},
		{Automation: "never", Triggers: []Trigger{{Payload: compile(t, `{"a":[1],"b":[9]}`)}, {Payload: compile(t, `{"c":[1]}`)}}},
	})
	for _, c := range []struct {
		body string
		want []int
	}{
		{`{"a":1,"b":1}`, []int{0, 1}},
		{`{"b":1}`, []int{0, 1}},
		{`{}`, []int{0}},
		{`[]`, []int{0}},
	} {
		matched, _, err := x.Match(Delivery{Body: []byte(c.body)}, []Match{{Candidate: 7}})
		got := make([]int, len(matched))
		for i, m := range matched {
			got[i] = m.Candidate
		}
		if want := append([]int{7}, c.want...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", c.body, got, err, want)
		}
		for i, r := range x.Explain(Delivery{Body: []byte(c.body)}) {
			if r.Matched != slices.Contains(c.want, i) {
				t.Errorf("%s: explained %+v", c.body, r)
			}
		}
	}
	if _, _, err := x.Match(Delivery{Body: []byte(`{`)}, nil); err == nil {
		t.Error("invalid JSON matched")
	}
	// The trigger that came furthest is the one explained.
	if r := x.Explain(Delivery{Body: []byte(`{"a":1}`)})[2]; r.Path != "payload.b" || r.Want != "9" || r.Got != "nothing" {
		t.Errorf("explained %+v", r)
	}
}

// TestMatchKinds: filters on headers, on bodies and triggers on a sender's events stand
// beside each other; an automation is named once, and the webhook's own trigger comes
// before the sender's (SPEC 9.2, 16.2).
func TestMatchKinds(t *testing.T) {
	headers := func(pattern string) *filter.Headers {
		v, err := filter.ParseJSON([]byte(pattern))
		if err != nil {
			t.Fatal(err)
		}
		h, problems := filter.CompileHeaders(v)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return h
	}
	event := func(name string, keys ...string) Trigger {
		trigger := &native.Trigger{Event: native.Find("github", name)}
		for i := 0; i < len(keys); i += 2 {
			key, _ := trigger.Event.Key(keys[i])
			trigger.Filters = append(trigger.Filters, native.Filter{Key: key, In: keys[i+1 : i+2]})
		}
		return Trigger{Native: trigger}
	}
	subject, err := native.ParseTemplate("{repository.full_name}/{issue.id}")
	if err != nil {
		t.Fatal(err)
	}
	x := NewIndex([]Candidate{
		{Automation: "both", Triggers: []Trigger{event("issue_labeled"), {Headers: headers(`{"x-github-event":["issues"]}`)}}},
		{Automation: "bug", Triggers: []Trigger{event("issue_labeled", "labels", "p1"), event("issue_labeled", "labels", "bug"), event("issue_labeled")}},
		{Automation: "files", Triggers: []Trigger{event("pull_request_labeled", "paths", "api/**")}},
		{Automation: "header", Triggers: []Trigger{{Headers: headers(`{"X-GitHub-Event":["issues"]}`), Payload: compile(t, `{"label":{"name":["bug"]}}`)}}},
		{Automation: "pull", Triggers: []Trigger{event("pull_request_labeled", "labels", "bug")}},
		{Automation: "payload", Triggers: []Trigger{{Payload: compile(t, `{"label":{"name":["bug"]}}`)}}, Webhook: "web", Subject: subject},
	})
	const issue = `{"action":"labeled","label":{"id":3,"name":"bug"},"issue":{"id":7,"number":5,"updated_at":"2026"},"repository":{"full_name":"acme/api"}}`
	const pull = `{"action":"labeled","label":{"id":3,"name":"bug"},"pull_request":{"id":7,"number":1,"updated_at":"2026"},"repository":{"full_name":"acme/api"}}`
	for _, c := range []struct {
		header, body string
		want         []string
		open         int
	}{
		{"issues", issue, []string{"both", "bug issue_labeled github issue_labeled 7 2026 3, about github:acme/api#5", "header", "payload, about web:acme%2Fapi/7"}, 0},
		{"pull_request", pull, []string{"pull pull_request_labeled github pull_request_labeled 7 2026  3, about github:acme/api#1", "payload"}, 1},
		{"push", issue, []string{"payload, about web:acme%2Fapi/7"}, 0},
		{"issues", `[]`, []string{"both"}, 0},
	} {
		d := Delivery{Headers: map[string]string{"X-Github-Event": c.header}, Body: []byte(c.body)}
		matched, open, err := x.Match(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got, explained, names, subjects, about []string
		for _, m := range matched {
			name := x.candidates[m.Candidate].Automation
			names = append(names, name)
			if m.Event != nil {
				name += " " + m.Event.Name + " " + m.Identity
			}
			if m.Subject != "" {
				name += ", about " + m.Subject
			}
			got = append(got, name)
			subjects = append(subjects, m.Subject)
		}
		for _, r := range x.Explain(d) {
			if r.Matched {
				explained, about = append(explained, r.Automation), append(about, r.Subject)
			}
			if lacks := map[bool]string{true: "issue.id"}[r.Automation == "payload" && r.Matched && r.Subject == ""]; r.Lacks != lacks {
				t.Errorf("%s lacks %q, not %q", r.Automation, r.Lacks, lacks)
			}
			if r.Automation == "files" && c.open > 0 && (r.Path != "paths" || r.Got != "not in the payload: needs apiSecretName") {
				t.Errorf("%+v", r)
			}
		}
		if !slices.Equal(got, c.want) || !slices.Equal(explained, names) || !slices.Equal(about, subjects) || len(open) != c.open {
			t.Errorf("%s: got %q, explained %q, %d open; want %q, %d open", c.header, got, explained, len(open), c.want, c.open)
		}
	}
}

// BenchmarkMatch has automations of one webhook of GitHub, which differ in their
// repository and in how they say what they want: many cost as much as one (SPEC 8.4).
func BenchmarkMatch(b *testing.B) {
	d := Delivery{Headers: map[string]string{"X-Github-Event": "issues", "Content-Type": "application/json", "X-Github-Delivery": "1"}}
	text := `{"action":"labeled","label":{"id":3,"name":"bug"},"issue":{"id":7,"updated_at":"2026","body":"` + strings.Repeat("x", 7000) + `"},"repository":{"full_name":"acme/app-7"}}`
	d.Body = []byte(text)
	issue := native.Find("github", "issue_labeled")
	repos, _ := issue.Key("repos")
	labels, _ := issue.Key("labels")
	for _, kind := range []struct {
		name    string
		trigger func(repo string) Trigger
	}{
		{"payload", func(repo string) Trigger {
			return Trigger{Payload: compile(b, `{"action":["labeled"],"label":{"name":["bug"]},"repository":{"full_name":["`+repo+`"]}}`)}
		}},
		{"native", func(repo string) Trigger {
			return Trigger{Native: &native.Trigger{Event: issue, Filters: []native.Filter{{Key: labels, In: []string{"bug"}}, {Key: repos, In: []string{repo}}}}}
		}},
	} {
		for _, n := range []int{1, 100, 10000} {
			candidates := make([]Candidate, n)
			for i := range candidates {
				candidates[i].Triggers = []Trigger{kind.trigger(fmt.Sprintf("acme/app-%d", i+7))}
			}
			x := NewIndex(candidates)
			b.Run(fmt.Sprintf("%s/automations=%d", kind.name, n), func(b *testing.B) {
				b.SetBytes(int64(len(d.Body)))
				b.ReportAllocs()
				dst := make([]Match, 0, 8)
				for b.Loop() {
					if got, _, err := x.Match(d, dst[:0]); err != nil || len(got) != 1 {
						b.Fatal(got, err)
					}
				}
			})
		}
	}
}
