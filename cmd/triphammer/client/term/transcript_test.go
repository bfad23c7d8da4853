package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/run/event"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTranscripts: what people see of the events of each harness, in logs, with --full
// --reasoning, on a terminal with colours, and as the events come.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcript/*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []api.Event
		for line := range bytes.Lines(text) {
			var e api.Event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(file, err)
			}
			all = append(all, e)
		}
		for view, prepare := range map[string]func(*TranscriptWriter){
			"":        func(*TranscriptWriter) {},
			".full":   func(w *TranscriptWriter) { w.full, w.reasoning = true, true },
			".colour": func(w *TranscriptWriter) { w.Width, w.colours = 60, true },
			".watch":  nil,
		} {
			var b strings.Builder
			w := NewTranscriptWriter(&b, TranscriptView{})
			batches := [][]api.Event{all}
			if prepare == nil {
				batches = slices.Collect(slices.Chunk(all, 1))
			} else {
				prepare(w)
			}
			for _, batch := range batches {
				if err := w.Events(batch); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.End(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(b.String(), "\x1b", "␛")
			golden := strings.TrimSuffix(file, ".jsonl") + view + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s: shown as\n%s\nwant\n%s", golden, got, want)
			}
		}
	}
}

// TestEventLines: an event of a kind that only a newer server knows is a line, and so are
// commands of old transcripts.
func TestEventLines(t *testing.T) {
	for _, c := range []struct{ kind, data, want string }{
		{event.KindStatus, `{"state":"FAILED","message":"why"}`, "[status] FAILED: why\n"},
		{event.KindCommand, `{"phase":"setup","command":"make","exit_code":2}`, "[command] setup, exit status 2: make\n"},
		{event.KindCommand, `{"phase":"agent","command":"make","signal":"SIGINT"}`, "[command] SIGINT: make\n"},
		{event.KindStarted, `{"command":"./agent"}`, "[started] ./agent\n"},
		{event.KindTool, `{"name":"search","input":"{}"}`, "[tool] done: search {}\n"},
		{event.KindUsage, `{}`, "[usage]\n"},
		{event.KindTruncated, `{"message":"left out"}`, "[truncated] left out\n"},
		{event.KindExit, `{"exit_code":0}`, "[exit] exit status 0\n"},
		{event.KindExit, `{"exit_code":-1,"signal":"SIGINT","stopped":true}`, "[exit] SIGINT\n"},
		{"newer", `{"a":1}`, "[newer] {\"a\":1}\n"},
	} {
		if got := transcriptText(t, 0, false, api.Event{Kind: c.kind, Data: json.RawMessage(c.data)}); got != c.want {
			t.Errorf("%s %s is shown as %q, not %q", c.kind, c.data, got, c.want)
		}
	}
}

