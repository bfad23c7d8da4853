package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestLogPipe (B8): a server whose log nobody reads any more, or whose reader is
// dead, takes deliveries, executes runs, and ends when it is told to.
func TestLogPipe(t *testing.T) {
	for _, reader := range []string{"dead", "stuck"} {
		t.Run(reader, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
				// A pipe of an agent ends as it does in a shell.
				"environments/env.yaml": "command: [sh, -c, 'yes 2>&1 | head -1; test $(grep SigIgn: /proc/self/status | tail -c 5) = 0000']\n",
				"automations/all.md":    automationFile("hook", ""),
			})
			r, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, pipe.Fd(), syscall.F_SETPIPE_SZ, 4096); errno != 0 {
				t.Fatal(errno)
			}
			w.startWith(func(cmd *exec.Cmd) { cmd.Stderr = pipe }, "--rate-limit", "0", "--max-runs-per-hour", "0")
			if err := pipe.Close(); err != nil {
				t.Fatal(err)
			}
			if reader == "dead" {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
			const n = 40 // whose lines fill the pipe more than once
			url := w.url("hook")
			for i := range n {
				got := post(t, "POST", url, strings.NewReader(fmt.Sprint(i)), http.Header{"Authorization": {"Bearer " + testSecret}})
				if got.status != 202 {
					t.Fatalf("delivery %d: %+v", i, got)
				}
			}
			var runs []api.Run
			err = client.WaitFor(t.Context(), time.Minute, "the runs do not end", func() (bool, error) {
				w.list(&runs, "runs", "list", "--state", "SUCCEEDED", "--limit", "0")
				return len(runs) == n, nil
			})
			if err != nil {
				t.Fatal(err, w.run("", "runs", "list"))
			}
			w.terminate()
			w.stopped()
		})
	}
}
