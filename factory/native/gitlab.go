package native

import (
	"regexp"
	"strings"
)

// gitlab are the events of GitLab, by the examples of
// https://docs.gitlab.com/user/project/integrations/webhook_events/. Since version 16.11, comments say
// whether they are new (object_attributes.action). Issues and other work items differ in object_kind.
var gitlab = &Sender{
	Provider: "gitlab", Title: "GitLab", Schemes: []string{"gitlab", "gitlab_signed"}, Source: "GITLAB_WEBHOOK",
	API:      "https://gitlab.com/api/v4",
	Answers:  []string{"thread", "check"},
	Docs:     "https://docs.gitlab.com/user/project/integrations/webhook_events/",
	Accounts: "user names, without @",
	Events: []*Event{
		{
			Name: "merge_request", Doc: "A merge request is opened, changed, approved, merged or closed.",
			In: [][]Condition{{gitlabKind("merge_request")}},
			Keys: []Key{
				gitlabRepos,
				{Name: "actions", From: at("object_attributes.action"), Fold: strings.ToLower},
				{Name: "base_branches", From: at("object_attributes.target_branch")},
			},
			// Two people may approve within a second, and an approval changes nothing of the request.
			Same:    []Source{at("object_attributes.id"), at("object_attributes.updated_at"), at("object_attributes.action"), at("user.id")},
			Link:    first("object_attributes.url"),
			Subject: thing(gitlabProject, "!", at("object_attributes.iid")), By: gitlabPerson, Public: true,
		},
		{
			Name: "bot_mentioned", Doc: "Somebody mentions an account of the webhook in a new comment, merge request or issue.",
			In: [][]Condition{
				gitlabMention("note", "object_attributes.note", "create"),
				gitlabMention("merge_request", "object_attributes.description", "open"),
				gitlabMention("issue", "object_attributes.description", "open"),
				gitlabMention("work_item", "object_attributes.description", "open"),
			},
			Keys: []Key{
				gitlabRepos,
				{Name: "mentioned", From: mentions("-._/", first("object_attributes.note", "object_attributes.description")), Fold: mentionName, Own: true},
			},
			Same: []Source{at("object_kind"), at("object_attributes.id")}, Link: first("object_attributes.url"),
			Subject: either(
				when(gitlabKind("merge_request"), thing(gitlabProject, "!", at("object_attributes.iid"))),
				when(gitlabKind("issue"), thing(gitlabProject, "#", at("object_attributes.iid"))),
				when(gitlabKind("work_item"), thing(gitlabProject, "#", at("object_attributes.iid"))),
				gitlabNoted,
			),
			By: gitlabPerson, Public: true,
		},
		{
			Name: "push", Doc: "Somebody pushes commits, or deletes a branch.",
			In: [][]Condition{{gitlabKind("push")}},
			Keys: []Key{
				gitlabRepos,
				{Name: "branches", From: at("ref"), Fold: branch},
				{Name: "paths", From: at("commits[].added[]", "commits[].modified[]", "commits[].removed[]"), Kind: Glob},
			},
			Same: []Source{at("project.id"), at("ref"), at("before"), at("after")}, Link: first("project.web_url"),
			Subject: thing(gitlabProject, "/", ref(at("ref"))), By: gitlabPusher,
		},
	},
	Comment: &Event{
		Name: "comment", Doc: "Somebody comments on an issue, a merge request or a commit.",
		In:   [][]Condition{append(gitlabWritten("note", "create"), Condition{Source: at("object_attributes.action"), OneOf: []string{"create"}})},
		Same: []Source{at("object_kind"), at("object_attributes.id")}, Link: first("object_attributes.url"),
		Subject: gitlabNoted, By: gitlabPerson, Public: true, Text: at("object_attributes.note"),
	},
	title: first("issue.title", "merge_request.title", "object_attributes.title"),
	pull: &pull{
		is: gitlabKind("merge_request"), page: at("object_attributes.url"), commit: at("object_attributes.last_commit.id"), state: at("object_attributes.state"),
		outcomes: map[string]string{"opened": PullOpen, "merged": PullMerged, "closed": PullClosed},
	},
	heads: []head{
		{ // the merge is the project's own, whoever made the merge request
			what: "merged merge request", when: []Condition{gitlabKind("merge_request"), {Source: at("object_attributes.state"), OneOf: []string{"merged"}}},
			number: at("object_attributes.iid"), commit: at("object_attributes.merge_commit_sha"), base: at("object_attributes.target_branch"), origins: gitlabOrigins, own: true,
		},
		gitlabHead("object_attributes", gitlabKind("merge_request")),
		gitlabHead("merge_request", gitlabKind("note")),
		{what: "commit", when: []Condition{gitlabKind("note")}, commit: at("commit.id"), origins: gitlabOrigins},
		{what: "pushed commit", when: []Condition{gitlabKind("push")}, commit: at("after"), branch: at("ref"), origins: gitlabOrigins, own: true},
	},
}

