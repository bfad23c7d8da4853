//go:build full

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestClicks: what people do most takes no more clicks than this table says: from an empty server to the
// first run, to see why nothing ran, and to stop a run.
func TestClicks(t *testing.T) {
	w := newEmptyServer(t)
	b := w.newTab()
	hold := filepath.Join(w.dir, "hold") // the agent works as long as this file is there
	var url, secret string
	sent := 0
	deliver := func(status string) {
		t.Helper()
		sent++ // the same again would be a duplicate
		got := post(t, "POST", url, strings.NewReader(`{"event": "deploy.finished", "status": "`+status+`", "n": `+strconv.Itoa(sent)+`}`), http.Header{"Authorization": {"Bearer " + secret}})
		if got.status != http.StatusAccepted {
			t.Fatalf("a delivery: %+v", got)
		}
	}
	for _, journey := range []struct {
		what   string
		most   int
		before func() // what happens elsewhere
		walk   func()
	}{
		{"from an empty server to the first run", 11, func() {}, func() {
			b.open("/start")
			b.press("Start a factory here")
			b.press("New webhook")
			b.fill("Name", "ci")
			b.press("Create webhook")
			b.see("This is shown once")
			url, secret = b.copied("Copy URL"), b.copied("Copy secret")
			b.press("Environments")
			b.press("New environment")
			b.fill("Name", "main")
			b.fill("Command that starts the agent", "sh\n-c\necho The canary failed.; while [ -e "+hold+" ]; do sleep 0.1; done")
			b.press("Create environment")
			b.press("Add an automation")
			b.fill("Name", "deploy-failed")
			b.fill("That match this filter (JSON)", `{"status": ["failed"]}`)
			b.fill("Prompt", "Say which step failed.")
			b.press("Create automation")
			b.see("No run of it is kept")
			deliver("failed")
			b.see("Succeeded") // the page shows the run by itself
			b.press("deploy-failed")
			b.see("Ended well", "The canary failed.")
		}},
		{"why did nothing run", 0, func() { deliver("success") }, func() {
			b.open("/")
			b.see("Nothing matched", `nearest deploy-failed: payload.status is "success"`)
		}},
		{"stop a run", 2, func() {
			if err := os.WriteFile(hold, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			deliver("failed")
		}, func() {
			b.open("/")
			b.see("At work")
			b.press("Stop")
			b.press("Cancel the run")
			b.see("Cancelled")
		}},
	} {
		journey.before()
		b.presses = 0
		if journey.walk(); b.presses > journey.most {
			t.Errorf("%s: %d clicks, at most %d", journey.what, b.presses, journey.most)
		}
	}
}
