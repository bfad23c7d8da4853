//go:build linux

package term

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// worked is what somebody sees at a terminal of some columns, or without any in a file, of work
// that lasts so long.
func worked(t *testing.T, columns uint16, c *cobra.Command, lasts time.Duration, ask func(context.Context) string) string {
	t.Helper()
	during := func(c *cobra.Command) error {
		synctest.Test(t, func(t *testing.T) {
			c.SetContext(t.Context())
			p := ShowProgress(c, "opening", ask)
			defer p.End()
			time.Sleep(lasts / 2)
			p.Counted("runs", 1, 2)
			time.Sleep(lasts / 2)
			p.End()
			fmt.Fprintln(c.ErrOrStderr(), "done")
		})
		return nil
	}
	if columns > 0 {
		return onTerminal(t, columns, during)
	}
	var file bytes.Buffer
	c.SetErr(&file)
	_ = during(c)
	return file.String()
}

// TestProgress: on a terminal, work that lasts has one line, which is gone at the end. Nobody
// sees anything of short work, and others have a line now and then.
func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	const lines = "opening, 10 s\nruns: 1 of 2, 20 s\ndone\n"
	file, program := &cobra.Command{}, &cobra.Command{}
	OutputFlag(program)
	if err := program.Flags().Set("output", "json"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		where   string
		columns uint16
		c       *cobra.Command
		lasts   time.Duration
		want    string
	}{
		{"a terminal", 80, nil, 290 * time.Millisecond, "done\n"},
		{"a terminal", 80, nil, time.Second, "\ropening\rruns: 1 of 2\rruns: 1 of 2\r" + strings.Repeat(" ", len("runs: 1 of 2")) + "\rdone\n"},
		{"a file", 0, file, 9 * time.Second, "done\n"},
		{"a file", 0, file, 25 * time.Second, lines},
		{"a file with JSON", 0, program, 25 * time.Second, "done\n"},
	} {
		if got := worked(t, tt.columns, tt.c, tt.lasts, nil); got != tt.want {
			t.Errorf("%v, %s: %q, not %q", tt.lasts, tt.where, got, tt.want)
		}
	}

	// What others wrote stays text on one line, which is not longer than the terminal is wide.
	hostile := func(context.Context) string {
		return "it says:\x1b[2J\nCompressing 修复登录页面，返回的用户什么也看不到"
	}
	got := strings.TrimSuffix(worked(t, 30, nil, 2*time.Second, hostile), "done\n")
	if strings.ContainsAny(got, "\x1b\n") || !strings.Contains(got, "\rit says:") || !strings.Contains(got, ", 1 s") {
		t.Errorf("it shows %q", got)
	}
	for line := range strings.SplitSeq(got, "\r") {
		if n := columns(line); n > 29 {
			t.Errorf("%d columns of 30: %q", n, line)
		}
	}

	t.Setenv("TERM", "dumb") // it cannot write over a line
	if got := worked(t, 80, nil, 25*time.Second, nil); got != lines {
		t.Errorf("a dumb terminal: %q, not %q", got, lines)
	}
}

// TestProgressIsNotWaitedFor: who asks how far the work is does not keep it from ending.
func TestProgressIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetErr(io.Discard)
		asked := make(chan struct{})
		p := ShowProgress(c, "work", func(ctx context.Context) string {
			close(asked)
			<-ctx.Done()
			return "late"
		})
		<-asked
		began := time.Now()
		p.End()
		if took := time.Since(began); took > 0 {
			t.Errorf("the end came after %v", took)
		}
	})
}