// gitlabHead is the head of a merge request.
func gitlabHead(object string, when Condition) head {
	return head{
		what: "merge request", when: []Condition{when}, number: at(object + ".iid"),
		commit: at(object + ".last_commit.id"), branch: at(object + ".source_branch"), base: at(object + ".target_branch"), origins: gitlabOrigins,
		ids: [2]Source{at(object + ".source_project_id"), at(object + ".target_project_id")},
	}
}

var gitlabOrigins = at("project.git_http_url", "project.git_ssh_url", "project.web_url")

var gitlabRepos = Key{Name: "repos", From: at("project.path_with_namespace"), Fold: strings.ToLower}

// gitlabProject is a project, with the host of a server of one's own before it.
var gitlabProject = ofSite(first("project.web_url", "object_attributes.url"), at("project.path_with_namespace"), "gitlab.com")

// gitlabNoted is what a comment is about.
var gitlabNoted = either(thing(gitlabProject, "!", at("merge_request.iid")), thing(gitlabProject, "#", first("issue.iid", "work_item.iid")), thing(gitlabProject, "@", at("commit.id")))

// gitlabPerson is the user of an event. No payload says what a user may do.
var gitlabPerson = gitlabUser("user.username", "user.id", either(
	when(gitlabKind("note"), first("merge_request.author_id", "issue.author_id", "work_item.author_id")),
	when(Condition{Source: gitlabKind("note").Source, OneOf: []string{"note"}, Not: true}, at("object_attributes.author_id")),
))

var gitlabPusher = gitlabUser("user_username", "user_id", Source{})

func gitlabUser(login, id string, author Source) *Who {
	ask := &Ask{Name: "sender_access", Of: []Source{at("project.id"), at(id)}}
	return &Who{
		Login: at(login), ID: at(id), Author: author, Bot: Condition{Source: gitlabBotsIn(at(login))},
		Asks: map[string]*Ask{RoleWrite: ask, RoleMember: ask, RoleOwner: ask},
	}
}

func gitlabKind(kind string) Condition {
	return Condition{Source: at("object_kind"), OneOf: []string{kind}}
}

// gitlabBot is the user of an access token of a project or a group
// (https://docs.gitlab.com/user/project/settings/project_access_tokens/).
var gitlabBot = regexp.MustCompile(`^(project|group)_\d+_bot(_|\d*$)`)

func gitlabBotsIn(names Source) Source {
	return mapped("users of access tokens in", names, func(name string) []string {
		if gitlabBot.MatchString(name) {
			return []string{name}
		}
		return nil
	})
}

// gitlabMention holds if new text mentions an account of the webhook, and neither that account
// nor a bot wrote it.
func gitlabMention(kind, text, action string) []Condition {
	return append(gitlabWritten(kind, action), mentioned(accounts(mentions("-._/", at(text)))))
}

// gitlabWritten holds for new text that neither an account of the webhook nor a bot wrote. Older servers
// send no action with a comment.
func gitlabWritten(kind, action string) []Condition {
	isNew := Condition{Source: at("object_attributes.action"), OneOf: []string{action}}
	if kind == "note" {
		isNew = Condition{Source: at("object_attributes.action"), OneOf: []string{"update"}, Not: true}
	}
	return []Condition{
		gitlabKind(kind), isNew,
		{Source: at("object_attributes.system"), OneOf: []string{"true"}, Not: true},
		{Source: accounts(at("user.username")), Not: true},
		{Source: gitlabBotsIn(at("user.username")), Not: true},
	}
}
