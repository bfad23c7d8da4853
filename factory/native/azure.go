package native

import (
	"slices"
	"strings"
)

// azureDevOps are the events of Azure DevOps, by the examples of
// https://learn.microsoft.com/azure/devops/service-hooks/events. The format's own pages name work items, pull
// requests, pushes and the key source_repos; how it spells the provider and the events is not published.
var azureDevOps = &Sender{
	Provider: "azure_devops", Title: "Azure DevOps", Schemes: []string{"azure_devops"}, Source: "AZURE_DEVOPS", HTML: true,
	Answers: []string{"thread", "check"},
	Docs:    "https://learn.microsoft.com/azure/devops/service-hooks/events", Guess: true,
	Events: []*Event{
		{
			Name: "work_item", Doc: "A work item is created, changed, commented on, deleted or restored.",
			In: azureEvent("workitem.created", "workitem.updated", "workitem.commented", "workitem.deleted", "workitem.restored"),
			Keys: []Key{
				azureActions,
				{Name: "projects", From: azureField("System.TeamProject"), Fold: strings.ToLower},
				{Name: "types", From: azureField("System.WorkItemType"), Fold: strings.ToLower},
			},
			Same: azureSame, Link: first("resource._links.html.href", "resource.revision._links.html.href"),
			Subject: azureItem,
			By: azurePerson(either(
				at("resource.revisedBy.uniqueName"), azureAddress(azureField("System.ChangedBy")),
				when(azureIs("workitem.created"), azureAddress(azureField("System.CreatedBy"))),
			)),
		},
		{
			Name: "pull_request", Doc: "A pull request is created, changed or commented on, or its merge is tried.",
			In: azureEvent("git.pullrequest.created", "git.pullrequest.updated", "git.pullrequest.merged", azureComment),
			Keys: []Key{
				azureRepos("resource.repository", "resource.pullRequest.repository"), azureActions,
				{Name: "base_branches", From: at("resource.targetRefName", "resource.pullRequest.targetRefName"), Fold: branch},
				{Name: "statuses", From: at("resource.status", "resource.pullRequest.status"), Fold: strings.ToLower},
			},
			Same: azureSame, Link: first("resource._links.web.href"),
			Subject: either(
				thing(azureRepo("resource.repository"), "!", at("resource.pullRequestId")),
				thing(azureRepo("resource.pullRequest.repository"), "!", at("resource.pullRequest.pullRequestId")),
			),
			// Of another change, the payload does not say whose it is.
			By: azurePerson(either(
				when(azureIs("git.pullrequest.created"), at("resource.createdBy.uniqueName")),
				when(azureIs(azureComment), at("resource.comment.author.uniqueName")),
			)),
		},
		{
			Name: "push", Doc: "Somebody pushes commits or a tag, or deletes a branch or a tag.",
			In: azureEvent("git.push"),
			Keys: []Key{
				azureRepos("resource.repository"),
				{Name: "branches", From: at("resource.refUpdates[].name"), Fold: branch},
			},
			Same: azureSame, Link: first("resource.repository.remoteUrl"),
			Subject: thing(azureRepo("resource.repository"), "/", ref(at("resource.refUpdates[].name"))),
			By:      azurePerson(at("resource.pushedBy.uniqueName")),
		},
	},
	Comment: &Event{
		Name: "comment", Doc: "Somebody comments on a work item or a pull request.",
		In: [][]Condition{
			{azureIs("workitem.commented")},
			{
				azureIs(azureComment),
				{Source: at("resource.comment.commentType"), OneOf: []string{"system"}, Not: true},
				{Source: at("resource.comment.isDeleted"), OneOf: []string{"true"}, Not: true},
				{Source: azureEdited, Not: true},
			},
		},
		Same: azureSame, Link: first("resource._links.html.href", "resource._links.web.href"),
		Subject: either(
			when(azureIs("workitem.commented"), azureItem),
			thing(azureRepo("resource.pullRequest.repository"), "!", at("resource.pullRequest.pullRequestId")),
		),
		By:   azurePerson(either(at("resource.comment.author.uniqueName"), azureAddress(azureField("System.ChangedBy")))),
		Text: either(at("resource.comment.content"), azureField("System.History")),
	},
	title: either(at("resource.title"), at("resource.pullRequest.title"), azureField("System.Title")),
	pull: &pull{ // the event git.pullrequest.merged is a merge that was tried
		is: Condition{Source: at("resource.pullRequestId")}, page: at("resource._links.web.href"), commit: at("resource.lastMergeSourceCommit.commitId"), state: at("resource.status"),
		outcomes: map[string]string{"active": PullOpen, "completed": PullMerged, "abandoned": PullClosed},
	},
	heads: []head{
		azureHead("resource"), azureHead("resource.pullRequest"),
		{what: "pushed commit", commit: at("resource.refUpdates[].newObjectId"), branch: at("resource.refUpdates[].name"), origins: azureOrigins("resource"), own: true},
	},
}

