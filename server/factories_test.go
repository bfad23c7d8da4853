package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory/signature"
	"triphammer/server/access"
	"triphammer/server/bodies"
	"triphammer/server/ledger"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// looks is a source that tells of each look at it, and holds nothing new.
type looks chan struct{}

func (l looks) Head(ctx context.Context) (gitrepo.Commit, error) {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
	}
	return gitrepo.Commit{Hash: "live"}, nil
}

func (looks) Tree(context.Context, string, string) (fs.FS, error) { return nil, errors.ErrUnsupported }
func (looks) Watch(ctx context.Context, _ func()) error           { <-ctx.Done(); return nil }
func (looks) Describe() (repository, branch string)               { return "", "" }

// signedPush is a push notification as a service sends it.
func (f *fixture) signedPush(scheme, secretValue, body string, change func(*http.Request)) int {
	f.t.Helper()
	req, err := http.NewRequest(http.MethodPost, f.url+"/api/v1/factories/default/sync", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	s, ok := signature.Lookup(scheme)
	if !ok {
		f.t.Fatalf("there is no scheme %s", scheme)
	}
	if err := s.Sign(secretValue, &signature.Request{Method: http.MethodPost, URL: req.URL.String(), Header: req.Header, Body: []byte(body), Now: time.Now()}); err != nil {
		f.t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	f.hold(req, resp, data)
	return resp.StatusCode
}

// TestPushNotification: a service that knows the secret, and a key that may
// manage, make a factory look; nobody else does (SPEC 4.1).
func TestPushNotification(t *testing.T) {
	f := newFixture(t)
	source := looks(make(chan struct{}))
	live := &applier.Live{}
	live.Swap(&applier.Revision{Factory: "default", Commit: gitrepo.Commit{Hash: "live"}})
	a := applier.New(applier.Config{Factory: "default", Source: source, Live: live, Ledger: ledger.New(f.store), Logger: slog.New(slog.DiscardHandler)})
	f.parts.Appliers = []*applier.Applier{a}
	f.cfg.Data = access.New(f.parts)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-source // the one at the start
	kicked := func(name string, want bool) {
		t.Helper()
		if !want {
			select {
			case <-source:
				t.Errorf("%s: a look was asked for", name)
			default:
			}
			return
		}
		select {
		case <-source:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no look was asked for", name)
		}
	}
	const body = `{"ref":"refs/heads/main","after":"whatever"}`
	const value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // a text, and a key of Standard Webhooks
	if got := f.signedPush("github", value, body, nil); got != http.StatusUnauthorized {
		t.Errorf("without the secret: %d", got)
	}
	kicked("without the secret", false)
	if _, err := f.store.Secrets.Set(t.Context(), "PUSH_SECRET", secret.New(value)); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range pushSchemes {
		for name, c := range map[string]struct {
			secret string
			change func(*http.Request)
			want   int
		}{
			"right":            {value, nil, http.StatusAccepted},
			"another secret":   {"whsec_" + strings.Repeat("QUJD", 8), nil, http.StatusUnauthorized},
			"another factory":  {value, func(r *http.Request) { r.URL.Path = "/api/v1/factories/none/sync" }, http.StatusUnauthorized}, // it has no secret
			"with a wrong key": {value, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, http.StatusUnauthorized},
			"more than is read": {value, func(r *http.Request) {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, maxPush+1))), maxPush+1
			}, http.StatusRequestEntityTooLarge},
		} {
			if got := f.signedPush(scheme, c.secret, body, c.change); got != c.want {
				t.Errorf("%s, %s: %d, want %d", scheme, name, got, c.want)
			}
			kicked(scheme+", "+name, c.want == http.StatusAccepted)
		}
		if scheme == "gitlab" {
			continue // its token says nothing of the body
		}
		got := f.signedPush(scheme, value, body, func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body+" ")), int64(len(body)+1)
		})
		if got != http.StatusUnauthorized {
			t.Errorf("%s: another body: %d", scheme, got)
		}
		kicked(scheme+", another body", false)
	}
	for key, want := range map[string]int{f.key("manager", "manage"): 202, f.key("reader", "read"): 403, f.key("runner", "runs"): 403, "": 401} {
		if got := f.do("POST", "/api/v1/factories/default/sync", key, ""); got.status != want {
			t.Errorf("%d, want %d", got.status, want)
		}
		kicked(fmt.Sprint("a key: ", want), want == 202)
	}
	entries, err := f.store.Audit.List(context.Background(), store.AuditQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	syncs := 0
	for _, e := range entries {
		if e.Action == "factory.sync" {
			syncs++
		}
	}
	if syncs != 1 {
		t.Errorf("%d entries in the audit log", syncs)
	}
	kicked("at the end", false)
}

