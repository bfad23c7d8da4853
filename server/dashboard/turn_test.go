package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// many answers as a server with many automations and webhooks.
type many struct{ automations, webhooks int }

func (m many) Call(_ context.Context, _, path string, _, out any) error {
	list := make([]any, 0)
	switch name, _, _ := strings.Cut(path, "?"); name {
	case "/automations":
		for i := range m.automations {
			list = append(list, api.Automation{Name: fmt.Sprintf("an-automation-with-a-name-%05d", i), Factory: "f", Path: "a.md", Enabled: true, EnvironmentID: "e", Triggers: []api.Trigger{{Provider: "webhook", Event: "received", Webhooks: []string{"hook-000"}}}})
		}
		return into(map[string]any{"automations": list, "page_info": api.PageInfo{}}, out)
	case "/webhooks":
		for i := range m.webhooks {
			list = append(list, api.Webhook{Name: fmt.Sprintf("hook-%03d", i), UID: fmt.Sprint("whk_", i), Factory: "f", Enabled: true})
		}
		return into(map[string]any{"webhooks": list, "page_info": api.PageInfo{}}, out)
	case "/secrets", "/agent/schedules", "/keys", "/auth/sessions":
		for i := range m.webhooks {
			list = append(list, map[string]any{"name": fmt.Sprintf("one-of-many-%03d", i)})
		}
		return into(map[string]any{name[strings.LastIndexByte(name, '/')+1:]: list, "page_info": api.PageInfo{}}, out)
	case "/webhooks/hook-000":
		return into(api.Webhook{Name: "hook-000", UID: "whk_0", Factory: "f", Enabled: true}, out)
	case "/webhooks/hook-000/setup":
		return into(api.WebhookSetup{Samples: []api.Sample{{Payload: []byte("{}")}}}, out)
	case "/stats":
		return into(api.Stats{Spent: &api.Spent{}}, out)
	case "/factories":
		return into(map[string]any{"factories": []api.FactoryStatus{{Name: "f"}}, "page_info": api.PageInfo{}}, out)
	}
	return nil // nothing else is there
}

func into(from, out any) error {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	return err
}

// TestManyDefinitions: with 10,000 automations and 300 webhooks, each page has less than 100 kB of HTML,
// and every one of them can be found (SPEC 18.5).
func TestManyDefinitions(t *testing.T) {
	for path, wants := range map[string][]string{
		"/automations":             {"10,000 automations", "1 to 50 of 10,000", `from=51"`, `href="/automations/an-automation-with-a-name-00049"`},
		"/automations?from=9999":   {"9,999 to 10,000 of 10,000", "from=9949"},
		"/automations?q=NAME-0042": {"an-automation-with-a-name-00420", "1 to 10 of 10"},
		"/automations?q=nothing":   {"Nothing fits this text."},
		"/automations?from=-7":     {"1 to 50 of 10,000"},
		"/webhooks":                {"300 webhooks take deliveries", "1 to 50 of 300", "10,000 in all"},
		"/webhooks?q=hook-299":     {"hook-299"},
		"/webhooks/hook-000":       {"all 10,000"},
		"/runs":                    {`<input id="f-automation" name="automation" value="" list="l-automation"`, "<option>an-automation-with-a-name-00299</option>", `list="l-webhook"`},
		"/deliveries?webhook=x":    {`list="l-webhook"`, `value="x"`},
		"/deliveries?event=push&person=ada&automation=a&cursor=x": {`href="/deliveries?automation=a&amp;event=push&amp;outcome=duplicate&amp;person=ada"`, "<details class=\"more flat\" open>"},
		"/automations/test":   {`list="l-automation"`},
		"/runs/new":           {"Start a run"},
		"/environments":       {"No environment yet"},
		"/agents":             {"No agent yet"},
		"/costs":              {"No run has ended"},
		"/search":             {"New webhook", `href="/people"`},
		"/search?q=NAME-0042": {"21 results", "Pause an-automation-with-a-name-00420…", "/automations/an-automation-with-a-name-00420#run-prompt", "/automations?q=NAME-0042", "/webhooks?q=NAME-0042", "/subjects?text=NAME-0042"},
		"/secrets":            {"1 to 50 of 300", "from=51"},
		"/secrets?q=many-299": {"one-of-many-299"},
		"/schedules?from=251": {"300 schedules", "251 to 300 of 300", "one-of-many-299"},
		"/people?key=101":     {"300 keys", "101 to 150 of 300", "1 to 50 of 300", "Pages of the sessions"},
		"/":                   {"Overview"},
	} {
		text := visited(t, path, many{10_000, 300})
		if len(text) > 100_000 {
			t.Errorf("%s has %d bytes", path, len(text))
		}
		for _, want := range wants {
			if !strings.Contains(text, want) && !(strings.Contains(want, "1 to 10 of") && !strings.Contains(text, "Pages of the list")) {
				t.Errorf("%s has no %q:\n%.3000s", path, want, text[strings.Index(text, "<main"):])
			}
		}
	}
}

