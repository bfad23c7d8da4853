package dashboard

import (
	"html/template"
	"strings"
	"time"

	"triphammer/server/delivery"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// Run is one run with its transcript.
type Run struct {
	Page
	Run       *store.Run
	Belt      []delivery.Stage
	Prompt    string
	Workspace string    // its folder
	KeptUntil time.Time // zero: for as long as a run of the conversation has not ended
	Removed   bool      // the workspace was
	Artifacts []*store.Artifact
	Totals    event.Totals  // of the whole transcript
	Begin     time.Time     // of the transcript
	Events    []store.Event // on this page
	Next      int64         // the last event of this page, if more follow
	After     int64         // the event after which this page begins
}

// Transcript are the events of the page for people.
func (r Run) Transcript() []entry { return entries(r.Events, r.Begin) }

// Files are the artifacts that can be downloaded.
func (r Run) Files() []*store.Artifact {
	return r.artifacts(func(a *store.Artifact) bool { return a.URL == "" })
}

// Links are the artifacts that are links. An agent has chosen where they lead.
func (r Run) Links() []*store.Artifact {
	return r.artifacts(func(a *store.Artifact) bool { return a.URL != "" })
}

func (r Run) artifacts(of func(*store.Artifact) bool) (some []*store.Artifact) {
	for _, a := range r.Artifacts {
		if of(a) {
			some = append(some, a)
		}
	}
	return some
}

// Lede is the answer of the page in a sentence. It begins with the state.
func (r Run) Lede() string {
	var parts []string
	switch row := r.Run; {
	case row.State == store.Queued:
		return "It waits."
	case row.State == store.InProgress:
		parts = append(parts, "in progress since "+when(row.StartedAt)+" UTC")
	case row.StartedAt.IsZero():
		parts = append(parts, "it never started")
	default:
		parts = append(parts, "after "+event.Took(row.FinishedAt.Sub(row.StartedAt).Milliseconds()))
	}
	if sum := r.Totals.String(); sum != "" {
		parts = append(parts, sum)
	}
	return strings.Join(parts, "; ")
}

var oneRun = parse("run")

func (Run) template() *template.Template { return oneRun() }

func init() {
	functions["when"], functions["ranFor"], functions["trigger"], functions["label"] = when, ranFor, showTrigger, store.Outcome.Label
	functions["came"] = func(d *store.Delivery) string { return delivery.Came(d.Outcome, d.Started) }
	functions["class"] = strings.ToLower
}

func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func ranFor(r *store.Run) string {
	if r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
		return ""
	}
	return r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
}
