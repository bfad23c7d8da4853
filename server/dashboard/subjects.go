package dashboard

import (
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

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
	Told     api.SubjectStory
	Chapters []Chapter // oldest first
}

// Chapter is a delivery or a run of a story.
type Chapter struct {
	At       time.Time
	Delivery *api.Delivery // nil: it is a run
	Run      *RunRow
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

// Open are the runs that have not ended.
func (s Story) Open() (open []*RunRow) {
	for _, c := range s.Chapters {
		if c.Run != nil && !store.RunState(c.Run.State).Terminal() {
			open = append(open, c.Run)
		}
	}
	return open
}

func subjectPage(v *Visit) (page Story, err error) {
	name := v.Query("subject")
	if page.Page, err = v.Page(name); err != nil {
		return page, err
	}
	query := url.Values{"subject": {name}}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	if err := v.Get("/subjects/story?"+query.Encode(), &page.Told); err != nil {
		return page, err
	}
	for i := range page.Told.Deliveries {
		d := &page.Told.Deliveries[i]
		page.Chapters = append(page.Chapters, Chapter{At: d.ReceivedAt, Delivery: d})
	}
	for _, r := range page.Told.Runs {
		page.Chapters = append(page.Chapters, Chapter{At: r.CreatedAt, Run: &RunRow{Run: r}})
	}
	slices.SortStableFunc(page.Chapters, func(a, b Chapter) int { return a.At.Compare(b.At) }) // a delivery before its runs
	list := RunList{Now: nil}
	for _, open := range page.Open() {
		list.Now = append(list.Now, *open)
	}
	if err := list.whys(v); err != nil {
		return page, err
	}
	for i, open := range page.Open() {
		open.Waits = list.Now[i].Waits
	}
	return page, nil
}
