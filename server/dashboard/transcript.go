package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"triphammer/server/api"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// entry is one entry of the transcript on a page. Events with one ID are one entry: a start and
// its end. So are the parts of a process's output.
type entry struct {
	Seq     int64 // number of the first event
	At      time.Time
	Offset  string // time since the attempt or its agent began
	Kind    string // of the first event
	Class   string // of the style sheet: fail, ok, run, wait, stage, or empty
	Icon    string
	Bad     bool   // the entry needs a look
	Label   string // Triphammer's name for the entry
	Code    string // the command or action, in one line
	Sub     string // how the command or action ended
	Say     string // prose
	Facts   []event.Fact
	Text    string // output of a process, or a long text
	Diff    []diffLine
	Added   int // lines of a diff
	Removed int
	Open    bool // not folded
	Cut     bool // only the beginning and the end of the text are shown
	Renew   bool // the entry replaces an entry of the open page
}

// Folds tells whether the entry has more than its line.
func (e entry) Folds() bool {
	return len(e.Facts) > 0 || e.Text != "" || len(e.Diff) > 0
}

// Spoken tells whether the entry is a message of the agent, which is Markdown.
func (e entry) Spoken() bool { return e.Label == "assistant" || e.Label == "model" }

// step is a part of a transcript: one entry, or several that are folded together.
type step struct {
	Entries []entry
	Say     string // what is folded, such as "4 commands, 2 files"; empty: nothing is
	Failed  int    // how many of them need a look
}

// steps are the parts of a transcript. With fold, what agents do between two messages is one part, and so is
// what was prepared before their start.
func steps(entries []entry, fold bool) (all []step) {
	alone := func(e entry) bool {
		return !fold || e.Spoken() || e.Kind == event.KindStarted || e.Kind == event.KindResult || e.Kind == event.KindStatus && e.Class != ""
	}
	for i := 0; i < len(entries); {
		n := i + 1
		for !alone(entries[i]) && n < len(entries) && !alone(entries[n]) {
			n++
		}
		s := step{Entries: entries[i:n]}
		if n-i > 1 {
			s.sum()
		}
		all, i = append(all, s), n
	}
	return all
}

// sum says what the step folds.
func (s *step) sum() {
	counts := make(map[string]int)
	for _, e := range s.Entries {
		if e.Bad {
			s.Failed++
		}
		kind := map[string]string{event.KindCommand: "command", event.KindTool: "tool call", event.KindFile: "file"}[e.Kind]
		counts[cmp.Or(kind, "note")]++
	}
	var parts []string
	for _, kind := range []string{"command", "tool call", "file", "note"} {
		if n := counts[kind]; n > 0 {
			parts = append(parts, plural(n, kind))
		}
	}
	s.Say = strings.Join(parts, ", ")
}

// diffLine is a line of a diff. Its sign stays, so that colour is not needed.
type diffLine struct{ Class, Text string }

