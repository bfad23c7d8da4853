package native

import (
	"encoding/json"
	"slices"
	"strings"
)

// linear are the events of Linear, by https://linear.app/developers/webhooks and the schema of its
// payloads in its package @linear/sdk 98.0.0. An issue comes whole. A comment comes only with the
// identifiers, the title and the team of its issue, and with its text as Markdown, in which users have no identifiers.
var linear = &Sender{
	Provider: "linear", Title: "Linear", Schemes: []string{"linear"}, Source: "LINEAR",
	Answers:  []string{"thread"},
	API:      "https://api.linear.app",
	Docs:     "https://linear.app/developers/webhooks",
	Accounts: "identifiers of the users that your agents are: their comments start nothing",
	title:    first("data.title", "data.issue.title", "agentSession.issue.title"),
	Events: []*Event{
		linearIssue("issue_created", "Somebody creates an issue.", linearLabels, []Condition{linearType("Issue"), linearAction("create")}),
		linearIssue("issue_labeled", "An issue gets a label, also when it is created.",
			Key{Name: "labels", From: linearNewLabels, Fold: strings.ToLower},
			[]Condition{linearType("Issue"), linearAction("create"), {Source: linearNewLabels}},
			[]Condition{linearType("Issue"), linearAction("update"), {Source: given("updatedFrom.labelIds")}, {Source: linearNewLabels}}),
		linearIssue("issue_state_changed", "An issue gets another state.", linearLabels,
			[]Condition{linearType("Issue"), linearAction("update"), {Source: given("updatedFrom.stateId")}}),
		linearIssue("issue_assigned", "An issue is assigned to somebody, also when it is created.", linearLabels,
			[]Condition{linearType("Issue"), linearAction("create"), {Source: at("data.assigneeId", "data.assignee.id")}},
			[]Condition{linearType("Issue"), linearAction("update"), {Source: given("updatedFrom.assigneeId")}, {Source: at("data.assigneeId", "data.assignee.id")}}),
		{
			Name: "comment_created", Doc: "Somebody comments on an issue.",
			In: linearNewComment,
			Keys: []Key{
				linearNamed("team_ids", "teams", at("data.issue.teamId", "data.issue.team.id"), at("data.issue.team.name", "data.issue.team.key")),
				linearAsked("project_ids", "projects", "issue_project", "issue_project_name"),
				{Name: "labels", Fold: strings.ToLower, Ask: linearAsk("issue_labels")},
				linearAsked("state_ids", "states", "issue_state", "issue_state_name"),
				linearNamed("issue_ids", "issues", at("data.issueId", "data.issue.id"), at("data.issue.identifier", "data.issue.title")),
				{Name: "mentioned_user_ids", Fold: strings.ToLower, Ask: &Ask{Name: "comment_mentions", Of: []Source{at("data.id")}}},
				{Name: "creator_ids", From: at("data.userId", "data.user.id")},
			},
			Same: []Source{at("data.id")}, Link: first("url"),
			Subject: at("data.issue.identifier"), By: linearCommenter,
		},
		{
			Name: "agent_session_created", Doc: "Somebody mentions the Linear app of the webhook, or assigns an issue to it.",
			In: [][]Condition{{linearType("AgentSessionEvent"), {Source: at("action"), OneOf: []string{"created"}}}},
			Keys: []Key{
				linearNamed("team_ids", "teams", at("agentSession.issue.teamId", "agentSession.issue.team.id"), at("agentSession.issue.team.name", "agentSession.issue.team.key")),
				{Name: "creator_ids", From: at("agentSession.creatorId", "agentSession.creator.id")},
				{Name: "keywords", From: at("agentSession.comment.body", "agentSession.issue.title", "agentSession.issue.description"), Kind: Word, Fold: keyword},
			},
			Same: []Source{at("agentSession.id")}, Link: linearSessionPage, Subject: linearSession,
			By: identified(first("agentSession.creatorId", "agentSession.creator.id"), Source{}), Awaited: true,
		},
	},
	Reply: linearPrompted("agent_session_prompted", "Somebody says more in an agent's session.", Condition{Source: linearSignal, OneOf: []string{"stop"}, Not: true}),
	Comment: &Event{
		Name: "comment", Doc: "Somebody comments on an issue.", In: linearNewComment,
		Same: []Source{at("data.id")}, Link: first("url"), Subject: at("data.issue.identifier"), By: linearCommenter, Text: at("data.body"),
	},
	Stop: linearPrompted("agent_session_stopped", "Somebody stops the agent of a session.", Condition{Source: linearSignal, OneOf: []string{"stop"}}),
}

