package dashboard

import (
	"html/template"
	"net/url"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

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
	query := url.Values{"limit": {"50"}}
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
	Told api.SubjectStory
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
	query := url.Values{"subject": {name}}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	return page, v.Get("/subjects/story?"+query.Encode(), &page.Told)
}
