package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestCrash (R1) kills the server under load 50 times: no acknowledged delivery is
// lost, and none starts more or fewer runs than it matched.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "environments/env.yaml": "command: ['true']\n",
		"automations/all.md": automationFile("hook", ""), "automations/even.md": automationFile("hook", "{even: [true]}"),
	})
	kills := 50
	if underRace {
		kills = 10 // a program that watches itself is slow
	}
	serve := []string{"--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "2"}
	w.start(serve...)
	address := w.url("hook")

	var sent, acknowledged atomic.Int64
	var acks sync.Map // delivery id to whether it is even
	acked := make(chan struct{}, 1000)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	for range 8 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := sent.Add(1)
				body := fmt.Sprintf(`{"n":%d,"even":%t}`, n, n%2 == 0)
				req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+testSecret)
				req.Header.Set("X-Service-Delivery-Id", fmt.Sprintf("%d-%t", n, n%2 == 0))
				resp, err := client.Do(req)
				if err != nil {
					// The server is dead: nothing was acknowledged. A sender tries again.
					select {
					case <-stop:
					case <-time.After(5 * time.Millisecond):
					}
					continue
				}
				var answer struct {
					DeliveryID string `json:"delivery_id"`
				}
				decodeErr := json.NewDecoder(resp.Body).Decode(&answer)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusAccepted && decodeErr == nil {
					acks.Store(answer.DeliveryID, n%2 == 0)
					acknowledged.Add(1)
					select {
					case acked <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for kill := range kills {
		for range 20 {
			select {
			case <-acked:
			case <-w.end:
				t.Fatalf("kill %d: the server ended by itself", kill)
			case <-time.After(20 * time.Second):
				t.Fatalf("kill %d: nothing is acknowledged any more", kill)
			}
		}
		w.kill()
		for len(acked) > 0 {
			<-acked // of the dead server
		}
		w.start(serve...)
	}
	close(stop)
	senders.Wait()
	w.kill()

	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	var runs []api.Run
	w.list(&runs, "runs", "list", "--limit", "0")
	unclaimed := make(map[string]string, len(runs)) // run to its delivery
	for _, r := range runs {
		unclaimed[r.RunID] = r.DeliveryID
	}
	known, accepted := make(map[string]bool), make(map[string]bool)
	for _, d := range deliveries {
		known[d.ID] = true
		if d.Outcome != "accepted" {
			continue
		}
		if accepted[d.Identity.Value] {
			t.Errorf("identity %s is accepted twice", d.Identity.Value)
		}
		accepted[d.Identity.Value] = true
		for _, id := range d.Runs {
			if unclaimed[id] != d.ID {
				t.Errorf("run %s of delivery %s is of %q", id, d.ID, unclaimed[id])
			}
			delete(unclaimed, id)
		}
		want := 1
		if strings.HasSuffix(d.Identity.Value, "true") {
			want = 2
		}
		if len(d.Runs) != want {
			t.Errorf("delivery %s (%s) has %d runs, not %d", d.ID, d.Identity.Value, len(d.Runs), want)
		}
	}
	if len(unclaimed) > 0 {
		t.Errorf("%d runs belong to no delivery", len(unclaimed))
	}
	acks.Range(func(id, _ any) bool {
		if !known[id.(string)] {
			t.Errorf("delivery %s was acknowledged and is lost", id)
		}
		return true
	})
	t.Logf("%d sent, %d acknowledged, %d recorded", sent.Load(), acknowledged.Load(), len(deliveries))
	if acknowledged.Load() < int64(20*kills) {
		t.Errorf("only %d acknowledged: there was no load", acknowledged.Load())
	}
}
