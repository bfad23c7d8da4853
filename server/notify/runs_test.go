package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store"
)

// TestRuns: the end of a run is told to who wants to know, until it is answered 2xx
// or given up, with one id. Where it is told is a credential: log and notice have
// the host alone.
func TestRuns(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	host := strings.TrimPrefix(away.URL, "http://")
	never := []int{0}
	for name, tt := range map[string]struct {
		cfg      Runs
		answers  []int // to the attempts; the last one to all that follow
		signing  error
		state    store.RunState
		status   string // of the notice; empty: there is none
		attempts int64
		detail   string
	}{
		"told":                   {Runs{}, []int{204}, nil, store.Succeeded, store.NoticeDelivered, 1, "answered 204"},
		"told at last":           {Runs{}, []int{500, 302, 429, 200}, nil, store.FailedRun, store.NoticeDelivered, 4, "answered 200"},
		"given up":               {Runs{}, []int{503}, nil, store.Succeeded, store.NoticeFailed, 4, "answered 503"},
		"gone":                   {Runs{}, []int{410}, nil, store.Succeeded, store.NoticeFailed, 1, "answered 410"},
		"no secret":              {Runs{}, never, errors.New("there is no managed secret"), store.Succeeded, store.NoticeFailed, 4, "there is no managed secret"},
		"another state":          {Runs{States: []string{"FAILED"}}, never, nil, store.Succeeded, "", 0, ""},
		"this state":             {Runs{States: []string{"FAILED"}}, []int{200}, nil, store.FailedRun, store.NoticeDelivered, 1, ""},
		"another automation":     {Runs{Automations: []string{"b"}}, never, nil, store.Succeeded, "", 0, ""},
		"this automation":        {Runs{Automations: []string{"b", "a"}}, []int{200}, nil, store.Succeeded, store.NoticeDelivered, 1, ""},
		"cancelled in the queue": {Runs{}, []int{200}, nil, store.Cancelled, store.NoticeDelivered, 1, ""},
		"its server died":        {Runs{}, []int{200}, nil, store.InProgress, store.NoticeDelivered, 1, ""},
		"a secret path":          {Runs{Hook: Hook{URL: away.URL + "/services/" + token + "?" + token}}, never, nil, store.Succeeded, store.NoticeFailed, 4, host},
		"a secret user":          {Runs{Hook: Hook{URL: "https://" + token + ":" + token + "@" + host}}, never, nil, store.Succeeded, store.NoticeFailed, 4, host},
		"no host":                {Runs{Hook: Hook{URL: "http://[::1/" + token}}, never, nil, store.Succeeded, store.NoticeFailed, 4, "cannot be used"},
		"no address":             {Runs{Hook: Hook{URL: token}}, never, nil, store.Succeeded, store.NoticeFailed, 4, "unsupported protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			var got []string
			there := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, r.Header.Get("Webhook-Id")+" "+string(body))
				status := tt.answers[min(len(got), len(tt.answers))-1]
				if status == http.StatusFound {
					rw.Header().Set("Location", "/elsewhere")
				}
				rw.WriteHeader(status)
			}))
			defer there.Close()
			client := NewClient(nil)
			defer client.CloseIdleConnections()
			cfg := tt.cfg
			cfg.URL, cfg.Client = cmp.Or(cfg.URL, there.URL), client
			cfg.Secret = func(context.Context) (string, error) { return signingKey, tt.signing }
			cfg.Trace = func(context.Context, *store.Run) string { return "" }
			cfg.Body = func(_ context.Context, r *store.Run) ([]byte, error) { return []byte(r.State), nil }
			cfg.Retries = []time.Duration{time.Nanosecond, time.Nanosecond, time.Nanosecond}

			if err := w.store.Notices.KeepEnds(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			id := w.end(tt.state)
			notices := func() []store.Notice {
				all, err := w.store.Notices.List(t.Context(), 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			if all := notices(); len(all) != 1 || all[0].Status != store.NoticePending {
				t.Fatalf("after the end: %+v", all)
			}
			w.stop() // the next server tells it
			w.open()
			w.start(nil, &cfg)
			w.until("it is told, or not", func() bool {
				all := notices()
				return tt.status == "" && len(all) == 0 || len(all) == 1 && all[0].Status == tt.status
			})
			all := notices()
			w.stop()
			if len(all) == 1 {
				if n := all[0]; n.RunID != id || n.Attempts != tt.attempts || !n.DueAt.IsZero() || !strings.Contains(n.Detail, tt.detail) || strings.Contains(n.Detail, token) {
					t.Errorf("%+v", n)
				}
			}
			if text := w.log.String(); tt.status == store.NoticeFailed && !strings.Contains(text, "could not be told") {
				t.Errorf("log: %s", text)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, text := range got {
				if !strings.HasPrefix(text, "msg_"+id.String()+" ") {
					t.Errorf("told %s of %s", text, id)
				}
			}
		})
	}
}

// end makes a run and ends it; one that stays in progress is that of a server that
// died.
func (w *world) end(state store.RunState) (id store.RunID) {
	w.Helper()
	r, _, err := w.store.Runs.Create(w.Context(), store.NewRun{
		Factory: "default", Automation: "a", Source: store.SourceAPI, SpecHash: sha256.Sum256([]byte("{}")), Spec: []byte("{}"),
	}, "", nil)
	if err != nil {
		w.Fatal(err)
	}
	if state == store.Cancelled {
		if _, err := w.store.Runs.Stop(w.Context(), r.ID, store.StopCancel, ""); err != nil {
			w.Fatal(err)
		}
		return r.ID
	}
	leases, err := w.store.Leases.Claim(w.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute})
	if err != nil || len(leases) != 1 {
		w.Fatal(leases, err)
	}
	if state == store.InProgress {
		_, err = w.store.Leases.Reap(w.Context(), true, "the server died")
	} else {
		err = w.store.Leases.Finish(w.Context(), leases[0], state, "", nil)
	}
	if err != nil {
		w.Fatal(err)
	}
	return r.ID
}
