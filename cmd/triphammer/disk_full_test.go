//go:build full

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// onSmallDisk moves the data directory of a world to a file system of its own.
func (w *world) onSmallDisk(size string) {
	w.t.Helper()
	data := filepath.Join(w.dir, "data")
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		w.t.Fatal("this test needs to mount a file system: run it as root: ", err)
	}
	w.t.Cleanup(func() {
		if w.cmd != nil {
			w.kill()
		}
		if err := syscall.Unmount(data, syscall.MNT_DETACH); err != nil {
			w.t.Error(err)
		}
	})
	w.run(testSecret, "secrets", "set", "S")
}

// fillDisk writes a file until so many bytes are left.
func (w *world) fillDisk(left int64) (empty func()) {
	w.t.Helper()
	path := filepath.Join(w.dir, "data", "somebody-else")
	f, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(path, &st); err != nil {
			w.t.Fatal(err)
		}
		room := int64(st.Bavail)*st.Bsize - left
		if room <= 0 {
			break
		}
		if _, err := f.Write(make([]byte, room)); err != nil && !errors.Is(err, syscall.ENOSPC) {
			w.t.Fatal(err)
		}
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			w.t.Error(err)
		}
	}
}

// await waits until something is so.
func (w *world) await(what string, is func() bool) {
	w.t.Helper()
	if err := client.WaitFor(w.t.Context(), 40*time.Second, what, func() (bool, error) { return is(), nil }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ready() int {
	resp, err := http.Get("http://" + w.addr + "/readyz")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// runsOf are the runs of an automation, the newest first.
func (w *world) runsOf(automation string) []api.Run {
	w.t.Helper()
	var all []api.Run
	w.list(&all, "runs", "list", "--automation", automation)
	return all
}

// hidingAgent fills a file that has no name, from a process that no variable marks.
const hidingAgent = `command: [env, -i, PATH=/usr/bin:/bin, sh, -c, 'trap "" INT; exec 3>big; rm big; while :; do head -c 65536 /dev/zero >&3; done 2>/dev/null']
`

const fillAgent = `command: [sh, -c, 'trap "" INT; cat >/dev/null; echo filling; while :; do head -c 65536 /dev/zero >> big; done 2>/dev/null']
`

func diskWorld(t *testing.T, filling string) *world {
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
		"environments/env.yaml":  "command: ['true']\n",
		"environments/fill.yaml": filling, "environments/long.yaml": "command: [sh, -c, 'echo last words; sleep 1000']\n",
		"automations/fill.md": strings.Replace(automationFile("hook", "{do: [fill]}"), "environmentId: env", "environmentId: fill", 1),
		"automations/long.md": strings.Replace(automationFile("hook", "{do: [long]}"), "environmentId: env", "environmentId: long", 1),
		"automations/some.md": automationFile("hook", "{do: [some]}"),
	})
	w.onSmallDisk("12m")
	return w
}

// TestAgentFillsDisk (R5, B1): an agent that fills the disk is stopped, and the server
// takes deliveries again, without anybody's help.
func TestAgentFillsDisk(t *testing.T) {
	for name, agent := range map[string]string{"a file": fillAgent, "a file without a name": hidingAgent} {
		t.Run(name, func(t *testing.T) { fillsDisk(t, agent) })
	}
}

func fillsDisk(t *testing.T, agent string) {
	w := diskWorld(t, agent)
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0")
	url := w.url("hook")
	send := func(body string) answer {
		return post(t, "POST", url, strings.NewReader(body), http.Header{"Authorization": {"Bearer " + testSecret}})
	}
	if got := send(`{"do":"some"}`); got.status != 202 {
		t.Fatalf("%+v", got)
	}
	w.await("a run to leave its workspace", func() bool {
		all := w.runsOf("some")
		return len(all) == 1 && all[0].State == "SUCCEEDED"
	})
	var accepted, refused atomic.Int64
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for s := range 2 {
		senders.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				req, err := http.NewRequest("POST", url, strings.NewReader(fmt.Sprintf(`{"s":%d,"n":%d}`, s, n)))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+testSecret)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				switch {
				case resp.StatusCode == 202:
					accepted.Add(1)
				case resp.StatusCode == 503 && resp.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	if got := send(`{"do":"fill"}`); got.status != 202 {
		t.Fatalf("%+v", got)
	}
	began := time.Now()
	w.await("the run that fills the disk to be stopped", func() bool {
		all := w.runsOf("fill")
		return len(all) == 1 && all[0].State == "FAILED"
	})
	if r := w.runsOf("fill")[0]; !strings.Contains(r.StatusMessage, "filled the disk") {
		t.Errorf("it ended so: %s", r.StatusMessage)
	}
	w.await("deliveries to be taken again", func() bool { return send(`{"do":"some","again":true}`).status == 202 && w.ready() == 200 })
	t.Logf("back after %v; beside it %d deliveries accepted, %d refused", time.Since(began).Round(time.Millisecond), accepted.Load(), refused.Load())
	close(stop)
	senders.Wait()
	w.await("the next run to end", func() bool {
		all := w.runsOf("some")
		return len(all) > 1 && !slices.ContainsFunc(all, func(r api.Run) bool { return r.State != "SUCCEEDED" })
	})
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	if int64(len(deliveries)) < accepted.Load() {
		t.Errorf("%d deliveries of %d that were accepted", len(deliveries), accepted.Load())
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, "data", "runs"))
	if err != nil || len(entries) > 2 {
		t.Errorf("workspaces that are left: %v, %v", entries, err)
	}
	for _, line := range []string{"a run fills the disk: it is stopped", "new runs wait for room", "room again"} {
		if !strings.Contains(w.logs.String(), line) {
			t.Errorf("the log does not say %q", line)
		}
	}
	w.terminate()
	w.stopped()
}

// TestFullDiskRestart (R5, B1, B6): a disk that something else has filled stops no
// run's end, no SIGTERM and no start; what is refused says so, and all is well as
// soon as there is room.
func TestFullDiskRestart(t *testing.T) {
	w := diskWorld(t, fillAgent)
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0")
	url := w.url("hook")
	send := func(body string) int {
		return post(t, "POST", url, strings.NewReader(body), http.Header{"Authorization": {"Bearer " + testSecret}}).status
	}
	long := func() api.Run { return w.runsOf("long")[0] }
	if got := send(`{"do":"long"}`); got != 202 || w.ready() != 200 {
		t.Fatal(got)
	}
	w.await("the agent's words", func() bool { return strings.Contains(w.run("", "runs", "logs", long().RunID), "last words") })

	// Little is left: new runs wait, and everything else goes on.
	empty := w.fillDisk(400 << 10)
	w.await("the server to see it", func() bool { return strings.Contains(w.run("", "status"), "less than the") })
	if got := send(`{"do":"some"}`); got != 202 || w.ready() != 200 {
		t.Errorf("while little is left: %d, readyz %d", got, w.ready())
	}
	if all := w.runsOf("some"); len(all) != 1 || all[0].State != "QUEUED" {
		t.Errorf("%+v", all)
	}
	empty()
	w.await("the run to start", func() bool { return w.runsOf("some")[0].State == "SUCCEEDED" })

	// Nothing is left.
	empty = w.fillDisk(0)
	w.await("deliveries to be refused", func() bool {
		return send(`{"x":"`+strings.Repeat("x", 10_000)+fmt.Sprint(time.Now().UnixNano())+`"}`) == 503
	})
	w.await("readyz to know it", func() bool { return w.ready() == 503 })
	for _, args := range [][]string{{"status"}, {"doctor"}} {
		out, _ := w.command(args...).CombinedOutput()
		if !strings.Contains(string(out), "disk is full") {
			t.Errorf("triphammer %v does not say that the disk is full:\n%s", args, out)
		}
	}
	w.terminate()
	w.stopped()
	if r := long(); r.State != "FAILED" || !strings.Contains(r.StatusMessage, "the server was stopped") {
		t.Errorf("the run ended so: %s %s", r.State, r.StatusMessage)
	}
	if out := w.run("", "runs", "logs", long().RunID); !strings.Contains(out, "FAILED") {
		t.Errorf("the end is not in the transcript:\n%s", out)
	}
	for _, how := range []string{"stopped", "killed"} {
		w.start("--rate-limit", "0", "--max-runs-per-hour", "0")
		if got := w.ready(); got != 503 {
			t.Errorf("%s: readyz is %d on a full disk", how, got)
		}
		w.kill()
	}
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0")
	empty()
	w.await("deliveries to be taken again", func() bool { return send(`{"do":"some","again":true}`) == 202 && w.ready() == 200 })
	w.await("the run to end", func() bool { return w.runsOf("some")[0].State == "SUCCEEDED" })
	if n := strings.Count(w.logs.String(), "\n"); n > 60 {
		t.Errorf("%d lines in the log", n)
	}
}
