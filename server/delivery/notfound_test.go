package delivery

import (
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

// TestNotFoundPath (R16): a request that is answered 404 takes the same way whether its webhook is unknown, disabled
// or paused, with a credential and without one: no byte of the body is read, nothing is verified and nothing is
// recorded, so that the time it takes tells nothing (SPEC 5.2). BenchmarkNotFound measures the time.
func TestNotFoundPath(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"signed", "url"} {
		f.tree["webhooks/off"+name+".yaml"] = &fstest.MapFile{Data: append(slices.Clone(f.tree["webhooks/"+name+".yaml"].Data), "enabled: false\n"...)}
	}
	f.live.Swap(f.build(t, webhookSecret))
	if _, err := f.store.Pauses.Pause(t.Context(), store.Pause{Pausable: store.Pausable{Kind: store.KindWebhook, Factory: "default", Name: "lone"}}); err != nil {
		t.Fatal(err)
	}
	var seen Observation
	f.start(Config{Observe: func(o Observation) { seen = o }, Logger: slog.New(slog.DiscardHandler)})
	read := 0
	// cost is what a request costs, in allocations, bodies that are read and transactions.
	cost := func(webhook string, status int, header ...string) (allocations float64, bodies int, commits int64) {
		t.Helper()
		r := request(webhook, strings.Repeat(" ", 2048)+"{}", header...)
		body := r.ReadBody
		r.ReadBody = func(limit int64) ([]byte, error) { read++; return body(limit) }
		read, commits, allocations = 0, f.store.Commits(), math.MaxFloat64
		for range 3 { // what else allocates meanwhile is in some of them only
			allocations = min(allocations, testing.AllocsPerRun(100, func() {
				if a := f.Receive(t.Context(), r); a.Status != status {
					t.Fatalf("%s: %+v", webhook, a)
				}
			}))
		}
		return allocations, read, f.store.Commits() - commits
	}
	none, _, _ := cost("none", http.StatusNotFound)
	for _, webhook := range []string{"none", "off", "offsigned", "offurl", "lone"} {
		for _, header := range [][]string{nil, bearer(), {"X-Hub-Signature-256", "sha256=" + strings.Repeat("0", 64)}} {
			allocations, bodies, commits := cost(webhook, http.StatusNotFound, header...)
			if allocations != none || bodies != 0 || commits != 0 || seen != (Observation{Status: http.StatusNotFound, Reason: ReasonNotFound}) {
				t.Errorf("%s %v: %v allocations, not %v; %d bodies read, %d transactions; seen %+v", webhook, header, allocations, none, bodies, commits, seen)
			}
		}
	}
	// The control: what is verified first shows in each of these figures.
	if allocations, bodies, commits := cost("signed", http.StatusUnauthorized); allocations <= none || bodies == 0 || commits == 0 {
		t.Errorf("a request that is verified and refused: %v allocations, %d bodies read, %d transactions", allocations, bodies, commits)
	}
}
