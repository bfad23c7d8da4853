package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/store"
)

const pausePath = "/api/v1/factories/default/webhooks/hook/pause"

// TestPausedWebhook: it answers as one that never was, and everything says why (SPEC 18.2).
func TestPausedWebhook(t *testing.T) {
	f := newFixtureWith(t, options{rate: 1000, files: fstest.MapFS{"webhooks/off.yaml": {Data: []byte("secretName: S\nenabled: false\n")}}})
	operator := f.key("op", "operate")
	hook := ingress + f.uids()["hook"]
	id := field(t, f.do("POST", hook, hookSecret, `{"n":1}`), "delivery_id")
	got := f.do("POST", pausePath, operator, `{"reason":"a flood \u001b[31m","seconds":3600}`)
	if got.status != 200 || field(t, got, "by") != "key op (ada)" || field(t, got, "until") == "<nil>" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	plain := func(path string) string {
		_, answer, _ := f.raw(post(path, `{"n":1}`, auth))
		return regexp.MustCompile(`Date: [^\r]*`).ReplaceAllString(answer, "")
	}
	want := plain(ingress + "whk_0000000000000000000000")
	for _, path := range []string{hook, ingress + f.uids()["off"]} {
		if got := plain(path); got != want || !strings.Contains(got, " 404 ") {
			t.Errorf("%s answers\n%s\nnot\n%s", path, got, want)
		}
	}
	if got := field(t, f.get("/api/v1/webhooks/hook", operator), "paused", "reason"); got != "a flood \x1b[31m" {
		t.Errorf("webhooks show: %q", got)
	}
	status := f.get("/api/v1/status", operator)
	if field(t, status, "factories", "0", "paused", "0", "kind") != "webhook" || field(t, status, "factories", "0", "paused", "0", "name") != "hook" {
		t.Errorf("status: %s", status.body)
	}
	if got := f.get("/api/v1/automations", operator); field(t, got, "automations", "0", "dormant") != "paused: webhook hook" {
		t.Errorf("automations: %s", got.body)
	}
	test := f.do("POST", "/api/v1/filters/test", operator, `{"factory":"default","automation":"a","delivery_id":"`+id+`"}`)
	if field(t, test, "verdict") != "Would not trigger" || !strings.Contains(field(t, test, "webhook_check", "detail"), "which is paused") {
		t.Errorf("test: %s", test.body)
	}
	if got := f.do("POST", "/api/v1/deliveries/"+id+"/replay", operator, ""); got.status != 409 {
		t.Errorf("replay: %d %s", got.status, got.body)
	}
	log, err := f.store.Deliveries.List(t.Context(), store.DeliveryQuery{})
	if err != nil || len(log) != 1 {
		t.Errorf("the log has %d entries, %v", len(log), err)
	}
	resume := strings.TrimSuffix(pausePath, "pause") + "resume"
	if got := f.do("POST", resume, operator, ""); got.status != 200 {
		t.Errorf("resume: %d %s", got.status, got.body)
	}
	if got := f.do("POST", resume, operator, ""); got.status != 404 {
		t.Errorf("resumed twice: %d %s", got.status, got.body)
	}
	if got := f.do("POST", hook, hookSecret, `{"n":2}`); got.status != 202 {
		t.Errorf("afterwards: %d %s", got.status, got.body)
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 2})
	if err != nil || entries[0].Action != "webhook.resume" || entries[1].Action != "webhook.pause" || entries[1].Object != "hook" ||
		!regexp.MustCompile(`^until \S+Z: a flood`).MatchString(entries[1].Details) {
		t.Errorf("audit %+v %v", entries, err)
	}
}

