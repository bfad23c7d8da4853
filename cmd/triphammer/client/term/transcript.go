package term

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/run/event"
	"triphammer/server/terms"
)

// Gutter begins each line of a transcript that Triphammer did not write. Lines of
// Triphammer begin with "[", at the margin.
const Gutter = "│ "

// TranscriptView says how much of a transcript people see.
type TranscriptView struct {
	reasoning bool // what the model thought, whole
	full      bool // input and output of commands and tools, whole
}

// Flags adds the flags that set the view.
func (v *TranscriptView) Flags(c *cobra.Command) {
	c.Flags().BoolVar(&v.reasoning, "reasoning", false, "print the model's reasoning whole, not in one line")
	c.Flags().BoolVar(&v.full, "full", false, "print the input and output of commands and tools whole")
}

// TranscriptWriter prints a transcript for people. Text of an agent cannot imitate a line
// of Triphammer, because each of its lines has the gutter, also where a terminal would
// wrap it. In a line of Triphammer, what Triphammer knows comes before what the agent says.
type TranscriptWriter struct {
	Screen
	TranscriptView
	col     int // columns of the unfinished line
	open    bool
	running map[string]event.Tool // commands and tools that were seen to start, by ID; of a command nothing else
	total   event.Totals
}

// maxRunning bounds the tools whose input is remembered until they end.
const maxRunning = 256

// NewTranscriptWriter makes a TranscriptWriter. Call End at the end.
func NewTranscriptWriter(w io.Writer, v TranscriptView) *TranscriptWriter {
	t := &TranscriptWriter{Screen: ScreenOf(w), TranscriptView: v, running: make(map[string]event.Tool)}
	return t
}

// Events prints events.
func (t *TranscriptWriter) Events(events []api.Event) error {
	var b strings.Builder
	ended := endedIn(events)
	for _, e := range events {
		t.event(&b, e, ended)
	}
	_, err := io.WriteString(t.W, b.String())
	return err
}

// endedIn has the IDs of the commands and tools whose end is among the events. Their start
// need not be printed.
func endedIn(events []api.Event) map[string]bool {
	ended := make(map[string]bool)
	for _, e := range events {
		if e.Kind != event.KindCommand && e.Kind != event.KindTool {
			continue
		}
		switch d, _ := event.Decode(e.Kind, e.Data); d := d.(type) {
		case event.Command:
			ended[d.ID] = ended[d.ID] || !d.Started
		case event.Tool:
			ended[d.ID] = ended[d.ID] || !d.Started
		}
	}
	delete(ended, "")
	return ended
}

func (t *TranscriptWriter) event(b *strings.Builder, e api.Event, ended map[string]bool) {
	decoded, err := event.Decode(e.Kind, e.Data)
	if err != nil { // the event is from a newer server
		t.say(b, e.Kind, "", string(e.Data))
		return
	}
	t.total.Add(decoded)
	switch d := decoded.(type) {
	case event.Output:
		t.quote(b, d.Text, "")
	case event.File:
		t.file(b, d)
	case event.Message:
		t.message(b, d)
	case event.Status:
		t.say(b, e.Kind, d.State, d.Message)
	case event.Command:
		if !d.Started || !ended[d.ID] {
			t.command(b, d)
		}
	case event.Tool:
		t.tool(b, d, ended)
	case event.Ended:
		t.say(b, e.Kind, "", strings.TrimSpace(d.Signal+" "+exitText(d.ExitCode)))
	case event.AgentStarted:
		t.say(b, e.Kind, "", d.Command)
	case event.Truncated:
		t.say(b, e.Kind, "", d.Message)
	case event.Phase:
		t.say(b, e.Kind, d.Name+" took "+event.Took(d.DurationMS), "")
	case event.Usage:
		text := d.String()
		if sum := t.total.Usage.String(); sum != text {
			text += "; so far " + sum
		}
		t.say(b, e.Kind, text, "")
	case event.Egress:
		verdict := "refused"
		if d.Allowed {
			verdict = "allowed"
		}
		t.say(b, e.Kind, Joined(", ", verdict, d.Connections()), Joined(": ", d.Where(), d.Reason))
	case event.Push:
		t.say(b, e.Kind, d.Verdict(), Joined(": ", d.Where(), d.Refused))
	case event.Permission:
		t.say(b, e.Kind, d.Decision, d.Request)
	case event.Request:
		t.say(b, e.Kind, cmp.Or(d.Verdict(), "asks the server"), d.Request)
	case event.Session:
		t.say(b, e.Kind, d.Harness, d.ID)
	case event.Result:
		verdict := "succeeded"
		if d.Failed {
			verdict = "failed"
		}
		t.say(b, e.Kind, verdict, d.Message)
	case event.Artifact:
		t.say(b, e.Kind, left(d), Joined(" ", d.Name, d.URL))
	default:
		t.say(b, e.Kind, "", string(e.Data))
	}
}

