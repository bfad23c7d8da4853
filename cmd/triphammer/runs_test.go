package main

import (
	"encoding/json"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// TestEventLines: an event of each kind is a line, also of one that only a newer
// server knows.
func TestEventLines(t *testing.T) {
	for _, c := range []struct{ kind, data, want string }{
		{event.KindStatus, `{"state":"FAILED","message":"why"}`, "[status] FAILED why\n"},
		{event.KindCommand, `{"phase":"setup","command":"make","exit_code":2}`, "[command] setup make exit status 2\n"},
		{event.KindCommand, `{"phase":"agent","command":"make","signal":"SIGINT"}`, "[command] agent make SIGINT\n"},
		{event.KindStarted, `{"command":"./agent"}`, "[started] ./agent\n"},
		{event.KindTool, `{"name":"search","input":"{}"}`, "[tool] search\n"},
		{event.KindUsage, `{"input_tokens":7}`, "[usage]\n"},
		{event.KindTruncated, `{"message":"left out"}`, "[truncated] left out\n"},
		{"newer", `{"a":1}`, "[newer] {\"a\":1}\n"},
	} {
		if got := transcriptText(t, 0, api.Event{Kind: c.kind, Data: json.RawMessage(c.data)}); got != c.want {
			t.Errorf("%s %s is shown as %q, not %q", c.kind, c.data, got, c.want)
		}
	}
}

// TestExitLine: how an agent ended is told by its exit status, or by the signal
// that ended it, which leaves none.
func TestExitLine(t *testing.T) {
	for data, want := range map[string]string{
		`{"exit_code":0}`: "[exit] exit status 0\n",
		`{"exit_code":7}`: "[exit] exit status 7\n",
		`{"exit_code":-1,"signal":"SIGINT","stopped":true}`: "[exit] SIGINT\n",
	} {
		if got := transcriptText(t, 0, api.Event{Seq: 1, Kind: event.KindExit, Data: json.RawMessage(data)}); got != want {
			t.Errorf("%s is shown as %q, not %q", data, got, want)
		}
	}
}

func transcriptText(t *testing.T, width int, events ...api.Event) string {
	t.Helper()
	var b strings.Builder
	w := newTranscriptWriter(&b)
	w.width = width
	for _, e := range events { // as they are followed
		if err := w.events([]api.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestForgedLines: whatever an agent prints, says, calls its files or its tools,
// no line of a transcript that is not Triphammer's begins like one.
func TestForgedLines(t *testing.T) {
	entry := func(kind string, data any) api.Event {
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return api.Event{Kind: kind, Data: text}
	}
	const forged = "[exit] exit status 0"
	output := func(text string) api.Event {
		return entry(event.KindOutput, event.Output{Stream: "stdout", Text: text})
	}
	real := entry(event.KindExit, event.Ended{ExitCode: 7})
	for _, c := range []struct {
		name   string
		width  int
		events []api.Event
		want   string
	}{
		{"a line", 0, []api.Event{output(forged + "\nSUCCEEDED\n"), real}, "│ [exit] exit status 0\n│ SUCCEEDED\n[exit] exit status 7\n"},
		{"an unfinished line", 0, []api.Event{output("working"), real}, "│ working\n[exit] exit status 7\n"},
		{"a line in parts", 0, []api.Event{output("[ex"), output("it] exit"), output(" status 0\n\nx"), real}, "│ [exit] exit status 0\n│\n│ x\n[exit] exit status 7\n"},
		{"carriage returns", 0, []api.Event{output("x\r" + forged + "\r\n"), real}, "│ x\\r[exit] exit status 0\n[exit] exit status 7\n"},
		{"other line ends", 0, []api.Event{output("x\v" + forged + "\u0085" + forged + "\u2028" + forged + "\n"), real}, "│ x\\u000b[exit] exit status 0\\u0085[exit] exit status 0\\u2028[exit] exit status 0\n[exit] exit status 7\n"},
		{"cursor control", 0, []api.Event{output("\x1b[1A\u009b2K" + forged + "\n"), real}, "│ \\u001b[1A\\u009b2K[exit] exit status 0\n[exit] exit status 7\n"},
		{"a role", 0, []api.Event{entry(event.KindMessage, event.Message{Role: "exit", Text: "exit status 0"}), real}, "[message] exit status 0\n[exit] exit status 7\n"},
		{"a role with a line", 0, []api.Event{entry(event.KindMessage, event.Message{Role: "x] y\n[exit", Text: "exit status 0"}), real}, "[message] exit status 0\n[exit] exit status 7\n"},
		{"a message", 0, []api.Event{entry(event.KindMessage, event.Message{Role: "assistant", Text: "Done.\n" + forged}), real}, "[assistant] Done.\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"a command", 0, []api.Event{entry(event.KindCommand, event.Command{Phase: "agent", Command: "true\n" + forged}), real}, "[command] agent true\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"a tool", 0, []api.Event{entry(event.KindTool, event.Tool{Name: "\n" + forged}), real}, "[tool] \n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"a file's name", 0, []api.Event{entry(event.KindFile, event.File{Change: event.FileCreated, Path: "a\n" + forged, Diff: "+" + forged + "\n" + forged}), real}, "[created] a\\n[exit] exit status 0\n│ +[exit] exit status 0\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"the harness's status", 0, []api.Event{entry(event.KindStatus, event.Status{Message: "claude ended with x\n" + forged}), real}, "[status] claude ended with x\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"where the terminal breaks the line", 24, []api.Event{output(strings.Repeat(" ", 22) + forged + "\n"), real}, "│ " + strings.Repeat(" ", 22) + "\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"with wide characters", 24, []api.Event{output(strings.Repeat("宽", 11) + forged + "\n"), real}, "│ " + strings.Repeat("宽", 11) + "\n│ [exit] exit status 0\n[exit] exit status 7\n"},
		{"behind a head", 24, []api.Event{entry(event.KindMessage, event.Message{Role: "assistant", Text: strings.Repeat(" ", 12) + forged}), real}, "[assistant] " + strings.Repeat(" ", 12) + "\n│ [exit] exit status 0\n[exit] exit status 7\n"},
	} {
		if got := transcriptText(t, c.width, c.events...); got != c.want {
			t.Errorf("%s: shown as\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestVisible: nothing that a terminal acts on, and nothing that hides or turns
// text, is printed as it came; text in any language is.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\r\nand\nlines":     "plain\ttext\nand\nlines",
		"\x1b]0;title\a":                `\u001b]0;title\u0007`,
		"\u009b31m \u0090q\u009c \x7f":  `\u009b31m \u0090q\u009c \u007f`,
		"\x9b31m":                       `\x9b31m`, // 8-bit CSI, no UTF-8
		"\xe2\x80":                      `\xe2\x80`,
		"a\u202eb\u2066c\u200fd\u061ce": `a\u202eb\u2066c\u200fd\u061ce`,
		"hid\u200bden\ufeff\U000e0041":  `hid\u200bden\ufeff\udb40\udc41`,
		"a\rb":                          `a\rb`,
		"\u2028\u2029":                  `\u2028\u2029`,
		"Grüße, 世界, שלום, مرحبا, می\u200cخواهم, 👩\u200d💻 \ufffd": "Grüße, 世界, שלום, مرحبا, می\u200cخواهم, 👩\u200d💻 \ufffd",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, not %q", text, got, want)
		}
		if got := visible(visible(text)); got != visible(text) {
			t.Errorf("%q: twice is %q", text, got)
		}
	}
	// What stands in a JSON text is the same JSON on a terminal.
	const value = "\u202e\u009b\u007f\U000e0041\u2028"
	var b strings.Builder
	if err := writeJSON(printable{&b}, value); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != value {
		t.Errorf("%s is %q, %v", b.String(), back, err)
	}
}
