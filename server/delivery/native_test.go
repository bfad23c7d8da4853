package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier"
	"triphammer/factory/signature"
	"triphammer/server/store"
)

const (
	labeledIssue = `{"action":"labeled","label":{"id":3,"name":"bug"},"repository":{"id":1,"full_name":"acme/api"},` +
		`"issue":{"id":7,"number":7,"updated_at":"2026-11-22T10:00:00Z","html_url":"https://github.com/acme/api/issues/7","labels":[{"name":"bug"}],"assignees":[],"user":{"login":"ada"}}}`
	labeledPull = `{"action":"labeled","label":{"id":3,"name":"bug"},"repository":{"id":1,"full_name":"acme/api"},` +
		`"pull_request":{"id":8,"number":8,"updated_at":"2026-11-22T10:00:00Z","html_url":"https://github.com/acme/api/pull/8","labels":[{"name":"bug"}],"assignees":[],"user":{"login":"ada"}}}`
)

// newSenderFixture serves a factory with two webhooks of GitHub and one of a plain token.
func newSenderFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	automation := func(triggers ...string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("---\ntriggers:\n- " + strings.Join(triggers, "\n- ") + "\n---\nDo it.\n")}
	}
	built, err := applier.Build(t.Context(), applier.BuildInput{
		Factory: "default",
		Tree: fstest.MapFS{
			"factory.yaml":        {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
			"webhooks/first.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: S\n")},
			"webhooks/other.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
			"webhooks/token.yaml": {Data: []byte("secretName: S\n")},
			"automations/issue.md": automation(
				"{provider: github, event: issue_labeled, filter: {labels: [bug]}}", "{provider: github, event: issue_labeled, filter: {repos: [acme/api]}}"),
			"automations/pull.md":    automation("{provider: github, event: pull_request_labeled, filter: {labels: [bug]}}"),
			"automations/headers.md": automation("{provider: webhook, event: received, filter: {webhooks: [token], headers: {X-GitHub-Event: [issues]}, payload: {action: [labeled]}}}"),
			"automations/paths.md":   automation("{provider: github, event: pull_request_opened, filter: {paths: [docs/**]}}"),
			"automations/web.md":     automation("{provider: webhook, event: received, filter: {webhooks: [token], payload: {web: [1]}}}"),
			"automations/alert.md":   {Data: []byte("---\nsubject: \"{service}/{alert.id}\"\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [token], payload: {alert: {}}}}\n---\nDo it.\n")},
		},
		Secrets: secretS(webhookSecret),
	})
	if err != nil || built.Revision == nil || built.Diagnostics.HasErrors() {
		t.Fatalf("%v, %+v", err, built)
	}
	f.live.Swap(built.Revision)
	return f
}

