package native

// teams are the events of Microsoft Teams. An outgoing webhook sends a message if it mentions the
// webhook's name; its payload is an activity, described at
// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-outgoing-webhook.
var teams = &Sender{
	Provider: "teams", Title: "Microsoft Teams", Schemes: []string{"ms_teams"}, Source: "TEAMS",
	Docs: "https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-outgoing-webhook",
	Events: []*Event{
		{
			Name: "app_mention", Doc: "Somebody mentions the webhook's name in a channel.",
			In:   [][]Condition{{teamsMessage, {Source: at("entities[].type"), OneOf: []string{"mention"}}}},
			Keys: teamsKeys, Same: []Source{at("conversation.id"), at("id")},
		},
		{
			Name: "message_posted", Doc: "A message comes from a channel. An outgoing webhook sends those alone that mention it.",
			In:   [][]Condition{{teamsMessage}},
			Keys: teamsKeys, Same: []Source{at("conversation.id"), at("id")},
		},
	},
}

var (
	teamsMessage = Condition{Source: at("type"), OneOf: []string{"message"}}

	teamsKeys = []Key{
		{Name: "team_ids", From: at("channelData.team.id", "channelData.teamsTeamId")},
		{Name: "channel_ids", From: at("channelData.channel.id", "channelData.teamsChannelId")},
		{Name: "keywords", From: at("text"), Kind: Word, Fold: keyword},
		{Name: "user_ids", From: at("from.aadObjectId", "from.id")},
	}
)
