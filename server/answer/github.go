package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/githubapp"
	"triphammer/server/lookup"
)

const githubNeeds = "write access to issues and pull requests; for checks, write access to commit statuses, or of an App to checks"

// githubSender answers in issues and pull requests of GitHub and of a GitHub Enterprise Server, by
// https://docs.github.com/rest.
var githubSender = &Sender{
	Provider: "github",
	// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api: content that is made
	Paces:   []Pace{{Writes: 80, Per: time.Minute}, {Writes: 500, Per: time.Hour}},
	MaxText: 65_000, // GitHub takes 65,536 characters
	Place:   githubPlace,
	Text:    githubDialect.text,
	Sign:    githubSign, Post: githubPost, Edit: githubEdit, Find: githubFind, Check: githubCheck, Who: githubWho,
	Needs: githubNeeds, Outputs: githubOutputs,
}

var githubMarkdown = &markdown{mention: regexp.MustCompile(`^@[A-Za-z0-9][A-Za-z0-9-]*$`)}

var githubDialect = &dialect{write: githubText, bytes: 65_000}

func githubText(blocks []block, m Message) string { return githubMarkdown.text(blocks) + comment(m) }

type githubPulls struct {
	HeadSHA string `json:"head_sha"`
	Pulls   []struct {
		Number json.RawMessage
		Base   struct{ Repo struct{ ID json.RawMessage } }
	} `json:"pull_requests"`
}

type githubPayload struct {
	After, Ref string
	Repository struct {
		ID   json.RawMessage
		Name string `json:"full_name"`
	}
	Issue *struct {
		Number json.RawMessage
		Page   string    `json:"html_url"`
		Pull   *struct{} `json:"pull_request"`
		User   struct{ Login string }
	}
	Pull *struct {
		Number json.RawMessage
		Page   string `json:"html_url"`
		Head   struct{ SHA string }
		User   struct{ Login string }
	} `json:"pull_request"`
	Comment *struct {
		ID   json.RawMessage
		User struct{ Login string }
	}
	Review   *struct{ User struct{ Login string } }
	CheckRun *githubPulls `json:"check_run"`
	Suite    *githubPulls `json:"check_suite"`
	Workflow *githubPulls `json:"workflow_run"`
}

func githubPlace(e *native.Event, d native.Delivery) (Place, error) {
	var b githubPayload
	noted(d, &b)
	p := Place{Provider: "github", Container: b.Repository.Name}
	if strings.Count(p.Container, "/") != 1 {
		return Place{}, errors.New("the event names no repository")
	}
	opener := ""
	switch {
	case b.Issue != nil:
		p.Thread, p.Kind, p.Link, opener = numeral(b.Issue.Number), "issue", b.Issue.Page, b.Issue.User.Login
		if b.Issue.Pull != nil {
			p.Kind = "pull"
		}
	case b.Pull != nil:
		p.Thread, p.Kind, p.Link, p.Commit, opener = numeral(b.Pull.Number), "pull", b.Pull.Page, commit(b.Pull.Head.SHA), b.Pull.User.Login
	case b.CheckRun != nil:
		b.CheckRun.place(&p, numeral(b.Repository.ID))
	case b.Suite != nil:
		b.Suite.place(&p, numeral(b.Repository.ID))
	case b.Workflow != nil:
		b.Workflow.place(&p, numeral(b.Repository.ID))
	default:
		p.Commit = commit(b.After)
	}
	p.Item, p.ItemKind = p.Thread, "issue" // the thing itself gets the sign: a review cannot
	switch {
	case b.Comment != nil:
		p.Item, p.ItemKind, p.Asker = numeral(b.Comment.ID), "issue comment", at1(b.Comment.User.Login)
		if b.Issue == nil {
			p.ItemKind = "review comment"
		}
	case b.Review != nil:
		p.Asker = at1(b.Review.User.Login)
	case strings.HasSuffix(e.Name, "_mentioned"):
		p.Asker = at1(opener)
	case b.Issue == nil && b.Pull == nil:
		p.Item, p.ItemKind = "", ""
	}
	if p.Thread == "" && p.Commit == "" {
		return Place{}, errors.New("the event has neither an issue, nor a pull request, nor a commit")
	}
	return p, nil
}

