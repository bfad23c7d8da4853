// Package dashboard has the HTML pages: each with its handler, its template and its texts.
//
// The pages are a client of the HTTP API, like the command line. A page calls the API as its
// reader, so checks, the audit log and limits are in one place, and a command can do everything
// that a page does. The package knows no store and no other part of the server.
//
// People can read all pages and use all forms without JavaScript. html/template escapes all
// values, and Render makes characters visible that hide text or turn it around.
package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"io"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/store"
)

//go:embed templates
var templates embed.FS

// Route is a page, or the action of a form.
type Route struct {
	Method, Path string
	// Scope is the scope that the person needs; empty: to read.
	Scope string
	// Sends are the requests of the API other than GET that the route makes, such as
	// "POST /agent/runs/:id/cancel".
	Sends []string

	handle func(*Visit) (Content, error)
}

// Needs is the scope that a person needs for the route.
func (r *Route) Needs() string {
	if r.Scope == "" {
		return store.ScopeRead
	}
	return r.Scope
}

// Handle answers a visit.
func (r *Route) Handle(v *Visit) (Content, error) {
	v.route = r
	return r.handle(v)
}

func get[T Content](path string, handle func(*Visit) (T, error)) Route {
	return Route{Method: "GET", Path: path, handle: func(v *Visit) (Content, error) { return handle(v) }}
}

// post is the route of a form's action, with the requests that it sends.
func post[T Content](path, scope string, handle func(*Visit) (T, error), sends ...string) Route {
	return Route{Method: "POST", Path: path, Scope: scope, Sends: sends, handle: func(v *Visit) (Content, error) { return handle(v) }}
}

// Content is an answer: the data of a page with its template, a SeeOther or a Download.
type Content interface{ template() *template.Template }

// Status is the HTTP status of an answer that is not 200, such as a form with an error.
type Status interface{ Status() int }

// SeeOther sends the browser to another page, which shows Said once.
type SeeOther struct {
	To   string // a path below the base
	Said string
}

func (SeeOther) template() *template.Template { return nil }

// Download answers with the API's answer to a GET of a path below api.Base.
type Download struct{ Path string }

func (Download) template() *template.Template { return nil }

// Page holds what every page has.
type Page struct {
	Title     string
	Person    Person
	Base      string    // the path under which the server is reached, without a slash at its end
	Here      string    // the path of the page
	Again     string    // the address of the page, with its parameters
	Factory   string    // the factory that the page is limited to; empty: all factories
	At        time.Time // when the page was made
	Theme     string    // the theme that the person wants; empty: the browser's theme
	Said      string    // the result of the last action
	Factories []api.FactoryStatus
	AtWork    int64 // runs in progress

	leftOut map[string][]string // the columns that the person leaves out, by list
}

// May tells whether the person has a scope.
func (p Page) May(scope string) bool { return p.Person.May != nil && p.Person.May(scope) }

// To is an address: a path below the base, and parameters by name and value, without empty
// parameters. It stays in the factory of the page.
func (p Page) To(path string, parameters ...string) string {
	query := make(url.Values)
	if p.Factory != "" {
		query.Set("factory", p.Factory)
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		if query.Del(parameters[i]); parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	if len(query) == 0 {
		return p.Base + path
	}
	return p.Base + path + "?" + query.Encode()
}

// selecting is an address with those parameters of another that select entries, and others.
func (p Page) selecting(path string, names []string, of url.Values, parameters ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, name, of.Get(name))
	}
	return p.To(path, append(all, parameters...)...)
}

// LivePath is the path of the stream that tells open pages of changes.
const LivePath = "/ui/events"

// Of puts the name of the factory before a name, if the page shows several factories.
func (p Page) Of(factory, name string) string {
	if factory == "" || len(p.Factories) < 2 || p.Factory == factory {
		return name
	}
	return factory + ": " + name
}

// Live is the address of the stream that tells the page of changes since it was made. The
// views are `deliveries`, `runs`, `definitions` and `run`, separated by spaces.
//
// When an event of its view comes, the page fetches itself again, by the same handler. So it
// needs no other code, survives a restart of the server (the stream connects again and tells
// what was missed), and works without scripts:
//
//	{{template "live" ($.Live "runs")}}
//	<section id="rows" hx-get="{{.Again}}" hx-trigger="runs from:body" hx-select="#rows" hx-swap="outerHTML">…</section>
//
// For a run: {{template "live" ($.Live "run" "run" .RunID "after_event" "120" "state" "INPROGRESS")}}; its
// event is `run`, with the state and the number of the newest transcript event.
//
// Rows are not inserted under the reader. An element with data-news="deliveries", hidden and with an
// empty <b>, is shown with the number of new deliveries: <p data-news="deliveries" hidden><a href="…"><b></b>. Show them</a></p>.
// The stream counts the deliveries after the parameter "after" (the newest that the page shows)
// that pass the filters "webhook", "outcome" and "stopped".
func (p Page) Live(views string, parameters ...string) string {
	query := url.Values{"view": strings.Fields(views), "at": {strconv.FormatInt(p.At.UnixMilli(), 10)}}
	if p.Factory != "" {
		query.Set("factory", p.Factory)
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	return p.Base + LivePath + "?" + query.Encode()
}

// Current tells whether an entry of the navigation leads to the page.
func (p Page) Current(path string) bool {
	if path == "/" {
		return p.Here == "/"
	}
	return p.Here == path || len(p.Here) > len(path) && p.Here[:len(path)+1] == path+"/"
}

// Serving is the factory whose state the rail shows; nil if there are several.
func (p Page) Serving() *api.FactoryStatus {
	for i, f := range p.Factories {
		if f.Name == p.Factory || len(p.Factories) == 1 {
			return &p.Factories[i]
		}
	}
	return nil
}

// Shown are the factories to which the page is limited.
func (p Page) Shown() []api.FactoryStatus {
	if one := p.Serving(); one != nil {
		return []api.FactoryStatus{*one}
	}
	return p.Factories
}

// Refused counts the factories of the page whose newest commit does not serve.
func (p Page) Refused() (n int) {
	for _, f := range p.Shown() {
		if f.State == "failing" {
			n++
		}
	}
	return n
}

// Message is a page that only shows a text, such as a request to sign in.
type Message struct {
	Page
	Text string
}

var message = parse("message")

func (Message) template() *template.Template { return message() }

// functions are the functions of all templates. The files of pages add functions.
var functions = template.FuncMap{}

// parse reads the template of a page, in the layout of all pages and with the shared parts. It
// reads the template when the page is first requested, because most processes of this program,
// such as the supervisors of runs, show no pages.
func parse(name string) func() *template.Template {
	return sync.OnceValue(func() *template.Template {
		all := maps.Clone(functions)
		maps.Copy(all, common())
		return template.Must(template.New("layout.html").Funcs(all).ParseFS(templates, "templates/layout.html", "templates/parts/*.html", "templates/"+name+".html"))
	})
}

// Render writes a page. It makes characters visible that hide text or turn it around.
func Render(w io.Writer, page Content) error {
	var b bytes.Buffer
	if err := page.template().Execute(&b, page); err != nil {
		return err
	}
	_, err := io.WriteString(w, inert.Text(b.String()))
	return err
}
