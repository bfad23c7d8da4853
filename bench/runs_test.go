package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Benchmarks of runs, by isolation. `sandbox` takes bubblewrap.
var isolations = []string{"none", "kernel", "sandbox"}

// firstInstruction is the source of an agent that says when it began, in nanoseconds since
// 1970, and ends.
const firstInstruction = `#include <stdio.h>
#include <time.h>
int main(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	printf("%lld%09ld\n", (long long)t.tv_sec, t.tv_nsec);
	return 0;
}
`

// compiled builds the source where runs can execute it, and returns its path.
func compiled(b *testing.B, source string) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	path := filepath.Join(dir, "agent")
	cmd := exec.Command("gcc", "-O2", "-x", "c", "-o", path, "-")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// call makes a request of the API, whose answer must be good.
func (p *instance) call(method, path, key, body string) *http.Response {
	p.b.Helper()
	req, err := http.NewRequest(method, "http://"+p.address+path, strings.NewReader(body))
	if err != nil {
		p.b.Fatal(err)
	}
	if key != "" { // without a key, this machine may read the metrics
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.b.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		p.b.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return resp
}

func (p *instance) decode(into any, method, path, key, body string) {
	p.b.Helper()
	resp := p.call(method, path, key, body)
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		p.b.Fatal(err)
	}
}

// ran is what the benchmarks read of a run.
type ran struct {
	RunID     string    `json:"run_id"`
	State     string    `json:"state"`
	Message   string    `json:"status_message"`
	StartedAt time.Time `json:"started_at"`
}

const newRun = `{"prompt":"x","config":{"environment_id":"e"}}`

// follow calls each for the events of a run to its end, as they come.
func (p *instance) follow(key, id string, each func(kind string, data []byte)) {
	p.b.Helper()
	resp := p.call(http.MethodGet, "/api/v1/agent/runs/"+id+"/events", key, "")
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	kind := ""
	for lines.Scan() {
		if text, ok := bytes.CutPrefix(lines.Bytes(), []byte("event: ")); ok {
			kind = string(text)
		} else if text, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			each(kind, text)
		}
	}
	if err := lines.Err(); err != nil {
		p.b.Fatal(err)
	}
}

func quantile(times []time.Duration, percent int) float64 {
	slices.Sort(times)
	return float64(times[len(times)*percent/100].Microseconds()) / 1000
}

// wallOf is a command that starts a program as the wall of the isolation does, and no more.
func wallOf(isolation, agent string) []string {
	if isolation != "sandbox" {
		return []string{agent}
	}
	return []string{
		"bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--share-net",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", agent,
	}
}

// BenchmarkFirstInstruction is the time from the claim of a run to the first instruction of
// its agent, one run after the other: p50-ms and p99-ms. wall-p50-ms is that of the wall
// alone, without Triphammer, between the runs: of bwrap, or of starting a process;
// over-p50-ms is the difference; the goal is at most 50.
func BenchmarkFirstInstruction(b *testing.B) {
	agent := compiled(b, firstInstruction)
	for _, isolation := range isolations {
		b.Run(isolation, func(b *testing.B) {
			p := newInstance(b, freeAddress(b), map[string]string{"environments/e.yaml": "command: [" + agent + "]\n"})
			p.env = []string{"PATH=" + filepath.Dir(agent) + ":" + os.Getenv("PATH")}
			p.serve("--isolation", isolation)
			key := p.run("", p.bin, "keys", "create", "k", "--scope", "runs")
			var took, walls []time.Duration
			for b.Loop() {
				var r ran
				p.decode(&r, http.MethodPost, "/api/v1/agent/runs", key, newRun)
				said := ""
				p.follow(key, r.RunID, func(_ string, data []byte) {
					var e struct {
						Kind string
						Data struct{ Text string }
					}
					if json.Unmarshal(data, &e) == nil && e.Kind == "output" {
						said += e.Data.Text
					}
				})
				p.decode(&r, http.MethodGet, "/api/v1/agent/runs/"+r.RunID, key, "")
				took = append(took, began(b, said).Sub(r.StartedAt))
				from := time.Now()
				argv := wallOf(isolation, agent)
				out, err := exec.Command(argv[0], argv[1:]...).Output()
				if err != nil {
					b.Fatal(err)
				}
				walls = append(walls, began(b, string(out)).Sub(from))
			}
			p50 := quantile(took, 50)
			b.ReportMetric(p50, "p50-ms")
			b.ReportMetric(quantile(took, 99), "p99-ms")
			b.ReportMetric(quantile(walls, 50), "wall-p50-ms")
			b.ReportMetric(p50-quantile(walls, 50), "over-p50-ms")
		})
	}
}

// began reads what the agent says.
func began(b *testing.B, said string) time.Time {
	b.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
	if err != nil {
		b.Fatalf("the agent said %q", said)
	}
	return time.Unix(0, ns)
}

// unfinished reads from the metrics how many runs have not finished.
func (p *instance) unfinished() (n int) {
	p.b.Helper()
	resp := p.call(http.MethodGet, "/metrics", "", "")
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "triphammer_runs{"); ok {
			_, count, _ := strings.Cut(rest, "} ")
			f, err := strconv.ParseFloat(count, 64)
			if err != nil {
				p.b.Fatal(err)
			}
			n += int(f)
		}
	}
	return n
}