// Joined joins the texts that are not empty.
func Joined(by string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), by)
}

func (t *TranscriptWriter) message(b *strings.Builder, d event.Message) {
	role := d.Speaker()
	if role != event.RoleReasoning || t.reasoning {
		t.say(b, role, "", d.Text)
		return
	}
	const most = 80
	facts := ""
	if n := utf8.RuneCountInString(d.Text); n > most {
		facts = fmt.Sprintf("%d characters", n)
	}
	t.head(b, role)
	t.quote(b, " "+Joined(": ", facts, event.Line(d.Text, most)), ColourDim)
	t.close(b)
}

func (t *TranscriptWriter) command(b *strings.Builder, d event.Command) {
	facts := d.Outcome()
	if d.Phase != event.PhaseAgent {
		facts = Joined(", ", d.Phase, facts)
	}
	text := d.Command
	if _, announced := t.running[d.ID]; announced && !t.full {
		text = event.Line(text, foldWidth/4) // it has been printed
	}
	t.follow(d.ID, d.Started, event.Tool{})
	t.head(b, event.KindCommand)
	t.outcome(b, facts, d.Bad())
	if text != "" {
		t.quote(b, ": ", "")
		t.folded(b, text, false)
	}
	t.close(b)
	t.folded(b, d.Output, true)
	t.close(b)
}

func (t *TranscriptWriter) tool(b *strings.Builder, d event.Tool, ended map[string]bool) {
	announced, known := t.running[d.ID]
	t.follow(d.ID, d.Started, d)
	if d.Started && ended[d.ID] {
		return
	}
	d.Input = cmp.Or(d.Input, announced.Input)
	line, more := d.Summary()
	t.head(b, event.KindTool)
	t.outcome(b, d.Outcome(), d.Failed)
	t.quote(b, Joined(" ", ": "+OneLine.Replace(d.Name), line), "")
	t.close(b)
	if t.full && (d.Started || !known || ended[d.ID]) { // else its start has printed them
		for _, f := range more {
			t.quote(b, f.Name+": "+f.Value, "")
			t.close(b)
		}
	}
	t.folded(b, d.Output, true)
	t.close(b)
}

// follow remembers what has started, until it ends.
func (t *TranscriptWriter) follow(id string, started bool, e event.Tool) {
	switch {
	case !started:
		delete(t.running, id)
	case id != "" && len(t.running) < maxRunning:
		t.running[id] = e
	}
}

func (t *TranscriptWriter) outcome(b *strings.Builder, text string, bad bool) {
	colour := ""
	if bad {
		colour = ColourBad
	}
	t.quote(b, " "+OneLine.Replace(text), colour)
}

func (t *TranscriptWriter) file(b *strings.Builder, d event.File) {
	var facts []string
	switch {
	case d.Files > 0:
		facts = append(facts, fmt.Sprintf("%d files", d.Files))
	case d.Change != event.FileDeleted:
		facts = append(facts, event.Bytes(d.Size))
	}
	if d.Diff != "" {
		added, removed := d.Lines()
		facts = append(facts, fmt.Sprintf("+%d -%d", added, removed))
	}
	if d.Omitted != "" {
		facts = append(facts, "without its diff: "+OneLine.Replace(d.Omitted))
	}
	t.say(b, d.Change, strings.Join(facts, ", "), OneLine.Replace(d.Path))
	inHunk := false
	for line := range strings.Lines(d.Diff) {
		colour := ""
		switch {
		case strings.HasPrefix(line, "@@"):
			inHunk, colour = true, colourPlace
		case !inHunk:
		case line[0] == '+':
			colour = ColourGood
		case line[0] == '-':
			colour = ColourBad
		}
		t.quote(b, line, colour)
	}
	t.close(b)
}

