// Package bench measures the whole program from outside, beside its ceiling, in
// one run. `make bench` builds the program and runs it; one figure is
//
//	go test -run '^$' -bench 'Ingress/bytes=1024/connections=64$' -benchtime 50000x -count 5 ./bench
//
// The units that BenchmarkIngress reports: acked/s and plain/s are answers per
// second of the program and of its ceiling; of-plain is the median over the rounds
// of the one by the other, and of-plain-min its least; p50-ms and p99-ms are how
// long an acknowledged delivery took; per-commit is how many deliveries shared a
// transaction; cpu-us is the processor time, user and system, of the program for
// one delivery; idle-MB and MB are its resident memory before and after. Sender,
// ceiling and program share the machine, so that cpu-us is steadier than the rest.
package bench

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/factory/signature"
)

const plainVariable = "TRIPHAMMER_BENCH_PLAIN"

func TestMain(m *testing.M) {
	if address := os.Getenv(plainVariable); address != "" {
		servePlain(address)
		return
	}
	os.Exit(m.Run())
}

// servePlain is the ceiling: the same HTTP library, reading the body, storing
// and checking nothing.
func servePlain(address string) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.POST("/webhooks/w/:uid", func(c *gin.Context) {
		_, _ = io.Copy(io.Discard, c.Request.Body) // a benchmark's own sender
		c.Data(http.StatusAccepted, "application/json", []byte(`{"delivery_id":"dlv_0000000000000"}`))
	})
	// What BenchmarkNotFound must see: a server that verifies before it looks whether it serves.
	e.POST("/early/:uid", func(c *gin.Context) {
		if c.Param("uid") == "disabled" {
			body, _ := io.ReadAll(c.Request.Body)
			mac := hmac.New(sha256.New, []byte(hookSecret))
			_, _ = mac.Write(body)
			_ = hmac.Equal(mac.Sum(nil), []byte(c.GetHeader("X-Hub-Signature-256")))
		}
		c.Data(http.StatusNotFound, "application/json", []byte(`{"error":"not_found"}`))
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, e))
}

// startPlain starts the ceiling, and returns its process.
func startPlain(b *testing.B, address string) (pid int) {
	b.Helper()
	plain := exec.Command(os.Args[0])
	plain.Env = append(os.Environ(), plainVariable+"="+address)
	start(b, plain, address)
	return plain.Process.Pid
}

// hookSecret is the key of every sender of a benchmark, in the form that Standard Webhooks demands.
const hookSecret = "whsec_YS1zZWNyZXQtZm9yLXRoZS1iZW5jaG1hcms="

