package dashboard

import (
	"cmp"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

var deliveryRoutes = []Route{
	get("/deliveries", deliveriesPage),
	get("/deliveries/:id", deliveryPage),
	get("/deliveries/:id/payload", func(v *Visit) (Download, error) {
		return Download{Path: escaped("/deliveries", v.Param("id")) + "/payload"}, nil
	}),
	post("/deliveries/:id/replay", store.ScopeOperate, replayDelivery, "POST /deliveries/:id/replay"),
}

// Deliveries is the log of deliveries.
type Deliveries struct {
	Page
	Rows     []api.Delivery
	Next     string // cursor of the next page, or empty
	Searched bool   // the page is not full, but there are more deliveries to search
	Newest   string // the newest delivery that matches, unless this is an older page
	Webhooks []string
	Filters  url.Values // of the address
	Views    []View
	Stats    api.Stats
	Command  string // a command that lists the same deliveries
}

// deliveryFilters are the parameters of the page that select deliveries, each also a parameter of the API and a flag of the command.
var deliveryFilters = []string{"webhook", "outcome", "stopped", "event", "person", "automation", "text", "subject", "since"}

// Filter is the value of a filter.
func (d Deliveries) Filter(name string) string { return strings.TrimSpace(d.Filters.Get(name)) }

// Filtered tells whether there is any of some filters; without names: any at all.
func (d Deliveries) Filtered(names ...string) bool {
	if len(names) == 0 {
		names = append(names, deliveryFilters...)
	}
	return slices.ContainsFunc(names, func(name string) bool { return d.Filter(name) != "" })
}

// With is the address of the list with other parameters.
func (d Deliveries) With(parameters ...string) string {
	return d.selecting("/deliveries", deliveryFilters, d.Filters, parameters...)
}

// View is a list that a page offers, with the number of its entries.
type View struct {
	Name    string
	URL     string
	Count   int64
	Current bool
}

// deliverySpans are the choices of a length of time.
var deliverySpans = []struct{ Value, Name string }{{"1h", "1 hour"}, {"24h", "24 hours"}, {"168h", "7 days"}, {"720h", "30 days"}}

var deliveries = parse("deliveries")

func (Deliveries) template() *template.Template { return deliveries() }

// Spans are the choices of the filter Since.
func (Deliveries) Spans() []struct{ Value, Name string } { return deliverySpans }

// Stages are the choices of the filter Stopped at.
func (Deliveries) Stages() []string { return terms.Stages }

// Span is the time of the figures, in words.
func (d Deliveries) Span() string {
	for _, s := range deliverySpans {
		if s.Value == d.Filter("since") {
			return s.Name
		}
	}
	return "24 hours"
}

// Going are the deliveries whose runs go on, so that their rows change.
func (d Deliveries) Going() (ids []string) {
	for _, row := range d.Rows {
		if slices.ContainsFunc(row.StartedRuns, func(r api.StartedRun) bool { return !store.RunState(r.State).Terminal() }) {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// Total are the figures of the selected webhook, or of all webhooks.
func (d Deliveries) Total() Passed { return passed(d.Stats, d.Filter("webhook")) }

// Passed tells how many deliveries left the belt at each stage.
type Passed struct {
	All, Wanted int64
	Stopped     map[string]int64
}

// Refused counts the deliveries that were neither accepted nor duplicates.
func (p Passed) Refused() int64 {
	return p.Stopped["received"] + p.Stopped["authenticated"] + p.Stopped["parsed"]
}

func passed(s api.Stats, webhook string) Passed {
	if webhook == "" {
		return Passed{s.Total.Deliveries, s.Total.Wanted, s.Total.Stopped}
	}
	p := Passed{Stopped: make(map[string]int64)}
	for _, w := range s.Webhooks {
		if w.Webhook == webhook {
			p.All, p.Wanted = p.All+w.Deliveries, p.Wanted+w.Wanted
			for stage, n := range w.Stopped {
				p.Stopped[stage] += n
			}
		}
	}
	return p
}

func deliveriesPage(v *Visit) (page Deliveries, err error) {
	if page.Page, err = v.Page("Deliveries"); err != nil {
		return page, err
	}
	page.Filters = v.URL.Query()
	query := url.Values{"limit": {"50"}, "about": {"true"}, "cursor": {page.Filter("cursor")}}
	command := []string{"triphammer deliveries list"}
	for _, name := range deliveryFilters {
		value := page.Filter(name)
		if ago, err := time.ParseDuration(value); name == "since" && err == nil && ago > 0 {
			query.Set(name, page.At.Add(-ago).UTC().Format(time.RFC3339))
		} else if value == "" || name == "since" {
			continue
		} else {
			query.Set(name, value)
		}
		command = append(command, "--"+name, shellWord(value))
	}
	page.Command = strings.Join(command, " ")
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	var list api.List[api.Delivery]
	if err := v.Get("/deliveries?"+query.Encode(), &list); err != nil {
		return page, err
	}
	page.Rows, page.Next = list.Entries, list.PageInfo.NextCursor
	page.Searched = page.Filtered("text", "event", "person", "automation") && page.Next != "" && len(page.Rows) < 50
	if len(page.Rows) > 0 && page.Filter("cursor") == "" {
		page.Newest = page.Rows[0].ID
	}
	if page.Stats, err = v.stats(page.Factory, page.Filter("since")); err != nil {
		return page, err
	}
	if page.Webhooks, err = v.webhookNames(page.Factory); err != nil {
		return page, err
	}
	if hook := page.Filter("webhook"); hook != "" && !slices.Contains(page.Webhooks, hook) {
		page.Webhooks = append(page.Webhooks, hook) // a deleted webhook may still have entries in the log
	}
	total := page.Total()
	for _, view := range []struct {
		name, outcome, stopped string
		count                  int64
	}{
		{"All", "", "", total.All},
		{"Started a run", "", store.Went, total.Wanted},
		{"Nothing matched", "", "matched", total.Stopped["matched"]},
		{"Duplicate", "duplicate", "", total.Stopped["new"]},
		{"Refused", "refused", "", total.Refused()},
	} {
		page.Views = append(page.Views, View{
			view.name, page.With("outcome", view.outcome, "stopped", view.stopped), view.count, view.outcome == page.Filter("outcome") && view.stopped == page.Filter("stopped"),
		})
	}
	return page, nil
}

// stats are the figures since a time; empty: of 24 hours.
func (v *Visit) stats(factory, since string, more ...url.Values) (s api.Stats, err error) {
	query := url.Values{"since": {cmp.Or(since, "24h")}}
	for _, m := range more {
		maps.Copy(query, m)
	}
	if factory != "" {
		query.Set("factory", factory)
	}
	return s, v.Get("/stats?"+query.Encode(), &s)
}

func (v *Visit) webhookNames(factory string) (names []string, err error) {
	query := url.Values{}
	if factory != "" {
		query.Set("factory", factory)
	}
	all, err := all[api.Webhook](v, "/webhooks", query, 500)
	for _, w := range all {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func shellWord(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Became is the result of a delivery: a few words, and details.
type Became struct{ What, More string }

// became is the result of an entry of the log, with the person who sent it as a test.
func became(d api.Delivery) Became {
	b := becameOf(d)
	if d.TestBy != "" {
		b.More = strings.TrimSuffix("a test by "+d.TestBy+"; "+b.More, "; ")
	}
	return b
}

func becameOf(d api.Delivery) Became {
	switch d.Outcome {
	case string(store.Duplicate):
		more := ""
		if d.Identity != nil {
			more = d.Identity.Value
			if runes := []rune(more); len(runes) > 40 {
				more = string(runes[:40]) + "…"
			}
		}
		return Became{"Duplicate of " + d.DuplicateOf, more}
	case string(store.Accepted):
	default:
		more := d.Detail
		if more == "" && d.ClientAddr != "" {
			more = "from " + d.ClientAddr
		}
		return Became{"Refused: " + words(cmp.Or(d.Reason, d.Outcome)), more}
	}
	more := ""
	if d.ReplayOf != "" {
		more = "replay of " + d.ReplayOf
	}
	switch n := len(d.StartedRuns); {
	case n == 0 && len(d.Paused) > 0:
		return Became{strings.Join(d.Paused, ", ") + " was paused", "it started nothing"}
	case n == 0 && len(d.Limited) > 0:
		return Became{"Its person has started enough", "it started nothing"}
	case n == 0 && len(d.Repeats) > 0:
		return Became{"The event was reported before", "by " + d.Repeats[0].Of}
	case n == 0 && len(d.Skips) > 0:
		return Became{"A run was at work on the same subject", d.Skips[0].Of}
	case n == 0 && d.RunsStarted != nil && *d.RunsStarted > 0:
		return Became{plural(*d.RunsStarted, "run") + " started", "no longer kept"}
	case n == 0:
		if near := d.Nearest; near != nil && near.Why() != "" {
			more = strings.TrimSuffix("nearest "+near.Automation+": "+near.Why()+"; "+more, "; ")
		}
		return Became{"Nothing matched", more}
	case n == 1:
		r := d.StartedRuns[0]
		if r.StartedAt != nil {
			more = tookOf(r.StartedAt, r.FinishedAt)
			if r.FinishedAt == nil {
				more += " so far"
			}
		}
		return Became{r.Automation + " " + doing(r.State), more}
	}
	parts := terms.Each(d.StartedRuns, func(r api.StartedRun) string { return r.Automation + " " + doing(r.State) })
	return Became{plural(len(parts), "run"), strings.Join(parts, ", ")}
}

// doing describes the state of a run as an activity of its automation.
func doing(state string) string {
	switch store.RunState(state) {
	case store.InProgress:
		return "is at work"
	case store.Succeeded:
		return "ended well"
	case store.FailedRun:
		return "failed"
	case store.Cancelled:
		return "was cancelled"
	}
	return "waits"
}

func init() {
	functions["became"] = became
}
