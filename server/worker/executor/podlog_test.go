package executor

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// TestReportOfRestart: the way out is started again if it ends, and what it reports then counts
// too; read again after a broken connection, each line counts once.
func TestReportOfRestart(t *testing.T) {
	key := []byte("key")
	var hosts []string
	report := NewPodReport(key, adding(func(e event.Event) { hosts = append(hosts, e.(event.Egress).Host) }))
	defer report.Close(nil)
	var want []string
	for start := range 3 {
		var log bytes.Buffer
		lines, err := inside.NewLineWriter(&log, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		frames := &inside.FrameWriter{W: lines}
		for i := range 3 - start {
			host := fmt.Sprintf("host-%d-%d", start, i)
			want = append(want, host)
			told, err := inside.Encode(event.Egress{Host: host})
			if err == nil {
				err = frames.Tell(inside.FrameEvent, told)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for line := range bytes.Lines(log.Bytes()) {
				if err := report.Line(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !slices.Equal(hosts, want) {
		t.Errorf("it tells of %v, and not of %v", hosts, want)
	}
}

// TestReportOfPush: only the way out of a pod says what was pushed, because later runs may replace it.
func TestReportOfPush(t *testing.T) {
	key := []byte("key")
	var log bytes.Buffer
	lines, err := inside.NewLineWriter(&log, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	told, err := inside.Encode(event.Push{Ref: "refs/heads/x", New: "1"})
	if err == nil {
		err = (&inside.FrameWriter{W: lines}).Tell(inside.FrameEvent, told)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		report func([]byte, task.Sink) *PodReport
		want   int
	}{{NewPodReport, 0}, {func(key []byte, sink task.Sink) *PodReport { return NewPodWayReport(key, sink, nil) }, 1}} {
		got := 0
		report := tt.report(key, adding(func(event.Event) { got++ }))
		for line := range bytes.Lines(log.Bytes()) {
			if err := report.Line(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				t.Fatal(err)
			}
		}
		report.Close(nil)
		if got != tt.want {
			t.Errorf("%d pushes were told, want %d", got, tt.want)
		}
	}
}
