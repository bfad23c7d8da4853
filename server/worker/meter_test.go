package worker_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/run/price"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// modelClient is what the test binary is in a run: it sends so many requests for answers of at most
// so many tokens to the model at the same time, and ends like Claude Code, with the statuses as its words.
const modelClient = "model-client"

func talkToModel(args []string) {
	n, _ := strconv.Atoi(args[0])
	said := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			most := ""
			if args[2] != "none" {
				most = `,"max_tokens":` + args[2]
			}
			req, _ := http.NewRequest(http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", strings.NewReader(`{"model":"`+args[1]+`","messages":[],"stream":true`+most+`}`))
			req.Header.Set("X-Api-Key", os.Getenv("ANTHROPIC_API_KEY"))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				said[i] = err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			if said[i] = resp.Status; resp.StatusCode != http.StatusOK {
				said[i] += string(body)
			}
		})
	}
	all.Wait()
	// Its own report is wrong: it does not count.
	fmt.Printf(`{"type":"result","subtype":"success","session_id":"s","usage":{"input_tokens":5000000,"output_tokens":1}}`+"\n%s\n", strings.Join(said, "\n"))
}

// provider is a model of Anthropic's API whose answers use 100 tokens of input and 40 of output.
type provider struct {
	mu     sync.Mutex
	bodies []string
	// before, if set, is called with the number of the request before the answer, and within before its end.
	before, within func(n int, r *http.Request)
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.bodies = append(p.bodies, string(body))
	n := len(p.bodies)
	p.mu.Unlock()
	if r.Header.Get("X-Api-Key") != "the-key" {
		http.Error(w, "no key", http.StatusUnauthorized)
		return
	}
	if p.before != nil {
		p.before(n, r)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":60,\"cache_read_input_tokens\":40,\"output_tokens\":1}}}\n\n")
	_ = http.NewResponseController(w).Flush()
	if p.within != nil {
		p.within(n, r)
	}
	fmt.Fprint(w, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":40}}\n\n")
}

func (p *provider) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bodies
}

// metered starts a worker whose runs reach the provider by their gateway, and makes the spec of a run that
// sends n requests.
func metered(t *testing.T, w *world, p *provider, cfg run.Config, budget factory.Budget, n int, model, most string) run.Spec {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	s, path := asking(t, w, budget, n, model, most)
	w.start(worker.Config{Config: configured(t, cfg, server.URL)}, path)
	return s
}

