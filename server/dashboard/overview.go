package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

var overviewRoutes = []Route{get("/", overviewPage)}

// Overview is the first page: the things that need a person, and the last day.
type Overview struct {
	Page
	Needs []Need
	Stats api.Stats
	Work  []api.Run // runs in progress or queued
	Rows  []api.Delivery
	Steps bool // no run has succeeded yet, so the page leads to the first steps
}

// Need is something that waits for a person, with the next step.
type Need struct {
	Kind         string // fail or warn
	Title, Text  string
	Action, Link string
	Apply        string // the factory whose newest commit the action applies
}

var overview = parse("overview")

func (Overview) template() *template.Template { return overview() }

func overviewPage(v *Visit) (page Overview, err error) {
	if page.Page, err = v.Page("Overview"); err != nil {
		return page, err
	}
	query := url.Values{"limit": {"8"}, "about": {"true"}}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	var rows api.List[api.Delivery]
	if err := v.Get("/deliveries?"+query.Encode(), &rows); err != nil {
		return page, err
	}
	page.Rows = rows.Entries
	if page.Stats, err = v.stats(page.Factory, ""); err != nil {
		return page, err
	}
	for _, state := range []store.RunState{store.InProgress, store.Queued, store.Blocked} {
		var runs api.List[api.Run]
		query.Set("state", string(state))
		if err := v.Get("/agent/runs?"+query.Encode(), &runs); err != nil {
			return page, err
		}
		page.Work = append(page.Work, runs.Entries...)
	}
	if page.Needs, err = v.needs(page.Page, page.Stats); err != nil {
		return page, err
	}
	if page.Stats.Total.Started == 0 && len(page.Work) == 0 {
		var well api.List[api.Run]
		err = v.Get("/agent/runs?"+url.Values{"state": {string(store.Succeeded)}, "limit": {"1"}, "factory": {page.Factory}}.Encode(), &well)
		page.Steps = len(well.Entries) == 0
	}
	return page, err
}

// needs are the things that wait for a person, the worst first.
func (v *Visit) needs(page Page, stats api.Stats) (needs []Need, err error) {
	var status api.Status
	if err := v.Get("/status", &status); err != nil {
		return nil, err
	}
	if needs, err = v.approvals(page); err != nil {
		return nil, err
	}
	for _, problem := range status.Storage.Problems {
		needs = append(needs, Need{Kind: "fail", Title: "The store has a problem", Text: problem, Action: "Look", Link: page.To("/system")})
	}
	if i := status.Isolation; i != nil && i.Name == "" {
		needs = append(needs, Need{
			Kind: "fail", Title: "No run can start here", Text: "No walls can be put around it: " + strings.Join(i.Lacking, "; ") + ".", Action: "Look", Link: page.To("/system"),
		})
	}
	if status.Clock.Problem != "" {
		needs = append(needs, Need{Kind: "warn", Title: "The clock jumped", Text: status.Clock.Problem, Action: "Look", Link: page.To("/system")})
	}
	for _, f := range status.Factories {
		if page.Factory == "" || page.Factory == f.Name {
			if f.State == "failing" {
				needs = append(needs, refusedCommit(page, f))
			}
			if p := f.Pin; p != nil {
				needs = append(needs, Need{
					Kind: "warn", Title: page.Of(f.Name, "pinned to "+short(p.Commit)+" by "+p.By+until(&p.Until)), Text: p.Reason + ". Newer commits wait.",
					Action: "Look, then unpin", Link: page.In(f.Name, "/definition"),
				})
			}
			needs = append(needs, undone(page, f, f.Unanswered, "an answer of %s could not be told", "several answers of %s could not be told")...)
			needs = append(needs, undone(page, f, f.Undone, "what %s asked for could not be done", "several things that %s asked for could not be done")...)
			for _, q := range f.Questions {
				who := "whoever can write there"
				if len(q.From) > 0 {
					who = strings.Join(q.From, ", ")
				}
				needs = append(needs, Need{
					Kind: "warn", Title: page.Of(f.Name, q.Automation) + " asks a question since " + q.At.UTC().Format("2006-01-02 15:04") + " UTC",
					Text: event.Line(q.Text, 240) + " (A reply counts from " + who + ", at " + q.Place + ".)", Action: "Look at the run", Link: page.To("/runs/" + url.PathEscape(q.RunID)),
				})
			}
			for _, p := range f.Paused {
				kind := p.Kind
				needs = append(needs, Need{
					Kind: "warn", Title: page.Of(f.Name, p.Name) + " is paused by " + p.By, Text: strings.TrimSpace(sentence(p.Reason) + " " + sentence(strings.TrimPrefix(until(p.Until), ", "))),
					Action: "Look, then resume", Link: page.In(f.Name, "/"+kind+"s/"+named(p.Name)),
				})
			}
		}
	}
	for _, w := range stats.Webhooks {
		refused, last := int64(0), time.Time{}
		for i, n := range w.Refused {
			if refused += n; n > 0 {
				last = stats.Times[i].At
			}
		}
		if refused == 0 || page.At.Sub(last) > 3*time.Hour {
			continue
		}
		var why []string
		for _, left := range []struct{ stage, what string }{
			{"authenticated", "with no valid signature or token"}, {"parsed", "not JSON"}, {"received", "incomplete or too large"},
		} {
			if n := w.Stopped[left.stage]; n > 0 {
				why = append(why, number(n)+" "+left.what)
			}
		}
		needs = append(needs, Need{
			Kind: "fail", Title: fmt.Sprintf("%s refused %s in 24 hours", page.Of(w.Factory, w.Webhook), plural(refused, "delivery")),
			Text:   strings.Join(why, ", ") + ".",
			Action: "Look at one", Link: page.To("/deliveries", "webhook", w.Webhook, "outcome", "refused"),
		})
	}
	query := url.Values{"state": {string(store.FailedRun)}, "limit": {strconv.Itoa(mostFailed)}, "created_after": {page.At.Add(-24 * time.Hour).UTC().Format(time.RFC3339)}}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	var failed api.List[api.Run]
	if err := v.Get("/agent/runs?"+query.Encode(), &failed); err != nil {
		return nil, err
	}
	return append(needs, failures(page, failed.Entries)...), nil
}

