package answer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const linearNeeds = "the scopes read and write; in agent sessions, the token of the app itself (actor=app, app:mentionable, app:assignable)"

// linearSender answers in agent sessions and issues of Linear, by
// https://linear.app/developers/agent-interaction and the schema of its package @linear/sdk. Every
// text has an identifier of ours, so that a text that is sent twice is there once.
var linearSender = &Sender{
	Provider: "linear",
	Paces:    []Pace{{Writes: 1000, Per: time.Hour}}, // of the 1,500 requests of a key
	MaxText:  60_000,
	Place:    linearPlace,
	Text:     (&dialect{write: linearText, bytes: 60_000}).text,
	Sign:     linearSign, Post: linearPost, Edit: linearEdit, Find: linearFind, Who: linearWho,
	Needs: linearNeeds, Outputs: linearOutputs,
	Every: 20 * time.Minute, // Linear takes half an hour without a word for an end
}

var linearMarkdown = &markdown{
	mention: regexp.MustCompile(`^https://linear\.app/[\w-]+/profiles/[\w.-]+$`),
	// Linear makes a mention of a link to a person.
	mentions: func(to string) bool { return strings.Contains(to, "linear.app") && strings.Contains(to, "/profiles/") },
}

// linearPayload is what a text of Linear is: Markdown, and what it is in an agent's session.
type linearPayload struct {
	Type string `json:"type"`
	Body string `json:"body"`
}

func linearText(blocks []block, m Message) string {
	kind := "thought"
	switch {
	case m.Asks != "":
		kind = "elicitation"
	case m.State == Said, m.State == Ended && (m.result() == succeeded || m.result() == cancelled):
		kind = "response" // who has it stopped waits for the confirmation
	case m.State == Ended:
		kind = "error"
	}
	text := linearMarkdown.text(runLink(blocks, m))
	if m.Marker != "" && web(m.Link) == "" {
		text += "\n\n[//]: # (" + mark(m.Marker) + ")"
	}
	return packed(linearPayload{kind, text})
}

func linearPlace(_ *native.Event, d native.Delivery) (Place, error) {
	type person struct{ URL string }
	type thing struct {
		ID, URL, IssueID string
		Issue            *struct{ ID, URL string }
		User             person
	}
	var b struct {
		Type, URL string
		Actor     person
		Session   *thing `json:"agentSession"`
		Activity  *thing `json:"agentActivity"`
		Data      *thing
	}
	noted(d, &b)
	p := Place{Provider: "linear"}
	switch {
	case b.Session != nil:
		p.Thread, p.Kind, p.Item, p.ItemKind, p.Link = b.Session.ID, "session", b.Session.ID, "session", b.Session.URL
		if p.Link == "" && b.Session.Issue != nil {
			p.Link = b.Session.Issue.URL
		}
		if b.Activity != nil && b.Activity.ID != "" {
			p.Item = b.Activity.ID // each of them wants a sign
		}
	case b.Data != nil && b.Type == "Comment":
		p.Thread, p.Kind, p.Asker = b.Data.IssueID, "issue", b.Data.User.URL
		if p.Thread == "" && b.Data.Issue != nil {
			p.Thread = b.Data.Issue.ID
		}
		if p.Asker == "" {
			p.Asker = b.Actor.URL
		}
		p.Link, _, _ = strings.Cut(b.URL, "#")
	case b.Data != nil:
		p.Thread, p.Kind, p.Link = b.Data.ID, "issue", b.URL
		if p.Link == "" {
			p.Link = b.Data.URL
		}
	}
	if p.Thread == "" {
		return Place{}, errors.New("the event names neither an issue nor an agent's session")
	}
	return p, nil
}

type linearErrors []struct {
	Message    string
	Extensions struct{ Code string }
}

