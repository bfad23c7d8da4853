package native

// teams are the events of Microsoft Teams, by
// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-outgoing-webhook: an
// outgoing webhook sends a message of a channel if it mentions the webhook's name, and nothing else, as an activity of the Bot Framework.
var teams = &Sender{
	Provider: "teams", Title: "Microsoft Teams", Schemes: []string{"ms_teams"}, Source: "TEAMS", HTML: true,
	API:     "https://smba.trafficmanager.net/teams",
	Answers: []string{"thread"},
	Docs:    "https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-outgoing-webhook",
	Events: []*Event{
		{
			Name: "app_mention", Doc: "Somebody mentions the webhook's name in a channel.",
			In:   [][]Condition{{teamsMessage}},
			Keys: teamsKeys, Same: []Source{at("conversation.id"), at("id")}, Subject: at("conversation.id"), By: identified(first("from.aadObjectId", "from.id"), Source{}),
		},
		{
			Name: "message_posted", Doc: "A message comes from a channel. An outgoing webhook sends those alone that mention it.",
			In:   [][]Condition{{teamsMessage}},
			Keys: teamsKeys, Same: []Source{at("conversation.id"), at("id")}, Subject: at("conversation.id"), By: identified(first("from.aadObjectId", "from.id"), Source{}),
		},
	},
	Reply: &Event{
		Name: "thread_reply", Doc: "Somebody mentions the webhook's name in a thread.",
		In:   [][]Condition{{teamsMessage}},
		Same: []Source{at("conversation.id"), at("id")}, Subject: at("conversation.id"), By: identified(first("from.aadObjectId", "from.id"), Source{}), Text: at("text"),
	},
}

var (
	teamsMessage = Condition{Source: at("type"), OneOf: []string{"message"}}

	teamsKeys = []Key{
		{Name: "team_ids", From: at("channelData.team.id", "channelData.team.aadGroupId", "channelData.teamsTeamId")},
		{Name: "channel_ids", From: at("channelData.channel.id", "channelData.teamsChannelId")},
		{Name: "keywords", From: at("text"), Kind: Word, Fold: keyword},
		{Name: "user_ids", From: at("from.aadObjectId", "from.id")},
	}
)
