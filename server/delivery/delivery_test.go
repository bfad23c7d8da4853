package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/server/run"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

const webhookSecret = "correct-horse-battery"

type fixture struct {
	*Service
	store *store.Store
	live  *applier.Live
	mu    sync.Mutex
	now   time.Time
	tree  fstest.MapFS
}

// secretS are the secrets of a revision: S alone.
func secretS(value string) func(context.Context, []string) (map[string]applier.SecretValue, error) {
	return func(context.Context, []string) (map[string]applier.SecretValue, error) {
		return map[string]applier.SecretValue{"S": applier.NewSecretValue(1, value)}, nil
	}
}

// build makes a revision of the tree with a secret.
func (f *fixture) build(t *testing.T, value string) *applier.Revision {
	t.Helper()
	built, err := applier.Build(t.Context(), applier.BuildInput{Factory: "default", Tree: f.tree, Secrets: secretS(value)})
	if err != nil || built.Revision == nil {
		t.Fatal(err, built)
	}
	return built.Revision
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{live: &applier.Live{}, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if f.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Now: f.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	automation := func(webhook, filter string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("---\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [" + webhook + "]" + filter + "}}\n---\nDo it.\n")}
	}
	disabled := func(webhook, filter string) *fstest.MapFile {
		return &fstest.MapFile{Data: bytes.Replace(automation(webhook, filter).Data, []byte("---\n"), []byte("---\nenabled: false\n"), 1)}
	}
	const two = `---
triggers:
- {provider: webhook, event: received, filter: {webhooks: [second], payload: {a: [1], b: [2]}}}
- {provider: webhook, event: received, filter: {webhooks: [third, off], payload: {a: [3]}}}
---
Do it.
`
	f.tree = fstest.MapFS{
		"factory.yaml":            {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
		"webhooks/token.yaml":     {Data: []byte("secretName: S\ndeliveryIdHeader: X-Event\n")},
		"webhooks/url.yaml":       {Data: []byte("secretName: S\nauthMode: url_token\n")},
		"webhooks/signed.yaml":    {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"webhooks/header.yaml":    {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: token_header\nsignature: {header: X-Request-Id}\n")},
		"webhooks/off.yaml":       {Data: []byte("secretName: S\nenabled: false\n")},
		"webhooks/second.yaml":    {Data: []byte("secretName: S\n")},
		"webhooks/lone.yaml":      {Data: []byte("secretName: S\n")},
		"webhooks/third.yaml":     {Data: []byte("secretName: S\n")},
		"automations/all.md":      automation("token", ""),
		"automations/failures.md": automation("token", ", payload: {build: {status: [failed]}}"),
		"automations/gone.md":     automation("gone", ", payload: {a: [1]}"),
		"automations/idle.md":     automation("off", ", payload: {a: [1]}"),
		"automations/asleep.md":   disabled("header", ", payload: {a: [1]}"),
		"automations/asleep2.md":  disabled("header", ""),
		"automations/awake.md":    automation("signed", ", payload: {a: [1]}"),
		"automations/asleep3.md":  disabled("signed", ""),
		"automations/asleep4.md":  disabled("lone", ""),
		"automations/two.md":      {Data: []byte(two)},
		"automations/push.md":     {Data: []byte("---\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}\n---\nDo it.\n")},
	}
	f.live.Swap(f.build(t, webhookSecret))
	f.start(Config{RateLimit: 60, AuthFailures: 10})
	return f
}

func (f *fixture) start(cfg Config) {
	cfg.Live, cfg.Store, cfg.Now = f.live, f.store, f.clock
	f.Service = New(cfg)
}

func request(webhook, body string, header ...string) *Request {
	r := &Request{
		UID: "whk_" + webhook, Header: http.Header{}, ContentLength: int64(len(body)), Client: netip.MustParseAddr("192.0.2.7"),
		ReadBody: func(limit int64) ([]byte, error) {
			if int64(len(body)) > limit {
				return nil, ErrTooLarge
			}
			return []byte(body), nil
		},
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func bearer(header ...string) []string {
	return append([]string{"Authorization", "Bearer " + webhookSecret}, header...)
}

func (f *fixture) log(t *testing.T) []*store.Delivery {
	t.Helper()
	all, err := f.store.Deliveries.List(t.Context(), store.DeliveryQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestIdentity: the first available source names the delivery (SPEC C6.2).
func TestIdentity(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		request       *Request
		source, value string
	}{
		{request("token", `1`, bearer("X-Event", "e1", factory.SenderIDHeader, "s1")...), store.IdentityHeader, "e1"},
		{request("token", `2`, bearer("X-Event", " ", factory.SenderIDHeader, "s1")...), store.IdentitySender, "s1"},
		{request("token", `3`, bearer("X-Event", strings.Repeat("e", 256))...), store.IdentityHeader, digest([]byte(strings.Repeat("e", 256)))},
		{request("token", `4`, bearer("X-GitHub-Delivery", "not signed")...), store.IdentityBody, digest([]byte("4"))},
	} {
		got := f.Receive(t.Context(), c.request)
		d, err := f.store.Deliveries.Get(t.Context(), got.DeliveryID)
		if err != nil || d.Identity != (store.Identity{Source: c.source, Value: c.value}) {
			t.Errorf("%+v: %+v, %v", c, d, err)
		}
		again := f.Receive(t.Context(), c.request)
		if again.Status != 202 || again.DeliveryID != got.DeliveryID {
			t.Errorf("SPEC 5.5: a duplicate answers %+v, not %s", again, got.DeliveryID)
		}
		if _, kept := d.Headers["Authorization"]; kept {
			t.Error("a credential is kept")
		}
	}
	log := f.log(t)
	if log[0].Outcome != store.Duplicate || len(log[0].Runs) != 0 || log[0].DuplicateOf != log[1].ID {
		t.Errorf("duplicate %+v", log[0])
	}
	signed := request("signed", `{}`, "X-GitHub-Delivery", "gh-1")
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(webhookSecret, &signature.Request{Header: signed.Header, Body: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	f.Receive(t.Context(), signed)
	d := f.log(t)[0]
	if d.Identity != (store.Identity{Source: store.IdentityProvider, Value: "gh-1"}) || d.Headers["X-Github-Delivery"] != "gh-1" || d.Headers["X-Hub-Signature-256"] != "" {
		t.Errorf("signed %+v", d)
	}
}

// TestRate (R14): at most 60 in any 60 s, and Retry-After is true, also across a
// restart (SPEC 5.8).
func TestRate(t *testing.T) {
	f := newFixture(t)
	n := 0
	send := func() Answer {
		n++
		return f.Receive(t.Context(), request("token", fmt.Sprint(n), bearer()...))
	}
	for range 60 {
		if a := send(); a.Status != 202 {
			t.Fatalf("%+v", a)
		}
		f.pass(500 * time.Millisecond)
	}
	for restart := range 2 {
		a := send()
		if a.Status != 429 || a.RetryAfter != 30 || a.Reason != ReasonRate {
			t.Fatalf("restart %d: %+v", restart, a)
		}
		if other := f.Receive(t.Context(), request("none", "1")); other.Status != 404 {
			t.Errorf("%+v", other)
		}
		f.start(Config{RateLimit: 60, AuthFailures: 10})
	}
	f.pass(29 * time.Second)
	if a := send(); a.Status != 429 || a.RetryAfter != 1 {
		t.Errorf("%+v", a)
	}
	f.pass(time.Second)
	if a := send(); a.Status != 202 {
		t.Errorf("waiting as told does not succeed: %+v", a)
	}
	if a := f.Receive(t.Context(), request("token", `{`, bearer()...)); a.Status != 429 {
		t.Errorf("SPEC 5.1: the rate comes before the JSON: %+v", a)
	}
	f.start(Config{})
	for range 200 {
		if a := send(); a.Status != 202 {
			t.Fatalf("without a limit: %+v", a)
		}
	}
}

// TestRateUnrecorded: what is answered 503 takes nothing of the rate, so that the sender can send it again
// (SPEC 5.4, 5.8).
func TestRateUnrecorded(t *testing.T) {
	for _, shared := range []bool{false, true} {
		f := newFixture(t)
		f.start(Config{RateLimit: 2, Shared: shared})
		send := func(n, status int) {
			t.Helper()
			if a := f.Receive(t.Context(), request("token", fmt.Sprint(n), bearer()...)); a.Status != status {
				t.Errorf("shared %v: %d is answered %+v, not %d", shared, n, a, status)
			}
		}
		queue := func(most int64) {
			if err := f.store.Runs.LimitQueue(t.Context(), most); err != nil {
				t.Fatal(err)
			}
		}
		queue(1)
		send(1, http.StatusAccepted)
		for n := range 4 { // the queue is full
			send(2+n, http.StatusServiceUnavailable)
		}
		queue(0)
		send(2, http.StatusAccepted)
		send(3, http.StatusTooManyRequests)
	}
}

// TestFailures (R13): failed authentication has its own budget, per webhook and
// address; the right credential always passes (SPEC 5.8).
func TestFailures(t *testing.T) {
	f := newFixture(t)
	for i := range 12 {
		a := f.Receive(t.Context(), request("token", "{}", "Authorization", "Bearer no"))
		if want := map[bool]int{true: 401, false: 429}[i < 10]; a.Status != want {
			t.Fatalf("failure %d: %+v", i, a)
		}
		if a.Status == 429 && (a.RetryAfter != 60 || a.Reason != ReasonFailures) {
			t.Fatalf("%+v", a)
		}
	}
	if len(f.log(t)) != 10 {
		t.Errorf("%d logged: failures over the budget are counted, not logged", len(f.log(t)))
	}
	if a := f.Receive(t.Context(), request("token", "{}", bearer()...)); a.Status != 202 {
		t.Errorf("the right credential: %+v", a)
	}
	elsewhere := request("token", "{}")
	elsewhere.Client = netip.MustParseAddr("2001:db8::1")
	if a := f.Receive(t.Context(), elsewhere); a.Status != 401 {
		t.Errorf("another address: %+v", a)
	}
	large := request("signed", strings.Repeat("x", MaxBody+1))
	for i := range 11 {
		if a := f.Receive(t.Context(), large); a.Status != map[bool]int{true: 413, false: 429}[i < 10] {
			t.Fatalf("SPEC 5.8: a 413 before authentication spends the budget: %d %+v", i, a)
		}
	}
	f.pass(time.Minute)
	if a := f.Receive(t.Context(), large); a.Status != 413 {
		t.Errorf("after a minute: %+v", a)
	}
}

// TestBelt: the trace says how far a delivery came and why no further (SPEC 7).
func TestBelt(t *testing.T) {
	f := newFixture(t)
	send := func(r *Request) *Trace {
		f.Receive(t.Context(), r)
		trace, err := f.Show(t.Context(), f.log(t)[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	outcomes := func(trace *Trace) string {
		var all []string
		for _, s := range trace.Belt {
			all = append(all, s.Stage+" "+s.Outcome)
		}
		return strings.Join(all, ", ")
	}
	ran := send(request("token", `{"build":{"status":"passed"}}`, bearer()...))
	if got := outcomes(ran); got != "received passed, authenticated passed, parsed passed, new passed, matched passed, run passed" {
		t.Error(got)
	}
	if len(ran.Matches) != 2 || !ran.Matches[0].Matched || ran.Matches[1].Matched || ran.Matches[1].Path != "payload.build.status" || ran.Matches[1].Got != `"passed"` || len(ran.Delivery.Runs) != 1 {
		t.Errorf("matches %+v, runs %+v", ran.Matches, ran.Delivery.Runs)
	}
	again := send(request("token", `{"build":{"status":"passed"}}`, bearer()...))
	if got := outcomes(again); got != "received passed, authenticated passed, parsed passed, new stopped, matched not_reached, run not_reached" || !strings.Contains(again.Belt[3].Detail, ran.Delivery.ID.String()) {
		t.Error(got, again.Belt[3])
	}
	unwanted := send(func() *Request {
		r := request("url", `{}`)
		r.HasPathToken, r.PathToken = true, webhookSecret
		return r
	}())
	if got := outcomes(unwanted); !strings.HasSuffix(got, "matched stopped, run not_reached") || unwanted.Belt[4].Detail != "no automation selects this webhook" {
		t.Error(got, unwanted.Belt[4])
	}
	// Merely disabled is another reason than not there.
	for _, c := range []struct {
		request  *Request
		detail   string
		disabled string // with + those that would have matched
	}{
		{request("header", `{"a":2}`, "X-Request-Id", webhookSecret), "selected by 2 automations, all disabled: asleep, asleep2", "asleep +asleep2"},
		{request("signed", `{"a":2}`), "the one enabled automation on this webhook did not want it; disabled: asleep3", "+asleep3"},
		{request("lone", `{"a":1}`, bearer()...), "the one automation that selects this webhook is disabled: asleep4", "+asleep4"},
	} {
		if c.request.UID == "whk_signed" {
			scheme, _ := signature.Lookup("github")
			if err := scheme.Sign(webhookSecret, &signature.Request{Header: c.request.Header, Body: []byte(`{"a":2}`)}); err != nil {
				t.Fatal(err)
			}
		}
		trace := send(c.request)
		var disabled []string
		for _, m := range trace.Disabled {
			disabled = append(disabled, map[bool]string{true: "+", false: ""}[m.Matched]+m.Automation)
		}
		if trace.Belt[4].Detail != c.detail || strings.Join(disabled, " ") != c.disabled {
			t.Errorf("belt %+v, disabled %v; want %q, %q", trace.Belt[4], disabled, c.detail, c.disabled)
		}
	}
	bad := send(request("token", `{"a":01}`, bearer()...))
	if bad.Belt[2].Outcome != run.Stopped || !strings.Contains(bad.Belt[2].Detail, "offset 5") {
		t.Errorf("%+v", bad.Belt)
	}
}

// TestRunsGone: a delivery whose runs are not kept any more still matched (SPEC 7).
func TestRunsGone(t *testing.T) {
	f := newFixture(t)
	ran := f.Receive(t.Context(), request("token", `{"build":{"status":"failed"}}`, bearer()...)).DeliveryID
	for _, r := range f.log(t)[0].Runs {
		if _, err := f.store.Runs.Stop(t.Context(), r.ID, store.StopCancel, ""); err != nil {
			t.Fatal(err)
		}
	}
	f.pass(100 * 24 * time.Hour)
	if n, _, err := f.store.Runs.Prune(t.Context(), store.RunRetention{Runs: time.Hour}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	f.Receive(t.Context(), request("third", `{}`, bearer()...))
	f.Receive(t.Context(), request("third", `{`, bearer()...))
	var came []string
	for _, d := range f.log(t) {
		came = append(came, d.Outcome.Came(d.Started))
		if d.Outcome == store.Accepted && d.Reason != "" {
			t.Errorf("reason %q of what was accepted", d.Reason)
		}
	}
	if want := []string{"", "nothing matched", "2 runs"}; !slices.Equal(came, want) {
		t.Errorf("%q, want %q", came, want)
	}
	trace, err := f.Show(t.Context(), ran)
	if err != nil || trace.Belt[4].Detail != "2 automations" || trace.Belt[5] != (Stage{Stage: StageRun, Outcome: run.Passed, Detail: "2 runs no longer kept"}) {
		t.Errorf("%+v, %v", trace.Belt, err)
	}
	// The number of runs of this delivery was not kept.
	trace.Delivery.Started = -1
	if n := started(trace); n != 2 {
		t.Errorf("%d started", n)
	}
	if store.Accepted.Came(-1) != "" {
		t.Error("of what is not known something is said")
	}
}

// TestReplay starts what matches now, linked to the old one (SPEC 13.8).
func TestReplay(t *testing.T) {
	f := newFixture(t)
	first := f.Receive(t.Context(), request("token", `{"build":{"status":"failed"}}`, bearer("X-Event", "1")...))
	for range 2 {
		got, err := f.Replay(t.Context(), first.DeliveryID)
		if err != nil || got.Duplicate || len(got.RunIDs) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		d, err := f.store.Deliveries.Get(t.Context(), got.ID)
		if err != nil || d.ReplayOf != first.DeliveryID || d.Identity.Source != store.IdentityReplay {
			t.Errorf("%+v, %v", d, err)
		}
	}
	f.Receive(t.Context(), request("token", `{`, bearer()...))
	if _, err := f.Replay(t.Context(), f.log(t)[0].ID); !errors.Is(err, ErrNotAccepted) {
		t.Errorf("%v", err)
	}
	if _, err := f.Replay(t.Context(), 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v", err)
	}
	f.live.Swap(&applier.Revision{Factory: "default"})
	if _, err := f.Replay(t.Context(), first.DeliveryID); !errors.Is(err, ErrNotLive) {
		t.Errorf("%v", err)
	}
}

// TestTestFilter: both checks are evaluated, whatever the other says, and a
// payload that is from nowhere is held to every webhook of the automation (SPEC 7.3).
func TestTestFilter(t *testing.T) {
	f := newFixture(t)
	id := f.Receive(t.Context(), request("token", `{"build":{"status":"failed"}}`, bearer()...)).DeliveryID
	for _, c := range []struct {
		request                   TestRequest
		would, webhookOK, payload bool
		webhookDetail             string
		webhooks                  string // with + those from which it would trigger
	}{
		{TestRequest{Automation: "failures", DeliveryID: id}, true, true, true, `a trigger selects the webhook "token"`, ""},
		{TestRequest{Automation: "failures", Payload: []byte(`{}`), Webhook: "token"}, false, true, false, `a trigger selects the webhook "token"`, ""},
		{TestRequest{Automation: "failures", Payload: []byte(`{}`), Webhook: "signed"}, false, false, false, `no trigger of failures selects the webhook "signed"`, ""},
		{TestRequest{Automation: "failures", Payload: []byte(`{"build":{"status":"failed"}}`), Webhook: "signed"}, false, false, true, `no trigger of failures selects the webhook "signed"`, ""},
		{TestRequest{Automation: "failures", DeliveryID: id, Webhook: "whk_signed"}, false, false, true, `no trigger of failures selects the webhook "signed"`, ""},
		{TestRequest{Automation: "all", Payload: []byte(`7`), Webhook: "token"}, true, true, true, `a trigger selects the webhook "token"`, ""},
		{TestRequest{Automation: "awake", Payload: []byte(`{"a":1}`), Webhook: "tokn"}, false, false, true, `no webhook "tokn" serves`, ""},
		{TestRequest{Automation: "asleep", Payload: []byte(`{"a":1}`), Webhook: "header"}, false, false, true, `a trigger selects the webhook "header", but asleep is disabled`, ""},
		{TestRequest{Automation: "asleep", Payload: []byte(`{"a":2}`), Webhook: "header"}, false, false, false, `a trigger selects the webhook "header", but asleep is disabled`, ""},
		{TestRequest{Automation: "idle", Payload: []byte(`{"a":1}`), Webhook: "off"}, false, false, true, `a trigger selects the webhook "off", which is disabled`, ""},
		{TestRequest{Automation: "push", Payload: []byte(`{"a":1}`), Webhook: "token"}, false, false, false, `push has no webhook trigger`, ""},
		{TestRequest{Filter: []byte(`{"build":{"status":["failed"]}}`), DeliveryID: id}, true, true, true, "any webhook", ""},
		{TestRequest{Filter: []byte(`{"build":{"status":["passed"]}}`), DeliveryID: id}, false, true, false, "any webhook", ""},
		// A payload that somebody pasted.
		{TestRequest{Automation: "failures", Payload: []byte(`{"build":{"status":"failed"}}`)}, true, true, true, "no webhook was named: it would trigger from token", "+token"},
		{TestRequest{Automation: "failures", Payload: []byte(`{"build":{"status":"passed"}}`)}, false, true, false, "no webhook was named: from token it would not trigger", "token"},
		{TestRequest{Automation: "two", Payload: []byte(`{"a":1,"b":2}`)}, true, true, true, "no webhook was named: it would trigger from second", "off +second third"},
		{TestRequest{Automation: "two", Payload: []byte(`{"a":3}`)}, true, true, true, "no webhook was named: it would trigger from third", "off second +third"},
		{TestRequest{Automation: "two", Payload: []byte(`{"a":7}`)}, false, true, false, "no webhook was named: it would trigger from none of 3 webhooks", "off second third"},
		{TestRequest{Automation: "idle", Payload: []byte(`{"a":1}`)}, false, false, true, "each webhook that a trigger selects is disabled", "off"},
		{TestRequest{Automation: "gone", Payload: []byte(`{"a":1}`)}, false, false, true, "no trigger selects a webhook that serves", ""},
		{TestRequest{Automation: "asleep", Payload: []byte(`{"a":1}`)}, false, false, true, "asleep is disabled", "header"},
		{TestRequest{Automation: "push", Payload: []byte(`{"a":1}`)}, false, false, false, "push has no webhook trigger", ""},
	} {
		c.request.Factory = "default"
		got, err := f.TestFilter(t.Context(), c.request)
		if err != nil || got.WouldTrigger != c.would || got.WebhookCheck.OK != c.webhookOK || got.PayloadCheck.OK != c.payload || got.WebhookCheck.Detail != c.webhookDetail {
			t.Errorf("%+v: %+v, %v", c.request, got, err)
		}
		if got.WouldTrigger != (got.WebhookCheck.OK && got.PayloadCheck.OK) {
			t.Errorf("%+v: the verdict is not that of its checks: %+v", c.request, got)
		}
		if got.PayloadCheck.Detail == "" {
			t.Errorf("%+v: the payload check says nothing: %+v", c.request, got)
		}
		var webhooks []string
		for _, w := range got.Webhooks {
			webhooks = append(webhooks, map[bool]string{true: "+", false: ""}[w.WouldTrigger]+w.Webhook)
			if w.Detail == "" {
				t.Errorf("%+v: nothing is said of %s", c.request, w.Webhook)
			}
		}
		if all := strings.Join(webhooks, " "); all != c.webhooks {
			t.Errorf("%+v: webhooks %q, want %q", c.request, all, c.webhooks)
		}
	}
	for _, bad := range []TestRequest{
		{Filter: []byte(`{"a":1}`), DeliveryID: id},
		{Payload: []byte(`{`)},
		{Automation: "none", Payload: []byte(`{}`)},
		{Automation: "all"},
		{Automation: "all", Payload: []byte(`{}`), DeliveryID: id},
		{Automation: "all", Payload: []byte(`{}`), Filter: []byte(`{}`)},
	} {
		if _, err := f.TestFilter(t.Context(), bad); !errors.Is(err, ErrBadTest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestUnavailable: what cannot be committed is 503, and a sender that is told so
// loses nothing by sending again (SPEC 5.4).
func TestUnavailable(t *testing.T) {
	f := newFixture(t)
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	if a := f.Receive(t.Context(), request("token", `{}`, bearer()...)); a.Status != 503 || a.RetryAfter == 0 {
		t.Errorf("%+v", a)
	}
}

// TestCredentialIsNotKept: also where the webhook file puts the credential into a
// header that is kept with other webhooks (SPEC 5.10).
func TestCredentialIsNotKept(t *testing.T) {
	f := newFixture(t)
	if a := f.Receive(t.Context(), request("header", `{}`, "X-Request-Id", webhookSecret, "X-Event-Type", "build")); a.Status != http.StatusAccepted {
		t.Fatal(a)
	}
	if kept := f.log(t)[0].Headers; kept["X-Event-Type"] != "build" || len(kept) != 1 {
		t.Errorf("kept %v, want X-Event-Type alone", kept)
	}
}

// TestConnected: only a webhook that has a connection takes what comes over one, and only a webhook
// with a secret takes requests (SPEC 29.1).
func TestConnected(t *testing.T) {
	f := newFixture(t)
	const slack = "authMode: signature\nsignatureScheme: slack\nconnect: socket\nappTokenName: S\n"
	f.tree["webhooks/socket.yaml"] = &fstest.MapFile{Data: []byte(slack)}
	f.tree["webhooks/both.yaml"] = &fstest.MapFile{Data: []byte(slack + "secretName: S\nenabled: false\n")}
	f.live.Swap(f.build(t, webhookSecret))
	for _, c := range []struct {
		webhook   string
		connected bool
		status    int
	}{{"socket", true, 202}, {"socket", false, 404}, {"token", true, 404}, {"both", true, 404}, {"none", true, 404}} {
		r := request(c.webhook, `{"a":1}`)
		r.Connected = c.connected
		if got := f.Receive(t.Context(), r); got.Status != c.status {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	rates := 0
	for range 70 { // what is refused counts for the rate, too
		r := request("socket", "x")
		r.Connected, r.ContentLength = true, MaxBody+1
		if f.Receive(t.Context(), r).Status == http.StatusTooManyRequests {
			rates++
		}
	}
	if rates != 11 {
		t.Errorf("%d of 71 are over the rate", rates)
	}
}