var errorCode = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z_]{1,40}$`) })

// code is the code of the first error, or empty.
func (e linearErrors) code() string {
	if len(e) > 0 && errorCode().MatchString(e[0].Extensions.Code) {
		return e[0].Extensions.Code
	}
	return ""
}

// explain says what an error means. An empty sentence is one that may pass.
func (e linearErrors) explain() (sentence string, rate bool) {
	switch code := e.code(); {
	case code == "RATELIMITED":
		return "", true
	case code == "FORBIDDEN":
		return "the credential lacks a permission; it needs " + linearNeeds, false
	case len(e) > 0 && strings.Contains(strings.ToLower(e[0].Message), "not found"):
		return "the thread is gone, or the credential may not see it", false
	case strings.Contains(code, "INPUT"), strings.HasPrefix(code, "GRAPHQL_"):
		return code, false
	}
	return "", false
}

// linear makes a query, or a mutation. Linear takes its own API keys without the word Bearer.
func linear(ctx context.Context, c *lookup.Client, api lookup.API, query string, variables map[string]any, data any) error {
	api = address(api, "linear")
	header := bearer(api)
	if key := strings.TrimSpace(api.Secret.Reveal()); strings.HasPrefix(key, "lin_api_") {
		header.Set("Authorization", key)
	}
	answer := struct {
		Data   any
		Errors linearErrors
	}{Data: data}
	reads := strings.HasPrefix(query, "query")
	err := c.Do(ctx, api, lookup.Request{
		Method: http.MethodPost, Path: "/graphql", Header: header, Reads: reads, Into: &answer,
		Body: map[string]any{"query": query, "variables": variables},
		Explain: func(_ int, body []byte) (string, bool) {
			var refused struct{ Errors linearErrors }
			_ = json.Unmarshal(body, &refused) // a page of a proxy has no code
			return refused.Errors.explain()
		},
	})
	if err != nil || len(answer.Errors) == 0 {
		return err
	}
	code := answer.Errors.code()
	code = cmp.Or(code, "an error of GraphQL")
	switch sentence, rate := answer.Errors.explain(); {
	case rate:
		return lookup.Fail("answered "+code+": too many requests", false)
	case sentence != "":
		return lookup.Fail("answered "+code+": "+sentence, true)
	case reads || code == "AUTHENTICATION_ERROR":
		return lookup.Fail("answered "+code, false)
	}
	return lookup.Unsure("answered " + code)
}

// linearID is the identifier of a text: the same for the same parts.
func linearID(parts ...string) string {
	b := sha256.Sum256([]byte("triphammer\x00" + strings.Join(parts, "\x00")))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a UUID of version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// linearPosted is a text in an answer.
type linearPosted struct{ ID, URL string }

// linearSay says something in a session. What was already said is not said again.
func linearSay(ctx context.Context, c *lookup.Client, api lookup.API, session, id string, content linearPayload) (Posted, error) {
	var data struct {
		Create struct {
			Success  bool
			Activity linearPosted `json:"agentActivity"`
		} `json:"agentActivityCreate"`
	}
	input := map[string]any{"agentSessionId": session, "id": id, "content": content}
	err := linear(ctx, c, api, "mutation($input: AgentActivityCreateInput!) { agentActivityCreate(input: $input) { success agentActivity { id } } }", map[string]any{"input": input}, &data)
	if err == nil && data.Create.Success {
		return Posted{ID: id}, nil
	}
	return linearThere(ctx, c, api, "agentActivity", "id", id, err)
}

// linearThere finds the text whose identifier was refused: an earlier attempt has made it.
func linearThere(ctx context.Context, c *lookup.Client, api lookup.API, kind, fields, id string, refused error) (Posted, error) {
	if refused == nil {
		refused = errNoID
	}
	if f := failed(refused); f == nil || f.After() > 0 || !f.Final() && !f.Uncertain() {
		return Posted{}, refused
	}
	data := map[string]*linearPosted{}
	err := linear(ctx, c, api, "query($id: String!) { "+kind+"(id: $id) { "+fields+" } }", map[string]any{"id": id}, &data)
	if there := data[kind]; err == nil && there != nil && there.ID == id {
		return Posted{ID: id, Link: there.URL}, nil
	}
	return Posted{}, refused
}

func linearSign(ctx context.Context, c *lookup.Client, api lookup.API, p Place) error {
	if p.Kind != "session" {
		return errNowhere
	}
	parts := []string{"sign", p.Thread}
	if p.Item != p.Thread {
		parts = append(parts, p.Item)
	}
	_, err := linearSay(ctx, c, api, p.Thread, linearID(parts...), linearPayload{"thought", "Triphammer looks at it."})
	return err
}

func linearPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, key string) (Posted, error) {
	var content linearPayload
	if err := json.Unmarshal([]byte(text), &content); err != nil || p.Thread == "" {
		return Posted{}, errNowhere
	}
	id := linearID("post", p.Thread, key)
	if p.Kind == "session" {
		return linearSay(ctx, c, api, p.Thread, id, content)
	}
	var data struct {
		Create struct {
			Success bool
			Comment linearPosted
		} `json:"commentCreate"`
	}
	input := map[string]any{"issueId": p.Thread, "id": id, "body": content.Body}
	err := linear(ctx, c, api, "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id url } } }", map[string]any{"input": input}, &data)
	if err == nil && data.Create.Success {
		return Posted{ID: id, Link: data.Create.Comment.URL}, nil
	}
	return linearThere(ctx, c, api, "comment", "id url", id, err)
}

func linearEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	var content linearPayload
	if err := json.Unmarshal([]byte(text), &content); err != nil || p.Thread == "" {
		return errNowhere
	}
	if p.Kind == "session" {
		_, err := linearSay(ctx, c, api, p.Thread, linearID("edit", posted.ID, text), content)
		return err
	}
	var data struct {
		Update struct{ Success bool } `json:"commentUpdate"`
	}
	err := linear(ctx, c, api, "mutation($id: String!, $input: CommentUpdateInput!) { commentUpdate(id: $id, input: $input) { success } }",
		map[string]any{"id": posted.ID, "input": map[string]any{"body": content.Body}}, &data)
	if err == nil && !data.Update.Success {
		return lookup.Unsure("does not say that it changed the text")
	}
	return err
}

type linearTexts struct {
	Nodes []struct {
		ID, URL, Body string
		User          struct{ ID string }
		Content       struct{ Body string }
	}
	Page struct {
		More bool   `json:"hasNextPage"`
		End  string `json:"endCursor"`
	} `json:"pageInfo"`
}

func linearFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	query := "query($id: String!, $after: String) { viewer { id } thing: issue(id: $id) { texts: comments(first: 100, after: $after) { nodes { id url body user { id } } pageInfo { hasNextPage endCursor } } } }"
	if p.Kind == "session" {
		query = "query($id: String!, $after: String) { viewer { id } thing: agentSession(id: $id) { texts: activities(first: 100, after: $after) { nodes { id user { id } content { " +
			"... on AgentActivityThoughtContent { body } ... on AgentActivityResponseContent { body } ... on AgentActivityErrorContent { body } ... on AgentActivityElicitationContent { body } " +
			"} } pageInfo { hasNextPage endCursor } } } }"
	}
	variables := map[string]any{"id": p.Thread}
	for range maxPages {
		var data struct {
			Viewer struct{ ID string }
			Thing  *struct{ Texts linearTexts }
		}
		if err := linear(ctx, c, api, query, variables, &data); err != nil {
			return Posted{}, false, err
		}
		if data.Thing == nil || data.Thing.Texts.Nodes == nil || data.Viewer.ID == "" {
			return Posted{}, false, errList
		}
		for _, n := range data.Thing.Texts.Nodes {
			if n.User.ID == data.Viewer.ID && strings.Contains(n.Body+n.Content.Body, mark(marker)) {
				return Posted{ID: n.ID, Link: n.URL}, true, nil
			}
		}
		if !data.Thing.Texts.Page.More {
			return Posted{}, false, nil
		}
		variables["after"] = data.Thing.Texts.Page.End
	}
	return Posted{}, false, errLong
}
