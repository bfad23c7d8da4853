package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

const anAutomation = "/factories/:name/automations/:automation"

var automationRoutes = append(
	formRoutes("automation", automationForm, saveAutomation, automationPage, "POST /filters/test"),
	get("/automations", automationsPage),
	post(anAutomation+"/run", store.ScopeOperate, runAutomation, "POST "+anAutomation+"/run", "POST /filters/test"),
	post(anAutomation+"/enable", store.ScopeManage, enableAutomation(true), "PATCH "+anAutomation),
	post(anAutomation+"/disable", store.ScopeManage, enableAutomation(false), "PATCH "+anAutomation),
)

// Automations is the list of automations.
type Automations struct {
	Page
	Automations []AutomationRow // paused automations first
	Turn        Turn
	All, Paused int
	Counting    bool // the figures are not complete yet
}

// AutomationRow is an automation of the list.
type AutomationRow struct {
	api.Automation
	Month month
}

var automations = parse("automations")

func (Automations) template() *template.Template { return automations() }

func automationState(a api.Automation) state {
	switch {
	case !a.Enabled:
		return state{"stop", "Disabled"}
	case a.Paused != nil:
		return state{"warn", "Paused"}
	case a.Dormant != "":
		return state{"warn", "Dormant"}
	}
	return state{"ok", "Enabled"}
}

func init() { functions["automationState"], functions["trigger"] = automationState, showTrigger }

func automationsPage(v *Visit) (page Automations, err error) {
	if page.Page, err = v.Page("Automations"); err != nil {
		return page, err
	}
	list, err := all[api.Automation](v, "/automations", url.Values{"factory": {page.Factory}}, maxListed)
	if err != nil {
		return page, err
	}
	stats, err := v.stats(page.Factory, aMonth)
	if err != nil {
		return page, err
	}
	page.Counting, page.All = !stats.Complete, len(list)
	for _, a := range list {
		if a.Paused != nil {
			page.Paused++
		}
	}
	rank := map[string]int{"Paused": 0, "Dormant": 1, "Enabled": 1, "Disabled": 2}
	slices.SortStableFunc(list, func(a, b api.Automation) int {
		return cmp.Compare(rank[automationState(a).Word], rank[automationState(b).Word])
	})
	list, page.Turn = turn(v, list, func(a api.Automation) []string {
		texts := []string{a.Name, a.EnvironmentID, a.Agent, automationState(a).Word}
		for _, t := range a.Triggers {
			texts = append(texts, showTrigger(t).Text)
		}
		return texts
	})
	for _, a := range list {
		page.Automations = append(page.Automations, AutomationRow{a, monthOf(stats, a)})
	}
	return page, nil
}

// trigger is one trigger in words.
type trigger struct {
	Text string
	Idle string // why the trigger starts nothing, or not for all of its webhooks
}

func showTrigger(t api.Trigger) trigger {
	shown := trigger{Text: t.Provider + " " + t.Event, Idle: t.Dormant}
	if names := slices.Concat(t.Webhooks, t.WebhookIDs); len(names) > 0 {
		shown.Text = "webhook " + strings.Join(names, ", ")
	}
	if shown.Idle == "" && len(t.Gone) > 0 {
		shown.Idle = "there is no webhook " + strings.Join(t.Gone, ", ")
	}
	return shown
}

// Automation is the page of an automation.
type Automation struct {
	Page
	Automation api.Automation
	State      state
	Definition api.Definition // from the newest commit of a hosted factory, or from the live commit of another factory
	Wants      []want
	Keys       []keyValue // the other keys of the file
	Runs       []api.Run
	Month      month
	Recent     recentTests
	File       Place
	ByHand     byHand
	kept
}

// Heading is the heading of a run without the name of the automation, if anything else is left.
func (a Automation) Heading(r api.Run) string {
	full := headingOf(r)
	return cmp.Or(strings.TrimLeft(strings.TrimPrefix(full, a.Automation.Name), ": ·"), full)
}

// want is a trigger of the file in words.
type want struct {
	Text       string
	Conditions []keyValue // of the trigger's payload filter
}

type keyValue struct{ Key, Value string }

// aMonth is the length of time that the figures of automations cover.
const aMonth = "720h"

// month has the sums of an automation's runs that ended in the last 30 days.
type month struct {
	Runs, Well int64
	USD        float64
	Counting   bool // not all runs are counted yet
	Models     []api.ModelUsage
}

func monthOf(s api.Stats, a api.Automation) month {
	m := month{Counting: !s.Complete}
	for _, one := range s.Automations {
		if one.Factory == a.Factory && one.Automation == a.Name {
			for _, n := range one.Runs {
				m.Runs += n
			}
			m.Well, m.USD = one.Runs[string(store.Succeeded)], one.CostUSD
		}
	}
	m.Models = api.ByModel(slices.DeleteFunc(slices.Clone(s.Models), func(d api.DayUsage) bool { return d.Factory != a.Factory || d.Automation != a.Name }))
	return m
}

