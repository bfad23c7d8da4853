package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestFailedSync (R4, B6): while the disk confirms no write, nothing is acknowledged,
// readyz and status say so, the log has few lines, and runs go on; after it all is
// as it was, also over a kill in the midst.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "environments/env.yaml": "command: [sleep, '1000']\n",
		"automations/all.md": automationFile("hook", "{run: [true]}"),
	})
	var failing atomic.Bool
	start := func() {
		x := &watcher{t: t, dir: filepath.Join(w.dir, "data"), decide: func(c *diskCall) (v verdict) {
			if c.what == "sync" && failing.Load() {
				v.errno = unix.EIO
			}
			return v
		}}
		w.startWatched(x, "--rate-limit", "0", "--max-runs-per-hour", "0")
	}
	start()
	url, sent, acknowledged := w.url("hook"), 0, make(map[string]bool)
	send := func() int {
		sent++
		got := post(t, "POST", url, strings.NewReader(fmt.Sprintf(`{"n":%d,"run":%t}`, sent, sent == 1)), http.Header{"Authorization": {"Bearer " + testSecret}})
		if _, id, ok := strings.Cut(got.body, `"delivery_id":"`); ok && got.status == 202 {
			acknowledged[strings.TrimRight(id, "\"}\n")] = true
		}
		return got.status
	}
	ready := func() int { return post(t, "GET", "http://"+w.addr+"/readyz", nil, nil).status }
	await := func(what string, is func() bool) {
		t.Helper()
		if err := client.WaitFor(t.Context(), 20*time.Second, what, func() (bool, error) { return is(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := send(); got != 202 || ready() != 200 {
		t.Fatal(got)
	}
	var runs []api.Run
	await("the run to start", func() bool {
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].State == "INPROGRESS"
	})
	fail := func() {
		t.Helper()
		failing.Store(true)
		for range 300 {
			if got := send(); got != 503 {
				t.Fatalf("a delivery that the disk does not confirm is answered %d", got)
			}
		}
		if got := ready(); got != 503 {
			t.Errorf("readyz is %d", got)
		}
	}
	fail()
	if out := w.run("", "status"); !strings.Contains(out, "does not confirm writes") {
		t.Errorf("status says\n%s", out)
	}
	failing.Store(false)
	await("deliveries to be taken again", func() bool { return send() == 202 && ready() == 200 })
	if w.list(&runs, "runs", "list"); len(runs) != 1 || runs[0].State != "INPROGRESS" {
		t.Errorf("runs: %+v", runs)
	}
	if text := w.logs.String(); strings.Count(text, "\n") > 20 || !strings.Contains(text, "written anew") || !strings.Contains(text, "could not be stored") {
		t.Error("the log has too many lines, or does not say it")
	}
	// A server that is killed meanwhile copies what it left before it takes more.
	fail()
	w.kill()
	failing.Store(false)
	start()
	await("deliveries to be taken again", func() bool { return send() == 202 && ready() == 200 })
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	for _, d := range deliveries {
		delete(acknowledged, d.ID)
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d acknowledged deliveries are lost", len(acknowledged))
	}
}
