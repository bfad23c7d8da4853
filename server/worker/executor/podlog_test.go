package executor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"triphammer/schema/output"
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
	}{{NewPodReport, 0}, {func(key []byte, sink task.Sink) *PodReport { return NewPodWayReport(key, sink, nil, nil) }, 1}} {
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

// TestReportOfWaitingPush: the pack of a push that waits for a person comes before the push, which names it by its
// digest. Without the whole pack, nobody is asked (SPEC 23.3).
func TestReportOfWaitingPush(t *testing.T) {
	key, content := []byte("key"), bytes.Repeat([]byte("pack"), 10_000)
	no := errors.New("no room")
	for name, tt := range map[string]struct {
		lost    int // lines of the pack
		refuses error
		other   bool // the push names another pack
	}{"whole": {}, "lost": {lost: 1}, "no room": {refuses: no}, "another": {other: true}} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			lines, err := inside.NewLineWriter(&log, key, nil)
			if err != nil {
				t.Fatal(err)
			}
			frames := &inside.FrameWriter{W: lines}
			pack, err := stageTo(frames)(t.Context(), bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if tt.other {
				pack.SHA256 = strings.Repeat("0", 64)
			}
			text, _ := json.Marshal(output.Request{Kind: output.PushKind, Push: &output.Push{Ref: "refs/heads/x", Pack: pack}}) // texts always encode
			told, err := inside.Encode(event.Push{Ref: "refs/heads/x", New: "1", Waits: string(text)})
			if err == nil {
				err = frames.Tell(inside.FrameEvent, told)
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []event.Push
			stage := func(_ context.Context, from io.Reader) (output.Pack, error) {
				all, err := io.ReadAll(from)
				if err == nil && !bytes.Equal(all, content) {
					t.Errorf("%d bytes arrive of %d", len(all), len(content))
				}
				sum := sha256.Sum256(all)
				return output.Pack{Artifact: "art_1", SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(all))}, errors.Join(err, tt.refuses)
			}
			report := NewPodWayReport(key, adding(func(e event.Event) {
				if p, ok := e.(event.Push); ok {
					got = append(got, p)
				}
			}), nil, stage)
			defer report.Close(nil)
			for i, line := range bytes.Split(bytes.TrimSpace(log.Bytes()), []byte("\n")) {
				if i > 2 && i <= 2+tt.lost {
					continue
				}
				if err := report.Line(line); err != nil {
					t.Fatal(err)
				}
			}
			kept := name == "whole"
			if len(got) != 1 || (got[0].Refused == "") != kept || (got[0].Waits != "") != kept {
				t.Fatalf("%+v", got)
			}
			if kept && !strings.Contains(got[0].Waits, `"pack":{"artifact":"art_1","sha256":"`+pack.SHA256+`","bytes":40000}`) {
				t.Errorf("%s", got[0].Waits)
			}
		})
	}
}
