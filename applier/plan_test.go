package applier

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/schema"
)

// revision builds definitions as the applier does, with every secret that they
// name.
func revision(t *testing.T, files ...string) *Revision {
	t.Helper()
	m := &Memory{}
	b, err := Build(t.Context(), BuildInput{Factory: "default", Tree: tree(files...), UIDs: m.UIDs, Spec: m.Spec})
	if err != nil || b.Revision == nil {
		t.Fatal(err, b)
	}
	return b.Revision
}

func auto(filter string, more ...string) string {
	return "---\ntriggers:\n  - provider: webhook\n    event: received\n    filter: {webhooks: [hook]" + filter + "}\n" + strings.Join(more, "\n") + "\n---\nDo it.\n"
}

// TestCallouts: what widens power is called out, and what narrows it is not.
func TestCallouts(t *testing.T) {
	hook := func(extra string) []string { return []string{"webhooks/hook.yaml", webhookYAML + extra} }
	env := func(extra string) []string {
		return append(hook(""), "environments/e.yaml", "command: [x]\n"+extra)
	}
	a := func(text string) []string { return append(hook(""), "automations/a.md", text) }
	asked := func(hook string, keys ...string) []string {
		return []string{
			"webhooks/hook.yaml", webhookYAML + "authMode: signature\nsignatureScheme: github\napiSecretName: TOKEN\n" + hook,
			"automations/a.md", "---\n" + strings.Join(append(keys, "triggers: [{provider: github, event: issue_mentioned}]"), "\n") + "\n---\nDo it.\n",
		}
	}
	integrated := func(list, scheme, event string) []string {
		return []string{
			"factory.yaml", "schemaVersion: v1alpha1\nname: Test\nintegrations: " + list + "\n",
			"webhooks/hook.yaml", webhookYAML + "authMode: signature\nsignatureScheme: " + scheme + "\napiSecretName: TOKEN\n",
			"automations/a.md", "---\ntriggers: [{provider: " + scheme + ", event: " + event + "}]\n---\nDo it.\n",
		}
	}
	const replies = "[{type: slack, slack: {autoRespondToThreadReplies: true}}]"
	many := func(n int) (files []string) {
		for i := range n {
			files = append(files, fmt.Sprintf("environments/e%d.yaml", i), "command: [x]\n")
		}
		return files
	}
	for _, c := range []struct {
		name            string
		narrow, widened []string
		want            string
	}{
		{"weaker mode", hook("authMode: signature\nsignatureScheme: github\n"), hook(""), "authMode goes from signature to token"},
		{"weakest mode", hook(""), hook("authMode: url_token\n"), "authMode goes from token to url_token"},
		{"no replay window", hook("authMode: signature\nsignatureScheme: github\nreplayWindow: 10m\n"), hook("authMode: signature\nsignatureScheme: github\n"), "replayWindow is gone"},
		{"a shorter replay window", hook("authMode: signature\nsignatureScheme: github\nreplayWindow: 2h\n"), hook("authMode: signature\nsignatureScheme: github\nreplayWindow: 10m\n"), "replayWindow goes from 2h to 10m"},
		{"webhook enabled", hook("enabled: false\n"), hook(""), "takes deliveries"},
		{"filter gone", a(auto(", payload: {x: [1]}")), a(auto("")), "its filter is gone: every delivery of webhook hook"},
		{"filter looks at less", a(auto(", payload: {x: [1], y: {z: [2]}}")), a(auto(", payload: {x: [1]}")), "it no longer looks at payload.y.z"},
		{"filter allows more", a(auto(", payload: {x: [1], s: [a]}")), a(auto(", payload: {x: [1, 2], s: [a, b]}")), "it allows more values of payload.s: \"b\"; it allows more values of payload.x: 2"},
		{"filter allows any", a(auto(", payload: {x: [1]}")), a(auto(", payload: {x: {exists: true}}")), "no longer asks for particular values of payload.x"},
		{"a second trigger", a(auto(", payload: {x: [1]}")), a("---\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {x: [1]}}}\n" +
			"- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {x: [2]}}}\n---\nDo it.\n"), "it allows more values of payload.x: 2"},
		{"automation enabled", a(auto("", "enabled: false")), a(auto("")), "is enabled"},
		{
			"another webhook", append(a(auto("")), "webhooks/two.yaml", webhookYAML),
			append(a("---\ntriggers:\n  - {provider: webhook, event: received, filter: {webhooks: [hook, two]}}\n---\nDo it.\n"), "webhooks/two.yaml", webhookYAML), "starts on deliveries of webhook two",
		},
		{"automation's secret", a(auto("")), a(auto("", "secrets: [TOKEN]")), "gets secrets that it did not have: TOKEN"},
		{"repository's secret", env("repositories: [{url: https://a.example/x}]\n"), env("repositories: [{url: https://a.example/x, secret: K, access: read}]\n"), "its runs get at more repositories: https://a.example/x (read, by K)"},
		{"repository's access", env("repositories: [{url: https://a.example/x, secret: K, access: read}]\n"), env("repositories: [{url: https://a.example/x, secret: K}]\n"), "its runs get at more repositories: https://a.example/x (write, by K)"},
		{"environment's secret", env(""), env("secrets: [TOKEN]\n"), "gets secrets that it did not have: TOKEN"},
		{"network", env("network: off\n"), env(""), "may reach the whole network"},
		{"hosts", env("network: [a.example]\n"), env("network: [a.example, b.example]\n"), "may reach more hosts: b.example"},
		{"isolation", env("isolation: container\n"), env("isolation: process\n"), "less isolation: none instead of container"},
		{"trust", env(""), env("trustRepositorySettings: true\n"), "the agent settings in its repositories act"},
		{"automation's MCP server", a(auto("")), a(auto("", "mcpServers: {docs: {url: 'https://mcp.example.com/'}}")), "gets MCP servers that it did not have: docs"},
		{"startedBy gone", asked("", "startedBy: [ada]"), asked(""), "startedBy is gone: whoever can cause its events may start it"},
		{"starts without approval", asked("", "approval: [start]"), asked(""), "its runs start without the approval of a person"},
		{"outputs without approval", asked("", "approval: [outputs]\noutputs: {close: {}}"), asked("", "outputs: {close: {}}"), "what its agent asks for is done without the approval of a person"},
		{"outsiders", asked("", "startedBy: [ada]"), asked("", "startedBy: [ada]\napproval: [outsiders]"), "people whom startedBy does not list may start it, once a person has approved that"},
		{"more people", asked("", "startedBy: [ada]"), asked("", "startedBy: [ada, grace]"), "more people may start it: grace"},
		{"more for one person", asked("", "maxRunsPerPersonPerHour: 3"), asked("", "maxRunsPerPersonPerHour: 30"), "one person may start it 30 times in an hour, and not 3 times"},
		{"no limit for one person", asked("", "maxRunsPerPersonPerHour: 3"), asked(""), "one person may start it without a limit"},
		{"more branches", asked("", "push: {branches: ['fix-*']}"), asked("", "push: {branches: ['fix-*', main]}"), "its runs may push to more branches: main"},
		{"other branches than by default", asked(""), asked("", "push: {branches: ['*']}"), "its runs may push to more branches: *"},
		{"tags", asked("", "push: {max: 2}"), asked("", "push: {tags: ['v*'], max: 2}"), "its runs may push more tags: v*"},
		{"a larger number", asked(""), asked("", "push: {max: 4}"), "a run may push to 4 branches and tags, and not to 3"},
		{"more bytes", asked("", "push: {maxBytes: 10}"), asked(""), "a run may push 67108864 bytes, and not 10"},
		{"answers of a webhook", asked(""), asked("report: thread\n"), "its runs are answered where the events of webhook hook came from: thread"},
		{"answers of an automation", asked("report: thread\n"), asked("report: thread\n", "report: [thread, check]"), "came from: check"},
		{"an address", asked(""), asked("report: {url: 'https://ci.example.com/hooks', secretName: T}\n"), "https://ci.example.com/hooks is told of the runs that webhook hook starts"},
		{"what the agent says", asked("report: thread\nreportText: link\n"), asked("report: thread\n"), "its answers to webhook hook have what the agent says"},
		{
			"answers by an integration", integrated("[]", "slack", "app_mention"), integrated("[{type: slack}]", "slack", "app_mention"),
			"its runs are answered where the events of webhook hook came from: thread",
		},
		{
			"replies", integrated("[{type: slack}]", "slack", "app_mention"), integrated(replies, "slack", "app_mention"),
			"goes on with replies in the threads of webhook hook that it has answered",
		},
		{
			"sessions", integrated("[]", "linear", "agent_session_created"), integrated("[{type: linear}]", "linear", "agent_session_created"),
			"came from: thread; replies there go on with them",
		},
		{"outputs", asked(""), asked("", "outputs: {close: {}, addLabels: {allowed: [a]}}"), "its agent may ask the server for more: addLabels, close"},
		{"wider outputs", asked("", "outputs: {addLabels: {allowed: [a]}, comment: {}, createPullRequest: {draft: true}}"), asked("", "outputs: {addLabels: {allowed: [a, b]}, comment: {max: 2}, createPullRequest: {}}"), "for more: comment, addLabels, createPullRequest"},
		{"most of it deleted", many(5), many(1), "4 of 5 definitions are deleted"},
	} {
		narrow, widened := revision(t, c.narrow...), revision(t, c.widened...)
		p := Diff(narrow, widened)
		if len(p.Callouts) != 1 || !strings.Contains(p.Callouts[0].Message, c.want) {
			t.Errorf("%s: called out is %+v, want %q", c.name, p.Callouts, c.want)
		}
		if p := Diff(widened, narrow); len(p.Callouts) > 0 && c.name != "most of it deleted" {
			t.Errorf("%s, the other way: called out is %+v", c.name, p.Callouts)
		}
		if p := Diff(widened, widened); len(p.Callouts) > 0 || p.Pending() {
			t.Errorf("%s: no change, and yet %+v", c.name, p)
		}
	}
	if p := Diff(nil, revision(t, a(auto("", "secrets: [TOKEN]"))...)); len(p.Callouts) > 0 {
		t.Errorf("a first apply has nothing to compare with: %+v", p.Callouts)
	}
}

