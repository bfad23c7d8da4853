package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const azureNeeds = "the scopes Work Items (Read & write) and Code (Read & write); for checks Code (Status)"

// azureSender answers in work items and pull requests of Azure DevOps and of an Azure DevOps Server, by
// https://learn.microsoft.com/rest/api/azure/devops. Work items take HTML, and pull requests Markdown.
var azureSender = &Sender{
	Provider: "azure_devops",
	Paces:    []Pace{{Writes: 200, Per: 5 * time.Minute}},
	MaxText:  100_000, // each form at most 50,000: a pull request takes 150,000 characters
	Place:    azurePlace,
	Text:     (&dialect{write: azureText, bytes: 100_000}).text,
	Post:     azurePost, Edit: azureEdit, Find: azureFind, Check: azureCheck, Who: azureWho,
	Needs: azureNeeds,
}

// azurePayload is what a text of Azure DevOps is, in both forms.
type azurePayload struct {
	Markdown string `json:"markdown"`
	HTML     string `json:"html"`
}

var (
	// azureAsker is an identity and its name.
	azureAsker = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}) (.{1,200})$`)
	})

	azureMarkdown = &markdown{mention: regexp.MustCompile(`^@<[0-9a-fA-F-]{36}>$`)}
	azureHTML     = &htmlText{mention: func(asker string) string {
		parts := azureAsker().FindStringSubmatch(asker)
		if parts == nil {
			return ""
		}
		return `<a href="#" data-vss-mention="version:2.0,` + parts[1] + `">@` + html.EscapeString(parts[2]) + `</a>`
	}}
)

func azureText(blocks []block, m Message) string {
	text := azurePayload{HTML: azureHTML.text(runLink(blocks, m))}
	if m.Marker != "" {
		text.HTML += "<!-- " + mark(m.Marker) + " -->"
	}
	if parts := azureAsker().FindStringSubmatch(m.Asker); parts != nil {
		blocks = append([]block(nil), blocks...)
		blocks[0].spans = append([]span(nil), blocks[0].spans...)
		blocks[0].spans[0].text = "@<" + parts[1] + ">"
	}
	text.Markdown = azureMarkdown.text(blocks) + comment(m)
	return packed(text)
}

type azureRepository struct {
	ID, Name string
	Project  struct{ ID, Name string }
}

func azurePlace(e *native.Event, d native.Delivery) (Place, error) {
	type person struct{ ID, DisplayName string }
	type pull struct {
		ID         json.RawMessage `json:"pullRequestId"`
		Repository azureRepository
		Links      struct{ Web struct{ Href string } } `json:"_links"`
	}
	var b struct {
		Type     string `json:"eventType"`
		Resource struct {
			pull
			Item    json.RawMessage `json:"id"`
			OfItem  json.RawMessage `json:"workItemId"`
			Pull    *pull           `json:"pullRequest"`
			Comment *struct{ Author person }
			Refs    []struct {
				New string `json:"newObjectId"`
			} `json:"refUpdates"`
		}
		Containers struct{ Project struct{ ID string } } `json:"resourceContainers"`
	}
	noted(d, &b)
	p := Place{Provider: "azure_devops", Link: e.LinkOf(e.Sender.Read(d))}
	r := &b.Resource
	switch comment := e == e.Sender.Comment; {
	case e.Name == "work_item", comment && r.Pull == nil:
		p.Container, p.Kind, p.Thread = b.Containers.Project.ID, "item", numeral(r.OfItem)
		p.Thread = cmp.Or(p.Thread, numeral(r.Item))
	case e.Name == "pull_request", comment:
		about := &r.pull
		if r.Pull != nil {
			about = r.Pull
		}
		p.Container, p.Kind, p.Thread = about.Repository.path(), "pull", numeral(about.ID)
		if p.Link == "" {
			p.Link = about.Links.Web.Href
		}
		if r.Comment != nil && r.Comment.Author.ID != "" {
			p.Asker = r.Comment.Author.ID + " " + oneLine(r.Comment.Author.DisplayName, 100)
		}
	default:
		p.Container = r.Repository.path()
		if len(r.Refs) == 1 {
			p.Commit = commit(r.Refs[0].New)
		}
	}
	if p.Container == "" || p.Thread == "" && p.Commit == "" {
		return Place{}, errors.New("the event names neither a work item, nor a pull request, nor a commit")
	}
	return p, nil
}

// path is the repository in its project.
func (r azureRepository) path() string {
	if r.ID == "" || r.Project.ID == "" {
		return ""
	}
	return r.Project.ID + "/" + r.ID
}

func azure(ctx context.Context, c *lookup.Client, api lookup.API) *call {
	api = address(api, "azure_devops")
	credential := strings.TrimSpace(api.Secret.Reveal())
	header := basic(credential)
	if !strings.Contains(credential, ":") { // a personal access token has no user
		header = basic(":" + credential)
	}
	return &call{ctx: ctx, client: c, api: api, header: header, explain: func(status int, answer []byte) (string, bool) {
		switch {
		case status == http.StatusForbidden && has(answer, "rate limit", "too many", "tf400733"):
			return "", true
		case status == http.StatusForbidden && has(answer, "disabled"):
			return "the repository is disabled", false
		case status == http.StatusForbidden:
			return "the credential lacks a permission; it needs " + azureNeeds, false
		case status == http.StatusNotFound, status == http.StatusGone:
			return "the thread is gone, or the credential may not see it", false
		}
		return "", false
	}}
}

const (
	azureVersion  = "?api-version=7.0"
	azureComments = "?api-version=7.0-preview.3"
)

// azureThread is the path of the texts of a place.
func (p Place) azureThread() (string, error) {
	project, repository, found := strings.Cut(p.Container, "/")
	switch {
	case p.Kind == "pull" && found && p.Thread != "":
		return at(project) + "/_apis/git/repositories" + at(repository) + "/pullRequests" + at(p.Thread), nil
	case p.Kind == "item" && p.Container != "" && p.Thread != "":
		return at(p.Container) + "/_apis/wit/workItems" + at(p.Thread) + "/comments", nil
	}
	return "", errNowhere
}

type azureComment struct {
	ID      json.RawMessage
	Text    string // of a work item
	Content string // of a pull request
	Deleted bool   `json:"isDeleted"`
	By      struct {
		ID string
	} `json:"createdBy"`
	Author struct{ ID string }
}

type azureTalk struct {
	ID       json.RawMessage
	Comments []azureComment
}

// posted is the first comment of a talk.
func (t *azureTalk) posted(p Place) (Posted, error) {
	if numeral(t.ID) == "" || len(t.Comments) == 0 || numeral(t.Comments[0].ID) == "" {
		return Posted{}, errNoID
	}
	posted := Posted{ID: numeral(t.ID) + "/" + numeral(t.Comments[0].ID)}
	if p.Link != "" {
		posted.Link = p.Link + "?discussionId=" + numeral(t.ID)
	}
	return posted, nil
}

func azurePost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	path, content, a, err := azureWrites(ctx, c, api, p, text)
	if err != nil {
		return Posted{}, err
	}
	if p.Kind == "item" {
		var answer azureComment
		if err := a.do(http.MethodPost, path+azureComments, map[string]string{"text": content.HTML}, &answer); err != nil {
			return Posted{}, err
		}
		if numeral(answer.ID) == "" {
			return Posted{}, errNoID
		}
		return Posted{ID: numeral(answer.ID), Link: p.Link}, nil
	}
	// A closed thread does not keep a pull request from being completed.
	body := map[string]any{"status": "closed", "comments": []map[string]any{{"parentCommentId": 0, "commentType": "text", "content": content.Markdown}}}
	var answer azureTalk
	if err := a.do(http.MethodPost, path+"/threads"+azureVersion, body, &answer); err != nil {
		return Posted{}, err
	}
	return answer.posted(p)
}

func azureWrites(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text string) (path string, content azurePayload, a *call, err error) {
	if path, err = p.azureThread(); err != nil {
		return "", content, nil, err
	}
	if json.Unmarshal([]byte(text), &content) != nil {
		return "", content, nil, errNowhere
	}
	return path, content, azure(ctx, c, api), nil
}

func azureEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	path, content, a, err := azureWrites(ctx, c, api, p, text)
	if err != nil {
		return err
	}
	if p.Kind == "item" {
		return a.do(http.MethodPatch, path+at(posted.ID)+azureComments, map[string]string{"text": content.HTML}, new(struct{}))
	}
	thread, id, found := strings.Cut(posted.ID, "/")
	if !found {
		return errNowhere
	}
	return a.do(http.MethodPatch, path+at("threads", thread, "comments", id)+azureVersion, map[string]string{"content": content.Markdown}, new(struct{}))
}

func azureFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	path, err := p.azureThread()
	if err != nil {
		return Posted{}, false, err
	}
	a := azure(ctx, c, api)
	own, err := self(c, a.api, "azure", func() (Account, error) { return azureSelf(a) })
	if err != nil {
		return Posted{}, false, err
	}
	if p.Kind == "pull" {
		return azureFindTalk(a, path, p, own, marker)
	}
	query := url.Values{"$top": {"200"}, "order": {"desc"}, "api-version": {"7.0-preview.3"}}
	for range maxPages {
		var answer struct {
			Comments []azureComment
			Next     string `json:"continuationToken"`
		}
		if err := a.do(http.MethodGet, path+"?"+query.Encode(), nil, &answer); err != nil {
			return Posted{}, false, err
		}
		if answer.Comments == nil {
			return Posted{}, false, errList
		}
		for _, found := range answer.Comments {
			// The link to the run has the marker, too: a server may drop the comment of HTML.
			if strings.EqualFold(found.By.ID, own) && !found.Deleted && numeral(found.ID) != "" &&
				(strings.Contains(found.Text, "#"+mark(marker)+`"`) || strings.Contains(found.Text, "<!-- "+mark(marker)+" -->")) {
				return Posted{ID: numeral(found.ID), Link: p.Link}, true, nil
			}
		}
		if answer.Next == "" {
			return Posted{}, false, nil
		}
		query.Set("continuationToken", answer.Next)
	}
	return Posted{}, false, errLong
}

