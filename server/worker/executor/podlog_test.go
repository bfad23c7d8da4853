package executor

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"triphammer/server/inside"
	"triphammer/server/run/event"
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
