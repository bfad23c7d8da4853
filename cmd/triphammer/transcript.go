package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// gutter begins each line of a transcript that Triphammer did not write. Lines of
// Triphammer begin with "[", at the margin.
const gutter = "│ "

// roles are the roles in the messages of the known harnesses. Any other role comes from
// the agent, and could imitate the name of another kind of event.
var roles = []string{"assistant", "model", "reasoning", "system", "tool", "user"}

// transcriptWriter prints a transcript for people. Text of an agent cannot imitate a line
// of Triphammer, because each of its lines has the gutter, also where a terminal would
// wrap it.
type transcriptWriter struct {
	w     io.Writer
	width int // columns of the terminal; 0: not a terminal, and lines are not wrapped
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
	decoded, err := event.Decode(e.Kind, e.Data)
	if err != nil { // the event is from a newer server
		t.say(b, e.Kind, string(e.Data))
		return
	}
	say := func(texts ...string) {
		t.say(b, e.Kind, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " "))
	}
	switch d := decoded.(type) {
	case event.Output:
		t.quote(b, d.Text)
	case event.File:
		t.say(b, d.Change, oneLine.Replace(d.Path))
		t.quote(b, d.Diff)
	case event.Message:
		role := d.Role
		if !slices.Contains(roles, role) {
			role = event.KindMessage
		}
		t.say(b, role, d.Text)
	case event.Status:
		say(d.State, d.Message)
	case event.Command:
		say(d.Phase, d.Command, d.Signal, exitText(d.ExitCode))
	case event.Ended:
		say(d.Signal, exitText(&d.ExitCode))
	case event.AgentStarted:
		say(d.Command)
	case event.Tool:
		say(d.Name)
	case event.Truncated:
		say(d.Message)
	default:
		say()
	}
}

// exitText describes an exit status. It is empty if a signal ended the process, or if the
// status is not known.
func exitText(code *int) string {
	if code == nil || *code < 0 {
		return ""
	}
	return fmt.Sprintf("exit status %d", *code)
}

// say writes a line of Triphammer. Further lines of the text get the gutter.
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

// quote writes text that Triphammer did not write. The text may end within a line.
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

// end ends the transcript.
func (t *transcriptWriter) end() error {
	var b strings.Builder
	t.close(&b)
	_, err := io.WriteString(t.w, b.String())
	return err
}

// columnsOf is the largest number of columns that a character can take.
func columnsOf(r rune) int {
	switch {
	case r == '\t':
		return 8
	case r < 0x80:
		return 1
	}
	return 2
}
