package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestTracing: with a collector in the environment, what the sender's trace led to is told: the delivery,
// its run and the phases, in the trace that the sender names, that the run finds in its environment and
// that messages about the run name (SPEC 27.4).
func TestTracing(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		_, _ = io.WriteString(w, "{}")
	}))
	defer collector.Close()
	messages := make(chan *http.Request, 10)
	there := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { messages <- r }))
	defer there.Close()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\nreport: {url: '" + there.URL + "/report', secretName: TELL}\n", "automations/a.md": automationFile("hook", ""),
		"environments/env.yaml": "command: [sh, -c, 'echo parent $TRACEPARENT']\n",
	})
	w.run("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "secrets", "set", "TELL")
	w.startWith(func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL) },
		"--notify-url", there.URL+"/ends", "--notify-secret", "TELL", "--notify-runs", "SUCCEEDED")
	const trace = "0af7651916cd43dd8448eb211c80319c"
	sent := post(t, http.MethodPost, w.url("hook"), strings.NewReader("{}"), http.Header{"Authorization": {"Bearer " + testSecret}, "Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}})
	if sent.status != http.StatusAccepted {
		t.Fatalf("%+v", sent)
	}
	var told struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ TraceID, SpanID, ParentSpanID, Name string }
			}
		}
	}
	select {
	case text := <-got:
		path, body, _ := strings.Cut(text, " ")
		if err := json.Unmarshal([]byte(body), &told); err != nil || path != "/v1/traces" || len(told.ResourceSpans) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
	case <-time.After(time.Minute):
		t.Fatal("the collector gets nothing")
	}
	ids := make(map[string]string)
	for _, s := range told.ResourceSpans[0].ScopeSpans[0].Spans {
		if ids[s.Name] = s.SpanID; s.TraceID != trace {
			t.Errorf("%+v is of another trace", s)
		}
	}
	for _, name := range []string{"delivery hook", "run a", "queue", "invoke_agent"} {
		if ids[name] == "" {
			t.Errorf("the trace has no %q: %v", name, ids)
		}
	}
	var all []api.Run
	w.list(&all, "runs", "list")
	parent := "00-" + trace + "-" + ids["run a"] + "-01"
	if log := w.run("", "runs", "logs", all[0].RunID); !strings.Contains(log, "parent "+parent) {
		t.Errorf("the run does not find its span in TRACEPARENT:\n%s", log)
	}
	for told := make(map[string]bool); len(told) < 2; { // by the definition's address and by the server's own
		select {
		case m := <-messages:
			told[m.URL.Path] = true
			if got := m.Header.Get("Traceparent"); got != parent {
				t.Errorf("a message to %s with the span %q, not %q", m.URL.Path, got, parent)
			}
		case <-time.After(time.Minute):
			t.Fatalf("there were only messages to %v", told)
		}
	}
}
