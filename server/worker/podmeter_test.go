package worker_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// podWorld has a cluster whose runs reach the provider by the gateway in their pod.
type podWorld struct {
	*cluster
	cfg  run.Config
	spec run.Spec
}

func inPods(t *testing.T, p *provider, cfg run.Config, budget factory.Budget, n int, most string) *podWorld {
	t.Helper()
	w := newWorld(t)
	server := httptest.NewTLSServer(p)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s, path := asking(t, w, budget, n, "dear", most)
	return &podWorld{w.cluster("SSL_CERT_FILE="+ca, "PATH="+path), configured(t, cfg, server.URL), s}
}

func (c *podWorld) begin() { c.start(worker.Config{Config: c.cfg}) }

// reserved is what nobody can tell any more, in tokens.
func (c *podWorld) reserved(id store.RunID) (tokens int64) {
	c.w.Helper()
	of, err := c.w.store.Usage.UsageOf(c.w.Context(), id)
	if err != nil {
		c.w.Fatal(err)
	}
	for _, m := range of {
		if m.Model == store.Reserved {
			tokens += m.Input
		}
	}
	return tokens
}

// TestMeterInPods: the gateway of a pod counts, and in the end nothing is kept that was not used (SPEC 25.2, 25.3).
func TestMeterInPods(t *testing.T) {
	for name, budget := range map[string]factory.Budget{
		"none": {}, "run": {Tokens: 100_000, USD: 1000}, "day": {TokensPerDay: 100_000}, "both": {Tokens: 50_000, USDPerDay: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := inPods(t, &provider{}, run.Config{}, budget, 3, "500")
			c.begin()
			r := c.w.finished(c.w.enqueue(c.spec))
			c.w.wants(r, store.Succeeded, "")
			if r.Tokens != 3*140 || r.CostUSD < 0.4199 || r.CostUSD > 0.4201 {
				t.Errorf("%d tokens, %v USD", r.Tokens, r.CostUSD)
			}
			of, err := c.w.store.Usage.UsageOf(t.Context(), r.ID)
			if err != nil || len(of) != 1 {
				t.Fatal(of, err)
			}
			of[0].CostUSD, of[0].WaitedMS = 0, 0
			if want := (store.ModelUsage{Model: "dear", Input: 180, CacheRead: 120, Output: 120, Requests: 3, Answered: 3}); of[0] != want {
				t.Errorf("%+v", of)
			}
			if spent, err := c.w.store.Usage.Today(t.Context()); err != nil || spent.Tokens != 420 {
				t.Errorf("%+v %v", spent, err)
			}
		})
	}
}

// TestMeterTogetherInPods: requests at the same time do not cross a budget together in a pod, and the run
// FAILS with the reason (SPEC 25.2).
func TestMeterTogetherInPods(t *testing.T) {
	const fits = 7
	for name, budget := range map[string]factory.Budget{
		"run": {Tokens: fits*1600 + 800}, "automation": {TokensPerDay: fits*1600 + 800}, "usd": {USD: fits*1.6 + 0.8}, "usd of the day": {USDPerDay: fits*1.6 + 0.8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &provider{before: func(_ int, r *http.Request) { <-r.Context().Done() }} // no answer, so that all are under way
			c := inPods(t, p, run.Config{}, budget, 20, "500")
			c.begin()
			r := c.w.finished(c.w.enqueue(c.spec))
			c.w.wants(r, store.FailedRun, " used up its budget")
			c.w.wants(r, store.FailedRun, `the next request to "dear" may use 15`)
			if n := len(p.asked()); n > fits {
				t.Errorf("%d requests of about 1,550 tokens reached the provider", n)
			}
			if most := max(budget.Tokens, budget.TokensPerDay); most > 0 && r.Tokens > most || max(budget.USD, budget.USDPerDay) > 0 && r.CostUSD > max(budget.USD, budget.USDPerDay) || r.Attempt != 1 {
				t.Errorf("%d tokens, %v USD in attempt %d", r.Tokens, r.CostUSD, r.Attempt)
			}
			if left := c.reserved(r.ID); left != 0 {
				t.Errorf("%d tokens stay reserved", left)
			}
		})
	}
}

