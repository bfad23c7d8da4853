package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

var runRoutes = []Route{
	get("/runs", runsPage),
	post("/runs", store.ScopeRuns, startRun, "POST /agent/runs"),
	{Method: "GET", Path: "/runs/new", Scope: store.ScopeRuns, handle: func(v *Visit) (Content, error) { return newRunPage(v) }},
	get("/runs/:id", runPage),
	get("/runs/:id/events.json", rawTranscript),
	get("/runs/:id/event-payload.json", payloadOf),
	get("/artifacts/:id", artifact),
	post("/runs/cancel", store.ScopeRuns, cancelRuns, "POST /agent/runs/:id/cancel"),
	post("/runs/:id/cancel", store.ScopeRuns, cancelRun, "POST /agent/runs/:id/cancel"),
	post("/runs/:id/interrupt", store.ScopeRuns, interruptRun, "POST /agent/runs/:id/interrupt"),
	post("/runs/:id/retry", store.ScopeRuns, retryRun, "POST /agent/runs/:id/retry"),
	post("/runs/:id/answer", store.ScopeRuns, answerRun, "POST /agent/runs/:id/answer"),
	post("/runs/:id/followup", store.ScopeRuns, followRun, "POST /agent/runs/:id/followups"),
}

// RunList is the list of runs.
type RunList struct {
	Page
	Filters url.Values // of the address
	Counts  api.RunCounts
	Now     []RunRow // runs that have not ended
	Runs    []RunRow // ended runs
	More    bool     // Now does not show all runs that have not ended
	Next    string   // cursor of the next page, or empty
	Choices choices
	Part    bool  // the page asks only for its rows that may have changed
	New     int64 // number of runs that are newer than the page
}

// RunRow is a run in a list.
type RunRow struct {
	api.Run
	Waits string // why the run waits, if that is known
}

// choices are the values that a person can choose from.
type choices struct {
	Automations, Webhooks, Agents, Environments []string
}

var runList = parse("runs")

func (RunList) template() *template.Template { return runList() }

// runViews are the views of the list: name and state.
var runViews = [][2]string{{"All", ""}, {"At work", "INPROGRESS"}, {"Blocked", "BLOCKED"}, {"Queued", "QUEUED"}, {"Succeeded", "SUCCEEDED"}, {"Failed", "FAILED"}, {"Cancelled", "CANCELLED"}}

// RunView is a view with its number of runs.
type RunView struct{ Name, Key, Count string }

// Views are the views by state. Their numbers are missing if runs are not counted by the filters.
func (l RunList) Views() (all []RunView) {
	for _, w := range runViews {
		shown, n := RunView{Name: w[0], Key: w[1]}, int64(0)
		for state, count := range l.Counts.States {
			if w[1] == "" || w[1] == state {
				n += count
			}
		}
		if l.Counts.States != nil {
			if shown.Count = number(n); n >= l.Counts.Most {
				shown.Count = number(l.Counts.Most) + "+"
			}
		}
		all = append(all, shown)
	}
	return all
}

// Waiting says how many of all runs wait, to go on after how many are at work.
func (l RunList) Waiting() (text string) {
	for _, state := range []store.RunState{store.Queued, store.Blocked} {
		if n := l.Counts.States[string(state)]; n > 0 && !l.Filtered() {
			text += ", " + number(n) + " " + strings.ToLower(runState(string(state)).Word)
		}
	}
	return text
}

// Filter is the value of a filter.
func (l RunList) Filter(name string) string { return l.Filters.Get(name) }

// Filtered tells whether there is a filter beside the view.
func (l RunList) Filtered() bool {
	return slices.ContainsFunc(runFilters, func(name string) bool { return name != "state" && l.Filters.Get(name) != "" })
}

// Folded tells whether there is a filter among those that the page folds.
func (l RunList) Folded() bool {
	return slices.ContainsFunc(runFilters, func(name string) bool { return name != "state" && name != "q" && l.Filters.Get(name) != "" })
}

// With is the address of the list with other parameters.
func (l RunList) With(parameters ...string) string { return l.at("/runs", parameters...) }