// TestValues: an update shows what a key was and what it becomes.
func TestValues(t *testing.T) {
	p := Diff(revision(t, "webhooks/hook.yaml", webhookYAML), revision(t, "webhooks/hook.yaml", webhookYAML+"deliveryIdHeader: X-Run\n"))
	want := []ValueChange{{"deliveryIdHeader", "", `"X-Run"`}}
	if len(p.Update) != 1 || !slices.Equal(p.Update[0].Values, want) {
		t.Errorf("%+v", p.Update)
	}
	long := revision(t, "automations/a.md", "---\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}]\n---\n"+strings.Repeat("word ", 1000))
	p = Diff(revision(t, "automations/a.md", "---\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}]\n---\nshort"), long)
	if len(p.Update) != 1 || len([]rune(p.Update[0].Values[0].After)) != maxShown+1 {
		t.Errorf("%+v", p.Update)
	}
}

// TestPropose: a proposal is checked against what the server has, says what it
// changes, and by stored deliveries what would have started (SPEC 3.5).
func TestPropose(t *testing.T) {
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "s")
	cfg := r.config(&fake{})
	for id, payload := range []string{`{"x":9}`, `{"x":1,"y":1}`, `{"x":1}`, `{"x":2}`} { // the first one is too old
		r.AddDelivery("whk_hook", fmt.Sprint("d", id), time.Time{}, match.Delivery{Body: []byte(payload)})
	}
	r.AddDelivery("whk_off", "d4", time.Time{}, match.Delivery{Body: []byte(`{"x":1}`)})
	live := revision(t, "webhooks/hook.yaml", webhookYAML, "automations/same.md", auto(""), "automations/changed.md", auto(", payload: {x: [1]}"), "automations/gone.md", auto(""))
	cfg.Live.Swap(live)
	a := New(cfg)
	proposed := tree("webhooks/hook.yaml", webhookYAML, "webhooks/off.yaml", webhookYAML+"enabled: false\n", "automations/same.md", auto(""),
		"automations/changed.md", auto(", payload: {x: [2]}"), "automations/new.md", auto(", payload: {y: [1]}"))
	p, err := a.Propose(t.Context(), proposed, 3)
	if err != nil || p.Diagnostics.HasErrors() {
		t.Fatal(err, p)
	}
	want := []string{
		"changed: 2 before, 1 after of 3, started [d3], stopped [d2 d1]",
		"gone: 3 before, 0 after of 3, started [], stopped [d3 d2 d1]",
		"new: 0 before, 1 after of 3, started [d1], stopped []",
	}
	var got []string
	for _, b := range p.BackTests {
		got = append(got, fmt.Sprintf("%s: %d before, %d after of %d, started %v, stopped %v", b.Automation, b.Before, b.After, b.Deliveries, b.Started, b.Stopped))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(p.Plan.Create) != 2 || len(p.Plan.Update) != 2 /* the webhook's secret, too */ || len(p.Plan.Delete) != 1 {
		t.Errorf("%+v", p.Plan)
	}
	if now, _ := cfg.Live.Revision("default"); now != live || len(r.Applies()) > 0 {
		t.Error("a proposal changed something")
	}
	// A secret that is not there is an error, as it is at apply (SPEC 4.5).
	p, err = a.Propose(t.Context(), tree("webhooks/hook.yaml", "secretName: NONE\n"), 10)
	if err != nil || len(p.Diagnostics) != 1 || p.Diagnostics[0].Code != schema.MissingSecret || p.Plan.Pending() {
		t.Errorf("%v %+v", err, p)
	}
}

