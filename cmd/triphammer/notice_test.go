package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// TestRunNotice: a server tells one address how runs ended, as Standard Webhooks
// signs it; a receiver that verifies takes it, and one with another secret does
// not.
func TestRunNotice(t *testing.T) {
	t.Parallel()
	type told struct {
		header http.Header
		body   []byte
	}
	notices := make(chan told, 10)
	there := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		notices <- told{r.Header, body}
	}))
	defer there.Close()
	const value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "environments/bad.yaml": "command: ['false']\n", "environments/good.yaml": "command: ['true']\n"})
	w.run(value, "secrets", "set", "TELL")
	w.start("--notify-url", there.URL, "--notify-secret", "TELL", "--notify-runs", "FAILED")
	w.run("", "runs", "create", "--prompt", "x", "--environment", "good", "--wait")
	id := strings.Fields(w.run("", "runs", "create", "--prompt", "x", "--environment", "bad"))[0]
	var n told
	select {
	case n = <-notices:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody is told")
	}
	standard, _ := signature.Lookup("standard_webhooks")
	for secret, good := range map[string]bool{value: true, "whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw": false} {
		v, err := standard.Verifier(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Verify(&signature.Request{Header: n.header, Body: n.body, Now: time.Now()}); (err == nil) != good {
			t.Errorf("verified with %s: %v", secret, err)
		}
	}
	var notice api.RunNotice
	if err := json.Unmarshal(n.body, &notice); err != nil || notice.Type != "run.failed" || notice.Data.RunID != id || notice.Data.State != "FAILED" {
		t.Errorf("%s %v", n.body, err)
	}
	if n.header.Get("Webhook-Id") != "msg_"+id {
		t.Errorf("id %s", n.header.Get("Webhook-Id"))
	}
	for args, want := range map[string]string{
		"--notify-runs DONE":                           "is not how a run ends",
		"--notify-runs FAILED":                         "needs --notify-url",
		"--notify-automations a --max-runs 1":          "needs --notify-runs",
		"--notify-url http://127.0.0.1:1 --max-runs 1": "go together",
	} {
		cmd := w.command(append([]string{"serve", "--repo", "repo", "--listen", "127.0.0.1:0"}, strings.Fields(args)...)...)
		out, err := cmd.CombinedOutput()
		if exitStatus(err) != exit.Usage || !strings.Contains(string(out), want) {
			t.Errorf("serve %s: %v\n%s", args, err, out)
		}
	}
}
