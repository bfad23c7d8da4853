package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	logLines = 4096        // lines that can wait for the reader of the log
	logGrace = time.Second // for the waiting lines, when the program ends
	// logEvery is how often a line that repeats is logged again, with the number of
	// repetitions.
	logEvery = 10 * time.Second
	// maxRepeated limits how many different lines are remembered.
	maxRepeated = 1000
)

// serverLog makes the log of a server on standard error. Everything else that the command
// prints there goes the same way. A reader of the log that is slow or gone neither delays
// the server nor ends it.
func serverLog(c *cobra.Command) *slog.Logger {
	// The signal is caught and not ignored, because agents would inherit an ignored one.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	w := newLogWriter(c.ErrOrStderr())
	c.Root().SetErr(w) // Execute ends it
	return slog.New(repeated{handler: slog.NewTextHandler(w, nil), lines: w.repeated})
}

// logWriter writes in the background. It drops and counts lines that cannot be written in
// time.
type logWriter struct {
	to       io.Writer
	lines    chan []byte
	dropped  atomic.Int64
	repeated *repeatedLines
	once     sync.Once
	closing  chan struct{}
	done     chan struct{}
}

// newLogWriter makes a logWriter. End ends it.
func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{
		to: to, lines: make(chan []byte, logLines), repeated: &repeatedLines{seen: make(map[string]*repeatedLine)},
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// Write implements io.Writer. It never waits, and never fails.
func (w *logWriter) Write(p []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(p):
	default:
		w.dropped.Add(1)
	}
	return len(p), nil
}

func (w *logWriter) run() {
	defer close(w.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line := <-w.lines:
			w.write(line)
		case now := <-tick.C:
			w.repeated.tell(now)
		case <-w.closing:
			w.repeated.tell(time.Now().Add(logEvery))
			for {
				select {
				case line := <-w.lines:
					w.write(line)
				default:
					return
				}
			}
		}
	}
}

func (w *logWriter) write(line []byte) {
	if n := w.dropped.Load(); n > 0 {
		var note bytes.Buffer
		slog.New(slog.NewTextHandler(&note, nil)).Warn("nobody read the log: lines are missing here", "lines", n)
		if _, err := w.to.Write(note.Bytes()); err == nil {
			w.dropped.Add(-n)
		}
	}
	if _, err := w.to.Write(line); err != nil {
		w.dropped.Add(1)
	}
}

// End waits until the lines are written, but at most for logGrace, so that a log without
// a reader does not keep the program from ending.
func (w *logWriter) End() {
	w.once.Do(func() { close(w.closing) })
	select {
	case <-w.done:
	case <-time.After(logGrace):
	}
}

// repeated is a handler that logs a repeating warning or error once, and then every
// logEvery with the number of repetitions.
type repeated struct {
	handler slog.Handler
	lines   *repeatedLines
	with    string // attributes
}

// Enabled implements slog.Handler.
func (h repeated) Enabled(ctx context.Context, level slog.Level) bool {
	return h.handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h repeated) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.lines.again(h, r) {
		return nil
	}
	return h.handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h repeated) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.handler, h.with = h.handler.WithAttrs(attrs), h.with+fmt.Sprint(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h repeated) WithGroup(name string) slog.Handler {
	h.handler, h.with = h.handler.WithGroup(name), h.with+name+"."
	return h
}

// repeatedLines are the warnings and errors of the last logEvery.
type repeatedLines struct {
	mu   sync.Mutex
	seen map[string]*repeatedLine
}

type repeatedLine struct {
	since   time.Time // when it was last logged
	count   int       // repetitions since then
	last    slog.Record
	handler slog.Handler
}

// again tells whether a line was logged within the last logEvery. If so, it counts it.
func (l *repeatedLines) again(h repeated, r slog.Record) bool {
	line := r.Level.String() + " " + r.Message
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) < maxRepeated { // otherwise there are too many variants: ignore the attributes
		line += h.with
		r.Attrs(func(a slog.Attr) bool {
			line += " " + a.String()
			return true
		})
	}
	one := l.seen[line]
	if one == nil {
		l.seen[line] = &repeatedLine{since: r.Time}
		return false
	}
	one.count++
	one.last, one.handler = r.Clone(), h.handler
	return true
}

// tell logs the lines that have repeated.
func (l *repeatedLines) tell(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, one := range l.seen {
		switch {
		case now.Sub(one.since) < logEvery:
		case one.count == 0:
			delete(l.seen, line)
		default:
			one.last.AddAttrs(slog.Int("times", one.count))
			_ = one.handler.Handle(context.Background(), one.last) // it goes to a logWriter
			one.since, one.count = now, 0
		}
	}
}
