package lookup

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/factory/native"
)

// jiraLabels asks for the labels of an issue. The secret is email:token, or only a token.
func (c *Client) jiraLabels(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 1 {
		return nil, errPayload
	}
	var answer struct{ Fields struct{ Labels []string } }
	credential := strings.TrimSpace(api.Secret.Reveal())
	header := http.Header{"Authorization": {"Bearer " + credential}}
	if strings.Contains(credential, ":") {
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credential)))
	}
	err := c.request(ctx, http.MethodGet, api, "/rest/api/2/issue/"+url.PathEscape(args[0])+"?fields=labels", header, nil, &answer)
	if err == nil && (answer.Fields.Labels == nil || slices.Contains(answer.Fields.Labels, "")) {
		err = errAnswer
	}
	return answer.Fields.Labels, err
}

// issue is an issue in an answer of Linear.
type issue struct {
	Project, State struct{ ID, Name string }
	Labels         struct{ Nodes []struct{ Name string } }
}

func (i issue) labels() (names []string) {
	for _, l := range i.Labels.Nodes {
		names = append(names, l.Name)
	}
	return names
}

func linearIssue(read func(issue) []string) func(*Client, context.Context, API, []string) ([]string, error) {
	const query = "query($id: String!) { issue(id: $id) { project { id name } state { id name } labels(first: 250) { nodes { name } } } }"
	return func(c *Client, ctx context.Context, api API, args []string) ([]string, error) {
		var data struct{ Issue *issue }
		if err := c.linear(ctx, api, query, args, &data); err != nil {
			return nil, err
		}
		if data.Issue == nil {
			return nil, &failure{text: "has no such issue", final: true}
		}
		if data.Issue.State.ID == "" || data.Issue.Labels.Nodes == nil { // each issue has both
			return nil, errAnswer
		}
		return read(*data.Issue), nil
	}
}

func (c *Client) commentMentions(ctx context.Context, api API, args []string) ([]string, error) {
	var data struct{ Comment *struct{ BodyData string } }
	if err := c.linear(ctx, api, "query($id: String!) { comment(id: $id) { bodyData } }", args, &data); err != nil {
		return nil, err
	}
	if data.Comment == nil {
		return nil, &failure{text: "has no such comment", final: true}
	}
	if data.Comment.BodyData == "" {
		return nil, errAnswer
	}
	return native.LinearMentions(data.Comment.BodyData), nil
}

// linear makes a query. Linear takes its own API keys without the word Bearer.
func (c *Client) linear(ctx context.Context, api API, query string, args []string, data any) error {
	if len(args) != 1 {
		return errPayload
	}
	body, err := json.Marshal(map[string]any{"query": query, "variables": map[string]string{"id": args[0]}})
	if err != nil {
		return err
	}
	credential := strings.TrimSpace(api.Secret.Reveal())
	if !strings.HasPrefix(credential, "lin_api_") {
		credential = "Bearer " + credential
	}
	answer := struct {
		Data   any
		Errors []struct{ Extensions struct{ Code string } }
	}{Data: data}
	header := http.Header{"Authorization": {credential}, "Content-Type": {"application/json"}}
	if err := c.request(ctx, http.MethodPost, api, "/graphql", header, body, &answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return &failure{text: "answered with an error of GraphQL"}
	}
	return nil
}
