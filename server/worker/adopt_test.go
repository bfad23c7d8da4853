package worker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/worker/harness"
)

// toolCalls are what Claude Code prints of two calls.
var toolCalls = []string{
	`{"type":"system","subtype":"init","model":"m","session_id":"s1"}`,
	`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"make"}}]}}`,
	`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"made"}]}}`,
	`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t2","name":"Read","input":{"file_path":"a"}}]}}`,
	`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t2","content":"a"}]}}`,
	`{"type":"result","subtype":"success","session_id":"s1","num_turns":2,"usage":{"input_tokens":5,"output_tokens":6}}`,
}

// TestReplayedCalls: wherever a worker is lost in the work of an agent, the next one stores
// what is missing and no event again, although it reads within a moment what took the agent its
// time. A call that is in progress meanwhile keeps its beginning (SPEC 17.5).
func TestReplayedCalls(t *testing.T) {
	for stored := range len(toolCalls) + 1 {
		synctest.Test(t, func(t *testing.T) {
			claude := func() harness.Parser { s := harness.Named("claude").Start(harness.Request{}); return s.Parse }
			play := func(x *tape, lines []string, pause time.Duration) {
				for _, line := range lines {
					time.Sleep(pause)
					x.add(event.Output{Stream: event.Stdout, Text: line + "\n"})
				}
			}
			first := newTape(claude(), DefaultTranscriptLimit)
			first.add(event.Status{State: string(store.InProgress), Message: "started"})
			first.add(event.AgentStarted{})
			play(first, toolCalls[:stored], 3*time.Second)
			before := len(first.lines(t.Context()))

			second := newTape(claude(), DefaultTranscriptLimit)
			second.again = replayedOf(first.events, "started")
			if !second.again.begun {
				t.Fatal("the beginning of the attempt is not found")
			}
			second.add(event.AgentStarted{})
			play(second, toolCalls[:stored], 0)
			if again := second.lines(t.Context()); len(again) > 0 {
				t.Errorf("after %d lines, it stores again: %v", stored, again)
			}
			play(second, toolCalls[stored:], 3*time.Second)
			second.lines(t.Context())

			whole := newTape(claude(), DefaultTranscriptLimit)
			whole.add(event.Status{State: string(store.InProgress), Message: "started"})
			whole.add(event.AgentStarted{})
			play(whole, toolCalls, 3*time.Second)
			want := whole.lines(t.Context())
			var got []string
			for _, e := range append(first.events[:before:before], second.events...) {
				got = append(got, e.Kind+" "+string(e.Data))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") || !strings.Contains(strings.Join(want, "\n"), `"duration_ms":3000`) {
				t.Errorf("after %d lines, it has\n%s\nand not\n%s", stored, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestReplayedOutput: what an agent prints is cut into events by the clock, and bytes that are
// no text become the same characters wherever the cuts are.
func TestReplayedOutput(t *testing.T) {
	pieces := []string{"a\xff", "\xff\xfe", "b\xe2", "\x82\xac\xe2", "\x82", "c\n"}
	text := func(events []store.Event) string {
		var b strings.Builder
		for _, e := range events {
			if o, ok := decoded(e).(event.Output); ok {
				b.WriteString(o.Text)
			}
		}
		return b.String()
	}
	for stored := range len(pieces) {
		first := newTape(nil, DefaultTranscriptLimit)
		for _, piece := range pieces[:stored] {
			first.add(event.Output{Stream: event.Stdout, Text: piece})
			_ = first.flush(t.Context())
		}
		second := newTape(nil, DefaultTranscriptLimit)
		second.again = replayedOf(append([]store.Event{begins(t, 1)}, first.events...), "started")
		for _, piece := range pieces {
			second.add(event.Output{Stream: event.Stdout, Text: piece})
		}
		second.lines(t.Context())
		const want = "a\uFFFD\uFFFD\uFFFDb€\uFFFD\uFFFDc\n"
		if got := text(first.events) + text(second.events); got != want {
			t.Errorf("after %d pieces, it is %q, and not %q", stored, got, want)
		}
	}
}

// begins is the event with which an attempt begins.
func begins(t *testing.T, attempt int) store.Event {
	t.Helper()
	s := event.Status{State: string(store.InProgress), Message: "started"}
	if attempt > 1 {
		s.Message = fmt.Sprintf("started, attempt %d of 3", attempt)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return store.Event{Kind: event.KindStatus, Data: data}
}

// TestReplayedAttempt: of a run that is tried again, only what the last attempt has stored is
// left out, also if the worker of the one before was lost and has told of no end.
func TestReplayedAttempt(t *testing.T) {
	output := func(text string) store.Event {
		data, err := json.Marshal(event.Output{Stream: event.Stdout, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return store.Event{Kind: event.KindOutput, Data: data}
	}
	all := []store.Event{begins(t, 1), output("first\n"), begins(t, 2), output("one\n")}
	if r := replayedOf(all, "started, attempt 2 of 3"); !r.begun || r.text[event.Stdout] != len("one\n") {
		t.Errorf("of the second attempt, %+v is stored", r)
	}
	if r := replayedOf(all, "started, attempt 3 of 3"); r.begun || r.text[event.Stdout] != 0 {
		t.Errorf("the third attempt has nothing stored, but %+v is replayed", r)
	}
}

// TestHeartbeat: whatever its lease, a worker is heard of before others take it for lost.
func TestHeartbeat(t *testing.T) {
	for _, lease := range []time.Duration{5 * time.Second, store.DefaultLease, time.Hour} {
		beat := heartbeat(lease)
		if w := (&store.Worker{Lease: lease, Silent: 3 * beat}); beat <= 0 || !w.Live() {
			t.Errorf("with a lease of %v, it is heard of every %v", lease, beat)
		}
	}
}
