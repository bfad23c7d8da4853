package dashboard

import (
	"encoding/json"
	"html/template"
	"net/url"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

var scheduleRoutes = []Route{
	get("/schedules", schedulesPage),
	post("/schedules", store.ScopeRuns, createSchedule, "POST /agent/schedules"),
	{Method: "GET", Path: "/schedules/new", Scope: store.ScopeRuns, handle: func(v *Visit) (Content, error) { return scheduleForm(v) }},
	{Method: "GET", Path: "/schedules/:id", Scope: store.ScopeRuns, handle: func(v *Visit) (Content, error) { return editSchedule(v) }},
	post("/schedules/:id", store.ScopeRuns, saveSchedule, "PUT /agent/schedules/:id"),
	post("/schedules/:id/pause", store.ScopeRuns, scheduleAction("POST", "/pause", "The schedule is paused: it starts no runs."), "POST /agent/schedules/:id/pause"),
	post("/schedules/:id/resume", store.ScopeRuns, scheduleAction("POST", "/resume", "The schedule starts runs again."), "POST /agent/schedules/:id/resume"),
	post("/schedules/:id/delete", store.ScopeRuns, scheduleAction("DELETE", "", "The schedule is deleted. Its runs stay."), "DELETE /agent/schedules/:id"),
}

// ScheduleList is the list of schedules.
type ScheduleList struct {
	Page
	Schedules   []ScheduleRow
	Turn        Turn
	All, Paused int
}

// ScheduleRow is a schedule in the list.
type ScheduleRow struct {
	api.Schedule
	Path string   // of the file that defines the schedule
	Last *api.Run // the last run that the schedule started, if it is still stored
}

// State is the state of the schedule for people.
func (s ScheduleRow) State() state {
	switch {
	case !s.Enabled:
		return state{"warn", "Paused"}
	case s.LastSpawnError != "":
		return state{"fail", "Started nothing"}
	}
	return state{"ok", "Enabled"}
}

var scheduleList = parse("schedules")

func (ScheduleList) template() *template.Template { return scheduleList() }

func schedulesPage(v *Visit) (page ScheduleList, err error) {
	if page.Page, err = v.Page("Schedules"); err != nil {
		return page, err
	}
	var list api.List[api.Schedule]
	factory := url.Values{}
	if page.Factory != "" {
		factory.Set("factory", page.Factory)
	}
	if err := v.Get("/agent/schedules?"+factory.Encode(), &list); err != nil {
		return page, err
	}
	automations, err := all[api.Automation](v, "/automations", factory, 1000)
	if err != nil {
		return page, err
	}
	page.All = len(list.Entries)
	for _, s := range list.Entries {
		if !s.Enabled {
			page.Paused++
		}
	}
	list.Entries, page.Turn = turn(v, list.Entries, func(s api.Schedule) []string {
		return []string{s.Name, s.Cron, s.Automation, s.Prompt, s.CreatedBy.DisplayName}
	})
	for _, s := range list.Entries {
		row := ScheduleRow{Schedule: s}
		for _, a := range automations {
			if s.Automation != "" && a.Name == s.Automation && a.Factory == s.Factory {
				row.Path = a.Path
			}
		}
		if s.History.LastRan != nil {
			var runs api.List[api.Run]
			if err := v.Get("/agent/runs?"+url.Values{"schedule_id": {s.ID}, "sort_by": {"created_at"}, "limit": {"1"}}.Encode(), &runs); err != nil {
				return page, err
			}
			if len(runs.Entries) > 0 {
				row.Last = &runs.Entries[0]
			}
		}
		page.Schedules = append(page.Schedules, row)
	}
	return page, nil
}

// ScheduleForm is the form that makes or changes a schedule.
type ScheduleForm struct {
	Page
	ID      string // of the changed schedule; empty: a new schedule
	Choices choices
	Typed   url.Values
	Problem string
	Fields  []api.FieldProblem
}

var schedulePage = parse("schedule")

func (ScheduleForm) template() *template.Template { return schedulePage() }

// Status implements Status.
func (f ScheduleForm) Status() int { return formStatus(f.Problem) }

func scheduleForm(v *Visit) (page ScheduleForm, err error) {
	if page.Page, err = v.Page("New schedule"); err != nil {
		return page, err
	}
	page.Typed = v.URL.Query()
	page.Choices, err = chosen(v)
	return page, err
}

func scheduleOf(v *Visit) string { return "/agent/schedules/" + url.PathEscape(v.Param("id")) }

// scheduleConfig are the parts of the configuration of a schedule's runs that a form changes.
type scheduleConfig struct {
	Environment string `json:"environment_id"`
	Model       string `json:"model_id"`
}

func editSchedule(v *Visit) (page ScheduleForm, err error) {
	var s api.Schedule
	if err := v.Get(scheduleOf(v), &s); err != nil {
		return page, err
	}
	if page, err = scheduleForm(v); err != nil {
		return page, err
	}
	page.Title, page.ID = s.Name, s.ID
	config, err := configured[scheduleConfig](s.AgentConfig)
	page.Typed = url.Values{"name": {s.Name}, "cron": {s.Cron}, "prompt": {s.Prompt}, "agent": {s.AgentUID}, "environment": {config.Environment}, "model": {config.Model}}
	if s.Automation != "" {
		page.Problem = "The automation " + s.Automation + " defines this schedule: change its file."
	}
	return page, err
}

func createSchedule(v *Visit) (Content, error) {
	err := v.Send("POST", "/agent/schedules", written(v.Form, nil), nil)
	return scheduleSaved(v, err, "The schedule is made.", scheduleForm)
}

func saveSchedule(v *Visit) (Content, error) {
	var s api.Schedule
	if err := v.Get(scheduleOf(v), &s); err != nil {
		return nil, err
	}
	err := v.Send("PUT", scheduleOf(v), written(v.Form, &s), nil)
	return scheduleSaved(v, err, "The schedule is changed.", editSchedule)
}

// scheduleSaved answers a form: with its result, or with the form again and what is wrong.
func scheduleSaved(v *Visit, err error, said string, form func(*Visit) (ScheduleForm, error)) (Content, error) {
	problem, fields, err := correctable(err)
	if err != nil || problem == "" {
		return SeeOther{To: "/schedules", Said: said}, err
	}
	page, err := form(v)
	page.Typed, page.Problem, page.Fields = v.Form, problem, fields
	return page, err
}

// configured reads the configuration of a schedule's runs.
func configured[T any](raw json.RawMessage) (config T, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &config)
	}
	return config, err
}

// written is the body of the API for a form. Fields that the form does not have stay as they were.
func written(f url.Values, was *api.Schedule) map[string]any {
	body, config := map[string]any{}, map[string]any{}
	if was != nil {
		body["enabled"], body["metadata"] = was.Enabled, was.Metadata
		if kept, err := configured[map[string]any](was.AgentConfig); err == nil && kept != nil {
			config = kept
		}
	}
	for name, value := range configOf(f) {
		config[name] = value
	}
	for field, name := range map[string]string{"environment": "environment_id", "model": "model_id"} {
		if strings.TrimSpace(f.Get(field)) == "" {
			delete(config, name)
		}
	}
	body["name"], body["cron_schedule"], body["prompt"], body["agent_config"] = f.Get("name"), f.Get("cron"), f.Get("prompt"), config
	if agent := f.Get("agent"); agent != "" {
		body["agent_uid"] = agent
	}
	return body
}

func scheduleAction(method, path, said string) func(*Visit) (SeeOther, error) {
	return func(v *Visit) (SeeOther, error) {
		return SeeOther{To: "/schedules", Said: said}, v.Send(method, scheduleOf(v)+path, nil, nil)
	}
}