// program is the built binary; the benchmark builds one if `make bench` did not.
func program(b *testing.B) string {
	b.Helper()
	if bin := os.Getenv("TRIPHAMMER_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(b.TempDir(), "triphammer")
	if out, err := exec.Command("go", "build", "-o", bin, "triphammer/cmd/triphammer").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func freeAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func start(b *testing.B, cmd *exec.Cmd, address string) {
	b.Helper()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

// schemes are the signature schemes of the webhooks that serveProgram has, which are named after them.
var schemes = []string{"github", "slack", "standard_webhooks"}

// serveProgram starts the real server on a factory with signed webhooks, which start a run for what is opened.
func serveProgram(b *testing.B, address string, env ...string) *instance {
	b.Helper()
	files := map[string]string{
		"environments/e.yaml": "command: ['true']\n",
		"automations/a.md":    "---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [" + strings.Join(schemes, ", ") + "], payload: {action: [opened]}}}\n---\nDo it.\n",
	}
	for _, scheme := range schemes {
		files["webhooks/"+scheme+".yaml"] = "secretName: S\nauthMode: signature\nsignatureScheme: " + scheme + "\n"
	}
	p := newInstance(b, address, files)
	p.env = env
	p.launch("--max-runs", "0")
	p.run(hookSecret, p.bin, "secrets", "set", "S")
	p.run("", p.bin, "status", "--wait")
	return p
}

// path is where a webhook takes deliveries.
func (p *instance) path(webhook string) string {
	p.b.Helper()
	return strings.TrimPrefix(p.run("", p.bin, "webhooks", "url", webhook), "http://"+p.address)
}

// instance is a factory, and the program that serves it.
type instance struct {
	b                 *testing.B
	dir, bin, address string
	env               []string // besides that of the benchmark
	cmd               *exec.Cmd
}

// newInstance commits the files to a repository. Every user of the machine can reach its
// folder, as runs may have another one.
func newInstance(b *testing.B, address string, files map[string]string) *instance {
	b.Helper()
	p := &instance{b: b, dir: b.TempDir(), bin: program(b), address: address}
	if err := errors.Join(os.Chmod(p.dir, 0o755), os.Chmod(filepath.Dir(p.dir), 0o755)); err != nil {
		b.Fatal(err)
	}
	files["factory.yaml"] = "schemaVersion: v1alpha1\nname: Bench\n"
	for name, text := range files {
		full := filepath.Join(p.dir, "repo", name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	p.run("", "git", "init", "-q", "--initial-branch=main")
	p.run("", "git", "add", "-A")
	p.run("", "git", "commit", "-qm", "Bench")
	return p
}

func (p *instance) environ() []string {
	return slices.Concat(os.Environ(), []string{
		"TRIPHAMMER_DATA=" + filepath.Join(p.dir, "data"), "TRIPHAMMER_LISTEN=" + p.address,
		"GIT_AUTHOR_NAME=b", "GIT_AUTHOR_EMAIL=b@example.com", "GIT_COMMITTER_NAME=b", "GIT_COMMITTER_EMAIL=b@example.com",
	}, p.env)
}

// run runs a command in the repository, and returns what it prints.
func (p *instance) run(stdin string, name string, args ...string) string {
	p.b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin, cmd.Env = filepath.Join(p.dir, "repo"), strings.NewReader(stdin), p.environ()
	out, err := cmd.Output()
	if err != nil {
		p.b.Fatalf("%s %v: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

// serve starts the server, without limits of rates, and waits until it serves.
func (p *instance) serve(args ...string) {
	p.b.Helper()
	p.launch(args...)
	p.run("", p.bin, "status", "--wait")
}

// launch starts the server and waits until it listens.
func (p *instance) launch(args ...string) {
	p.b.Helper()
	p.cmd = exec.Command(p.bin, append([]string{"serve", "--repo", filepath.Join(p.dir, "repo"), "--rate-limit", "0", "--max-runs-per-hour", "0"}, args...)...)
	p.cmd.Env = p.environ()
	start(p.b, p.cmd, p.address)
}

var nextID atomic.Int64

// load sends n deliveries over as many connections, each waiting for its answer,
// and returns how long each took.
func load(b *testing.B, address, path string, connections, n int, body []byte, signed string) []time.Duration {
	b.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nX-Hub-Signature-256: %s\r\nContent-Length: %d\r\nX-GitHub-Delivery: ", path, address, signed, len(body))
	return send(b, address, connections, n, 0, func(_ int, request *bytes.Buffer) {
		request.WriteString(head)
		request.WriteString(strconv.FormatInt(nextID.Add(1), 10))
		request.WriteString("\r\n\r\n")
		request.Write(body)
	})
}

// send sends n requests, which write writes, over as many connections, and returns how long each took, from the
// moment at which it was due. In a closed loop (rate 0) a request is due when its connection is free. In an open
// loop, rate requests are due each second, whatever became of those before: one that has to wait for a connection
// takes longer for it, so that a server that stalls hides nothing (no coordinated omission).
func send(b *testing.B, address string, connections, n, rate int, write func(i int, request *bytes.Buffer)) []time.Duration {
	b.Helper()
	var next atomic.Int64
	took := make([][]time.Duration, connections)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			r := bufio.NewReader(conn)
			var request bytes.Buffer
			for {
				k := int(next.Add(1)) - 1
				if k >= n {
					return
				}
				request.Reset()
				write(k, &request)
				due := time.Now()
				if rate > 0 {
					due = start.Add(time.Duration(k) * time.Second / time.Duration(rate))
					if early := time.Until(due); early > 0 {
						<-time.After(early)
					}
				}
				if _, err := conn.Write(request.Bytes()); err != nil {
					b.Error(err)
					return
				}
				if status, err := readAnswer(r); err != nil || !strings.HasPrefix(status, "20") {
					b.Errorf("answer %s, %v", status, err)
					return
				}
				took[i] = append(took[i], time.Since(due))
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...)
}

// readAnswer reads one answer with a Content-Length.
func readAnswer(r *bufio.Reader) (status string, err error) {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return status, err
		}
		line = strings.TrimRight(line, "\r\n")
		switch {
		case status == "":
			_, rest, _ := strings.Cut(line, " ")
			status, _, _ = strings.Cut(rest, " ")
		case line == "":
			_, err := r.Discard(length)
			return status, err
		case strings.HasPrefix(line, "Content-Length: "):
			if length, err = strconv.Atoi(line[len("Content-Length: "):]); err != nil {
				return status, err
			}
		}
	}
}

func residentMB(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return 0
}

// rounds is how often the ceiling and the program take turns: what else the
// machine does then meets both.
const rounds = 5

// cpuTime is what a process has used of the processors.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	own, _ := cpuTimes(b, pid)
	return own
}

// cpuTimes is what a process, and what those that it has waited for, have used of the
// processors.
func cpuTimes(b *testing.B, pid int) (own, children time.Duration) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // proc(5): from the third on
	var ticks [4]int                                                          // user and system
	for i := range ticks {
		if ticks[i], err = strconv.Atoi(fields[11+i]); err != nil {
			b.Fatal(err)
		}
	}
	const tick = time.Second / 100
	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick
}

// commits reads the number of transactions from the program's metrics.
func commits(b *testing.B, address string) float64 {
	b.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "triphammer_store_commits_total "); ok {
			n, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("no triphammer_store_commits_total among the metrics")
	return 0
}

// pullRequest is a body of the size that looks like a provider's: objects of
// which most is addresses that begin alike, with numbers and hashes that do not.
func pullRequest(size int) []byte {
	body := []byte(`{"action":"opened","number":1347,"pull_request":{"draft":false,"labels":[{"name":"bug"}],"repositories":[`)
	const end = `""]}}`
	links := []string{"branches_url", "comments_url", "commits_url", "issues_url", "labels_url", "statuses_url"}
	for i := 0; ; i++ {
		hash := sha256.Sum256(fmt.Append(nil, i))
		repo := fmt.Appendf(nil, `{"id":%d,"node_id":"%x","full_name":"acme/app-%d","private":false,"size":%d,"pushed_at":"2026-11-21T%02d:%02d:07Z"`, 186853002+i*7919, hash[:12], i, i*i%9973, i%24, i%60)
		for _, link := range links {
			repo = fmt.Appendf(repo, `,"%s":"https://api.example.com/repos/acme/app-%d/%s{/sha}"`, link, i, strings.TrimSuffix(link, "_url"))
		}
		repo = fmt.Appendf(repo, `,"head":"%x","description":"%s","open_issues":%d,"default_branch":"main"},`, hash[:20], base64.StdEncoding.EncodeToString(slices.Concat(hash[:], hash[5:], hash[9:])), i%71)
		if len(body)+len(repo)+len(end) > size {
			break
		}
		body = append(body, repo...)
	}
	body = append(body, '"')
	for i := 0; len(body)+len(end) <= size; i++ {
		body = append(body, "0123456789abcdef"[i*i%251%16])
	}
	return append(body, end[1:]...)
}

// signature256 is the header that signs the body.
func signature256(b *testing.B, body []byte) string {
	b.Helper()
	header := http.Header{}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(hookSecret, &signature.Request{Header: header, Body: body}); err != nil {
		b.Fatal(err)
	}
	return header.Get("X-Hub-Signature-256")
}

// sideBySide lets a ceiling and the program take turns with n requests in all,
// and reports the rates. The ceiling is the address and path of another server.
func sideBySide(b *testing.B, other, otherPath, address, path string, c, n int, body []byte) []time.Duration {
	b.Helper()
	signed := signature256(b, body)
	n = max(n/rounds, c)
	var took []time.Duration
	var shares, rates, others []float64
	timed := func(address, path string) float64 {
		began := time.Now()
		some := load(b, address, path, c, n, body, signed)
		rate := float64(len(some)) / time.Since(began).Seconds()
		took = some
		return rate
	}
	var all []time.Duration
	for range rounds {
		b.StopTimer()
		ceiling := timed(other, otherPath)
		b.StartTimer()
		rate := timed(address, path)
		all = append(all, took...)
		rates, others, shares = append(rates, rate), append(others, ceiling), append(shares, rate/ceiling)
	}
	b.StopTimer()
	if b.Failed() {
		b.FailNow()
	}
	for _, list := range [][]float64{rates, others, shares} {
		slices.Sort(list)
	}
	b.ReportMetric(rates[rounds/2], "acked/s")
	b.ReportMetric(others[rounds/2], "plain/s")
	b.ReportMetric(shares[rounds/2], "of-plain")
	b.ReportMetric(shares[0], "of-plain-min")
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	return all
}

// BenchmarkIngress (R21) is acknowledged deliveries per second, each verified (HMAC),
// checked, deduplicated, stored with fsync, matched, and its run enqueued, beside
// the same HTTP library doing nothing.
func BenchmarkIngress(b *testing.B) {
	for _, size := range []int{1 << 10, 21 << 10, 255 << 10} {
		body := pullRequest(size)
		connections := []int{1, 16, 64, 256}
		if size > 1<<10 {
			connections = []int{64}
		}
		for _, c := range connections {
			b.Run(fmt.Sprintf("bytes=%d/connections=%d", size, c), func(b *testing.B) {
				plainAddress, address := freeAddress(b), freeAddress(b)
				startPlain(b, plainAddress)
				p := serveProgram(b, address)
				path, pid := p.path("github"), p.cmd.Process.Pid
				idle, used, committed := residentMB(pid), cpuTime(b, pid), commits(b, address)
				b.ResetTimer()
				all := sideBySide(b, plainAddress, "/webhooks/w/x", address, path, c, b.N, body)
				n := float64(len(all))
				b.ReportMetric(n/(commits(b, address)-committed), "per-commit")
				b.ReportMetric(float64((cpuTime(b, pid)-used).Microseconds())/n, "cpu-us")
				b.ReportMetric(idle, "idle-MB")
				b.ReportMetric(residentMB(pid), "MB")
			})
		}
	}
}

// stored is how many deliveries BenchmarkIngressStored begins with.
const stored = 1_000_000

// BenchmarkIngressStored is the rate of a program with many stored deliveries, as
// of-plain, beside that of one with none: 1 is as fast.
func BenchmarkIngressStored(b *testing.B) {
	full, empty := freeAddress(b), freeAddress(b)
	filled := serveProgram(b, full)
	fullPath, emptyPath := filled.path("github"), serveProgram(b, empty).path("github")
	body := pullRequest(4 << 10)
	load(b, full, fullPath, 64, stored, body, signature256(b, body))
	b.ResetTimer()
	sideBySide(b, empty, emptyPath, full, fullPath, 64, b.N, body)
	b.ReportMetric(residentMB(filled.cmd.Process.Pid), "MB")
}
