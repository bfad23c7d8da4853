package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const jiraNeeds = "the permissions Browse projects, Add comments and Edit own comments; in a service desk, a licence of an agent"

// jiraSender answers in issues of Jira Cloud, by
// https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-comments/. Data Center does
// not have version 3 of the API.
var jiraSender = &Sender{
	Provider: "jira",
	Paces:    []Pace{{Writes: 20, Per: 2 * time.Second, Place: true}, {Writes: 100, Per: 30 * time.Second, Place: true}},
	MaxText:  30_000, // Jira takes 32,767 characters
	Place:    jiraPlace,
	Text:     (&dialect{write: jiraText, bytes: 30_000}).text,
	Post:     jiraPost, Edit: jiraEdit, Find: jiraFind, Who: jiraWho,
	Needs: jiraNeeds, Outputs: jiraOutputs,
}

// jiraComment is what a text of Jira is.
type jiraComment struct {
	Body       adf             `json:"body"`
	Properties []jiraProperty  `json:"properties,omitempty"`
	Visibility json.RawMessage `json:"visibility,omitempty"`
}

type jiraProperty struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func jiraText(blocks []block, m Message) string {
	// An internal comment of a service desk is seen by its agents alone. Elsewhere the property means nothing.
	text := jiraComment{Body: adfDocument(runLink(blocks, m)), Properties: []jiraProperty{{"sd.public.comment", map[string]bool{"internal": true}}}}
	if m.Marker != "" {
		text.Properties = append(text.Properties, jiraProperty{"triphammer", map[string]string{"marker": mark(m.Marker)}})
	}
	return packed(text)
}

func jiraPlace(e *native.Event, d native.Delivery) (Place, error) {
	type person struct{ AccountID, Name string }
	var b struct {
		User    *person
		Comment *struct {
			ID         string
			Author     person
			Public     *bool `json:"jsdPublic"`
			Visibility json.RawMessage
		}
		Issue struct {
			ID     string
			Fields struct {
				Project struct {
					Type string `json:"projectTypeKey"`
				}
			}
		}
	}
	noted(d, &b)
	p := Place{Provider: "jira", Thread: b.Issue.ID, Kind: "issue", Link: e.LinkOf(e.Sender.Read(d)), Internal: b.Issue.Fields.Project.Type == "service_desk"}
	who := b.User
	if b.Comment != nil {
		who = &b.Comment.Author
		p.Asker = who.AccountID
		p.Internal = p.Internal || b.Comment.Public != nil && !*b.Comment.Public
		if v := strings.TrimSpace(string(b.Comment.Visibility)); v != "" && v != "null" {
			p.Audience = v
		}
	}
	switch {
	case who != nil && who.AccountID == "" && who.Name != "":
		return Place{}, errors.New("the event is of Jira Data Center: only Jira Cloud takes answers")
	case numeral(json.RawMessage(p.Thread)) == "":
		return Place{}, errors.New("the event names no issue")
	}
	return p, nil
}

func jira(ctx context.Context, c *lookup.Client, api lookup.API) *call {
	api = address(api, "jira")
	header := bearer(api)
	if credential := strings.TrimSpace(api.Secret.Reveal()); strings.Contains(credential, ":") {
		header = basic(credential)
	}
	header.Set("Accept", "application/json")
	return &call{ctx: ctx, client: c, api: api, header: header, explain: func(status int, answer []byte) (string, bool) {
		switch {
		case status == http.StatusForbidden && has(answer, "rate limit", "too many"):
			return "", true
		case status == http.StatusForbidden && has(answer, "archived"):
			return "the issue is archived", false
		case status == http.StatusForbidden, status == http.StatusBadRequest && has(answer, "permission"):
			return "the credential lacks a permission; it needs " + jiraNeeds, false
		case status == http.StatusNotFound, status == http.StatusGone:
			return "the issue or the comment is gone, or the credential may not see it", false
		}
		return "", false
	}}
}

// jiraBody is the body of a request that writes a text.
func jiraBody(p Place, text string) (jiraComment, error) {
	var body jiraComment
	if err := json.Unmarshal([]byte(text), &body); err != nil || p.Thread == "" {
		return jiraComment{}, errNowhere
	}
	if p.Audience != "" {
		if !json.Valid([]byte(p.Audience)) {
			return jiraComment{}, errNowhere
		}
		body.Visibility = json.RawMessage(p.Audience)
	}
	return body, nil
}

func jiraPosted(p Place, id string) Posted {
	posted := Posted{ID: id}
	if p.Link != "" {
		posted.Link = p.Link + "?focusedCommentId=" + id
	}
	return posted
}

func jiraPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	body, err := jiraBody(p, text)
	if err != nil {
		return Posted{}, err
	}
	j := jira(ctx, c, api)
	var answer struct {
		ID     string
		Author struct{ AccountID string }
	}
	if err := j.do(http.MethodPost, "/rest/api/3/issue"+at(p.Thread)+"/comment", body, &answer); err != nil {
		return Posted{}, err
	}
	if !digits.MatchString(answer.ID) {
		return Posted{}, errNoID
	}
	posted := jiraPosted(p, answer.ID)
	posted.Author = answer.Author.AccountID
	return posted, nil
}

func jiraEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	body, err := jiraBody(p, text)
	if err != nil {
		return err
	}
	j := jira(ctx, c, api)
	return j.do(http.MethodPut, "/rest/api/3/issue"+at(p.Thread)+"/comment"+at(posted.ID)+"?notifyUsers=false", body, new(struct{}))
}

func jiraFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	j := jira(ctx, c, api)
	own, err := self(c, j.api, "jira", func() (Account, error) { return jiraSelf(j) })
	if err != nil {
		return Posted{}, false, err
	}
	for page := range maxPages {
		var answer struct {
			Comments []struct {
				ID         string
				Author     struct{ AccountID string }
				Body       json.RawMessage
				Properties []struct {
					Key   string
					Value json.RawMessage
				}
			}
			Total int
		}
		if err := j.do(http.MethodGet, fmt.Sprintf("/rest/api/3/issue%s/comment?startAt=%d&maxResults=100&orderBy=-created&expand=properties", at(p.Thread), page*100), nil, &answer); err != nil {
			return Posted{}, false, err
		}
		if answer.Comments == nil {
			return Posted{}, false, errList
		}
		for _, a := range answer.Comments {
			if a.Author.AccountID != own || !digits.MatchString(a.ID) {
				continue
			}
			// The link to the run has the marker, too: not every server answers with properties.
			found := strings.Contains(string(a.Body), "#"+mark(marker))
			for _, property := range a.Properties {
				found = found || property.Key == "triphammer" && strings.Contains(string(property.Value), mark(marker))
			}
			if found {
				posted := jiraPosted(p, a.ID)
				posted.Author = own
				return posted, true, nil
			}
		}
		if len(answer.Comments) == 0 || (page+1)*100 >= answer.Total {
			return Posted{}, false, nil
		}
	}
	return Posted{}, false, errLong
}
