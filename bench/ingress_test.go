// Package bench measures the whole program from outside, beside its ceiling, in
// one run (GOALS.md). `make bench` builds the program and runs it.
package bench

import (
	"bufio"
	"bytes"
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
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, e))
}

const hookSecret = "a-secret-for-the-benchmark"

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

// serveProgram starts the real server on a factory with a signed webhook, and
// returns the path of its ingress.
func serveProgram(b *testing.B, address string) (path string, pid int) {
	b.Helper()
	dir, bin := b.TempDir(), program(b)
	files := map[string]string{
		"factory.yaml": "schemaVersion: v1alpha1\nname: Bench\n", "environments/e.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n",
		"automations/a.md":   "---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {action: [opened]}}}\n---\nDo it.\n",
	}
	for name, text := range files {
		full := filepath.Join(dir, "repo", name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	run := func(stdin string, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stdin = filepath.Join(dir, "repo"), strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "TRIPHAMMER_DATA="+filepath.Join(dir, "data"), "GIT_AUTHOR_NAME=b", "GIT_AUTHOR_EMAIL=b@example.com", "GIT_COMMITTER_NAME=b", "GIT_COMMITTER_EMAIL=b@example.com")
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("%s %v: %v", name, args, err)
		}
		return strings.TrimSpace(string(out))
	}
	run("", "git", "init", "-q", "--initial-branch=main")
	run("", "git", "add", "-A")
	run("", "git", "commit", "-qm", "Bench")
	run(hookSecret, bin, "secrets", "set", "S")
	server := exec.Command(bin, "serve", "--repo", filepath.Join(dir, "repo"), "--data", filepath.Join(dir, "data"), "--listen", address, "--rate-limit", "0", "--max-runs", "0")
	start(b, server, address)
	run("", bin, "status", "--wait")
	return strings.TrimPrefix(run("", bin, "webhooks", "url", "hook"), "http://"+address), server.Process.Pid
}

var nextID atomic.Int64

// load sends n deliveries over as many connections, each waiting for its answer,
// and returns how long each took.
func load(b *testing.B, address, path string, connections, n int, body []byte, signed string) []time.Duration {
	b.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nX-Hub-Signature-256: %s\r\nContent-Length: %d\r\nX-GitHub-Delivery: ", path, address, signed, len(body))
	var left atomic.Int64
	left.Store(int64(n))
	took := make([][]time.Duration, connections)
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
			for left.Add(-1) >= 0 {
				request.Reset()
				request.WriteString(head)
				request.WriteString(strconv.FormatInt(nextID.Add(1), 10))
				request.WriteString("\r\n\r\n")
				request.Write(body)
				began := time.Now()
				if _, err := conn.Write(request.Bytes()); err != nil {
					b.Error(err)
					return
				}
				if status, err := readAnswer(r); err != nil || status != "202" {
					b.Errorf("answer %s, %v", status, err)
					return
				}
				took[i] = append(took[i], time.Since(began))
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

// BenchmarkIngress is acknowledged deliveries per second, each verified (HMAC),
// checked, deduplicated, stored with fsync, matched, and its run enqueued, beside
// the same HTTP library doing nothing. of-plain is the share of that ceiling.
func BenchmarkIngress(b *testing.B) {
	for _, size := range []int{1 << 10, 21 << 10, 255 << 10} {
		body := []byte(`{"action":"opened","words":"`)
		for i := 0; len(body) < size-2; i++ {
			body = fmt.Appendf(body, "item %d of %d ", i, i*i%977)
		}
		body = append(body[:size-2], '"', '}')
		header := http.Header{}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(hookSecret, &signature.Request{Header: header, Body: body}); err != nil {
			b.Fatal(err)
		}
		signed := header.Get("X-Hub-Signature-256")
		connections := []int{1, 16, 64, 256}
		if size > 1<<10 {
			connections = []int{64}
		}
		for _, c := range connections {
			b.Run(fmt.Sprintf("bytes=%d/connections=%d", size, c), func(b *testing.B) {
				plainAddress, address := freeAddress(b), freeAddress(b)
				plain := exec.Command(os.Args[0])
				plain.Env = append(os.Environ(), plainVariable+"="+plainAddress)
				start(b, plain, plainAddress)
				path, pid := serveProgram(b, address)
				n := max(b.N, c)
				b.ResetTimer()
				b.StopTimer()
				began := time.Now()
				load(b, plainAddress, "/webhooks/w/x", c, n, body, signed)
				ceiling := float64(n) / time.Since(began).Seconds()
				b.StartTimer()
				began = time.Now()
				took := load(b, address, path, c, n, body, signed)
				rate := float64(n) / time.Since(began).Seconds()
				b.StopTimer()
				if b.Failed() {
					return
				}
				slices.Sort(took)
				b.ReportMetric(rate, "acked/s")
				b.ReportMetric(ceiling, "plain/s")
				b.ReportMetric(rate/ceiling, "of-plain")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(residentMB(pid), "MB")
			})
		}
	}
}
