package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const slackNeeds = "the scopes chat:write and reactions:write, and channels:history, groups:history, im:history and mpim:history; the app must be in the channel"

// slackSender answers in threads of Slack, by https://docs.slack.dev/reference/methods.
var slackSender = &Sender{
	Provider: "slack",
	Paces:    []Pace{{Writes: 1, Per: time.Second, Place: true}, {Writes: 50, Per: time.Minute}},
	MaxText:  slackBytes,
	Place:    slackPlace,
	// Slack takes 4,000 characters of text, and the rest of the message is small.
	Text: func(m Message) string {
		d := dialect{write: slackMessage, bytes: slackBytes, chars: 4000}
		if m.Code != "" && m.Buttons {
			d.chars = 3000 // of the one section above the buttons
		}
		return d.text(m)
	},
	Sign: slackSign, Post: slackPost, Edit: slackEdit, Find: slackFind, Who: slackWho,
	Needs: slackNeeds, Outputs: slackOutputs,
}

const slackBytes = 16_000

// slackPayload is what a text of Slack is: the text, the code of its buttons, and a marker that people do not see.
type slackPayload struct {
	Text     string         `json:"text"`
	Code     string         `json:"code,omitempty"`
	Metadata *slackMetadata `json:"metadata,omitempty"`
}

type slackMetadata struct {
	Type    string            `json:"event_type"`
	Payload map[string]string `json:"event_payload"`
}

const slackEvent = "triphammer_answer"

func slackMessage(blocks []block, m Message) string {
	message := slackPayload{Text: slackText{}.text(blocks)}
	if m.Buttons {
		message.Code = m.Code
	}
	if m.Marker != "" {
		message.Metadata = &slackMetadata{slackEvent, map[string]string{"marker": mark(m.Marker)}}
	}
	return packed(message)
}

func slackPlace(e *native.Event, d native.Delivery) (Place, error) {
	var b struct {
		Team      string              `json:"team_id"`
		Workspace struct{ ID string } `json:"team"` // of a click
		Container struct {
			Channel string `json:"channel_id"`
			Ts      string `json:"message_ts"`
			Thread  string `json:"thread_ts"`
		}
		Event struct {
			Channel, User, Ts string
			Thread            string `json:"thread_ts"`
			Item              struct{ Channel, Ts string }
		}
	}
	noted(d, &b)
	p := Place{Provider: "slack", Team: b.Team, Container: b.Event.Channel, Thread: b.Event.Thread, Item: b.Event.Ts, ItemKind: "message"}
	if e == e.Sender.Click {
		p.Team, p.Container, p.Thread, p.Item = b.Workspace.ID, b.Container.Channel, b.Container.Thread, b.Container.Ts
	}
	p.Thread = cmp.Or(p.Thread, p.Item)
	if e.Name == "reaction_added" {
		p.Container, p.Thread, p.Item = b.Event.Item.Channel, b.Event.Item.Ts, b.Event.Item.Ts
	} else if b.Event.User != "" {
		p.Asker = "<@" + b.Event.User + ">"
	}
	if p.Container == "" || p.Thread == "" {
		return Place{}, errors.New("the event has no message whose thread could be answered in")
	}
	return p, nil
}

// slackSentences are what Slack's error codes mean.
var slackSentences = map[string]string{
	"is_archived": "the channel is archived", "channel_not_found": "the channel is gone, or the app is not in it",
	"not_in_channel": "the app is not in the channel", "thread_not_found": "the thread is gone", "message_not_found": "the message is gone",
	"thread_locked": "the thread is locked", "cant_update_message": "the message is not the app's own", "edit_window_closed": "the message can no longer be edited",
	"missing_scope": "the credential lacks a permission; it needs ", "not_allowed_token_type": "the credential lacks a permission; it needs ",
	"no_permission": "the credential lacks a permission; it needs ", "restricted_action": "a rule of the workspace forbids it", "msg_too_long": "the text is too long",
}

// slack calls a method. Slack answers 200 with an error, too.
func slack(ctx context.Context, c *lookup.Client, api lookup.API, method string, body any, into *slackAnswer) error {
	api = address(api, "slack")
	r := lookup.Request{Method: http.MethodPost, Path: "/" + method, Header: bearer(api), Body: body, Into: into, Told: &into.told}
	if query, is := body.(url.Values); is {
		r.Method, r.Path, r.Body = http.MethodGet, r.Path+"?"+query.Encode(), nil
	} else {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	if err := c.Do(ctx, api, r); err != nil || into.OK {
		return err
	}
	code := into.Error
	if len(code) > 50 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		code = ""
	}
	sentence, known := slackSentences[code]
	switch {
	case known:
		if strings.HasSuffix(sentence, "needs ") {
			sentence += slackNeeds
		}
		return lookup.Fail("answered "+code+": "+sentence, true)
	case code == "ratelimited" || code == "rate_limited":
		return lookup.Fail("answered "+code+": too many requests", false)
	case code == "invalid_auth" || code == "not_authed" || code == "token_revoked" || code == "token_expired" || code == "account_inactive":
		return lookup.Fail("answered "+code+": it does not take the secret of apiSecretName", false)
	case code == "" || code == "internal_error" || code == "fatal_error" || code == "request_timeout" || code == "service_unavailable":
		code = cmp.Or(code, "an error")
		if r.Method == http.MethodGet {
			return lookup.Fail("answered "+code, false)
		}
		return lookup.Unsure("answered " + code)
	}
	return &slackRefusal{lookup.Fail("answered "+code, true), code}
}