var automation = parse("automation")

func (Automation) template() *template.Template { return automation() }

func automationPage(v *Visit, factory, name string) (page Automation, err error) {
	if page.Page, err = v.Page("Automation " + name); err != nil {
		return page, err
	}
	page.Here, page.Factory = "/automations/"+named(name), factory
	found, err := v.automation(page.Factory, name)
	if err != nil {
		return page, err
	}
	page.Automation, page.State = found, automationState(found)
	page.File = page.placeOf(found.Factory, found.Path)
	if err = v.Get(escaped("/factories", found.Factory, "automations", name), &page.Definition); err != nil {
		if _, err = told(err); err != nil { // the newest commit may lack an automation that a pin serves
			return page, err
		}
	}
	page.Wants, page.Keys = inWords(page.Definition.Keys)
	stats, err := v.stats(found.Factory, aMonth)
	if err != nil {
		return page, err
	}
	page.Month = monthOf(stats, found)
	query := url.Values{"factory": {found.Factory}, "automation": {name}, "sort_by": {"created_at"}, "limit": {"8"}, "about": {"true"}}
	var list api.List[api.Run]
	if err = v.Get("/agent/runs?"+query.Encode(), &list); err != nil {
		return page, err
	}
	page.Runs = list.Entries
	page.Recent, err = v.recentTests(found)
	return page, err
}

func (v *Visit) automation(factory, name string) (found api.Automation, err error) {
	list, err := all[api.Automation](v, "/automations", url.Values{"factory": {factory}}, maxListed)
	if err != nil {
		return found, err
	}
	names := terms.Each(list, func(a api.Automation) string { return a.Name })
	list = slices.DeleteFunc(list, func(a api.Automation) bool { return a.Name != name })
	switch len(list) {
	case 0:
		return found, &Refused{Problem: api.NewProblem(api.NotFound, api.NoneNamed("automation", name, names))}
	case 1:
		return list[0], nil
	}
	return found, &Refused{Problem: api.NewProblem(api.Conflict, "several factories have an automation of this name: choose a factory")}
}

// inWords are the triggers and the other keys of an automation's file.
func inWords(raw json.RawMessage) (wants []want, others []keyValue) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return nil, nil
	}
	var triggers []struct {
		Provider, Event string
		Filter          struct {
			Webhooks []string        `json:"webhooks"`
			UIDs     []string        `json:"webhook_ids"`
			Payload  json.RawMessage `json:"payload"`
		}
		Schedule struct{ Name, Cron string }
	}
	_ = json.Unmarshal(keys["triggers"], &triggers) // triggers of another form are not shown in words
	for _, t := range triggers {
		w := want{Text: t.Provider + ", " + t.Event}
		switch {
		case t.Provider == "webhook":
			w.Text = "a delivery to " + cmp.Or(strings.Join(slices.Concat(t.Filter.Webhooks, t.Filter.UIDs), " or "), "any webhook")
			w.Conditions = conditions("", t.Filter.Payload, 0)
		case t.Schedule.Cron != "":
			w.Text = strings.TrimSpace("the schedule " + t.Schedule.Name + " " + t.Schedule.Cron)
		}
		wants = append(wants, w)
	}
	return wants, otherKeys(raw, "triggers", "enabled")
}

// otherKeys are the keys of a file that the page does not show elsewhere.
func otherKeys(raw json.RawMessage, elsewhere ...string) (others []keyValue) {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(raw, &keys) // nothing is shown of a value that is no mapping
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(elsewhere, key) {
			others = append(others, keyValue{key, valueInWords(key, keys[key])})
		}
	}
	return others
}

// conditions are the conditions of a payload filter, by the path of the field.
func conditions(path string, raw json.RawMessage, depth int) (all []keyValue) {
	var values []any
	if json.Unmarshal(raw, &values) == nil {
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = fmt.Sprint(v)
		}
		return []keyValue{{path, "is " + strings.Join(texts, " or ")}}
	}
	var inner map[string]json.RawMessage
	if depth > 20 || json.Unmarshal(raw, &inner) != nil {
		if len(raw) == 0 {
			return nil
		}
		return []keyValue{{path, string(raw)}}
	}
	for _, key := range slices.Sorted(maps.Keys(inner)) {
		all = append(all, conditions(strings.TrimPrefix(path+"."+key, "."), inner[key], depth+1)...)
	}
	return all
}

func enableAutomation(on bool) func(*Visit) (SeeOther, error) {
	return func(v *Visit) (SeeOther, error) {
		var done api.DefinitionChange
		name := v.Param("automation")
		keys, said := `{"enabled": false}`, "Disabled: it starts nothing. "
		if on {
			keys, said = `{"enabled": null}`, "Enabled. "
		}
		err := v.Send("PATCH", escaped("/factories", v.Param("name"), "automations", name), api.DefinitionPatch{Definition: json.RawMessage(keys)}, &done)
		return changed(v, "automation", name, said+committed(done.Change)), err
	}
}

