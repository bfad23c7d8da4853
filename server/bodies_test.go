package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/bodies"
	"triphammer/server/delivery"
)

// TestStrangersKeepNobodyOut (R19): bodies of unknown senders that do not come hold up
// to all the memory there is for those, and signed deliveries still get in, as do
// senders that have shown their credential.
func TestStrangersKeepNobodyOut(t *testing.T) {
	var logs lockedBuffer
	f := newFixtureWith(t, options{files: hooks, rate: 1000, logger: slog.New(slog.NewTextHandler(&logs, nil))})
	f.strangers = bodies.NewBudget(8*bodies.Step, 8*bodies.Step, f.bodyDropped("strangers"))
	silent := make([]net.Conn, 20)
	for i := range silent {
		silent[i] = f.dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", ingress+f.uids()["signed"], delivery.MaxBody))
		if i == 0 { // so that it is the first to go
			waitUntil(t, "the first is not read", func() bool { return f.strangers.Spent() == bodies.Step })
		}
	}
	waitUntil(t, "the memory is not spent", func() bool { return f.strangers.Spent() == 8*bodies.Step })
	for n := range 20 {
		body := fmt.Sprintf(`{"n":%d,"x":%q}`, n, strings.Repeat("x", n*bodies.Step/8))
		if status, answer, _ := f.raw(post(ingress+f.uids()["signed"], body, signed(t, "github", body, time.Now())...)); status != http.StatusAccepted {
			t.Fatalf("a signed delivery of %d bytes beside silent ones: %d\n%s", len(body), status, answer)
		}
	}
	if status, _, _ := f.raw(post(ingress+f.uids()["hook"], `{}`, auth)); status != http.StatusAccepted {
		t.Errorf("a known sender: %d", status)
	}
	// The silent ones that had to go are told so, in the order in which they came.
	resp, err := http.ReadResponse(bufio.NewReader(silent[0]), nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "5" || !resp.Close {
		t.Errorf("the first silent one: %+v, %v", resp, err)
	}
	metrics := string(f.get("/metrics", "").body)
	for _, want := range []string{`triphammer_bodies_dropped_total{of="strangers"} [1-9]`, `requests_total{factory="default",outcome="",reason="no_memory",status="503",webhook="signed"} [1-9]`} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("no %s among the metrics:\n%s", want, metrics)
		}
	}
	if n := strings.Count(logs.String(), "the one that came slowest was dropped"); n != 1 {
		t.Errorf("the log tells of it %d times:\n%s", n, logs.String())
	}
	for _, c := range silent {
		_ = c.Close()
	}
	waitUntil(t, "memory was not given back", func() bool { return f.strangers.Spent() == 0 && f.known.Spent() == 0 })
}

// TestBodiesGrow: the bytes that are charged follow those that came, for any size
// and both ways to send them; and nothing above the limit is buffered (SPEC 5.3).
func TestBodiesGrow(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks, rate: 1000})
	for _, size := range []int{2, bodies.Step - 1, bodies.Step, bodies.Step + 1, 3*bodies.Step - 1, 8 * bodies.Step, delivery.MaxBody - 1, delivery.MaxBody} {
		body := `"` + strings.Repeat("x", size-2) + `"`
		for _, form := range []func(string, string, ...string) string{post, chunked} {
			id := "X-Service-Delivery-Id: " + strconv.Itoa(size)
			if status, answer, _ := f.raw(form(ingress+f.uids()["hook"], body, auth, id)); status != http.StatusAccepted {
				t.Errorf("%d bytes: %d\n%s", size, status, answer)
			}
		}
	}
	conn := f.dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", ingress+f.uids()["signed"], delivery.MaxBody, strings.Repeat("x", bodies.Step+1)))
	waitUntil(t, "a body that is announced with 256 KiB does not hold the 32 KiB that its first 16 take", func() bool { return f.strangers.Spent() == 2*bodies.Step })
	_ = conn.Close()
	waitUntil(t, "memory was not given back", func() bool { return f.strangers.Spent() == 0 })
}

