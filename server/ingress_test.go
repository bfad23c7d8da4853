package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf16"

	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// hooks are a webhook of each mode, one that is disabled, and one to delete.
var hooks = fstest.MapFS{
	"webhooks/url.yaml":    {Data: []byte("secretName: S\nauthMode: url_token\n")},
	"webhooks/signed.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
	"webhooks/stamp.yaml":  {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: stripe\n")},
	"webhooks/off.yaml":    {Data: []byte("secretName: S\nenabled: false\n")},
	"webhooks/gone.yaml":   {Data: []byte("secretName: S\n")},
}

// uids are the UIDs of the webhooks by name.
func (f *fixture) uids() map[string]string {
	all := make(map[string]string)
	for _, r := range f.parts.Live.Revisions() {
		for _, w := range r.Webhooks {
			all[w.Def.Name] = w.UID
		}
	}
	return all
}

// remove deletes a definition and applies.
func (f *fixture) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.work, name)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.applier.Apply(f.t.Context(), "command"); err != nil {
		f.t.Fatal(err)
	}
}

// raw writes text to a connection of its own and returns all that comes back
// until the server closes it, or, of a kept connection, the first answer.
func (f *fixture) raw(text string) (status int, answer string, closed bool) {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(conn, text) }() // the server may stop reading
	var read bytes.Buffer
	r := bufio.NewReader(io.TeeReader(conn, &read))
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		f.t.Fatalf("no answer: %v", err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, read.String(), resp.Close
}

func post(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), lines(header), body)
}

func chunked(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", path, lines(header), len(body), body)
}

func lines(header []string) string {
	var b strings.Builder
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	return b.String()
}

const auth = "Authorization: Bearer " + hookSecret

func signed(t *testing.T, scheme, body string, at time.Time) []string {
	t.Helper()
	s, _ := signature.Lookup(scheme)
	r := &signature.Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte(body), Now: at}
	if err := s.Sign(hookSecret, r); err != nil {
		t.Fatal(err)
	}
	var all []string
	for name, values := range r.Header {
		all = append(all, name+": "+values[0])
	}
	return all
}

// outcomes are how the log calls the statuses.
var outcomes = map[int]store.Outcome{202: store.Accepted, 400: store.RejectedInvalidJSON, 401: store.RejectedAuth, 413: store.RejectedTooLarge}