const (
	mostFailures = 8   // automations with failed runs that are listed
	mostFailed   = 200 // failed runs that are looked at
)

// failures are the failed runs by automation, beginning with the newest failure.
func failures(page Page, runs []api.Run) (needs []Need) {
	type group struct {
		newest, oldest api.Run
		count          int
	}
	var all []*group
	found := make(map[string]*group)
	for _, r := range runs { // the newest first
		key := r.Factory + "\n" + cmp.Or(r.Automation, r.RunID)
		g := found[key]
		if g == nil {
			g = &group{newest: r}
			found[key], all = g, append(all, g)
		}
		g.oldest = r
		g.count++
	}
	for _, g := range all[:min(len(all), mostFailures)] {
		r := g.newest
		n := Need{Kind: "fail", Title: r.Title + " failed", Text: sentence(r.StatusMessage), Action: "See why", Link: page.To("/runs/" + url.PathEscape(r.RunID))}
		if g.count > 1 {
			n.Title = fmt.Sprintf("%s failed %d times, first %s UTC", page.Of(r.Factory, r.Automation), g.count, g.oldest.CreatedAt.UTC().Format("15:04"))
			if len(runs) == mostFailed {
				n.Title = fmt.Sprintf("%s failed %d times or more in 24 hours", page.Of(r.Factory, r.Automation), g.count)
			}
			n.Text = "The newest: " + r.StatusMessage
			n.Link = page.To("/runs", "state", string(store.FailedRun), "automation", r.Automation, "since", "24h")
		}
		needs = append(needs, n)
	}
	if more := len(all) - mostFailures; more > 0 {
		needs = append(needs, Need{
			Kind: "fail", Title: plural(more, "more automation") + " had runs that failed in 24 hours", Action: "See the runs",
			Link: page.To("/runs", "state", string(store.FailedRun), "since", "24h"),
		})
	}
	return needs
}

// undone are the answers that could not be told (SPEC 22.5), or the outputs that could not be done (SPEC
// 23.2), by why. one and several are titles with a place for the automation.
func undone(page Page, f api.FactoryStatus, all []api.Unanswered, one, several string) (needs []Need) {
	found := make(map[string]int)
	for _, a := range all {
		if a.DeliveryID != "" {
			needs = append(needs, Need{
				Kind: "fail", Title: page.Of(f.Name, "a session that starts nothing could not be told so"), Text: a.Detail,
				Action: "Look at the delivery", Link: page.To("/deliveries/" + url.PathEscape(a.DeliveryID)),
			})
			continue
		}
		key := a.Automation + "\n" + a.Detail
		if i, known := found[key]; known {
			needs[i].Title = page.Of(f.Name, fmt.Sprintf(several, a.Automation))
			continue
		}
		found[key] = len(needs)
		needs = append(needs, Need{
			Kind: "fail", Title: page.Of(f.Name, fmt.Sprintf(one, a.Automation)), Text: a.Detail,
			Action: "Look at the run", Link: page.To("/runs/" + url.PathEscape(a.RunID)),
		})
	}
	return needs
}

// until is the end of a pause or a pin in words; empty: somebody must end it.
func until(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return ", until " + t.UTC().Format("2006-01-02 15:04") + " UTC"
}

// refusedCommit is the Need for a factory whose newest commit does not serve.
func refusedCommit(page Page, f api.FactoryStatus) Need {
	n := Need{Kind: "fail", Title: page.Of(f.Name, "the newest commit does not serve"), Text: f.Error, Action: "See the findings", Link: page.In(f.Name, "/definition")}
	if f.LastApply == nil {
		return n
	}
	n.Text = fmt.Sprintf("%s was %s.", short(f.LastApply.Commit), f.LastApply.Outcome)
	var findings schema.Diagnostics
	_ = json.Unmarshal(f.LastApply.Diagnostics, &findings) // after an error, no finding is shown
	for _, d := range findings {
		if d.Severity == schema.Error {
			n.Text += fmt.Sprintf(" %s:%d: %s.", d.Path, d.Line, d.Message)
			break
		}
	}
	if len(findings) == 0 && f.LastApply.Error != "" {
		n.Text += " " + f.LastApply.Error
	}
	if f.Applied != nil {
		n.Text += " " + short(f.Applied.Commit) + " keeps serving."
	}
	n.Apply = f.Name
	return n
}