// diffLines are the lines of a diff, up to most bytes.
func diffLines(diff string, most int) (lines []diffLine, cut bool) {
	inHunk := false
	for line := range strings.Lines(diff) {
		if most -= markdown.Weight(line) + 30; most < 0 {
			return append(lines, diffLine{"hunk", "… the rest is not shown here"}), true
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
	return lines, false
}

// Limits of a page of a transcript. They keep a page below 100 kB, whatever its events are.
const (
	mostEvents = 200
	mostWeight = 55_000 // bytes of entries, about
	mostText   = 4_000  // of one entry
	wholeText  = 50_000 // of the requested entry
)

// fit is how many of the events fit on a page, counted from the first event, or from the last.
func fit(events []api.Event, whole int64, fromEnd bool) int {
	room := mostWeight
	for n := range events {
		e := &events[n]
		if fromEnd {
			e = &events[len(events)-1-n]
		}
		w := markdown.Weight(string(e.Data)) + len("<wbr>")*min(strings.Count(string(e.Data), "/"), mostBreaks)
		if e.Kind == event.KindMessage {
			w *= 2 // Markdown becomes HTML
		}
		if e.Seq != whole {
			w = min(w, 2*mostText)
		}
		if room -= w + 400; room < 0 && n > 0 {
			return n
		}
	}
	return len(events)
}

// clip cuts the middle out of a text that is too long.
func clip(text string, most int) (string, bool) {
	if markdown.Weight(text) <= most {
		return text, false
	}
	from, to := 0, len(text)
	for room := most / 2; room > 0; {
		_, n := utf8.DecodeRuneInString(text[from:])
		room -= markdown.Weight(text[from : from+n])
		from += n
	}
	for room := most / 2; room > 0 && to > from; {
		_, n := utf8.DecodeLastRuneInString(text[from:to])
		room -= markdown.Weight(text[to-n : to])
		to -= n
	}
	return fmt.Sprintf("%s\n… %s left out …\n%s", text[:from], event.Bytes(int64(to-from)), text[to:]), true
}

// reading says how to show a part of a transcript.
type reading struct {
	clock   []moment    // the times from which offsets count, each until the next
	reason  string      // why the run failed, which the top of the page says
	over    bool        // the run has ended, so nothing goes on
	whole   int64       // number of the event that is shown whole
	before  *api.Event  // the event before the part
	started []api.Event // commands and uses of tools before the part; some go on
}

func (p reading) entries(events []api.Event) []entry {
	var all []entry
	started := make(map[string]int) // entries of this part that have not ended, by ID
	old := make(map[string]entry)   // entries of earlier parts that have not ended, by ID
	for _, e := range p.started {
		if id, running, one := p.one(e); running {
			old[id] = one
		} else {
			delete(old, id)
		}
	}
	stream := "" // the stream of the last entry, if it is output
	if p.before != nil {
		if decoded, err := event.Decode(p.before.Kind, p.before.Data); err == nil {
			if out, ok := decoded.(event.Output); ok {
				stream = out.Stream
			}
		}
	}
	for _, e := range events {
		var out event.Output
		if e.Kind == event.KindOutput {
			if decoded, err := event.Decode(e.Kind, e.Data); err == nil {
				out, _ = decoded.(event.Output)
			}
		}
		if same := out.Stream != "" && stream == out.Stream; same && len(all) > 0 && len(all[len(all)-1].Text) < event.MaxText {
			all[len(all)-1].Text += out.Text
			continue
		} else if stream = out.Stream; same && len(all) == 0 { // the output goes on from the page before
			all = append(all, entry{Seq: e.Seq, At: e.At, Offset: p.offset(e), Kind: e.Kind, Icon: "command", Text: out.Text, Open: true})
			continue
		}
		id, running, one := p.one(e)
		if one.Kind == event.KindUsage && one.Label == "" {
			continue
		}
		if at, known := started[id]; known && !running {
			all[at].end(one)
			delete(started, id)
			continue
		}
		if was, known := old[id]; known && !running {
			was.end(one)
			was.Renew = true
			delete(old, id)
			all = append(all, was)
			continue
		}
		if running {
			started[id] = len(all)
		}
		all = append(all, one)
	}
	for i := range all {
		if p.over && all[i].Class == "run" {
			all[i].Icon, all[i].Class, all[i].Sub = "none", "", "did not end by itself"
		}
		all[i].settle(p.whole)
	}
	return all
}

// one is the entry of one event. id identifies the command or action that started or ended.
func (p reading) one(e api.Event) (id string, running bool, one entry) {
	decoded, err := event.Decode(e.Kind, e.Data)
	if err != nil {
		decoded = nil
	}
	one = entry{Seq: e.Seq, At: e.At, Offset: p.offset(e), Kind: e.Kind}
	switch d := decoded.(type) {
	case nil:
		one.Kind, one.Label, one.Text, one.Icon = "other", e.Kind, string(e.Data), "next"
	case event.Command:
		id, running = "command "+d.ID, d.Started && d.ID != ""
		one.command(d)
	case event.Tool:
		id, running = "tool "+d.ID, d.Started && d.ID != ""
		one.tool(d)
	case event.Output:
		one.Label, one.Text, one.Open, one.Icon = d.Stream, d.Text, true, "command"
	case event.File:
		one.file(d, p.most(e.Seq))
	default:
		one.other(d)
		if one.Bad && p.reason != "" && strings.HasPrefix(p.reason, one.Sub) {
			one.Sub = ""
		}
	}
	return id, running, one
}

// moment is the time of an event.
type moment struct {
	Seq int64
	At  time.Time
}

// offset is the time of an event since the moment before it.
func (p reading) offset(e api.Event) string {
	from := e.At
	for _, m := range p.clock {
		if m.Seq <= e.Seq {
			from = m.At
		}
	}
	return offset(e.At.Sub(from))
}

// most is how many bytes of the text of an event are shown.
func (p reading) most(seq int64) int {
	if seq == p.whole {
		return wholeText
	}
	return mostText
}

// settle cuts texts that are too long, and sets the fields that depend on the others.
func (e *entry) settle(whole int64) {
	most := mostText
	if e.Seq == whole {
		most = wholeText
	}
	cut := false
	for _, text := range []*string{&e.Text, &e.Say} {
		*text, cut = clip(*text, most)
		e.Cut = e.Cut || cut
	}
	for i := range e.Facts {
		e.Facts[i].Value, cut = clip(e.Facts[i].Value, max(most/len(e.Facts), 200))
		e.Cut = e.Cut || cut
	}
	const line = 2000
	e.Code, _ = clip(e.Code, line)
	e.Sub, _ = clip(e.Sub, line)
	e.Label, _ = clip(e.Label, line)
	if e.Class == "" && e.Bad {
		e.Class = "fail"
	}
}

// end adds the end of a command or action to the entry of its start.
func (e *entry) end(ended entry) {
	e.Icon, e.Bad, e.Sub, e.Text, e.Open, e.Class = ended.Icon, ended.Bad, ended.Sub, ended.Text, ended.Open, ended.Class
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
	e.Icon, e.Sub, e.Bad, e.Text, e.Open = "command", d.Outcome(), d.Bad(), d.Output, d.Bad()
	if d.Started {
		e.Icon, e.Class = "run", "run"
	}
}

func (e *entry) tool(d event.Tool) {
	line, more := d.Summary()
	e.Label, e.Code, e.Facts = "Tool", strings.TrimSpace(d.Name+" "+line), more
	e.Icon, e.Sub, e.Bad, e.Text, e.Open = "tool", d.Outcome(), d.Failed, d.Output, d.Failed
	if d.Started {
		e.Icon, e.Class = "run", "run"
	}
}

func (e *entry) file(d event.File, most int) {
	e.Icon, e.Label, e.Code = "file", d.Change, d.Path
	if d.Diff == "" {
		e.Sub = d.Omitted
		if d.Files > 0 {
			e.Sub = strings.TrimPrefix(d.Omitted+", "+plural(d.Files, "file"), ", ")
		}
		return
	}
	e.Diff, e.Cut = diffLines(d.Diff, most)
	e.Added, e.Removed = d.Lines()
}

func (e *entry) other(decoded event.Event) {
	switch d := decoded.(type) {
	case event.Message:
		e.Icon, e.Label = "message", d.Speaker()
		if e.Label != event.RoleReasoning {
			e.Say = d.Text
			return
		}
		e.Icon, e.Kind = "think", e.Label
		if e.Sub = event.Line(d.Text, 80); e.Sub != d.Text {
			e.Text = d.Text
		}
	case event.Status:
		e.status(d)
	case event.Usage:
		if d.CostUSD > 0 { // only usage with a cost is shown, because the page has the sum
			e.Icon, e.Label, e.Sub = "usage", "Used", d.String()
		}
	case event.Ended:
		e.Icon, e.Label, e.Bad = "stage", "Agent ended", d.Signal != "" || d.ExitCode != 0
		e.Sub = strings.TrimSpace(d.Signal)
		if d.ExitCode >= 0 {
			e.Sub = fmt.Sprintf("exit status %d", d.ExitCode)
		}
	case event.AgentStarted:
		e.Icon, e.Class, e.Label, e.Code = "stage", "stage", "Agent started", d.Command
	case event.Truncated:
		e.Icon, e.Label, e.Sub, e.Bad = "warn", "Left out", d.Message, true
	case event.Phase:
		e.Icon, e.Label, e.Sub = "stage", "Phase "+d.Name, event.Took(d.DurationMS)
	case event.Egress:
		e.Icon, e.Label, e.Code, e.Sub, e.Bad = "egress", "Network, allowed", d.Where(), d.Connections(), !d.Allowed
		if !d.Allowed {
			e.Label, e.Class = "Network, refused", "wait"
		}
		e.Sub = strings.Trim(e.Sub+", "+d.Reason, ", ")
	case event.Push:
		e.Icon, e.Label, e.Code, e.Sub, e.Bad = "link", "Pushed", d.Where(), d.Refused, d.Refused != ""
		switch {
		case e.Bad:
			e.Label, e.Class = "Push refused", "wait"
		case d.Waits != "":
			e.Label, e.Class = "Push, for a person to approve", "wait"
		}
	case event.Permission:
		e.Icon, e.Label, e.Code, e.Sub = "perm", "Permission", d.Request, d.Decision
	case event.Request:
		e.Icon, e.Label, e.Code, e.Bad = "perm", "Asks the server", d.Request, d.Refused != ""
		e.Sub = d.Verdict()
	case event.Session:
		e.Icon, e.Label, e.Code = "stage", "Session of "+d.Harness, d.ID
	case event.Result:
		e.Icon, e.Label, e.Sub, e.Bad = "ok", "Result: succeeded", d.Message, d.Failed
		if d.Failed {
			e.Icon, e.Label = "fail", "Result: failed"
		}
	case event.Artifact:
		e.Icon, e.Label, e.Code, e.Sub = "link", "Artifact", d.Name, d.Type
		if d.Size > 0 {
			e.Sub += ", " + event.Bytes(d.Size)
		}
		if d.Omitted != "" {
			e.Sub, e.Bad = e.Sub+", not kept: "+d.Omitted, true
		}
	}
}

// status fills the entry of a change of the state.
func (e *entry) status(d event.Status) {
	e.Icon, e.Label, e.Sub = "stage", d.State, d.Message
	if !slices.Contains(terms.RunStates, store.RunState(d.State)) {
		return
	}
	state := runState(d.State)
	e.Icon, e.Class, e.Label, e.Bad = state.Kind, state.Kind, state.Word, d.State == string(store.FailedRun)
	if d.State == string(store.InProgress) {
		e.Icon, e.Class, e.Label = "stage", "stage", "Started"
		if e.Sub == "started" {
			e.Sub = ""
		}
		for _, part := range [][2]string{{"isolation ", d.Isolation}, {"worker ", d.Worker}, {"", d.Head}} {
			if part[1] != "" {
				e.Sub = strings.TrimPrefix(e.Sub+", "+part[0]+part[1], ", ")
			}
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
