// Package prometheus evaluates the alert rules with Prometheus' own engine. It is a module of its
// own, so that Prometheus is no dependency of the product. TestAlertRules of cmd/triphammer runs it.
package prometheus

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const file = "../../deploy/prometheus/triphammer.rules.yaml"

// scenarios are series of two hours in steps of a minute, as Prometheus' tests write them: by
// bad an alert fires, and by good it does not.
var scenarios = map[string]struct{ bad, good string }{
	"TriphammerDown": {`up{job="triphammer"} 1x60 0x60`, `up{job="triphammer"} 1x60 0x3 1x57`},
	"TriphammerRunsFail": {
		`triphammer_runs_ended_total{automation="a",factory="f",result="FAILED"} _x90 3x30`, // of a worker that had no series
		`triphammer_runs_ended_total{automation="a",factory="f",result="FAILED"} 0x60 2x60`,
	},
	"TriphammerPersonMissing":     {`triphammer_waiting_for_a_person{what="output"} 0x10 1x110`, `triphammer_waiting_for_a_person{what="output"} 0x10 1x50 0x60`},
	"TriphammerRunsWait":          {`triphammer_oldest_unstarted_run_seconds 0x60 0+60x60`, `triphammer_oldest_unstarted_run_seconds 0x60 899x60`},
	"TriphammerDeliveriesRefused": {`triphammer_ingress_requests_total{webhook="w",factory="f",status="401"} 0x60 0+6x60`, `triphammer_ingress_requests_total{webhook="",status="404"} 0+60x120`},
	"TriphammerDeliveriesNotTaken": {
		`triphammer_ingress_requests_total{webhook="w",status="503"} 0x60 0+1x60`, `triphammer_ingress_requests_total{webhook="w",status="503"} 7x120`,
	},
	"TriphammerAnswersSlowly": {
		"triphammer_ingress_seconds_bucket{outcome=\"accepted\",le=\"1.024\"} 0x120\ntriphammer_ingress_seconds_bucket{outcome=\"accepted\",le=\"4.096\"} 0+60x120\ntriphammer_ingress_seconds_bucket{outcome=\"accepted\",le=\"+Inf\"} 0+60x120\ntriphammer_ingress_seconds_bucket{outcome=\"\",le=\"0.001\"} 0+60000x120\ntriphammer_ingress_seconds_bucket{outcome=\"\",le=\"+Inf\"} 0+60000x120",
		"triphammer_ingress_seconds_bucket{outcome=\"accepted\",le=\"0.001\"} 0+60x120\ntriphammer_ingress_seconds_bucket{outcome=\"accepted\",le=\"+Inf\"} 0+60x120",
	},
	"TriphammerCommitDoesNotServe": {`triphammer_definitions_current{factory="f"} 1x60 0x60`, `triphammer_definitions_current{factory="f"} 1x120`},
	"TriphammerSenderRefuses": {
		`triphammer_sender_writes_total{outcome="failed",provider="github",what="end"} _x90 1x30`,
		`triphammer_sender_writes_total{outcome="pending",provider="github",what="end"} 0+1x120`,
	},
	"TriphammerSpendsMuch":         {`triphammer_run_cost_usd_total{automation="a"} 0+1x120`, `triphammer_run_cost_usd_total{automation="a"} 0+0.5x120`},
	"TriphammerDiskLow":            {`triphammer_disk_free_bytes{place="data"} 2e9x60 9e8x60`, `triphammer_disk_free_bytes{place="data"} 2e9x120`},
	"TriphammerDataDamaged":        {`triphammer_store_transactions_lost 0x60 2x60`, "triphammer_store_transactions_lost 0x120\ntriphammer_store_damaged_reads_total 0x120"},
	"TriphammerCertificateExpires": {`triphammer_tls_certificate_expiry_timestamp_seconds 1000000x120`, `triphammer_tls_certificate_expiry_timestamp_seconds 2000000x120`},
	"TriphammerClockDoubted":       {`triphammer_clock_doubted 0x60 1x60`, `triphammer_clock_doubted 0x120`},
	"TriphammerProcessesLeft":      {`triphammer_child_processes{state="defunct"} 0+1x120`, `triphammer_child_processes{state="running"} 0+1x120`},
}

// TestRules: each alert fires by what it is about and by nothing else, and reads metrics that a
// server has: METRICS is a file with its answer to a request for /metrics.
func TestRules(t *testing.T) {
	has := metricsOf(t)
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, p, promslog.NewNopLogger())
	for _, err := range errs {
		t.Fatal(err)
	}
	seen := 0
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			seen++
			expr, err := p.ParseExpr(rule.Expr)
			if err != nil {
				t.Fatalf("%s: %v", rule.Alert, err)
			}
			for _, name := range namesIn(expr) {
				if !has[name] {
					t.Errorf("%s reads %s, which no server has", rule.Alert, name)
				}
			}
			s, known := scenarios[rule.Alert]
			if !known {
				t.Errorf("%s has no scenario", rule.Alert)
				continue
			}
			if !fires(t, expr, rule, s.bad) {
				t.Errorf("%s does not fire by\n%s", rule.Alert, s.bad)
			}
			if fires(t, expr, rule, s.good) {
				t.Errorf("%s fires by\n%s", rule.Alert, s.good)
			}
		}
	}
	if seen != len(scenarios) {
		t.Errorf("%d rules and %d scenarios", seen, len(scenarios))
	}
}

// TestDashboard: each panel of the dashboard reads metrics that a server has.
func TestDashboard(t *testing.T) {
	has := metricsOf(t)
	data, err := os.ReadFile("../../deploy/grafana/triphammer.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	read := make(map[string]bool)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			if err != nil {
				t.Fatalf("%s: %v", panel.Title, err)
			}
			for _, name := range namesIn(expr) {
				if read[name] = true; !has[name] {
					t.Errorf("%s reads %s, which no server has", panel.Title, name)
				}
			}
		}
	}
	if len(read) < 12 {
		t.Errorf("the dashboard reads only %d metrics", len(read))
	}
}

// metricsOf are the metrics that a server has, by the file METRICS.
func metricsOf(t *testing.T) map[string]bool {
	t.Helper()
	metrics, err := os.ReadFile(os.Getenv("METRICS"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{"up": true} // which Prometheus itself makes
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)[ {]`).FindAllStringSubmatch(string(metrics), -1) {
		has[m[1]] = true
	}
	return has
}

// namesIn are the metrics that an expression reads.
func namesIn(expr parser.Expr) (names []string) {
	for _, selectors := range parser.ExtractSelectors(expr) {
		for _, m := range selectors {
			if m.Name == labels.MetricName {
				names = append(names, m.Value)
			}
		}
	}
	return names
}

// fires tells whether an alert fires at any minute of the series.
func fires(t *testing.T, expr parser.Expr, rule rulefmt.Rule, series string) bool {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(series, "\n", "\n  "))
	engine := promqltest.NewTestEngine(t, false, 0, 1e6)
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0, labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	for minute := range 120 {
		at := time.Unix(0, 0).UTC().Add(time.Duration(minute) * time.Minute)
		if _, err := alert.Eval(t.Context(), 0, at, rules.EngineQueryFunc(engine, storage), nil, 0); err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		for _, active := range alert.ActiveAlerts() {
			if summary := active.Annotations.Get("summary"); strings.Contains(summary, "<") {
				t.Errorf("%s says %s", rule.Alert, summary)
			}
			if active.State == rules.StateFiring {
				return true
			}
		}
	}
	return false
}
