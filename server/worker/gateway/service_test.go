package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

const serviceKey = "c4nary-of-the-service"

// serviceWorld is a gateway with the model provider anthropic and the service app, which are one
// server that answers as the test says.
type serviceWorld struct {
	t       testing.TB
	address string // of the gateway
	server  *httptest.Server
	end     func()
	meter   *meter

	mu     sync.Mutex
	answer http.HandlerFunc
	asked  []*http.Request
	told   []string
}

// meter is a task.Meter that keeps what it is told.
type meter struct {
	mu      sync.Mutex
	asks    []task.Ask
	calls   []task.Call
	refuse  error
	most    int64
	cutFrom int64 // of the output
}

func (m *meter) Reserve(_ context.Context, ask task.Ask) (task.Reservation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks = append(m.asks, ask)
	return m, m.refuse
}

func (m *meter) Output() int64 { return m.most }

func (m *meter) Used(_ context.Context, by task.Tokens) error {
	if m.cutFrom > 0 && by.Output >= m.cutFrom {
		return errors.New("the budget is used up")
	}
	return nil
}

func (m *meter) Settle(c task.Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, c)
}

func (m *meter) last(t testing.TB) task.Call {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) == 0 {
		t.Fatal("nothing is settled")
	}
	return m.calls[len(m.calls)-1]
}

func startServices(t testing.TB, change ...func(*task.Service)) *serviceWorld {
	t.Helper()
	w := &serviceWorld{t: t, meter: &meter{most: -1}}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r)
		answer := w.answer
		w.mu.Unlock()
		answer(rw, r)
	}))
	w.server.EnableHTTP2 = true
	w.server.Config.ErrorLog = nowhere
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(w.server.Certificate())
	all := []task.Service{
		{
			Name: "anthropic", Token: "t0ken-of-the-model", URL: w.server.URL, Provider: "anthropic", Secret: "KEY", Models: [][]string{{"claude-*"}},
			Header: map[string]secret.Value{"X-Api-Key": secret.New(serviceKey)},
		},
		{
			Name: "app", Token: "t0ken-of-the-app", URL: w.server.URL + "/api/0", Secret: "APP", Methods: []string{"GET", "POST"},
			Paths: []string{"/issues/*", "/projects/**", "/"}, Header: map[string]secret.Value{"Authorization": secret.New("Bearer " + serviceKey)},
		},
	}
	for i := range all {
		for _, c := range change {
			c(&all[i])
		}
	}
	g, err := NewGateway(GatewayConfig{
		Services: all, Roots: pool, Report: func(event.Egress) {}, Meter: w.meter,
		Tell: func(s event.Status) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, s.Message)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error("serving:", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// seen are the requests that reached the server, and what the transcript was told.
func (w *serviceWorld) seen() (asked []*http.Request, told string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), strings.Join(w.told, "\n")
}

var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send asks for a path of the gateway, as it is.
func (w *serviceWorld) send(method, escaped, body string, header ...string) (*http.Response, string, error) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.URL.Opaque = escaped
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := direct.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if all := fmt.Sprint(resp.Header) + string(text); strings.Contains(all, serviceKey) {
		w.t.Errorf("%s %s: the answer has the key: %s", method, escaped, all)
	}
	return resp, string(text), err
}

const (
	modelPath = "/-/anthropic/t0ken-of-the-model/v1/messages"
	appPath   = "/-/app/t0ken-of-the-app"
	hello     = `{"model":"claude-opus-4-8","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"MODEL: say Hello"}]}`
)