// TestBadPauses: a pause that could mean nothing is refused, and changes nothing.
func TestBadPauses(t *testing.T) {
	f := newFixture(t)
	operator := f.key("op", "operate")
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{pausePath, `{"seconds":-1}`, 400},
		{pausePath, `{"seconds":9223372036854775807}`, 400},
		{pausePath, `{"until":"2020-01-01T00:00:00Z"}`, 400},
		{pausePath, `{"until":"9999-01-01T00:00:00Z"}`, 400},
		{pausePath, `{"until":"tomorrow"}`, 400},
		{pausePath, `{"until":"2030-01-01T00:00:00Z","seconds":5}`, 400},
		{pausePath, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, 400},
		{pausePath, `{`, 400},
		{"/api/v1/factories/default/webhooks/none/pause", ``, 404},
		{"/api/v1/factories/default/webhooks/a/pause", ``, 404}, // an automation
		{"/api/v1/factories/default/automations/hook/pause", ``, 404},
		{"/api/v1/factories/none/webhooks/hook/pause", ``, 404},
	} {
		if got := f.do("POST", c.path, operator, c.body); got.status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.path, c.body, got.status, c.status, got.body)
		}
	}
	if all := f.store.Pauses.List(""); len(all) != 0 {
		t.Errorf("paused: %+v", all)
	}
}

// TestPauseMeetsDeliveries: once a pause is answered, no delivery is accepted, also none
// whose body was on its way; once its end is answered, all are (SPEC 18.2).
func TestPauseMeetsDeliveries(t *testing.T) {
	f := newFixtureWith(t, options{rate: 1_000_000})
	operator, hook := f.key("op", "operate"), ingress+f.uids()["hook"]
	resume := strings.TrimSuffix(pausePath, "pause") + "resume"
	// A request that has passed every check but that of its end.
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\nExpect: 100-continue\r\n%s\r\n\r\n", hook, auth)
	read := bufio.NewReader(conn)
	if line, err := read.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err) // the server waits for the body
	}
	if got := f.do("POST", pausePath, operator, ""); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if _, err := io.WriteString(conn, `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	if _, err := read.ReadString('\n'); err != nil { // the empty line after 100 Continue
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(read, nil)
	if err != nil || resp.StatusCode != 404 {
		t.Errorf("what was on its way: %v, %v", resp, err)
	}
	if log, err := f.store.Deliveries.List(t.Context(), store.DeliveryQuery{}); err != nil || len(log) != 0 {
		t.Errorf("the log has %d entries, %v", len(log), err)
	}
	f.do("POST", resume, operator, "")

	const paused, takes, between = 1, 2, 0
	var state atomic.Int64 // a state that was answered, and how often it changed
	var done atomic.Bool
	var counts [2]atomic.Int64 // accepted, not found
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for n := 0; !done.Load(); n++ {
				before := state.Load()
				req, err := http.NewRequest(http.MethodPost, f.url+hook, strings.NewReader(fmt.Sprintf(`{"i":%d,"k":%d}`, i, n)))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+hookSecret)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				steady := state.Load() == before
				switch {
				case resp.StatusCode == 202 && steady && before%4 == paused:
					t.Error("accepted after the pause was answered")
				case resp.StatusCode == 404 && steady && before%4 == takes:
					t.Error("refused after its end was answered")
				case resp.StatusCode == 202:
					counts[0].Add(1)
				case resp.StatusCode == 404:
					counts[1].Add(1)
				default:
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	wait := func(count *atomic.Int64) {
		t.Helper()
		for was, deadline := count.Load(), time.Now().Add(30*time.Second); count.Load() < was+8; {
			if time.Now().After(deadline) {
				t.Fatal("nothing comes")
			}
		}
	}
	for round := range int64(10) {
		f.do("POST", pausePath, operator, "")
		state.Store(4*round + paused)
		wait(&counts[1])
		state.Store(4*round + between)
		f.do("POST", resume, operator, "")
		state.Store(4*round + takes)
		wait(&counts[0])
		state.Store(4*round + 3)
	}
	done.Store(true)
	senders.Wait()
	client.CloseIdleConnections()
}