// send signs a delivery of GitHub and sends it to a webhook. It returns the delivery with
// its trace.
func (f *fixture) send(t *testing.T, webhook, event, body, id string) *Trace {
	t.Helper()
	r := request(webhook, body, "X-GitHub-Event", event, "X-GitHub-Delivery", id, "Content-Type", "application/json")
	if webhook == "token" {
		r.Header.Set("Authorization", "Bearer "+webhookSecret)
	} else {
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(webhookSecret, &signature.Request{Header: r.Header, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	a := f.Receive(t.Context(), r)
	if a.Status != 202 {
		t.Fatalf("%+v", a)
	}
	trace, err := f.Show(t.Context(), a.DeliveryID)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// started are the runs of a delivery, with their sources.
func (f *fixture) started(t *testing.T, trace *Trace) string {
	t.Helper()
	var all []string
	for _, ref := range trace.Delivery.Runs {
		r, err := f.store.Runs.Get(t.Context(), ref.ID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.Automation+" "+r.Source+" "+r.Webhook)
	}
	return strings.Join(all, ", ")
}

// TestSubjectOfRun: a run keeps what its event is about, and a run that does it again does too (SPEC 21.2).
func TestSubjectOfRun(t *testing.T) {
	f := newSenderFixture(t)
	for i, c := range []struct{ webhook, event, body, want string }{
		{"first", "issues", labeledIssue, "github:acme/api#7"},
		{"first", "pull_request", labeledPull, "github:acme/api#8"},
		{"token", "", `{"service":"pay","alert":{"id":9}}`, "token:pay/9"},
		{"token", "", `{"alert":{"id":9}}`, ""}, // the payload lacks a value
		{"token", "", `{"web":1}`, ""},
	} {
		trace := f.send(t, c.webhook, c.event, c.body, fmt.Sprint("s", i))
		if len(trace.Delivery.Runs) != 1 {
			t.Fatalf("%s started %d runs", c.body, len(trace.Delivery.Runs))
		}
		r, err := f.store.Runs.Get(t.Context(), trace.Delivery.Runs[0].ID)
		if err != nil || r.Subject != c.want {
			t.Errorf("the run of %s is about %q, not %q (%v)", c.body, r.Subject, c.want, err)
		}
	}
}

// TestTwoHooks: a hook of an organization and one of a repository, with one URL, start the
// automations of an event once. GitHub gives both deliveries the same X-GitHub-Delivery: its API
// says that the guid is shared by all webhooks that subscribe to the event.
func TestTwoHooks(t *testing.T) {
	f := newSenderFixture(t)
	var ids []store.DeliveryID
	for _, hook := range []struct{ id, kind string }{{"101", "organization"}, {"202", "repository"}} {
		r := request("first", labeledIssue, "X-GitHub-Event", "issues", "X-GitHub-Delivery", "8e2d", "X-GitHub-Hook-ID", hook.id,
			"X-GitHub-Hook-Installation-Target-Type", hook.kind, "Content-Type", "application/json")
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(webhookSecret, &signature.Request{Header: r.Header, Body: []byte(labeledIssue)}); err != nil {
			t.Fatal(err)
		}
		a := f.Receive(t.Context(), r)
		if a.Status != 202 {
			t.Fatalf("%+v", a)
		}
		ids = append(ids, a.DeliveryID)
	}
	log := f.log(t)
	if ids[0] != ids[1] || len(log) != 2 || log[0].Outcome != store.Duplicate || len(log[0].Runs) != 0 || len(log[1].Runs) != 1 {
		t.Errorf("answers %v, log %+v", ids, log)
	}
}

// TestSenderEvents: an issue and a pull request that were labelled differ in a header
// alone. Each starts what is meant for it, by the sender's event and by a filter on the
// header, once however many triggers match; the belt names the event (SPEC 16.1, 16.2).
func TestSenderEvents(t *testing.T) {
	f := newSenderFixture(t)
	for i, c := range []struct{ webhook, event, body, started, parsed string }{
		{"first", "issues", labeledIssue, "issue GITHUB_WEBHOOK first", "JSON, issue_labeled of https://github.com/acme/api/issues/7, about github:acme/api#7"},
		{"first", "pull_request", labeledPull, "pull GITHUB_WEBHOOK first", "JSON, pull_request_labeled of https://github.com/acme/api/pull/8, about github:acme/api#8"},
		{"first", "ping", `{"zen":"x"}`, "", "JSON, no event of GitHub that triggers know"},
		{"first", "ping", `7`, "", "JSON, no event of GitHub that triggers know"},
		{"token", "issues", labeledIssue, "headers WEBHOOK token", "JSON"},
		{"token", "pull_request", labeledPull, "", "JSON"},
	} {
		trace := f.send(t, c.webhook, c.event, c.body, fmt.Sprint("id", i))
		if got := f.started(t, trace); got != c.started || trace.Belt[2].Detail != c.parsed {
			t.Errorf("%s %s: started %q, belt %+v", c.event, c.body, got, trace.Belt)
		}
		for _, m := range trace.Matches {
			if m.Matched != strings.HasPrefix(c.started, m.Automation+" ") || !m.Matched && m.Path == "" {
				t.Errorf("%s %s: explained %+v", c.event, c.body, m)
			}
			if c.event == "pull_request" && m.Automation == "headers" && (m.Path != "headers.X-GitHub-Event" || m.Got != `"pull_request"`) {
				t.Errorf("explained %+v", m)
			}
		}
		// Test filter and replay have the same verdict, by the stored headers.
		for _, m := range trace.Matches {
			got, err := f.TestFilter(t.Context(), TestRequest{Factory: "default", Automation: m.Automation, DeliveryID: trace.Delivery.ID})
			if err != nil || got.WouldTrigger != m.Matched {
				t.Errorf("%s: %+v, %v", m.Automation, got, err)
			}
			headers := map[string]string{"x-github-event": c.event}
			got, err = f.TestFilter(t.Context(), TestRequest{Factory: "default", Automation: m.Automation, Payload: []byte(c.body), Headers: headers, Webhook: c.webhook})
			if err != nil || got.WouldTrigger != m.Matched {
				t.Errorf("%s with headers: %+v, %v", m.Automation, got, err)
			}
		}
		again, err := f.Replay(t.Context(), trace.Delivery.ID)
		if err != nil || len(again.RunIDs) != len(trace.Delivery.Runs) {
			t.Errorf("replayed: %+v, %v", again, err)
		}
	}
}

// TestSameEventTwice: two webhooks of one sender report the same event. The second
// delivery is recorded, starts nothing that the first started, and says so (SPEC 16.2).
func TestSameEventTwice(t *testing.T) {
	f := newSenderFixture(t)
	first := f.send(t, "first", "issues", labeledIssue, "a")
	second := f.send(t, "other", "issues", labeledIssue, "b")
	if f.started(t, first) != "issue GITHUB_WEBHOOK first" || f.started(t, second) != "" || second.Delivery.Outcome != store.Accepted {
		t.Errorf("started %q and %q", f.started(t, first), f.started(t, second))
	}
	if len(second.Delivery.Repeats) != 1 || second.Delivery.Repeats[0] != (store.Repeat{Automation: "issue", Of: first.Delivery.ID}) {
		t.Errorf("%+v", second.Delivery)
	}
	want := "another delivery reported the same event: " + first.Delivery.ID.String() + " started issue"
	if last := second.Belt[len(second.Belt)-1]; last.Stage != StageRun || last.Detail != want {
		t.Errorf("belt %+v", second.Belt)
	}
	// The same event of the webhook that reported it first, a later event, and a replay start.
	for i, c := range []struct{ webhook, body string }{
		{"first", labeledIssue},
		{"other", strings.Replace(labeledIssue, "10:00", "11:00", 1)},
		{"other", `{"action":"labeled","label":{"name":"bug"}}`}, // which says nothing of what it is
		{"first", `{"action":"labeled","label":{"name":"bug"}}`},
	} {
		if trace := f.send(t, c.webhook, "issues", c.body, fmt.Sprint("more", i)); len(trace.Delivery.Runs) != 1 {
			t.Errorf("%s: %+v", c.body, trace.Belt)
		}
	}
	if again, err := f.Replay(t.Context(), second.Delivery.ID); err != nil || len(again.RunIDs) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestFilterNotKnown: what only the sender's API knows is not called a mismatch (SPEC 7.3).
func TestFilterNotKnown(t *testing.T) {
	f := newSenderFixture(t)
	opened := []byte(`{"action":"opened","number":7,"pull_request":{"number":7},"repository":{"full_name":"acme/api"}}`)
	for _, c := range []struct{ webhook, event, verdict, got string }{
		{"first", "pull_request", "Not known", "not in the payload: only the sender's API knows it"},
		{"", "pull_request", "Not known", "not in the payload: only the sender's API knows it"},
		{"first", "issues", "Would not trigger", "issue_created"},
		{"token", "pull_request", "Would not trigger", ""},
	} {
		got, err := f.TestFilter(t.Context(), TestRequest{
			Factory: "default", Automation: "paths", Payload: opened, Headers: map[string]string{"X-GitHub-Event": c.event}, Webhook: c.webhook,
		})
		if err != nil || got.Verdict() != c.verdict || !strings.HasPrefix(got.PayloadCheck.Got, c.got) {
			t.Errorf("%+v: %s %+v, %v", c, got.Verdict(), got, err)
		}
	}
}

// TestSubjectsOfDeliveries: deliveries are found by what the sender's events are about, also those
// that started nothing, and by what the automations say which they match (SPEC 21.2). The belt says it
// too, and what a payload lacks.
func TestSubjectsOfDeliveries(t *testing.T) {
	f := newSenderFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.IndexSubjects(ctx) }()
	var ids []store.DeliveryID
	cases := []struct{ webhook, event, body, subject, belt string }{
		{"first", "issues", labeledIssue, "github:acme/api#7", "JSON, issue_labeled of https://github.com/acme/api/issues/7, about github:acme/api#7"},
		{"other", "issues", strings.ReplaceAll(labeledIssue, "labeled", "opened"), "github:acme/api#7", "JSON, issue_created of https://github.com/acme/api/issues/7, about github:acme/api#7"},
		{"first", "ping", `{}`, "", "JSON, no event of GitHub that triggers know"},
		{"token", "", `{"service":"pay","alert":{"id":9}}`, "token:pay/9", "1 automation, about token:pay/9"},
		{"token", "", `{"alert":{"id":9}}`, "", "1 automation, alert has no subject: the payload lacks service"},
		{"token", "", `{"web":1}`, "", "1 automation"},
	}
	for i, c := range cases {
		trace := f.send(t, c.webhook, c.event, c.body, fmt.Sprint("x", i))
		ids = append(ids, trace.Delivery.ID)
		if !slices.ContainsFunc(trace.Belt, func(s Stage) bool { return s.Detail == c.belt }) {
			t.Errorf("%s: the belt is %+v", c.body, trace.Belt)
		}
	}
	for last := ids[3]; ; { // the newest that has one
		if d, err := f.store.Deliveries.Get(ctx, last); err != nil {
			t.Fatal(err)
		} else if len(d.Subjects) > 0 {
			break
		}
	}
	for i, c := range cases {
		d, err := f.store.Deliveries.Get(ctx, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d.Subjects, " "); got != c.subject {
			t.Errorf("%s is about %q, not %q", c.body, got, c.subject)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for payload, want := range map[string][2]string{`{"service":"pay","alert":{"id":1}}`: {"token:pay/1", ""}, `{"service":"pay","alert":{}}`: {"", "alert.id"}} {
		r, err := f.TestFilter(t.Context(), TestRequest{Factory: "default", Automation: "alert", Payload: []byte(payload)})
		if err != nil || !r.WouldTrigger || [2]string{r.Subject, r.Lacks} != want {
			t.Errorf("%s: %+v, %v", payload, r, err)
		}
	}
}
