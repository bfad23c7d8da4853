package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const gitlabNeeds = "the scope api, and the role Reporter in the project; for internal notes Planner, for checks Developer"

// gitlabSender answers in issues, merge requests and commits of GitLab, by https://docs.gitlab.com/api/notes/.
var gitlabSender = &Sender{
	Provider: "gitlab",
	Paces:    []Pace{{Writes: 300, Per: time.Minute}}, // notes of one user; an administrator can change it
	MaxText:  500_000,                                 // GitLab takes 1,000,000 characters
	Place:    gitlabPlace,
	Text:     (&dialect{write: gitlabText, bytes: 500_000}).text,
	Sign:     gitlabSign, Post: gitlabPost, Edit: gitlabEdit, Find: gitlabFind, Check: gitlabCheck, Who: gitlabWho,
	Needs: gitlabNeeds, Outputs: gitlabOutputs,
}

var gitlabMarkdown = &markdown{mention: regexp.MustCompile(`^@[A-Za-z0-9_][\w.-]*$`)}

func gitlabText(blocks []block, m Message) string { return gitlabMarkdown.text(blocks) + comment(m) }

type gitlabThing struct {
	IID    json.RawMessage
	Commit struct{ ID string } `json:"last_commit"`
}

type gitlabPayload struct {
	Kind    string `json:"object_kind"`
	After   string
	Commit  struct{ ID string }
	User    struct{ Username string }
	Project struct {
		Path string `json:"path_with_namespace"`
		Page string `json:"web_url"`
	}
	Object struct {
		gitlabThing
		ID           json.RawMessage
		URL          string
		Internal     bool
		Confidential bool
	} `json:"object_attributes"`
	Merge *gitlabThing `json:"merge_request"`
	Issue *gitlabThing
	Item  *gitlabThing `json:"work_item"`
}

// onCommit is the Place.Kind of a commit, whose texts are discussions of one note.
const onCommit = "commit"

func gitlabPlace(e *native.Event, d native.Delivery) (Place, error) {
	var b gitlabPayload
	noted(d, &b)
	p := Place{Provider: "gitlab", Container: b.Project.Path}
	if p.Container == "" {
		return Place{}, errors.New("the event names no project")
	}
	about := func(kind string, thing *gitlabThing) {
		p.Thread, p.Kind, p.Commit = numeral(thing.IID), kind, commit(thing.Commit.ID)
	}
	switch {
	case b.Kind == "merge_request":
		about("pull", &b.Object.gitlabThing)
	case b.Kind == "issue", b.Kind == "work_item":
		about("issue", &b.Object.gitlabThing)
	case b.Kind == "note" && b.Merge != nil:
		about("pull", b.Merge)
	case b.Kind == "note" && b.Issue != nil:
		about("issue", b.Issue)
	case b.Kind == "note" && b.Item != nil:
		about("issue", b.Item)
	case b.Kind == "note":
		p.Commit = commit(b.Commit.ID)
		p.Thread, p.Kind = p.Commit, onCommit
	default:
		p.Commit = commit(b.After)
	}
	if p.Thread != "" {
		p.Link, _, _ = strings.Cut(b.Object.URL, "#")
		p.Item, p.ItemKind = p.Thread, p.Kind
		if p.Kind == onCommit {
			p.Item, p.ItemKind = "", "" // GitLab has no signs on commits
		} else if b.Kind == "note" {
			p.Item, p.ItemKind = numeral(b.Object.ID), "note"
			p.Internal = b.Object.Internal || b.Object.Confidential
		}
	}
	if e.Name == "bot_mentioned" && b.User.Username != "" {
		p.Asker = "@" + b.User.Username
	}
	if p.Thread == "" && p.Commit == "" {
		return Place{}, errors.New("the event has neither an issue, nor a merge request, nor a commit")
	}
	return p, nil
}

func gitlab(ctx context.Context, c *lookup.Client, api lookup.API) *call {
	api = address(api, "gitlab")
	api.URL = strings.TrimSuffix(strings.TrimSuffix(api.URL, "/"), "/api/v4") + "/api/v4"
	return &call{ctx: ctx, client: c, api: api, header: bearer(api), explain: func(status int, answer []byte) (string, bool) {
		switch {
		case status == http.StatusForbidden && has(answer, "archived"):
			return "the project is archived", false
		case status == http.StatusForbidden && has(answer, "locked"):
			return "the thread is locked", false
		case status == http.StatusForbidden && has(answer, "rate limit", "too many"):
			return "", true
		case status == http.StatusForbidden:
			return "the credential lacks a permission; it needs " + gitlabNeeds, false
		case status == http.StatusNotFound && has(answer, "already been taken"):
			return alreadySigned, false
		case status == http.StatusNotFound, status == http.StatusGone:
			return "the thread is gone, or the credential may not see it", false
		case status == http.StatusConflict && has(answer, "already exists"):
			return hasPull, false
		case status == http.StatusBadRequest && has(answer, "cannot transition status"):
			return alreadySet, false
		}
		return "", false
	}}
}

// GitLab refuses what is already so.
const (
	alreadySigned = "the sign is already there"
	alreadySet    = "the commit already has the state"
)

// unless is an error, unless it says that all is as it should be.
func unless(err error, sentence string) error {
	if err != nil && strings.HasSuffix(err.Error(), sentence) {
		return nil
	}
	return err
}

