package server

import (
	"net/http"
	"testing"

	"triphammer/server/store"
)

// TestWorkersAPI: whoever may read sees the workers, whoever may operate drains them, and a key
// of one factory does neither (SPEC 17.4).
func TestWorkersAPI(t *testing.T) {
	f := newFixture(t)
	one := store.Worker{ID: "wrk_1", Kind: store.KindWorker, Names: []string{"gpu"}, Labels: map[string]string{"zone": "b"}, Host: "h", Version: "v", MaxRuns: 2}
	if _, err := f.store.Workers.Start(t.Context(), one, "p"); err != nil {
		t.Fatal(err)
	}
	operator, reader, runner := f.key("op", "operate"), f.key("reader", "read"), f.key("runner", "runs")
	if got := f.get("/api/v1/workers", reader); got.status != http.StatusOK || field(t, got, "workers", "0", "name") != "gpu" ||
		field(t, got, "workers", "0", "state") != "ready" || field(t, got, "workers", "0", "labels", "zone") != "b" {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, c := range []struct {
		key, method, path string
		status            int
		state             string
	}{
		{runner, "GET", "/api/v1/workers", http.StatusForbidden, ""},
		{reader, "POST", "/api/v1/workers/gpu/drain", http.StatusForbidden, ""},
		{operator, "POST", "/api/v1/workers/attic/drain", http.StatusNotFound, ""},
		{operator, "POST", "/api/v1/workers/gpu/drain", http.StatusOK, "drained"},
		{operator, "POST", "/api/v1/workers/wrk_1/resume", http.StatusOK, "ready"},
	} {
		got := f.do(c.method, c.path, c.key, "")
		if got.status != c.status || c.state != "" && field(t, got, "workers", "0", "state") != c.state {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.body)
		}
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 2})
	if err != nil || entries[0].Action != "worker.resume" || entries[1].Action != "worker.drain" || entries[1].Object != "gpu" || entries[1].Details != "wrk_1" {
		t.Errorf("audit %+v %v", entries, err)
	}
}
