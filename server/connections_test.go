package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/server/listen"
	"triphammer/server/listen/listentest"
	"triphammer/server/store"
)

// unread are requests whose body nobody sends, and the answer that does not wait
// for it.
func (f *fixture) unread() map[string]int {
	return map[string]int{
		"GET /healthz": 200, "GET /": 401, "GET /metrics": 401, "GET /nothing": 404, "POST /api/v1/agent/runs": 401, "DELETE /healthz": 405,
		"GET " + ingress + f.uids()["hook"]: 405, "POST " + ingress + f.uids()["hook"]: 401, "POST " + ingress + "whk_none": 404,
		"POST /api/v1/factories/default/sync": 401, "GET /openapi.yaml": 200, "POST /auth/logout": 200,
	}
}

// unsent is a request of a body that is announced and not sent.
func unsent(route string, header ...string) string {
	return route + " HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n" + lines(header) + "\r\n"
}

// TestUnreadBodies: no route waits for a body that it does not want, however it
// is announced; the connection is closed.
func TestUnreadBodies(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	type asked struct {
		text string
		conn net.Conn
		want int
	}
	var all []asked
	began := time.Now()
	for route, want := range f.unread() {
		for _, text := range []string{
			unsent(route), route + " HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n1", route + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n1",
		} {
			all = append(all, asked{text, f.dial(text), want})
		}
	}
	for _, a := range all {
		resp, err := http.ReadResponse(bufio.NewReader(a.conn), nil)
		if err != nil || resp.StatusCode != a.want || !resp.Close {
			t.Errorf("%q: %+v, %v", a.text, resp, err)
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("%q: %v", a.text, err)
		}
		if _, err := a.conn.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: still open, or %v", a.text, err)
		}
	}
	// Within the time of a body that is read, they would be closed for another reason.
	if took := time.Since(began); took > bodyTime*2/3 {
		t.Errorf("they are open for %v", took)
	}
}

// TestLateReader: a sender that reads the answer only after it has sent all, as proxies do,
// gets the answer, although the server wants none of the body. Proxies send "Connection: close".
func TestLateReader(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks})
	dir := t.TempDir()
	listentest.WritePair(t, dir, "x", time.Now().Add(time.Hour))
	for _, l := range []listen.Listeners{{}, {CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}} {
		f.serveWith(l)
		for route, want := range f.unread() {
			for _, header := range []string{"X-A: b", "Connection: close"} {
				path, isPost := strings.CutPrefix(route, "POST ")
				if !isPost {
					continue
				}
				conn := f.dial("")
				if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil { // what is written waits for the server, not in the kernel
					t.Fatal(err)
				}
				if l.CertFile != "" {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				what := fmt.Sprintf("%s with %s, TLS %t", route, header, l.CertFile != "")
				if _, err := io.WriteString(conn, post(path, strings.Repeat("x", 4<<20), header)); err != nil {
					t.Errorf("%s: %v", what, err)
				} else if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want {
					t.Errorf("%s: %+v, %v", what, resp, err)
				}
			}
		}
	}
}

// TestEveryRouteAnswers: without a key, no route but that which checks anybody's
// definitions reads a body.
func TestEveryRouteAnswers(t *testing.T) {
	f := newFixture(t)
	for _, r := range f.engine.Routes() {
		if strings.HasSuffix(r.Path, "/validate") {
			continue // it reads for requestDeadline at most
		}
		conn := f.dial(unsent(r.Method + " " + regexp.MustCompile(`:\w+`).ReplaceAllString(r.Path, "x")))
		if resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.Method}); err != nil || !resp.Close {
			t.Errorf("%s %s: %+v, %v", r.Method, r.Path, resp, err)
		}
		_ = conn.Close()
	}
}

// serveWith serves on a port of its own, to which f.url then leads.
func (f *fixture) serveWith(l listen.Listeners) {
	f.t.Helper()
	l.TCP = listenOn(f.t, "tcp", "127.0.0.1:0")
	f.url = "http://" + l.TCP.Addr().String()
	f.serve(l)
}

// TestFullOfSilence (R18): where all connections that may be open keep the server
// waiting, in whatever way, the next ones are served all the same. Streams and
// requests at work are not touched.
func TestFullOfSilence(t *testing.T) {
	const most = 16
	var logs lockedBuffer
	f := newFixtureWith(t, options{files: hooks, rate: 1000, logger: slog.New(slog.NewTextHandler(&logs, nil))})
	key := f.key("k", "runs", "read")
	lease := f.claimed(key)
	f.serveWith(listen.Listeners{MaxConnections: most})
	stream := f.follow(key, lease.RunID.String(), "")
	for name, text := range map[string]string{
		"nothing":            "",
		"half a header":      "POST /healthz HTTP/1.1\r\nHost:",
		"an idle connection": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"no body":            unsent("POST "+ingress+f.uids()["signed"], "X-Hub-Signature-256: x"),
		"no notification":    unsent("POST /api/v1/factories/default/sync", "X-Hub-Signature-256: x"),
		"no definitions":     unsent("POST /api/v1/factory-files/validate"),
	} {
		for range 2 * most {
			f.dial(text)
		}
		for n := range most {
			body := fmt.Sprintf(`{"n":%d,"x":%q}`, n, name)
			if status, answer, _ := f.raw(post(ingress+f.uids()["signed"], body, signed(t, "github", body, time.Now())...)); status != http.StatusAccepted {
				t.Fatalf("%s: delivery %d: %d\n%s", name, n, status, answer)
			}
		}
	}
	if err := f.store.Leases.Finish(t.Context(), lease, store.Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := stream.rest(t); len(got) == 0 || !strings.Contains(got[len(got)-1], string(store.Succeeded)) {
		t.Errorf("the stream ended early: %v", got)
	}
	metrics := f.get("/metrics", "").body
	if !regexp.MustCompile(`triphammer_connections_closed_total\{cause="full"\} [1-9]`).Match(metrics) {
		t.Errorf("no closed connection among the metrics:\n%s", metrics)
	}
	if n := strings.Count(logs.String(), "see=--max-connections"); n != 1 {
		t.Errorf("the log tells of it %d times:\n%s", n, logs.String())
	}
}

// TestSeldom: one line a minute, which counts.
func TestSeldom(t *testing.T) {
	var s seldom
	var told []int
	for range 5 {
		s.say("a", func(n int) { told = append(told, n) })
	}
	s.causes["a"].last = time.Now().Add(-time.Minute)
	s.say("a", func(n int) { told = append(told, n) })
	s.say("b", func(n int) { told = append(told, n) })
	if fmt.Sprint(told) != "[1 5 1]" {
		t.Errorf("told %v", told)
	}
}
