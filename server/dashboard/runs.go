package dashboard

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

// Runs is the list of runs.
type Runs struct {
	Page
	Runs []*store.Run
	Next string
}

// Run is one run with its transcript.
type Run struct {
	Page
	Run    *store.Run
	Prompt string
	Events []store.Event
}

var runs = parse("runs")

func (Runs) template() *template.Template { return runs }

var oneRun = parse("run")

func (Run) template() *template.Template { return oneRun }

func took(r *store.Run) string {
	if r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
		return ""
	}
	return r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
}

// shownEvent is a transcript event in words.
type shownEvent struct{ Head, Text string }

func showEvent(e store.Event) shownEvent {
	decoded, err := event.Decode(e.Kind, e.Data)
	if err != nil {
		return shownEvent{Text: string(e.Data)}
	}
	switch d := decoded.(type) {
	case event.Output:
		return shownEvent{Head: d.Stream, Text: d.Text}
	case event.File:
		return shownEvent{Head: d.Change + " " + d.Path, Text: d.Diff}
	case event.Command:
		exit := ""
		if d.ExitCode != nil {
			exit = exitStatus(*d.ExitCode)
		}
		return shownEvent{Head: strings.TrimSpace(d.Phase+" "+d.Command) + exit, Text: d.Output}
	case event.Message:
		return shownEvent{Head: d.Role, Text: d.Text}
	case event.Status:
		return shownEvent{Head: strings.TrimSpace(d.State + " " + d.Message)}
	case event.Ended:
		return shownEvent{Head: "ended" + exitStatus(d.ExitCode)}
	case event.AgentStarted:
		return shownEvent{Head: "started " + d.Command}
	case event.Tool:
		return shownEvent{Head: d.Name, Text: d.Output}
	}
	return shownEvent{Text: string(e.Data)}
}

func exitStatus(code int) string { return fmt.Sprintf(" → exit status %d", code) }
