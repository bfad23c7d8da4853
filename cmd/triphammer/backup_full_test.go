//go:build full

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestBackupUnderLoad (R27): at 1, 20 and 200 deliveries a second a backup of the running
// server ends, and restored it has each delivery that was acknowledged before it
// began, with its body.
func TestBackupUnderLoad(t *testing.T) {
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\n", "automations/a.md": automationFile("hook", ""),
	})
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "0")
	address := w.url("hook")
	noise := make([]byte, 150_000)
	_, _ = rand.Read(noise)
	large := base64.StdEncoding.EncodeToString(noise)
	var mu sync.Mutex
	bodies := make(map[string]string) // by the id of what was acknowledged
	send := func(body string) {
		got := post(t, "POST", address, strings.NewReader(body), http.Header{"Authorization": {"Bearer " + testSecret}})
		var d struct {
			ID string `json:"delivery_id"`
		}
		if err := json.Unmarshal([]byte(got.body), &d); err != nil || got.status != 202 {
			t.Errorf("%+v", got)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		bodies[d.ID] = body
	}
	for i := range 150 { // some 30 MB
		send(fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, large))
	}
	for _, rate := range []int{1, 20, 200} {
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			ticker := time.NewTicker(time.Second / time.Duration(rate))
			defer ticker.Stop()
			for i := 0; ; i++ {
				all.Go(func() { send(fmt.Sprintf(`{"rate":%d,"n":%d}`, rate, i)) })
				select {
				case <-ticker.C:
				case <-stop:
					return
				}
			}
		})
		mu.Lock()
		var before []string
		for id := range bodies {
			before = append(before, id)
		}
		mu.Unlock()
		file := fmt.Sprint("backup-", rate, ".db")
		began := time.Now()
		w.run("", "db", "backup", file)
		t.Logf("at %d a second: %v", rate, time.Since(began))
		close(stop)
		all.Wait()

		dir := filepath.Join(w.dir, fmt.Sprint("restored-", rate))
		w.run("", "db", "restore", file, "--verify")
		key, err := os.ReadFile(filepath.Join(w.dir, "data", "key"))
		if err := errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "key"), key, 0o600)); err != nil {
			t.Fatal(err)
		}
		w.run("", "db", "restore", file, "--data", dir)
		var there []api.Delivery
		if err := json.Unmarshal([]byte(w.run("", "deliveries", "list", "--limit", "0", "-o", "json", "--data", dir)), &there); err != nil {
			t.Fatal(err)
		}
		has := make(map[string]bool)
		for _, d := range there {
			has[d.ID] = len(d.Runs) == 1
		}
		for _, id := range before {
			if !has[id] {
				t.Fatalf("at %d a second, %s was acknowledged before and is not whole", rate, id)
			}
		}
		id := before[0]
		if got := w.run("", "deliveries", "payload", id, "--data", dir); !bytes.Equal([]byte(got), []byte(bodies[id])) {
			t.Errorf("%s has another body", id)
		}
	}
}