// BenchmarkRunsPerSecond is how many runs of `true` the server finishes in a second, four at
// once (--max-runs), with so many queued behind them that are not run. list-p99-ms is how
// long the first page of the list of runs takes meanwhile. server-cpu-ms and run-cpu-ms are
// the processor time of one run, in the server and in the processes of the run; on a busy
// machine they are steadier than the rate. With traces, trace-cpu-ms is what the server needs for one run
// afterwards, until a collector has all of them.
func BenchmarkRunsPerSecond(b *testing.B) {
	for _, c := range []struct {
		isolation string
		behind    int
		traces    bool
	}{{"none", 0, false}, {"kernel", 0, false}, {"kernel", 0, true}, {"kernel", 10_000, false}, {"sandbox", 0, false}} {
		b.Run(fmt.Sprintf("%s/behind=%d/traces=%v", c.isolation, c.behind, c.traces), func(b *testing.B) {
			p := serveProgram(b, freeAddress(b))
			traced := make(chan int, 1000)
			if c.traces {
				p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector(b, traced))
			}
			key := p.run("", p.bin, "keys", "create", "k", "--scope", "runs")
			path := p.path("github")
			body := pullRequest(1 << 10)
			n := max(b.N, 20)
			load(b, p.address, path, 8, n+c.behind, body, signature256(b, body))
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				b.Fatal(err)
			}
			_ = p.cmd.Wait()
			if b.Failed() {
				b.FailNow()
			}
			var lists []time.Duration
			b.ResetTimer()
			p.serve("--isolation", c.isolation)
			first := p.unfinished()
			own, below := cpuTimes(b, p.cmd.Process.Pid)
			from := time.Now()
			pace := time.NewTicker(50 * time.Millisecond) // people look no faster
			defer pace.Stop()
			for left := first; left > c.behind; left = p.unfinished() {
				asked := time.Now()
				resp := p.call(http.MethodGet, "/api/v1/agent/runs?limit=50", key, "")
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
				lists = append(lists, time.Since(asked))
				<-pace.C
			}
			took := time.Since(from)
			b.StopTimer()
			ownThen, belowThen := cpuTimes(b, p.cmd.Process.Pid)
			runs := float64(first - c.behind)
			b.ReportMetric(runs/took.Seconds(), "runs/s")
			b.ReportMetric((ownThen-own).Seconds()*1000/runs, "server-cpu-ms")
			b.ReportMetric((belowThen-below).Seconds()*1000/runs, "run-cpu-ms")
			if len(lists) > 0 {
				b.ReportMetric(quantile(lists, 99), "list-p99-ms")
			}
			if c.traces {
				for left := first; left > 0; left -= <-traced {
				}
				afterwards, _ := cpuTimes(b, p.cmd.Process.Pid)
				b.ReportMetric((afterwards-ownThen).Seconds()*1000/runs, "trace-cpu-ms")
			}
		})
	}
}

// collector is the address of a collector of OpenTelemetry, which says how many runs each request tells of.
func collector(b *testing.B, traced chan<- int) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		traced <- bytes.Count(body, []byte(`"name":"run `))
		_, _ = io.WriteString(w, "{}")
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// BenchmarkTranscriptEvents is how many events of an agent a reader follows in a second, from
// the agent's output over the store to the reader's connection.
func BenchmarkTranscriptEvents(b *testing.B) {
	const events = 20_000
	dir := filepath.Dir(compiled(b, firstInstruction))
	line := `{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"I have read the file and change two lines of it now."}]}}`
	agent := fmt.Sprintf("#!/bin/sh\nyes '%s' | head -n %d\necho '{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\"}'\n", line, events)
	if err := os.WriteFile(filepath.Join(dir, "claude"), []byte(agent), 0o755); err != nil {
		b.Fatal(err)
	}
	p := newInstance(b, freeAddress(b), map[string]string{"environments/e.yaml": "setupCommands: []\n"})
	p.env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	p.serve("--isolation", "kernel")
	key := p.run("", p.bin, "keys", "create", "k", "--scope", "runs")
	var rates []float64
	for b.Loop() {
		var r ran
		p.decode(&r, http.MethodPost, "/api/v1/agent/runs", key, newRun)
		seen := 0
		var from, to time.Time
		p.follow(key, r.RunID, func(kind string, data []byte) {
			if kind != "transcript" || !bytes.Contains(data, []byte("two lines of it")) {
				return
			}
			if seen++; seen == 1 {
				from = time.Now()
			}
			to = time.Now()
		})
		if seen != events {
			p.decode(&r, http.MethodGet, "/api/v1/agent/runs/"+r.RunID, key, "")
			b.Fatalf("%d of %d events were seen: %s %s", seen, events, r.State, r.Message)
		}
		rates = append(rates, float64(seen)/to.Sub(from).Seconds())
	}
	slices.Sort(rates)
	b.ReportMetric(rates[len(rates)/2], "events/s")
}