// place is the pull request, if the checks name exactly one of the same repository, and the commit:
// a fork's checks name pull requests of the repository that it was made from.
func (g *githubPulls) place(p *Place, own string) {
	p.Commit = commit(g.HeadSHA)
	var mine []string
	for _, pull := range g.Pulls {
		if own != "" && numeral(pull.Base.Repo.ID) == own {
			mine = append(mine, numeral(pull.Number))
		}
	}
	if len(mine) == 1 {
		p.Thread, p.Kind = mine[0], "pull"
	}
}

var commits = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// commit is a commit's identifier, or empty; zeros stand for no commit.
func commit(id string) string {
	if commits.MatchString(id) && strings.Trim(id, "0") != "" {
		return id
	}
	return ""
}

// at1 is a mention of an account.
func at1(login string) string {
	if login == "" || strings.HasSuffix(login, "[bot]") {
		return ""
	}
	return "@" + login
}

func github(ctx context.Context, c *lookup.Client, api lookup.API) *call {
	api = address(api, "github")
	header := bearer(api)
	header.Set("Accept", "application/vnd.github+json")
	header.Set("X-Github-Api-Version", "2022-11-28")
	return &call{ctx: ctx, client: c, api: api, header: header, explain: func(status int, answer []byte) (string, bool) {
		switch {
		case status == http.StatusForbidden && has(answer, "rate limit", "abuse detection"):
			return "", true
		case status == http.StatusForbidden && has(answer, "archived"):
			return "the repository is archived", false
		case status == http.StatusForbidden && has(answer, "locked"):
			return "the thread is locked", false
		case status == http.StatusForbidden && has(answer, "not accessible", "must have admin", "must have push", "permission"):
			return "the credential lacks a permission; it needs " + githubNeeds, false
		case status == http.StatusNotFound && has(answer, "label does not exist"):
			return noLabel, false
		case status == http.StatusNotFound:
			return "the thread is gone, or the credential may not see it", false
		case status == http.StatusGone:
			return "the thread is gone", false
		case status == http.StatusUnprocessableEntity && has(answer, "pull request already exists"):
			return hasPull, false
		case status == http.StatusUnprocessableEntity && has(answer, "no commits between"):
			return "the branch has no commits that its base lacks", false
		case status == http.StatusUnprocessableEntity && has(answer, "could not be resolved", "must be part of the diff"):
			return "a comment is on a line or a file that the pull request does not change", false
		}
		return "", false
	}}
}

// hasPull is why a forge opens no second pull request.
const hasPull = "the branch has an open pull request already"

// noLabel is why GitHub takes no label away that is not there.
const noLabel = "the label is not there"

// repository is the path of a place's repository.
func (p Place) repository() (string, error) {
	owner, name, found := strings.Cut(p.Container, "/")
	if !found || owner == "" || name == "" || strings.Contains(name, "/") {
		return "", errNowhere
	}
	return "/repos" + at(owner, name), nil
}

func githubSign(ctx context.Context, c *lookup.Client, api lookup.API, p Place) error {
	path, err := p.repository()
	if err != nil {
		return err
	}
	switch p.ItemKind {
	case "issue comment":
		path += "/issues/comments"
	case "review comment":
		path += "/pulls/comments"
	case "issue":
		path += "/issues"
	default:
		return errNowhere
	}
	return github(ctx, c, api).do(http.MethodPost, path+at(p.Item)+"/reactions", map[string]string{"content": "eyes"}, new(struct{}))
}

type githubComment struct {
	ID   json.RawMessage
	Page string `json:"html_url"`
	Body string
	User githubAuthor
}

func (g *githubComment) posted() (Posted, error) {
	if numeral(g.ID) == "" {
		return Posted{}, errNoID
	}
	return Posted{ID: numeral(g.ID), Link: g.Page, Author: numeral(g.User.ID)}, nil
}

func githubPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	path, err := p.repository()
	if err != nil || p.Thread == "" {
		return Posted{}, errNowhere
	}
	var answer githubComment
	if err := github(ctx, c, api).do(http.MethodPost, path+"/issues"+at(p.Thread)+"/comments", map[string]string{"body": text}, &answer); err != nil {
		return Posted{}, err
	}
	return answer.posted()
}

func githubEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	path, err := p.repository()
	if err != nil {
		return err
	}
	return github(ctx, c, api).do(http.MethodPatch, path+"/issues/comments"+at(posted.ID), map[string]string{"body": text}, new(struct{}))
}

