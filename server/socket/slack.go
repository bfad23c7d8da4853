package socket

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"triphammer/factory"
	"triphammer/factory/native"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/secret"
	"triphammer/server/store"
)

const (
	maxFrame  = 4 << 20 // bytes of one message: far more than an accepted payload, so that a larger one is recorded
	maxAnswer = 64 << 10

	maxWhispers = 4 // at the same time, over one connection
)

// refusal is what Slack did in place of opening a connection, or of going on with one.
type refusal struct {
	text  string
	final bool          // another attempt would most likely get the same answer
	after time.Duration // how long Slack wants no request
}

func (r *refusal) Error() string { return r.text }

// connection is one connection to Slack. leaving is closed when Slack is about to close it.
type connection struct {
	*websocket.Conn
	leaving  chan struct{}
	beside   sync.WaitGroup // what runs beside it
	whispers chan struct{}  // full if as many people are told something as can be at the same time
}

// open opens a connection, and returns after Slack's greeting.
func (m *Manager) open(ctx context.Context, t target) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, m.times.open)
	defer cancel()
	base := t.api
	base = cmp.Or(base, native.ByProvider("slack").API)
	address, err := m.ask(ctx, base, t.token)
	if err != nil {
		return nil, err
	}
	if err := checkAddress(address, base); err != nil {
		return nil, err
	}
	ws, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: m.http})
	if err != nil {
		return nil, fmt.Errorf("%s, which Slack named: %w", secret.Origin(address), withoutAddress(resp, err))
	}
	ws.SetReadLimit(maxFrame)
	first, err := read(ctx, ws)
	if err == nil && first.Type != "hello" {
		err = &refusal{text: "Slack began with something other than its greeting"}
		if first.Type == "disconnect" {
			err = first.disconnected()
		}
	}
	if err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	return &connection{Conn: ws, leaving: make(chan struct{}), whispers: make(chan struct{}, maxWhispers)}, nil
}