// newest is the newest delivery of the log.
func (f *fixture) newest() store.Delivery {
	f.t.Helper()
	all, err := f.store.Deliveries.List(f.t.Context(), store.DeliveryQuery{Limit: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(all) == 0 {
		return store.Delivery{}
	}
	return *all[0]
}

// TestIngressStatuses: every status of SPEC C7.1 on a real connection, with its fixed body, what the log
// says, and whether the connection is worth keeping.
func TestIngressStatuses(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	uid := f.uids()
	path := func(name string) string { return ingress + uid[name] }
	large := `"` + strings.Repeat("x", delivery.MaxBody) + `"`
	exact := `"` + strings.Repeat("x", delivery.MaxBody-2) + `"`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{}`))
	_ = z.Close()
	for _, c := range []struct {
		name, request string
		status        int
		body          string // of all but 202
		closed        bool
		reason        string // in the log; that of 404 is not logged
	}{
		{"object", post(path("hook"), `{"n":1}`, auth), 202, "", false, ""},
		{"scalar", post(path("hook"), `7`, auth), 202, "", false, ""},
		{"chunked", chunked(path("hook"), `[8]`, auth), 202, "", false, ""},
		{"any content type", post(path("hook"), `[9]`, auth, "Content-Type: text/plain"), 202, "", false, ""},
		{"encoding is never decoded", post(path("hook"), `[10]`, auth, "Content-Encoding: gzip"), 202, "", false, ""},
		{"largest", post(path("hook"), exact, auth), 202, "", false, ""},
		{"largest, chunked", chunked(path("hook"), exact, auth, "X-Service-Delivery-Id: 1"), 202, "", false, ""},
		{"url token", post(path("url")+"/"+hookSecret, `{}`), 202, "", false, ""},
		{"signature", post(path("signed"), `{}`, signed(t, "github", `{}`, time.Now())...), 202, "", false, ""},
		{"signature with a time", post(path("stamp"), `{}`, signed(t, "stripe", `{}`, time.Now())...), 202, "", false, ""},
		{"not JSON", post(path("hook"), `{`, auth), 400, "invalid_json", false, "invalid_json"},
		{"empty", post(path("hook"), ``, auth), 400, "invalid_json", false, "invalid_json"},
		{"compressed", post(path("hook"), zipped.String(), auth, "Content-Encoding: gzip"), 400, "invalid_json", false, "invalid_json"},
		{"no credential", post(path("hook"), `{}`), 401, "unauthorized", true, "header_missing"},
		{"wrong credential", post(path("hook"), `{}`, "Authorization: Bearer no"), 401, "unauthorized", true, "credential_mismatch"},
		{"wrong credential, large", post(path("hook"), large, "Authorization: Bearer no"), 401, "unauthorized", true, "credential_mismatch"},
		{"wrong url token", post(path("url")+"/no", `{}`), 401, "unauthorized", true, "credential_mismatch"},
		{"no url token", post(path("url"), `{}`), 401, "unauthorized", true, "credential_mismatch"},
		{"unsigned", post(path("signed"), `{}`), 401, "unauthorized", false, "header_missing"},
		{"stale", post(path("stamp"), `{}`, signed(t, "stripe", `{}`, time.Now().Add(-6*time.Minute))...), 401, "unauthorized", false, "timestamp_too_old"},
		{"unknown", post(ingress+"whk_none", `{}`, auth), 404, "not_found", true, ""},
		{"disabled", post(path("off"), `{}`, auth), 404, "not_found", true, ""},
		{"a token on a bearer webhook", post(path("hook")+"/x", `{}`, auth), 404, "not_found", true, ""},
		{"no such depth", post(path("url")+"/a/b", `{}`), 404, "not_found", true, ""},
		{"trailing slash", post(path("url")+"/"+hookSecret+"/", `{}`), 404, "not_found", true, ""},
		{"large", post(path("hook"), large, auth), 413, "too_large", true, "too_large"},
		{"large, chunked", chunked(path("hook"), large, auth), 413, "too_large", true, "too_large"},
		{"large, unsigned", post(path("signed"), large), 413, "too_large", true, "too_large"},
		{"large, unsigned, chunked", chunked(path("signed"), large), 413, "too_large", true, "too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := *f
			f.t = t
			before := f.newest()
			status, answer, closed := f.raw(c.request)
			switch logged := f.newest(); {
			case c.status == http.StatusNotFound && logged.ID != before.ID:
				t.Errorf("logged %+v", logged)
			case c.status != http.StatusNotFound && (logged.ID == before.ID || logged.Outcome != outcomes[c.status] || logged.Reason != c.reason):
				t.Errorf("logged %s, %q", logged.Outcome, logged.Reason)
			}
			if status != c.status || closed != c.closed {
				t.Errorf("%d, closed %t; want %d, %t\n%s", status, closed, c.status, c.closed, answer)
			}
			_, body, _ := strings.Cut(answer, "\r\n\r\n")
			want := `^\{"error":"` + c.body + `"\}$`
			if c.status == http.StatusAccepted {
				want = `^\{"delivery_id":"dlv_\w{13}"\}$`
			}
			if !regexp.MustCompile(want).MatchString(body) {
				t.Errorf("body %s", body)
			}
			if strings.Contains(answer, "Location:") {
				t.Errorf("a redirect shows the token:\n%s", answer)
			}
		})
	}
}

// TestNotFoundIsAlike (R15): unknown, disabled and deleted are one answer, byte for
// byte (SPEC 5.2).
func TestNotFoundIsAlike(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	uid := f.uids()
	f.remove("webhooks/gone.yaml")
	if _, there := f.uids()["gone"]; there {
		t.Fatal("the webhook still serves")
	}
	date := regexp.MustCompile(`Date: [^\r]*`)
	for _, form := range []func(path string) string{
		func(path string) string { return post(path, `{}`) },
		func(path string) string { return post(path, `{}`, auth) },
		func(path string) string { return post(path, ``, auth) },
		func(path string) string { return chunked(path, `{`, auth) },
		func(path string) string { return post(path+"/token", `{}`) },
		func(path string) string {
			return post(path, strings.Repeat("x", delivery.MaxBody+1), auth, "Content-Type: a/b")
		},
	} {
		var first string
		for _, id := range []string{uid["off"], uid["gone"], "whk_0000000000000000000000", "x"} {
			status, answer, _ := f.raw(form(ingress + id))
			answer = date.ReplaceAllString(answer, "Date: now")
			if first == "" {
				first = answer
			}
			if status != http.StatusNotFound || answer != first {
				t.Errorf("%s:\n%s\nanother:\n%s", id, answer, first)
			}
		}
	}
}

// TestOnlyPost (R15): any other method is answered alike for every UID (SPEC 5.2).
func TestOnlyPost(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	date := regexp.MustCompile(`Date: [^\r]*`)
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
		var first string
		for _, path := range []string{f.uids()["hook"], f.uids()["off"], "whk_none", f.uids()["url"] + "/token"} {
			status, answer, _ := f.raw(method + " " + ingress + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
			answer = date.ReplaceAllString(answer, "Date: now")
			if first == "" {
				first = answer
			}
			if status != http.StatusMethodNotAllowed || answer != first || !strings.Contains(answer, "\r\nAllow: POST\r\n") {
				t.Errorf("%s %s: %d\n%s", method, path, status, answer)
			}
		}
	}
}

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TestRetryAfter: both limits are told in the header. TestRate and TestFailures of server/delivery hold
// that what it says is true.
func TestRetryAfter(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	f := newFixtureWith(t, options{files: hooks, rate: 1, authFailures: 1, now: c.Now})
	const wrong = "Authorization: Bearer no"
	for i, want := range []struct {
		credential string
		status     int
	}{{auth, http.StatusAccepted}, {auth, http.StatusTooManyRequests}, {wrong, http.StatusUnauthorized}, {wrong, http.StatusTooManyRequests}} {
		status, answer, _ := f.raw(post(ingress+f.uids()["hook"], fmt.Sprintf(`[%d]`, i), want.credential))
		if limited := strings.Contains(answer, "\r\nRetry-After: 60\r\n"); status != want.status || limited != (status == http.StatusTooManyRequests) {
			t.Errorf("%d: %d\n%s", i, status, answer)
		}
	}
}

// dial opens a connection and writes text to it.
func (f *fixture) dial(text string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		f.t.Fatal(err)
	}
	return conn
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, otherwise string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// TestNotJSON (R22): what a sender sends instead of JSON is called by its name, with
// what to do about it.
func TestNotJSON(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks, rate: 1000})
	read := f.key("k", "read")
	pack := func(w func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		z := w(&b)
		_, _ = z.Write([]byte(`{"n":1}`))
		_ = z.Close()
		return b.String()
	}
	wide := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, r := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, r)
		}
		return string(b)
	}
	gzipped := pack(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	zlibbed := pack(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	const form, compressed, sixteen = "the body is a form: set the sender's content type to application/json (", "the body is compressed: switch that off", "the body is UTF-16: make the sender write UTF-8 ("
	for _, c := range []struct{ name, body, header, want string }{
		{"form", `payload=%7B%22n%22%3A1%7D`, "Content-Type: application/x-www-form-urlencoded", form},
		{"form of several fields", `token=x&text=a+b`, "Content-Type: application/x-www-form-urlencoded", form},
		{"form that says nothing", `a%5Bb%5D=1`, "", form},
		{"form in parts", "--b\r\nContent-Disposition: form-data; name=payload\r\n\r\n{}\r\n--b--\r\n", "Content-Type: multipart/form-data; boundary=b", "the body is a form in parts: set the sender's content type"},
		{"gzip", gzipped, "Content-Encoding: gzip", compressed},
		{"gzip that says nothing", gzipped, "", compressed},
		{"zlib", zlibbed, "Content-Encoding: deflate", compressed},
		{"Brotli", "\x0b\x03\x80{}\x03", "Content-Encoding: br", compressed},
		{"UTF-16", wide(binary.LittleEndian, "\ufeff{}"), "", sixteen},
		{"UTF-16, big end", wide(binary.BigEndian, "\ufeff{}"), "", sixteen},
		{"UTF-16 without a mark", wide(binary.LittleEndian, "{}"), "", sixteen},
		{"UTF-16, big end, without a mark", wide(binary.BigEndian, `["a"]`), "", sixteen},
		{"UTF-32", "\xff\xfe\x00\x00{\x00\x00\x00}\x00\x00\x00", "", "the body is UTF-32"},
		{"byte order mark", "\xef\xbb\xbf{}", "", "the body begins with a byte order mark: make the sender write UTF-8 without it ("},
		{"XML", "<?xml version='1.0'?><a/>", "Content-Type: text/xml", "the body is XML or HTML: set the sender's format to JSON ("},
		{"HTML", "\n<!DOCTYPE html>", "", "the body is XML or HTML"},
		{"empty", "", "", "the body is empty"},
		// What is merely wrong JSON is not taken for anything else.
		{"cut", `{"a":`, "Content-Type: application/x-www-form-urlencoded", "offset 5: "},
		{"cut, and called compressed", `{"a":`, "Content-Encoding: gzip", "offset 5: "},
		{"shell", `{a=b}`, "", "offset 1: "},
		{"words", `hello world`, "", "offset 0: "},
		{"equation", `a = b`, "", "offset 0: "},
	} {
		header := []string{auth, "User-Agent: test", "X-GitHub-Event: push", "X-Secret: c4nary"}
		if c.header != "" {
			header = append(header, c.header)
		}
		if status, answer, _ := f.raw(post(ingress+f.uids()["hook"], c.body, header...)); status != http.StatusBadRequest {
			t.Errorf("%s: %d\n%s", c.name, status, answer)
			continue
		}
		id := field(t, f.get("/api/v1/deliveries", read), "deliveries", "0", "id")
		got := f.get("/api/v1/deliveries/"+id, read)
		var d api.DeliveryDetail
		if err := json.Unmarshal(got.body, &d); err != nil {
			t.Fatal(err)
		}
		if detail := d.Belt[2].Detail; !strings.HasPrefix(detail, "invalid_json, "+c.want) || !strings.Contains(detail, "offset ") {
			t.Errorf("%s: the belt says %q", c.name, detail)
		}
		name, value, _ := strings.Cut(c.header, ": ")
		if c.header != "" && field(t, got, "headers", name) != value || field(t, got, "headers", "X-Github-Event") != "push" {
			t.Errorf("%s: headers %s", c.name, got.body)
		}
		if bytes.Contains(got.body, []byte("c4nary")) {
			t.Errorf("%s: a header that is on no list is kept", c.name)
		}
	}
}

// TestRejectedHeaders: each rejected entry keeps the headers that explain it, and
// no credential.
func TestRejectedHeaders(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	f.bodyTime = 50 * time.Millisecond
	read := f.key("k", "read")
	explain := []string{"Content-Type: text/x", "Content-Encoding: br", "User-Agent: test/1", "X-GitHub-Event: push", "X-Hub-Signature-256: c4nary", "Cookie: c4nary", "X-Unknown: c4nary"}
	wrong, right := append([]string{"Authorization: Bearer c4nary"}, explain...), append([]string{auth}, explain...)
	for outcome, text := range map[string]string{
		"rejected_auth":         post(ingress+f.uids()["hook"], `{}`, wrong...),
		"rejected_invalid_json": strings.TrimSuffix(post(ingress+f.uids()["hook"], `{}`, right...), "}"),
		"rejected_too_large":    post(ingress+f.uids()["signed"], strings.Repeat(" ", delivery.MaxBody+1), wrong...),
	} {
		f.raw(text)
		id := field(t, f.get("/api/v1/deliveries?outcome="+outcome, read), "deliveries", "0", "id")
		got := f.get("/api/v1/deliveries/"+id, read)
		for _, line := range explain[:4] {
			name, value, _ := strings.Cut(line, ": ")
			if field(t, got, "headers", http.CanonicalHeaderKey(name)) != value {
				t.Errorf("%s: no %s: %s", outcome, line, got.body)
			}
		}
		if bytes.Contains(got.body, []byte("c4nary")) || bytes.Contains(got.body, []byte(hookSecret)) {
			t.Errorf("%s: a credential is kept: %s", outcome, got.body)
		}
	}
}

// TestExpectContinue: nobody is invited to send a body that is not wanted.
func TestExpectContinue(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	for path, want := range map[string]int{ingress + "whk_none": 404, ingress + f.uids()["hook"]: 401} {
		text := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
		if status, answer, _ := f.raw(text); status != want {
			t.Errorf("%s: %d\n%s", path, status, answer)
		}
	}
}

// TestTokenNeverShows (R17): the secret segment of a url_token URL is in no log, page,
// metric or answer (SPEC 5.11), however the request goes wrong.
func TestTokenNeverShows(t *testing.T) {
	var logs lockedBuffer
	f := newFixtureWith(t, options{files: hooks, logger: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	manage := f.key("admin", "manage")
	path := ingress + f.uids()["url"] + "/"
	const wrong = "not-the-token-but-still-a-secret"
	id := field(t, f.do("POST", path+hookSecret, "", `{"n":1}`), "delivery_id")
	for _, request := range []string{
		post(path+wrong, `{}`), post(path+hookSecret, `{`), post(path+hookSecret+"/", `{}`), post(path+hookSecret+"/more", `{}`),
		post(ingress+"whk_none/"+wrong, `{}`), post(path+hookSecret+"?x=%zz", `{}`), post("/"+path+hookSecret, `{}`),
		"GET " + path + hookSecret + " HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		_, answer, _ := f.raw(request)
		logs.WriteString(answer)
	}
	link := field(t, f.do("POST", "/api/v1/auth/links", manage, ""), "url")
	cookie := f.signIn(link)
	for _, page := range []string{"/", "/deliveries", "/deliveries/" + id, "/runs", "/metrics"} {
		req, _ := http.NewRequest(http.MethodGet, f.url+page, nil)
		req.Header.Set("Cookie", cookie)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&logs, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", page, resp.StatusCode)
		}
	}
	for _, list := range []string{"webhooks", "webhooks/url", "deliveries", "deliveries/" + id, "audit", "secrets", "status", "applies"} {
		_, _ = logs.Write(f.get("/api/v1/"+list, manage).body)
	}
	for _, secret := range []string{hookSecret, wrong} {
		if at := strings.Index(logs.String(), secret); at >= 0 {
			t.Errorf("…%s…", logs.String()[max(0, at-200):at+len(secret)])
		}
	}
	if !strings.Contains(logs.String(), "/{token}") {
		t.Error("the URL of a url_token webhook has no {token}")
	}
}

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) WriteString(s string) { _, _ = l.Write([]byte(s)) }

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
