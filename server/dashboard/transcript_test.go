package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

func eventsOf(t *testing.T, all ...event.Event) []api.Event {
	t.Helper()
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	events := make([]api.Event, len(all))
	for i, e := range all {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events[i] = api.Event{Seq: int64(i + 1), At: begin.Add(time.Duration(i) * 40 * time.Second), Kind: e.Kind(), Data: data}
	}
	return events
}

// TestEntries: what was started and its end are one entry, also if they come from two
// streams at once; what a process prints in parts is one; what failed is open.
func TestEntries(t *testing.T) {
	one := 1
	events := eventsOf(t,
		event.Output{Stream: "stdout", Text: "a"}, event.Output{Stream: "stdout", Text: "b\n"}, event.Output{Stream: "stderr", Text: "c"},
		event.Tool{ID: "1", Name: "Read", Started: true, Input: `{"file_path":"a.go","limit":5}`},
		event.Command{ID: "1", Phase: "agent", Command: "make\ntest", Started: true},
		event.Tool{ID: "1", Name: "Read", Output: "text", DurationMS: 1500},
		event.Command{ID: "1", Phase: "agent", Command: "make\ntest", ExitCode: &one, Output: "no"},
		event.Tool{ID: "1", Name: "Read", Started: true, Input: `{"file_path":"b.go"}`},
		event.Tool{Name: "result", Output: "of an old transcript"},
		event.File{Path: "a.go", Change: event.FileModified, Diff: "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"},
		event.Egress{Host: "x.example.com", Port: 443, Reason: "not listed"},
		event.Message{Role: "exit", Text: "Done."},
	)
	var lines []string
	for _, e := range (reading{clock: []moment{{0, events[0].At}}}).entries(events) {
		line := strings.Join([]string{e.Offset, e.Label, e.Code, e.Sub, e.Say}, "|")
		if e.Bad {
			line += "|bad"
		}
		if e.Folds() && !e.Open {
			line += "|folded"
		}
		lines = append(lines, line)
	}
	want := []string{
		"0:00|stdout|||",
		"1:20|stderr|||",
		"2:00|Tool|Read a.go|done, 1.5 s||folded",
		"2:40||make test|exit status 1||bad",
		"4:40|Tool|Read b.go|started|",
		"5:20|Tool|result|done||folded",
		"6:00|modified|a.go|||folded",
		"6:40|Network, refused|x.example.com:443|not listed||bad",
		"7:20|message|||Done.",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the entries are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestOffsets: the times of a transcript count from the beginning of the attempt, and then of
// its agent, however long the run has waited.
func TestOffsets(t *testing.T) {
	events := eventsOf(t, event.Status{State: "INPROGRESS"}, event.Phase{Name: "clone"}, event.AgentStarted{}, event.Message{Text: "a"}, event.Message{Text: "b"})
	clock := []moment{{0, events[0].At.Add(-time.Hour)}, {1, events[0].At}, {3, events[2].At}}
	var got []string
	for _, e := range (reading{clock: clock}).entries(events) {
		got = append(got, e.Offset)
	}
	if want := "0:00 0:40 0:00 0:40 1:20"; strings.Join(got, " ") != want {
		t.Errorf("the offsets are %v, want %s", got, want)
	}
}

// TestDiffKeepsSigns: colour alone tells nothing.
func TestDiffKeepsSigns(t *testing.T) {
	var b strings.Builder
	events := eventsOf(t, event.File{Path: "a", Change: event.FileModified, Diff: "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n z\n"})
	if err := Render(&b, RunPage{Run: api.Run{Detail: &api.RunDetail{}}, Entries: reading{}.entries(events)}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`<span class="hunk">--- a`, `<span class="hunk">@@ -1`, `<del>-x`, `<ins>&#43;y`, `<span> z`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page has no %s:\n%s", part, b.String())
		}
	}
	if !strings.Contains(b.String(), `<span class="ok">+1</span> <span class="fail">−1</span>`) {
		t.Error("the page does not say how many lines changed")
	}
	if many, cut := diffLines("@@ @@\n"+strings.Repeat("+x\n", 1000), 3000); !cut || len(many) < 50 || len(many) > 100 {
		t.Errorf("%d lines of a long diff are shown", len(many))
	}
}

// TestPageOfTranscript: whatever events have, a page of them is small; what is too long for
// it shows its beginning and its end.
func TestPageOfTranscript(t *testing.T) {
	long := "the beginning " + strings.Repeat("<\x1b[31m\u202e+", 5000) + " the end"
	for name, one := range map[string]event.Event{
		"output": event.Output{Stream: "stdout", Text: long}, "message": event.Message{Role: "assistant", Text: long}, "command": event.Command{Command: long, Output: long},
		"tool": event.Tool{Name: long, Input: `{"a":` + quoted(long) + `,"b":` + quoted(long) + `}`, Output: long}, "file": event.File{Path: "a", Diff: "@@ @@\n+" + strings.ReplaceAll(long, "+", "\n+")},
		"status": event.Status{State: "FAILED", Message: long}, "permission": event.Permission{Request: long, Decision: long}, "result": event.Result{Message: long},
		"egress": event.Egress{Host: long, Reason: long}, "small": event.Message{Role: "assistant", Text: "x"}, "marks": event.Message{Role: "assistant", Text: strings.Repeat("- *a* [b](https://c)\n", 400)}, "reasoning": event.Message{Role: "reasoning", Text: long},
	} {
		var all []event.Event
		for range map[bool]int{true: mostEvents, false: 30}[name == "small"] {
			all = append(all, one)
		}
		events := eventsOf(t, all...)
		for _, fromEnd := range []bool{false, true} {
			n := fit(events, 0, fromEnd)
			if name == "small" && n < 100 {
				t.Errorf("only %d small events fit", n)
			}
			var b strings.Builder
			if err := Render(&b, RunPage{Run: api.Run{Detail: &api.RunDetail{}}, Entries: reading{}.entries(events[:n])}); err != nil {
				t.Fatal(err)
			}
			if b.Len() > 85_000 {
				t.Errorf("a page of %d of %s has %d bytes", n, name, b.Len())
			}
			if name == "message" && (!strings.Contains(b.String(), "the beginning") || !strings.Contains(b.String(), "the end") || !strings.Contains(b.String(), "left out")) {
				t.Error("a long message has no beginning, no end, or does not say that something is left out")
			}
		}
	}
	if text, cut := clip("äöü", 12); cut || text != "äöü" {
		t.Errorf("%q %t", text, cut)
	}
}

func quoted(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

// TestGrowingTranscript: of events that came later, an end takes the place of its beginning
// on the page, and output that goes on has no heading of its own.
func TestGrowingTranscript(t *testing.T) {
	events := eventsOf(t,
		event.Command{ID: "1", Phase: "agent", Command: "make", Started: true}, event.Tool{ID: "1", Name: "Read", Started: true, Input: `{"path":"a.go"}`},
		event.Tool{ID: "1", Name: "Read"}, event.Output{Stream: "stdout", Text: "a"},
		event.Output{Stream: "stdout", Text: "b"}, event.Tool{ID: "1", Name: "Read"}, event.Command{ID: "1", Phase: "agent", Command: "make", Output: "built"},
		event.Message{Role: "assistant", Text: "Done."},
	)
	p := reading{before: &events[3], started: events[:3]}
	var got []string
	for _, e := range p.entries(events[4:]) {
		got = append(got, fmt.Sprintf("%d %t %s|%s|%s|%s", e.Seq, e.Renew, e.Label, e.Code, e.Sub, e.Text+e.Say))
	}
	want := []string{"5 false |||b", "6 false Tool|Read|done|", "1 true |make|ended|built", "8 false assistant|||Done."}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the entries are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestLine: the timeline of the last attempt, with its head.
func TestLine(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	mark := func(seconds float64, e event.Event) api.Event {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return api.Event{At: at(seconds), Kind: e.Kind(), Data: data}
	}
	phases := []api.Event{
		mark(2, event.Status{State: "INPROGRESS"}), mark(4, event.Phase{Name: "clone", DurationMS: 1000}), mark(4, event.AgentStarted{}), mark(64, event.Phase{Name: "agent", DurationMS: 60000}),
		mark(65, event.Phase{Name: "collect", DurationMS: 1000}),
	}
	for _, tt := range []struct {
		state             string
		started, finished float64
		events            []api.Event
		now               float64
		want              string
	}{
		{"SUCCEEDED", 2, 65, phases, 100, "queued 2 s soft, prepared 1 s past, cloned 1 s past, agent 1 min f-ok, collected 1 s past"},
		{"FAILED", 2, 65, phases, 100, "queued 2 s soft, prepared 1 s past, cloned 1 s past, agent 1 min f-fail, collected 1 s past"},
		{"CANCELLED", 2, 3, phases[:1], 100, "queued 2 s soft, ended 1 s past"},
		{"FAILED", 2, 4, phases[:2], 100, "queued 2 s soft, prepared 1 s past, cloned 1 s f-fail"},
		{"INPROGRESS", 2, 0, phases[:3], 14, "queued 2 s soft, prepared 1 s past, cloned 1 s past, agent 10 s f-run"},
		{"INPROGRESS", 2, 0, phases[:1], 3, "queued 2 s soft, prepares 1 s f-run"},
		{"INPROGRESS", 72, 0, append(phases[:5:5], mark(70, event.Status{State: "QUEUED"})), 73, "queued 2 s soft, prepares 1 s f-run"},
		{"QUEUED", 0, 0, nil, 3, "queued 3 s f-wait"},
		{"CANCELLED", 0, 3, nil, 9, "queued 3 s past"},
	} {
		r := api.Run{State: tt.state, CreatedAt: begin}
		if tt.started > 0 {
			from := at(tt.started)
			r.StartedAt = &from
		}
		if tt.finished > 0 {
			to := at(tt.finished)
			r.FinishedAt = &to
		}
		l := lineOf(&r, tt.events, at(tt.now))
		var got []string
		for _, p := range l.Phases {
			got = append(got, p.Name+" "+p.Long()+" "+p.Class)
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %s, not %s", tt.state, strings.Join(got, ", "), tt.want)
		}
		if svg := string(l.Draw()); strings.Count(svg, "<path") != len(l.Phases)+map[bool]int{true: 1}[l.GoesOn] || strings.Contains(svg, "NaN") {
			t.Error(svg)
		}
	}
}
