//go:build full

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// fewDescriptors makes a test start the program with so many files that it may
// have open, which is what many systems give a service.
func fewDescriptors(t *testing.T, n int) {
	t.Helper()
	unwatched(t)
	program := binary
	binary = filepath.Join(t.TempDir(), "few")
	if err := os.WriteFile(binary, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", n, program), 0o755); err != nil {
		t.Fatal(err)
	}
}

// strangers hold connections: each sends its text, waits until the server closes
// it, and comes again, until the test ends it.
type strangers struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	holding atomic.Int64 // connections that are open
	came    atomic.Int64
}

// attack starts n strangers at the address; text is what the ith sends.
func attack(t *testing.T, address string, n int, text func(i int) string) *strangers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &strangers{stop: cancel}
	for i := range n {
		s.done.Go(func() {
			for ctx.Err() == nil {
				s.hold(ctx, address, text(i))
				select {
				case <-ctx.Done():
				case <-time.After(time.Second): // one machine is to be both sides
				}
			}
		})
	}
	t.Cleanup(s.end)
	return s
}

func (s *strangers) hold(ctx context.Context, address, text string) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return // the queue of the system is full, which is what an attack is for
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	s.came.Add(1)
	s.holding.Add(1)
	defer s.holding.Add(-1)
	if _, err := io.WriteString(conn, text); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// wait waits until they hold more than n connections.
func (s *strangers) wait(t *testing.T, n int64) {
	t.Helper()
	if err := client.WaitFor(t.Context(), 20*time.Second, "the strangers do not come", func() (bool, error) { return s.holding.Load() > n, nil }); err != nil {
		t.Fatal(err)
	}
}

func (s *strangers) end() { s.stop(); s.done.Wait() }

