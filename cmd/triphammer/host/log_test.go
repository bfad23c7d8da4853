package host

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
