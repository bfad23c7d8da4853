//go:build full

package main

import (
	"strings"
	"testing"
	"time"

	"triphammer/server/socket/sockettest"
)

// TestSocketOfLeader: of two servers on one store, the leader has the connection; both show it. When
// the leader is killed, the other server connects, and an event that comes again is a duplicate
// (SPEC 29.1).
func TestSocketOfLeader(t *testing.T) {
	slack := sockettest.New(t)
	c := newCluster(t, 2, map[string]string{"factory.yaml": factoryYAML + "description: more\n"})
	c.run("xapp-1-first", "secrets", "set", "APP")
	c.write(socketFiles(slack))
	c.push()
	c.run("", "apply")
	p := slack.Next()
	leader, follower := c.leader(), c.follower()
	p.Envelope("e1", "events_api", mention("Ev1"))
	if got := p.Acked(); got != "e1" {
		t.Fatalf("acknowledged %q", got)
	}
	for name, w := range map[string]*world{"leader": leader, "follower": follower} {
		eventually(t, "the "+name+" shows the connection", 30*time.Second, func() bool {
			shown, _ := w.command("webhooks", "show", "chat").CombinedOutput() // a follower does not have the webhook at once
			return strings.Contains(string(shown), "open since") && strings.Contains(string(shown), "last envelope")
		})
	}
	if n := slack.Open(); n != 1 {
		t.Errorf("two servers have %d connections", n)
	}
	leader.kill()
	p.End()
	next := slack.Next()
	next.Envelope("e1 again", "events_api", mention("Ev1"))
	next.Envelope("e2", "events_api", mention("Ev2"))
	if a, b := next.Acked(), next.Acked(); a != "e1 again" || b != "e2" {
		t.Errorf("acknowledged %q and %q", a, b)
	}
	shown := follower.run("", "deliveries", "list")
	if n := strings.Count(shown, "dlv_"); n != 3 || !strings.Contains(strings.ToLower(shown), "duplicate") {
		t.Errorf("the log:\n%s", shown)
	}
	if n := slack.Open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
}
