package native

import (
	"regexp"
	"slices"
	"strings"
)

// linear are the events of Linear. Its payloads are described at
// https://linear.app/developers/webhooks.
var linear = &Sender{
	Provider: "linear", Title: "Linear", Schemes: []string{"linear"}, Source: "LINEAR",
	Docs: "https://linear.app/developers/webhooks",
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
			In: [][]Condition{{linearType("Comment"), linearAction("create"), {Source: at("data.issueId", "data.issue.id")}, {Source: at("data.botActor.id"), Not: true}}},
			Keys: []Key{
				linearNamed("team_ids", "teams", at("data.issue.teamId", "data.issue.team.id"), at("data.issue.team.name", "data.issue.team.key")),
				linearNamed("project_ids", "projects", at("data.issue.projectId", "data.issue.project.id"), at("data.issue.project.name")),
				{Name: "labels", From: at("data.issue.labels[].name"), Fold: strings.ToLower},
				linearNamed("state_ids", "states", at("data.issue.stateId", "data.issue.state.id"), at("data.issue.state.name")),
				linearNamed("issue_ids", "issues", at("data.issueId", "data.issue.id"), at("data.issue.identifier", "data.issue.title")),
				{Name: "mentioned_user_ids", From: mapped("users mentioned in", at("data.bodyData"), linearMentions), Fold: strings.ToLower},
				{Name: "creator_ids", From: at("data.userId", "data.user.id")},
			},
			Same: []Source{at("data.id")}, Link: first("url"),
		},
		{
			Name: "agent_session_created", Doc: "Somebody mentions the Linear app of the webhook, or assigns an issue to it.",
			In: [][]Condition{{linearType("AgentSessionEvent"), {Source: at("action"), OneOf: []string{"created"}}}},
			Keys: []Key{
				linearNamed("team_ids", "teams", at("agentSession.issue.teamId", "agentSession.issue.team.id"), at("agentSession.issue.team.name", "agentSession.issue.team.key")),
				{Name: "creator_ids", From: at("agentSession.creatorId", "agentSession.creator.id")},
				{Name: "keywords", From: at("agentSession.comment.body", "agentSession.issue.title", "agentSession.issue.description", "promptContext"), Kind: Word, Fold: keyword},
			},
			Same: []Source{at("agentSession.id")}, Link: first("agentSession.url", "agentSession.issue.url"),
		},
	},
}

var (
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

func linearIssue(name, doc string, labels Key, in ...[]Condition) *Event {
	return &Event{
		Name: name, Doc: doc, In: in,
		Keys: []Key{
			linearNamed("team_ids", "teams", at("data.teamId", "data.team.id"), at("data.team.name", "data.team.key")),
			linearNamed("project_ids", "projects", at("data.projectId", "data.project.id"), at("data.project.name")),
			labels,
			linearNamed("state_ids", "states", at("data.stateId", "data.state.id"), at("data.state.name")),
			{Name: "assignee_ids", From: at("data.assigneeId", "data.assignee.id")},
			{Name: "mentioned_user_ids", From: mapped("users mentioned in", at("data.descriptionData"), linearMentions), Fold: strings.ToLower},
			{Name: "creator_ids", From: at("data.creatorId", "data.creator.id")},
		},
		Same: []Source{at("data.id"), at("data.updatedAt")}, Link: first("url", "data.url"),
	}
}

// linearMention is a person in a document of Linear's editor.
var linearMention = regexp.MustCompile(`"type":\s*"suggestion_userMentions","attrs":\s*\{[^{}]*?"id":\s*"([^"]+)"`)

func linearMentions(document string) (users []string) {
	for _, m := range linearMention.FindAllStringSubmatch(document, -1) {
		users = append(users, m[1])
	}
	return users
}
