//go:build full

package main

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// newEmptyServer starts a server that has no repository and no factory.
func newEmptyServer(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: openDir(t), addr: freeAddress(t)}
	w.cleanUp()
	w.startWith(func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], "serve"} })
	return w
}

// TestFirstVisit: from an empty server to the first run that ended well by pages alone. Each
// page says the next step and shows by itself what comes.
func TestFirstVisit(t *testing.T) {
	w := newEmptyServer(t)
	b := w.newTab()
	for _, path := range []string{"/start", "/secrets", "/system", "/runs"} {
		b.check(path)
	}
	b.view("light", 1280)
	b.open("/start")
	b.see("This server has no factory yet")
	plain := w.newTab()
	plain.withoutScript()
	plain.open("/start")
	plain.fill("Name", "Not a name")
	plain.press("Start a factory here")
	plain.see("This server has no factory yet", "name")
	plain.expect("422")
	b.fill("Name", "payments")
	b.press("Start a factory here")
	b.see("The factory payments is started", "A webhook Now")
	b.notSee("This server has no factory yet")

	steps := w.newTab() // stays open, and shows by itself how far the person has come
	steps.open("/start")
	b.press("New webhook")
	b.fill("Name", "ci")
	b.press("Create webhook")
	b.see("This is shown once", "Waiting for the first delivery")
	b.look()
	url, secret := b.copied("Copy URL"), b.copied("Copy secret")
	b.reload()
	b.see("Waiting for the first delivery")
	if html, _ := js[string](b, `document.documentElement.outerHTML`); secret == "" || strings.Contains(html, secret) {
		t.Errorf("the page shows the secret %q again", secret)
	}
	b.look()
	header := http.Header{"Authorization": {"Bearer " + secret}}
	if got := post(t, "POST", url, strings.NewReader(`{"event": "deploy.finished", "status": "failed"}`), header); got.status != http.StatusAccepted {
		t.Fatalf("the first delivery: %+v", got)
	}
	b.see("Nothing matched", "The newest delivery came just now")
	b.notSee("No delivery came yet")
	b.look()

	b.press("Triphammer") // the overview
	b.press("Go on")
	b.see("Its first delivery Done", "An environment Now")
	b.look()
	steps.see("Its first delivery Done", "An environment Now")
	b.press("New environment")
	b.fill("Name", "main")
	b.fill("Command that starts the agent", "sh\n-c\necho The step canary failed.")
	b.press("Create environment")
	b.see("Saved as commit", "which serves")
	steps.see("An automation Now")
	b.press("Add an automation") // with the environment, and the one webhook
	b.fill("Name", "deploy-failed")
	b.fill("Prompt", "Say which step failed.")
	b.look()
	b.press("Create automation")
	b.see("Saved as commit", "which serves", "a delivery to ci")
	b.look()

	b.press("Runs")
	b.see("Nothing runs now")
	if got := post(t, "POST", url, strings.NewReader(`{"event": "deploy.finished", "status": "failed", "step": "canary"}`), header); got.status != http.StatusAccepted {
		t.Fatalf("the second delivery: %+v", got)
	}
	b.see("1 new run")
	b.press("Show them")
	b.see("Succeeded")
	b.press("deploy-failed")
	b.see("Ended well", "The step canary failed.", "Say which step failed.")
	b.look()
	steps.see("All done")
}
