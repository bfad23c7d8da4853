// Package dashboard renders the HTML pages. They have no script and one style sheet, with
// light and dark colours by the browser's preference. html/template escapes all values.
//
// It does not read data, check permissions or change anything: package server does.
package dashboard

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory/jsonscan"
	"triphammer/schema"
	"triphammer/server/api"
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

// Page holds the fields that every page has.
type Page struct {
	Title string
	Actor string // who is signed in; empty: nobody
	Base  string // the path under which the server is reached, without a slash at its end
}

// Overview is the first page: what each factory serves, and the newest deliveries and
// runs.
type Overview struct {
	Page
	Factories  []Factory
	Deliveries []*store.Delivery
	Runs       []*store.Run
}

// Factory is one factory of the overview.
type Factory struct {
	applier.State
	LastOutcome string // of the newest apply
	LastCommit  string
	Diagnostics schema.Diagnostics // of the newest apply
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
	Damaged   bool // the stored payload differs from the one that arrived
	Truncated bool
}

// Automations is the list of automations.
type Automations struct {
	Page
	Automations []api.Automation
}

// trigger is one trigger in words.
type trigger struct {
	Text string
	Idle string // why it starts nothing, or not for all of its webhooks
}

func showTrigger(t api.Trigger) trigger {
	shown := trigger{Text: t.Provider + " " + t.Event, Idle: t.Dormant}
	if names := slices.Concat(t.Webhooks, t.WebhookIDs); len(names) > 0 {
		shown.Text = "webhook " + strings.Join(names, ", ")
	}
	if shown.Idle == "" && len(t.Gone) > 0 {
		shown.Idle = "there is no webhook " + strings.Join(t.Gone, ", ")
	}
	return shown
}

// FilterTest is the form of Test filter, with the values that were entered and the result.
type FilterTest struct {
	Page
	Automations []api.Automation
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

// Message is a page that only shows a text, such as a request to sign in.
type Message struct {
	Page
	Text string
}

// Content is the data of a page, with its template.
type Content interface{ template() *template.Template }

func (Overview) template() *template.Template    { return overview }
func (Deliveries) template() *template.Template  { return deliveries }
func (Delivery) template() *template.Template    { return oneDelivery }
func (Runs) template() *template.Template        { return runs }
func (Run) template() *template.Template         { return oneRun }
func (Automations) template() *template.Template { return automations }
func (FilterTest) template() *template.Template  { return filterTest }
func (Message) template() *template.Template     { return message }

var (
	overview    = parse("overview")
	deliveries  = parse("deliveries")
	oneDelivery = parse("delivery")
	runs        = parse("runs")
	oneRun      = parse("run")
	automations = parse("automations")
	filterTest  = parse("filtertest")
	message     = parse("message")
)

func parse(name string) *template.Template {
	return template.Must(template.New("layout.html").Funcs(template.FuncMap{
		"when": when, "short": short, "event": showEvent, "took": took, "trigger": showTrigger, "label": store.Outcome.Label,
		"came":  func(d *store.Delivery) string { return delivery.Came(d.Outcome, d.Started) },
		"class": strings.ToLower, "of": of,
	}).ParseFS(templates, "templates/layout.html", "templates/"+name+".html"))
}

// of puts the name of the factory before a name. It leaves out the factory "default", the
// name that the server gives to a single factory.
func of(factory, name string) string {
	if factory == "" || factory == "default" {
		return name
	}
	return factory + ": " + name
}

// Render writes a page.
func Render(w io.Writer, page Content) error { return page.template().Execute(w, page) }

const (
	maxShown  = 64 << 10 // bytes of a payload on its page
	maxIndent = 64       // levels; the size of an indented text grows with their square
)

// PayloadText is the text of a payload on its page. It is indented, unless it is too long
// or nested too deeply.
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