// azureFindTalk looks through all threads of a pull request, which come at once.
func azureFindTalk(a *call, path string, p Place, own, marker string) (Posted, bool, error) {
	var answer struct{ Value []azureTalk }
	if err := a.do(http.MethodGet, path+"/threads"+azureVersion, nil, &answer); err != nil {
		return Posted{}, false, err
	}
	if answer.Value == nil {
		return Posted{}, false, errList
	}
	for _, talk := range answer.Value {
		if len(talk.Comments) > 0 && !talk.Comments[0].Deleted && strings.EqualFold(talk.Comments[0].Author.ID, own) && marked(talk.Comments[0].Content, marker) {
			posted, err := talk.posted(p)
			return posted, err == nil, err
		}
	}
	return Posted{}, false, nil
}

func azureCheck(ctx context.Context, c *lookup.Client, api lookup.API, p Place, m Message) (Posted, error) {
	project, repository, found := strings.Cut(p.Container, "/")
	path := at(project) + "/_apis/git/repositories" + at(repository)
	switch {
	case found && p.Kind == "pull" && p.Thread != "":
		path += "/pullRequests" + at(p.Thread) + "/statuses"
	case found && p.Commit != "":
		path += "/commits" + at(p.Commit) + "/statuses"
	default:
		return Posted{}, lookup.Fail("the event names neither a pull request nor a commit", true)
	}
	a := azure(ctx, c, api)
	state := map[result]string{pending: "pending", succeeded: "succeeded", cancelled: "error", unsuccessful: "failed"}[m.result()]
	body := map[string]any{"state": state, "description": described(m, 200), "context": map[string]string{"genre": "triphammer", "name": oneLine(m.Automation, maxName)}}
	if to := web(m.Link); to != "" {
		body["targetUrl"] = to
	}
	var answer struct{ ID json.RawMessage }
	if err := a.do(http.MethodPost, path+azureVersion, body, &answer); err != nil {
		return Posted{}, err
	}
	return Posted{ID: numeral(answer.ID), Link: m.Link}, nil
}
