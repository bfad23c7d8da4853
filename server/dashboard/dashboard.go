// Package dashboard is the HTML pages. They are plain: no script, one style
// sheet, light and dark as the browser asks. Everything shown is escaped by
// html/template.
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
	if depth(payload) > maxIndent || json.Indent(&b, payload, "", "  ") != nil {
		return string(payload), false
	}
	return b.String(), false
}

// depth is how deeply a JSON text is nested.
func depth(text []byte) int {
	deepest, level, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			level++
			deepest = max(deepest, level)
		case c == ']' || c == '}':
			level--
		}
	}
	return deepest
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
	var data struct {
		Stream   string `json:"stream"`
		Path     string `json:"path"`
		Change   string `json:"change"`
		Diff     string `json:"diff"`
		Message  string `json:"message"`
		State    string `json:"state"`
		Text     string `json:"text"`
		Command  string `json:"command"`
		Phase    string `json:"phase"`
		Output   string `json:"output"`
		ExitCode *int   `json:"exit_code"`
		Role     string `json:"role"`
		Name     string `json:"name"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return shownEvent{Text: string(e.Data)}
	}
	exit := ""
	if data.ExitCode != nil {
		exit = fmt.Sprintf(" → exit status %d", *data.ExitCode)
	}
	switch e.Kind {
	case run.KindOutput:
		return shownEvent{Head: data.Stream, Text: data.Text}
	case run.KindFile:
		return shownEvent{Head: data.Change + " " + data.Path, Text: data.Diff}
	case run.KindCommand:
		return shownEvent{Head: strings.TrimSpace(data.Phase+" "+data.Command) + exit, Text: data.Output}
	case run.KindMessage:
		return shownEvent{Head: data.Role, Text: data.Text}
	case run.KindStatus:
		return shownEvent{Head: strings.TrimSpace(data.State + " " + data.Message)}
	case run.KindExit:
		return shownEvent{Head: "ended" + exit}
	case run.KindStarted:
		return shownEvent{Head: "started " + data.Command}
	case run.KindTool:
		return shownEvent{Head: data.Name, Text: data.Output}
	}
	return shownEvent{Text: string(e.Data)}
}