func visited(t *testing.T, path string, of API) string {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := range Routes {
		params, fits := matched(Routes[i].Path, request.URL.Path)
		if Routes[i].Method != http.MethodGet || !fits {
			continue
		}
		page, err := Routes[i].Handle(&Visit{Request: request, Person: Person{Name: "ada", May: func(string) bool { return true }}, Param: params.Get, API: of})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return rendered(t, page)
	}
	t.Fatalf("there is no page %s", path)
	return ""
}

// matched is the parameters of a path that has the form of a route.
func matched(route, path string) (params url.Values, fits bool) {
	want, got := strings.Split(route, "/"), strings.Split(path, "/")
	if fits = len(want) == len(got); !fits {
		return nil, false
	}
	params = url.Values{}
	for i, part := range want {
		if name, is := strings.CutPrefix(part, ":"); is && got[i] != "new" && got[i] != "test" {
			params.Set(name, got[i])
		} else if part != got[i] {
			return nil, false
		}
	}
	return params, true
}

// TestSteps: of the transcript of an ended run, what the agent does between two messages is folded, and
// open if something failed; that of a run at work is not folded.
func TestSteps(t *testing.T) {
	failed := 1
	events := eventsOf(t,
		event.Status{State: "INPROGRESS"}, event.Command{Phase: "setup", Command: "npm ci"}, event.Phase{Name: "setup"}, event.AgentStarted{Command: "claude"},
		event.Message{Role: "assistant", Text: "I look."}, event.Tool{Name: "Read"}, event.Command{Phase: "agent", Command: "make", ExitCode: &failed}, event.File{Path: "a.go", Diff: "@@\n+x\n"},
		event.Message{Role: "assistant", Text: "Done."}, event.Tool{Name: "Read"}, event.Status{State: "SUCCEEDED"},
	)
	entries := reading{}.entries(events)
	var got []string
	for _, s := range steps(entries, true) {
		got = append(got, fmt.Sprintf("%d %s %d", len(s.Entries), s.Say, s.Failed))
	}
	if want := "1  0|2 1 command, 1 note 0|1  0|1  0|3 1 command, 1 tool call, 1 file 1|1  0|1  0|1  0"; strings.Join(got, "|") != want {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
	if flat := steps(entries, false); len(flat) != len(entries) {
		t.Errorf("%d entries of a run at work are %d steps", len(entries), len(flat))
	}
	ended := rendered(t, RunPage{Run: api.Run{State: "SUCCEEDED", Detail: &api.RunDetail{}}, Entries: entries})
	if strings.Count(ended, `<li class="step">`) != 2 || strings.Count(ended, `<details open><summary><span class="sub">`) != 1 || !strings.Contains(ended, `<b class="fail">1 failed</b>`) {
		t.Errorf("the page does not fold its steps, or does not open what failed:\n%s", ended)
	}
}

// TestHeading: a run is called by what it is for and what it is about.
func TestHeading(t *testing.T) {
	told := &api.RunAbout{Title: "Login fails\non Safari"}
	for want, r := range map[string]api.Run{
		"fix":               {Title: "fix"},
		"fix · acme/app#12": {Title: "fix", Subject: "github:acme/app#12"},
		"fix: Login fails on Safari · acme/app#12": {Title: "fix", Subject: "github:acme/app#12", About: told},
		"fix: Login fails on Safari":               {Title: "fix", About: told},
	} {
		if got := headingOf(r); got != want {
			t.Errorf("a run is called %q, not %q", got, want)
		}
	}
}