// TestServiceAddsCredential: what goes out has the credential and nothing that the run passes for one,
// and none of the headers that would change what was checked.
func TestServiceAddsCredential(t *testing.T) {
	w := startServices(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Echo", r.Header.Get("Authorization"))
		rw.Header().Set("Set-Cookie", "session=1")
		rw.Header().Set("X-Plain", "yes")
		_, _ = io.WriteString(rw, "you are "+serviceKey[:7])
		rw.(http.Flusher).Flush()
		_, _ = io.WriteString(rw, serviceKey[7:]+", "+r.URL.RequestURI())
	}
	resp, text, err := w.send("POST", appPath+"/projects/a%20b/c?x=1&y=%2e%2e", "body",
		"Authorization", "Bearer mine", "X-Api-Key", "mine", "Cookie", "a=b", "X-HTTP-Method-Override", "DELETE", "X-Original-URL", "/admin", "X-Forwarded-For", "1.2.3.4",
		"X_Api_Key", "mine", "X_HTTP_Method_Override", "DELETE", "X_Forwarded_For", "1.2.3.4",
		"Connection", "X-Hop", "X-Hop", "1", "X-Own", "kept", "Accept-Encoding", "gzip")
	if err != nil || resp.StatusCode != 200 || text != "you are [redacted], /api/0/projects/a%20b/c?x=1&y=%2e%2e" {
		t.Fatalf("%v %v %q", err, resp, text)
	}
	if resp.Header.Get("Echo") != "[redacted]" || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("X-Plain") != "yes" {
		t.Errorf("the answer has the headers %v", resp.Header)
	}
	asked, _ := w.seen()
	h := asked[0].Header
	if h.Get("Authorization") != "Bearer "+serviceKey || h.Get("X-Own") != "kept" || h.Get("Accept-Encoding") != "identity" || asked[0].ProtoMajor != 2 {
		t.Errorf("%s has the headers %v", asked[0].Proto, h)
	}
	for _, name := range []string{"X-Api-Key", "Cookie", "X-Http-Method-Override", "X-Original-Url", "X-Forwarded-For", "X-Hop", "Connection", "X_Api_Key", "X_HTTP_Method_Override", "X_Forwarded_For"} {
		if h.Get(name) != "" {
			t.Errorf("the header %s is passed on", name)
		}
	}
	own := startServices(t, func(s *task.Service) {
		if s.Name == "app" {
			s.Header = map[string]secret.Value{"X_Own-Key": secret.New(serviceKey)}
		}
	})
	own.answer = func(http.ResponseWriter, *http.Request) {}
	if _, _, err := own.send("GET", appPath+"/issues/1", "", "X-Own-Key", "mine", "X_Own_Key", "mine", "X_own-Key", "mine"); err != nil {
		t.Fatal(err)
	}
	asked, _ = own.seen()
	for name, values := range asked[0].Header {
		if slices.Contains(values, "mine") {
			t.Errorf("the header %s of the run goes beside that of the service", name)
		}
	}
}

// TestServiceBounds: a run reaches the listed methods and paths, however it writes others.
func TestServiceBounds(t *testing.T) {
	w := startServices(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.URL.Path) }
	for _, tt := range []struct {
		method, path string
		want         string // path at the service; empty: refused
	}{
		{"GET", "", "/api/0"},
		{"GET", "/", "/api/0/"},
		{"GET", "/issues/1", "/api/0/issues/1"},
		{"POST", "/projects/a/b/c/", "/api/0/projects/a/b/c/"},
		{"GET", "/projects/", "/api/0/projects/"},
		{"GET", "/issues/1/comments", ""},
		{"GET", "/issues", ""},
		{"GET", "/projects", ""},
		{"GET", "/ISSUES/1", ""},
		{"DELETE", "/issues/1", ""},
		{"get", "/issues/1", ""},
		{"GET", "/projects/../admin", ""},
		{"GET", "/projects/..", ""},
		{"GET", "/projects/./a", ""},
		{"GET", "/projects/%2e%2e/admin", ""},
		{"GET", "/projects/%2E./admin", ""},
		{"GET", "/projects/..%2fadmin", ""},
		{"GET", "/projects%2fa", ""},
		{"GET", "/projects/%252e%252e/admin", ""},
		{"GET", "/projects//admin", ""},
		{"GET", "//projects/a", ""},
		{"GET", "/projects/..;/admin", ""},
		{"GET", "/projects/..%5cadmin", ""},
		{"GET", `/projects/..\admin`, ""},
		{"GET", "/projects/a%00", ""},
		{"GET", "/projects/a%0d%0aX: y", ""},
		{"GET", "/projects/a%3f/admin", ""},
		{"GET", "/projects/a%23", ""},
		{"GET", "/projects/%ff%fe", ""},
	} {
		resp, text, err := w.send(tt.method, appPath+tt.path, "")
		if tt.want == "" && (err == nil && resp.StatusCode < 400) || tt.want != "" && (err != nil || resp.StatusCode != 200 || text != tt.want) {
			t.Errorf("%s %q: %v %v %q, want %q", tt.method, tt.path, err, resp, text, tt.want)
		}
	}
	for _, other := range []string{"/-/app/wrong/issues/1", "/-/app", "/-/app/", "/-/none/t0ken-of-the-app/issues/1", "/-/anthropic/t0ken-of-the-app/v1/messages", "/-/", "/%2d/app/t0ken-of-the-app/issues/1"} {
		if resp, text, err := w.send("GET", other, ""); err != nil || resp.StatusCode != 403 {
			t.Errorf("%s: %v %v %q", other, err, resp, text)
		}
	}
	asked, _ := w.seen()
	if len(asked) != 5 {
		t.Errorf("%d requests reached the service", len(asked))
	}
}

