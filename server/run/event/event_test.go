package event

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
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
		Push{Repository: "https://h/r", Ref: "refs/heads/b", Old: "0", New: "1", Refused: "r"},
		Egress{Host: "h", Port: 443, Allowed: true, Reason: "r", Count: 2},
		Permission{Request: "r", Decision: "d"},
		Session{Harness: "claude", ID: "i"},
		Result{Failed: true, Message: "m", Turns: 2},
		Request{Name: "n", Request: "{}", Refused: "r", Done: "d"},
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

// TestRedact: no field of any kind of event lets a secret through, unless the server alone
// writes it (SPEC 14.7). The fields are found by reflection, so that a new one is in the test.
func TestRedact(t *testing.T) {
	const secret, long = "hunter2-hunter2", MaxText + 100
	hide := func(s string) string { return strings.ReplaceAll(s, secret, "[redacted]") }
	var never []string
	for kind := range decoders {
		e, err := Decode(kind, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		is := reflect.TypeOf(e)
		full := reflect.New(is).Elem()
		for i := range is.NumField() {
			switch field, name := full.Field(i), is.Name()+"."+is.Field(i).Name; field.Kind() {
			case reflect.String:
				field.SetString(secret + strings.Repeat("x", long))
				if is.Field(i).Tag.Get("redact") == "never" {
					field.SetString(secret)
					never = append(never, name)
				}
			case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
			case reflect.Pointer:
				if field.Type().Elem().Kind() != reflect.Int {
					t.Errorf("Redact does not look into %s", name)
				}
			default:
				t.Errorf("Redact does not look into %s", name)
			}
		}
		hidden := reflect.ValueOf(Redact(full.Interface().(Event), hide))
		for i := range is.NumField() {
			text, tag := hidden.Field(i).String(), is.Field(i).Tag.Get("redact")
			if hidden.Field(i).Kind() == reflect.String && (strings.Contains(text, secret) != (tag == "never") || len(text) > long) {
				t.Errorf("%s.%s has %d bytes: %.40s", is.Name(), is.Field(i).Name, len(text), text)
			}
		}
	}
	slices.Sort(never)
	if want := []string{"Status.Isolation", "Status.State", "Status.Worker"}; !slices.Equal(never, want) {
		t.Errorf("not redacted are %q, want %q", never, want)
	}
	everything := func(string) string { return "[redacted]" }
	if got := Redact(Phase{Name: PhaseAgent}, everything); got != (Phase{Name: PhaseAgent}) {
		t.Errorf("a secret with the value agent makes a phase unreadable: %#v", got)
	}
	if got := Redact(Message{Role: "hunter", Text: PhaseAgent}, everything); got != (Message{Role: "[redacted]", Text: "[redacted]"}) {
		t.Errorf("words of Triphammer stay where others write, too: %#v", got)
	}
}