// slackRefusal is an error code without a sentence.
type slackRefusal struct {
	*lookup.Failure
	code string
}

// Unwrap implements errors.As.
func (s *slackRefusal) Unwrap() error { return s.Failure }

// slackAnswer is what the methods answer with.
type slackAnswer struct {
	OK          bool
	Error       string
	Ts, Channel string
	Bot         string `json:"bot_id"`
	User        string `json:"user_id"`
	Name        string `json:"user"`
	Messages    []struct {
		Ts, User string
		Bot      string `json:"bot_id"`
		Metadata slackMetadata
	}
	Next struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
	told http.Header
}

func slackSign(ctx context.Context, c *lookup.Client, api lookup.API, p Place) error {
	var answer slackAnswer
	err := slack(ctx, c, api, "reactions.add", map[string]string{"channel": p.Container, "timestamp": p.Item, "name": "eyes"}, &answer)
	if refused := (*slackRefusal)(nil); errors.As(err, &refused) && refused.code == "already_reacted" {
		return nil
	}
	return err
}

// slackBody is the body of a method that writes a text.
func slackBody(p Place, text string) (map[string]any, error) {
	var message slackPayload
	if err := json.Unmarshal([]byte(text), &message); err != nil || p.Container == "" {
		return nil, errNowhere
	}
	body := map[string]any{"channel": p.Container, "text": message.Text, "mrkdwn": true, "parse": "none", "link_names": false, "unfurl_links": false, "unfurl_media": false}
	if message.Metadata != nil {
		body["metadata"] = message.Metadata
	}
	if message.Code != "" {
		body["blocks"] = slackButtons(message.Text, message.Code)
	}
	return body, nil
}

// slackButtons are a text and the buttons that decide, each with the reply that it stands for, by
// https://docs.slack.dev/reference/block-kit/blocks/actions-block. The text of the message is then for
// notifications alone, and verbatim keeps Slack from making links and mentions of the words of the section.
func slackButtons(text, code string) []any {
	button := func(id, label, style, verb string) any {
		return map[string]any{"type": "button", "action_id": id, "style": style, "value": "triphammer " + verb + " " + code, "text": map[string]any{"type": "plain_text", "text": label}}
	}
	return []any{
		map[string]any{"type": "section", "expand": true, "text": map[string]any{"type": "mrkdwn", "text": text, "verbatim": true}},
		map[string]any{"type": "actions", "elements": []any{
			button(native.SlackApprove, "Approve", "primary", "approve"), button(native.SlackDecline, "Decline", "danger", "decline"),
		}},
	}
}

// Whisper tells a person in Slack why a click has decided nothing, so that nobody else sees it, by
// https://docs.slack.dev/reference/methods/chat.postEphemeral. click is the payload of the click.
func Whisper(ctx context.Context, c *lookup.Client, api lookup.API, click []byte, why string) error {
	var b struct {
		User      struct{ ID string }
		Container struct {
			Channel string `json:"channel_id"`
			Thread  string `json:"thread_ts"`
		}
	}
	if err := json.Unmarshal(click, &b); err != nil {
		return err
	}
	text := slackText{}.text([]block{{spans: guarded([]span{{text: oneLine(why, maxWhy)}})}})
	body := map[string]any{"channel": b.Container.Channel, "user": b.User.ID, "text": text, "parse": "none", "link_names": false}
	if b.Container.Thread != "" {
		body["thread_ts"] = b.Container.Thread
	}
	return slack(ctx, c, api, "chat.postEphemeral", body, &slackAnswer{})
}

func slackPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	body, err := slackBody(p, text)
	if err != nil {
		return Posted{}, err
	}
	if p.Thread != "" {
		body["thread_ts"] = p.Thread
	}
	var answer slackAnswer
	if err := slack(ctx, c, api, "chat.postMessage", body, &answer); err != nil {
		return Posted{}, err
	}
	if answer.Ts == "" {
		return Posted{}, errNoID
	}
	return Posted{ID: answer.Ts}, nil
}

func slackEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	body, err := slackBody(p, text)
	if err != nil {
		return err
	}
	if body["ts"] = posted.ID; body["blocks"] == nil {
		body["blocks"] = []any{} // without it, buttons could stay
	}
	return slack(ctx, c, api, "chat.update", body, &slackAnswer{})
}

func slackFind(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (Posted, bool, error) {
	own, err := self(c, api, "slack", func() (Account, error) { return slackWho(ctx, c, api) })
	if err != nil {
		return Posted{}, false, err
	}
	query, method := url.Values{"channel": {p.Container}, "ts": {p.Thread}, "include_all_metadata": {"true"}, "limit": {"200"}}, "conversations.replies"
	if p.Thread == "" { // a message of its own
		query.Del("ts")
		method = "conversations.history"
	}
	for range maxPages {
		var answer slackAnswer
		if err := slack(ctx, c, api, method, query, &answer); err != nil {
			return Posted{}, false, err
		}
		for _, m := range answer.Messages {
			if m.User == own && m.Metadata.Type == slackEvent && m.Metadata.Payload["marker"] == mark(marker) && m.Ts != "" {
				return Posted{ID: m.Ts}, true, nil
			}
		}
		if answer.Next.Cursor == "" {
			return Posted{}, false, nil
		}
		query.Set("cursor", answer.Next.Cursor)
	}
	return Posted{}, false, errLong
}