// TestBackTestSettles: a back-test counts with settle, and says what it does not know of the other
// rules (SPEC 21.5).
func TestBackTestSettles(t *testing.T) {
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "s")
	cfg := r.config(&fake{})
	begin := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	for i, d := range []struct {
		after   int // seconds
		subject string
	}{
		{0, `"a"`}, {20, `"a"`}, {25, `"b"`}, {40, `"a"`}, {71, `"a"`}, // the first three of a, and one more
		{100, "null"}, {101, "null"}, // without a subject
	} {
		r.AddDelivery("whk_hook", fmt.Sprint("d", i), begin.Add(time.Duration(d.after)*time.Second), match.Delivery{Body: []byte(`{"x":` + d.subject + `}`)})
	}
	cfg.Live.Swap(revision(t, "webhooks/hook.yaml", webhookYAML, "automations/a.md", auto("")))
	a := strings.Replace(auto(""), "---\n", "---\nsubject: \"{x}\"\nsettle: 30s\nperSubject: skip\n", 1)
	p, err := New(cfg).Propose(t.Context(), tree("webhooks/hook.yaml", webhookYAML, "automations/a.md", a), 10)
	if err != nil || len(p.BackTests) != 1 {
		t.Fatal(err, p)
	}
	b := p.BackTests[0]
	if b.Before != 7 || b.After != 5 || !slices.Equal(b.Stopped, []string{"d1", "d0"}) || !strings.HasPrefix(b.Assumed, "events that perSubject: skip leaves out are counted, because") {
		t.Errorf("%+v", b)
	}
	// Ten times as long is the most.
	at := func(n int) sentDelivery {
		return sentDelivery{at: begin.Add(time.Duration(n) * 9 * time.Second), after: map[string]string{"a": "s"}}
	}
	var sent []sentDelivery
	for n := range 24 {
		sent = slices.Insert(sent, 0, at(n))
	}
	starts := settled(&factory.Automation{Settle: 10 * time.Second}, sent, func(s sentDelivery) (string, bool) { return "s", true })
	slices.Reverse(starts)
	var which []int
	for n, is := range starts {
		if is {
			which = append(which, n)
		}
	}
	if !slices.Equal(which, []int{11, 23}) {
		t.Errorf("the runs of %v start", which)
	}
}

