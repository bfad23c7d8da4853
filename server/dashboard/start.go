package dashboard

import (
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

var startRoutes = []Route{
	get("/start", startPage),
	post("/start", store.ScopeManage, startFactory, "POST /factories"),
}

// Start is the page that leads from an empty server to the first run that succeeded.
type Start struct {
	Page
	Steps   []Step
	Name    string // name in the form that starts a factory
	Problem string // why the factory was not started
}

// Step is one step of the way.
type Step struct {
	State string // done, now, next
	Title string
	Text  string
	Do    string // text of the link
	Link  string
}

var start = parse("start")

func (Start) template() *template.Template { return start() }

// Status tells that the form was refused.
func (s Start) Status() int {
	if s.Problem != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// Reached tells whether all steps are done.
func (s Start) Reached() bool { return len(s.Steps) > 0 && s.Steps[len(s.Steps)-1].State == "done" }

func startPage(v *Visit) (page Start, err error) {
	if page.Page, err = v.Page("First steps"); err != nil {
		return page, err
	}
	page.Name = v.Query("name")
	var (
		webhooks     api.List[api.Webhook]
		environments api.List[api.AgentEnvironment]
		automations  api.List[api.Automation]
		deliveries   api.List[api.Delivery]
		runs         api.List[api.Run]
	)
	for path, into := range map[string]any{
		"/webhooks": &webhooks, "/agent/environments": &environments, "/automations": &automations, "/deliveries?limit=1": &deliveries,
		"/agent/runs?state=SUCCEEDED&limit=1": &runs,
	} {
		if err = v.Get(path, into); err != nil {
			return page, err
		}
	}
	webhook, name := page.To("/webhooks"), ""
	if len(webhooks.Entries) > 0 {
		name = webhooks.Entries[0].Name
		webhook = page.To("/webhooks/" + named(name))
	}
	for _, step := range []struct {
		Step
		done bool
	}{
		{Step{Title: "A factory", Text: "Its definitions are files in a Git repository. This server can keep that repository, and make the commits."}, len(page.Factories) > 0},
		{Step{
			Title: "A webhook", Text: "An address with a secret, to which a sender posts what happens.",
			Do: "New webhook", Link: page.To("/webhooks/new"),
		}, name != ""},
		{Step{
			Title: "Its first delivery", Text: "Point the sender at the address, as the page of the webhook says, or send a test from there. Both pages show it as it comes.",
			Do: "How to point its sender at it", Link: webhook,
		}, len(deliveries.Entries) > 0},
		{Step{
			Title: "An environment", Text: "It says where an agent runs: with which repositories and tools, and how far it may go.",
			Do: "New environment", Link: page.To("/environments/new"),
		}, len(environments.Entries) > 0},
		{Step{
			Title: "An automation", Text: "A prompt for an agent, what starts it, and the environment where it runs.",
			Do: "New automation", Link: page.To("/automations/new", "webhook", name),
		}, len(automations.Entries) > 0},
		{Step{
			Title: "A run that succeeds", Text: "The next delivery that the automation wants starts a run. Send one, and watch.",
			Do: "Runs", Link: page.To("/runs"),
		}, len(runs.Entries) > 0},
	} {
		switch {
		case step.done:
			step.State = "done"
		case !slices.ContainsFunc(page.Steps, func(s Step) bool { return s.State == "now" }):
			step.State = "now"
		default:
			step.State = "next"
		}
		page.Steps = append(page.Steps, step.Step)
	}
	return page, err
}

// startFactory makes a hosted factory, or shows the form again with the problem.
func startFactory(v *Visit) (Content, error) {
	name := strings.TrimSpace(v.Form.Get("name"))
	err := v.Send("POST", "/factories", api.FactoryRequest{Name: name}, nil)
	if refused := (*Refused)(nil); errors.As(err, &refused) && refused.Status < 500 {
		page, failed := startPage(v)
		page.Name, page.Problem = name, err.Error()
		return page, failed
	}
	return SeeOther{To: "/start", Said: "The factory " + name + " is started."}, err
}