func transcriptText(t *testing.T, width int, colours bool, events ...api.Event) string {
	t.Helper()
	var b strings.Builder
	w := NewTranscriptWriter(&b, TranscriptView{})
	w.Width, w.colours = width, colours
	for _, e := range events { // as they are followed
		if err := w.Events([]api.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestColours: a terminal gets colours unless a variable refuses them, and nothing else gets
// them unless a variable forces them.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		noColor, forced, clicolor, term string
		terminal, elsewhere             bool
	}{
		{"", "", "", "xterm", true, false},
		{"", "", "", "dumb", false, false},
		{"", "", "0", "xterm", false, false},
		{"", "0", "", "xterm", true, false},
		{"", "1", "0", "dumb", true, true},
		{"1", "1", "", "xterm", false, false},
	} {
		for name, value := range map[string]string{"NO_COLOR": c.noColor, "CLICOLOR_FORCE": c.forced, "CLICOLOR": c.clicolor, "TERM": c.term} {
			t.Setenv(name, value)
		}
		if wantsColours(true) != c.terminal || wantsColours(false) != c.elsewhere {
			t.Errorf("%+v: got %v on a terminal, %v elsewhere", c, wantsColours(true), wantsColours(false))
		}
		s := ScreenOf(io.Discard)
		if text := s.Paint(ColourBad, "a\x1b[2J\nb"); strings.Contains(text, "\x1b[2J") || strings.Contains(text, "\n") || strings.HasPrefix(text, ColourBad) != c.elsewhere {
			t.Errorf("%+v: %q", c, text)
		}
	}
}

const forged = "[exit] exit status 0"

func entryOf(t *testing.T, e event.Event) api.Event {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return api.Event{Kind: e.Kind(), Data: text}
}

// TestForgedLines: whatever an agent prints, says, calls its files or its tools,
// no line of a transcript that is not Triphammer's begins like one.
func TestForgedLines(t *testing.T) {
	output := func(text string) event.Event { return event.Output{Stream: "stdout", Text: text} }
	for _, c := range []struct {
		name   string
		width  int
		events []event.Event
		want   string
	}{
		{"a line", 0, []event.Event{output(forged + "\nSUCCEEDED\n")}, "│ [exit] exit status 0\n│ SUCCEEDED\n"},
		{"an unfinished line", 0, []event.Event{output("working")}, "│ working\n"},
		{"a line in parts", 0, []event.Event{output("[ex"), output("it] exit"), output(" status 0\n\nx")}, "│ [exit] exit status 0\n│\n│ x\n"},
		{"carriage returns", 0, []event.Event{output("x\r" + forged + "\r\n")}, "│ x\\r[exit] exit status 0\n"},
		{"other line ends", 0, []event.Event{output("x\v" + forged + "\u0085" + forged + "\u2028" + forged + "\n")}, "│ x\\u000b[exit] exit status 0\\u0085[exit] exit status 0\\u2028[exit] exit status 0\n"},
		{"cursor control", 0, []event.Event{output("\x1b[1A\u009b2K" + forged + "\n")}, "│ \\u001b[1A\\u009b2K[exit] exit status 0\n"},
		{"a role", 0, []event.Event{event.Message{Role: "exit", Text: "exit status 0"}}, "[message] exit status 0\n"},
		{"a role with a line", 0, []event.Event{event.Message{Role: "x] y\n[exit", Text: "exit status 0"}}, "[message] exit status 0\n"},
		{"a message", 0, []event.Event{event.Message{Role: "assistant", Text: "Done.\n" + forged}}, "[assistant] Done.\n│ [exit] exit status 0\n"},
		{"reasoning", 0, []event.Event{event.Message{Role: "reasoning", Text: "Hm.\n" + forged}}, "[reasoning] Hm. [exit] exit status 0\n"},
		{"a command", 0, []event.Event{event.Command{Phase: "agent", Command: "true\n" + forged}}, "[command] ended: true\n│ [exit] exit status 0\n"},
		{"a command that says how it ended", 0, []event.Event{event.Command{Phase: "agent", Command: "exit status 0: true", Failed: true}}, "[command] failed: exit status 0: true\n"},
		{"a tool", 0, []event.Event{event.Tool{Name: "\n" + forged}}, "[tool] done: \\n[exit] exit status 0\n"},
		{"a tool's input", 0, []event.Event{event.Tool{Name: "Read", Input: `{"path":"a\n` + forged + `"}`}}, "[tool] done: Read a [exit] exit status 0\n"},
		{"a folded line", 0, []event.Event{event.Command{Phase: "agent", Command: "x", Output: strings.Repeat("y\n", 4) + "[folded] 9 lines\n"}}, "[command] ended: x\n│ y\n│ y\n│ y\n│ y\n│ [folded] 9 lines\n"},
		{"a file's name", 0, []event.Event{event.File{Change: event.FileCreated, Path: "a\n" + forged, Diff: "+" + forged + "\n" + forged}}, "[created] 0 bytes, +0 -0: a\\n[exit] exit status 0\n│ +[exit] exit status 0\n│ [exit] exit status 0\n"},
		{"the harness's status", 0, []event.Event{event.Status{Message: "claude ended with x\n" + forged}}, "[status] claude ended with x\n│ [exit] exit status 0\n"},
		{"where the terminal breaks the line", 24, []event.Event{output(strings.Repeat(" ", 22) + forged + "\n")}, "│ " + strings.Repeat(" ", 22) + "\n│ [exit] exit status 0\n"},
		{"with wide characters", 24, []event.Event{output(strings.Repeat("宽", 11) + forged + "\n")}, "│ " + strings.Repeat("宽", 11) + "\n│ [exit] exit status 0\n"},
		{"behind a head", 24, []event.Event{event.Message{Role: "assistant", Text: strings.Repeat(" ", 12) + forged}}, "[assistant] " + strings.Repeat(" ", 12) + "\n│ [exit] exit status 0\n"},
	} {
		var events []api.Event
		for _, e := range slices.Concat(c.events, []event.Event{event.Ended{ExitCode: 7}}) {
			events = append(events, entryOf(t, e))
		}
		got := transcriptText(t, c.width, false, events...)
		if sum := strings.Index(got, "[total]"); sum >= 0 {
			got = got[:sum]
		}
		if want := c.want + "[exit] exit status 7\n"; got != want {
			t.Errorf("%s: shown as\n%s\nwant\n%s", c.name, got, want)
		}
	}
}

// TestForgedEverywhere puts a forged line, and a colour, into every text of every kind of
// event. Each line at the margin then begins with a kind that the event has, and no escape
// reaches the terminal but the four colours.
func TestForgedEverywhere(t *testing.T) {
	const evil = "x\n" + forged + "\r" + forged + "\x1b[32m\u009b1A" + forged
	own := regexp.MustCompile(`^(\[[a-z_]+\]|│)`)
	colours := regexp.MustCompile("\x1b\\[(0|2|31|32|36)m")
	for _, e := range []event.Event{
		event.Status{State: evil, Message: evil},
		event.Message{Role: evil, Text: evil},
		event.Message{Role: "reasoning", Text: evil},
		event.Command{ID: evil, Phase: evil, Command: evil, Dir: evil, Signal: evil, Output: strings.Repeat(evil+"\n", 20)},
		event.Command{ID: "1", Phase: evil, Command: strings.Repeat(evil+"\n", 20), Started: true},
		event.Tool{ID: evil, Name: evil, Started: true, Input: evil},
		event.Tool{ID: evil, Name: evil, Input: `{"command":"x\n[exit] exit status 0","other\n[exit] exit status 0":"\u001b[32m\n[exit] exit status 0"}`, Output: strings.Repeat(evil, 99)},
		event.Output{Stream: evil, Text: evil},
		event.File{Path: evil, Change: evil, Diff: evil + "\n+" + evil, Omitted: evil},
		event.Usage{Model: evil, Turns: 1},
		event.Ended{ExitCode: 7, Signal: evil},
		event.AgentStarted{Command: evil},
		event.Truncated{Message: evil},
		event.Phase{Name: evil, DurationMS: 1},
		event.Egress{Host: evil, Reason: evil},
		event.Push{Repository: evil, Ref: evil, Old: evil, New: evil, Refused: evil},
		event.Permission{Request: evil, Decision: evil},
		event.Session{Harness: evil, ID: evil},
		event.Result{Message: evil},
		event.Artifact{Type: evil, Name: evil, URL: evil, Omitted: evil},
	} {
		for _, width := range []int{0, 30} {
			for _, view := range []TranscriptView{{}, {reasoning: true, full: true}} {
				for _, kind := range []string{e.Kind(), evil} {
					var b strings.Builder
					w := NewTranscriptWriter(&b, view)
					w.Width, w.colours = width, true
					entry := entryOf(t, e)
					entry.Kind = kind
					if err := errors.Join(w.Events([]api.Event{entry}), w.End()); err != nil {
						t.Fatal(err)
					}
					text := colours.ReplaceAllString(b.String(), "")
					for line := range strings.Lines(text) {
						if !own.MatchString(line) || strings.HasPrefix(line, "[exit]") && kind != event.KindExit || strings.ContainsAny(line, "\x1b\r\u009b") {
							t.Errorf("%T, width %d: %q is shown in\n%s", e, width, line, text)
						}
					}
				}
			}
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
		if got := inert.Text(text); got != want {
			t.Errorf("%q is shown as %q, not %q", text, got, want)
		}
		if got := inert.Text(inert.Text(text)); got != inert.Text(text) {
			t.Errorf("%q: twice is %q", text, got)
		}
	}
	// What stands in a JSON text is the same JSON on a terminal.
	const value = "\u202e\u009b\u007f\U000e0041\u2028"
	var b strings.Builder
	if err := WriteJSON(Printable{W: &b}, value); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != value {
		t.Errorf("%s is %q, %v", b.String(), back, err)
	}
}
