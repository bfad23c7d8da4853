package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store"
)

// sse are the events of a stream as they come.
type sse struct {
	status int
	events chan [3]string // id, kind, data; closed at its end
	close  func()
}

func (f *fixture) follow(key, runID, after string) *sse {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/api/v1/agent/runs/"+runID+"/events", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &sse{status: resp.StatusCode, events: make(chan [3]string, 10_000), close: cancel}
	f.t.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer func() { _ = resp.Body.Close() }()
		var e [3]string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			if i := slices.Index([]string{"id", "event", "data"}, field); i >= 0 {
				e[i] = value
			}
			if field == "" && e[2] != "" {
				s.events <- e
				e = [3]string{}
			}
		}
	}()
	return s
}

// next waits for an event, or for the end of the stream.
func (s *sse) next(t *testing.T) (e [3]string, ok bool) {
	t.Helper()
	select {
	case e, ok = <-s.events:
		return e, ok
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
		return e, false
	}
}

// rest are the ids and kinds until the end.
func (s *sse) rest(t *testing.T) (all []string) {
	t.Helper()
	for {
		e, ok := s.next(t)
		if !ok {
			return all
		}
		all = append(all, e[1]+" "+e[0])
	}
}

// claimed is a run that this test executes.
func (f *fixture) claimed(key string) store.Lease {
	f.t.Helper()
	id := f.create(key, `{"prompt":"x"}`)
	leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute})
	if err != nil || len(leases) != 1 || leases[0].RunID.String() != id {
		f.t.Fatal(leases, err)
	}
	return leases[0]
}

func (f *fixture) say(l store.Lease, from, to int64) {
	f.t.Helper()
	var events []store.Event
	for seq := from; seq <= to; seq++ {
		events = append(events, store.Event{Seq: seq, At: time.Now(), Kind: "output", Data: json.RawMessage(fmt.Sprintf(`{"text":"%d"}`, seq))})
	}
	if err := f.store.Transcripts.Append(f.t.Context(), l, events); err != nil {
		f.t.Fatal(err)
	}
}

// TestStream: a stream has everything once and in order, from wherever it begins.
func TestStream(t *testing.T) {
	f := newFixture(t)
	key := f.key("ada", "runs")
	queued := f.create(key, `{"prompt":"x"}`)
	early := f.follow(key, queued, "")
	if e, _ := early.next(t); e[0] != "0.QUEUED" || e[1] != "state" || !strings.Contains(e[2], `"state":"QUEUED"`) {
		t.Errorf("first %v", e)
	}
	f.do("POST", "/api/v1/agent/runs/"+queued+"/cancel", key, "")
	if got := early.rest(t); !slices.Equal(got, []string{"state 0.CANCELLED"}) {
		t.Errorf("cancelled while queued: %v", got)
	}

	l := f.claimed(key)
	// 204 would tell a browser never to come back.
	if got := f.follow(key, l.RunID.String(), "0.CANCELLED"); got.status != 400 {
		t.Errorf("the last id of another run, while this one goes on: %d", got.status)
	}
	live := f.follow(key, l.RunID.String(), "")
	f.say(l, 1, 3)
	want := []string{"state 0.QUEUED", "state 0.INPROGRESS", "transcript 1.INPROGRESS", "transcript 2.INPROGRESS", "transcript 3.INPROGRESS"}
	var got []string
	for range want {
		e, _ := live.next(t)
		got = append(got, e[1]+" "+e[0])
	}
	f.say(l, 4, 4000) // more than followers share
	if err := f.store.Leases.Finish(t.Context(), l, store.FailedRun, "it broke", new(int64)); err != nil {
		t.Fatal(err)
	}
	for seq := 4; seq <= 4000; seq++ {
		want = append(want, fmt.Sprintf("transcript %d.INPROGRESS", seq))
	}
	want = append(want, "state 4000.FAILED")
	if got = append(got, live.rest(t)...); !slices.Equal(got, want) {
		t.Errorf("%d events, not %d: %v … %v", len(got), len(want), got[:min(8, len(got))], got[max(0, len(got)-3):])
	}
	if all := f.follow(key, l.RunID.String(), "").rest(t); !slices.Equal(all, want) {
		t.Errorf("afterwards %d events, not %d", len(all), len(want))
	}
	for _, i := range []int{0, 1, 2, 100, 3999, 4000} {
		_, id, _ := strings.Cut(want[i], " ")
		if rest := f.follow(key, l.RunID.String(), id).rest(t); !slices.Equal(rest, want[i+1:]) {
			t.Errorf("after %s: %d events, not %d", id, len(rest), len(want)-i-1)
		}
	}
	if done := f.follow(key, l.RunID.String(), "4000.FAILED"); done.status != http.StatusNoContent {
		t.Errorf("after all of it: %d", done.status)
	}
	for _, bad := range []string{"x", "1", "-1.QUEUED", "1.DONE", "1.PENDING"} {
		if got := f.follow(key, l.RunID.String(), bad); got.status != 400 {
			t.Errorf("after %q: %d", bad, got.status)
		}
	}
	if got := f.follow(key, "run_0000000000001", ""); got.status != 404 {
		t.Errorf("no such run: %d", got.status)
	}
	if got := f.follow(f.limitedKey("other", "elsewhere", "runs"), l.RunID.String(), ""); got.status != 404 {
		t.Errorf("another factory's key: %d", got.status)
	}
}

// TestRevokedStream: a key that is revoked has no open streams either
// (SPEC 10.2), and a stopping server has none.
func TestRevokedStream(t *testing.T) {
	f := newFixture(t)
	admin, ada, bob := f.key("admin", "manage"), f.key("ada", "runs"), f.key("bob", "runs")
	l := f.claimed(ada)
	first, second, other := f.follow(ada, l.RunID.String(), ""), f.follow(ada, l.RunID.String(), ""), f.follow(bob, l.RunID.String(), "")
	for _, s := range []*sse{first, second, other} {
		s.next(t)
		s.next(t)
	}
	if got := f.do("DELETE", "/api/v1/keys/ada", admin, ""); got.status != 200 {
		t.Fatal(got.status)
	}
	revoked := time.Now()
	for _, s := range []*sse{first, second} {
		if rest := s.rest(t); len(rest) != 0 {
			t.Errorf("after the end of its key: %v", rest)
		}
	}
	if took := time.Since(revoked); took > quietTime/2 {
		t.Errorf("the streams of a revoked key ended after %v", took)
	}
	f.say(l, 1, 1)
	if e, ok := other.next(t); !ok || e[1] != "transcript" {
		t.Errorf("the other key's stream: %v %t", e, ok)
	}
	f.streams.stop()
	if rest := other.rest(t); len(rest) != 0 {
		t.Errorf("after the server's end: %v", rest)
	}
	if rest := f.follow(bob, l.RunID.String(), "").rest(t); len(rest) > 2 {
		t.Errorf("a stream of a stopping server: %v", rest)
	}
}

// TestFeedEnds: when the last follower is gone, nothing reads the run any more.
func TestFeedEnds(t *testing.T) {
	f := newFixture(t)
	key := f.key("ada", "runs")
	l := f.claimed(key)
	var all []*sse
	for range 20 {
		all = append(all, f.follow(key, l.RunID.String(), ""))
	}
	var wg sync.WaitGroup
	for _, s := range all {
		s.next(t)
		wg.Go(func() {
			s.close()
			for range s.events {
			}
		})
	}
	wg.Wait()
	waitUntil(t, "runs are still followed", func() bool { return f.parts.Runs.Feed().Followed() == 0 })
}
