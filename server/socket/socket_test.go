package socket

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/coder/websocket"

	"triphammer/applier"
	"triphammer/factory/native"
	"triphammer/server/delivery"
	"triphammer/server/secret"
	"triphammer/server/socket/sockettest"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

const appToken = "xapp-1-A1-token-that-nobody-may-see"

// quick are the times of the tests.
var quick = times{
	look: 20 * time.Millisecond, first: time.Millisecond, most: 20 * time.Millisecond, seldom: time.Hour, stable: time.Hour,
	leave: 10 * time.Second, ping: 10 * time.Second, open: 5 * time.Second, take: 5 * time.Second,
}

// log keeps what is logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// fixture is a Manager with a real store and delivery service, and the Slack that it connects to.
type fixture struct {
	*Manager
	t       *testing.T
	slack   *sockettest.Slack
	store   *store.Store
	live    *applier.Live
	service *delivery.Service
	logs    log
	receive func(context.Context, *delivery.Request) delivery.Answer // nil: the service
}

const slackFile = "authMode: signature\nsignatureScheme: slack\nconnect: socket\nappTokenName: APP\n"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, slack: sockettest.New(t), live: &applier.Live{}}
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if f.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	f.set("APP", appToken)
	f.define(map[string]string{"chat": f.file("")})
	f.service = delivery.New(delivery.Config{Live: f.live, Store: f.store, RateLimit: 60})
	f.Manager = New(Config{
		Live: f.live, Store: f.store, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&f.logs, nil)),
		Receive: func(ctx context.Context, r *delivery.Request) delivery.Answer {
			if f.receive != nil {
				return f.receive(ctx, r)
			}
			return f.service.Receive(ctx, r)
		},
	})
	f.times = quick
	return f
}

// file is the file of a webhook that connects to the fixture's Slack.
func (f *fixture) file(more string) string { return slackFile + "apiURL: " + f.slack.API + "\n" + more }

func (f *fixture) set(name, value string) {
	f.t.Helper()
	if _, err := f.store.Secrets.Set(f.t.Context(), name, secret.New(value)); err != nil {
		f.t.Fatal(err)
	}
}

// define makes definitions live: webhooks by name, and an automation that mentions start.
func (f *fixture) define(webhooks map[string]string) {
	f.t.Helper()
	tree := fstest.MapFS{
		"factory.yaml":      {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
		"automations/on.md": {Data: []byte("---\ntriggers: [{provider: slack, event: app_mention}]\n---\nAnswer.\n")},
	}
	for name, text := range webhooks {
		tree["webhooks/"+name+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	built, err := applier.Build(f.t.Context(), applier.BuildInput{Factory: "default", Tree: tree, Secrets: func(context.Context, []string) (map[string]applier.SecretValue, error) {
		value := applier.NewSecretValue(1, "a-signing-secret")
		return map[string]applier.SecretValue{"APP": value, "S": value, "OTHER": value}, nil
	}})
	if err != nil || built.Revision == nil {
		f.t.Fatal(err, built)
	}
	f.live.Swap(built.Revision)
}

// start runs the Manager until the end of the test, or until stop is called.
func (f *fixture) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					f.t.Error(err)
				}
			case <-time.After(20 * time.Second):
				f.t.Error("Run does not end")
			}
		})
	}
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) deliveries() []*store.Delivery {
	f.t.Helper()
	all, err := f.store.Deliveries.List(f.t.Context(), store.DeliveryQuery{Limit: 100})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// until waits until something is true.
func (f *fixture) until(what string, is func() bool) {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(end) {
			f.t.Fatalf("it does not become true that %s; %+v\n%s", what, f.State("whk_chat"), f.logs.String())
		}
		runtime.Gosched()
		<-time.After(time.Millisecond)
	}
}

// mention is the payload of an event.
func mention(id string) string {
	return fmt.Sprintf(`{ "token":"x", "team_id":"T1","event":{"type":"app_mention","user":"U1","text":"<@U2> do it \u00fc","ts":"1.%s","channel":"C1"},  "type":"event_callback","event_id":%q}`, id, id)
}

