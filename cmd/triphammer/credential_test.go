package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"triphammer/cmd/triphammer/client/exit"
)

// TestDoctorCredentials: doctor asks senders whose the credentials of webhooks are and what these lack, with a
// server and without one.
func TestDoctorCredentials(t *testing.T) {
	t.Parallel()
	var scopes atomic.Value
	scopes.Store("repo")
	sender := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-OAuth-Scopes", scopes.Load().(string))
		_, _ = w.Write([]byte(`{"id":7,"login":"hammer-bot"}`))
	}))
	defer sender.Close()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + sender.URL + "\nreport: thread\n",
		"automations/a.md":   "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_created}]\n---\nDo it.\n",
	})
	w.run("good", "secrets", "set", "API_TOKEN")
	w.start()
	is := func(status int, want string) {
		t.Helper()
		out, err := w.command("doctor").CombinedOutput()
		if !strings.Contains(string(out), want) || status == exit.Bad && exitStatus(err) != status {
			t.Errorf("doctor: %v\n%s", err, out)
		}
	}
	is(0, "ok   credential   hook: the secret API_TOKEN is of hammer-bot\n")
	scopes.Store("read:user")
	is(exit.Bad, "BAD  credential   hook: the secret API_TOKEN is of hammer-bot and lacks repo or public_repo (comments, signs and commit statuses); answers need write access")
	w.run("wrong", "secrets", "set", "API_TOKEN")
	is(exit.Bad, "BAD  credential   hook: answered 401: it does not take the secret of apiSecretName; the credential needs write access")
	w.stop()
	is(exit.Bad, "hook: answered 401")
}
