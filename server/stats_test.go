package server

import (
	"encoding/json"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// TestStats: the figures of a day, in all, by webhook and by automation, within what the
// caller may see.
func TestStats(t *testing.T) {
	f := newFixture(t)
	key := f.key("reader", "read")
	for _, body := range []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":3}`, `{`} {
		f.do("POST", ingress+f.uids()["hook"], hookSecret, body)
	}
	f.do("POST", ingress+f.uids()["hook"], "wrong", `{"n":1}`)
	read := func(query, key string) (s api.Stats) {
		t.Helper()
		got := f.get("/api/v1/stats?wait=true&"+query, key)
		if err := json.Unmarshal(got.body, &s); err != nil || got.status != 200 {
			t.Fatalf("%d %s, %v", got.status, got.body, err)
		}
		return s
	}
	s := read("", key)
	if !s.Complete || s.Step != "hour" || len(s.Times) != 24 || s.Total.Deliveries != 6 || s.Total.Wanted != 1 || s.Total.Started != 1 ||
		s.Total.Stopped["matched"] != 2 || s.Total.Stopped["new"] != 1 || s.Total.Stopped["parsed"] != 1 || s.Total.Stopped["authenticated"] != 1 {
		t.Errorf("%+v", s.Total)
	}
	if len(s.Webhooks) != 1 || s.Webhooks[0].Deliveries != 6 || s.Webhooks[0].Times[23]+s.Webhooks[0].Times[22] != 6 {
		t.Errorf("%+v", s.Webhooks)
	}
	if s := read("since=720h", key); s.Step != "day" || len(s.Times) < 30 || s.Total.Deliveries != 6 {
		t.Errorf("30 days: %s, %d times, %+v", s.Step, len(s.Times), s.Total)
	}
	if s := read("", f.limitedKey("elsewhere", "other", "read")); s.Total.Deliveries != 0 || len(s.Webhooks) != 0 {
		t.Errorf("another factory's key sees %+v", s)
	}
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":4}`)
	leases, err := f.store.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	used := store.ModelUsage{Model: "claude-x", Input: 10, Output: 5, CostUSD: 0.25, Requests: 3, Errors: 1, Answered: 2, WaitedMS: 600}
	if err := f.store.Usage.Account(t.Context(), leases[0], time.Now(), store.Spending{Tokens: 15, CostUSD: 0.25}, store.Limits{}, used); err != nil {
		t.Fatal(err)
	}
	shown := api.ModelUsage{Model: "claude-x", Input: 10, Output: 5, CostUSD: 0.25, Requests: 3, Errors: 1, FirstTokenMS: 300}
	if s := read("", key); len(s.Models) != 1 || s.Models[0].ModelUsage != shown || s.Models[0].Automation == "" {
		t.Errorf("models: %+v", s.Models)
	}
	if s := read("", f.limitedKey("elsewhere too", "other", "read")); len(s.Models) != 0 {
		t.Errorf("another factory's key sees %+v", s.Models)
	}
	var run api.Run
	if got := f.get("/api/v1/agent/runs/"+leases[0].RunID.String(), key); json.Unmarshal(got.body, &run) != nil || len(run.Detail.Models) != 1 || run.Detail.Models[0] != shown {
		t.Errorf("the run: %s", got.body)
	}
	for _, bad := range []string{"since=x", "since=-1h", "since=9000h"} {
		if got := f.get("/api/v1/stats?"+bad, key); got.status != 400 {
			t.Errorf("%s: %d", bad, got.status)
		}
	}
}

// TestDeliveryFilters: the log by what became of its entries, and by a text.
func TestDeliveryFilters(t *testing.T) {
	f := newFixture(t)
	key := f.key("reader", "read")
	send := func(secret, body string, headers ...string) {
		f.do("POST", ingress+f.uids()["hook"], secret, body, headers...)
	}
	send(hookSecret, `{"n":1,"order":"Äpfel 4711"}`)
	send(hookSecret, `{"n":2}`, "X-Service-Delivery-Id", "sender-77")
	send(hookSecret, `{"n":2}`, "X-Service-Delivery-Id", "sender-77")
	send(hookSecret, `[`)
	send("wrong", `{"n":1}`)
	for query, want := range map[string]int{
		"": 5, "outcome=refused": 2, "outcome=accepted": 2, "stopped=none": 1, "stopped=matched": 1, "stopped=new&webhook=hook": 1, "stopped=run": 0,
		"text=äPFEL": 1, "text=SENDER-77": 2, "text=nothing": 0, "text=sender&stopped=matched": 1, "outcome=rejected_auth&stopped=authenticated&factory=default": 1,
	} {
		var page api.List[api.Delivery]
		got := f.get("/api/v1/deliveries?"+query, key)
		if err := json.Unmarshal(got.body, &page); err != nil || len(page.Entries) != want || page.PageInfo.HasNextPage {
			t.Errorf("%s: %d %s, %v", query, len(page.Entries), got.body, err)
		}
		for _, d := range page.Entries {
			if d.Outcome == "duplicate" {
				var same api.List[api.Delivery]
				if err := json.Unmarshal(f.get("/api/v1/deliveries?duplicate_of="+d.DuplicateOf, key).body, &same); err != nil || len(same.Entries) != 1 || same.Entries[0].ID != d.ID {
					t.Errorf("duplicates of %s: %+v, %v", d.DuplicateOf, same, err)
				}
			}
		}
	}
	for _, bad := range []string{"stopped=x", "outcome=x", "replay_of=run_1"} {
		if got := f.get("/api/v1/deliveries?"+bad, key); got.status != 400 {
			t.Errorf("%s: %d", bad, got.status)
		}
	}
}
