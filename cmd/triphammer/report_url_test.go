package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// TestReportURL: an address that a definition names is told when a run starts and when it ends, as
// --notify-runs signs. A redirect is not followed (SPEC 22.1).
func TestReportURL(t *testing.T) {
	t.Parallel()
	type told struct {
		header http.Header
		body   []byte
	}
	notices := make(chan told, 10)
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/hooks" {
			t.Errorf("a request of %s", r.URL.Path)
		}
		notices <- told{r.Header, body}
	}))
	defer there.Close()
	const value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, 'while ! [ -e GO ]; do sleep 0.02; done']\n",
		"environments/quick.yaml": "command: ['true']\n",
		"webhooks/hook.yaml":      "secretName: S\nreport: {url: '" + there.URL + "/hooks', secretName: TELL}\n",
		"automations/a.md":        automationFile("hook", ""),
		"automations/moved.md": "---\nenvironmentId: quick\nreport: {url: '" + there.URL + "/moved', secretName: TELL}\n" +
			"triggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {moved: [true]}}}]\n---\nGo.\n",
	})
	w.run(value, "secrets", "set", "TELL")
	w.start()
	header := http.Header{"Authorization": {"Bearer " + testSecret}}
	if a := post(t, http.MethodPost, w.url("hook"), strings.NewReader(`{"moved": true}`), header); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	standard, _ := signature.Lookup("standard_webhooks")
	verifier, err := standard.Verifier(value)
	if err != nil {
		t.Fatal(err)
	}
	next := func() (notice api.RunNotice, id string) {
		t.Helper()
		select {
		case n := <-notices:
			if err := verifier.Verify(&signature.Request{Header: n.header, Body: n.body, Now: time.Now()}); err != nil {
				t.Errorf("%v", err)
			}
			if err := json.Unmarshal(n.body, &notice); err != nil {
				t.Errorf("%s: %v", n.body, err)
			}
			return notice, n.header.Get("Webhook-Id")
		case <-time.After(30 * time.Second):
			t.Fatal("nobody is told")
		}
		return notice, id
	}
	notice, id := next()
	run := notice.Data.RunID
	if notice.Type != "run.inprogress" || notice.Timestamp.IsZero() || id != "msg_"+run+"_started" {
		t.Errorf("%s %+v", id, notice)
	}
	w.run("", "runs", "cancel", run)
	if notice, id = next(); notice.Type != "run.cancelled" || notice.Data.RunID != run || id != "msg_"+run {
		t.Errorf("%s %+v", id, notice)
	}
	for _, want := range []string{"url: told " + there.URL + "/hooks, at", "url: answered 307; it is tried again at"} {
		if err := client.WaitFor(t.Context(), 30*time.Second, want+" is not in the belts", func() (bool, error) {
			var runs []api.Run
			w.list(&runs, "runs", "list")
			belts := ""
			for _, r := range runs {
				belts += w.run("", "runs", "show", r.RunID)
			}
			return strings.Contains(belts, want), nil
		}); err != nil {
			t.Error(err)
		}
	}
}