// TestEvents: an event is a delivery, its payload is kept byte for byte, and it starts its run. Slack
// gets the acknowledgement when the delivery can be read. A repetition is a duplicate; what is no
// event, or too large, is refused and acknowledged (SPEC 29.1).
func TestEvents(t *testing.T) {
	f := newFixture(t)
	f.start()
	p := f.slack.Next()
	take := func(envelope, kind, payload string) *store.Delivery {
		t.Helper()
		p.Envelope(envelope, kind, payload)
		if got := p.Acked(); got != envelope {
			t.Fatalf("acknowledged %q, want %q\n%s", got, envelope, f.logs.String())
		}
		return f.deliveries()[0]
	}
	d := take("e1", "events_api", mention("Ev1"))
	if d.Outcome != store.Accepted || len(d.Runs) != 1 || d.Identity.Value != "Ev1" || d.Webhook != "chat" || d.SecretGeneration != 0 {
		t.Errorf("%+v", d)
	}
	if body, err := f.store.Deliveries.Payload(t.Context(), d.ID); err != nil || string(body) != mention("Ev1") {
		t.Errorf("%s, %v", body, err)
	}
	trace, err := f.service.Show(t.Context(), d.ID)
	if err != nil || !strings.Contains(fmt.Sprint(trace.Belt), "over the connection that APP opens") {
		t.Errorf("%v, %v", trace.Belt, err)
	}
	if d := take("e2", "events_api", strings.Replace(mention("Ev1"), `"token":"x"`, `"token":"y"`, 1)); d.Outcome != store.Duplicate {
		t.Errorf("an event that comes again: %+v", d)
	}
	for kind, payload := range map[string]string{"interactive": `{"type":"block_actions"}`, "slash_commands": `{"command":"/do"}`, "new_kind": `[1]`, "odd\n": `{}`} {
		if d := take("e3-"+strings.TrimSpace(kind), kind, payload); d.Outcome != store.RejectedInvalidJSON || d.Size != int64(len(payload)) || !strings.Contains(d.Detail, "is no ") || strings.Contains(d.Detail, "\n") {
			t.Errorf("%s: %+v", kind, d)
		}
	}
	for _, payload := range []string{`null`, `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`} {
		if d := take("e4", "events_api", payload); d.Outcome != store.RejectedInvalidJSON && len(payload) < 10 {
			t.Errorf("%+v", d)
		}
	}
	if d := take("e5", "events_api", `"`+strings.Repeat("x", delivery.MaxBody)+`"`); d.Outcome != store.RejectedTooLarge {
		t.Errorf("%+v", d)
	}
	if d := take("e6", "events_api", `{"event_id":7,"a":1}`); d.Outcome != store.Accepted || d.Identity.Source != store.IdentityBody {
		t.Errorf("%+v", d)
	}
	p.Send(`{"type":"something","no":"id"}`)
	if d := take(`e"7`, "events_api", mention("Ev7")); d.Outcome != store.Accepted {
		t.Errorf("%+v", d)
	}
	state := f.State("whk_chat")
	if state == nil || state.Since == nil || state.LastEnvelope == nil || state.Error != "" {
		t.Errorf("%+v", state)
	}
}

// TestAcknowledge: nothing is acknowledged whose delivery is not committed, also if the connection
// ends meanwhile; Slack sends it again, and it is taken once (SPEC 29.1).
func TestAcknowledge(t *testing.T) {
	f := newFixture(t)
	var refuse sync.Map // by event id: how the store fails
	committed := make(chan struct{})
	f.receive = func(ctx context.Context, r *delivery.Request) delivery.Answer {
		id := r.Header.Get("X-Service-Delivery-Id")
		if _, fails := refuse.LoadAndDelete(id); fails {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			return f.service.Receive(gone, r) // the store cannot commit it
		}
		if id == "Slow" {
			<-committed
		}
		answer := f.service.Receive(ctx, r)
		if id == "Slow" {
			committed <- struct{}{}
		}
		return answer
	}
	f.start()
	p := f.slack.Next()
	refuse.Store("Ev1", true)
	p.Envelope("lost", "events_api", mention("Ev1"))
	p.Envelope("kept", "events_api", mention("Ev2"))
	if got := p.Acked(); got != "kept" {
		t.Errorf("acknowledged %q", got)
	}
	if state := f.State("whk_chat"); !strings.Contains(state.Error, "not taken: unavailable") || state.Since == nil {
		t.Errorf("%+v", state)
	}
	p.Envelope("again", "events_api", mention("Ev1"))
	if got := p.Acked(); got != "again" {
		t.Errorf("acknowledged %q", got)
	}
	p.Envelope("slow", "events_api", mention("Slow"))
	committed <- struct{}{} // the delivery has begun
	p.Kill()
	<-committed
	next := f.slack.Next()
	next.Envelope("slow again", "events_api", mention("Slow"))
	committed <- struct{}{}
	<-committed
	if got := next.Acked(); got != "slow again" {
		t.Errorf("acknowledged %q", got)
	}
	runs := 0
	for _, d := range f.deliveries() {
		runs += len(d.Runs)
	}
	if runs != 3 {
		t.Errorf("%d runs of three events", runs)
	}
}

