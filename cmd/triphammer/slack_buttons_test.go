package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/socket/sockettest"
)

// TestSlackButtons: what waits for a person has buttons in its thread in Slack. A click decides once, also if the
// server was killed meanwhile, as whoever has clicked; a forged click, or that of somebody else, decides nothing, and
// whoever made it is told why (SPEC 26.2).
func TestSlackButtons(t *testing.T) {
	t.Parallel()
	slack := sockettest.New(t)
	files := socketFiles(slack)
	files["webhooks/chat.yaml"] += "apiSecretName: API_TOKEN\nsecretName: S\nreport: thread\n"
	files["automations/asked.md"] = "---\nenvironmentId: env\ntriggers: [{provider: slack, event: app_mention}]\napproval: [start]\napprovers: [UADA, U1]\n---\nAnswer.\n"
	files["automations/any.md"] = "---\nenvironmentId: env\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [chat], payload: {type: [block_actions]}}}]\n---\nAnswer.\n"
	w := newWorld(t, files)
	w.run("xapp-1-first", "secrets", "set", "APP")
	w.run("xoxb-"+strings.Repeat("button", 6), "secrets", "set", "API_TOKEN")
	w.start()
	p, envelopes := slack.Next(), 0
	send := func(kind, payload string) api.Delivery {
		t.Helper()
		envelopes++
		id := fmt.Sprint("e", envelopes)
		p.Envelope(id, kind, payload)
		if got := p.Acked(); got != id {
			t.Fatalf("acknowledged %q, and not %s", got, id)
		}
		var all []api.Delivery
		w.list(&all, "deliveries", "list")
		return all[0]
	}
	runs := func() (all []api.Run) {
		w.list(&all, "runs", "list")
		return all
	}
	calls := func() string { return fmt.Sprint(slack.Calls("chat.postMessage"), slack.Calls("chat.update")) }
	// waits starts a run that waits, and returns its buttons: the message, and the values by the action.
	waits := func(id string) (run, message string, values map[string]string) {
		t.Helper()
		send("events_api", mention(id))
		run = runs()[0].RunID
		var call sockettest.Call
		w.eventually(func() bool {
			for _, c := range slack.Calls("chat.postMessage") {
				if c.Body["thread_ts"] == "1."+id {
					call = c
				}
			}
			return call.Body["blocks"] != nil
		}, calls)
		text, _ := json.Marshal(call.Body["blocks"])
		var blocks []struct {
			Type string
			Text struct {
				Text     string
				Verbatim bool
			}
			Elements []struct {
				Action string `json:"action_id"`
				Value  string
			}
		}
		if err := json.Unmarshal(text, &blocks); err != nil || len(blocks) != 2 || len(blocks[1].Elements) != 2 || blocks[0].Text.Text != call.Body["text"] || !blocks[0].Text.Verbatim {
			t.Fatalf("%v: %s", err, text)
		}
		values = make(map[string]string)
		for _, e := range blocks[1].Elements {
			values[e.Action] = e.Value
		}
		return run, call.TS, values
	}
	at := 0
	click := func(team, user, thread, message, action, value string) string {
		at++
		return fmt.Sprintf(`{"type":"block_actions","team":{"id":%q},"user":{"id":%q,"name":"x"},"token":"secret-of-slack","response_url":"https://evil.example.com/actions",
			"container":{"type":"message","message_ts":%q,"channel_id":"C1","thread_ts":%q},"message":{"text":"edited","blocks":[]},
			"actions":[{"type":"button","action_id":%q,"block_id":"b","value":%q,"action_ts":"17.%d"}]}`, team, user, message, thread, action, value, at)
	}
	state := func(run string) string {
		var r api.Run
		w.list(&r, "runs", "show", run)
		return r.State
	}
	first, below, values := waits("Ev1")
	other, otherBelow, otherValues := waits("Ev2")
	const approve, decline = "triphammer_approve", "triphammer_decline"
	for name, c := range map[string]struct{ click, belt string }{
		"nobody who may":            {click("T1", "UEVE", "1.Ev1", below, approve, values[approve]), "a click that decides nothing: slack:UEVE may not approve here"},
		"whoever caused it":         {click("T1", "U1", "1.Ev1", below, approve, values[approve]), "has caused the event of " + first},
		"another text":              {click("T1", "UADA", "1.Ev1", "9.9", approve, values[approve]), "nothing that waited in this thread has the code"},
		"another workspace":         {click("T2", "UADA", "1.Ev1", below, approve, values[approve]), "nothing that waited in this thread has the code"},
		"another run":               {click("T1", "UADA", "1.Ev1", below, approve, otherValues[approve]), "nothing that waited in this thread has the code"},
		"another thread":            {click("T1", "UADA", "1.Ev2", below, approve, values[approve]), "nothing that waited in this thread has the code"},
		"another action":            {click("T1", "UADA", "1.Ev1", below, "approve", values[approve]), "no click on a button below an answer"},
		"another value":             {click("T1", "UADA", "1.Ev1", below, decline, values[approve]), "no click on a button below an answer"},
		"no command":                {click("T1", "UADA", "1.Ev1", below, approve, "yes"), "no click on a button below an answer"},
		"a view":                    {`{"type":"view_submission","team":{"id":"T1"},"user":{"id":"UADA"}}`, "Slack's view_submission is no event and no button"},
		"a shortcut":                {`{"type":"message_action","team":{"id":"T1"},"user":{"id":"UADA"}}`, "Slack's message_action is no event and no button"},
		"of a text for nobody else": {strings.Replace(click("T1", "UADA", "1.Ev1", below, approve, values[approve]), `"type":"message"`, `"type":"view"`, 1), "no click on a button below an answer"},
	} {
		d := send("interactive", c.click)
		if belt := w.run("", "deliveries", "show", d.ID); !strings.Contains(belt, c.belt) || strings.Contains(belt, "secret-of-slack") {
			t.Errorf("%s: %s", name, belt)
		}
	}
	// The same in a request that is signed is a form, or has not come over the connection.
	form := "payload=%7B%22type%22%3A%22block_actions%22%7D"
	for body, belt := range map[string]string{form: "connect: socket alone", click("T1", "UADA", "1.Ev1", below, approve, values[approve]): "may not approve here"} {
		header := http.Header{}
		s, _ := signature.Lookup("slack")
		if err := s.Sign(testSecret, &signature.Request{Header: header, Body: []byte(body), Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		post(t, http.MethodPost, w.url("chat"), strings.NewReader(body), header)
		var all []api.Delivery
		w.list(&all, "deliveries", "list")
		if got := w.run("", "deliveries", "show", all[0].ID); !strings.Contains(got, belt) {
			t.Errorf("in a request: %s", got)
		}
	}
	if state(first) != "BLOCKED" || state(other) != "BLOCKED" || len(runs()) != 2 {
		t.Fatalf("%s, %s, %v", state(first), state(other), runs())
	}
	told := func() string { return fmt.Sprint(slack.Calls("chat.postEphemeral")) }
	w.eventually(func() bool {
		return strings.Contains(told(), "slack:UEVE may not approve here") && strings.Contains(told(), "thread_ts:1.Ev1") && strings.Contains(told(), "user:U1]")
	}, told)
	// A click that the server has not acknowledged before it was killed.
	yes := click("T1", "UADA", "1.Ev1", below, approve, values[approve])
	p.Envelope("lost", "interactive", yes)
	w.kill()
	p.End()
	w.start()
	p = slack.Next()
	send("interactive", yes)
	w.eventually(func() bool { return state(first) == "SUCCEEDED" }, calls)
	if d := send("interactive", yes); d.Outcome != "duplicate" {
		t.Errorf("once more: %+v", d)
	}
	if belt := w.run("", "deliveries", "show", send("interactive", click("T1", "UADA", "1.Ev1", below, decline, values[decline])).ID); !strings.Contains(belt, first+" was approved by slack:UADA") {
		t.Errorf("after the decision: %s", belt)
	}
	w.eventually(func() bool {
		all := slack.Calls("chat.update")
		return strings.Contains(told(), first+" was approved by slack:UADA") && len(all) > 0 && fmt.Sprint(all[len(all)-1].Body["blocks"]) == "[]" && all[len(all)-1].Body["ts"] == below
	}, func() string { return told() + calls() })
	if belt := w.run("", "deliveries", "show", send("interactive", click("T1", "UADA", "1.Ev2", otherBelow, decline, otherValues[decline])).ID); !strings.Contains(belt, other+" is declined by slack:UADA") || state(other) != "CANCELLED" {
		t.Errorf("declined: %s", belt)
	}
	// Five wrong codes silence the thread.
	_, third, values := waits("Ev3")
	for range 5 {
		send("interactive", click("T1", "UADA", "1.Ev3", third, approve, "triphammer approve 22222222"))
	}
	if belt := w.run("", "deliveries", "show", send("interactive", click("T1", "UADA", "1.Ev3", third, approve, values[approve])).ID); !strings.Contains(belt, "5 wrong codes came in this thread") {
		t.Errorf("after wrong codes: %s", belt)
	}
	if len(runs()) != 3 {
		t.Errorf("a click has started a run: %v", runs())
	}
}