// linearPrompted is what a person does in an agent's session that exists.
func linearPrompted(name, doc string, signal Condition) *Event {
	return &Event{
		Name: name, Doc: doc, In: [][]Condition{{linearType("AgentSessionEvent"), {Source: at("action"), OneOf: []string{"prompted"}}, signal}},
		Same: []Source{at("agentActivity.id")}, Link: linearSessionPage, Subject: linearSession,
		By:   identified(first("agentActivity.userId", "agentActivity.user.id"), first("agentSession.creatorId", "agentSession.creator.id")),
		Text: first("agentActivity.content.body", "agentActivity.body"),
	}
}

var (
	linearSessionPage = first("agentSession.url", "agentSession.issue.url")

	// linearSession is what an agent's session is about: an issue, or nothing but itself.
	linearSession = either(at("agentSession.issue.identifier"), mapped("session/ and", at("agentSession.id"), func(id string) []string { return []string{"session/" + id} }))
	linearSignal  = at("agentActivity.signal")

	// linearNewComment holds for new comments of people who are no account of the webhook.
	linearNewComment = [][]Condition{{
		linearType("Comment"), linearAction("create"),
		{Source: at("data.issueId", "data.issue.id")},
		{Source: at("data.botActor", "data.botActor.id"), Not: true},
		{Source: accounts(at("data.userId", "data.user.id")), Not: true},
	}}
	linearCommenter = identified(first("data.userId", "data.user.id"), Source{})

	linearLabels = Key{Name: "labels", From: at("data.labels[].name"), Fold: strings.ToLower}

	// linearNewLabels are the names of the labels that the issue did not have before.
	linearNewLabels = items("data.labels[].name that updatedFrom.labelIds lacks", "data.labels[]", func(p *Payload, get func(string) string) []string {
		if slices.Contains(linearOldLabels.values(p), get("id")) {
			return nil
		}
		return []string{get("name")}
	}, linearOldLabels)
	linearOldLabels = at("updatedFrom.labelIds[]")
)

func linearType(name string) Condition {
	return Condition{Source: at("type"), OneOf: []string{name}}
}

func linearAction(name string) Condition {
	return Condition{Source: at("action"), OneOf: []string{name}}
}

func linearNamed(name, alias string, ids, names Source) Key {
	return Key{Name: name, From: ids, Alias: alias, Names: &Names{From: names}}
}

// linearAsked is a key that Linear must be asked for about the issue of a comment.
func linearAsked(name, alias, ask, askName string) Key {
	return Key{Name: name, Ask: linearAsk(ask), Alias: alias, Names: &Names{Ask: linearAsk(askName)}}
}

func linearAsk(name string) *Ask {
	return &Ask{Name: name, Of: []Source{first("data.issueId", "data.issue.id")}}
}

func linearIssue(name, doc string, labels Key, in ...[]Condition) *Event {
	return &Event{
		Name: name, Doc: doc, In: in,
		Keys: []Key{
			linearNamed("team_ids", "teams", at("data.teamId", "data.team.id"), at("data.team.name", "data.team.key")),
			linearNamed("project_ids", "projects", at("data.projectId", "data.project.id"), at("data.project.name")),
			labels,
			linearNamed("state_ids", "states", at("data.stateId", "data.state.id"), at("data.state.name")),
			{Name: "assignee_ids", From: at("data.assigneeId", "data.assignee.id")},
			{Name: "mentioned_user_ids", From: mapped("users mentioned in", at("data.descriptionData"), LinearMentions), Fold: strings.ToLower},
			{Name: "creator_ids", From: at("data.creatorId", "data.creator.id")},
		},
		Same: []Source{at("data.id"), at("data.updatedAt")}, Link: first("url", "data.url"),
		Subject: at("data.identifier"), By: identified(first("actor.id"), first("data.creatorId", "data.creator.id")),
	}
}

// linearNode is a part of a document of Linear's editor.
type linearNode struct {
	Type    string
	Attrs   struct{ ID string }
	Content []linearNode
}

// LinearMentions are the users that a document of Linear's editor, in JSON, mentions.
func LinearMentions(document string) []string {
	var root linearNode
	_ = json.Unmarshal([]byte(document), &root) // any other text mentions nobody
	return root.mentions(nil)
}

func (n *linearNode) mentions(all []string) []string {
	if n.Type == "suggestion_userMentions" && n.Attrs.ID != "" {
		all = append(all, n.Attrs.ID)
	}
	for i := range n.Content {
		all = n.Content[i].mentions(all)
	}
	return all
}
