//go:build linux && !client

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/api"
)

// gatedWriter is a pipe that is read while its gate is open.
type gatedWriter struct {
	mu   sync.Mutex
	gate chan struct{} // closed: open
	fail error
	text strings.Builder
}

func (g *gatedWriter) Write(p []byte) (int, error) {
	<-g.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return 0, g.fail
	}
	return g.text.Write(p)
}

// TestLogNobodyReads: writing to the log waits for nobody, what is dropped is
// counted, and told when somebody reads again.
func TestLogNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &gatedWriter{gate: make(chan struct{})}
		w := newLogWriter(to)
		const lines = logLines + 500
		for i := range lines {
			fmt.Fprintf(w, "line %d\n", i)
		}
		began := time.Now()
		w.End()
		if took := time.Since(began); took != logGrace {
			t.Errorf("with a reader that does not read it ends after %v", took)
		}
		close(to.gate)
		<-w.done
		kept := strings.Count(to.text.String(), "line ")
		missing := 0
		for _, told := range regexp.MustCompile(`level=WARN msg="nobody read the log: lines are missing here" lines=([0-9]+)`).FindAllStringSubmatch(to.text.String(), -1) {
			n, err := strconv.Atoi(told[1])
			if err != nil {
				t.Fatal(err)
			}
			missing += n
		}
		if missing != lines-kept || missing == 0 || kept < logLines {
			t.Errorf("%d of %d lines, and it says that %d are missing", kept, lines, missing)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		to := &gatedWriter{gate: make(chan struct{}), fail: errors.New("broken pipe")}
		close(to.gate)
		w := newLogWriter(to)
		fmt.Fprintln(w, "lost")
		synctest.Wait()
		to.mu.Lock()
		to.fail = nil
		to.mu.Unlock()
		fmt.Fprintln(w, "kept")
		w.End()
		if got := to.text.String(); !strings.Contains(got, "lines=1\nkept\n") || strings.Contains(got, "lost") {
			t.Errorf("it has %q", got)
		}
	})
}

// TestRepeatedLines: an error that comes 700 times a second is told once, and then
// every interval with how often; others are not held back.
func TestRepeatedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &gatedWriter{gate: make(chan struct{})}
		close(to.gate)
		w := newLogWriter(to)
		logger := slog.New(repeated{handler: slog.NewTextHandler(w, nil), lines: w.repeated})
		const rate, seconds = 700, 25
		for s := range seconds {
			for range rate {
				logger.Error("a delivery could not be stored", "error", "the disk is full")
			}
			logger.With("run", s).Error("recording the end of a run", "error", "the disk is full")
			logger.Info("run finished")
			time.Sleep(time.Second)
		}
		w.End()
		text := to.text.String()
		total := 0
		for _, line := range regexp.MustCompile(`(?m)^.*could not be stored.*$`).FindAllString(text, -1) {
			if n := regexp.MustCompile(`times=([0-9]+)`).FindStringSubmatch(line); n != nil {
				times, err := strconv.Atoi(n[1])
				if err != nil {
					t.Fatal(err)
				}
				total += times
			} else {
				total++
			}
		}
		if n := strings.Count(text, "could not be stored"); n > 4 || total != rate*seconds {
			t.Errorf("%d lines tell of %d errors, not of %d", n, total, rate*seconds)
		}
		if n := strings.Count(text, "recording the end"); n != seconds {
			t.Errorf("%d errors of %d runs", n, seconds)
		}
		if n := strings.Count(text, "run finished"); n != seconds {
			t.Errorf("%d of %d runs finished", n, seconds)
		}
	})
}

// TestLogPipe (B8): a server whose log nobody reads any more, or whose reader is
// dead, takes deliveries, executes runs, and ends when it is told to.
func TestLogPipe(t *testing.T) {
	for _, reader := range []string{"dead", "stuck"} {
		t.Run(reader, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
				// A pipe of an agent ends as it does in a shell.
				"environments/env.yaml": "command: [sh, -c, 'yes 2>&1 | head -1; test $(grep SigIgn: /proc/self/status | tail -c 5) = 0000']\n",
				"automations/all.md":    automationFile("hook", ""),
			})
			r, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, pipe.Fd(), syscall.F_SETPIPE_SZ, 4096); errno != 0 {
				t.Fatal(errno)
			}
			w.startWith(func(cmd *exec.Cmd) { cmd.Stderr = pipe }, "--rate-limit", "0", "--max-runs-per-hour", "0")
			if err := pipe.Close(); err != nil {
				t.Fatal(err)
			}
			if reader == "dead" {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
			const n = 40 // whose lines fill the pipe more than once
			url := w.url("hook")
			for i := range n {
				got := post(t, "POST", url, strings.NewReader(fmt.Sprint(i)), http.Header{"Authorization": {"Bearer " + testSecret}})
				if got.status != 202 {
					t.Fatalf("delivery %d: %+v", i, got)
				}
			}
			var runs []api.Run
			err = waitFor(t.Context(), time.Minute, "the runs do not end", func() (bool, error) {
				w.list(&runs, "runs", "list", "--state", "SUCCEEDED", "--limit", "0")
				return len(runs) == n, nil
			})
			if err != nil {
				t.Fatal(err, w.run("", "runs", "list"))
			}
			w.terminate()
			w.stopped()
		})
	}
}