// azureHead is the head of a pull request. The payload names the repository of the head only if it is
// a fork, and not every version of the payload does.
func azureHead(object string) head {
	return head{
		what: "pull request", number: at(object + ".pullRequestId"), when: []Condition{{Source: at(object + ".pullRequestId")}},
		commit: at(object + ".lastMergeSourceCommit.commitId"), base: at(object + ".targetRefName"), origins: azureOrigins(object),
		ids: [2]Source{at(object + ".forkSource.repository.id"), at(object + ".repository.id")},
	}
}

func azureOrigins(object string) Source {
	return at(object+".repository.remoteUrl", object+".repository.sshUrl", object+".repository.webUrl")
}

// azureComment is the event of a comment on a pull request; the other events end with what happened.
const azureComment = "ms.vss-code.git-pullrequest-comment-event"

var (
	azureSame = []Source{at("id")}
	azureItem = ofSite(at("resource.url"), thing(azureField("System.TeamProject"), "#", first("resource.workItemId", "resource.id")), azureHomes...)
	// azureHomes are the hosts of the service; others are of an Azure DevOps Server.
	azureHomes = []string{"dev.azure.com", "visualstudio.com"}

	// azureEdited has a value if a comment was changed: Azure DevOps sends one event for new and for changed ones.
	azureEdited = Source{
		Doc: "resource.comment.lastContentUpdatedDate, if it is not publishedDate", places: placesOf("resource.comment.publishedDate", "resource.comment.lastContentUpdatedDate"),
		read: func(p *Payload) []string {
			if changed := p.values["resource.comment.lastContentUpdatedDate"]; !slices.Equal(changed, p.values["resource.comment.publishedDate"]) {
				return changed
			}
			return nil
		},
	}

	azureActions = Key{Name: "actions", Fold: strings.ToLower, From: mapped("the last word of", at("eventType"), func(event string) []string {
		if event == azureComment {
			return []string{"commented"}
		}
		return []string{event[strings.LastIndexByte(event, '.')+1:]}
	})}
)

func azureEvent(names ...string) [][]Condition {
	return [][]Condition{{{Source: at("eventType"), OneOf: names}}}
}

func azureIs(event string) Condition {
	return Condition{Source: at("eventType"), OneOf: []string{event}}
}

// azurePerson is named by the address with which people sign in, in any case.
func azurePerson(name Source) *Who {
	return identified(mapped("in lower case", name, func(name string) []string { return []string{strings.ToLower(name)} }), Source{})
}

// azureAddress is the address in a text such as Ada Byron <ada@example.com>.
func azureAddress(s Source) Source {
	return mapped("the address in", s, func(text string) []string {
		address, closed := strings.CutSuffix(text, ">")
		at := strings.LastIndex(address, " <")
		if at < 0 || !closed {
			return nil
		}
		return []string{address[at+2:]}
	})
}

// azureRepo is a repository in its project.
func azureRepo(repository string) Source {
	return ofSite(first(repository+".remoteUrl", repository+".url"), thing(at(repository+".project.name"), "/", at(repository+".name")), azureHomes...)
}

// azureRepos are the names of a repository, without and with its project.
func azureRepos(repositories ...string) Key {
	src := Source{Doc: "name and project.name/name of " + strings.Join(repositories, ", ")}
	for _, r := range repositories {
		src.places = append(src.places, placesOf(r+".name", r+".project.name")...)
	}
	src.read = func(p *Payload) (all []string) {
		for _, r := range repositories {
			for _, name := range p.values[r+".name"] {
				all = append(all, name)
				for _, project := range p.values[r+".project.name"] {
					all = append(all, project+"/"+name)
				}
			}
		}
		return all
	}
	return Key{Name: "source_repos", From: src, Fold: strings.ToLower}
}

// azureField is a field of a work item. The payload of a change has all fields in its revision,
// and, beside the revision, the changed fields as objects.
func azureField(name string) Source {
	places := []place{{path: "resource.fields", whole: true}, {path: "resource.revision.fields", whole: true}}
	return Source{Doc: name + " of resource.fields, of a change of resource.revision.fields", places: places, read: func(p *Payload) []string {
		for _, at := range places {
			for _, object := range p.values[at.path] {
				if value := fieldsOf([]byte(object))[name]; value != "" {
					return []string{value}
				}
			}
		}
		return nil
	}}
}
