package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"triphammer/server/api"

	"golang.org/x/term"

	"triphammer/server/run"
)

// gutter begins each line of a transcript that somebody else wrote. What Triphammer
// says begins with "[", at the margin.
const gutter = "│ "

// roles are those that the harnesses' messages have. Others are the agent's own
// invention, and could be the name of another kind of event.
var roles = []string{"assistant", "model", "reasoning", "system", "tool", "user"}

// transcriptWriter prints a transcript for people. No text of an agent can pass for
// a line of Triphammer's: all of its lines have the gutter, also those that a
// terminal would break.
type transcriptWriter struct {
	w     io.Writer
	width int // columns of the terminal; 0: not one, lines are as long as they are
	col   int // columns of the unfinished line
	open  bool
}

func newTranscriptWriter(w io.Writer) *transcriptWriter {
	t := &transcriptWriter{w: w}
	if f := terminalOf(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= 20 {
			t.width = width
		}
	}
	return t
}

// events prints events.
func (t *transcriptWriter) events(events []api.Event) error {
	var b strings.Builder
	for _, e := range events {
		t.event(&b, e)
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *transcriptWriter) event(b *strings.Builder, e api.Event) {
	var data map[string]any
	if json.Unmarshal(e.Data, &data) != nil {
		data = map[string]any{"text": string(e.Data)}
	}
	text := func(key string) string { s, _ := data[key].(string); return s }
	switch e.Kind {
	case run.KindOutput:
		t.quote(b, text("text"))
	case run.KindFile:
		t.say(b, text("change"), oneLine.Replace(text("path")))
		t.quote(b, text("diff"))
	case run.KindMessage:
		role := text("role")
		if !slices.Contains(roles, role) {
			role = run.KindMessage
		}
		t.say(b, role, text("text"))
	default:
		var parts []string
		for _, key := range []string{"state", "message", "phase", "command", "name", "text", "signal"} {
			if s := text(key); s != "" {
				parts = append(parts, s)
			}
		}
		if code, ok := data["exit_code"].(float64); ok && code >= 0 { // -1: of a signal
			parts = append(parts, fmt.Sprintf("exit status %d", int(code)))
		}
		t.say(b, e.Kind, strings.Join(parts, " "))
	}
}

// say writes a line of Triphammer's, with a text of whose further lines none is.
func (t *transcriptWriter) say(b *strings.Builder, kind, text string) {
	t.close(b)
	head := "[" + kind + "]"
	if text != "" {
		head += " "
	}
	b.WriteString(head)
	t.open, t.col = true, len(head)
	t.quote(b, text)
	t.close(b)
}

// quote writes text of somebody else. It may end within a line.
func (t *transcriptWriter) quote(b *strings.Builder, text string) {
	for _, r := range visible(text) {
		if r == '\n' {
			if !t.open {
				b.WriteString(strings.TrimRight(gutter, " "))
			}
			b.WriteByte('\n')
			t.open = false
			continue
		}
		columns := columnsOf(r)
		if t.open && t.width > 0 && t.col+columns > t.width {
			b.WriteByte('\n')
			t.open = false
		}
		if !t.open {
			b.WriteString(gutter)
			t.open, t.col = true, 2
		}
		b.WriteRune(r)
		t.col += columns
	}
}

// close ends an unfinished line.
func (t *transcriptWriter) close(b *strings.Builder) {
	if t.open {
		b.WriteByte('\n')
		t.open = false
	}
}

// end ends what was printed.
func (t *transcriptWriter) end() error {
	var b strings.Builder
	t.close(&b)
	_, err := io.WriteString(t.w, b.String())
	return err
}

// columnsOf is the most columns that a character takes.
func columnsOf(r rune) int {
	switch {
	case r == '\t':
		return 8
	case r < 0x80:
		return 1
	}
	return 2
}
