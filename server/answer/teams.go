package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

const teamsNeeds = "a bot that is in the team: the secret of apiSecretName is its TENANT/APPLICATION:PASSWORD"

// teamsSender answers in threads of Microsoft Teams, by
// https://learn.microsoft.com/azure/bot-service/rest-api/bot-framework-rest-connector-api-reference. An
// outgoing webhook cannot write: a bot that is in the team does. Bots cannot list messages.
var teamsSender = &Sender{
	Provider: "teams",
	Paces:    []Pace{{Writes: 7, Per: time.Second, Place: true}, {Writes: 60, Per: 30 * time.Second, Place: true}, {Writes: 1800, Per: time.Hour, Place: true}},
	MaxText:  25_000, // Teams takes 28 KB
	Place:    teamsPlace,
	Text:     (&dialect{write: teamsText, bytes: 25_000}).text,
	Post:     teamsPost, Edit: teamsEdit, Who: teamsWho,
	Needs: teamsNeeds,
}

// teamsActivity is what a text of Teams is.
type teamsActivity struct {
	Type     string        `json:"type"`
	Format   string        `json:"textFormat"`
	Text     string        `json:"text"`
	Entities []teamsEntity `json:"entities,omitempty"`
}

type teamsEntity struct {
	Type      string            `json:"type"`
	Text      string            `json:"text"`
	Mentioned map[string]string `json:"mentioned"`
}

// teamsAsker is an account and its name.
var teamsAsker = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(29:[\w-]{1,200}) ([^<>&]{1,200})$`) })

func teamsText(blocks []block, m Message) string {
	activity := teamsActivity{Type: "message", Format: "xml"}
	writer := htmlText{mention: func(asker string) string {
		parts := teamsAsker().FindStringSubmatch(asker)
		if parts == nil {
			return ""
		}
		name := "<at>" + html.EscapeString(parts[2]) + "</at>"
		activity.Entities = []teamsEntity{{"mention", name, map[string]string{"id": parts[1], "name": parts[2]}}}
		return name
	}}
	activity.Text = writer.text(blocks)
	return packed(activity)
}

func teamsPlace(_ *native.Event, d native.Delivery) (Place, error) {
	var b struct {
		ID           string
		From         struct{ ID, Name string }
		Conversation struct{ ID string }
		Data         struct {
			Channel struct{ ID string }
		} `json:"channelData"`
	}
	noted(d, &b)
	p := Place{Provider: "teams", Container: b.Data.Channel.ID, Thread: b.Conversation.ID}
	if b.From.ID != "" {
		p.Asker = b.From.ID + " " + oneLine(b.From.Name, 100)
	}
	if p.Thread == "" {
		return Place{}, errors.New("the event names no conversation")
	}
	return p, nil
}

// teamsLogin gives tokens to bots; {tenant} stands for the bot's.
var teamsLogin = "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"

// teamsBot is the credential of a bot.
var teamsBot = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:([\w.-]{1,100})/)?([0-9a-fA-F-]{36}):(\S+)$`) })

func teams(ctx context.Context, c *lookup.Client, api lookup.API) (*call, error) {
	bot := teamsBot().FindStringSubmatch(strings.TrimSpace(api.Secret.Reveal()))
	if bot == nil {
		return nil, lookup.Fail("Teams takes answers of a bot only: it needs "+teamsNeeds, true)
	}
	api = address(api, "teams")
	tenant := bot[1]
	tenant = cmp.Or(tenant, "botframework.com")
	token, err := c.Remember("teams token", api, bot[2], func() (string, error) {
		var answer struct {
			Token string `json:"access_token"`
		}
		err := c.Do(ctx, lookup.API{URL: strings.ReplaceAll(teamsLogin, "{tenant}", url.PathEscape(tenant))}, lookup.Request{Method: http.MethodPost, Reads: true, Into: &answer, Body: url.Values{
			"grant_type": {"client_credentials"}, "client_id": {bot[2]}, "client_secret": {bot[3]}, "scope": {"https://api.botframework.com/.default"},
		}, Explain: func(status int, _ []byte) (string, bool) {
			if status == http.StatusBadRequest || status == http.StatusUnauthorized {
				return "Microsoft does not take the bot's credential in apiSecretName", false
			}
			return "", false
		}})
		if err == nil && answer.Token == "" {
			err = lookup.Fail("gives the bot no token", false)
		}
		return answer.Token, err
	})
	if err != nil {
		return nil, err
	}
	return &call{ctx: ctx, client: c, api: api, header: http.Header{"Authorization": {"Bearer " + token}}, explain: func(status int, answer []byte) (string, bool) {
		switch {
		case status == http.StatusForbidden && has(answer, "archived"):
			return "the channel is archived", false
		case status == http.StatusForbidden && has(answer, "rate limit", "too many"):
			return "", true
		case status == http.StatusForbidden:
			return "the bot is not in the team; it needs " + teamsNeeds, false
		case status == http.StatusNotFound:
			return "the thread is gone, or the bot is not in the team", false
		case status == http.StatusPreconditionFailed:
			return "", true
		}
		return "", false
	}}, nil
}

func teamsWrite(ctx context.Context, c *lookup.Client, api lookup.API, method string, p Place, id, text string, into any) error {
	var activity teamsActivity
	if err := json.Unmarshal([]byte(text), &activity); err != nil || p.Thread == "" {
		return errNowhere
	}
	t, err := teams(ctx, c, api)
	if err != nil {
		return err
	}
	path := "/v3/conversations" + at(p.Thread) + "/activities"
	if id != "" {
		path += at(id)
	}
	return t.do(method, path, activity, into)
}

func teamsPost(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, _ string) (Posted, error) {
	var answer struct{ ID string }
	if err := teamsWrite(ctx, c, api, http.MethodPost, p, "", text, &answer); err != nil {
		return Posted{}, err
	}
	if answer.ID == "" {
		return Posted{}, errNoID
	}
	return Posted{ID: answer.ID}, nil
}

func teamsEdit(ctx context.Context, c *lookup.Client, api lookup.API, p Place, posted Posted, text string) error {
	return teamsWrite(ctx, c, api, http.MethodPut, p, posted.ID, text, new(struct{}))
}
