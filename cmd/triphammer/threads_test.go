package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// talker is an agent that counts its turns in its home, which its session keeps. It waits if the payload says so.
const talker = `#!/bin/sh
cat >/dev/null
echo '{"type":"system","subtype":"init","model":"m","session_id":"s1"}'
echo turn >>"$HOME/turns"
case $(cat "$TRIPHAMMER_ATTACHMENTS/event-payload.json") in
*'wait here'*) trap 'exit 130' INT TERM; while :; do sleep 0.01; done;;
esac
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"this is turn '$(wc -l <"$HOME/turns")'"}]}}'
echo '{"type":"result","subtype":"success","session_id":"s1"}'
`

// newThreads is a world whose factory answers in threads with a talker.
func newThreads(t *testing.T, integrations, scheme, trigger, address string) *world {
	t.Helper()
	w := newWorld(t, map[string]string{
		"factory.yaml":           factoryYAML + "agentDefaults: {harness: {type: claude}, environmentId: talk}\nintegrations: " + integrations + "\n",
		"environments/talk.yaml": "timeoutMinutes: 1\n",
		"webhooks/hook.yaml":     "secretName: S\nauthMode: signature\nsignatureScheme: " + scheme + "\napiSecretName: API_TOKEN\napiURL: " + address + "\n",
		"automations/talk.md":    "---\ntriggers: [" + trigger + "]\n---\nAnswer.\n",
	})
	bin := filepath.Join(w.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(talker), 0o755); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "PATH="+bin+string(os.PathListSeparator)+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	w.run("xoxb-"+strings.Repeat("answer", 6), "secrets", "set", "API_TOKEN")
	w.start()
	return w
}

// sent sends a delivery as the sender signs it, and returns the newest delivery of the log.
func (w *world) sent(address, scheme string, header http.Header, payload map[string]any) api.Delivery {
	w.t.Helper()
	payload["webhookTimestamp"] = time.Now().UnixMilli()
	body, _ := json.Marshal(payload)
	s, _ := signature.Lookup(scheme)
	signed := &signature.Request{Header: header, Body: body, Now: time.Now()}
	if err := s.Sign(testSecret, signed); err != nil { // it may write its time into the body
		w.t.Fatal(err)
	}
	if a := post(w.t, http.MethodPost, address, bytes.NewReader(signed.Body), header); a.status != http.StatusAccepted {
		w.t.Fatalf("%+v", a)
	}
	var all []api.Delivery
	w.list(&all, "deliveries", "list")
	return all[0]
}

// eventually waits until something holds; said is what is printed if it never does.
func (w *world) eventually(holds func() bool, said func() string) {
	w.t.Helper()
	if err := client.WaitFor(w.t.Context(), 30*time.Second, "it", func() (bool, error) { return holds(), nil }); err != nil {
		w.t.Fatalf("%v: %s", err, said())
	}
}

// linearSessions plays the part of Linear's API that takes activities.
type linearSessions struct {
	mu   sync.Mutex
	ids  []string
	said map[string][]string // by session: type and text
	lost string              // the session whose next activity is taken and not confirmed
	hit  chan struct{}       // closed when that has happened
}