// TestPushUnread: where no notification could be verified, none is read, and a
// stranger does not learn which factories there are. Where one could, its body
// has a budget of its own.
func TestPushUnread(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	date := regexp.MustCompile(`Date: [^\r]*`)
	ask := func(factory string) string {
		_, answer, closed := f.raw(unsent("POST /api/v1/factories/"+factory+"/sync", "X-Hub-Signature-256: x"))
		if !closed {
			t.Errorf("%s: the connection is kept", factory)
		}
		return date.ReplaceAllString(answer, "Date: now")
	}
	unknown := ask("none")
	if !strings.HasPrefix(unknown, "HTTP/1.1 401") || f.pushes.Spent() != 0 {
		t.Errorf("an unknown factory, %d bytes held: %s", f.pushes.Spent(), unknown)
	}
	if got := ask("default"); got != unknown {
		t.Errorf("a secret without a value:\n%s\nunknown:\n%s", got, unknown)
	}
	secrets := f.cfg.SyncSecrets
	f.cfg.SyncSecrets = nil
	if got := ask("default"); got != unknown {
		t.Errorf("no secret:\n%s\nunknown:\n%s", got, unknown)
	}
	f.cfg.SyncSecrets = secrets
	if _, err := f.store.Secrets.Set(t.Context(), "PUSH_SECRET", secret.New(hookSecret)); err != nil {
		t.Fatal(err)
	}
	_, wrong, _ := f.raw(post("/api/v1/factories/default/sync", "{}", "X-Hub-Signature-256: x"))
	if wrong = date.ReplaceAllString(wrong, "Date: now"); wrong != unknown {
		t.Errorf("a wrong signature:\n%s\nunknown:\n%s", wrong, unknown)
	}

	// Silent ones hold what they have sent, not what they announce, nor any of the ingress.
	var dropped atomic.Int64
	f.pushes = bodies.NewBudget(4*bodies.Step, 4*bodies.Step, func(netip.Prefix) { dropped.Add(1) })
	for range 20 {
		f.dial(unsent("POST /api/v1/factories/default/sync", "X-Hub-Signature-256: x"))
	}
	waitUntil(t, "the budget is not spent", func() bool { return f.pushes.Spent() == 4*bodies.Step && dropped.Load() == 16 })
	if got := f.signedPush("github", hookSecret, `{"ref":"`+strings.Repeat("x", 2*bodies.Step)+`"}`, nil); got != http.StatusAccepted {
		t.Errorf("a notification beside silent ones: %d", got)
	}
	if f.strangers.Spent() != 0 {
		t.Error("notifications hold memory of the ingress")
	}
	f.bodyTime = time.Millisecond
	if got := f.signedPush("github", hookSecret, `{}`, func(r *http.Request) {
		stuck, _ := io.Pipe()
		r.Body, r.ContentLength = stuck, 2
	}); got != http.StatusRequestTimeout {
		t.Errorf("a slow notification: %d", got)
	}
}

