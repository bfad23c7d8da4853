// Package dashboard renders the HTML pages. They have no script and one style sheet, with
// light and dark colours by the browser's preference. html/template escapes all values.
//
// It does not read data, check permissions or change anything: package server does.
package dashboard

import (
	"embed"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"

	"triphammer/server/delivery"
	"triphammer/server/run/event"
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

// Message is a page that only shows a text, such as a request to sign in.
type Message struct {
	Page
	Text string
}

// Content is the data of a page, with its template.
type Content interface{ template() *template.Template }

var message = parse("message")

func (Message) template() *template.Template { return message() }

// parse reads the template of a page, in the layout of all pages and with the tables
// that several have. It does so when the page is first asked for: most processes of this
// program, such as the supervisors of runs, show none.
func parse(name string) func() *template.Template {
	return sync.OnceValue(func() *template.Template { return read(name) })
}

func read(name string) *template.Template {
	return template.Must(template.New("layout.html").Funcs(template.FuncMap{
		"when": when, "short": short, "took": took, "trigger": showTrigger, "label": store.Outcome.Label,
		"came":  func(d *store.Delivery) string { return delivery.Came(d.Outcome, d.Started) },
		"class": strings.ToLower, "words": func(s string) string { return strings.ReplaceAll(s, "_", " ") }, "of": of, "bytes": event.Bytes,
	}).ParseFS(templates, "templates/layout.html", "templates/*_table.html", "templates/"+name+".html"))
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