// TestMeterOfPods: pods at the same time keep the budget of a day together.
func TestMeterOfPods(t *testing.T) {
	p := &provider{before: func(_ int, r *http.Request) { <-r.Context().Done() }}
	c := inPods(t, p, run.Config{Budget: factory.Budget{TokensPerDay: 5 * 1600}}, factory.Budget{}, 10, "500")
	c.begin()
	runs := []store.RunID{c.w.enqueue(c.spec), c.w.enqueue(c.spec)}
	total := int64(0)
	for _, id := range runs {
		r := c.w.finished(id)
		c.w.wants(r, store.FailedRun, "the server used up its budget of this day: ")
		total += r.Tokens
	}
	if n := len(p.asked()); total > 5*1600 || n > 5 {
		t.Errorf("%d tokens, %d requests", total, n)
	}
}

// TestMeterCutInPods: a request that says no maximum reserves what is left in a pod too, and an answer that
// is cut off counts with that.
func TestMeterCutInPods(t *testing.T) {
	p := &provider{within: func(_ int, r *http.Request) { panic(http.ErrAbortHandler) }}
	c := inPods(t, p, run.Config{}, factory.Budget{Tokens: 3000}, 1, "none")
	c.begin()
	r := c.w.finished(c.w.enqueue(c.spec))
	if r.Tokens != 3000 || len(p.asked()) != 1 {
		t.Errorf("%d tokens are used: %s", r.Tokens, r.StatusMessage)
	}
	if body := p.asked()[0]; !strings.Contains(body, `"max_tokens":19`) { // 3,000 without the estimate of the request
		t.Error(body)
	}
}

// TestMeterOfLostPod: what a pod was granted counts as used if the pod does not tell what it used.
func TestMeterOfLostPod(t *testing.T) {
	release := make(chan struct{})
	p := &provider{within: func(_ int, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}}
	c := inPods(t, p, run.Config{}, factory.Budget{Tokens: 9000}, 1, "500")
	c.spec.Retry.Attempts = 1
	c.begin()
	id := c.w.enqueue(c.spec)
	c.w.until("the request is under way", func() bool { return len(p.asked()) == 1 })
	c.Kill(jobOf(id), "egress", "OOMKilled")
	c.Kill(jobOf(id), "run", "OOMKilled")
	close(release)
	if r := c.w.finished(id); r.Tokens != 9000 || c.reserved(id) < 7000 {
		t.Errorf("%d tokens are used, %d of them are reserved: %s", r.Tokens, c.reserved(id), r.StatusMessage)
	}
}

// TestMeterTakenUp: a worker that takes an attempt up goes on with what was counted. Without any worker, the pod uses what it
// was granted, and no more.
func TestMeterTakenUp(t *testing.T) {
	for name, budget := range map[string]factory.Budget{"run": {Tokens: 9000}, "day": {TokensPerDay: 16_000}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			p := &provider{within: func(_ int, r *http.Request) {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}}
			c := inPods(t, p, run.Config{}, budget, 3, "500")
			c.begin()
			id := c.w.enqueue(c.spec)
			under := 3
			if name == "day" {
				under = 1 // 2,000 are granted to it at first
			}
			c.w.until("requests are under way, and count", func() bool { return len(p.asked()) >= under && c.w.read(id).Tokens >= 1500 })
			c.w.stop()
			if r := c.w.read(id); r.State != store.InProgress {
				t.Fatalf("the run is %s", r.State)
			}
			c.begin()
			close(release)
			r := c.w.finished(id)
			c.w.wants(r, store.Succeeded, "")
			if left := c.reserved(id); r.Tokens != 3*140 || left != 0 {
				t.Errorf("%d tokens are used, %d of them are reserved", r.Tokens, left)
			}
		})
	}
}