// TestReconnect: whatever ends a connection, in whatever state, the next one takes events.
func TestReconnect(t *testing.T) {
	const message = websocket.MessageText
	ctx := context.Background()
	greets := func(texts ...string) func(*sockettest.Slack) {
		return func(s *sockettest.Slack) {
			s.Greet = func(n int, ws *websocket.Conn) bool {
				if n == 1 {
					for _, text := range texts {
						_ = ws.Write(ctx, message, []byte(text))
					}
					return false
				}
				return ws.Write(ctx, message, []byte(sockettest.Hello)) == nil
			}
		}
	}
	answers := func(status int, text string) func(*sockettest.Slack) {
		return func(s *sockettest.Slack) {
			s.Answer = func(_ string, asked int) (int, string) {
				if asked == 1 {
					return status, text
				}
				return 0, ""
			}
		}
	}
	sends := func(text string) func(*sockettest.Peer) { return func(p *sockettest.Peer) { p.Send(text) } }
	for name, c := range map[string]struct {
		slack func(*sockettest.Slack)
		peer  func(*sockettest.Peer)
		says  string
	}{
		"no answer":             {slack: answers(500, "oops"), says: "Slack answered 500"},
		"no JSON":               {slack: answers(200, "<html>"), says: "something other than JSON"},
		"an internal error":     {slack: answers(200, `{"ok":false,"error":"internal_error"}`), says: "Slack answered internal_error"},
		"too many requests":     {slack: answers(429, ""), says: "Slack answered 429"},
		"rate limit":            {slack: answers(200, `{"ok":false,"error":"ratelimited"}`), says: "ratelimited"},
		"no greeting":           {slack: greets(), says: "broke off"},
		"another greeting":      {slack: greets(`{"type":"hi"}`), says: "other than its greeting"},
		"closed after greeting": {slack: greets(sockettest.Hello), says: "broke off"},
		"killed":                {peer: (*sockettest.Peer).Kill, says: "broke off"},
		"closed":                {peer: func(p *sockettest.Peer) { _ = p.WS.Close(websocket.StatusGoingAway, "secret text") }, says: "closed the connection (1001)"},
		"garbage":               {peer: sends(`{"envelope_id":`), says: "other than an envelope"},
		"a list":                {peer: sends(`[]`), says: "other than an envelope"},
		"bytes":                 {peer: func(p *sockettest.Peer) { _ = p.WS.Write(ctx, websocket.MessageBinary, []byte(`{}`)) }, says: "other than an envelope"},
		"a huge message":        {peer: func(p *sockettest.Peer) { _ = p.WS.Write(ctx, message, make([]byte, maxFrame+1)) }, says: "more than 4 MB"},
		"an unknown reason":     {peer: sends(`{"type":"disconnect","reason":"some text <of> others"}`), says: "something other than a code"},
		"a warning":             {peer: sends(`{"type":"disconnect","reason":"warning"}`)},
		"a refresh":             {peer: sends(`{"type":"disconnect","reason":"refresh_requested"}`)},
		"a warning and a kill":  {peer: func(p *sockettest.Peer) { p.Send(`{"type":"disconnect","reason":"warning"}`); p.Kill() }},
		"two warnings in a row": {peer: func(p *sockettest.Peer) {
			sends(`{"type":"disconnect","reason":"warning"}`)(p)
			sends(`{"type":"disconnect","reason":"warning"}`)(p)
		}},
		"an event and a refresh": {peer: func(p *sockettest.Peer) {
			p.Envelope("a", "events_api", mention("EvA"))
			sends(`{"type":"disconnect","reason":"refresh_requested"}`)(p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if c.slack != nil {
				c.slack(f.slack)
			}
			f.start()
			if c.peer != nil {
				c.peer(f.slack.Next())
			}
			next := f.slack.Next()
			next.Envelope("e", "events_api", mention("Ev1"))
			if got := next.Acked(); got != "e" {
				t.Errorf("acknowledged %q", got)
			}
			f.until("the state tells what happened", func() bool { return strings.Contains(f.State("whk_chat").Error, c.says) })
			f.clean()
		})
	}
}

// clean checks that no secret was logged or shown.
func (f *fixture) clean() {
	f.t.Helper()
	shown := f.logs.String() + string(f.Report())
	for _, secret := range []string{appToken, sockettest.Ticket, "secret text", "<of>"} {
		if strings.Contains(shown, secret) {
			f.t.Errorf("%q is shown: %s", secret, shown)
		}
	}
}

// TestRefresh: before Slack closes a connection, the next one is open; the old one takes what still
// comes over it, and ends.
func TestRefresh(t *testing.T) {
	f := newFixture(t)
	f.leave = 300 * time.Millisecond
	f.start()
	old := f.slack.Next()
	old.Send(`{"type":"disconnect","reason":"refresh_requested","debug_info":{"host":"x"}}`)
	next := f.slack.Next()
	for n, p := range []*sockettest.Peer{old, next} {
		id := fmt.Sprint("e", n)
		p.Envelope(id, "events_api", mention(id))
		if got := p.Acked(); got != id {
			t.Errorf("connection %d acknowledged %q", n, got)
		}
	}
	old.End()
	if state := f.State("whk_chat"); state.Since == nil || state.Error != "" {
		t.Errorf("%+v", state)
	}
	if n := f.slack.Open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
}

// TestRefused: Slack is not asked again and again when it refuses the token or the app, which is
// logged once. A new value of the secret is tried at once.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ answer, reason, says string }{
		"token":     {`{"ok":false,"error":"invalid_auth"}`, "", "Slack answered invalid_auth: appTokenName must name"},
		"unknown":   {`{"ok":false,"error":"some_new_reason"}`, "", "some_new_reason"},
		"text":      {`{"ok":false,"error":"Text <of> others"}`, "", "something other than a code"},
		"elsewhere": {`{"ok":true,"url":"wss://evil.example.com/link?ticket=` + sockettest.Ticket + `"}`, "", "not wss:// on a host of Slack"},
		"link":      {"", "link_disabled", "Socket Mode is switched off"},
		"too many":  {"", "too_many_websockets", "too many connections"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			const renewed = "xapp-1-A1-the-new-one"
			var mu sync.Mutex
			fixed := false
			f.slack.Answer = func(token string, _ int) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				if fixed = token == renewed; fixed || c.answer == "" {
					return 0, ""
				}
				return 200, c.answer
			}
			f.slack.Greet = func(_ int, ws *websocket.Conn) bool {
				mu.Lock()
				defer mu.Unlock()
				if fixed {
					return ws.Write(context.Background(), websocket.MessageText, []byte(sockettest.Hello)) == nil
				}
				_ = ws.Write(context.Background(), websocket.MessageText, []byte(`{"type":"disconnect","reason":"`+c.reason+`"}`))
				return false
			}
			f.start()
			f.until("the state tells why", func() bool {
				state := f.State("whk_chat")
				return state != nil && state.Since == nil && strings.Contains(state.Error, c.says)
			})
			for range 5 {
				f.Wake()
				<-time.After(f.look)
			}
			if n := f.slack.Asked(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if n := strings.Count(f.logs.String(), "is not open"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, f.logs.String())
			}
			f.set("APP", renewed)
			f.slack.Next()
			f.until("the connection is open", func() bool { return f.State("whk_chat").Since != nil })
			f.clean()
		})
	}
}