// asking makes the spec of a run that sends n requests, and the PATH of its agent.
func asking(t *testing.T, w *world, budget factory.Budget, n int, model, most string) (s run.Spec, path string) {
	t.Helper()
	if _, err := w.store.Secrets.Set(t.Context(), "KEY", secret.New("the-key")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := agentNamed(t, "claude", fmt.Sprintf("#!/bin/sh\nexec %s %s %d %s %s\n", self, modelClient, n, model, most))
	s = run.Spec{Automation: "a", Prompt: "Ask.", Budget: budget, Retry: run.Retry{Attempts: 3}}
	s.Harness.Type, s.Harness.AuthSecret = "claude", "KEY"
	return s, bin + ":" + os.Getenv("PATH")
}

// configured is a configuration with the address of the provider, and with prices.
func configured(t *testing.T, cfg run.Config, provider string) run.Config {
	t.Helper()
	cfg.Capabilities.ModelProviders = map[string]string{"anthropic": provider}
	prices, err := price.Standard().With([]byte(`[{"models":{"dear":{"input":1000,"output":1000,"answer":5000}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Capabilities.Prices = prices
	return cfg
}

// TestMeter: the gateway's counts are the usage of record; the agent's own report is not counted
// (SPEC 25.3).
func TestMeter(t *testing.T) {
	w := newWorld(t)
	p := &provider{before: func(n int, r *http.Request) {}}
	r := w.finished(w.enqueue(metered(t, w, p, run.Config{MaxRuns: 1}, factory.Budget{Tokens: 100_000, TokensPerDay: 100_000}, 3, "dear", "500")))
	w.wants(r, store.Succeeded, "")
	if r.Tokens != 3*140 || r.CostUSD < 0.4199 || r.CostUSD > 0.4201 {
		t.Errorf("%d tokens, %v USD", r.Tokens, r.CostUSD)
	}
	of, err := w.store.Usage.UsageOf(t.Context(), r.ID)
	if err != nil || len(of) != 1 {
		t.Fatal(of, err)
	}
	of[0].CostUSD, of[0].WaitedMS = 0, 0
	if want := (store.ModelUsage{Model: "dear", Input: 180, CacheRead: 120, Output: 120, Requests: 3, Answered: 3}); of[0] != want {
		t.Errorf("%+v", of)
	}
	if spent, err := w.store.Usage.Today(t.Context()); err != nil || spent.Tokens != 420 {
		t.Errorf("%+v %v", spent, err)
	}
	if belt := w.belt(r.ID); !strings.Contains(belt, "model key outside, at the gateway") {
		t.Errorf("it does not say where the key is: %s", belt)
	}
}

// TestMeterNames: metrics have the name that the table of prices has, because a run can name versions without end
// (SPEC 27.3).
func TestMeterNames(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var seen []string
	cfg := run.Config{MaxRuns: 1, Observe: func(o run.Observation) {
		mu.Lock()
		defer mu.Unlock()
		if o.Model != "" {
			seen = append(seen, fmt.Sprint(o.Model, o.Priced))
		}
	}}
	w.wants(w.finished(w.enqueue(metered(t, w, &provider{}, cfg, factory.Budget{USD: 5}, 1, "dear-20991231-latest", "500"))), store.Succeeded, "")
	w.stop()
	if fmt.Sprint(seen) != "[deartrue]" {
		t.Errorf("observed %v", seen)
	}
}

// TestMeterTogether: requests at the same time do not cross a budget together: what does not fit is
// refused, and the run FAILS with the reason (SPEC 25.2).
func TestMeterTogether(t *testing.T) {
	const fits = 7
	for name, budget := range map[string]factory.Budget{
		"run":        {Tokens: fits*1600 + 800},
		"automation": {TokensPerDay: fits*1600 + 800},
		"usd":        {USD: fits*1.6 + 0.8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := &provider{before: func(_ int, r *http.Request) { <-r.Context().Done() }} // no answer, so that all are under way
			r := w.finished(w.enqueue(metered(t, w, p, run.Config{MaxRuns: 1}, budget, 50, "dear", "500")))
			w.wants(r, store.FailedRun, " used up its budget")
			w.wants(r, store.FailedRun, `the next request to "dear" may use 15`)
			if n := len(p.asked()); n > fits {
				t.Errorf("%d requests of about 1,550 tokens reached the provider", n)
			}
			if most := max(budget.Tokens, budget.TokensPerDay); most > 0 && r.Tokens > most || budget.USD > 0 && r.CostUSD > budget.USD || r.Attempt != 1 {
				t.Errorf("%d tokens, %v USD in attempt %d", r.Tokens, r.CostUSD, r.Attempt)
			}
		})
	}
}

// TestMeterWorkers: workers on one store keep the budget of a day together.
func TestMeterWorkers(t *testing.T) {
	w := newWorld(t)
	p := &provider{before: func(_ int, r *http.Request) { <-r.Context().Done() }}
	cfg := run.Config{MaxRuns: 1, Shared: true, Budget: factory.Budget{TokensPerDay: 5 * 1600}}
	s := metered(t, w, p, cfg, factory.Budget{}, 10, "dear", "500")
	first := w.manager
	t.Cleanup(w.stop)
	w.dir = t.TempDir()
	metered(t, w, p, cfg, factory.Budget{}, 10, "dear", "500") // another worker
	var runs []store.RunID
	for range 2 {
		runs = append(runs, w.enqueue(s))
	}
	first.Wake()
	total := int64(0)
	for _, id := range runs {
		r := w.finished(id)
		w.wants(r, store.FailedRun, "the server used up its budget of this day: ")
		total += r.Tokens
	}
	if n := len(p.asked()); total > 5*1600 || n > 5 {
		t.Errorf("%d tokens, %d requests", total, n)
	}
}

// TestMeterCut: an answer that is cut off counts with what its request reserved; one that says no
// maximum reserves what is left, and is told so.
func TestMeterCut(t *testing.T) {
	w := newWorld(t)
	p := &provider{within: func(_ int, r *http.Request) { panic(http.ErrAbortHandler) }}
	r := w.finished(w.enqueue(metered(t, w, p, run.Config{MaxRuns: 1}, factory.Budget{Tokens: 3000}, 1, "dear", "none")))
	if r.Tokens != 3000 || len(p.asked()) != 1 {
		t.Errorf("%d tokens are used: %s", r.Tokens, r.StatusMessage)
	}
	if body := p.asked()[0]; !strings.Contains(body, `"max_tokens":19`) { // 3,000 without the estimate of the request
		t.Error(body)
	}
}

// TestMeterMost: a request that says an enormous maximum reserves as much, and crosses the budget.
func TestMeterMost(t *testing.T) {
	w := newWorld(t)
	p := &provider{}
	r := w.finished(w.enqueue(metered(t, w, p, run.Config{MaxRuns: 1}, factory.Budget{Tokens: 3000}, 1, "dear", "9223372036854775807")))
	w.wants(r, store.FailedRun, "the run used up its budget")
	if n := len(p.asked()); n != 0 || r.Tokens != 0 {
		t.Errorf("%d requests, %d tokens", n, r.Tokens)
	}
}

// TestMeterPrice: with a budget in US dollars, a model without a price is refused, and with none it
// is not.
func TestMeterPrice(t *testing.T) {
	for usd, want := range map[float64]int{0: 1, 5: 0} {
		w := newWorld(t)
		p := &provider{}
		r := w.finished(w.enqueue(metered(t, w, p, run.Config{MaxRuns: 1}, factory.Budget{USD: usd}, 1, "unknown-1", "500")))
		if n := len(p.asked()); n != want {
			t.Errorf("%v USD: %d requests, %s", usd, n, r.StatusMessage)
		}
		if said := w.output(r.ID, "stdout"); usd > 0 && !strings.Contains(said, "--model-prices") {
			t.Error(said)
		}
	}
}

// TestMeterKilled: what a worker has reserved when it dies counts as used, for the next attempt too.
func TestMeterKilled(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	p := &provider{within: func(n int, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}}
	s := metered(t, w, p, run.Config{MaxRuns: 1}, factory.Budget{Tokens: 100_000}, 1, "dear", "500")
	id := w.enqueue(s)
	w.until("the request is under way", func() bool { return len(p.asked()) == 1 })
	// The store is copied as the death of the worker would leave it.
	r, err := w.store.Runs.Get(t.Context(), id)
	if err != nil || r.Tokens < 1500 || r.Tokens > 1600 {
		t.Fatalf("%+v %v", r, err)
	}
	of, err := w.store.Usage.UsageOf(t.Context(), id)
	if err != nil || len(of) != 1 || of[0].Output != 500 || of[0].Requests != 1 {
		t.Errorf("%+v %v", of, err)
	}
	once.Do(func() { close(release) })
	if r := w.finished(id); r.Tokens != 140 {
		t.Errorf("%d tokens: %s", r.Tokens, r.StatusMessage)
	}
}