// exitText describes an exit status. It is empty if a signal ended the process.
func exitText(code int) string {
	if code < 0 {
		return ""
	}
	return fmt.Sprintf("exit status %d", code)
}

// head begins a line of Triphammer.
func (t *TranscriptWriter) head(b *strings.Builder, kind string) {
	t.close(b)
	if strings.ContainsFunc(kind, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		kind = "event" // no kind that a server sends
	}
	b.WriteString(t.Paint(ColourDim, "["+kind+"]"))
	t.open, t.col = true, len(kind)+2
}

// say writes a line of Triphammer: what it knows, and then what others say. Further lines
// of the text get the gutter.
func (t *TranscriptWriter) say(b *strings.Builder, kind, facts, text string) {
	t.head(b, kind)
	if text = Joined(": ", OneLine.Replace(facts), text); text != "" {
		t.quote(b, " "+text, "")
	}
	t.close(b)
}

// Folded text has so many lines at its beginning and its end, of so many characters.
const (
	foldHead  = 4
	foldTail  = 8
	foldWidth = 300
)

// folded writes the beginning of a text that Triphammer did not write, its end if tail is
// set, and how much is left out.
func (t *TranscriptWriter) folded(b *strings.Builder, text string, tail bool) {
	text = strings.TrimRight(text, "\n")
	lines := strings.Split(text, "\n")
	end := 0
	if tail {
		end = foldTail
	}
	for i, line := range lines {
		last := i == len(lines)-1
		if out := len(lines) - foldHead - end; !t.full && out > 1 && i >= foldHead && i < foldHead+out {
			if i == foldHead {
				t.left(b, terms.Counted(out, "line"))
			}
			continue
		}
		if n := utf8.RuneCountInString(line); !t.full && n > foldWidth {
			t.quote(b, string([]rune(line)[:foldWidth]), "")
			t.left(b, terms.Counted(n-foldWidth, "character"))
			continue
		}
		t.quote(b, line, "")
		if !last {
			t.quote(b, "\n", "")
		}
	}
}

// left says what is not printed.
func (t *TranscriptWriter) left(b *strings.Builder, what string) {
	t.head(b, "folded")
	b.WriteString(t.Paint(ColourDim, " "+what+" (--full prints all)"))
	t.close(b)
}

// quote writes text that Triphammer did not write. The text may end within a line. The
// colour ends before each line's end.
func (t *TranscriptWriter) quote(b *strings.Builder, text, colour string) {
	if !t.colours {
		colour = ""
	}
	painted := false
	paint := func(on bool) {
		if colour == "" || painted == on {
			return
		}
		painted = on
		if on {
			b.WriteString(colour)
		} else {
			b.WriteString(colourReset)
		}
	}
	defer paint(false)
	for _, r := range inert.Text(text) {
		if r == '\n' {
			paint(false)
			if !t.open {
				b.WriteString(strings.TrimRight(Gutter, " "))
			}
			b.WriteByte('\n')
			t.open = false
			continue
		}
		columns := ColumnsOf(r)
		if t.open && t.Width > 0 && t.col+columns > t.Width {
			paint(false)
			b.WriteByte('\n')
			t.open = false
		}
		if !t.open {
			b.WriteString(Gutter)
			t.open, t.col = true, 2
		}
		paint(true)
		b.WriteRune(r)
		t.col += columns
	}
}

// close ends an unfinished line.
func (t *TranscriptWriter) close(b *strings.Builder) {
	if t.open {
		b.WriteByte('\n')
		t.open = false
	}
}

// End ends the transcript, and sums it up.
func (t *TranscriptWriter) End() error {
	var b strings.Builder
	t.close(&b)
	if sum := t.total.String(); sum != "" {
		t.say(&b, "total", sum, "")
	}
	_, err := io.WriteString(t.W, b.String())
	return err
}

// left says what an artifact is, and whether it was kept.
func left(d event.Artifact) string {
	size, omitted := "", ""
	if d.Size > 0 {
		size = event.Bytes(d.Size)
	}
	if d.Omitted != "" {
		omitted = "not kept, because " + d.Omitted
	}
	return Joined(", ", d.Type, size, omitted)
}
