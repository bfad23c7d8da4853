package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// terminate ends the server as a service manager does.
func (w *world) terminate() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
}

// stopped waits for the server's end.
func (w *world) stopped() {
	w.t.Helper()
	select {
	case <-w.end:
	case <-time.After(30 * time.Second):
		w.t.Fatal("the server does not stop")
	}
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("the server ended with %d", code)
	}
	w.cmd = nil
}

// TestFollowers: 500 followers of one run have each of its events once and in
// order, across a restart of the server; readers that take nothing cost the run
// nothing; the commands end with the run's exit status.
func TestFollowers(t *testing.T) {
	t.Parallel()
	const followers = 500
	gate := filepath.Join(t.TempDir(), "gate")
	script := fmt.Sprintf(`for i in $(seq 1 60); do echo "before $i"; sleep 0.02; done; while [ ! -e %s ]; do sleep 0.05; done; seq 1 60 | sed 's/^/after /'; exit 3`, gate)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, '" + strings.ReplaceAll(script, "'", "''") + "']\n",
	})
	w.start()
	key := strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	id := strings.Fields(w.run("", "runs", "create", "--prompt", "x", "--environment", "env"))[0]
	address := "http://" + w.addr + "/api/v1/agent/runs/" + id + "/events"

	// Readers that never read.
	for range 5 {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "GET /api/v1/agent/runs/%s/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", id, key)
	}
	watch := w.command("runs", "watch", id)
	logs := w.command("runs", "logs", "--follow", id)
	var watched, logged bytes.Buffer
	for cmd, out := range map[*exec.Cmd]*bytes.Buffer{watch: &watched, logs: &logged} {
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: followers, MaxConnsPerHost: followers}}
	var reading, broken atomic.Int64
	sequences := make([][]string, followers)
	var all sync.WaitGroup
	for i := range followers {
		all.Go(func() {
			cl := &follower{http: client, address: address, key: key, started: &reading, broken: &broken}
			sequences[i] = cl.follow(t)
		})
	}
	deadline := time.After(60 * time.Second)
	for reading.Load() < followers {
		select {
		case <-deadline:
			t.Fatalf("only %d followers read", reading.Load())
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.terminate()
	for broken.Load() < followers { // the old server ends the streams, while the run has its grace
		select {
		case <-deadline:
			t.Fatalf("only %d streams are cut", broken.Load())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.stopped()
	w.start()
	all.Wait()

	var events []api.Event
	var transcript api.Transcript
	w.list(&transcript, "runs", "logs", id)
	events = transcript.Events
	want := []string{"0.QUEUED", "0.INPROGRESS"}
	for _, e := range events {
		want = append(want, fmt.Sprintf("%d.INPROGRESS", e.Seq))
	}
	want = append(want, fmt.Sprintf("%d.FAILED", len(events)))
	for i, got := range sequences {
		if !slices.Equal(got, want) {
			t.Fatalf("follower %d has %d events, not %d: … %v", i, len(got), len(want), got[max(0, len(got)-3):])
		}
	}
	for cmd, out := range map[*exec.Cmd]*bytes.Buffer{watch: &watched, logs: &logged} {
		err := cmd.Wait()
		if exitStatus(err) != exit.Bad || !strings.Contains(out.String(), "exit status 3") {
			t.Errorf("%v: %v\n%s", cmd.Args, err, out)
		}
		for _, line := range []string{"before 1\n", "before 60\n", "after 1\n", "after 60\n"} {
			if strings.Count(out.String(), line) != 1 {
				t.Errorf("%v prints %q %d times", cmd.Args, line, strings.Count(out.String(), line))
			}
		}
	}
	t.Logf("%d followers, %d events each", followers, len(want))
}

// follower reads a stream of events, and goes on where it was cut.
type follower struct {
	http            *http.Client
	address, key    string
	started, broken *atomic.Int64
}

func (f *follower) follow(t *testing.T) (ids []string) {
	cl := &client.Client{HTTP: f.http, Base: "", Key: f.key}
	base, path, _ := strings.Cut(f.address, "/api/v1")
	cl.Base = base
	last, cuts := "", 0
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); {
		finished := false
		_ = cl.Stream(t.Context(), path, last, func(id, kind string, _ []byte) error {
			last = id
			if ids = append(ids, id); len(ids) == 3 {
				f.started.Add(1)
			}
			finished = kind == "state" && strings.HasSuffix(id, "FAILED")
			return nil
		})
		if finished {
			return ids
		}
		if cuts++; cuts == 1 {
			f.broken.Add(1)
		}
		time.Sleep(100 * time.Millisecond) // the pace of a client that reconnects
	}
	return ids
}
