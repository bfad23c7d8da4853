package native

var gitlabTruths = map[string][]verdict{
	"merge_request": {
		yes("merged into a branch", "actions=merge; base_branches=main"),
		yes("names of projects and actions without regard to case", "repos=Acme/Payments; actions=MERGE"),
		no("opened", "actions=merge", "object_attributes.action=open"),
		no("another branch", "base_branches=release"),
		no("branches are exact", "base_branches=Main"),
		no("an issue", "", "object_kind=issue"),
		no("an excluded project", "repos!=ACME/payments"),
	},
	"bot_mentioned": {
		yes("in a new comment", "repos=acme/payments"),
		yes("of a server that tells no action", "", "-object_attributes.action"),
		yes("in a new merge request", "", "object_kind=merge_request", "object_attributes.action=open", "object_attributes.description=cc @Triphammer"),
		yes("in a new task", "", "object_kind=work_item", "object_attributes.action=open", "object_attributes.description=@triphammer"),
		no("edited", "", "object_attributes.action=update"),
		no("somebody else", "", "object_attributes.note=@ada please"),
		no("by itself", "", "user.username=triphammer"),
		no("by a bot", "", "user.username=project_15_bot_4ffca233d8298ea1"),
		no("in code", "", "object_attributes.note=try `@triphammer`"),
		no("part of a longer name", "", "object_attributes.note=@triphammer.dev"),
		no("in a merge request that changes", "", "object_kind=merge_request", "object_attributes.action=update", "object_attributes.description=cc @triphammer"),
		no("another project", "repos=acme/web"),
	},
	"push": {
		yes("a branch and a path", "branches=main; paths=capture/*.go"),
		no("another branch", "branches=wip"),
		no("another path", "paths=web/**"),
		no("a tag", "", "object_kind=tag_push"),
		no("another project", "repos=acme/web"),
	},
}
