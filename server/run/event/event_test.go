package event

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestDecode: what is stored of an event of any kind is read back as it was, and
// what is no event of a known kind is an error.
func TestDecode(t *testing.T) {
	code := 3
	all := []Event{
		Status{State: "FAILED", Message: "m"},
		Message{Role: "user", Text: "t"},
		Command{Phase: "setup", Command: "c", ExitCode: &code, Signal: "SIGINT", Failed: true, Output: "o"},
		Tool{Name: "n", Input: "{}", Output: "o", Failed: true},
		Output{Stream: "stderr", Text: "t"},
		File{Path: "p", Change: FileCreated, Size: 7, Diff: "d", Omitted: "o"},
		Usage{Model: "m", InputTokens: 1, CachedTokens: 2, OutputTokens: 3, CostUSD: 0.5, Turns: 4},
		Ended{ExitCode: -1, Signal: "SIGKILL", Stopped: true},
		AgentStarted{Command: "c"},
		Truncated{Limit: 1, Message: "m", Bytes: 2, Events: 3},
		Phase{Name: PhaseSetup, DurationMS: 5},
		Egress{Host: "h", Port: 443, Allowed: true, Reason: "r", Count: 2},
		Permission{Request: "r", Decision: "d"},
		Session{Harness: "claude", ID: "i"},
		Result{Failed: true, Message: "m", Turns: 2},
		Artifact{Type: ArtifactFile, Name: "n", URL: "u", Size: 3, Omitted: "o"},
	}
	if len(all) != len(decoders) {
		t.Errorf("%d events of %d kinds", len(all), len(decoders))
	}
	for _, e := range all {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(e.Kind(), data); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %#v, %v, want %#v", data, got, err, e)
		}
	}
	for kind, data := range map[string]string{"newer": "{}", "": "{}", KindStatus: `{"state":7}`, KindOutput: `"text"`, KindExit: "{"} {
		if got, err := Decode(kind, []byte(data)); err == nil || got != nil {
			t.Errorf("%q %s: %#v, %v", kind, data, got, err)
		}
	}
}
