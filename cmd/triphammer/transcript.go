package main

import (
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
	decoded, err := run.Decode(e.Kind, e.Data)
	if err != nil { // a newer server's
		t.say(b, e.Kind, string(e.Data))
		return
	}
	say := func(texts ...string) {
		t.say(b, e.Kind, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " "))
	}
	switch d := decoded.(type) {
	case run.Output:
		t.quote(b, d.Text)
	case run.File:
		t.say(b, d.Change, oneLine.Replace(d.Path))
		t.quote(b, d.Diff)
	case run.Message:
		role := d.Role
		if !slices.Contains(roles, role) {
			role = run.KindMessage
		}
		t.say(b, role, d.Text)
	case run.Status:
		say(d.State, d.Message)
	case run.Command:
		say(d.Phase, d.Command, d.Signal, exitText(d.ExitCode))
	case run.Ended:
		say(d.Signal, exitText(&d.ExitCode))
	case run.AgentStarted:
		say(d.Command)
	case run.Tool:
		say(d.Name)
	case run.Truncated:
		say(d.Message)
	default:
		say()
	}
}

// exitText is empty for a process that a signal ended, and one of which no
// status is known.
func exitText(code *int) string {
	if code == nil || *code < 0 {
		return ""
	}
	return fmt.Sprintf("exit status %d", *code)
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
