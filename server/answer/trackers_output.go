package answer

import (
	"context"
	"net/http"
	"slices"

	"triphammer/server/lookup"
)

// jiraOutputs are what agents may ask for at Jira, by https://developer.atlassian.com/cloud/jira/platform/rest/v3.
var jiraOutputs = map[string]Perform{
	"addLabels":    jiraLabels("add"),
	"removeLabels": jiraLabels("remove"),
	"setState":     jiraState,
}

func jiraLabels(verb string) Perform {
	return func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
		if p.Thread == "" {
			return Posted{}, errNowhere
		}
		var changes []map[string]string
		for _, label := range w.Labels {
			changes = append(changes, map[string]string{verb: label})
		}
		return Posted{Link: p.Link}, jira(ctx, c, api).do(http.MethodPut, "/rest/api/3/issue"+at(p.Thread), map[string]any{"update": map[string]any{"labels": changes}}, nil)
	}
}

// jiraState moves an issue by the transition that leads to the state.
func jiraState(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if p.Thread == "" {
		return Posted{}, errNowhere
	}
	j, path := jira(ctx, c, api), "/rest/api/3/issue"+at(p.Thread)
	var issue struct {
		Fields struct{ Status struct{ Name string } }
	}
	if err := j.do(http.MethodGet, path+"?fields=status", nil, &issue); err != nil {
		return Posted{}, err
	}
	if issue.Fields.Status.Name == w.State {
		return Posted{Link: p.Link}, nil
	}
	var answer struct {
		Transitions []struct {
			ID string
			To struct{ Name string }
		}
	}
	if err := j.do(http.MethodGet, path+"/transitions", nil, &answer); err != nil {
		return Posted{}, err
	}
	for _, t := range answer.Transitions {
		if t.To.Name == w.State {
			return Posted{Link: p.Link}, j.do(http.MethodPost, path+"/transitions", map[string]any{"transition": map[string]string{"id": t.ID}}, nil)
		}
	}
	return Posted{}, lookup.Fail("no transition leads from "+oneLine(issue.Fields.Status.Name, maxName)+" to "+w.State, true)
}

// linearOutputs are what agents may ask for at Linear, by https://linear.app/developers/graphql.
var linearOutputs = map[string]Perform{"setState": linearState}

func linearState(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if p.Kind == "session" {
		var data struct {
			Session struct{ Issue struct{ ID string } } `json:"agentSession"`
		}
		if err := linear(ctx, c, api, "query($id: String!) { agentSession(id: $id) { issue { id } } }", map[string]any{"id": p.Thread}, &data); err != nil {
			return Posted{}, err
		}
		p.Thread = data.Session.Issue.ID
	}
	if p.Thread == "" {
		return Posted{}, errNowhere
	}
	type state struct{ ID, Name string }
	var data struct {
		Issue struct {
			Team struct{ States struct{ Nodes []state } }
		}
	}
	if err := linear(ctx, c, api, "query($id: String!) { issue(id: $id) { team { states(first: 250) { nodes { id name } } } } }", map[string]any{"id": p.Thread}, &data); err != nil {
		return Posted{}, err
	}
	i := slices.IndexFunc(data.Issue.Team.States.Nodes, func(s state) bool { return s.Name == w.State })
	if i < 0 {
		return Posted{}, lookup.Fail("the issue's team has no state "+w.State, true)
	}
	var done struct {
		Update struct{ Success bool } `json:"issueUpdate"`
	}
	err := linear(ctx, c, api, "mutation($id: String!, $input: IssueUpdateInput!) { issueUpdate(id: $id, input: $input) { success } }",
		map[string]any{"id": p.Thread, "input": map[string]string{"stateId": data.Issue.Team.States.Nodes[i].ID}}, &done)
	if err == nil && !done.Update.Success {
		err = lookup.Unsure("does not say that it changed the issue")
	}
	return Posted{Link: p.Link}, err
}

// slackOutputs are what agents may ask for at Slack, by https://docs.slack.dev/reference/methods.
var slackOutputs = map[string]Perform{"message": slackSend}

// slackSend sends a message to a channel. What an earlier attempt sent is not found by search alone, so
// it is looked for in the channel.
func slackSend(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	to := Place{Provider: p.Provider, Container: w.Channel}
	if w.Again {
		if at, found, err := slackFind(ctx, c, api, to, w.Marker); err != nil || found {
			return at, err
		}
	}
	return slackPost(ctx, c, api, to, w.Body, w.Marker)
}
