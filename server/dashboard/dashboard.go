// Package dashboard is the HTML pages. They are plain: no script, one style sheet,
// light and dark as the browser asks. html/template escapes everything that is shown.
//
// It only renders. Package server reads the data, checks permissions and changes
// things.
package dashboard

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory/jsonscan"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/store"
)

//go:embed templates/*.html
var templates embed.FS

// Style is the style sheet.
//
//go:embed static/style.css
var Style []byte

// Page is what every page has.
type Page struct {
	Title string
	Actor string // who is signed in, or empty
	Base  string // the path under which the server is reached, without a slash at its end
}

// Overview is the first page: what each factory serves, and the newest of
// everything.
type Overview struct {
	Page
	Factories  []Factory
	Deliveries []*store.Delivery
	Runs       []*store.Run
}

// Factory is one factory of the overview.
type Factory struct {
	applier.State
	LastOutcome string // of the newest apply of any outcome
	LastCommit  string
	Diagnostics []Diagnostic // of it
}

// Diagnostic is a finding.
type Diagnostic struct {
	Path     string `json:"path"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Hint     string `json:"hint"`
	Code     string `json:"code"`
}

// Deliveries is the delivery log.
type Deliveries struct {
	Page
	Deliveries []*store.Delivery
	Next       string // cursor of the next page, or empty
}

// Delivery is one delivery with its belt.
type Delivery struct {
	Page
	*delivery.Trace
	Payload   string
	Damaged   bool // what is stored of it is not what came
	Truncated bool
}

// Automations is the list of automations.
type Automations struct {
	Page
	Automations []Automation
}

// Automation is one automation with what starts it.
type Automation struct {
	Factory, Name, Path, Environment string
	Enabled                          bool
	Dormant                          string // why nothing starts it although it is enabled
	Triggers                         []Trigger
}

// Trigger is one trigger in words.
type Trigger struct {
	Text string
	Idle string // why it starts nothing, or not all that it says
}

// FilterTest is the form of Test filter, with what it was filled with and what
// came out.
type FilterTest struct {
	Page
	Automations []Automation
	Webhooks    []string
	Automation  string // FACTORY/NAME
	Webhook     string
	Delivery    string
	Payload     string
	Result      *delivery.TestResult
	Error       string
}

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

// Message is a page that only says something, such as that one must sign in.
type Message struct {
	Page
	Text string
}

var pages = parse("overview", "deliveries", "delivery", "runs", "run", "automations", "filtertest", "message")

func parse(names ...string) map[string]*template.Template {
	all := make(map[string]*template.Template, len(names))
	for _, name := range names {
		all[name] = template.Must(template.New("layout.html").Funcs(template.FuncMap{
			"when": when, "short": short, "event": showEvent, "took": took, "label": store.Outcome.Label, "came": func(d *store.Delivery) string { return delivery.Came(d.Outcome, d.Started) },
			"class": strings.ToLower, "of": of,
		}).ParseFS(templates, "templates/layout.html", "templates/"+name+".html"))
	}
	return all
}

// of names a thing by its factory, too, unless the server has the one that has
// no name of its own.
func of(factory, name string) string {
	if factory == "" || factory == "default" {
		return name
	}
	return factory + ": " + name
}

// Render writes the page of the data.
func Render(w io.Writer, data any) error {
	name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", data), "dashboard."))
	page, ok := pages[name]
	if !ok {
		return fmt.Errorf("no page shows %T", data)
	}
	return page.Execute(w, data)
}

const (
	maxShown  = 64 << 10 // bytes of a payload on its page
	maxIndent = 64       // levels: the size of an indented text grows with their square
)

// PayloadText is a payload as it is shown: indented, unless it is too long or
// nested too deeply for that.
func PayloadText(payload []byte) (text string, truncated bool) {
	if len(payload) > maxShown {
		return strings.ToValidUTF8(string(payload[:maxShown]), ""), true
	}
	var b bytes.Buffer
	if depth, err := jsonscan.Depth(payload); err != nil || depth > maxIndent || json.Indent(&b, payload, "", "  ") != nil {
		return string(payload), false
	}
	return b.String(), false
}

func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}

func took(r *store.Run) string {
	if r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
		return ""
	}
	return r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
}

// shownEvent is a transcript event in words.
type shownEvent struct{ Head, Text string }

func showEvent(e store.Event) shownEvent {
	decoded, err := run.Decode(e.Kind, e.Data)
	if err != nil {
		return shownEvent{Text: string(e.Data)}
	}
	switch d := decoded.(type) {
	case run.Output:
		return shownEvent{Head: d.Stream, Text: d.Text}
	case run.File:
		return shownEvent{Head: d.Change + " " + d.Path, Text: d.Diff}
	case run.Command:
		exit := ""
		if d.ExitCode != nil {
			exit = exitStatus(*d.ExitCode)
		}
		return shownEvent{Head: strings.TrimSpace(d.Phase+" "+d.Command) + exit, Text: d.Output}
	case run.Message:
		return shownEvent{Head: d.Role, Text: d.Text}
	case run.Status:
		return shownEvent{Head: strings.TrimSpace(d.State + " " + d.Message)}
	case run.Ended:
		return shownEvent{Head: "ended" + exitStatus(d.ExitCode)}
	case run.AgentStarted:
		return shownEvent{Head: "started " + d.Command}
	case run.Tool:
		return shownEvent{Head: d.Name, Text: d.Output}
	}
	return shownEvent{Text: string(e.Data)}
}

func exitStatus(code int) string { return fmt.Sprintf(" → exit status %d", code) }
