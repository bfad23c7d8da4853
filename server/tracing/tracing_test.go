package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// TestTrace: a run that has ended makes one trace, from its delivery to its tools, whose times are those of
// the transcript. It has no command, input or output, is told once, and again if the collector did not
// take it.
func TestTrace(t *testing.T) {
	at := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	const sent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	st := recorded(t, &at, sent, store.NewRun{Factory: "f", Automation: "fix", Source: store.SourceWebhook, Title: "fix"})
	at = at.Add(3 * time.Second)
	leases, err := st.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	var events []store.Event
	say := func(after time.Duration, e event.Event) {
		at = at.Add(after)
		data, _ := json.Marshal(e)
		events = append(events, store.Event{Seq: int64(len(events) + 1), At: at, Kind: e.Kind(), Data: data})
	}
	say(2*time.Second, event.Phase{Name: event.PhaseClone, DurationMS: 1500})
	say(time.Second, event.AgentStarted{Command: "agent"})
	say(2*time.Second, event.Usage{Model: "m-1", InputTokens: 100, OutputTokens: 7, CostUSD: 0.5})
	say(0, event.Tool{ID: "1", Name: "read", Started: true, Input: `{"path":"hush"}`})
	say(4*time.Second, event.Command{ID: "2", Phase: event.PhaseAgent, Command: "cat hush", Output: "hush", DurationMS: 1000, Failed: true})
	say(time.Second, event.Tool{ID: "1", Name: strings.Repeat("n", 200), Output: "hush"})
	say(time.Second, event.Phase{Name: event.PhaseAgent, DurationMS: 9000})
	if err := st.Transcripts.Append(t.Context(), leases[0], events); err != nil {
		t.Fatal(err)
	}
	if err := st.Leases.Finish(t.Context(), leases[0], store.FailedRun, "hush", nil); err != nil {
		t.Fatal(err)
	}

	began := at.Add(-time.Hour)
	teller := &Teller{Store: st, Version: "v1", Now: func() time.Time { return at }, Logger: slog.New(slog.DiscardHandler)}
	var told []span
	refuse := errors.New("no")
	send := func(_ context.Context, all []span) error {
		told = append(told, all...)
		return refuse
	}
	tell := func(from time.Time) time.Time {
		t.Helper()
		told = nil
		to, err := teller.tell(t.Context(), from, send)
		if !errors.Is(err, refuse) && len(told) > 0 {
			t.Fatal(err)
		}
		return to
	}
	if tell(began); len(told) != 0 {
		t.Errorf("told before its answers: %v", told)
	}
	at = at.Add(settle + time.Second)
	if to := tell(began); to != began {
		t.Errorf("%v has passed, although nothing was taken", to)
	}
	again := len(told)
	refuse = nil
	first := tell(began)
	if !first.After(began) || len(told) != again || again == 0 {
		t.Errorf("%d spans are told again as %d", again, len(told))
	}
	names, run := make(map[spanID]string), ""
	for _, s := range told {
		names[s.SpanID] = s.Name
		if strings.HasPrefix(s.Name, "run ") {
			run = s.SpanID.String()
		}
	}
	var shown []string
	for _, s := range told {
		above := ""
		if s.Parent != nil {
			if above = names[*s.Parent]; above == "" {
				above = s.Parent.String()
			}
		}
		failed := ""
		if s.Status != nil {
			failed = " " + s.Status.Message
		}
		shown = append(shown, fmt.Sprintf("%s < %s: %v%s", s.Name, above, time.Time(s.End).Sub(time.Time(s.Start)), failed))
	}
	want := strings.Join([]string{
		"delivery hook < b7ad6b7169203331: 0s", "run fix < delivery hook: 14s FAILED", "queue < run fix: 3s", "clone < run fix: 1.5s", "chat m-1 < invoke_agent: 2s",
		"execute_tool command < invoke_agent: 1s failed", "execute_tool " + strings.Repeat("n", maxName) + " < invoke_agent: 5s", "invoke_agent < run fix: 9s",
	}, "\n")
	if got := strings.Join(shown, "\n"); got != want {
		t.Errorf("the trace is\n%s\n\nnot\n%s", got, want)
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hush") || strings.Count(string(text), `"traceId":"0af7651916cd43dd8448eb211c80319c"`) != len(told) {
		t.Errorf("%s", text)
	}
	all, err := st.Runs.List(t.Context(), store.RunQuery{})
	if err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	if got, want := Parent(all[0], map[string]string{Header: sent}), "00-0af7651916cd43dd8448eb211c80319c-"+run+"-01"; got != want {
		t.Errorf("the run gets %s, not %s", got, want)
	}
	if tell(first); len(told) != 0 {
		t.Errorf("told twice: %v", told)
	}
}

