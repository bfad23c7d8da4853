//go:build full

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAlertRules: each rule of deploy/prometheus and each panel of deploy/grafana reads metrics that a
// server has, a rule fires as Prometheus itself evaluates it, and docs/alerting.md says what it means (SPEC 27.3).
func TestAlertRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "environments/env.yaml": "command: ['true']\n",
		"automations/all.md": automationFile("hook", ""),
	})
	w.start()
	post(t, http.MethodPost, w.url("hook"), strings.NewReader("{}"), nil) // without a credential: it is counted as refused
	metrics := filepath.Join(t.TempDir(), "metrics")
	// A server without TLS has no certificate (TestCertificateShown has one), and nobody has asked a
	// sender (TestLookups) or told one anything (TestAnswers).
	text := post(t, http.MethodGet, "http://"+w.addr+"/metrics", nil, nil).body
	for _, name := range []string{"triphammer_tls_certificate_expiry_timestamp_seconds", "triphammer_sender_lookups_total", "triphammer_sender_writes_total"} {
		text += name + " 1\n"
	}
	if err := os.WriteFile(metrics, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := exec.Command("go", "test", "-count=1", ".")
	rules.Dir, rules.Env = "../../testdata/prometheus", append(os.Environ(), "METRICS="+metrics)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	file, err := os.ReadFile("../../deploy/prometheus/triphammer.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	guide := pages(t)["../../docs/alerting.md"]
	for _, m := range regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllStringSubmatch(string(file), -1) {
		if !strings.Contains(guide, "\n| `"+m[1]+"` | ") {
			t.Errorf("docs/alerting.md does not tell of %s", m[1])
		}
	}
}