// passing are the errors of Slack that pass by themselves.
var passing = []string{"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}

// ask asks Slack for the address of a connection. The address is a credential.
func (m *Manager) ask(ctx context.Context, base string, token secret.Value) (address string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/apps.connections.open", http.NoBody)
	if err != nil {
		return "", &refusal{text: "the address of Slack's API cannot be used", final: true}
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token.Reveal()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", "triphammer")
	resp, err := m.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s: %w", secret.Origin(base), withoutAddress(nil, err))
	}
	defer func() { _ = resp.Body.Close() }()
	seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	after := time.Duration(seconds) * time.Second
	if code := resp.StatusCode; code != http.StatusOK {
		return "", &refusal{text: fmt.Sprintf("Slack answered %d", code), after: after, final: code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout}
	}
	var answer struct {
		OK         bool
		Error, URL string
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return "", &refusal{text: "Slack answered something other than JSON"}
	}
	switch code := word(answer.Error); {
	case answer.OK:
		return answer.URL, nil
	case code == "ratelimited":
		return "", &refusal{text: "Slack answered " + code, after: after}
	default:
		text := "Slack answered " + code
		if slices.Contains([]string{"invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "not_allowed_token_type"}, code) {
			text += ": appTokenName must name an app-level token (xapp-…) that is in force"
		}
		return "", &refusal{text: text, final: !slices.Contains(passing, code)}
	}
}

var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_]{1,60}$`) })

// word is a code of Slack, but not any other text.
func word(code string) string {
	if !plainWord().MatchString(code) {
		return "something other than a code"
	}
	return code
}

// withoutAddress is the error of a request without the address, which can hold a secret.
func withoutAddress(resp *http.Response, err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	if resp != nil {
		return fmt.Errorf("answered %d, and opened no WebSocket", resp.StatusCode)
	}
	return errors.New("opened no WebSocket")
}

// checkAddress checks that a connection leads to Slack, or to the host of a configured API.
func checkAddress(address, base string) error {
	to, err := url.Parse(address)
	own, _ := url.Parse(base) // the definition was checked
	if err != nil || own == nil {
		return &refusal{text: "Slack named an address that cannot be used"}
	}
	host, scheme := strings.ToLower(to.Hostname()), "wss"
	if own.Scheme == "http" {
		scheme = "ws" // of a definition, only on this machine
	}
	for _, of := range []string{"slack.com", strings.ToLower(own.Hostname())} {
		if host == of || strings.HasSuffix(host, "."+of) {
			if to.Scheme == "wss" || to.Scheme == scheme && host == strings.ToLower(own.Hostname()) {
				return nil
			}
		}
	}
	return &refusal{text: "Slack named an address that is not wss:// on a host of Slack", final: true}
}

// envelope is a message of Slack.
type envelope struct {
	Type    string          `json:"type"`
	ID      string          `json:"envelope_id"`
	Payload json.RawMessage `json:"payload"`
	Reason  string          `json:"reason"` // of a disconnect
}

// parse reads a message of Slack. The payload keeps its bytes.
func parse(text []byte) (e envelope, err error) {
	if err := json.Unmarshal(text, &e); err != nil {
		return envelope{}, &refusal{text: "Slack sent something other than an envelope"}
	}
	return e, nil
}

func read(ctx context.Context, ws *websocket.Conn) (envelope, error) {
	kind, text, err := ws.Read(ctx)
	switch code := websocket.CloseStatus(err); {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return envelope{}, &refusal{text: fmt.Sprintf("Slack sent a message of more than %d MB", maxFrame>>20)}
	case code >= 0:
		return envelope{}, &refusal{text: fmt.Sprintf("Slack closed the connection (%d)", code)}
	case err != nil:
		return envelope{}, errors.New("the connection broke off")
	case kind != websocket.MessageText:
		return envelope{}, &refusal{text: "Slack sent something other than an envelope"}
	}
	return parse(text)
}

// soon are the reasons for which Slack wants another connection and closes this one soon.
var soon = []string{"warning", "refresh_requested"}

// disconnected is the error of a connection that Slack ends.
func (e envelope) disconnected() error {
	switch e.Reason {
	case "link_disabled":
		return &refusal{text: "Socket Mode is switched off for the app (link_disabled)", final: true}
	case "too_many_websockets":
		return &refusal{text: "the app has too many connections (too_many_websockets)", after: time.Minute}
	}
	return &refusal{text: "Slack ended the connection: " + word(e.Reason)}
}

// serve takes what comes over a connection until it ends, and closes it.
func (m *Manager) serve(ctx context.Context, c *connection, t target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		c.beside.Wait()
		_ = c.CloseNow()
	}()
	silent := false
	c.beside.Go(func() {
		if m.keepAlive(ctx, c) != nil && ctx.Err() == nil {
			silent = true
			cancel()
		}
	})
	for {
		e, err := read(ctx, c.Conn)
		if err != nil {
			cancel()
			c.beside.Wait()
			if silent {
				err = &refusal{text: "Slack did not answer a ping"}
			}
			return err
		}
		switch {
		case e.Type == "disconnect" && slices.Contains(soon, e.Reason):
			select {
			case <-c.leaving:
			default:
				close(c.leaving)
				defer time.AfterFunc(m.leave, cancel).Stop()
			}
		case e.Type == "disconnect":
			return e.disconnected()
		case e.ID != "":
			if err := m.take(ctx, c, t, e); err != nil {
				return err
			}
		}
	}
}

// keepAlive pings Slack until ctx is done, or an answer is missed.
func (m *Manager) keepAlive(ctx context.Context, c *connection) error {
	tick := time.NewTicker(m.ping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		waiting, cancel := context.WithTimeout(ctx, m.ping)
		err := c.Ping(waiting)
		cancel()
		if err != nil {
			return err
		}
	}
}

// take receives the delivery of an envelope, and acknowledges the envelope if the delivery was
// recorded, even if it was refused: it would be refused again. Slack sends again what is not
// acknowledged. The error says that the connection is broken.
func (m *Manager) take(serving context.Context, c *connection, t target, e envelope) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(serving), m.times.take) // what began before the end is acknowledged
	defer cancel()
	now := m.Now().UTC()
	m.change(t.uid, func(state *api.Connection) { state.LastEnvelope = &now })
	r := request(t.uid, e)
	answer := m.Receive(ctx, r)
	switch answer.Status {
	case http.StatusAccepted, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
	case http.StatusNotFound: // disabled or paused meanwhile
		m.Wake()
		return nil
	default:
		m.note(t, "an envelope is not acknowledged, so Slack sends it again", "an envelope was not taken: "+answer.Reason)
		return nil
	}
	id, _ := json.Marshal(e.ID) // a string always encodes
	if err := c.Write(ctx, websocket.MessageText, slices.Concat([]byte(`{"envelope_id":`), id, []byte(`}`))); err != nil {
		return errors.New("the connection broke off")
	}
	if _, why, refused := strings.Cut(answer.Decided, store.DecidesNothing); refused {
		m.whisper(serving, c, t, r, "This decides nothing: "+why)
	}
	return nil
}

// whisper tells whoever has clicked why that decides nothing. It is tried once, beside the connection, and left out
// if too many are told already.
func (m *Manager) whisper(ctx context.Context, c *connection, t target, r *delivery.Request, why string) {
	click, err := r.ReadBody(delivery.MaxBody)
	if err != nil {
		return
	}
	select {
	case c.whispers <- struct{}{}:
	default:
		return
	}
	c.beside.Go(func() {
		defer func() { <-c.whispers }()
		ctx, cancel := context.WithTimeout(ctx, m.times.take)
		defer cancel()
		if err := m.Whisper(ctx, t.uid, click, why); err != nil && ctx.Err() == nil {
			m.Logger.Warn("a person could not be told why a click decides nothing", "factory", t.factory, "webhook", t.webhook, "error", err)
		}
	})
}

// request is the delivery of an envelope, as Slack would bring it to a URL. What is neither an event nor a click on
// a button of ours is a form there, and refused.
func request(uid string, e envelope) *delivery.Request {
	r := &delivery.Request{UID: uid, Connected: true, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(e.Payload))}
	body, id, detail := e.Payload, "", ""
	var event struct {
		ID   string `json:"event_id"`
		Type string
	}
	_ = json.Unmarshal(e.Payload, &event) // of something else, nothing is known
	switch {
	case e.Type == "interactive" && event.Type == "block_actions":
		if body, id = click(e.Payload); body == nil {
			detail = "it is no click on a button below an answer of this server, so it decides nothing"
		}
	case e.Type == "interactive" && event.Type != "":
		detail = "Slack's " + word(event.Type) + " is no event and no button of an answer, so it starts nothing"
	case e.Type != "events_api":
		detail = "Slack's " + word(e.Type) + " is no event, so it starts nothing"
	case len(e.Payload) == 0 || bytes.Equal(e.Payload, []byte("null")):
		detail = "the envelope has no payload"
	default:
		id = event.ID
	}
	if id != "" {
		r.Header.Set(factory.SenderIDHeader, id)
	}
	r.ReadBody = func(int64) ([]byte, error) {
		if detail != "" {
			return nil, &delivery.BodyError{Reason: delivery.ReasonMalformed, Detail: detail, Got: r.ContentLength}
		}
		return body, nil
	}
	return r
}

// click is what is kept of a click on a button of an answer, and its identity; nil: it is none. Slack's payload, by
// https://docs.slack.dev/reference/interaction-payloads/block_actions-payload, also has an address to which whoever
// knows it can write, and the whole message.
func click(payload []byte) (kept []byte, id string) {
	type named struct {
		ID   string `json:"id"`
		Name string `json:"name,omitempty"`
	}
	var c struct {
		Type      string `json:"type"`
		Team      named  `json:"team"`
		User      named  `json:"user"`
		Container struct {
			Type    string `json:"type"`
			Channel string `json:"channel_id"`
			Message string `json:"message_ts"`
			Thread  string `json:"thread_ts,omitempty"`
		} `json:"container"`
		Actions []struct {
			ID    string `json:"action_id"`
			Value string `json:"value"`
			At    string `json:"action_ts"`
		} `json:"actions"`
	}
	if json.Unmarshal(payload, &c) != nil || len(c.Actions) != 1 || c.Container.Type != "message" || c.Container.Message == "" || c.User.ID == "" || c.Team.ID == "" {
		return nil, ""
	}
	command, is := native.Commanded(c.Actions[0].Value)
	if button := map[bool]string{true: native.SlackApprove, false: native.SlackDecline}[command.Approve]; !is || c.Actions[0].ID != button {
		return nil, ""
	}
	kept, err := json.Marshal(c)
	slack := native.ByProvider("slack")
	if p := slack.Read(native.Delivery{Body: kept}); err == nil && p.Is(slack.Click) {
		return kept, slack.Click.Identity(p)
	}
	return nil, ""
}
