package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

// API is the HTTP API of this server, called as the reader of the page. So a page can do nothing
// that the API refuses.
type API interface {
	// Call sends a request to a path below api.Base. in is the JSON body; nil: there is no body.
	// The JSON of the answer is decoded into out, unless that is nil. If the API refuses the
	// request, the error is a *Refused.
	Call(ctx context.Context, method, path string, in, out any) error
}

// Refused is a problem that the API answered.
type Refused struct {
	api.Problem
	Body []byte // the whole answer: some problems have more fields
}

func (r *Refused) Error() string { return r.Message }

// Person is the reader of a page.
type Person struct {
	Name string
	Role string                  // viewer, operator, manager
	May  func(scope string) bool // nil: the person has no scope
}

// Visit is a request for a page.
type Visit struct {
	*http.Request
	Person Person
	Base   string                   // the path under which the server is reached, without a slash at its end
	Param  func(name string) string // of the path
	Form   url.Values               // of a POST
	API    API

	route   *Route
	applied *api.ApplyFiles // read once
}

// Query is the value of a parameter of the address.
func (v *Visit) Query(name string) string { return v.URL.Query().Get(name) }

// Get reads from the API.
func (v *Visit) Get(path string, out any) error {
	return v.API.Call(v.Context(), http.MethodGet, path, nil, out)
}

// errUndeclared is a mistake in the table of routes.
var errUndeclared = errors.New("the route of this page does not declare the request that it sends")

// Send sends a request that is not a GET to the API. The route of the page must declare it.
func (v *Visit) Send(method, path string, in, out any) error {
	plain, _, _ := strings.Cut(path, "?")
	if !slices.ContainsFunc(v.route.Sends, func(declared string) bool { return fits(declared, method+" "+plain) }) {
		return errUndeclared
	}
	return v.API.Call(v.Context(), method, path, in, out)
}

// fits tells whether a request fits a declaration such as "POST /agent/runs/:id/cancel".
func fits(declared, request string) bool {
	want, got := strings.Split(declared, "/"), strings.Split(request, "/")
	return slices.EqualFunc(want, got, func(want, got string) bool { return want == got || strings.HasPrefix(want, ":") && got != "" })
}

// escaped is a path of escaped parts, such as names.
func escaped(parts ...string) string {
	for i, p := range parts {
		if i%2 == 1 {
			parts[i] = url.PathEscape(p)
		}
	}
	return strings.Join(parts, "/")
}

// all reads all pages of a list of the API, up to most entries.
func all[T api.Listed](v *Visit, path string, query url.Values, most int) ([]T, error) {
	var found []T
	query = cloned(query)
	for {
		query.Set("limit", "500")
		var page api.List[T]
		if err := v.Get(path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		found = append(found, page.Entries...)
		if !page.PageInfo.HasNextPage || len(found) >= most {
			return found, nil
		}
		query.Set("cursor", page.PageInfo.NextCursor)
	}
}

func cloned(query url.Values) url.Values {
	copied := make(url.Values, len(query))
	for name, values := range query {
		copied[name] = slices.Clone(values)
	}
	return copied
}

// Page makes the Page with a title.
func (v *Visit) Page(title string) (Page, error) {
	p := Page{Title: title, Person: v.Person, Base: v.Base, Here: v.URL.Path, Again: v.Base + v.URL.RequestURI(), At: Now(), Factory: v.Query("factory"), leftOut: make(map[string][]string)}
	if c, err := v.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		p.Theme = c.Value
	}
	for list := range columns {
		if c, err := v.Cookie(columnsCookie + list); err == nil {
			p.leftOut[list] = strings.Split(c.Value, ".")
		}
	}
	if v.Person.Name == "" {
		return p, nil
	}
	if said, err := v.Cookie(SaidCookie); err == nil {
		p.Said, _ = url.QueryUnescape(said.Value)
	}
	var factories api.List[api.FactoryStatus]
	if err := v.Get("/factories", &factories); err != nil {
		return p, err
	}
	var counts api.RunCounts
	err := v.Get("/agent/runs/counts?state="+string(store.InProgress), &counts)
	p.Factories, p.AtWork = factories.Entries, counts.States[string(store.InProgress)]
	return p, err
}

// findings are the findings of a Refused; nil: it has none.
func findings[T any](err error, field string) (list []T) {
	refused := (*Refused)(nil)
	if !errors.As(err, &refused) {
		return nil
	}
	var body map[string]json.RawMessage
	if json.Unmarshal(refused.Body, &body) == nil {
		_ = json.Unmarshal(body[field], &list) // after an error, no finding is shown
	}
	return list
}
