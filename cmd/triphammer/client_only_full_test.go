//go:build full

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/client/exit"
)

// TestClient: the program that other systems than Linux have checks definitions, reaches a
// server elsewhere, and says of the rest that it needs Linux (SPEC 20.3).
func TestClient(t *testing.T) {
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\n", "automations/one/automation.md": automationFile("hook", ""),
	})
	w.start()
	key := strings.TrimSpace(w.run("", "keys", "create", "laptop", "--scope", "manage"))
	program := filepath.Join(t.TempDir(), "triphammer")
	succeed(t, exec.Command("go", "build", "-tags", "client", "-o", program, "."))
	run := func(status int, want string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = filepath.Join(w.dir, "repo")
		cmd.Env = append(environment(w.dir), "TRIPHAMMER_SERVER=http://"+w.addr, "TRIPHAMMER_API_KEY="+key, "TRIPHAMMER_WEBHOOK_SECRET="+testSecret)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != status || !strings.Contains(string(out), want) {
			t.Errorf("%v exits with %d and prints %q, want %d and %q", args, cmd.ProcessState.ExitCode(), out, status, want)
		}
	}
	run(0, "", "validate", ".")
	run(0, "", "test", ".")
	run(0, "", "plan")
	run(0, "isolation", "status")
	run(0, "202", "send", "hook", "--payload", "{}")
	run(0, "hook", "webhooks", "list")
	run(0, "one", "runs", "list")
	run(0, "triphammer", "version")
	for _, args := range [][]string{{"serve", "--data", "x"}, {"dev"}, {"worker"}, {"doctor"}, {"db", "backup"}, {"config", "show"}} {
		run(exit.Usage, "needs Linux", args...)
	}
	run(exit.Usage, "--server URL", "status", "--data", "x")
}
