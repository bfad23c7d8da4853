package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestKilledInStream: a server that is killed while the model answers counts what the request had reserved, the
// run is tried again, and nothing stays reserved (SPEC 25.2, 9.6).
func TestKilledInStream(t *testing.T) {
	var asked atomic.Int32
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		if asked.Add(1) == 1 { // the answer goes on until the server is dead
			<-r.Context().Done()
			return
		}
		_, _ = fmt.Fprint(w, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":40}}\n\n")
	}))
	t.Cleanup(model.Close)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
		"environments/env.yaml": "env: {ANTHROPIC_BASE_URL: '" + model.URL + "'}\n",
		"automations/a.md": "---\nenvironmentId: env\nharness: {type: claude, auth: {source: managedSecret, secretName: KEY}}\nretry: {attempts: 2, delaySeconds: 1}\nbudget: {tokens: 100000}\n" +
			"triggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook]}}\n---\nAsk.\n",
	})
	w.run("the-key", "secrets", "set", "KEY")
	bin := openDir(t)
	agent := `#!/bin/sh
curl -sSN "$ANTHROPIC_BASE_URL/v1/messages" -H "X-Api-Key: $ANTHROPIC_API_KEY" -d '{"model":"m","max_tokens":5000,"stream":true,"messages":[]}' >&2
echo '{"type":"result","subtype":"success","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}'
`
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(agent), 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() {
		w.startWith(func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH")) })
	}
	start()
	if got := post(t, http.MethodPost, w.url("hook"), strings.NewReader("{}"), http.Header{"Authorization": {"Bearer " + testSecret}}); got.status != http.StatusAccepted {
		t.Fatalf("%+v", got)
	}
	var runs []api.Run
	shortly(t, "the model answers, and the transcript is kept", func() bool {
		w.list(&runs, "runs", "list")
		return asked.Load() == 1 && strings.Contains(w.run("", "runs", "logs", runs[0].RunID), "[egress] allowed")
	})
	w.kill()
	start()
	shortly(t, "the end of the run", func() bool {
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].FinishedAt != nil
	})
	var r api.Run
	if err := json.Unmarshal([]byte(w.run("", "runs", "show", runs[0].RunID, "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	// The first request had reserved its 5,000 tokens and an estimate of its input. The second used 140.
	if r.State != "SUCCEEDED" || r.Attempt != 2 || r.Usage == nil || r.Usage.TotalTokens < 5140 || r.Usage.TotalTokens > 6300 {
		t.Errorf("attempt %d is %s: %s; it used %+v", r.Attempt, r.State, r.StatusMessage, r.Usage)
	}
	if logs := w.run("", "runs", "logs", r.RunID); strings.Count(logs, "is outside this run, at its gateway") != 2 {
		t.Errorf("its transcript does not have both attempts:\n%s", logs)
	}
}

func shortly(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := client.WaitFor(t.Context(), 40*time.Second, what, func() (bool, error) { return is(), nil }); err != nil {
		t.Fatal(err)
	}
}