func (l RunList) at(path string, parameters ...string) string {
	return l.selecting(path, runFilters, l.Filters, parameters...)
}

// Cancel is the address that cancels all runs of the list that have not ended.
func (l RunList) Cancel() string { return l.at("/runs/cancel") }

// Unended tells how many runs of the list have not ended, by their states, such as "2 at work, 1
// waiting". It is empty if the page shows no such run.
func (l RunList) Unended() string {
	if len(l.Now) == 0 {
		return ""
	}
	var parts []string
	for _, state := range openStates(l.Filter("state")) {
		if n := l.Counts.States[state]; n > 0 {
			parts = append(parts, number(n)+map[string]string{"INPROGRESS": " at work", "QUEUED": " waiting", "BLOCKED": " blocked"}[state])
		}
	}
	return strings.Join(parts, ", ")
}

// openStates are the states of a view whose runs have not ended.
func openStates(view string) []string {
	return slices.DeleteFunc([]string{string(store.InProgress), string(store.Queued), string(store.Blocked)}, func(s string) bool { return view != "" && s != view })
}

// Open is the address at which an open page asks for its changes.
func (l RunList) Open() string {
	var ids []string
	newest := ""
	for _, r := range slices.Concat(l.Now, l.Runs) {
		if !store.RunState(r.State).Terminal() {
			ids = append(ids, r.RunID)
		}
		newest = max(newest, r.RunID)
	}
	return l.With("open", strings.Join(ids, " "), "newest", cmp.Or(l.Filters.Get("newest"), newest, "run_"))
}

// Heading is what the run is for.
func (r RunRow) Heading() string { return headingOf(r.Run) }

// Left are the links that the run left.
func (r RunRow) Left() []api.Artifact { return artifacts(r.Run, true) }

// Came is what came of the run beside links, in words.
func (r RunRow) Came() string {
	if r.About == nil {
		return ""
	}
	var parts []string
	if n := r.About.Files; n > 0 {
		parts = append(parts, plural(n, "file")+" changed")
	}
	switch r.About.Answer {
	case store.AnswerDelivered:
		parts = append(parts, "answered")
	case store.AnswerFailed:
		parts = append(parts, "its answer needs a person")
	}
	counts := make(map[string]int)
	for _, o := range r.Outputs {
		counts[outputState(o.Status).Word]++
	}
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, plural(counts[word], "output")+" "+strings.ToLower(word))
	}
	return strings.Join(parts, ", ")
}

// Why says why the run failed or waits.
func (r RunRow) Why() string {
	switch r.State {
	case string(store.Succeeded):
		return ""
	case string(store.Queued), string(store.Blocked):
		return cmp.Or(r.Waits, r.StatusMessage)
	}
	return r.StatusMessage
}

// From says where the run came from.
func (r RunRow) From() string { return cameFrom(r.Run) }

func cameFrom(r api.Run) string {
	switch {
	case r.Webhook != "":
		return r.Webhook
	case r.Schedule != nil:
		return r.Schedule.Name
	}
	return r.Creator.DisplayName
}

// runFilters are the parameters of the page that select runs.
var runFilters = []string{"state", "automation", "webhook", "source", "agent", "environment", "creator", "event", "subject", "person", "since", "q"}

// spans are the times since which runs are shown.
var spans = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}

// selection is the query of the API for the filters of the page, without the state.
func selection(v *Visit) url.Values {
	query := make(url.Values)
	for _, name := range append(slices.Clone(runFilters), "factory") {
		switch value := v.Query(name); {
		case value == "" || name == "state":
		case name == "environment":
			query.Set("environment_id", value)
		case name == "since":
			if span, ok := spans[value]; ok {
				query.Set("created_after", Now().Add(-span).UTC().Format(time.RFC3339))
			}
		default:
			query.Set(name, value)
		}
	}
	return query
}

const mostWhys = 10 // number of runs whose reason to wait is read