// sendSigned sends deliveries of growing sizes with a signature, each on a new
// connection, and returns the longest time that one took.
func sendSigned(t *testing.T, address string, first, n int) (longest time.Duration) {
	t.Helper()
	scheme, _ := signature.Lookup("github")
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range n {
		body := fmt.Sprintf(`{"n":%d,"x":%q}`, first+i, strings.Repeat("x", i%10*22_000))
		req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := scheme.Sign(testSecret, &signature.Request{Method: http.MethodPost, URL: address, Header: req.Header, Body: []byte(body), Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("genuine delivery %d of %d bytes: %v", i, len(body), err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("genuine delivery %d of %d bytes: %d %s", i, len(body), resp.StatusCode, answer)
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// strangeWorld is a server with 1,024 descriptors, and the address of a webhook
// whose sender signs.
func strangeWorld(t *testing.T) (w *world, signed string) {
	t.Helper()
	w = newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/signed.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n", "automations/a.md": automationFile("signed", "{n: [0]}"),
	})
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--sync-secret", "S")
	return w, w.url("signed")
}

// told tells of a metric whether it counts anything, and of a line whether it is
// in the log once at least and not often.
func (w *world) told(metric, line string) {
	w.t.Helper()
	var found string
	err := client.WaitFor(w.t.Context(), 20*time.Second, "the metrics", func() (bool, error) {
		resp, err := http.Get("http://" + w.addr + "/metrics")
		if err != nil {
			return false, nil
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		found = regexp.MustCompile(`(?m)^` + metric + ` [0-9.e+]+$`).FindString(string(text))
		return err == nil, nil
	})
	if n := strings.Count(w.logs.String(), line); err != nil || found == "" || strings.HasSuffix(found, " 0") || n < 1 || n > 3 {
		w.t.Errorf("%s: %q, %v; %q is in the log %d times", metric, found, err, line, n)
	}
}

// TestStrangers (R13, R19) attacks the real program, at full size.
func TestStrangers(t *testing.T) {
	fewDescriptors(t, 1024)
	t.Run("bodies", testBodiesOfStrangers)
	t.Run("connections", testConnectionsOfStrangers)
}

// testBodiesOfStrangers: four push notifications of 8 MiB that never come, 136
// slow bodies of 256 KiB, and hundreds of silent ones, again and again, keep out
// no signed delivery and no genuine push (R19).
func testBodiesOfStrangers(t *testing.T) {
	w, signed := strangeWorld(t)
	path := signed[strings.Index(signed, "/webhooks/"):]
	head := func(path string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: x\r\nContent-Length: %d\r\n\r\n", path, length)
	}
	const large, slow, silent = 8, 136, 500
	s := attack(t, w.addr, large+slow+silent, func(i int) string {
		switch {
		case i < large/2:
			return head("/api/v1/factories/nosuchfactory/sync", 8<<20)
		case i < large:
			return head("/api/v1/factories/default/sync", 8<<20)
		case i < large+slow: // all but the end comes
			return head(path, 262144) + strings.Repeat("x", 262143)
		}
		return head(path, 262144)
	})
	s.wait(t, large+slow)
	longest := sendSigned(t, signed, 0, 100)
	if longest > 10*time.Second {
		t.Errorf("a signed delivery took %v", longest)
	}
	push, err := http.NewRequest(http.MethodPost, "http://"+w.addr+"/api/v1/factories/default/sync", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(testSecret, &signature.Request{Header: push.Header, Body: []byte(`{}`), Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(push); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Errorf("a genuine push: %+v, %v", resp, err)
	}
	rss := w.ofProcess("VmHWM")
	t.Logf("%d strange connections; signed deliveries took up to %v; %d MB", s.came.Load(), longest, rss>>10)
	if rss > 400<<10 {
		t.Errorf("the server took %d MB", rss>>10)
	}
	s.end()
	w.told(`triphammer_bodies_dropped_total{of="strangers"}`, "the memory for bodies is full")
	var all []api.Delivery
	w.list(&all, "deliveries", "list", "--limit", "0")
	if n := len(all); n < 100 || n > 100+40 { // ten failures a minute of the one address
		t.Errorf("%d entries are in the log of deliveries", n)
	}
}

// testConnectionsOfStrangers: 1,600 connections that keep a server with 1,024
// descriptors waiting, in a dozen ways, keep out no signed delivery, no run
// and no command; and none of them is open for long.
func testConnectionsOfStrangers(t *testing.T) {
	w, signed := strangeWorld(t)
	idle := w.ofProcess("fd")
	path := signed[strings.Index(signed, "/webhooks/"):]
	body := " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
	ways := []string{
		"GET /healthz" + body, "GET /" + body, "GET /metrics" + body, "GET /api/v1/status" + body, "GET /nothing" + body, "GET " + path + body,
		"POST " + strings.TrimSuffix(path, path[len(path)-4:]) + body, "POST " + path + body, "POST /api/v1/factory-files/validate" + body,
		"", "GET /healthz HTTP/1.1\r\nHost:", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n",
	}
	s := attack(t, w.addr, 1600, func(i int) string { return ways[i%len(ways)] })
	s.wait(t, 700)
	longest := sendSigned(t, signed, 0, 100)
	if longest > 10*time.Second {
		t.Errorf("a signed delivery took %v", longest)
	}
	most := w.ofProcess("fd")
	if err := client.WaitFor(t.Context(), 20*time.Second, "a run beside the attack", func() (bool, error) {
		var runs []struct{ State string }
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].State == "SUCCEEDED", nil
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d strange connections; signed deliveries took up to %v; %d of 1,024 descriptors, %d MB", s.came.Load(), longest, most, w.ofProcess("VmHWM")>>10)
	if most > 900 {
		t.Errorf("%d descriptors are in use", most)
	}
	// Silence alone ends them, too: nobody closes these.
	held := make([]net.Conn, 200)
	s.end()
	for i := range held {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, ways[i%7]); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
	if err := client.WaitFor(t.Context(), 10*time.Second, "descriptors are not given back", func() (bool, error) { return w.ofProcess("fd") < idle+20, nil }); err != nil {
		t.Error(err)
	}
	w.told(`triphammer_connections_closed_total{cause="full"}`, "the limit of connections is reached")
}
