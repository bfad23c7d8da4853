package dashboard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

func eventsOf(t *testing.T, all ...event.Event) []store.Event {
	t.Helper()
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	events := make([]store.Event, len(all))
	for i, e := range all {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events[i] = store.Event{Seq: int64(i + 1), At: begin.Add(time.Duration(i) * 40 * time.Second), Kind: e.Kind(), Data: data}
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
	for _, e := range entries(events, events[0].At) {
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
		"6:00|modified|a.go|+1 −1||folded",
		"6:40|Network, refused|x.example.com:443|not listed||bad",
		"7:20|message|||Done.",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the entries are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestDiffKeepsSigns: colour alone tells nothing.
func TestDiffKeepsSigns(t *testing.T) {
	var b strings.Builder
	events := eventsOf(t, event.File{Path: "a", Change: event.FileModified, Diff: "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n z\n"})
	if err := Render(&b, Run{Run: &store.Run{}, Events: events}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`<span class="hunk">--- a`, `<span class="hunk">@@ -1`, `<span class="del">-x`, `<span class="ins">&#43;y`, `<span> z`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page has no %s:\n%s", part, b.String())
		}
	}
	if many := diffLines("@@ @@\n" + strings.Repeat("+x\n", 3*maxDiffLines)); len(many) != maxDiffLines+1 {
		t.Errorf("%d lines of a long diff are shown", len(many))
	}
}
