//go:build full

package main

import (
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// TestStoreAway: servers and workers that begin before their database wait for it, end at once
// if somebody stops them, and wait for nothing that only a person can mend.
func TestStoreAway(t *testing.T) {
	postgres, err := storetest.NewServer(nil, nil)
	if err != nil {
		t.Fatal("this test needs PostgreSQL (the package postgresql): ", err)
	}
	t.Cleanup(func() {
		if err := postgres.Close(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	address := postgres.URL("127.0.0.1", "postgres")
	unknown, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	unknown.Path = "/nowhere"
	for _, wrong := range []string{unknown.String(), "mysql://127.0.0.1/triphammer"} {
		c := w.command("serve", "--repo", "repo", "--data", "refused", "--store", wrong)
		out, err := c.CombinedOutput()
		if err == nil || strings.Contains(string(out), "trying again") {
			t.Errorf("%s: %v\n%s", wrong, err, out)
		}
	}

	postgres.Stop(syscall.SIGINT)
	const waits = "the database cannot be reached: trying again"
	stopped := w.command("serve", "--repo", "repo", "--data", "stopped", "--listen", "127.0.0.1:0", "--store", address)
	logs := newLogFile(t, w.dir)
	stopped.Stderr = logs.file
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waits, time.Minute, func() bool { return strings.Contains(logs.String(), waits) })
	if err := stopped.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Wait(); err == nil {
		t.Error("it was stopped before it served, and says that all is well")
	}

	late := newLogFile(t, w.dir)
	w.logs = late
	w.cmd = w.command("serve", "--repo", "repo", "--data", "late", "--store", address)
	w.cmd.Stderr = late.file
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.end = make(chan struct{})
	go func() {
		_ = w.cmd.Wait() // kill ends it
		close(w.end)
	}()
	eventually(t, waits, time.Minute, func() bool { return strings.Contains(late.String(), waits) })
	if err := postgres.Start(); err != nil {
		t.Fatal(err)
	}
	w.run("", "status", "--wait", "--timeout", "60s", "--data", "late")

	// While it serves, whoever asks is told to try again, also by what only reads.
	key := strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "manage", "--data", "late"))
	ask := func(path string) int {
		t.Helper()
		return post(t, http.MethodGet, "http://"+w.addr+path, nil, bearerOf(key)).status
	}
	if got := ask("/api/v1/agent/runs"); got != http.StatusOK {
		t.Fatalf("runs: %d", got)
	}
	postgres.Stop(syscall.SIGKILL)
	eventually(t, "whoever asks is told to try again", time.Minute, func() bool { // the processes of its connections end a moment later
		for range 20 { // of each connection that it had
			for _, path := range []string{"/api/v1/agent/runs", "/api/v1/status"} {
				switch got := ask(path); got {
				case http.StatusServiceUnavailable:
				case http.StatusOK:
					return false
				default:
					t.Fatalf("%s without a database: %d", path, got)
				}
			}
		}
		return true
	})
	eventually(t, "it is not ready", time.Minute, func() bool { return ask("/readyz") == http.StatusServiceUnavailable })
	if err := postgres.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it reads again", time.Minute, func() bool { return ask("/api/v1/agent/runs") == http.StatusOK })
}
