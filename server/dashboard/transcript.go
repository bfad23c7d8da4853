package dashboard

import (
	"fmt"
	"strings"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

// entry is one entry of the transcript of a page. Events with one ID are one entry: what
// was started, with how it ended. So are the parts of what a process printed.
type entry struct {
	At     time.Time
	Offset string // since the first event
	Kind   string // class of the style sheet
	Bad    bool   // it needs a look
	Label  string // what Triphammer calls it
	Code   string // what was done, in one line
	Sub    string // how it ended
	Say    string // prose
	Facts  []event.Fact
	Text   string // printed by a process, or long
	Diff   []diffLine
	Open   bool // not folded
}

// Folds tells whether the entry has more than its line.
func (e entry) Folds() bool {
	return len(e.Facts) > 0 || e.Text != "" || len(e.Diff) > 0
}

// diffLine is a line of a diff. Its sign stays, so that colour is not needed.
type diffLine struct{ Class, Text string }

// maxDiffLines limits the lines of one diff that a page shows.
const maxDiffLines = 2000

func diffLines(diff string) (lines []diffLine) {
	inHunk := false
	for line := range strings.Lines(diff) {
		if len(lines) == maxDiffLines {
			return append(lines, diffLine{"hunk", "… the rest is in changes.patch, and in `triphammer runs logs`"})
		}
		l := diffLine{Text: strings.TrimSuffix(line, "\n")}
		switch {
		case strings.HasPrefix(line, "@@"):
			inHunk, l.Class = true, "hunk"
		case !inHunk:
			l.Class = "hunk"
		case line[0] == '+':
			l.Class = "ins"
		case line[0] == '-':
			l.Class = "del"
		}
		lines = append(lines, l)
	}
	return lines
}

// entries are the entries of a transcript whose first event came at begin.
func entries(events []store.Event, begin time.Time) []entry {
	var all []entry
	started := make(map[string]int) // the entries that have not ended, by ID
	stream := ""                    // the stream of the last entry, if it is output
	for _, e := range events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			decoded = nil
		}
		if out, ok := decoded.(event.Output); ok && stream == out.Stream && len(all) > 0 && len(all[len(all)-1].Text) < event.MaxText {
			all[len(all)-1].Text += out.Text
			continue
		}
		stream = ""
		one := entry{At: e.At, Offset: offset(e.At.Sub(begin)), Kind: e.Kind}
		id, running := "", false
		switch d := decoded.(type) {
		case nil:
			one.Kind, one.Label, one.Text = "other", e.Kind, string(e.Data)
		case event.Command:
			id, running = "command "+d.ID, d.Started && d.ID != ""
			one.command(d)
		case event.Tool:
			id, running = "tool "+d.ID, d.Started && d.ID != ""
			one.tool(d)
		case event.Output:
			stream = d.Stream
			one.Label, one.Text, one.Open = d.Stream, d.Text, true
		default:
			one.other(d)
		}
		if at, known := started[id]; known && !running {
			all[at].end(one)
			delete(started, id)
			continue
		}
		if running {
			started[id] = len(all)
		}
		all = append(all, one)
	}
	return all
}

// end adds how it ended to the entry of what was started.
func (e *entry) end(ended entry) {
	e.Bad, e.Sub, e.Text, e.Open = ended.Bad, ended.Sub, ended.Text, ended.Open
}

func (e *entry) command(d event.Command) {
	const most = 120
	e.Code = event.Line(d.Command, most)
	if e.Code != d.Command {
		e.Facts = []event.Fact{{Name: "command", Value: d.Command}}
	}
	if d.Phase != event.PhaseAgent {
		e.Label = d.Phase
	}
	e.Sub, e.Bad, e.Text, e.Open = d.Outcome(), d.Bad(), d.Output, d.Bad()
}

func (e *entry) tool(d event.Tool) {
	line, more := d.Summary()
	e.Label, e.Code, e.Facts = "Tool", strings.TrimSpace(d.Name+" "+line), more
	e.Sub, e.Bad, e.Text, e.Open = d.Outcome(), d.Failed, d.Output, d.Failed
}

func (e *entry) other(decoded event.Event) {
	switch d := decoded.(type) {
	case event.Message:
		e.Label = d.Speaker()
		if e.Label != event.RoleReasoning {
			e.Say = d.Text
			return
		}
		e.Kind = e.Label
		if e.Sub = event.Line(d.Text, 80); e.Sub != d.Text {
			e.Text = d.Text
		}
	case event.Status:
		e.Label, e.Sub = d.State, d.Message
		e.Bad = d.State == string(store.FailedRun)
	case event.File:
		e.Label, e.Code, e.Diff = d.Change, d.Path, diffLines(d.Diff)
		if d.Diff != "" {
			added, removed := d.Lines()
			e.Sub = fmt.Sprintf("+%d −%d", added, removed)
		} else {
			e.Sub = d.Omitted
		}
	case event.Usage:
		e.Label, e.Sub = "Used", d.String()
	case event.Ended:
		e.Label, e.Bad = "Agent ended", d.Signal != "" || d.ExitCode != 0
		e.Sub = strings.TrimSpace(d.Signal)
		if d.ExitCode >= 0 {
			e.Sub = fmt.Sprintf("exit status %d", d.ExitCode)
		}
	case event.AgentStarted:
		e.Label, e.Code = "Agent started", d.Command
	case event.Truncated:
		e.Label, e.Sub, e.Bad = "Left out", d.Message, true
	case event.Phase:
		e.Label, e.Sub = "Phase "+d.Name, event.Took(d.DurationMS)
	case event.Egress:
		e.Label, e.Code, e.Sub, e.Bad = "Network, allowed", d.Where(), d.Connections(), !d.Allowed
		if !d.Allowed {
			e.Label = "Network, refused"
		}
		e.Sub = strings.Trim(e.Sub+", "+d.Reason, ", ")
	case event.Permission:
		e.Label, e.Code, e.Sub = "Permission", d.Request, d.Decision
	case event.Session:
		e.Label, e.Code = "Session of "+d.Harness, d.ID
	case event.Result:
		e.Label, e.Sub, e.Bad = "Result: succeeded", d.Message, d.Failed
		if d.Failed {
			e.Label = "Result: failed"
		}
	case event.Artifact:
		e.Label, e.Code, e.Sub = "Artifact", d.Name, d.Type
		if d.Size > 0 {
			e.Sub += ", " + event.Bytes(d.Size)
		}
		if d.Omitted != "" {
			e.Sub, e.Bad = e.Sub+", not kept: "+d.Omitted, true
		}
	}
}

// offset is a time since the beginning, such as 1:04 or 1:00:04.
func offset(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