// FuzzServicePath: what passes is the same path for everybody, and below the service.
func FuzzServicePath(f *testing.F) {
	for _, s := range []string{"", "/", "/a/../b", "/%2e%2e", "/a//b", "//", "..", "/%252f", "/a;b", "/é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		plain, err := plainPath(escaped)
		if err != nil || plain == "" {
			return
		}
		u, err := url.Parse("https://example.com/base" + escaped)
		if err != nil || u.Host != "example.com" {
			return // it is never sent
		}
		if clean := path.Clean(u.Path); strings.TrimSuffix(u.Path, "/") != clean || strings.Contains(plain, "..") && slices.Contains(strings.Split(plain, "/"), "..") {
			t.Errorf("%q becomes %q", escaped, u.Path)
		}
	})
}

// TestServiceRedirect: a redirect is the run's to follow, without the credential; that of a model is
// an error.
func TestServiceRedirect(t *testing.T) {
	w := startServices(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://evil.example/", http.StatusTemporaryRedirect)
	}
	if resp, _, err := w.send("GET", appPath+"/issues/1", ""); err != nil || resp.StatusCode != 307 || resp.Header.Get("Location") != "https://evil.example/" {
		t.Errorf("%v %v", err, resp)
	}
	resp, text, err := w.send("POST", modelPath, hello)
	if asked, told := w.seen(); err != nil || resp.StatusCode != 502 || !strings.Contains(text, `"type":"api_error"`) || len(asked) != 2 || !strings.Contains(told, "307") {
		t.Errorf("%v %v %q %q", err, resp, text, told)
	}
}

// TestModelStreams: each part of an answer comes at once, also while the next is far, and what was used
// is counted. A provider reads the body in the charset in which it was checked.
func TestModelStreams(t *testing.T) {
	w := startServices(t)
	next := make(chan string)
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for text := range next {
			_, _ = io.WriteString(rw, text)
			rw.(http.Flusher).Flush()
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", w.address+modelPath+"?beta=true", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Anthropic-Beta", "some-beta")
	r.Header.Set("Content-Type", "application/json; charset=utf-7")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := direct.Do(r)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	parts := []string{
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ghp_" + strings.Repeat("a", 36) + "\"}}\n", // not ours to hide
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n",
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n",
	}
	next <- parts[0] + "\n"
	resp := <-answered
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for i, part := range parts {
		if i > 0 {
			next <- part + "\n"
		}
		got := ""
		for strings.Count(got, "\n") < 3 {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got += line
		}
		if got != part+"\n" {
			t.Errorf("part %d is %q", i, got)
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%v %q", err, rest)
	}
	w.end()
	asked, told := w.seen()
	if h := asked[0].Header; h.Get("X-Api-Key") != serviceKey || h.Get("Anthropic-Beta") != "some-beta" || h.Get("Anthropic-Version") == "" || asked[0].URL.RawQuery != "beta=true" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%v %v", asked[0].URL, h)
	}
	c := w.meter.last(t)
	if c.Used.Input != 10 || c.Used.Output < 7 || !c.Complete || c.Unsent || c.Status != 200 || c.First == 0 || told != "" || w.meter.asks[0].Model != "claude-opus-4-8" || w.meter.asks[0].Output != 100 {
		t.Errorf("%+v %+v %q", c, w.meter.asks, told)
	}
}

