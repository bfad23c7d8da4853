package dashboard

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

var searchRoutes = []Route{get(searchPath, searchPage)}

const searchPath = "/search"

// Search finds pages, things and what can be done with them by their words. Every page has it as a dialog.
type Search struct {
	Page
	Text  string
	named []Found // definitions
	asked []Found // what can be done with each definition
	kept  []Found // what the store has with the text
}

// Found is a link of a search. It changes nothing: a link to an action leads to the form of the action.
type Found struct{ Kind, Title, About, Link string }

// Icon is the drawing of the link's kind.
func (f Found) Icon() string {
	return cmp.Or(map[string]string{"automation": "automations", "webhook": "webhooks", "run": "runs", "subject": "subjects", "delivery": "deliveries", "action": "command"}[f.Kind], "next")
}

var search = parse("search")

func (Search) template() *template.Template { return search() }

func searchPage(v *Visit) (page Search, err error) {
	if page.Page, err = v.Page("Search"); err != nil {
		return page, err
	}
	if page.Text = strings.TrimSpace(v.Query("q")); page.Text == "" {
		return page, nil
	}
	if err := page.definitions(v); err != nil {
		return page, err
	}
	return page, page.stored(v)
}

// mostFound is how many links of each kind a search shows.
const mostFound = 8

// Found are the links, those whose names begin with the text first, and then the lists that search
// for the text themselves. Without a text they are the pages and the actions that are of no one thing.
func (s Search) Found() []Found {
	found := slices.Concat(s.places(), s.named, s.asked)
	words := strings.Fields(strings.ToLower(s.Text))
	found = slices.DeleteFunc(found, func(f Found) bool {
		text := strings.ToLower(f.Title + " " + f.About)
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	})
	if found = append(found, s.kept...); s.Text == "" {
		return found
	}
	later := func(f Found) int {
		if strings.HasPrefix(strings.ToLower(f.Title), strings.ToLower(s.Text)) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b Found) int { return later(a) - later(b) })
	counts := make(map[string]int)
	found = slices.DeleteFunc(found, func(f Found) bool { counts[f.Kind]++; return counts[f.Kind] > mostFound })
	for _, list := range [][2]string{{"automations", "q"}, {"webhooks", "q"}, {"subjects", "text"}, {"deliveries", "text"}, {"runs", "q"}} {
		found = append(found, Found{"list", "All " + list[0] + " with “" + s.Text + "”", "", s.To("/"+list[0], list[1], s.Text)})
	}
	return found
}

// places are the pages of the navigation, and the forms that are of no one thing.
func (s Search) places() (found []Found) {
	for _, g := range s.Navigation() {
		for _, e := range g.Entries {
			found = append(found, Found{"page", e.Name, g.Name, s.To(e.Path)})
		}
	}
	action := func(scope, title, about, link string) {
		if s.May(scope) {
			found = append(found, Found{"action", title, about, link})
		}
	}
	action(store.ScopeRuns, "Start a run", "", s.To("/runs/new"))
	action(store.ScopeRuns, "Stop runs at work…", "", s.To("/runs", "state", string(store.InProgress)))
	for _, f := range s.Shown() {
		for _, kind := range []string{"automation", "webhook", "environment", "agent"} {
			action(store.ScopeManage, "New "+kind, strings.TrimSuffix(s.Of(f.Name, ""), ": "), s.In(f.Name, "/"+kind+"s/new"))
		}
	}
	action(store.ScopeRead, "Test a filter", "", s.To("/automations/test"))
	action(store.ScopeOperate, "Apply now, or pin an apply", "", s.To("/definition"))
	action(store.ScopeManage, "Set a secret", "", s.To("/secrets"))
	action(store.ScopeManage, "Make a key, or sign somebody in", "", s.To("/people"))
	return found
}

// definitions reads automations and webhooks.
func (s *Search) definitions(v *Visit) error {
	of := url.Values{"factory": {s.Factory}}
	automations, err := all[api.Automation](v, "/automations", of, maxListed)
	if err != nil {
		return err
	}
	for _, a := range automations {
		s.definition("automation", a.Factory, a.Name, automationState(a).Word, a.Paused != nil, a.Enabled)
	}
	webhooks, err := all[api.Webhook](v, "/webhooks", of, maxListed)
	for _, w := range webhooks {
		s.definition("webhook", w.Factory, w.Name, webhookState(&w).Word, w.Paused != nil, w.Enabled)
	}
	return err
}

func (s *Search) definition(kind, factory, name, state string, paused, enabled bool) {
	shown, at := s.Of(factory, name), s.In(factory, "/"+kind+"s/"+terms.PageNamed(name))
	s.named = append(s.named, Found{kind, shown, kind + ", " + strings.ToLower(state), at})
	switch may := s.May(store.ScopeOperate); {
	case may && paused:
		s.asked = append(s.asked, Found{"action", "Resume " + shown, kind, at})
	case may && enabled:
		s.asked = append(s.asked, Found{"action", "Pause " + shown + "…", kind, at + "#pause-reason"})
		if kind == "automation" {
			s.asked = append(s.asked, Found{"action", "Run " + shown + " now…", kind, at + "#run-prompt"})
		}
	}
}

// stored reads what the store has with the text: runs, subjects, the delivery of an id. After "stop"
// it reads the runs at work, which are what somebody wants to stop.
func (s *Search) stored(v *Visit) error {
	query := url.Values{"limit": {"8"}, "about": {"true"}, "sort_by": {"created_at"}, "factory": {s.Factory}, "q": {s.Text}}
	if verb, words, _ := strings.Cut(s.Text, " "); strings.EqualFold(verb, "stop") || strings.EqualFold(verb, "cancel") {
		query.Set("q", strings.TrimSpace(words))
		query.Set("state", string(store.InProgress))
	}
	var runs api.List[api.Run]
	if err := v.Get("/agent/runs?"+query.Encode(), &runs); err != nil {
		return err
	}
	for _, r := range runs.Entries {
		title, at := headingOf(r), s.To("/runs/"+url.PathEscape(r.RunID))
		s.kept = append(s.kept, Found{"run", title, "run, " + strings.ToLower(runState(r.State).Word), at})
		if r.State == string(store.InProgress) && s.May(store.ScopeRuns) {
			s.kept = append(s.kept, Found{"action", "Stop " + title + "…", "run", at + "#cancel"})
		}
	}
	var subjects api.List[api.Subject]
	if err := v.Get("/subjects?"+url.Values{"limit": {"8"}, "factory": {s.Factory}, "text": {s.Text}}.Encode(), &subjects); err != nil {
		return err
	}
	for _, one := range subjects.Entries {
		s.kept = append(s.kept, Found{"subject", one.Subject, "subject", s.To("/subjects/story", "subject", one.Subject)})
	}
	id := s.Text[strings.LastIndexByte(s.Text, '/')+1:]
	if !strings.HasPrefix(id, terms.DeliveryPrefix) {
		return nil
	}
	switch err := v.Get("/deliveries/"+url.PathEscape(id), nil); {
	case err == nil:
		s.kept = append(s.kept, Found{"delivery", id, "delivery", s.To("/deliveries/" + url.PathEscape(id))})
	case !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusBadRequest):
		return err
	}
	return nil
}