// thread is the path of a place's issue or merge request.
func (p Place) gitlabThread() (string, error) {
	if p.Container == "" || p.Thread == "" {
		return "", errNowhere
	}
	switch p.Kind {
	case "pull":
		return at("projects", p.Container, "merge_requests", p.Thread), nil
	case onCommit:
		return at("projects", p.Container, "repository", "commits", p.Thread), nil
	}
	return at("projects", p.Container, "issues", p.Thread), nil
}

// gitlabTalk is a discussion of a commit.
type gitlabTalk struct {
	ID    string
	Notes []gitlabNote
}

// posted is the first note of a discussion.
func (t *gitlabTalk) posted(p Place) (Posted, error) {
	if t.ID == "" || len(t.Notes) == 0 {
		return Posted{}, errNoID
	}
	posted, err := t.Notes[0].posted(p)
	posted.ID = t.ID + "/" + posted.ID
	return posted, err
}

func gitlabSign(ctx context.Context, c *lookup.Client, api lookup.API, p Place) error {
	path, err := p.gitlabThread()
	if err != nil {
		return err
	}
	if p.ItemKind == "note" {
		path += at("notes", p.Item)
	}
	return unless(gitlab(ctx, c, api).do(http.MethodPost, path+"/award_emoji", map[string]string{"name": "eyes"}, new(struct{})), alreadySigned)
}

type gitlabNote struct {
	ID     json.RawMessage
	Body   string
	Author struct{ ID json.RawMessage }
}

func (n *gitlabNote) posted(p Place) (Posted, error) {
	id := numeral(n.ID)
	if id == "" {
		return Posted{}, errNoID
	}
	posted := Posted{ID: id, Author: numeral(n.Author.ID)}
	if p.Link != "" {
		posted.Link = p.Link + "#note_" + id
	}
	return posted, nil
}

func gitlabPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	path, err := p.gitlabThread()
	if err != nil {
		return Posted{}, err
	}
	if p.Kind == onCommit {
		var answer gitlabTalk
		if err := gitlab(ctx, c, api).do(http.MethodPost, path+"/discussions", map[string]string{"body": text}, &answer); err != nil {
			return Posted{}, err
		}
		return answer.posted(p)
	}
	body := map[string]any{"body": text}
	if p.Internal {
		body["internal"] = true
	}
	var answer gitlabNote
	if err := gitlab(ctx, c, api).do(http.MethodPost, path+"/notes", body, &answer); err != nil {
		return Posted{}, err
	}
	return answer.posted(p)
}

func gitlabEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	path, err := p.gitlabThread()
	if err != nil {
		return err
	}
	if talk, note, found := strings.Cut(posted.ID, "/"); found {
		path += at("discussions", talk, "notes", note)
	} else {
		path += at("notes", posted.ID)
	}
	return gitlab(ctx, c, api).do(http.MethodPut, path, map[string]string{"body": text}, new(struct{}))
}

func gitlabFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	path, err := p.gitlabThread()
	if err != nil {
		return Posted{}, false, err
	}
	g := gitlab(ctx, c, api)
	own, err := self(c, g.api, "gitlab", func() (Account, error) { return gitlabSelf(g) })
	if err != nil {
		return Posted{}, false, err
	}
	ours := func(n *gitlabNote) bool {
		return numeral(n.Author.ID) == own && marked(n.Body, marker)
	}
	for page := 1; page <= maxPages; page++ {
		notes, talks := []gitlabNote(nil), []gitlabTalk(nil)
		if p.Kind == onCommit {
			err = g.do(http.MethodGet, fmt.Sprintf("%s/discussions?per_page=100&page=%d", path, page), nil, &talks)
		} else {
			err = g.do(http.MethodGet, fmt.Sprintf("%s/notes?order_by=created_at&sort=desc&per_page=100&page=%d", path, page), nil, &notes)
		}
		if err != nil {
			return Posted{}, false, err
		}
		if notes == nil && talks == nil {
			return Posted{}, false, errList
		}
		for _, n := range notes {
			if ours(&n) {
				posted, err := n.posted(p)
				return posted, err == nil, err
			}
		}
		for _, talk := range talks {
			if len(talk.Notes) > 0 && ours(&talk.Notes[0]) {
				posted, err := talk.posted(p)
				return posted, err == nil, err
			}
		}
		if len(notes)+len(talks) < 100 {
			return Posted{}, false, nil
		}
	}
	return Posted{}, false, errLong
}

func gitlabCheck(ctx context.Context, c *lookup.Client, api lookup.API, p Place, m Message) (Posted, error) {
	g := gitlab(ctx, c, api)
	head := p.Commit
	if head == "" && p.Kind == "pull" {
		path, err := p.gitlabThread()
		if err != nil {
			return Posted{}, err
		}
		var answer struct{ SHA string }
		if err := g.do(http.MethodGet, path, nil, &answer); err != nil {
			return Posted{}, err
		}
		head = commit(answer.SHA)
	}
	if head == "" || p.Container == "" {
		return Posted{}, lookup.Fail("the event names no commit", true)
	}
	state := map[result]string{pending: "running", succeeded: "success", cancelled: "canceled", unsuccessful: "failed"}[m.result()]
	body := map[string]string{"state": state, "name": checkName(m), "description": described(m, 200)}
	if to := web(m.Link); to != "" {
		body["target_url"] = to
	}
	err := unless(g.do(http.MethodPost, at("projects", p.Container, "statuses", head), body, new(struct{})), alreadySet)
	return Posted{ID: head, Link: m.Link}, err
}
