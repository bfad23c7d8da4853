package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// mostOverloaded is the memory in MB that a server may take under ten times its load.
const mostOverloaded = 256

// TestOverload (R20): 256 senders, who come again at once whatever they are told, send ten times what the server can
// take, because its queue of runs is full. Each delivery is answered: 202, or 503 with Retry-After. Meanwhile runs
// and further deliveries go on, and memory is bounded. Nothing acknowledged is lost or doubled, and who comes later
// gets in.
func TestOverload(t *testing.T) {
	unwatched(t)
	const senders, queue, times = 256, 10, 10
	w := plainWorld(t)
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "2", "--max-queued", fmt.Sprint(queue))
	var mu sync.Mutex
	var acknowledged []string
	answers, wrong := 0, make(map[string]int)
	stop := w.load(w.url("hook"), senders, func(n int) string { return fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("y", n*977%8000)) }, func(resp *http.Response, id string) {
		mu.Lock()
		defer mu.Unlock()
		switch answers++; {
		case resp == nil:
			wrong["no answer"]++
		case resp.StatusCode == http.StatusAccepted:
			acknowledged = append(acknowledged, id)
		case resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "":
			wrong[fmt.Sprintf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))]++
		}
	})
	err := client.WaitFor(t.Context(), time.Minute, "the server does not go on under its load", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged) >= 3*queue && answers >= times*len(acknowledged), nil
	})
	stop()
	most := w.ofProcess("VmHWM") >> 10
	t.Logf("%d answers, %d of them 202; %d MB", answers, len(acknowledged), most)
	if err != nil || len(wrong) > 0 {
		t.Errorf("%v; other answers: %v", err, wrong)
	}
	if most > mostOverloaded {
		t.Errorf("the server took %d MB", most)
	}
	var runs []api.Run
	if err := client.WaitFor(t.Context(), time.Minute, "the runs do not end", func() (bool, error) {
		w.list(&runs, "runs", "list", "--limit", "0")
		return !slices.ContainsFunc(runs, func(r api.Run) bool { return r.State == "QUEUED" || r.State == "INPROGRESS" }), nil
	}); err != nil {
		t.Fatal(err)
	}
	acknowledged = append(acknowledged, w.deliver("hook", `{"late":true}`))
	ran := make(map[string]int)
	for _, r := range runs {
		if ran[r.DeliveryID]++; r.State != "SUCCEEDED" {
			t.Errorf("run %s is %s", r.RunID, r.State)
		}
	}
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	kept := make(map[string]int)
	for _, d := range deliveries {
		kept[d.ID]++
	}
	for i, id := range acknowledged {
		if kept[id] != 1 || ran[id] != 1 && i < len(acknowledged)-1 {
			t.Errorf("delivery %s was acknowledged: it is kept %d times, and has %d runs", id, kept[id], ran[id])
		}
	}
}