// TestFollow: connections follow the definitions, the pauses and the secrets; two webhooks do not
// share a token.
func TestFollow(t *testing.T) {
	f := newFixture(t)
	f.start()
	p := f.slack.Next()
	f.define(map[string]string{"chat": f.file(""), "plain": "secretName: S\n"})
	f.Wake()
	p.Envelope("e", "events_api", mention("Ev1"))
	if p.Acked() != "e" {
		t.Error("another apply ends the connection")
	}

	f.define(map[string]string{"chat": f.file("enabled: false\n")})
	f.Wake()
	p.End()
	f.until("nothing is shown of it", func() bool { return f.State("whk_chat") == nil })
	f.define(map[string]string{"chat": f.file(""), "other": strings.Replace(f.file(""), "APP", "OTHER", 1)})
	f.Wake()
	p = f.slack.Next()
	f.until("the missing secret is told", func() bool {
		state := f.State("whk_other")
		return state != nil && strings.Contains(state.Error, "secrets set OTHER")
	})
	first := *f.State("whk_other").ErrorAt
	f.until("it is found again", func() bool { return f.State("whk_other").ErrorAt.After(first) })
	if n := strings.Count(f.logs.String(), "secrets set OTHER"); n != 1 {
		t.Errorf("the missing secret is logged %d times", n)
	}
	f.set("OTHER", appToken)
	f.until("the shared token is told", func() bool { return strings.Contains(f.State("whk_other").Error, "the same token") })
	f.set("OTHER", `{"githubApp": {"id": 1, "key": "x"}}`)
	f.until("the App is told", func() bool { return strings.Contains(f.State("whk_other").Error, "is a GitHub App") })
	if n := f.slack.Asked(); n != 2 {
		t.Errorf("Slack was asked %d times, also with the key of an App", n)
	}
	f.set("OTHER", "xapp-other")
	other := f.slack.Next()

	what := store.Pausable{Kind: store.KindWebhook, Factory: "default", Name: "chat"}
	if _, err := f.store.Pauses.Pause(t.Context(), store.Pause{Pausable: what, By: "ada"}); err != nil {
		t.Fatal(err)
	}
	p.End()
	if err := f.store.Pauses.Resume(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	p = f.slack.Next()
	f.define(nil)
	f.Wake()
	p.End()
	other.End()
	if n := f.slack.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// TestEnd: when Run returns, nothing of it is left, in whatever state it was. What has begun is
// acknowledged before.
func TestEnd(t *testing.T) {
	f := newFixture(t)
	begun := make(chan struct{})
	proceed := make(chan struct{})
	f.receive = func(ctx context.Context, r *delivery.Request) delivery.Answer {
		close(begun)
		<-proceed
		return f.service.Receive(ctx, r)
	}
	stop := f.start()
	p := f.slack.Next()
	p.Envelope("last", "events_api", mention("Ev1"))
	<-begun
	time.AfterFunc(20*time.Millisecond, func() { close(proceed) })
	stop()
	if got := p.Acked(); got != "last" {
		t.Errorf("acknowledged %q", got)
	}
	p.End()
	if f.State("whk_chat") != nil {
		t.Error("a state is shown of a connection that nobody holds")
	}
	f.Show([]byte(`{"whk_chat":{"error":"of the leader"}}`))
	if f.State("whk_chat").Error != "of the leader" {
		t.Error("the leader's state is not shown")
	}

	mute := newFixture(t) // it hangs before the greeting
	reached := make(chan struct{})
	mute.slack.Greet = func(_ int, ws *websocket.Conn) bool {
		close(reached)
		_, _, _ = ws.Read(context.Background())
		return false
	}
	stop = mute.start()
	<-reached
	stop()
	mute.until("nothing of it runs", func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*Manager)."))
	})
}

