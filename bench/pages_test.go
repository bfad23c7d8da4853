package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/dashboard"
)

// What is stored while pages are measured: of the deliveries, so many started a run.
const (
	storedDeliveries = 1_000_000
	storedRuns       = 100_000
)

// person is somebody who is signed in to the pages.
type person struct {
	b       *testing.B
	address string
	client  *http.Client
}

// signIn signs in as `auth login` says. As many connections as wanted stay open.
func (p *instance) signIn(connections int) *person {
	p.b.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	p.b.Cleanup(transport.CloseIdleConnections)
	who := &person{p.b, p.address, &http.Client{Jar: jar, Transport: transport}}
	link := p.run("", p.bin, "auth", "login")
	answer, err := who.client.Post("http://"+p.address+link[strings.Index(link, "/auth/"):], "application/x-www-form-urlencoded", nil)
	if err != nil {
		p.b.Fatal(err)
	}
	_ = answer.Body.Close() // the cookie is in its header
	return who
}

// get reads a page.
func (w *person) get(path string) []byte {
	w.b.Helper()
	answer, err := w.client.Get("http://" + w.address + path)
	if err != nil {
		w.b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.b.Fatalf("%s: %d, %v", path, answer.StatusCode, err)
	}
	return text
}

// filled is a server with all that is stored. A row of the table has a name for each
// parameter of the route of a page.
func filled(b *testing.B, deliveries, runs int) (p *instance, ingress string, names map[string]string) {
	b.Helper()
	p = newInstance(b, freeAddress(b), map[string]string{
		"environments/e.yaml": "command: ['true']\n", "webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n",
		"automations/a.md":        "---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {action: [opened]}}}\n---\nDo it.\n",
		"agents/foreman/agent.md": "---\nagentType: FOREMAN\ndescription: Does it\n---\nDo it well.\n",
	})
	p.run(hookSecret, p.bin, "secrets", "set", "S")
	p.serve("--max-runs", "0")
	ingress = strings.TrimPrefix(p.run("", p.bin, "webhooks", "url", "hook"), "http://"+p.address)
	wanted := pullRequest(1 << 10)
	other := bytes.Replace(wanted, []byte(`"opened"`), []byte(`"edited"`), 1)
	const rounds = 10 // so that what started runs is spread over the log
	for range rounds {
		load(b, p.address, ingress, 64, (deliveries-runs)/rounds, other, signature256(b, other))
		load(b, p.address, ingress, 64, runs/rounds, wanted, signature256(b, wanted))
	}
	if b.Failed() {
		b.FailNow()
	}
	newest := func(args ...string) string {
		id, _, _ := strings.Cut(p.run("", p.bin, append(args, "--limit", "1", "-o", "name")...), "\n")
		return id
	}
	names = map[string]string{
		"/deliveries/": newest("deliveries", "list"), "/runs/": newest("runs", "list"), "/webhooks/": "hook", "/automations/": "a",
		"/environments/": "e", "/agents/": "foreman", "/docs/": "troubleshooting", "/factories/": "default", "/applies/": newest("applies", "list"),
	}
	return p, ingress, names
}

// addressOf is an address of a route, by the names for its parameters.
func addressOf(route string, names map[string]string) (string, error) {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		switch {
		case strings.HasPrefix(part, ":"):
			name, known := names["/"+parts[i-1]+"/"]
			if !known {
				return "", errors.New("no name for " + route)
			}
			parts[i] = name
		case strings.HasPrefix(part, "*"):
			parts[i] = "automations/a.md"
		}
	}
	return strings.Join(parts, "/"), nil
}

// noPages are routes of the dashboard that are no pages, and why.
var noPages = map[string]string{"/artifacts/:id": "a file", "/runs/:id/events.json": "a file", "/runs/:id/event-payload.json": "a file"}

// BenchmarkPages is how long a page takes with a million deliveries and a hundred thousand
// runs stored, and how large its HTML is.
func BenchmarkPages(b *testing.B) {
	p, _, names := filled(b, storedDeliveries, storedRuns)
	who := p.signIn(1)
	for _, r := range dashboard.Routes {
		if r.Method != http.MethodGet || noPages[r.Path] != "" {
			continue
		}
		b.Run(strings.Trim(strings.ReplaceAll(r.Path, "/", "."), "."), func(b *testing.B) {
			path, err := addressOf(r.Path, names)
			if err != nil {
				b.Fatal(err)
			}
			here := *who
			here.b = b
			size := len(here.get(path)) // reads its templates
			took := make([]time.Duration, 0, max(b.N, 200))
			b.ResetTimer()
			for range cap(took) {
				began := time.Now()
				here.get(path)
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(size)/1000, "kB")
		})
	}
}

// openPages is how many pages BenchmarkOpenPages has open.
const openPages = 500

// BenchmarkOpenPages is the rate of the ingress while 500 pages are open, by that without
// any, as of-alone: 1 is as fast. Each page hears of changes and fetches itself again, as
// browsers do.
func BenchmarkOpenPages(b *testing.B) {
	p, ingress, _ := filled(b, 20_000, 2_000)
	who := p.signIn(openPages)
	body := pullRequest(4 << 10)
	body = bytes.Replace(body, []byte(`"opened"`), []byte(`"edited"`), 1)
	signed := signature256(b, body)
	n := max(b.N/rounds, 5000)
	rate := func() float64 {
		began := time.Now()
		return float64(len(load(b, p.address, ingress, 64, n, body, signed))) / time.Since(began).Seconds()
	}
	rate() // warms up
	var shares, with []float64
	heard := 0
	b.ResetTimer()
	for range rounds {
		alone := rate()
		ctx, stop := context.WithCancel(b.Context())
		wait, count := who.openAll(ctx)
		beside := rate()
		stop()
		wait()
		heard += *count
		shares, with = append(shares, beside/alone), append(with, beside)
	}
	b.StopTimer()
	if heard == 0 {
		b.Fatal("no page heard of a change")
	}
	slices.Sort(shares)
	slices.Sort(with)
	b.ReportMetric(shares[rounds/2], "of-alone")
	b.ReportMetric(with[rounds/2], "acked/s")
	b.ReportMetric(float64(heard), "fetched-again")
}

// openAll opens the pages, and returns when all hear. wait waits until they are closed, after
// which count is how often they fetched themselves again.
func (w *person) openAll(ctx context.Context) (wait func(), count *int) {
	w.b.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	count = new(int)
	opened := make(chan struct{}, openPages)
	for i := range openPages {
		path, kind := "/runs", "runs"
		if i%2 == 0 {
			path, kind = "/deliveries", "deliveries"
		}
		query := url.Values{"view": {kind}, "at": {fmt.Sprint(time.Now().UnixMilli())}}
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.address+dashboard.LivePath+"?"+query.Encode(), nil)
			var answer *http.Response
			if err == nil {
				answer, err = w.client.Do(req)
			}
			opened <- struct{}{}
			if err != nil {
				w.b.Error(err)
				return
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				w.b.Errorf("a page is not told of changes: %d", answer.StatusCode)
			}
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if !strings.HasPrefix(lines.Text(), "data:") || ctx.Err() != nil {
					continue
				}
				again, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.address+path, nil)
				if err != nil {
					continue
				}
				if page, err := w.client.Do(again); err == nil {
					_, _ = io.Copy(io.Discard, page.Body) // it may be closed meanwhile
					_ = page.Body.Close()
					mu.Lock()
					*count++
					mu.Unlock()
				}
			}
		})
	}
	for range openPages {
		<-opened
	}
	return all.Wait, count
}
