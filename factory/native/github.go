package native

import (
	"slices"
	"strings"
)

// github are the events of GitHub. https://docs.github.com/webhooks/webhook-events-and-payloads
// describes its payloads, and factory/testdata/rules 4.1 and 4.2 the events and their filter keys.
var github = &Sender{
	Provider: "github", Title: "GitHub", Schemes: []string{"github"}, Source: "GITHUB_WEBHOOK",
	Answers: []string{"thread", "check"},
	API:     "https://api.github.com",
	Docs:    "https://docs.github.com/webhooks/webhook-events-and-payloads",
	Events: []*Event{
		{
			Name: "push", Doc: "Somebody pushes commits or a tag, or deletes a branch or a tag.",
			In: [][]Condition{{githubEvent("push")}},
			Keys: []Key{
				githubRepos,
				{Name: "branches", From: at("ref"), Fold: branch},
				{Name: "paths", From: at("commits[].added[]", "commits[].modified[]", "commits[].removed[]"), Kind: Glob},
			},
			Same: []Source{at("repository.id"), at("ref"), at("before"), at("after")}, Link: first("compare"),
			Subject: thing(githubRepo, "/", ref(at("ref"))), By: githubPusher,
		},
		public(githubIssue("issue_created", "Somebody opens an issue.", "opened", githubIssueLabels)),
		githubIssue("issue_labeled", "An issue gets a label.", "labeled", githubNewLabel),
		public(githubPull("pull_request_opened", "Somebody opens a pull request, also a draft.", githubPullLabels, githubAction("opened"))),
		public(githubPull("pull_request_ready", "A draft becomes ready for review.", githubPullLabels, githubAction("ready_for_review"))),
		public(githubPull("pull_request_closed", "A pull request is closed without a merge.", githubPullLabels, githubAction("closed"), Condition{Source: at("pull_request.merged"), OneOf: []string{"true"}, Not: true})),
		githubPull("pull_request_merged", "A pull request is merged.", githubPullLabels, githubAction("closed"), Condition{Source: at("pull_request.merged"), OneOf: []string{"true"}}),
		githubPull("pull_request_labeled", "A pull request gets a label.", githubNewLabel, githubAction("labeled")),
		public(githubPull("pull_request_synchronized", "New commits are pushed to a pull request.", githubPullLabels, githubAction("synchronize"))),
		public(githubPull("pull_request_reopened", "A closed pull request is opened again.", githubPullLabels, githubAction("reopened"))),
		{
			Name: "issue_mentioned", Doc: "Somebody is mentioned in a new issue, or in a new comment on one.",
			In: [][]Condition{
				{githubEvent("issues"), githubAction("opened"), githubByPerson("issue.user"), mentioned(githubMentions("issue.body"))},
				{githubEvent("issue_comment"), githubAction("created"), {Source: at("issue.pull_request.url"), Not: true}, githubByPerson("comment.user"), mentioned(githubMentions("comment.body"))},
			},
			Keys: []Key{githubRepos, {Name: "mentioned", From: githubMentioned("issue.body"), Fold: mentionName}, githubIssueLabels},
			Same: []Source{at("issue.id"), at("comment.id")}, Link: first("comment.html_url", "issue.html_url"),
			Subject: githubNumber("issue.number"), By: githubPerson, Public: true,
		},
		{
			Name: "pull_request_mentioned", Doc: "Somebody is mentioned in a new pull request, or in a new comment or review on one.",
			In: [][]Condition{
				{githubEvent("pull_request"), githubAction("opened"), githubByPerson("pull_request.user"), mentioned(githubMentions("pull_request.body"))},
				{githubEvent("issue_comment"), githubAction("created"), {Source: at("issue.pull_request.url")}, githubByPerson("comment.user"), mentioned(githubMentions("comment.body"))},
				{githubEvent("pull_request_review_comment"), githubAction("created"), githubByPerson("comment.user"), mentioned(githubMentions("comment.body"))},
				{githubEvent("pull_request_review"), githubAction("submitted"), githubByPerson("review.user"), mentioned(githubMentions("review.body"))},
			},
			Keys: []Key{githubRepos, {Name: "mentioned", From: githubMentioned("pull_request.body"), Fold: mentionName}, githubAnyLabels},
			Same: []Source{at("issue.id", "pull_request.id"), at("comment.id"), at("review.id")}, Link: first("comment.html_url", "review.html_url", "pull_request.html_url"),
			Subject: githubNumber("issue.number", "pull_request.number"), By: githubPerson, Public: true,
		},
		{
			Name: "issue_assigned", Doc: "An issue is assigned to somebody: once for each person.",
			In:   [][]Condition{{githubEvent("issues"), githubAction("assigned")}},
			Keys: []Key{githubRepos, githubNewAssignee, githubIssueLabels},
			Same: []Source{at("issue.id"), at("issue.updated_at"), at("assignee.id")}, Link: first("issue.html_url"),
			Subject: githubNumber("issue.number"), By: githubPerson,
		},
		{
			Name: "pull_request_assigned", Doc: "A pull request is assigned to somebody: once for each person.",
			In:   [][]Condition{{githubEvent("pull_request"), githubAction("assigned")}},
			Keys: []Key{githubRepos, githubNewAssignee, githubPullLabels},
			Same: []Source{at("pull_request.id"), at("pull_request.updated_at"), at("assignee.id")}, Link: first("pull_request.html_url"),
			Subject: githubNumber("pull_request.number"), By: githubPerson,
		},
		{
			Name: "pull_request_review_requested", Doc: "A person or a team is asked for a review: once for each.",
			In: [][]Condition{{githubEvent("pull_request"), githubAction("review_requested")}},
			Keys: []Key{
				githubRepos,
				{Name: "reviewers", From: at("requested_reviewer.login"), Fold: strings.ToLower, Both: true},
				{Name: "reviewer_teams", From: at("requested_team.slug"), Fold: strings.ToLower, Both: true},
			},
			Same: []Source{at("pull_request.id"), at("pull_request.updated_at"), at("requested_reviewer.id", "requested_team.id")}, Link: first("pull_request.html_url"),
			Subject: githubNumber("pull_request.number"), By: githubPerson, Public: true,
		},
		{
			Name: "pull_request_review_submitted", Doc: "Somebody submits a review.",
			In: [][]Condition{{githubEvent("pull_request_review"), githubAction("submitted")}},
			Keys: []Key{
				githubRepos,
				{Name: "mentioned", From: when(githubByPerson("review.user"), githubMentions("review.body")), Fold: mentionName},
				githubPullLabels,
				{Name: "review_states", From: at("review.state"), Fold: strings.ToLower},
			},
			Same: []Source{at("review.id")}, Link: first("review.html_url"),
			Subject: githubNumber("pull_request.number"), By: githubPerson, Public: true,
		},
		githubChecks("check_suite_completed", "All checks of a commit have ended.", "check_suite"),
		githubChecks("workflow_run_completed", "A workflow of GitHub Actions has ended.", "workflow_run",
			Key{Name: "workflows", From: at("workflow.name", "workflow_run.name"), Fold: strings.ToLower}),
		{
			Name: "check_run_rerequested", Doc: "Somebody asks to run a check again.",
			In:   [][]Condition{{githubEvent("check_run"), githubAction("rerequested")}},
			Keys: []Key{githubRepos},
			Same: []Source{at("check_run.id"), at("check_run.completed_at"), at("check_run.check_suite.updated_at")}, Link: first("check_run.html_url"),
			Subject: githubCommit("check_run"), By: githubPerson,
		},
		{
			Name: "check_suite_rerequested", Doc: "Somebody asks to run all checks of a commit again.",
			In:   [][]Condition{{githubEvent("check_suite"), githubAction("rerequested")}},
			Keys: []Key{githubRepos},
			Same: []Source{at("check_suite.id"), at("check_suite.updated_at")}, Link: first("repository.html_url"),
			Subject: githubCommit("check_suite"), By: githubPerson,
		},
	},
	Comment: &Event{
		Name: "comment", Doc: "Somebody comments on an issue or a pull request.",
		In:   [][]Condition{{githubEvent("issue_comment"), githubAction("created"), githubByPerson("comment.user")}},
		Same: []Source{at("comment.id")}, Link: first("comment.html_url"),
		Subject: githubNumber("issue.number"), By: githubPerson, Public: true, Text: at("comment.body"),
	},
	title: first("issue.title", "pull_request.title"),
	pull: &pull{
		is: githubEvent("pull_request"), page: at("pull_request.html_url"), commit: at("pull_request.head.sha"), state: githubPullState,
		outcomes: map[string]string{"open": PullOpen, PullMerged: PullMerged, "closed": PullClosed},
	},
	heads: []head{
		{ // the merge is the repository's own, whoever made the pull request
			what: "merged pull request", when: []Condition{{Source: at("pull_request.merged"), OneOf: []string{"true"}}},
			number: at("pull_request.number"), commit: at("pull_request.merge_commit_sha"), base: at("pull_request.base.ref"), origins: githubOrigins, own: true,
		},
		{
			what: "pull request", number: at("pull_request.number"), commit: at("pull_request.head.sha"), branch: at("pull_request.head.ref"), base: at("pull_request.base.ref"),
			origins: githubOrigins, ids: [2]Source{at("pull_request.head.repo.id"), at("pull_request.base.repo.id")},
		},
		{ // a comment does not tell the head
			what: "pull request", when: []Condition{{Source: at("issue.pull_request.url")}},
			number: at("issue.number"), ref: mapped("refs/pull/…/head of", at("issue.number"), func(n string) []string { return []string{"refs/pull/" + n + "/head"} }), origins: githubOrigins,
		},
		githubHead("workflow_run", at("workflow_run.head_repository.id")),
		githubHead("check_suite", at("check_suite.pull_requests[].head.repo.id")),
		githubHead("check_run", at("check_run.pull_requests[].head.repo.id")),
		{what: "pushed commit", when: []Condition{githubEvent("push")}, commit: at("after"), branch: at("ref"), origins: githubOrigins, own: true},
	},
}