// AutomationForm is the form for the common keys of an automation.
type AutomationForm struct {
	definitionForm
	Webhook  string
	Payload  string // filter, as JSON
	Cron     string
	Agent    string
	Env      string
	Complex  bool // the triggers do not fit the form
	Webhooks []string
	Agents   []string
	Envs     []string
}

var automationEdit = parse("automation_edit")

func (AutomationForm) template() *template.Template { return automationEdit() }

func automationForm(v *Visit) (page AutomationForm, err error) {
	page.Webhook, page.Env = v.Query("webhook"), v.Query("environment")
	if err = page.begin(v, "automation"); err != nil {
		return page, err
	}
	if err = page.offer(v); err != nil || page.New {
		if page.Env != "" && page.Webhook == "" && len(page.Webhooks) == 1 {
			page.Webhook = page.Webhooks[0] // who comes from an environment has made both
		}
		return page, err
	}
	var keys struct {
		Agent         string
		EnvironmentID string `json:"environmentId"`
		Triggers      []map[string]json.RawMessage
	}
	_ = json.Unmarshal(page.there.Keys, &keys) // Complex covers keys that the form cannot show
	page.Agent, page.Env, page.Webhook = keys.Agent, keys.EnvironmentID, ""
	page.Complex = !page.fill(keys.Triggers)
	return page, nil
}

// fill fills in triggers, if the form can show them: at most one of a webhook and one of a
// schedule.
func (p *AutomationForm) fill(triggers []map[string]json.RawMessage) bool {
	for _, t := range triggers {
		var provider string
		var filter map[string]json.RawMessage
		var schedule map[string]string
		_, _, _ = json.Unmarshal(t["provider"], &provider), json.Unmarshal(t["filter"], &filter), json.Unmarshal(t["schedule"], &schedule)
		var webhooks []string
		_ = json.Unmarshal(filter["webhooks"], &webhooks)
		switch {
		case provider == "webhook" && p.Webhook == "" && len(webhooks) == 1 && len(filter) == 1+min(1, len(filter["payload"])):
			p.Webhook = webhooks[0]
			if raw := filter["payload"]; len(raw) > 0 {
				p.Payload = indented(raw)
			}
		case provider == "schedule" && p.Cron == "" && len(schedule) == 1 && schedule["cron"] != "":
			p.Cron = schedule["cron"]
		default:
			return false
		}
	}
	return showable(p.Payload)
}

func (p *AutomationForm) offer(v *Visit) error {
	of := url.Values{"factory": {p.Home.Name}}
	hooks, err := all[api.Webhook](v, "/webhooks", of, maxListed)
	if err != nil {
		return err
	}
	envs, err := all[api.AgentEnvironment](v, "/agent/environments", of, maxListed)
	if err != nil {
		return err
	}
	agents, err := v.agents(p.Home.Name)
	if err != nil {
		return err
	}
	for _, w := range hooks {
		p.Webhooks = append(p.Webhooks, w.Name)
	}
	for _, a := range agents {
		p.Agents = append(p.Agents, a.Name)
	}
	for _, e := range envs {
		p.Envs = append(p.Envs, e.Name)
	}
	return nil
}

func saveAutomation(v *Visit) (Content, error) {
	value := func(name string) string { return strings.TrimSpace(v.Form.Get(name)) }
	page := AutomationForm{
		Webhook: value("webhook"), Payload: value("payload"), Cron: value("cron"), Agent: value("agent"), Env: value("environment"), Complex: value("complex") != "",
	}
	if err := page.typed(v, "automation"); err != nil {
		return nil, err
	}
	var keys map[string]any
	if keys, page.Failed = page.keys(); page.Failed == "" {
		if done, err := page.save(v, keys); err != nil || done != nil {
			return done, err
		}
	}
	return page, page.offer(v)
}

// keys are the keys of the file, with the values of the form. An empty value removes a key.
func (p *AutomationForm) keys() (keys map[string]any, problem string) {
	keys = map[string]any{"agent": nil, "environmentId": nil}
	if p.Agent != "" {
		keys["agent"] = p.Agent
	}
	if p.Env != "" {
		keys["environmentId"] = p.Env
	}
	if !p.Complex {
		triggers := []any{}
		if p.Webhook != "" {
			filter := map[string]any{"webhooks": []string{p.Webhook}}
			if p.Payload != "" {
				if !json.Valid([]byte(p.Payload)) {
					return nil, `The payload filter is no JSON: write such as {"action": ["opened"]}.`
				}
				filter["payload"] = json.RawMessage(p.Payload)
			}
			triggers = append(triggers, map[string]any{"provider": "webhook", "event": "received", "filter": filter})
		}
		if p.Cron != "" {
			triggers = append(triggers, map[string]any{"provider": "schedule", "event": "cron_fired", "schedule": map[string]string{"cron": p.Cron}})
		}
		keys["triggers"] = triggers
	}
	return keys, ""
}
