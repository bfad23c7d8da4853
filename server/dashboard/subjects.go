package dashboard

import (
	"html/template"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

func init() { functions["doing"], functions["nameOf"] = doing, nameOf }

var subjectRoutes = []Route{
	get("/subjects", subjectsPage),
	get("/subjects/story", subjectPage),
}

// Subjects is the list of what events are about.
type Subjects struct {
	Page
	Rows   []api.Subject
	Text   string // that the names must have, or empty
	Cursor string
	Next   string // cursor of the next page, or empty
}

var subjectList = parse("subjects")

func (Subjects) template() *template.Template { return subjectList() }

func subjectsPage(v *Visit) (page Subjects, err error) {
	if page.Page, err = v.Page("Subjects"); err != nil {
		return page, err
	}
	page.Text, page.Cursor = strings.TrimSpace(v.Query("text")), v.Query("cursor")
	query := url.Values{"limit": {"50"}, "about": {"true"}}
	for name, value := range map[string]string{"factory": page.Factory, "text": page.Text, "cursor": page.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var list api.List[api.Subject]
	err = v.Get("/subjects?"+query.Encode(), &list)
	page.Rows, page.Next = list.Entries, list.PageInfo.NextCursor
	return page, err
}

// Story is the page of a subject.
type Story struct {
	Page
	Told    api.SubjectStory
	Heading string        // what people call the subject, or else its name without the sender
	Newest  *api.Delivery // nil: none is kept
	Latest  *RunRow       // the newest run; nil: it started no run that is kept
	Place   string        // the page of the subject at its sender, as far as an answer went there; empty: not known
	// People are those who caused the events, and Automations those that ran.
	People, Automations []string

	open []string // the runs that have not ended
}

var story = parse("subject")

func (Story) template() *template.Template { return story() }

// Total is what came of the subject in all factories.
func (s Story) Total() (t api.Subject) {
	for _, in := range s.Told.Factories {
		t.Deliveries, t.Runs, t.Active = t.Deliveries+in.Deliveries, t.Runs+in.Runs, t.Active+in.Active
		t.Tokens, t.CostUSD = t.Tokens+in.Tokens, t.CostUSD+in.CostUSD
	}
	return t
}

// read reads from the story what stands above and beside it.
func (s *Story) read() {
	s.Heading = nameOf(s.Told.Subject)
	add := func(list *[]string, one string) {
		if one != "" && !slices.Contains(*list, one) {
			*list = append(*list, one)
		}
	}
	for _, c := range s.Told.Story {
		switch {
		case c.Delivery != nil:
			if s.Newest = c.Delivery; c.Delivery.Title != "" {
				s.Heading = event.Line(c.Delivery.Title, 120)
			}
			add(&s.People, c.Delivery.Person)
		case c.Run != nil:
			row := s.Row(c.Run)
			s.Latest = &row
			add(&s.Automations, c.Run.Automation)
			if !store.RunState(c.Run.State).Terminal() {
				s.open = append(s.open, c.Run.RunID)
			}
		case c.Answer != nil && markdown.Web(c.Answer.Place) != "":
			s.Place = c.Answer.Place
		}
	}
}

// nameOf is the name of a subject without its sender.
func nameOf(subject string) string {
	if _, name, ok := strings.Cut(subject, ":"); ok {
		return name
	}
	return subject
}

// State is the state of the subject: that of its newest run, unless a person is needed.
func (s Story) State() state {
	switch {
	case len(s.Failed()) > 0:
		return state{"warn", "Needs a person"}
	case s.Latest == nil:
		return state{"none", "Started nothing"}
	}
	return runState(s.Latest.State)
}

// Stop is the address at which what goes on can be cancelled; empty: nothing goes on.
func (s Story) Stop() string {
	switch len(s.open) {
	case 0:
		return ""
	case 1:
		return s.To("/runs/"+url.PathEscape(s.open[0])) + "#cancel"
	}
	return s.To("/runs", "subject", s.Told.Subject)
}

// Pulls are the pull requests of the story.
func (s Story) Pulls() (all []*api.PullRequest) {
	for _, c := range s.Told.Story {
		if c.PullRequest != nil {
			all = append(all, c.PullRequest)
		}
	}
	return all
}

// Failed are the answers and outputs that need a person.
func (s Story) Failed() (all []api.Chapter) {
	for _, c := range s.Told.Story {
		if c.Answer != nil && c.Answer.Status == store.AnswerFailed || c.Output != nil && (c.Output.Status == store.OutputFailed || c.Output.Status == store.OutputAsked) {
			all = append(all, c)
		}
	}
	return all
}

// Row is a run of the story, with why it waits.
func (Story) Row(r *api.Run) RunRow { return RunRow{Run: *r, Waits: waits(*r)} }

func subjectPage(v *Visit) (page Story, err error) {
	name := v.Query("subject")
	if page.Page, err = v.Page(name); err != nil {
		return page, err
	}
	query := url.Values{"subject": {name}, "about": {"true"}}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	err = v.Get("/subjects/story?"+query.Encode(), &page.Told)
	page.read()
	return page, err
}