// TestModelFailures: what a run and its transcript are told when a provider does not answer as it should.
func TestModelFailures(t *testing.T) {
	begin := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n")
		rw.(http.Flusher).Flush()
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		body   string
		setup  func(*serviceWorld)
		status int // 0: the answer breaks off
		text   string
		told   string
		call   func(task.Call) bool // nil: nothing is settled
	}{
		{
			"too many requests", func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Retry-After", "7")
				http.Error(rw, `{"type":"error"}`, http.StatusTooManyRequests)
			}, hello, nil, 429, `{"type":"error"}`, "the model provider anthropic answers 429 Too Many Requests; it says to wait (Retry-After: 7)",
			func(c task.Call) bool { return c.Unsent && c.Status == 429 },
		},
		{
			"overloaded", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, `{"type":"error"}`, 529) }, hello, nil, 529, `{"type":"error"}`, "answers 529 (overloaded)",
			func(c task.Call) bool { return c.Unsent && c.Status == 529 },
		},
		{
			"echo of the key", func(rw http.ResponseWriter, r *http.Request) {
				http.Error(rw, "invalid x-api-key "+r.Header.Get("X-Api-Key"), http.StatusUnauthorized)
			}, hello, nil, 401, "invalid x-api-key [redacted]", "answers 401", func(c task.Call) bool { return c.Unsent },
		},
		{
			"moved", func(rw http.ResponseWriter, r *http.Request) {
				http.Redirect(rw, r, "https://evil.example/", http.StatusPermanentRedirect)
			}, hello, nil, 502, "api_error", "answers with the status 308", func(c task.Call) bool { return c.Unsent && c.Failed() },
		},
		{
			"cut in the middle", func(rw http.ResponseWriter, _ *http.Request) {
				begin(rw)
				panic(http.ErrAbortHandler)
			}, hello, nil, 200, "event: error\ndata: {\"error\":", "the model provider anthropic broke off its answer", func(c task.Call) bool { return !c.Unsent && !c.Complete && c.Used.Input == 10 },
		},
		{
			"ended in the middle", func(rw http.ResponseWriter, _ *http.Request) { begin(rw) }, hello, nil, 200, "message_start", "ended its answer before it was whole",
			func(c task.Call) bool { return !c.Unsent && !c.Complete },
		},
		{
			"cut without a stream", func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, `{"id":`)
				rw.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, strings.Replace(hello, "true", "false", 1), nil, 0, "", "broke off its answer", func(c task.Call) bool { return !c.Complete },
		},
		{
			"garbage", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "\x00\xff garbage") }, hello, nil, 200, "garbage", "an answer of another form", func(c task.Call) bool { return !c.Complete && !c.Unsent },
		},
		{
			"compressed", func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(rw, "x")
			}, hello, nil, 502, "api_error", "compresses its answer (gzip)", func(c task.Call) bool { return !c.Complete },
		},
		{"down", nil, hello, func(w *serviceWorld) { w.server.Close() }, 502, "api_error", "cannot be reached", func(c task.Call) bool { return c.Unsent && c.Status == 0 }},
		{"another model", nil, strings.Replace(hello, "claude", "gpt", 1), nil, 403, "may not use the model gpt-opus-4-8, only claude-*", "does not pass on a request", nil},
		{"a hosted tool", nil, strings.Replace(hello, `"stream"`, `"tools":[{"type":"web_search_20250305","name":"web_search"}],"stream"`, 1), nil, 403, "hosted tools", "hosted tools", nil},
		{"no JSON", nil, "x", nil, 400, "invalid_request_error", "does not pass on", nil},
		{
			"no budget", nil, hello, func(w *serviceWorld) { w.meter.refuse = errors.New("the budget of the run is used up") }, 403, "triphammer: the budget of the run is used up", "used up", nil,
		},
		{
			"over the budget", func(rw http.ResponseWriter, r *http.Request) {
				begin(rw)
				for r.Context().Err() == nil {
					_, _ = io.WriteString(rw, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\""+strings.Repeat("word ", 50)+"\"}}\n\n")
					rw.(http.Flusher).Flush()
				}
			}, hello, func(w *serviceWorld) { w.meter.cutFrom = 200 }, 200, "triphammer: the budget is used up", "the budget is used up", func(c task.Call) bool { return c.Used.Output >= 200 && !c.Complete },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startServices(t)
			w.answer = tt.answer
			if tt.setup != nil {
				tt.setup(w)
			}
			resp, text, err := w.send("POST", modelPath, tt.body)
			if tt.status == 0 && err == nil || tt.status != 0 && (err != nil || resp.StatusCode != tt.status || !strings.Contains(text, tt.text)) {
				t.Errorf("%v %v %q", err, resp, text)
			}
			if tt.status == 429 && resp.Header.Get("Retry-After") != "7" {
				t.Error("Retry-After is lost")
			}
			w.end()
			if _, told := w.seen(); !strings.Contains(told, tt.told) || strings.Contains(told, serviceKey) {
				t.Errorf("the transcript is told %q", told)
			}
			if tt.call == nil && len(w.meter.calls) > 0 || tt.call != nil && !tt.call(w.meter.last(t)) {
				t.Errorf("%+v is settled", w.meter.calls)
			}
		})
	}
}

// TestModelCancel: the request to the provider ends when the run does, and when the agent gives up.
func TestModelCancel(t *testing.T) {
	for _, by := range []string{"agent", "run"} {
		w := startServices(t)
		gone, began := make(chan struct{}), make(chan struct{})
		w.answer = func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			close(gone)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", w.address+modelPath, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := direct.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
		<-began
		if by == "agent" {
			cancel()
		} else {
			w.end()
		}
		<-gone
		w.end()
		cancel()
		if c := w.meter.last(t); c.Unsent || c.Complete {
			t.Errorf("%s: %+v is settled", by, c)
		}
	}
}

