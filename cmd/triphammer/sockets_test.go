package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/socket/sockettest"
)

// socketFiles are a factory whose webhook connects to a Slack.
func socketFiles(slack *sockettest.Slack) map[string]string {
	return map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/chat.yaml":   "authMode: signature\nsignatureScheme: slack\nconnect: socket\nappTokenName: APP\napiURL: " + slack.API + "\n",
		"automations/asked.md": "---\nenvironmentId: env\ntriggers: [{provider: slack, event: app_mention}]\n---\nAnswer.\n",
	}
}

func mention(id string) string {
	return fmt.Sprintf(`{"type":"event_callback","team_id":"T1","event_id":%q,"event":{"type":"app_mention","user":"U1","text":"do it","ts":"1.%s","channel":"C1"}}`, id, id)
}

// TestSockets: a server that nobody can call gets an event of Slack over its own connection, and runs
// the automation, also after it was killed before it could acknowledge. Commands show the connection
// (SPEC 29.1).
func TestSockets(t *testing.T) {
	slack := sockettest.New(t)
	w := newWorld(t, socketFiles(slack))
	w.run("xapp-1-first", "secrets", "set", "APP")
	w.start()
	p := slack.Next()
	p.Envelope("e1", "events_api", mention("Ev1"))
	if got := p.Acked(); got != "e1" {
		t.Fatalf("acknowledged %q", got)
	}
	var runs []api.Run
	for end := time.Now().Add(30 * time.Second); len(runs) == 0 || runs[0].State != "SUCCEEDED"; w.list(&runs, "runs", "list") {
		if time.Now().After(end) {
			t.Fatalf("no run: %+v", runs)
		}
	}
	mentions(t, w.run("", "webhooks", "show", "chat"), "open since", "last envelope", "APP")
	mentions(t, w.run("", "webhooks", "list"), "APP, for its connection")
	mentions(t, w.run("", "webhooks", "setup", "chat"), "Socket Mode", "triphammer webhooks test chat")
	mentions(t, w.run("", "webhooks", "test", "chat", "--event", "app_mention"), "Accepted, 1 run")
	if out, _ := w.command("doctor").Output(); !strings.Contains(string(out), "ok   connection   chat: open since") {
		t.Errorf("doctor: %s", out)
	}
	w.kill()
	p.End()
	mentions(t, w.run("", "webhooks", "show", "chat"), "no server has it")
	w.start()
	next := slack.Next()
	next.Envelope("e1 again", "events_api", mention("Ev1"))
	if got := next.Acked(); got != "e1 again" {
		t.Errorf("acknowledged %q", got)
	}
	var all []api.Delivery
	if w.list(&all, "deliveries", "list"); all[0].Outcome != "duplicate" {
		t.Errorf("%+v", all[0])
	}
	w.terminate()
	next.End()
	w.stopped()
}
