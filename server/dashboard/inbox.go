package dashboard

import (
	"encoding/json"
	"html/template"
	"net/url"
	"strconv"
	"strings"

	"triphammer/schema/output"
	"triphammer/server/api"
	"triphammer/server/store"
)

var inboxRoutes = []Route{
	get("/inbox", inboxPage),
	post("/runs/:id/decision", store.ScopeOperate, decideRun, "POST /agent/runs/:id/decision"),
}

// Inbox is what waits for a person (SPEC 26.2).
type Inbox struct {
	Page
	Items  []api.InboxItem // that are approved or declined
	Others []api.InboxItem
}

// Way is where a person does something about an item that is neither approved nor declined: the words of
// the link, and its address.
func (p Inbox) Way(i api.InboxItem) []string {
	switch words := strings.Fields(i.Command); {
	case i.RunID != "":
		return []string{"Look at the run", p.To("/runs/" + url.PathEscape(i.RunID))}
	case i.Kind == "pause" && len(words) == 4: // triphammer automations resume NAME
		return []string{"Look, then resume", p.In(i.Factory, "/"+words[1]+"/"+named(words[3]))}
	case i.Kind == "commit":
		return []string{"See why", p.In(i.Factory, "/definition")}
	}
	return nil
}

var inbox = parse("inbox")

func (Inbox) template() *template.Template { return inbox() }

func inboxPage(v *Visit) (page Inbox, err error) {
	if page.Page, err = v.Page("Inbox"); err != nil {
		return page, err
	}
	all, err := v.inbox(page.Factory)
	for _, i := range all {
		if i.Shown != "" {
			page.Items = append(page.Items, i)
		} else {
			page.Others = append(page.Others, i)
		}
	}
	return page, err
}

// inbox reads what waits for a person, of a factory or of all.
func (v *Visit) inbox(factory string) ([]api.InboxItem, error) {
	var all api.List[api.InboxItem]
	err := v.Get("/inbox?"+url.Values{"factory": {factory}}.Encode(), &all)
	return all.Entries, err
}

// mostApprovals is how many approvals the first page lists.
const mostApprovals = 8

// approvals are the runs and outputs that wait for an approval.
func (v *Visit) approvals(page Page) (needs []Need, err error) {
	all, err := v.inbox(page.Factory)
	more := 0
	for _, i := range all {
		switch {
		case i.Shown == "":
		case len(needs) == mostApprovals:
			more++
		default:
			text := strings.TrimSpace(sentence(i.Text) + " It waits until " + i.EndsAt.UTC().Format("2006-01-02 15:04") + " UTC.")
			if i.Person != "" {
				text = "From " + i.Person + ". " + text
			}
			needs = append(needs, Need{Kind: "warn", Title: page.Of(i.Factory, i.Title), Text: sentence(text), Action: "Look, then decide", Link: page.To("/runs/"+url.PathEscape(i.RunID)) + "#decide"})
		}
	}
	if more > 0 {
		needs = append(needs, Need{Kind: "warn", Title: plural(more, "more thing") + " to approve", Action: "Open the inbox", Link: page.To("/inbox")})
	}
	return needs, err
}

// decideRun approves or declines what waits of a run.
func decideRun(v *Visit) (SeeOther, error) {
	number, _ := strconv.ParseInt(v.Form.Get("output"), 10, 64) // absent: all of it
	asked := api.Decide{Decision: v.Form.Get("decision"), Shown: v.Form.Get("shown"), Output: number, Reason: v.Form.Get("reason")}
	var done api.Decided
	err := v.Send("POST", runOf(v, "decision"), asked, &done)
	back := "/runs/" + url.PathEscape(v.Param("id"))
	if v.Form.Get("back") == "inbox" {
		back = "/inbox"
	}
	said := "Declined."
	if asked.Decision == "approve" {
		said = "Approved."
	}
	return SeeOther{To: back, Said: said}, err
}

// wanted is what an agent asks for, as people read it: what leaves, with what the automation adds to it.
type wanted struct {
	Facts   []fact
	Body    string
	Remarks []output.Remark
}

type fact struct{ Name, Value string }

func wantedOf(o api.Output) (w wanted) {
	var r output.Request
	var b output.Bounds
	if json.Unmarshal(o.Request, &r) != nil || len(o.Bounds) > 0 && json.Unmarshal(o.Bounds, &b) != nil {
		return wanted{Body: string(o.Request)} // of a newer server
	}
	add := func(name string, values ...string) {
		if text := strings.Join(values, ", "); text != "" {
			w.Facts = append(w.Facts, fact{name, text})
		}
	}
	if k := output.ByName(o.Kind); k != nil {
		add("what", k.Doc)
	}
	add("where", o.Where)
	if p := r.Push; p != nil {
		add("what", "Pushes to the repository. The commits are in the artifact "+p.Pack.Artifact+".")
		add("branch", p.Name())
		add("change", p.Change())
		add("from", p.Old)
		add("to", p.New)
		for _, subject := range p.Subjects {
			add("commit", subject)
		}
	}
	add("repository", r.Repository)
	if r.Title != "" {
		add("title", b.TitlePrefix+r.Title)
	}
	add("branch", r.Head)
	if base := b.Base; base != "" {
		add("into", base)
	} else {
		add("into", r.Base)
	}
	if b.Draft {
		add("draft", "yes")
	}
	add("channel", r.Channel)
	add("state", r.State)
	add("labels", append(r.Labels, b.Labels...)...)
	add("people", r.Assignees...)
	w.Body, w.Remarks = r.Body, r.Comments
	return w
}

func init() { functions["wanted"] = wantedOf }
