package dashboard

import (
	"html/template"
	"net/url"
	"strconv"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

var costRoutes = []Route{get("/costs", costsPage), get("/costs/table.csv", costSheet)}

// Costs is what runs cost, and what came of them.
type Costs struct {
	Page
	Stats api.Stats
	Since string // the choice of the length of time
}

var costs = parse("costs")

func (Costs) template() *template.Template { return costs() }

// costSpans are the choices of a length of time. Figures are by the day only of more than 7 days.
var costSpans = []struct{ Value, Name, Asked string }{{"7d", "7 days", "170h"}, {"30d", "30 days", "720h"}}

// Views are the choices of a length of time.
func (c Costs) Views() (all []View) {
	for _, s := range costSpans {
		all = append(all, View{Name: s.Name, URL: c.To("/costs", "since", s.Value), Current: s.Value == c.Since})
	}
	return all
}

// Tables are the sums by what people ask for.
func (c Costs) Tables() []costTable {
	s := c.Stats.Spent
	if s == nil {
		return nil
	}
	models := make([]api.SpentBy, 0, len(c.Stats.Models))
	for _, m := range api.ByModel(c.Stats.Models) {
		models = append(models, api.SpentBy{Name: m.Model, Tokens: m.Tokens(), CostUSD: m.CostUSD})
	}
	return []costTable{
		{"Automation", s.Automations}, {"Repository", s.Repositories}, {"Person", s.People}, {"Model", models},
	}
}

// costTable are sums by one thing, the dearest first.
type costTable struct {
	By   string
	Rows []api.SpentBy
}

// Most are the rows that a page has room for.
func (t costTable) Most() []api.SpentBy { return t.Rows[:min(len(t.Rows), 20)] }

// Chart draws the cost by the day.
func (c Costs) Chart() template.HTML {
	all, most, days := make([]bar, len(c.Stats.Times)), 0., len(c.Stats.Times)
	for i, t := range c.Stats.Times {
		all[i].past, most = int64(t.CostUSD*1e6), max(most, t.CostUSD)
	}
	return bars(all, "Cost by the day: "+event.USD(c.Stats.Total.CostUSD)+" in "+plural(days, "day")+", at most "+event.USD(most)+" on one day")
}

// per is an amount for each of some things; empty: there are none.
func per(usd float64, n int64) string {
	if n == 0 {
		return ""
	}
	return event.USD(usd / float64(n))
}

// pullWord is what became of a pull request, in words.
func pullWord(outcome string) string {
	switch outcome {
	case store.MergedWithChanges:
		return "merged with a person's commits"
	case "closed":
		return "closed without a merge"
	}
	return outcome
}

func init() { functions["per"], functions["pullWord"] = per, pullWord }

func costsPage(v *Visit) (page Costs, err error) {
	if page.Page, err = v.Page("Costs"); err != nil {
		return page, err
	}
	span := costSpans[1]
	if v.Query("since") == costSpans[0].Value {
		span = costSpans[0]
	}
	page.Since = span.Value
	page.Stats, err = v.stats(page.Factory, span.Asked, url.Values{"spent": {"true"}})
	return page, err
}

// Sheet is a table to keep, as a file of comma-separated values.
type Sheet struct {
	File string
	Rows [][]string
}

func (Sheet) template() *template.Template { return nil }

func costSheet(v *Visit) (Sheet, error) {
	page, err := costsPage(v)
	sheet := Sheet{"costs.csv", [][]string{{"by", "name", "runs", "succeeded", "pull_requests", "merged", "merged_unchanged", "tokens", "cost_usd"}}}
	for _, t := range page.Tables() {
		for _, r := range t.Rows {
			row := []string{t.By, r.Name}
			for _, n := range []int64{r.Runs, r.Succeeded, r.PullRequests, r.Merged, r.Unchanged, r.Tokens} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			sheet.Rows = append(sheet.Rows, append(row, strconv.FormatFloat(r.CostUSD, 'f', 6, 64)))
		}
	}
	return sheet, err
}