func runsPage(v *Visit) (page RunList, err error) {
	if page.Page, err = v.Page("Runs"); err != nil {
		return page, err
	}
	page.Filters, page.Part = v.URL.Query(), v.Query("newest") != ""
	query := selection(v)
	state := v.Query("state")
	if state != "" && !slices.Contains(terms.RunStates, store.RunState(state)) {
		state = ""
		page.Filters.Del("state")
	}
	if page.Part {
		return page, page.changed(v, query)
	}
	if err := v.Get("/agent/runs/counts?"+query.Encode(), &page.Counts); err != nil {
		return page, err
	}
	open, ended := openStates(state), []string{"SUCCEEDED", "FAILED", "CANCELLED"}
	if state != "" {
		ended = slices.DeleteFunc(ended, func(s string) bool { return s != state })
	}
	if len(open) > 0 && v.Query("cursor") == "" || len(ended) == 0 {
		for _, state := range open { // runs at work come first, however many runs wait
			some, next, err := rows(v, query, []string{state}, v.Query("cursor"))
			if err != nil {
				return page, err
			}
			page.Now, page.Next = append(page.Now, some...), next
		}
		if page.More = page.Next != ""; len(ended) > 0 {
			page.Next = ""
		}
		if err := page.whys(v); err != nil {
			return page, err
		}
	}
	if len(ended) > 0 {
		if page.Runs, page.Next, err = rows(v, query, ended, v.Query("cursor")); err != nil {
			return page, err
		}
	}
	page.Choices, err = chosen(v)
	return page, err
}

// mostCancelled is how many runs of each state one request cancels.
const mostCancelled = 10_000

// cancelRuns cancels the runs of a list that have not ended. Waiting runs come first, so that no
// run begins because another run has ended.
func cancelRuns(v *Visit) (SeeOther, error) {
	query, cancelled := selection(v), int64(0)
	states := openStates(v.Query("state"))
	slices.Reverse(states)
	for _, state := range states {
		query.Set("state", state)
		runs, err := all[api.Run](v, "/agent/runs", query, mostCancelled)
		if err != nil {
			return SeeOther{}, err
		}
		for _, r := range runs {
			switch err := v.Send("POST", "/agent/runs/"+url.PathEscape(r.RunID)+"/cancel", nil, nil); {
			case err == nil:
				cancelled++
			case !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusNotFound): // these two mean that the run has ended meanwhile
				return SeeOther{}, err
			}
		}
	}
	list := RunList{Page: Page{Factory: v.Query("factory")}, Filters: v.URL.Query()}
	return SeeOther{To: list.With(), Said: plural(cancelled, "run") + " will be cancelled."}, nil
}

func rows(v *Visit, query url.Values, states []string, cursor string) (all []RunRow, next string, err error) {
	if len(states) == 0 {
		return nil, "", nil
	}
	query = cloned(query)
	query["state"] = states
	query.Set("sort_by", "created_at")
	query.Set("about", "true")
	query.Set("limit", fmt.Sprint(pageRows))
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	var list api.List[api.Run]
	if err := v.Get("/agent/runs?"+query.Encode(), &list); err != nil {
		return nil, "", err
	}
	for _, r := range list.Entries {
		all = append(all, RunRow{Run: r})
	}
	return all, list.PageInfo.NextCursor, nil
}

// waits is why a run with a belt waits.
func waits(r api.Run) (why string) {
	if len(r.Belt) > 0 {
		_, why, _ = strings.Cut(r.Belt[0].Detail, " UTC: ")
	}
	return why
}

// whys reads why the first runs of the queue wait.
func (l *RunList) whys(v *Visit) error {
	read := 0
	for i := range l.Now {
		r := &l.Now[i]
		if r.State != string(store.Queued) || read == mostWhys {
			continue
		}
		read++
		var one api.Run
		if err := v.Get("/agent/runs/"+url.PathEscape(r.RunID), &one); err != nil {
			if isStatus(err, http.StatusNotFound) {
				continue
			}
			return err
		}
		r.Waits = waits(one)
	}
	return nil
}