// TestPing: a Slack that answers no ping loses the connection.
func TestPing(t *testing.T) {
	f := newFixture(t)
	f.ping = 30 * time.Millisecond
	noticed := make(chan struct{})
	f.slack.Greet = func(n int, ws *websocket.Conn) bool {
		_ = ws.Write(context.Background(), websocket.MessageText, []byte(sockettest.Hello))
		if n == 1 {
			<-noticed // it reads nothing, so it answers no ping
		}
		return n > 1
	}
	f.start()
	defer close(noticed)
	f.until("the silence is noticed", func() bool {
		state := f.State("whk_chat")
		return state != nil && strings.Contains(state.Error, "ping")
	})
	f.slack.Next()
}

// TestAddress: connections go to Slack, or to the host of a configured API, never to link-local
// addresses.
func TestAddress(t *testing.T) {
	const slack, gov, local = "https://slack.com/api", "https://slack-gov.com/api", "http://127.0.0.1:8080/api"
	for _, c := range []struct {
		address, base string
		ok            bool
	}{
		{"wss://wss-primary.slack.com/link/?ticket=x", slack, true},
		{"wss://SLACK.com/link", slack, true},
		{"ws://wss-primary.slack.com/link", slack, false},
		{"https://wss-primary.slack.com/link", slack, false},
		{"wss://slack.com.evil.example/link", slack, false},
		{"wss://evilslack.com/link", slack, false},
		{"wss://slack.com@evil.example/link", slack, false},
		{"wss://wss.slack-gov.com/link", slack, false},
		{"wss://wss.slack-gov.com/link", gov, true},
		{"ws://127.0.0.1:9/link", slack, false},
		{"ws://127.0.0.1:9/link", local, true},
		{"ws://wss-primary.slack.com/link", local, false},
		{"ws://169.254.169.254/link", local, false},
		{"", slack, false},
		{"%", slack, false},
		{"wss:///x", slack, false},
	} {
		if err := checkAddress(c.address, c.base); (err == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.address, c.base, err)
		}
	}
	m := New(Config{})
	if _, err := m.ask(t.Context(), "http://169.254.169.254", secret.New("x")); err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("%v", err)
	}
	if _, err := m.ask(t.Context(), "http://\x00", secret.New("x")); err == nil {
		t.Error("an address that is none")
	}
}

