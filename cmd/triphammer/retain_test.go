package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// TestWrongClock (R26): a server that is started with a clock that is wrong deletes
// nothing, forgets no identity, and lets no more deliveries pass; and it goes on as
// ever when somebody says that the clock is right.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	serve := []string{"--max-runs", "0"}
	w.start(serve...)
	address := w.url("hook")
	send := func(n int) answer {
		return post(t, http.MethodPost, address, strings.NewReader(fmt.Sprint(n)), http.Header{"Authorization": {"Bearer " + testSecret}})
	}
	count := func() int {
		var all []api.Delivery
		w.list(&all, "deliveries", "list", "--limit", "0")
		return len(all)
	}
	sent := 0
	for send(sent).status == http.StatusAccepted {
		sent++
	}
	if sent != 60 || count() != sent {
		t.Fatalf("%d accepted, %d there", sent, count())
	}

	// A day back: the minute is not over.
	w.kill()
	w.ahead = -24 * time.Hour
	w.start(serve...)
	if got := send(sent); got.status != http.StatusTooManyRequests {
		t.Errorf("a restart a day back opens the rate: %+v", got)
	}
	if status := w.run("", "status"); !strings.Contains(status, "behind what the store expects") {
		t.Errorf("status: %s", status)
	}
	var runs []api.Run
	for w.list(&runs, "runs", "list", "--limit", "0"); len(runs) > 0; runs = runs[1:] {
		w.run("", "runs", "cancel", runs[0].RunID) // what has not ended keeps its delivery
	}

	// Ten years ahead: all but the newest 50 would be too old.
	w.kill()
	w.ahead = 10 * 365 * 24 * time.Hour
	serve = append(serve, "--rate-limit", "0", "--max-runs-per-hour", "0")
	for range 2 {
		w.start(serve...)
		err := client.WaitFor(t.Context(), 20*time.Second, "retention has not looked", func() (bool, error) {
			return strings.Contains(w.logs.String(), "nothing is deleted by its age: the clock is in doubt"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := count(); n < sent {
			t.Fatalf("%d of %d are left", n, sent)
		}
		send(0)
		var all []api.Delivery
		if w.list(&all, "deliveries", "list", "--limit", "1"); all[0].Outcome != "duplicate" {
			t.Errorf("an identity is forgotten: %+v", all)
		}
		w.kill()
	}
	w.start(serve...)
	w.fails(exit.Bad, "doctor")
	if status := w.run("", "status"); !strings.Contains(status, "3650 days ahead of") || !strings.Contains(status, "triphammer clock accept") {
		t.Errorf("status: %s", status)
	}
	w.run("", "clock", "accept")
	if status := w.run("", "status"); strings.Contains(status, "clock  ") {
		t.Errorf("status after it was accepted: %s", status)
	}
	if entries := w.run("", "audit", "list"); !strings.Contains(entries, "clock.accept") {
		t.Errorf("the audit log: %s", entries)
	}
	w.stop()
	w.start(serve...)
	err := client.WaitFor(t.Context(), 20*time.Second, "what is old is not deleted", func() (bool, error) { return count() <= 50, nil })
	if err != nil {
		t.Error(err)
	}
}
