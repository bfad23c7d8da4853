package native

import "strings"

// slack are the events of Slack, by https://docs.slack.dev/reference/events and the types of its package
// @slack/types 3.2.0. Payloads name channels and users only by identifiers.
var slack = &Sender{
	Provider: "slack", Title: "Slack", Schemes: []string{"slack"}, Source: "SLACK",
	Answers: []string{"thread"},
	API:     "https://slack.com/api",
	Docs:    "https://docs.slack.dev/reference/events",
	Events: []*Event{
		{
			Name: "app_mention", Doc: "Somebody mentions the app in a channel.",
			In: [][]Condition{{slackType("app_mention"), slackByPerson, slackUnedited}}, Keys: slackMessage, Same: slackTime, Subject: slackThread, By: slackPerson,
		},
		slackPosted("message_posted", "Somebody posts a message in a channel that the app is in.", "channel", "group"),
		slackPosted("message_dm", "Somebody writes a direct message to the app, alone or in a group.", "im", "mpim"),
		slackPosted("message_im", "Somebody writes a direct message to the app.", "im"),
		slackPosted("message_mpim", "Somebody writes a direct message to a group with the app.", "mpim"),
		{
			Name: "reaction_added", Doc: "Somebody adds a reaction to a message.",
			In: [][]Condition{{slackType("reaction_added")}},
			Keys: []Key{
				slackNamed("channel_ids", "channels", "channel_names", at("event.item.channel")),
				slackNamed("user_ids", "users", "user_names", at("event.user")),
				{Name: "emojis", From: at("event.reaction"), Fold: emoji},
				{Name: "keywords", Kind: Word, Fold: keyword, Ask: &Ask{Name: "message_text", Of: []Source{at("event.item.channel"), at("event.item.ts")}}},
				slackNamed("item_user_ids", "itemUsers", "user_names", at("event.item_user")),
			},
			Same:    []Source{at("team_id"), at("event.event_ts"), at("event.user"), at("event.reaction")},
			Subject: thing(thing(at("team_id"), "/", at("event.item.channel")), "/", at("event.item.ts")),
			By:      identified(at("event.user"), at("event.item_user")),
		},
		{
			Name: "member_joined_channel", Doc: "Somebody joins a channel.",
			In: [][]Condition{{slackType("member_joined_channel")}},
			Keys: []Key{
				slackNamed("channel_ids", "channels", "channel_names", at("event.channel")),
				slackNamed("user_ids", "users", "user_names", at("event.user")),
			},
			Same:    []Source{at("team_id"), at("event.channel"), at("event.user"), at("event.event_ts")},
			Subject: thing(at("team_id"), "/", at("event.channel")),
			By:      identified(at("event.user"), Source{}),
		},
	},
	Reply: &Event{
		Name: "thread_reply", Doc: "Somebody writes in a thread.",
		In: [][]Condition{
			{slackType("message"), slackByPerson, slackNew, {Source: at("event.thread_ts")}},
			{slackType("app_mention"), slackByPerson, slackUnedited, {Source: at("event.thread_ts")}},
		},
		Same: slackTime, Subject: slackThread, By: slackPerson, Text: at("event.text"),
	},
	// The payload is that of https://docs.slack.dev/reference/interaction-payloads/block_actions-payload.
	Click: &Event{
		Name: "button", Doc: "Somebody presses a button below an answer.",
		In:      [][]Condition{{{Source: at("type"), OneOf: []string{"block_actions"}}, {Source: at("actions[].action_id"), OneOf: []string{SlackApprove, SlackDecline}}}},
		Same:    []Source{at("team.id"), at("container.channel_id"), at("container.message_ts"), at("user.id"), at("actions[].action_ts")},
		Subject: thing(thing(at("team.id"), "/", at("container.channel_id")), "/", first("container.thread_ts", "container.message_ts")),
		By:      identified(at("user.id"), Source{}), Text: at("actions[].value"),
	},
}

// SlackApprove and SlackDecline name the buttons below an answer.
const (
	SlackApprove = "triphammer_approve"
	SlackDecline = "triphammer_decline"
)

var (
	slackMessage = []Key{
		slackNamed("channel_ids", "channels", "channel_names", at("event.channel")),
		slackNamed("user_ids", "users", "user_names", at("event.user")),
		{Name: "keywords", From: at("event.text"), Kind: Word, Fold: keyword},
	}
	slackTime = []Source{at("team_id"), at("event.channel"), at("event.ts")}

	// slackThread is the thread of a message: a message that is no reply begins one.
	slackThread = thing(thing(at("team_id"), "/", at("event.channel")), "/", first("event.thread_ts", "event.ts"))

	// slackPerson is who wrote a message; the author of a thread wrote its first message.
	slackPerson = identified(at("event.user"), first("event.parent_user_id", "event.user"))

	slackByPerson = Condition{Source: at("event.bot_id"), Not: true}
	// slackUnedited holds unless the message was edited: Slack sends an event for a mention that an edit adds, too.
	slackUnedited = Condition{Source: at("event.edited.ts"), Not: true}
	// slackNew holds for new messages, not for reports of a change, a removal or the like.
	slackNew = Condition{Source: mapped("other than new messages", at("event.subtype"), func(subtype string) []string {
		switch subtype {
		case "file_share", "thread_broadcast", "me_message":
			return nil
		}
		return []string{subtype}
	}), Not: true}
)

func slackType(name string) Condition {
	return Condition{Source: at("event.type"), OneOf: []string{name}}
}

func slackPosted(name, doc string, kinds ...string) *Event {
	return &Event{
		Name: name, Doc: doc,
		In:   [][]Condition{{slackType("message"), {Source: at("event.channel_type"), OneOf: kinds}, slackByPerson, slackNew}},
		Keys: slackMessage, Same: slackTime, Subject: slackThread, By: slackPerson,
	}
}

// slackNamed is a key of identifiers whose alias takes names. Payloads have no names, so the
// API is asked.
func slackNamed(name, alias, ask string, ids Source) Key {
	return Key{Name: name, From: ids, Alias: alias, Names: &Names{Ask: &Ask{Name: ask, Of: []Source{ids}}}}
}

// emoji is the name of an emoji without colons and skin tone.
func emoji(value string) string {
	value, _, _ = strings.Cut(strings.Trim(strings.TrimSpace(value), ":"), "::skin-tone-")
	return strings.ToLower(value)
}