// githubHead is the code of an event of continuous integration. owner is the repository of the head.
func githubHead(object string, owner Source) head {
	commit := at(object + ".head_sha")
	if object == "check_run" {
		commit = first("check_run.head_sha", "check_run.check_suite.head_sha")
	}
	return head{
		what: "commit", commit: commit, branch: first(object+".head_branch", object+".check_suite.head_branch"),
		base: at(object + ".pull_requests[].base.ref"), origins: githubOrigins, ids: [2]Source{owner, at("repository.id")},
	}
}

var githubOrigins = at("repository.clone_url", "repository.ssh_url", "repository.html_url")

// GitHubEvents are the kinds of deliveries that the table knows, as an App or a webhook subscribes
// to them, sorted.
func GitHubEvents() (names []string) {
	for _, e := range github.Events {
		for _, conditions := range e.In {
			names = append(names, conditions[0].OneOf...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var (
	githubRepos       = Key{Name: "repos", From: at("repository.full_name")}
	githubIssueLabels = Key{Name: "labels", From: at("issue.labels[].name")}
	githubPullLabels  = Key{Name: "labels", From: at("pull_request.labels[].name")}
	githubAnyLabels   = Key{Name: "labels", From: at("issue.labels[].name", "pull_request.labels[].name")}
	githubNewLabel    = Key{Name: "labels", From: at("label.name")}
	githubNewAssignee = Key{Name: "assignees", From: at("assignee.login"), Fold: strings.ToLower}

	githubPullFiles = &Ask{Name: "pull_request_files", Of: []Source{at("repository.full_name"), at("pull_request.number")}}
)

// githubRepo is a repository, with the host of a GitHub Enterprise Server before it.
var githubRepo = ofSite(at("repository.html_url"), at("repository.full_name"), "github.com")

// githubNumber is an issue or a pull request, which share their numbers.
func githubNumber(places ...string) Source { return thing(githubRepo, "#", first(places...)) }

// githubCommit is what a check is about: the pull request, if it names exactly one of the same
// repository, or else the commit.
func githubCommit(object string) Source {
	return either(thing(githubRepo, "#", githubPulls(object, false)), thing(githubRepo, "@", at(object+".head_sha")))
}

// githubPulls are the pull requests of its own repository that a check names. A fork's checks name those of the
// repository that it was made from, too. unsaid takes all if the payload does not say whose they are.
func githubPulls(object string, unsaid bool) Source {
	number, base, own := at(object+".pull_requests[].number"), at(object+".pull_requests[].base.repo.id"), at("repository.id")
	return Source{Doc: number.Doc, places: slices.Concat(number.places, base.places, own.places), read: func(p *Payload) (mine []string) {
		numbers, bases := number.values(p), base.values(p)
		if len(bases) != len(numbers) {
			if unsaid {
				mine = numbers
			}
			return mine
		}
		for i, of := range bases {
			if of == one(own, p) {
				mine = append(mine, numbers[i])
			}
		}
		return mine
	}}
}

// githubPerson is the sender of an event. What it may do at a repository stands in the payload only as far as
// the association of what it wrote tells (https://docs.github.com/graphql/reference/enums#commentauthorassociation).
var githubPerson = &Who{
	Login: at("sender.login"), ID: at("sender.id"), Bot: Condition{Source: at("sender.type"), OneOf: []string{"Bot"}},
	Author: first("issue.user.id", "pull_request.user.id"), Roles: githubRoles,
	Asks: map[string]*Ask{RoleWrite: githubPermission, RoleOwner: githubPermission, RoleMember: githubMembership},
}

// githubPusher is nobody if the names of pusher and sender differ, as they do if no person pushed.
var githubPusher = &Who{
	Login: Source{Doc: "sender.login, if pusher.name is the same", places: placesOf("sender.login", "pusher.name"), read: func(p *Payload) []string {
		if pusher := p.values["pusher.name"]; len(pusher) > 0 && !slices.EqualFunc(pusher, p.values["sender.login"], strings.EqualFold) {
			return nil
		}
		return p.values["sender.login"]
	}},
	ID: githubPerson.ID, Bot: githubPerson.Bot, Roles: githubRoles, Asks: githubPerson.Asks,
}

var (
	githubPermission = &Ask{Name: "sender_permission", Of: []Source{at("repository.full_name"), at("sender.login"), at("sender.id")}}
	githubMembership = &Ask{Name: "sender_membership", Of: []Source{
		either(at("organization.login"), when(Condition{Source: at("repository.owner.type"), OneOf: []string{"Organization"}}, at("repository.owner.login"))),
		at("sender.login"), at("sender.id"),
	}}
)

// githubRoles are the roles that the payload gives the sender: what it wrote says how it is associated with
// the repository, and the repository of a person names its owner.
var githubRoles = func() Source {
	wrote := []string{"comment", "review", "issue", "pull_request"}
	places := placesOf("sender.id", "repository.owner.id", "repository.owner.type")
	for _, object := range wrote {
		places = append(places, placesOf(object+".user.id", object+".author_association")...)
	}
	return Source{Doc: "author_association of what the sender wrote, repository.owner", places: places, read: func(p *Payload) []string {
		sender := p.values["sender.id"]
		if slices.Equal(p.values["repository.owner.id"], sender) && !slices.Contains(p.values["repository.owner.type"], "Organization") {
			return []string{RoleOwner, RoleMember, RoleWrite}
		}
		for _, object := range wrote {
			if !slices.Equal(p.values[object+".user.id"], sender) {
				continue
			}
			switch strings.Join(p.values[object+".author_association"], "") {
			case "OWNER":
				return []string{RoleOwner, RoleMember, RoleWrite}
			case "MEMBER":
				return []string{RoleMember}
			}
		}
		return nil
	}}
}()

// public is an event that anybody can cause on a public repository.
func public(e *Event) *Event {
	e.Public = true
	return e
}

func githubEvent(name string) Condition {
	return Condition{Source: at(header("X-GitHub-Event")), OneOf: []string{name}}
}

func githubAction(name string) Condition {
	return Condition{Source: at("action"), OneOf: []string{name}}
}

// githubByPerson holds if the author is not a bot.
func githubByPerson(author string) Condition {
	return Condition{Source: at(author + ".type"), OneOf: []string{"Bot"}, Not: true}
}

func mentioned(s Source) Condition { return Condition{Source: s} }

// githubMentions are the logins, and the teams as organization/team, that a text mentions.
func githubMentions(path string) Source { return mentions("-/", at(path)) }

// githubMentioned are the logins and teams that the new text of a delivery mentions. The text
// is the text of the comment or review, or else of the thing that was opened.
func githubMentioned(opened string) Source {
	return mentions("-/", first("comment.body", "review.body", opened))
}

func githubIssue(name, doc, action string, labels Key) *Event {
	return &Event{
		Name: name, Doc: doc,
		In: [][]Condition{{githubEvent("issues"), githubAction(action)}},
		Keys: []Key{
			githubRepos, labels,
			{Name: "assignees", From: at("issue.assignees[].login"), Fold: strings.ToLower},
			{Name: "authors", From: at("issue.user.login"), Fold: strings.ToLower},
		},
		Same: []Source{at("issue.id"), at("issue.updated_at"), at("label.id")}, Link: first("issue.html_url"),
		Subject: githubNumber("issue.number"), By: githubPerson,
	}
}

func githubPull(name, doc string, labels Key, when ...Condition) *Event {
	return &Event{
		Name: name, Doc: doc,
		In: [][]Condition{append([]Condition{githubEvent("pull_request")}, when...)},
		Keys: []Key{
			githubRepos,
			{Name: "base_branches", Alias: "baseBranches", From: at("pull_request.base.ref")},
			{Name: "pr_numbers", Alias: "prNumbers", From: at("pull_request.number"), Kind: Number},
			{Name: "paths", Kind: Glob, Ask: githubPullFiles},
			{Name: "assignees", From: at("pull_request.assignees[].login"), Fold: strings.ToLower},
			{Name: "authors", From: at("pull_request.user.login"), Fold: strings.ToLower},
			labels,
		},
		Same: []Source{at("pull_request.id"), at("pull_request.updated_at"), at("pull_request.head.sha"), at("label.id")}, Link: first("pull_request.html_url"),
		Subject: githubNumber("pull_request.number"), By: githubPerson,
	}
}

// githubChecks is an event of continuous integration. Its payload has only the numbers of pull
// requests, so the API is asked for their labels and authors.
func githubChecks(name, doc, object string, more ...Key) *Event {
	pulls := []Source{at("repository.full_name"), githubPulls(object, true)}
	return &Event{
		Name: name, Doc: doc,
		In: [][]Condition{{githubEvent(object), githubAction("completed")}},
		Keys: append([]Key{
			githubRepos,
			{
				Name: "conclusions", From: at(object + ".conclusion"), Fold: strings.ToLower,
				Enum: []string{"success", "failure", "neutral", "cancelled", "timed_out", "action_required", "stale", "skipped"},
			},
			{Name: "branches", From: at(object + ".head_branch")},
			{Name: "labels", Ask: &Ask{Name: "pull_request_labels", Of: pulls}},
			{Name: "authors", Fold: strings.ToLower, Ask: &Ask{Name: "pull_request_authors", Of: pulls}},
		}, more...),
		Same: []Source{at(object + ".id"), at(object + ".updated_at"), at(object + ".run_attempt")}, Link: first(object+".html_url", "repository.html_url"),
		Subject: githubCommit(object),
	}
}
