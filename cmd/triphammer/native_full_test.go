//go:build full

package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/factory/native"
	"triphammer/server/api"
)

// TestEverySenderEvent sends, as its sender would, a sample of every event of every sender to a server whose
// factory has an automation for each, and looks at what started. The tree is made from the table, so a new event is in it.
func TestEverySenderEvent(t *testing.T) {
	files := map[string]string{"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n"}
	secrets := make(map[string]string)
	for _, s := range native.Senders() {
		name := strings.ToUpper(s.Provider)
		files["webhooks/"+s.Provider+".yaml"] = fmt.Sprintf("authMode: signature\nsignatureScheme: %s\nsecretName: %s\n", s.Schemes[0], name)
		if s.Accounts != "" {
			files["webhooks/"+s.Provider+".yaml"] += "accounts: [triphammer, '712020:triphammer']\n"
		}
		secrets[name] = testSecret
		for _, e := range s.Events {
			who := ""
			if e.Public {
				who = "startedBy: [ada, grace]\n" // of the samples
			}
			files["automations/"+automationOf(e)+"/automation.md"] = fmt.Sprintf("---\nenvironmentId: env\n%striggers: [{provider: %s, event: %s}]\n---\nDo it.\n", who, s.Provider, e.Name)
		}
	}
	secrets["TEAMS"] = base64.StdEncoding.EncodeToString([]byte(testSecret))
	secrets["AZURE_DEVOPS"] = "hooks:" + testSecret
	w := newWorld(t, files)
	if said := w.run("", "validate", filepath.Join(w.dir, "repo")); !strings.Contains(said, " 0 errors, 0 warnings") {
		t.Fatalf("validate says:\n%s", said)
	}
	for name, value := range secrets {
		w.run(value, "secrets", "set", name)
	}
	w.start()
	var sent []*native.Event
	for _, s := range native.Senders() {
		secret := filepath.Join(w.dir, s.Provider)
		if err := os.WriteFile(secret, []byte(secrets[strings.ToUpper(s.Provider)]), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Events {
			w.run("", "send", s.Provider, "--secret-file", secret, "--provider", s.Provider, "--event", e.Name)
			sent = append(sent, e)
		}
	}
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	var runs []api.Run
	w.list(&runs, "runs", "list", "--limit", "0")
	source := make(map[string]string)
	for _, run := range runs {
		source[run.RunID] = run.Source
	}
	if len(deliveries) != len(sent) {
		t.Fatalf("%d deliveries of %d samples", len(deliveries), len(sent))
	}
	slices.Reverse(deliveries) // newest first
	for i, e := range sent {
		var automations []string
		for _, run := range deliveries[i].StartedRuns {
			automations = append(automations, run.Automation)
			if source[run.RunID] != e.Sender.Source {
				t.Errorf("the source of a run of %s is %q, want %s", run.Automation, source[run.RunID], e.Sender.Source)
			}
		}
		if !slices.Contains(automations, automationOf(e)) {
			t.Errorf("a sample of %s %s started %v", e.Sender.Provider, e.Name, automations)
		}
	}
	t.Logf("%d deliveries, %d runs", len(deliveries), len(runs))
}

func automationOf(e *native.Event) string {
	return e.Sender.Provider + "-" + strings.ReplaceAll(e.Name, "_", "-")
}