// TestSlowSender: whoever does not send the announced body is not waited for, and
// the log says so; of strangers as often as they may fail (SPEC 5.8).
func TestSlowSender(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks, authFailures: 3})
	read := f.key("k", "read")
	entries := 0
	for _, c := range []struct {
		name, text     string
		cut            bool // the sender stops sending; else it goes on, silently
		webhook, stops string
		status         int
	}{
		{"slow", strings.TrimSuffix(post(ingress+f.uids()["hook"], `{"n":1}`, auth), `1}`), false, "hook", "body_too_slow, 5 of 7 bytes came in 50ms, from 127.0.0.1", 408},
		{"slow, chunked", strings.TrimSuffix(chunked(ingress+f.uids()["hook"], `{}`, auth), "0\r\n\r\n"), false, "hook", "body_too_slow, 2 bytes came in 50ms, from 127.0.0.1", 408},
		{"slow stranger", strings.TrimSuffix(post(ingress+f.uids()["signed"], `{"n":1}`), `1}`), false, "signed", "body_too_slow, 5 of 7 bytes came in 50ms, from 127.0.0.1", 408},
		{"cut off", strings.TrimSuffix(post(ingress+f.uids()["hook"], `{"n":1}`, auth), `1}`), true, "hook", "body_incomplete, 5 of 7 bytes came, then the sender closed, from 127.0.0.1", 408},
		{"nothing came", strings.TrimSuffix(post(ingress+f.uids()["hook"], `{"n":1}`, auth), `{"n":1}`), true, "hook", "body_incomplete, 0 of 7 bytes came, then the sender closed, from 127.0.0.1", 408},
		{"cut off, chunked", strings.TrimSuffix(chunked(ingress+f.uids()["signed"], `{}`), "0\r\n\r\n"), true, "signed", "body_incomplete, 2 bytes came, then the sender closed, from 127.0.0.1", 408},
		{"wrongly chunked", strings.Replace(chunked(ingress+f.uids()["signed"], `{}`), "\r\n0\r\n", "\r\nno\r\n", 1), false, "signed", "body_malformed, 2 bytes came, then no chunk, from 127.0.0.1", 400},
		{"more than a stranger may fail", strings.TrimSuffix(post(ingress+f.uids()["signed"], `{"n":1}`), `1}`), true, "", "", 429},
	} {
		if f.bodyTime = 50 * time.Millisecond; c.cut {
			f.bodyTime = time.Minute
		}
		conn := f.dial(c.text)
		if c.cut {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != c.status || !resp.Close {
			t.Errorf("%s: %+v, %v", c.name, resp, err)
		}
		var list struct{ Deliveries []api.Delivery }
		if err := json.Unmarshal(f.get("/api/v1/deliveries", read).body, &list); err != nil {
			t.Fatal(err)
		}
		if c.webhook != "" {
			entries++
		}
		if len(list.Deliveries) != entries {
			t.Fatalf("%s: %d entries in the log, want %d", c.name, len(list.Deliveries), entries)
		}
		if c.webhook == "" {
			continue
		}
		d := list.Deliveries[0]
		belt := f.get("/api/v1/deliveries/"+d.ID, read)
		reason, _, _ := strings.Cut(c.stops, ",")
		if d.Webhook != c.webhook || d.Outcome != "rejected_invalid_json" || d.Reason != reason ||
			field(t, belt, "belt", "0", "outcome") != "stopped" || field(t, belt, "belt", "0", "detail") != c.stops {
			t.Errorf("%s: %s", c.name, belt.body)
		}
	}
	// What did not come whole spends none of the rate, also after a restart.
	for _, name := range []string{"hook", "signed"} {
		if times, err := f.store.Deliveries.RecentTimes(t.Context(), f.uids()[name], time.Now().Add(-time.Minute)); err != nil || len(times) != 0 {
			t.Errorf("%s: the rate counts %d, %v", name, len(times), err)
		}
	}
}