// TestTellings: equal texts are told the first time and then ever more seldom, and a run cannot fill
// its transcript.
func TestTellings(t *testing.T) {
	var told []string
	s := &tellings{tell: func(e event.Status) { told = append(told, e.Message) }, known: make(map[string]int)}
	for range 150 {
		s.add("x")
	}
	if !slices.Equal(told, []string{"x", "x (for the 10th time)", "x (for the 100th time)"}) {
		t.Errorf("%q", told)
	}
	for i := range 10_000 {
		s.add(fmt.Sprint(i))
	}
	if len(told) > mostTold+10 {
		t.Errorf("%d texts are told", len(told))
	}
	if last := told[len(told)-4]; !strings.Contains(last, "leaves out further messages") {
		t.Errorf("in place of the others it is told: %q", last)
	}
}

// TestTellsOfProvider: what a run does wrong itself takes the place of nothing that a provider says (SPEC 25.1).
func TestTellsOfProvider(t *testing.T) {
	w := startServices(t)
	w.answer = func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, `{"type":"error"}`, 529) }
	for i := range mostTold + 10 {
		if _, _, err := w.send("GET", fmt.Sprint(appPath, "/no/", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := w.send("POST", modelPath, hello); err != nil {
		t.Fatal(err)
	}
	if _, told := w.seen(); !strings.Contains(told, "answers 529") || !strings.Contains(told, "leaves out further messages") {
		t.Errorf("the transcript is told %.300q", told)
	}
}

func TestServiceRefused(t *testing.T) {
	for want, s := range map[string]task.Service{
		"is not such as https": {Name: "a", Token: "t", URL: "ftp://example.com"},
		"has no token":         {Name: "a", URL: "https://example.com"},
		"is not one line":      {Name: "a", Token: "t", URL: "https://example.com", Header: map[string]secret.Value{"A": secret.New("never-shown\nb")}},
		"not one line of text": {Name: "a", Token: "t", URL: "https://example.com", Header: map[string]secret.Value{"A": {}}},
	} {
		if _, err := NewGateway(GatewayConfig{Services: []task.Service{s}, Report: func(event.Egress) {}}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "never-shown") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestManyStreams: 200 answers stream at once, and the gateway holds little of them.
func TestManyStreams(t *testing.T) {
	w := startServices(t)
	const streams = 200
	var waiting sync.WaitGroup
	waiting.Add(streams)
	all := make(chan struct{})
	part := bytes.Repeat([]byte("x"), 16<<10)
	w.answer = func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = rw.Write([]byte(": hi\n\n"))
		rw.(http.Flusher).Flush()
		waiting.Done()
		<-all
		for range 8 {
			_, _ = rw.Write(part)
		}
	}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var got sync.WaitGroup
	for range streams {
		got.Go(func() {
			resp, text, err := w.send("POST", modelPath, hello)
			if err != nil || resp.StatusCode != 200 || len(text) != 6+8*len(part) {
				t.Error(err, len(text))
			}
		})
	}
	waiting.Wait()
	runtime.GC()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > streams*512<<10 {
		t.Errorf("%d streams hold %d KiB each", streams, grown/streams>>10)
	} else {
		t.Logf("%d streams hold %d KiB each, both ends and the provider included", streams, grown/streams>>10)
	}
	close(all)
	got.Wait()
}

// BenchmarkModel compares answers by the gateway with direct answers: the time to the first bytes,
// and the rate of a stream.
func BenchmarkModel(b *testing.B) {
	w := startServices(b)
	event := []byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n")
	const tokens = 2000
	w.answer = func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		for range tokens {
			_, _ = rw.Write(event)
			rw.(http.Flusher).Flush()
		}
	}
	for _, way := range []struct {
		name, address string
		client        *http.Client
	}{
		{"direct", w.server.URL + "/v1/messages", w.server.Client()},
		{"gateway", w.address + modelPath, &http.Client{Transport: &http.Transport{}}},
	} {
		b.Run(way.name, func(b *testing.B) {
			var first time.Duration
			for b.Loop() {
				began := time.Now()
				resp, err := way.client.Post(way.address, "application/json", strings.NewReader(hello))
				if err != nil {
					b.Fatal(err)
				}
				buffer := make([]byte, 1)
				_, err = io.ReadFull(resp.Body, buffer)
				first += time.Since(began)
				if _, more := io.Copy(io.Discard, resp.Body); err != nil || more != nil || resp.StatusCode != 200 {
					b.Fatal(err, more, resp.Status)
				}
				_ = resp.Body.Close()
			}
			b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs-to-first")
			b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