// githubApp tells whether a credential is an App's, which can write checks.
func githubApp(api lookup.API) bool {
	return githubapp.Is(api.Secret) || strings.HasPrefix(strings.TrimSpace(api.Secret.Reveal()), "ghs_")
}

func githubFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	path, err := p.repository()
	if err != nil || p.Thread == "" {
		return Posted{}, false, errNowhere
	}
	g := github(ctx, c, api)
	own, err := self(c, g.api, "github", func() (Account, error) { return githubSelf(g) })
	if err != nil {
		return Posted{}, false, err
	}
	for page := 1; page <= maxPages; page++ {
		var answer []githubComment
		if err := g.do(http.MethodGet, fmt.Sprintf("%s/issues%s/comments?per_page=100&page=%d", path, at(p.Thread), page), nil, &answer); err != nil {
			return Posted{}, false, err
		}
		if answer == nil {
			return Posted{}, false, errList
		}
		for _, a := range answer {
			if a.User.is(own) && marked(a.Body, marker) {
				posted, err := a.posted()
				return posted, err == nil, err
			}
		}
		if len(answer) < 100 {
			return Posted{}, false, nil
		}
	}
	return Posted{}, false, errLong
}

// githubHead is the commit of a place: a comment on a pull request does not say it.
func githubHead(g *call, path string, p Place) (string, error) {
	if p.Commit != "" || p.Kind != "pull" {
		return p.Commit, nil
	}
	var answer struct{ Head struct{ SHA string } }
	err := g.do(http.MethodGet, path+"/pulls"+at(p.Thread), nil, &answer)
	return commit(answer.Head.SHA), err
}

func githubCheck(ctx context.Context, c *lookup.Client, api lookup.API, p Place, m Message) (Posted, error) {
	path, err := p.repository()
	if err != nil {
		return Posted{}, err
	}
	g := github(ctx, c, api)
	head, err := githubHead(g, path, p)
	if err != nil {
		return Posted{}, err
	}
	if head == "" {
		return Posted{}, lookup.Fail("the event names no commit", true)
	}
	if githubApp(g.api) {
		return githubCheckRun(g, path, head, m)
	}
	state := map[result]string{pending: "pending", succeeded: "success", cancelled: "error", unsuccessful: "failure"}[m.result()]
	body := map[string]string{"state": state, "context": checkName(m), "description": described(m, 130)}
	if to := web(m.Link); to != "" {
		body["target_url"] = to
	}
	var answer struct{ ID json.RawMessage }
	if err := g.do(http.MethodPost, path+"/statuses"+at(head), body, &answer); err != nil {
		return Posted{}, err
	}
	return Posted{ID: numeral(answer.ID), Link: m.Link}, nil
}

// githubCheckRun makes the check of a run, or changes it.
func githubCheckRun(g *call, path, head string, m Message) (Posted, error) {
	bare := m
	bare.Asker, bare.Marker = "", ""
	body := map[string]any{
		"name": checkName(m), "external_id": m.Run,
		"status": "in_progress", "output": map[string]string{"title": described(m, 200), "summary": githubDialect.text(bare)},
	}
	if m.State == Ended {
		body["status"] = "completed"
		body["conclusion"] = map[result]string{succeeded: "success", cancelled: "cancelled", unsuccessful: "failure"}[m.result()]
	}
	if to := web(m.Link); to != "" {
		body["details_url"] = to
	}
	var list struct {
		Runs []struct {
			ID       json.RawMessage
			External string `json:"external_id"`
		} `json:"check_runs"`
	}
	query := url.Values{"check_name": {checkName(m)}, "filter": {"all"}, "per_page": {"100"}}
	if err := g.do(http.MethodGet, path+"/commits"+at(head)+"/check-runs?"+query.Encode(), nil, &list); err != nil {
		return Posted{}, err
	}
	method, to := http.MethodPost, path+"/check-runs"
	for _, run := range list.Runs {
		if run.External == m.Run && m.Run != "" && numeral(run.ID) != "" {
			method, to = http.MethodPatch, path+"/check-runs"+at(numeral(run.ID))
		}
	}
	if method == http.MethodPost {
		body["head_sha"] = head
	}
	var answer githubComment
	if err := g.do(method, to, body, &answer); err != nil {
		return Posted{}, err
	}
	return answer.posted()
}