// FuzzEnvelope: no message is too odd to be read, and a payload is a part of its message.
func FuzzEnvelope(f *testing.F) {
	for _, text := range []string{sockettest.Hello, `{"envelope_id":"a","type":"events_api","payload":` + mention("Ev1") + `}`, `{"type":"disconnect","reason":"warning"}`, `{"payload":null}`, `[]`, ``, `{"envelope_id":7}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parse(text)
		if err != nil {
			return
		}
		if !bytes.Contains(text, e.Payload) {
			t.Errorf("%q is not in %q", e.Payload, text)
		}
		r := request("whk_x", e)
		body, err := r.ReadBody(delivery.MaxBody)
		if err == nil && (e.Type != "events_api" || !bytes.Equal(body, e.Payload)) || r.ContentLength != int64(len(e.Payload)) {
			t.Errorf("%q, %v", body, err)
		}
		_ = e.disconnected()
		var header http.Header = r.Header
		if len(header.Get("X-Service-Delivery-Id")) > len(text) {
			t.Error("an identity that nobody sent")
		}
	})
}

// FuzzClick: whatever comes, what is kept of a click has one action with the reply that it stands for, an identity, and
// nothing else of the payload (SPEC 26.2).
func FuzzClick(f *testing.F) {
	f.Add([]byte(`{"type":"block_actions","token":"t","response_url":"https://x.example","team":{"id":"T1"},"user":{"id":"U1"},"container":{"type":"message","message_ts":"1.2","channel_id":"C1"},"actions":[{"action_id":"triphammer_approve","value":"triphammer approve ABCD2345","action_ts":"3.4"}]}`))
	f.Add([]byte(`{"type":"block_actions","actions":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		kept, id := click(payload)
		if kept == nil {
			return
		}
		c, who, ok := native.ByProvider("slack").Commanded(native.Delivery{Body: kept})
		if !ok || len(c.Code) != 8 || who.Login == "" || id == "" || bytes.Contains(kept, []byte(`"response_url":`)) {
			t.Errorf("%s is kept as %s, %q", payload, kept, id)
		}
		if again, same := click(kept); !bytes.Equal(again, kept) || same != id {
			t.Errorf("%s becomes %s", kept, again)
		}
	})
}
