package native

var slackTruths = map[string][]verdict{
	"app_mention": {
		yes("words without regard to case", "keywords= DEPLOY ; channel_ids=C0DEPLOYS"),
		yes("a part of a word", "keywords=ploy"),
		yes("a channel by name", "channels=#Deploys", "?channel_names=deploys"),
		no("the name is not known", "channels=deploys"),
		no("another channel", "channel_ids=C0RANDOM"),
		no("by a bot", "", "event.bot_id=B0"),
		no("added by a change of the message", "", `event.edited={"user":"U0ADA","ts":"1772612600.000000"}`),
		no("another word", "keywords=release"),
		no("another user", "user_ids=U0GRACE"),
	},
	"message_posted": {
		yes("in a channel", "keywords=failed again"),
		yes("in a private channel", "", "event.channel_type=group"),
		yes("with a file", "", "event.subtype=file_share"),
		no("a direct message", "", "event.channel_type=im"),
		no("edited", "", "event.subtype=message_changed"),
		no("deleted", "", "event.subtype=message_deleted"),
		no("somebody joined", "", "event.subtype=channel_join"),
		no("by a bot", "", "event.subtype=bot_message", "event.bot_id=B0"),
		no("an excluded channel", "channel_ids!=C0DEPLOYS"),
	},
	"message_dm": {
		yes("to the app", "keywords=why"),
		yes("to a group", "", "event.channel_type=mpim"),
		no("in a channel", "", "event.channel_type=channel"),
		no("by a bot", "", "event.bot_id=B0"),
		no("edited", "", "event.subtype=message_changed"),
	},
	"message_im": {
		yes("to the app", "user_ids=U0ADA"),
		no("to a group", "", "event.channel_type=mpim"),
		no("in a channel", "", "event.channel_type=channel"),
		no("another user", "user_ids=U0GRACE"),
	},
	"message_mpim": {
		yes("to a group", "channel_ids=G0GROUP"),
		no("to the app alone", "", "event.channel_type=im"),
		no("in a private channel", "", "event.channel_type=group"),
		no("another word", "keywords=release"),
	},
	"reaction_added": {
		yes("with colons", "emojis=:hammer:"),
		yes("with a skin tone", "emojis=wave", "event.reaction=wave::skin-tone-3"),
		yes("to a message of somebody", "item_user_ids=U0GRACE; channel_ids=C0DEPLOYS"),
		yes("to a text that the API tells", "keywords=deploy", "?message_text=The Deploy failed"),
		no("another emoji", "emojis=tada"),
		no("taken away", "", "event.type=reaction_removed"),
		no("by somebody else", "user_ids=U0GRACE"),
		no("the text is not known", "keywords=deploy"),
		no("another channel", "channel_ids=C0RANDOM"),
	},
	"member_joined_channel": {
		yes("the channel", "channel_ids=C0DEPLOYS"),
		no("another channel", "channel_ids=C0RANDOM"),
		no("another user", "user_ids=U0GRACE"),
		no("left", "", "event.type=member_left_channel"),
	},
}

var teamsTruths = map[string][]verdict{
	"app_mention": {
		yes("in a channel of a team", "channel_ids=19:deploys@thread.tacv2; team_ids=19:payments@thread.tacv2"),
		yes("words without regard to case", "keywords=DEPLOY"),
		yes("by a user of the directory", "user_ids=b15a9416-0000-4000-8000-000000000001"),
		no("another channel", "channel_ids=19:other@thread.tacv2"),
		no("another word", "keywords=release"),
		no("no message", "", "type=conversationUpdate"),
	},
	"message_posted": {
		yes("with a word", "keywords=again"),
		no("another team", "team_ids=19:core@thread.tacv2"),
		no("by somebody excluded", "user_ids!=29:1sampleAda"),
		no("no message", "", "type=messageReaction"),
	},
}

var azureTruths = map[string][]verdict{
	"push": {
		yes("a branch of a repository of a project", "branches=main; source_repos=acme/payments"),
		yes("the repository alone", "source_repos=payments; branches=refs/heads/main"),
		no("another branch", "branches=release"),
		no("another project", "source_repos=core/payments"),
		no("a check-in of the other version control", "", "eventType=tfvc.checkin"),
	},
	"pull_request": {
		yes("created against a branch", "actions=created; base_branches=main"),
		yes("completed", "actions=updated; statuses=completed", "eventType=git.pullrequest.updated", "resource.status=completed"),
		yes("commented on", "actions=commented; source_repos=payments", "eventType=ms.vss-code.git-pullrequest-comment-event", `resource={"pullRequest":{"repository":{"name":"payments"}}}`),
		no("updated", "actions=created", "eventType=git.pullrequest.updated"),
		no("another branch", "base_branches=retry-captures"),
		no("another status", "statuses=abandoned"),
		no("a push", "", "eventType=git.push"),
	},
	"work_item": {
		yes("a new bug of a project", "actions=created; types=bug; projects=acme"),
		yes("changed", "types=Bug", "eventType=workitem.updated", `resource={"workItemId":77,"fields":{"System.State":{"oldValue":"New","newValue":"Active"}},"revision":{"fields":{"System.WorkItemType":"Bug"}}}`),
		no("another type", "types=Task"),
		no("changed, not created", "actions=created", "eventType=workitem.updated"),
		no("another project", "projects=core"),
		no("a build", "", "eventType=build.complete"),
	},
}
