package dashboard

import (
	"html/template"
	"net/url"

	"triphammer/server/api"
	"triphammer/server/store"
)

var runRoutes = []Route{
	get("/runs", runsPage),
	get("/runs/:id", runPage),
	get("/runs/:id/events.json", rawTranscript),
	get("/runs/:id/event-payload.json", payloadOf),
	get("/artifacts/:id", artifact),
	post("/runs/:id/cancel", store.ScopeRuns, cancelRun, "POST /agent/runs/:id/cancel"),
	post("/runs/:id/interrupt", store.ScopeRuns, interruptRun, "POST /agent/runs/:id/interrupt"),
	post("/runs/:id/retry", store.ScopeRuns, retryRun, "POST /agent/runs/:id/retry"),
	post("/runs/:id/followup", store.ScopeRuns, followRun, "POST /agent/runs/:id/followups"),
}

// RunList is the list of runs.
type RunList struct {
	Page
	Runs []api.Run
	Next string // cursor of the next page, or empty
}

var runList = parse("runs")

func (RunList) template() *template.Template { return runList() }

func runsPage(v *Visit) (page RunList, err error) {
	if page.Page, err = v.Page("Runs"); err != nil {
		return page, err
	}
	query := url.Values{"limit": {"50"}}
	for _, name := range []string{"cursor", "factory", "state"} {
		if value := v.Query(name); value != "" {
			query.Set(name, value)
		}
	}
	var list api.List[api.Run]
	err = v.Get("/agent/runs?"+query.Encode(), &list)
	page.Runs, page.Next = list.Entries, list.PageInfo.NextCursor
	return page, err
}