// changed reads the rows of an open page that had not ended, and how many newer runs there are.
func (l *RunList) changed(v *Visit, query url.Values) error {
	ids := strings.Fields(v.Query("open"))
	for _, id := range ids[:min(len(ids), 2*pageRows)] {
		var r api.Run
		if err := v.Get("/agent/runs/"+url.PathEscape(id), &r); err != nil {
			if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusBadRequest) {
				continue // the run was deleted as too old
			}
			return err
		}
		l.Now = append(l.Now, RunRow{Run: r, Waits: waits(r)})
	}
	if state := v.Query("state"); state != "" {
		query.Set("state", state)
	}
	query.Set("sort_by", "created_at")
	query.Set("limit", fmt.Sprint(pageRows))
	var list api.List[api.Run]
	if err := v.Get("/agent/runs?"+query.Encode(), &list); err != nil {
		return err
	}
	for _, r := range list.Entries {
		if r.RunID > v.Query("newest") {
			l.New++
		}
	}
	return nil
}

// chosen reads the choices that the definitions offer.
func chosen(v *Visit) (c choices, err error) {
	factory := v.Query("factory")
	automations, err := all[api.Automation](v, "/automations", url.Values{"factory": {factory}}, 1000)
	if err != nil {
		return c, err
	}
	for _, a := range automations {
		c.Automations = append(c.Automations, a.Name)
	}
	if c.Webhooks, err = v.webhookNames(factory); err != nil {
		return c, err
	}
	agents, err := v.agents(factory)
	if err != nil {
		return c, err
	}
	for _, a := range agents {
		c.Agents = append(c.Agents, a.Name)
	}
	var environments api.List[api.AgentEnvironment]
	if err := v.Get("/agent/environments", &environments); err != nil {
		return c, err
	}
	for _, e := range environments.Entries {
		if factory == "" || e.Factory == factory {
			c.Environments = append(c.Environments, e.UID)
		}
	}
	for _, list := range []*[]string{&c.Automations, &c.Agents, &c.Environments} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return c, nil
}

// StartRun is the form that starts a run.
type StartRun struct {
	Page
	Choices choices
	Typed   url.Values
	Problem string
	Fields  []api.FieldProblem
}

var startForm = parse("run_new")

func (StartRun) template() *template.Template { return startForm() }

// Status implements Status.
func (s StartRun) Status() int { return formStatus(s.Problem) }

func formStatus(problem string) int {
	if problem != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

func newRunPage(v *Visit) (page StartRun, err error) {
	if page.Page, err = v.Page("Start a run"); err != nil {
		return page, err
	}
	page.Typed = v.URL.Query()
	page.Choices, err = chosen(v)
	return page, err
}

func startRun(v *Visit) (Content, error) {
	var made api.CreatedRun
	f := v.Form
	body := map[string]any{"prompt": f.Get("prompt"), "title": f.Get("title"), "config": configOf(f)}
	if agent := f.Get("agent"); agent != "" {
		body["agent_identity_uid"] = agent
	}
	err := v.Send("POST", "/agent/runs", body, &made)
	problem, fields, err := correctable(err)
	if err != nil || problem == "" {
		return SeeOther{To: "/runs/" + made.RunID, Said: "The run is in the queue."}, err
	}
	page, err := newRunPage(v)
	page.Typed, page.Problem, page.Fields = f, problem, fields
	return page, err
}

// configOf is the configuration of a run that a form asks for.
func configOf(f url.Values) map[string]string {
	config := make(map[string]string)
	for field, name := range map[string]string{"environment": "environment_id", "model": "model_id"} {
		if value := strings.TrimSpace(f.Get(field)); value != "" {
			config[name] = value
		}
	}
	return config
}

// correctable is a problem of a form that a person can correct. rest is any other error.
func correctable(err error) (problem string, fields []api.FieldProblem, rest error) {
	refused := (*Refused)(nil)
	if !errors.As(err, &refused) || refused.Status >= 500 || slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, refused.Status) {
		return "", nil, err
	}
	return cmp.Or(refused.Message, refused.Title), findings[api.FieldProblem](err, "errors"), nil
}