func (l *linearSessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Query     string
		Variables struct {
			ID    string
			Input struct {
				ID, AgentSessionID string
				Content            struct{ Type, Body string }
			}
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	l.mu.Lock()
	defer l.mu.Unlock()
	in := body.Variables.Input
	reply := func(data string) { _, _ = fmt.Fprint(w, data) }
	switch {
	case strings.Contains(body.Query, "agentActivityCreate") && slices.Contains(l.ids, in.ID):
		reply(`{"data":null,"errors":[{"message":"conflict","extensions":{"code":"INPUT_ERROR"}}]}`)
	case strings.Contains(body.Query, "agentActivityCreate"):
		l.ids = append(l.ids, in.ID)
		l.said[in.AgentSessionID] = append(l.said[in.AgentSessionID], in.Content.Type+": "+in.Content.Body)
		if l.lost == in.AgentSessionID {
			l.lost = ""
			close(l.hit)
			panic(http.ErrAbortHandler)
		}
		reply(`{"data":{"agentActivityCreate":{"success":true,"agentActivity":{"id":"` + in.ID + `"}}}}`)
	case strings.Contains(body.Query, "agentActivity(id") && slices.Contains(l.ids, body.Variables.ID):
		reply(`{"data":{"agentActivity":{"id":"` + body.Variables.ID + `"}}}`)
	case strings.Contains(body.Query, "viewer"): // without the texts, which have identifiers of ours
		reply(`{"data":{"viewer":{"id":"app"},"thing":{"texts":{"nodes":[],"pageInfo":{"hasNextPage":false}}}}}`)
	default:
		reply(`{"data":null,"errors":[{"message":"Entity not found","extensions":{"code":"INPUT_ERROR"}}]}`)
	}
}

// in are the activities of a session that have a text.
func (l *linearSessions) in(session, text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, said := range l.said[session] {
		if strings.Contains(said, text) {
			found = append(found, said)
		}
	}
	return found
}

// TestLinearSession: in an agent's session, a prompt goes on with the conversation, a stop cancels and is
// confirmed, and a session that nothing takes gets one error, whatever is killed (SPEC 21.6, 22.2).
func TestLinearSession(t *testing.T) {
	t.Parallel()
	l := &linearSessions{said: make(map[string][]string), hit: make(chan struct{})}
	linear := httptest.NewServer(l)
	defer linear.Close()
	w := newThreads(t, "[{type: linear}]", "linear", "{provider: linear, event: agent_session_created, filter: {keywords: [please]}}", linear.URL)
	address, n := w.url("hook"), 0
	send := func(session, action, text, signal string) api.Delivery {
		t.Helper()
		n++
		payload := map[string]any{
			"type": "AgentSessionEvent", "action": action,
			"agentSession": map[string]any{"id": session, "creatorId": "ada", "comment": map[string]any{"body": text}, "issue": map[string]any{"identifier": "ENG-4", "title": "t"}},
		}
		if action == "prompted" {
			payload["agentActivity"] = map[string]any{"id": fmt.Sprint("act-", n), "userId": "ada", "content": map[string]any{"type": "prompt", "body": text}, "signal": signal}
		}
		return w.sent(address, "linear", http.Header{"Linear-Event": {"AgentSessionEvent"}, "Linear-Delivery": {fmt.Sprint("dlv-", n)}}, payload)
	}
	says := func(session, text string) {
		t.Helper()
		w.eventually(func() bool { return len(l.in(session, text)) > 0 }, func() string { return fmt.Sprintf("%q is not said: %q", text, l.in(session, "")) })
	}
	send("s-1", "created", "please do it", "")
	says("s-1", "this is turn 1")
	send("s-1", "prompted", "more", "")
	says("s-1", "this is turn 2")
	n--
	if again := send("s-1", "prompted", "more", ""); again.Label != "Duplicate" {
		t.Errorf("the same prompt again: %+v", again)
	}
	if got := l.in("s-1", "response: "); len(got) != 2 || !strings.Contains(got[1], "this is turn 2") {
		t.Errorf("the responses are %q", got)
	}

	waits := send("s-1", "prompted", "wait here", "")
	w.eventually(func() bool {
		var runs []api.Run
		w.list(&runs, "runs", "list", "--state", "INPROGRESS")
		return len(runs) == 1
	}, func() string { return w.run("", "deliveries", "show", waits.ID) })
	stop := send("s-1", "prompted", "", "stop")
	says("s-1", "response: **talk** cancelled")
	if shown := w.run("", "deliveries", "show", stop.ID); !strings.Contains(shown, "it stops what is at work in its thread: run_") {
		t.Errorf("the belt of the stop:\n%s", shown)
	}
	send("s-1", "prompted", "", "stop")
	says("s-1", "response: **Triphammer** cancelled nothing: no run of this session is at work.")
	if elsewhere := send("s-2", "prompted", "more", ""); len(elsewhere.Runs) != 0 {
		t.Errorf("a prompt in a session without an answer starts %v", elsewhere.Runs)
	}

	l.mu.Lock()
	l.lost = "s-3"
	l.mu.Unlock()
	unmatched := send("s-3", "created", "do it", "")
	<-l.hit
	w.kill()
	w.ahead = 3 * time.Minute // the turn that was killed is over
	w.start()
	w.eventually(func() bool {
		return strings.Contains(w.run("", "deliveries", "show", unmatched.ID), "Linear was told that no automation takes it")
	}, func() string { return w.run("", "deliveries", "show", unmatched.ID) })
	if got := l.in("s-3", ""); len(got) != 1 || !strings.HasPrefix(got[0], "error: **Triphammer** has no automation for this session: ") || !strings.Contains(got[0], strings.TrimPrefix(unmatched.ID, "dlv_")) {
		t.Errorf("a session that nothing takes is told %q", got)
	}
}

// slackThreads plays the part of Slack's API that takes messages.
type slackThreads struct {
	mu   sync.Mutex
	said []string // thread and text
}

func (s *slackThreads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Text, Channel string
		Ts            string
		Thread        string `json:"thread_ts"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/chat.postMessage":
		s.said = append(s.said, body.Thread+": "+body.Text)
		body.Ts = fmt.Sprintf("9.%d", len(s.said))
	case "/chat.update":
		var n int
		_, _ = fmt.Sscanf(body.Ts, "9.%d", &n)
		thread, _, _ := strings.Cut(s.said[n-1], ": ")
		s.said[n-1] = thread + ": " + body.Text
	}
	_, _ = fmt.Fprintf(w, `{"ok":true,"channel":"C1","ts":%q,"permalink":"https://acme.slack.com/p1"}`, body.Ts)
}

func (s *slackThreads) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n")
}

// TestSlackReplies: a reply in a thread that the factory has answered goes on with the conversation, once, and
// a reply elsewhere starts nothing (SPEC 21.6).
func TestSlackReplies(t *testing.T) {
	t.Parallel()
	s := &slackThreads{}
	slack := httptest.NewServer(s)
	defer slack.Close()
	w := newThreads(t, "[{type: slack, slack: {autoRespondToThreadReplies: true}}]", "slack", "{provider: slack, event: app_mention}", slack.URL)
	address, n := w.url("hook"), 0
	send := func(kind, ts, thread string) api.Delivery {
		t.Helper()
		n++
		event := map[string]any{"type": kind, "channel_type": "channel", "channel": "C1", "user": "U1", "text": "hello", "ts": ts}
		if thread != "" {
			event["thread_ts"] = thread
		}
		return w.sent(address, "slack", http.Header{"Content-Type": {"application/json"}},
			map[string]any{"type": "event_callback", "event_id": fmt.Sprint("Ev", n), "team_id": "T1", "event": event})
	}
	says := func(text string) {
		t.Helper()
		w.eventually(func() bool { return strings.Contains(s.seen(), text) }, func() string { return "it is not said: " + text + "\n" + s.seen() })
	}
	send("app_mention", "1.0", "")
	says("this is turn 1")
	send("message", "2.0", "1.0")
	says("this is turn 2")
	twice := send("app_mention", "2.0", "1.0")
	if shown := w.run("", "deliveries", "show", twice.ID); !strings.Contains(shown, "another delivery reported the same event") {
		t.Errorf("the same reply as a mention:\n%s", shown)
	}
	send("app_mention", "3.0", "1.0")
	says("this is turn 3")
	for _, other := range []api.Delivery{send("message", "5.0", "4.0"), send("message", "6.0", "")} {
		if shown := w.run("", "deliveries", "show", other.ID); len(other.Runs) != 0 || !strings.Contains(shown, "did not want it") {
			t.Errorf("what is not in an answered thread starts %v:\n%s", other.Runs, shown)
		}
	}
	if got := s.seen(); strings.Count(got, "1.0: ") != strings.Count(got, "\n1.0: ")+1 || strings.Contains(got, "4.0: ") {
		t.Errorf("said %s", got)
	}
}