// TestBackTestWaits: a back-test counts the runs that would wait for a person, and says of how many it cannot
// know (SPEC 26.1).
func TestBackTestWaits(t *testing.T) {
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "s")
	cfg := r.config(&fake{})
	hook := "secretName: HOOK_SECRET\nauthMode: signature\nsignatureScheme: github\napiSecretName: HOOK_SECRET\n"
	event := map[string]string{"X-Github-Event": "issues"}
	for i, sender := range []string{`"ada","id":1,"type":"User"`, `"eve","id":2,"type":"User"`, `"mal","id":3,"type":"User"`, `"robot[bot]","id":4,"type":"Bot"`} {
		body := `{"action":"opened","issue":{"id":1,"number":7,"title":"T"},"repository":{"id":1,"full_name":"acme/app"},"sender":{"login":` + sender + `}}`
		r.AddDelivery("whk_hook", fmt.Sprint("d", i), time.Time{}, match.Delivery{Headers: event, Body: []byte(body)})
	}
	automation := func(keys string) string {
		return "---\nenvironmentId: env\n" + keys + "triggers:\n- {provider: github, event: issue_created}\n---\nDo it.\n"
	}
	cfg.Live.Swap(revision(t, "webhooks/hook.yaml", hook, "automations/a.md", automation("")))
	for keys, want := range map[string]string{
		"startedBy: [ada]\n":                                     "1, 0 wait; ",
		"startedBy: [ada]\napproval: [outsiders]\n":              "3, 2 wait; ",
		"settle: 30s\n":                                          "1, 0 wait; ",
		"startedBy: [ada]\napproval: [outsiders]\nsettle: 30s\n": "3, 2 wait; ",
		"approval: [start]\n":                                    "4, 4 wait; ",
		"startedBy: [ada, write]\napproval: [outsiders]\n":       "1, 0 wait; of up to 2 more, the sender was not asked",
		"startedBy: [write]\napproval: [start, outsiders]\n":     "0, 0 wait; of up to 3 more, the sender was not asked",
	} {
		p, err := New(cfg).Propose(t.Context(), tree("webhooks/hook.yaml", hook, "automations/a.md", automation(keys)), 10)
		if err != nil || p.Diagnostics.HasErrors() || len(p.BackTests) != 1 {
			t.Fatal(keys, err, p)
		}
		b := p.BackTests[0]
		if got := fmt.Sprintf("%d, %d wait; %s", b.After, b.Waits, b.Assumed); !strings.HasPrefix(got, want) || want[len(want)-2:] == "; " && got != want {
			t.Errorf("%q: %s, want %s", keys, got, want)
		}
	}
}

