package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// TestMetricsOfRuns: what runs do is counted by automation, deliveries by outcome, and a hostile number of
// names shares the series of "other" (SPEC 27.3).
func TestMetricsOfRuns(t *testing.T) {
	m := New("v1.2.3")
	m.Run(run.Observation{Factory: "default", Automation: "hello", Waited: 2 * time.Second})
	m.Run(run.Observation{Factory: "default", Automation: "hello", Used: store.Spending{Tokens: 1200, CostUSD: 0.25}})
	m.Run(run.Observation{Factory: "default", Automation: "hello", Ended: store.FailedRun, Took: 90 * time.Second})
	for _, o := range []run.Observation{
		{Model: "m", Priced: true, Tokens: task.Tokens{Input: 7, Output: 3}, Used: store.Spending{Tokens: 10, CostUSD: 0.5}, First: time.Second},
		{Model: "m", Priced: true, Failed: true},
		{Model: "a stranger's", Tokens: task.Tokens{CacheRead: 5}},
	} {
		m.Run(o)
	}
	m.Run(run.Observation{Ended: store.Cancelled}) // no automation started it, and it never began
	for i := range 2 * maxNamed {
		name := fmt.Sprint("made-", i)
		m.Run(run.Observation{Factory: "default", Automation: name, Ended: store.Succeeded, Took: time.Second})
		m.Delivery(delivery.Observation{Factory: "default", Webhook: name, Status: 202, Outcome: store.Accepted})
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`triphammer_runs_ended_total{automation="hello",factory="default",result="FAILED"} 1`,
		`triphammer_runs_ended_total{automation="",factory="",result="CANCELLED"} 1`,
		fmt.Sprintf(`triphammer_runs_ended_total{automation="other",factory="",result="SUCCEEDED"} %d`, maxNamed+1),
		`triphammer_run_tokens_total{automation="hello",factory="default"} 1200`,
		`triphammer_run_cost_usd_total{automation="hello",factory="default"} 0.25`,
		"triphammer_run_wait_seconds_sum 2", "triphammer_run_wait_seconds_count 1",
		fmt.Sprintf("triphammer_run_duration_seconds_count %d", 2*maxNamed+1),
		fmt.Sprintf(`triphammer_ingress_requests_total{factory="",outcome="accepted",reason="",status="202",webhook="other"} %d`, maxNamed),
		fmt.Sprintf(`triphammer_ingress_seconds_count{outcome="accepted"} %d`, 2*maxNamed), `triphammer_ingress_seconds_count{outcome="duplicate"} 0`,
		`triphammer_model_requests_total{model="m",result="answered"} 1`, `triphammer_model_requests_total{model="m",result="failed"} 1`,
		`triphammer_model_tokens_total{kind="input",model="m"} 7`, `triphammer_model_tokens_total{kind="cache_read",model="other"} 5`,
		`triphammer_model_cost_usd_total{model="m"} 0.5`, "triphammer_model_first_token_seconds_count 1",
		`version="v1.2.3"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s among the metrics", want)
		}
	}
	if n := strings.Count(w.Body.String(), "\n"); n > 3*maxNamed {
		t.Errorf("%d lines", n)
	}
}