// TestPinAPI: the way back over HTTP, with what it refuses.
func TestPinAPI(t *testing.T) {
	f := newFixture(t)
	key, other := f.key("admin", "manage"), f.limitedKey("other", "elsewhere", "manage")
	first := field(t, f.get("/api/v1/applies", key), "applies", "0", "commit")
	if err := os.Remove(filepath.Join(f.work, "webhooks", "hook.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := f.do("POST", "/api/v1/factories/default/sync?wait=true", key, ""); got.status != 200 {
		t.Fatalf("%s", got.body)
	}
	second := field(t, f.get("/api/v1/applies", key), "applies", "0", "commit")
	const pin = "/api/v1/factories/default/pin"
	for _, c := range []struct {
		method, path, key, body string
		want                    int
	}{
		{"DELETE", pin, key, "", 404},
		{"POST", pin, f.key("reader", "read"), `{}`, 403},
		{"POST", pin, other, `{"commit":"` + first + `","reason":"x"}`, 404},
		{"POST", pin, key, `{`, 400},
		{"POST", pin, key, `{"commit":"` + first + `","reason":" "}`, 400},
		{"POST", pin, key, `{"commit":"abc","reason":"x"}`, 400},
		{"POST", pin, key, `{"commit":"` + first + `","reason":"` + strings.Repeat("x", maxReason+1) + `"}`, 400},
		{"POST", pin, key, `{"commit":"` + first + `","reason":"x","until":"2020-01-01T00:00:00Z"}`, 400},
		{"POST", pin, key, `{"commit":"0000000000","reason":"x"}`, 404},
		{"POST", pin, key, `{"commit":"` + first[:12] + `","reason":"x","until":"2099-01-01T00:00:00Z"}`, 200},
		{"GET", "/api/v1/applies/" + first[:12], key, "", 200},
		{"GET", "/api/v1/applies/" + first[:12], other, "", 404},
		{"GET", "/api/v1/applies/" + first + "/files", key, "", 200},
		{"GET", "/api/v1/applies/" + first + "/files", other, "", 404},
		{"GET", "/api/v1/applies/" + first + "/files?path=webhooks/hook.yaml", key, "", 200},
		{"GET", "/api/v1/applies/" + second + "/files?path=webhooks/hook.yaml", key, "", 404},
		{"GET", "/api/v1/applies/" + second + "/diff?from=" + first, key, "", 200},
		{"GET", "/api/v1/applies/" + second + "/diff?from=" + first, other, "", 404},
		{"GET", "/api/v1/applies/" + second + "/diff", key, "", 400},
	} {
		if got := f.do(c.method, c.path, c.key, c.body); got.status != c.want {
			t.Errorf("%s %s %s: %d, want %d\n%s", c.method, c.path, c.body, got.status, c.want, got.body)
		}
	}
	status := f.get("/api/v1/status", key)
	for path, want := range map[string]string{"state": "pinned", "head": second} {
		if got := field(t, status, "factories", "0", path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got := field(t, status, "factories", "0", "applied", "commit"); got != first || field(t, status, "factories", "0", "pin", "by") != "key admin (ada)" {
		t.Errorf("%s", status.body)
	}
	link := field(t, f.do("POST", "/api/v1/auth/links", key, ""), "url")
	cookie := f.signIn(link)
	if _, page, _ := f.raw("GET / HTTP/1.1\r\nHost: x\r\nCookie: " + cookie + "\r\n\r\n"); !strings.Contains(page, "pinned to "+first[:7]+" by key admin (ada), until 2099-01-01") {
		t.Errorf("the page: %s", page)
	}
	if got := f.get("/api/v1/applies/"+second+"/diff?from="+first, key); field(t, got, "plan", "delete", "0", "path") != "webhooks/hook.yaml" {
		t.Errorf("%s", got.body)
	}
	if got := f.do("DELETE", pin, key, ""); got.status != 200 || field(t, got, "commit") != second {
		t.Errorf("%s", got.body)
	}
}