// TestBackTestExamples: those of an automation on two webhooks are of both.
func TestBackTestExamples(t *testing.T) {
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "s")
	cfg := r.config(&fake{})
	for uid, n := range map[string]int{"whk_hook": 9, "whk_two": 2} {
		for i := n; i > 0; i-- {
			r.AddDelivery(uid, fmt.Sprintf("%s_%d", uid, i-1), time.Time{}, match.Delivery{Body: []byte(`{"x":1}`)})
		}
	}
	cfg.Live.Swap(revision(t, "webhooks/hook.yaml", webhookYAML, "webhooks/two.yaml", webhookYAML))
	a := strings.Replace(auto(""), "[hook]", "[hook, two]", 1)
	p, err := New(cfg).Propose(t.Context(), tree("webhooks/hook.yaml", webhookYAML, "webhooks/two.yaml", webhookYAML, "automations/a.md", a), 10)
	if err != nil || len(p.BackTests) != 1 {
		t.Fatal(err, p)
	}
	b := p.BackTests[0]
	if want := []string{"whk_hook_0", "whk_two_0", "whk_hook_1", "whk_two_1", "whk_hook_2"}; !slices.Equal(b.Started, want) || b.After != 11 || b.Deliveries != 11 {
		t.Errorf("%+v, want the examples %v", b, want)
	}
}

// TestUnsignedFinding is TestSecretFindings for a commit that nobody signed.
func TestUnsignedFinding(t *testing.T) {
	docs, err := os.ReadFile("../docs/diagnostics.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, keys := t.TempDir(), filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("ada@example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyTzyLOMAkCF5FhZVbBJz2bNp1xDqZ8HcuWqUK0BCGV\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "--initial-branch=main"}, {"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "--allow-empty", "-m", "First"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	repo, err := gitrepo.Open(dir, "main")
	if err != nil {
		t.Fatal(err)
	}
	head, err := repo.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = repo.Verify(t.Context(), head.Hash, gitrepo.Signers{File: keys})
	if !errors.Is(err, gitrepo.ErrUnverified) || !strings.Contains(string(docs), "error: "+strings.Replace(err.Error(), head.Hash[:12], "0123456789ab", 1)+" [TH_UNVERIFIED_COMMIT]\n") {
		t.Errorf("docs/diagnostics.md does not have: %v", err)
	}
}

// TestSecretFindings: what the documentation shows is what is printed.
func TestSecretFindings(t *testing.T) {
	docs, err := os.ReadFile("../docs/diagnostics.md")
	if err != nil {
		t.Fatal(err)
	}
	for text, secrets := range map[string]map[string]string{"secretName: CI_SECRET\n": {}, "secretName: CI_SECRET\nauthMode: url_token\n": {"CI_SECRET": "a/b"}} {
		m := &Memory{}
		for name, value := range secrets {
			m.SetSecret(name, value)
		}
		definitions := tree("webhooks/ci.yaml", text)
		b, err := Build(t.Context(), BuildInput{Factory: "f", Tree: definitions, Secrets: m.Secrets, UIDs: m.UIDs})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		report := &schema.Report{Diagnostics: b.Diagnostics}
		if err := schema.Print(&out, "text", report, schema.PrintOptions{Source: func(name string) []byte { return definitions[name].Data }}); err != nil {
			t.Fatal(err)
		}
		if shown, _, _ := strings.Cut(out.String(), "not valid:"); len(b.Diagnostics) != 1 || !strings.Contains(string(docs), shown) {
			t.Errorf("docs/diagnostics.md does not have:\n%s", shown)
		}
	}
}