// recorded is a store with one delivery, that has a traceparent and started the runs.
func recorded(t *testing.T, at *time.Time, sent string, runs ...store.NewRun) *store.Store {
	t.Helper()
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Now: func() time.Time { return *at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	_, err = st.Deliveries.Record(t.Context(), &store.NewDelivery{
		Payload: []byte("{}"), Runs: runs,
		Delivery: store.Delivery{
			Factory: "f", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, Size: 2, ReceivedAt: *at, Identity: store.Identity{Source: store.IdentitySender, Value: "1"},
			Headers: map[string]string{Header: sent},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestTraceMany: all runs are told at once, also those that ended in one moment, and a collector that takes
// a part of them gets the rest later.
func TestTraceMany(t *testing.T) {
	at := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	began := at.Add(-time.Hour)
	const number = 2*most + 20
	var runs []store.NewRun
	for i := range number {
		runs = append(runs, store.NewRun{Factory: "f", Automation: fmt.Sprint("a", i), Source: store.SourceWebhook, Title: "x"})
	}
	st := recorded(t, &at, "", runs...)
	all, err := st.Runs.List(t.Context(), store.RunQuery{Limit: number})
	if err != nil || len(all) != number {
		t.Fatal(len(all), err)
	}
	for _, r := range all {
		if _, err := st.Runs.Stop(t.Context(), r.ID, store.StopCancel, "key:k"); err != nil {
			t.Fatal(err)
		}
	}
	at = at.Add(settle + time.Second)
	teller := &Teller{Store: st, Now: func() time.Time { return at }, Logger: slog.New(slog.DiscardHandler)}
	told, requests, refused := make(map[string]bool), 0, errors.New("no")
	send := func(_ context.Context, spans []span) error {
		if requests++; requests == 2 {
			return refused
		}
		for _, s := range spans {
			if strings.HasPrefix(s.Name, "run ") {
				told[s.Name] = true
			}
		}
		return nil
	}
	to, err := teller.tell(t.Context(), began, send)
	if !errors.Is(err, refused) || len(told) != most {
		t.Fatalf("%d runs are told: %v", len(told), err)
	}
	if _, err := teller.tell(t.Context(), to.Add(-time.Microsecond), send); err != nil || len(told) != number {
		t.Errorf("%d of %d runs are told: %v", len(told), number, err)
	}
	// What the collector finds too large is sent in parts, and a run whose trace it never takes keeps no other from it.
	clear(told)
	if _, err := teller.tell(t.Context(), began, func(_ context.Context, spans []span) error {
		if len(spans) > 20 || strings.HasPrefix(spans[len(spans)-2].Name, "run a7") {
			return errRefused
		}
		return send(t.Context(), spans)
	}); err != nil || len(told) < number-20 || len(told) >= number || told["run a7"] {
		t.Errorf("%d of %d runs are told to a collector that takes less: %v", len(told), number, err)
	}
}

// TestParse: only what the W3C's recommendation allows names a trace.
func TestParse(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for value, want := range map[string]bool{
		"00-" + id + "-" + parent + "-01": true, "00-" + id + "-" + parent + "-00": true, "42-" + id + "-" + parent + "-01-more": true,
		"": false, "00": false, "ff-" + id + "-" + parent + "-01": false, "00-" + id + "-" + parent + "-01-more": false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": false, "00-" + id + "-0000000000000000-01": false,
		"00-" + strings.ToUpper(id) + "-" + parent + "-01": false, "00-" + id[:31] + "x-" + parent + "-01": false, "00-" + id + id + "-" + parent + "-01": false,
		"00-" + id + "-" + parent + "-": false, "00-" + id + "-" + parent + "-0x": false, "00-" + id + "-" + parent + "-010": false, "0x-" + id + "-" + parent + "-01": false,
	} {
		if got, _, ok := parse(value); ok != want || ok == (got == traceID{}) {
			t.Errorf("%q: %v", value, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, value string) {
		id, span, ok := parse(value)
		if ok && (!strings.Contains(value, id.String()) || !strings.Contains(value, span.String())) {
			t.Errorf("%q is read as %s and %s", value, id, span)
		}
	})
}

// TestCollector: the standard variables say where traces go and with which headers; what they say that
// is not done here is refused, without showing a header.
func TestCollector(t *testing.T) {
	var got *http.Request
	var body string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got, body = r, string(data)
		w.WriteHeader(status)
	}))
	defer server.Close()
	if Wanted() {
		t.Fatal("traces are wanted without a collector")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, x-team = a=b")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=other")
	t.Setenv("OTEL_SERVICE_NAME", "hammer")
	c, err := toCollector("v1")
	if err != nil || !Wanted() {
		t.Fatal(err)
	}
	if err := c.send(t.Context(), []span{{Name: "one"}}); err != nil {
		t.Fatal(err)
	}
	if got.URL.Path != "/v1/traces" || got.Header.Get("Authorization") != "Bearer x" || got.Header.Get("X-Team") != "a=b" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
	for _, want := range []string{`"service.name","value":{"stringValue":"hammer"}`, `"deployment.environment","value":{"stringValue":"prod"}`, `"service.version","value":{"stringValue":"v1"}`, `"name":"one"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	for _, status = range []int{http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusRequestEntityTooLarge} {
		if err := c.send(t.Context(), []span{{}}); err == nil || errors.Is(err, errRefused) != (status == http.StatusRequestEntityTooLarge) {
			t.Errorf("an answer %d: %v", status, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/own?x=1")
	if c, err = toCollector(""); err != nil || c.address != server.URL+"/own?x=1" {
		t.Errorf("%+v, %v", c, err)
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "localhost:4317", "OTEL_EXPORTER_OTLP_HEADERS": "hush", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
		"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := toCollector(""); err == nil || !strings.Contains(err.Error(), "OTEL_") || strings.Contains(err.Error(), "hush") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	if Wanted() {
		t.Error("traces are wanted that the environment turns off")
	}
}
