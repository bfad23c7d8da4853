package native

import (
	"regexp"
	"slices"
	"strings"
)

// jira are the events of Jira, by https://developer.atlassian.com/cloud/jira/platform/webhooks/: an issue
// comes whole, but with a comment it lacks labels and description. Texts are wiki markup, in which a user is
// [~accountid:…], on Data Center [~name].
var jira = &Sender{
	Provider: "jira", Title: "Jira", Schemes: []string{"jira", "jira_connect"}, Source: "JIRA",
	Answers:  []string{"thread"},
	Docs:     "https://developer.atlassian.com/cloud/jira/platform/webhooks/",
	Accounts: "account identifiers; on Data Center user names",
	title:    at("issue.fields.summary"),
	Events: []*Event{
		{
			Name: "issue_created", Doc: "Somebody creates an issue.",
			In:   [][]Condition{{jiraEvent("jira:issue_created")}},
			Keys: []Key{jiraProjects, {Name: "labels", From: at("issue.fields.labels[]")}},
			Same: []Source{at("issue.id")}, Link: jiraPage, Subject: jiraIssue, By: jiraPerson,
		},
		{
			Name: "issue_labeled", Doc: "An issue gets a label, also when it is created.",
			In: [][]Condition{
				{jiraEvent("jira:issue_created"), {Source: at("issue.fields.labels[]")}},
				{jiraEvent("jira:issue_updated"), {Source: jiraNewLabels}},
			},
			Keys: []Key{jiraProjects, {Name: "labels", From: jiraAnyNewLabels}},
			Same: []Source{at("issue.id"), at("changelog.id")}, Link: jiraPage, Subject: jiraIssue, By: jiraPerson,
		},
		{
			Name: "status_changed", Doc: "An issue gets another status.",
			In:   [][]Condition{{jiraEvent("jira:issue_updated"), {Source: jiraNewStatus}}},
			Keys: []Key{jiraProjects, {Name: "status_ids", From: jiraNewStatus}},
			Same: []Source{at("issue.id"), at("changelog.id")}, Link: jiraPage, Subject: jiraIssue, By: jiraPerson,
		},
		{
			Name: "agent_session_created", Doc: "Somebody mentions an account of the webhook in a new comment, or assigns an issue to it.",
			In: [][]Condition{
				append(slices.Clone(jiraNewComment), Condition{Source: accounts(jiraMentions)}),
				{jiraEvent("jira:issue_created"), {Source: accounts(at("issue.fields.assignee.accountId", "issue.fields.assignee.name"))}},
				{jiraEvent("jira:issue_updated"), {Source: accounts(jiraNewAssignee)}},
			},
			Keys: []Key{
				jiraProjects,
				{Name: "labels", From: at("issue.fields.labels[]"), Ask: &Ask{Name: "issue_labels", Of: []Source{at("issue.id")}, Unless: given("issue.fields.labels")}},
				{Name: "keywords", From: at("comment.body", "issue.fields.summary", "issue.fields.description"), Kind: Word, Fold: keyword},
			},
			Same: []Source{at("issue.id"), at("comment.id"), at("changelog.id")}, Link: jiraPage, Subject: jiraIssue, By: jiraPerson,
		},
	},
	Comment: &Event{
		Name: "comment", Doc: "Somebody comments on an issue.",
		In:   [][]Condition{jiraNewComment},
		Same: []Source{at("comment.id")}, Link: jiraPage, Subject: jiraIssue, By: jiraPerson, Text: at("comment.body"),
	},
}

// jiraNewComment holds for new comments of people who are no account of the webhook.
var jiraNewComment = []Condition{
	jiraEvent("comment_created"),
	{Source: at("comment.author.accountType"), OneOf: []string{"app"}, Not: true},
	{Source: accounts(at("comment.author.accountId", "comment.author.name")), Not: true},
}

// jiraPerson is who changed or commented; on Data Center people have names. An older comment that comes with a
// change has an author of its own.
var jiraPerson = &Who{
	Login: jiraUser, ID: jiraUser, Author: first("issue.fields.creator.accountId", "issue.fields.creator.name"),
	Bot: Condition{Source: first("user.accountType", "comment.author.accountType"), OneOf: []string{"app"}},
}

var jiraUser = first("user.accountId", "user.name", "comment.author.accountId", "comment.author.name")

// jiraIssue is an issue, with the host of a Data Center before it.
var jiraIssue = ofSite(at("issue.self"), at("issue.key"), "atlassian.net", "atlassian.com", "jira.com")

var (
	jiraProjects = Key{Name: "project_keys", From: at("issue.fields.project.key"), Fold: strings.ToUpper}

	jiraNewStatus   = jiraChange("status", func(get func(string) string) []string { return []string{get("to")} })
	jiraNewAssignee = jiraChange("assignee", func(get func(string) string) []string { return []string{get("to")} })
	jiraNewLabels   = jiraChange("labels", func(get func(string) string) []string {
		before := strings.Fields(get("fromString"))
		return slices.DeleteFunc(strings.Fields(get("toString")), func(label string) bool { return slices.Contains(before, label) })
	})
	// jiraAnyNewLabels are the labels that a change added; all labels of a new issue are new.
	jiraAnyNewLabels = Source{
		Doc: jiraNewLabels.Doc + ", or issue.fields.labels[] of a new issue", places: append(placesOf("webhookEvent", "issue.fields.labels[]"), jiraNewLabels.places...),
		read: func(p *Payload) []string {
			if slices.Contains(p.values["webhookEvent"], "jira:issue_created") {
				return p.values["issue.fields.labels[]"]
			}
			return jiraNewLabels.values(p)
		},
	}

	jiraMentions = mapped("accounts mentioned in", at("comment.body"), func(text string) (ids []string) {
		for _, m := range jiraMention.FindAllStringSubmatch(jiraCode.ReplaceAllString(text, " "), -1) {
			ids = append(ids, m[1])
		}
		return ids
	})
	// jiraCode matches text that is shown as it is, or quotes an earlier text.
	jiraCode    = regexp.MustCompile(`(?s)\{code[^}]*\}.*?\{code\}|\{noformat[^}]*\}.*?\{noformat\}|\{quote\}.*?\{quote\}|(?m:^ *bq\.)[^\n]*|\{\{.*?\}\}`)
	jiraMention = regexp.MustCompile(`\[~(?:accountid:)?([^\]\s]+)\]`)
)

// jiraPage is the page of the issue: self is its address in the API of the same site.
var jiraPage = Source{
	Doc: "issue.key at the site of issue.self", places: placesOf("issue.self", "issue.key"),
	read: func(p *Payload) []string {
		site, _, found := strings.Cut(strings.Join(p.values["issue.self"], ""), "/rest/api/")
		key := strings.Join(p.values["issue.key"], "")
		if !found || key == "" || strings.HasPrefix(site, "https://api.atlassian.com/") {
			return nil
		}
		return []string{site + "/browse/" + key}
	},
}

func jiraEvent(name string) Condition {
	return Condition{Source: at("webhookEvent"), OneOf: []string{name}}
}

func jiraChange(field string, read func(get func(string) string) []string) Source {
	return items("changelog.items[] of "+field, "changelog.items[]", func(_ *Payload, get func(string) string) []string {
		if get("field") != field {
			return nil
		}
		return slices.DeleteFunc(read(get), func(v string) bool { return v == "" })
	})
}
