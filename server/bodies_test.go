package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/api"
	"triphammer/server/delivery"
)

// TestStrangersKeepNobodyOut: bodies of unknown senders that do not come hold up
// to all the memory there is for those, and signed deliveries still get in, as do
// senders that have shown their credential.
func TestStrangersKeepNobodyOut(t *testing.T) {
	var logs lockedBuffer
	f := newFixtureWith(t, options{files: hooks, rate: 1000, logger: slog.New(slog.NewTextHandler(&logs, nil))})
	f.strangers = newBodies(8*step, 8*step, f.bodyDropped("strangers"))
	silent := make([]net.Conn, 20)
	for i := range silent {
		silent[i] = f.dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", ingress+f.uids()["signed"], delivery.MaxBody))
		if i == 0 { // so that it is the first to go
			waitUntil(t, "the first is not read", func() bool { return f.strangers.spent() == step })
		}
	}
	waitUntil(t, "the memory is not spent", func() bool { return f.strangers.spent() == 8*step })
	for n := range 20 {
		body := fmt.Sprintf(`{"n":%d,"x":%q}`, n, strings.Repeat("x", n*step/8))
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
	for _, want := range []string{`triphammer_bodies_dropped_total{of="strangers"} [1-9]`, `requests_total{factory="default",reason="no_memory",status="503",webhook="signed"} [1-9]`} {
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
	waitUntil(t, "memory was not given back", func() bool { return f.strangers.spent() == 0 && f.known.spent() == 0 })
}

// spent is what a budget has given out.
func (b *bodies) spent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// TestBodies: what is charged, and who is dropped for whom.
func TestBodies(t *testing.T) {
	ada, bob := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	take := func(t *testing.T, b *bodies, u *upload, n int64) {
		t.Helper()
		if err := b.take(t.Context(), u, n, time.Minute); err != nil {
			t.Fatalf("take %d: %v", n, err)
		}
	}
	// budget is full of ada's two uploads and bob's, the slowest first; ada has her share.
	budget := func(t *testing.T) (b *bodies, uploads [3]*upload, aborted *[]int) {
		aborted = &[]int{}
		b = newBodies(4, 3, func(netip.Prefix) {})
		for i, network := range []netip.Prefix{bob, ada, ada} {
			uploads[i] = &upload{network: network, abort: func() { *aborted = append(*aborted, i) }}
			take(t, b, uploads[i], 1)
		}
		take(t, b, uploads[1], 1) // which makes it the fastest
		return b, uploads, aborted
	}
	for name, c := range map[string]struct {
		network netip.Prefix
		n       int64
		whole   []int // uploads that have come whole meanwhile
		dropped []int
	}{
		"the slowest of all":              {netip.Prefix{}, 1, nil, []int{0}},
		"as many as are needed":           {netip.Prefix{}, 2, nil, []int{0, 2}},
		"the slowest of one that had its": {ada, 1, nil, []int{2}},
		"of another network":              {bob, 2, nil, []int{0, 2}},
		"not what has come whole":         {netip.Prefix{}, 1, []int{0}, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			b, uploads, aborted := budget(t)
			for _, i := range c.whole {
				if !b.whole(uploads[i]) {
					t.Fatal("it was dropped already")
				}
			}
			u := &upload{network: c.network, abort: func() { t.Error("the newcomer was dropped") }}
			take(t, b, u, c.n)
			if !slices.Equal(*aborted, c.dropped) {
				t.Errorf("dropped %v, want %v", *aborted, c.dropped)
			}
			for _, i := range c.dropped {
				if err := b.take(t.Context(), uploads[i], 1, time.Minute); !errors.Is(err, delivery.ErrNoMemory) || b.whole(uploads[i]) {
					t.Errorf("upload %d goes on: %v", i, err)
				}
			}
			for _, u := range append(uploads[:], u) {
				b.release(u)
			}
			if b.held != 0 || len(b.shares) != 0 || b.reading.Len() != 0 {
				t.Errorf("not given back: %d bytes, %v, %d reading", b.held, b.shares, b.reading.Len())
			}
		})
	}
	t.Run("waits for what is whole", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, uploads, _ := budget(t)
			for _, u := range uploads {
				b.whole(u)
			}
			late := &upload{network: bob}
			began := time.Now()
			if err := b.take(t.Context(), late, 1, time.Second); !errors.Is(err, delivery.ErrNoMemory) || time.Since(began) != time.Second {
				t.Errorf("without room: %v after %v", err, time.Since(began))
			}
			b.release(late)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := b.take(ctx, late, 1, time.Second); !errors.Is(err, context.Canceled) {
				t.Errorf("a sender that has gone: %v", err)
			}
			b.release(late)
			time.AfterFunc(time.Second/2, func() { b.release(uploads[2]) })
			take(t, b, late, 1)
		})
	})
}

// TestBodiesGrow: the bytes that are charged follow those that came, for any size
// and both ways to send them; and nothing above the limit is buffered (SPEC 5.3).
func TestBodiesGrow(t *testing.T) {
	f := newFixtureWith(t, options{files: hooks, rate: 1000})
	for _, size := range []int{2, step - 1, step, step + 1, 3*step - 1, 8 * step, delivery.MaxBody - 1, delivery.MaxBody} {
		body := `"` + strings.Repeat("x", size-2) + `"`
		for _, form := range []func(string, string, ...string) string{post, chunked} {
			id := "X-Service-Delivery-Id: " + strconv.Itoa(size)
			if status, answer, _ := f.raw(form(ingress+f.uids()["hook"], body, auth, id)); status != http.StatusAccepted {
				t.Errorf("%d bytes: %d\n%s", size, status, answer)
			}
		}
	}
	conn := f.dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", ingress+f.uids()["signed"], delivery.MaxBody, strings.Repeat("x", step+1)))
	waitUntil(t, "a body that is announced with 256 KiB does not hold the 32 KiB that its first 16 take", func() bool { return f.strangers.spent() == 2*step })
	_ = conn.Close()
	waitUntil(t, "memory was not given back", func() bool { return f.strangers.spent() == 0 })
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
