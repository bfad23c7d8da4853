package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// stop ends the server as an operator does.
func (w *world) stop() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	<-w.end
	w.cmd = nil
}

// flip flips a bit in the middle of a text that a file of the data directory holds.
func (w *world) flip(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "data", name)
	data, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	at := bytes.Index(data, []byte(text))
	if at < 0 {
		w.t.Fatalf("%s does not hold %q", name, text)
	}
	data[at+len(text)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deliver(webhook, body string) (id string) {
	w.t.Helper()
	got := post(w.t, http.MethodPost, w.url(webhook), strings.NewReader(body), http.Header{"Authorization": {"Bearer " + testSecret}})
	var accepted struct {
		DeliveryID string `json:"delivery_id"`
	}
	if err := json.Unmarshal([]byte(got.body), &accepted); err != nil || got.status != http.StatusAccepted {
		w.t.Fatalf("%+v", got)
	}
	return accepted.DeliveryID
}

// TestDamage (R6): a payload that lost a bit on the disk is not served, not run and not
// replayed, and everybody who looks is told; and so are lost transactions at the
// end of the write-ahead log.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	address := "http://" + w.addr
	w.start("--max-runs", "0")
	key := strings.TrimSpace(w.run("", "keys", "create", "all", "--scope", "manage"))
	body := `{"deploy": "to the staging cluster, please"}`
	id := w.deliver("hook", body)
	w.stop()
	w.flip("triphammer.db", body)

	w.start("--max-runs", "1")
	got := post(t, http.MethodGet, address+"/api/v1/deliveries/"+id+"/payload", nil, http.Header{"Authorization": {"Bearer " + key}})
	var problem api.Problem
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || got.status != http.StatusInternalServerError ||
		!strings.HasSuffix(problem.Type, "#stored-data-damaged") || problem.Retryable || strings.Contains(got.body, "staging") {
		t.Errorf("the payload: %+v, %v", got, err)
	}
	for _, args := range [][]string{{"payload"}, {"replay"}} {
		said := w.fails(exit.Bad, "deliveries", args[0], id)
		if !strings.Contains(said, "the payload of "+id+" is not what was stored") || strings.Contains(said, "cluster") {
			t.Errorf("deliveries %s: %s", args[0], said)
		}
	}
	if shown := w.run("", "deliveries", "show", id); !strings.Contains(shown, "the stored payload is damaged") {
		t.Errorf("the belt: %s", shown)
	}
	var runs []api.Run
	err := client.WaitFor(t.Context(), 20*time.Second, "the run has not ended", func() (bool, error) {
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].State != "QUEUED" && runs[0].State != "INPROGRESS", nil
	})
	if err != nil || runs[0].State != "FAILED" || !strings.Contains(runs[0].StatusMessage, "not what was stored") {
		t.Errorf("the run: %+v, %v", runs, err)
	}
	if n := strings.Count(w.logs.String(), "the store is damaged: what was read"); n != 1 {
		t.Errorf("the log tells of it %d times", n)
	}
	if status := w.run("", "status"); !strings.Contains(status, "found damaged data") {
		t.Errorf("status: %s", status)
	}
	if metrics := post(t, http.MethodGet, address+"/metrics", nil, nil).body; strings.Contains(metrics, "triphammer_store_damaged_reads_total 0") {
		t.Errorf("metrics: %s", metrics)
	}

	// The log: what is noted is more than what is left.
	for n := range 5 {
		w.deliver("hook", fmt.Sprintf(`{"n": %d}`, n))
	}
	var before []api.Delivery
	w.list(&before, "deliveries", "list")
	marked := filepath.Join(w.dir, "data", "triphammer.db-commits")
	was, err := os.ReadFile(marked)
	if err != nil {
		t.Fatal(err)
	}
	err = client.WaitFor(t.Context(), 20*time.Second, "the transactions are not noted", func() (bool, error) {
		w.deliver("hook", fmt.Sprintf(`{"at": %d}`, time.Now().UnixNano())) // so that the note is of after the others
		now, err := os.ReadFile(marked)
		return !bytes.Equal(now, was), err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.flip("triphammer.db-wal", `{"n": 0}`)
	w.start("--max-runs", "0")
	var after []api.Delivery
	w.list(&after, "deliveries", "list")
	if len(after) != 1 {
		t.Fatalf("%d deliveries, %d before: not just the last ones were lost", len(after), len(before))
	}
	if !strings.Contains(w.logs.String(), "the store has lost transactions that were acknowledged") {
		t.Error("the log does not say so")
	}
	if status := w.run("", "status"); !strings.Contains(status, "lacked up to") {
		t.Errorf("status: %s", status)
	}
	if entries := w.run("", "audit", "list"); !strings.Contains(entries, "store.lost") {
		t.Errorf("the audit log: %s", entries)
	}
	// What is left goes on from there.
	w.deliver("hook", `{"n": "again"}`)
	w.kill()
	w.start("--max-runs", "0")
	if strings.Contains(w.logs.String(), "lost transactions") {
		t.Error("it is told of again")
	}
}
