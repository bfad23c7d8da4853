package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
)

// TestNotifier: the end of a run is told to who wants to know, until it is
// answered 2xx or given up, with one id.
func TestNotifier(t *testing.T) {
	for _, tt := range []struct {
		name     string
		wanted   run.NoticeFilter
		answers  []int // of the attempts; the last one for all that follow
		signing  error
		state    store.RunState
		status   string // of the notice; empty: there is none
		attempts int64
	}{
		{"told", run.NoticeFilter{}, []int{204}, nil, store.Succeeded, store.NoticeDelivered, 1},
		{"told at last", run.NoticeFilter{}, []int{500, 302, 429, 200}, nil, store.FailedRun, store.NoticeDelivered, 4},
		{"given up", run.NoticeFilter{}, []int{503}, nil, store.Succeeded, store.NoticeFailed, 4},
		{"gone", run.NoticeFilter{}, []int{410}, nil, store.Succeeded, store.NoticeFailed, 1},
		{"no secret", run.NoticeFilter{}, []int{200}, errors.New("there is no managed secret"), store.Succeeded, store.NoticeFailed, 4},
		{"another state", run.NoticeFilter{States: []string{"FAILED"}}, []int{200}, nil, store.Succeeded, "", 0},
		{"this state", run.NoticeFilter{States: []string{"FAILED"}}, []int{200}, nil, store.FailedRun, store.NoticeDelivered, 1},
		{"another automation", run.NoticeFilter{Automations: []string{"b"}}, []int{200}, nil, store.Succeeded, "", 0},
		{"this automation", run.NoticeFilter{Automations: []string{"b", "a"}}, []int{200}, nil, store.Succeeded, store.NoticeDelivered, 1},
		{"cancelled in the queue", run.NoticeFilter{}, []int{200}, nil, store.Cancelled, store.NoticeDelivered, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			var ids, bodies []string
			there := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				ids, bodies = append(ids, r.Header.Get("Webhook-Id")), append(bodies, string(body))
				status := tt.answers[min(len(ids), len(tt.answers))-1]
				if status == http.StatusFound {
					rw.Header().Set("Location", "/elsewhere")
				}
				rw.WriteHeader(status)
			}))
			defer there.Close()
			n := run.NewNotifier(run.NotifierConfig{
				Store: w.store, URL: there.URL, Wanted: tt.wanted, Retries: []time.Duration{time.Nanosecond, time.Nanosecond, time.Nanosecond},
				Logger: slog.New(slog.DiscardHandler),
				Body: func(_ context.Context, r *store.Run) ([]byte, error) {
					return json.Marshal(map[string]string{"state": string(r.State)})
				},
				Sign: func(_ context.Context, id string, _ time.Time, _ []byte) (http.Header, error) {
					return http.Header{"Webhook-Id": {id}}, tt.signing
				},
			})
			id := w.enqueue(run.Spec{Automation: "a"})
			if tt.state == store.Cancelled {
				if _, err := w.store.RequestCancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			} else {
				leases, err := w.store.ClaimRuns(t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute})
				if err != nil || len(leases) != 1 {
					t.Fatal(leases, err)
				}
				if err := w.store.FinishRun(t.Context(), leases[0], tt.state, "", nil); err != nil {
					t.Fatal(err)
				}
			}
			notices := func() []store.Notice {
				all, err := w.store.Notices(t.Context(), 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			if all := notices(); len(all) != 1 || all[0].Status != store.NoticePending {
				t.Fatalf("after the end: %+v", all)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- n.Run(ctx) }()
			w.until("it is told, or not", func() bool {
				all := notices()
				return tt.status == "" && len(all) == 0 || len(all) == 1 && all[0].Status == tt.status
			})
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if all := notices(); len(all) == 1 && (all[0].Attempts != tt.attempts || !all[0].DueAt.IsZero() || all[0].Detail == "") {
				t.Errorf("%+v", all[0])
			}
			for i := range ids {
				if ids[i] != "msg_"+id.String() || !strings.Contains(bodies[i], fmt.Sprintf("%q", tt.state)) {
					t.Errorf("attempt %d: %s %s", i, ids[i], bodies[i])
				}
			}
		})
	}
}

// TestNoticeOfCrash: a run that a dead server left is told too, after a restart.
func TestNoticeOfCrash(t *testing.T) {
	w := newWorld(t)
	w.enqueue(run.Spec{Automation: "a"})
	if _, err := w.store.ClaimRuns(t.Context(), store.Claim{Worker: "dead", Most: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	w.store.KeepNotices()
	w.start(run.Config{MaxRuns: 1}, "")
	w.until("the end is kept", func() bool {
		all, err := w.store.Notices(t.Context(), 0, 10)
		return err == nil && len(all) == 1
	})
}

// TestNoticeKeepsItsAddress: where the ends of runs are told is a credential: of a
// receiver that does not answer, log and notice name the host alone.
func TestNoticeKeepsItsAddress(t *testing.T) {
	there := httptest.NewServer(nil)
	there.Close()
	for _, address := range []string{there.URL + "/services/c4nary?c4nary=c4nary", strings.Replace(there.URL, "http://", "https://c4nary:c4nary@", 1), "http://[::1/c4nary", "c4nary"} {
		w := newWorld(t)
		var log strings.Builder
		n := run.NewNotifier(run.NotifierConfig{
			Store: w.store, URL: address, Retries: []time.Duration{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Body: func(context.Context, *store.Run) ([]byte, error) { return []byte("{}"), nil },
			Sign: func(context.Context, string, time.Time, []byte) (http.Header, error) { return http.Header{}, nil },
		})
		id := w.enqueue(run.Spec{Automation: "a"})
		if _, err := w.store.RequestCancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = n.Run(ctx) })
		var notice store.Notice
		for notice.Status != store.NoticeFailed {
			all, err := w.store.Notices(t.Context(), 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			notice = all[0]
		}
		stop()
		running.Wait()
		if said := log.String() + notice.Detail; strings.Contains(said, "c4nary") || !strings.Contains(said, "could not be told") || notice.Detail == "" {
			t.Errorf("%s", said)
		}
		if host := strings.TrimPrefix(there.URL, "http://"); strings.Contains(address, host) && !strings.Contains(notice.Detail, host) {
			t.Errorf("the notice does not say where: %s", notice.Detail)
		}
	}
}
