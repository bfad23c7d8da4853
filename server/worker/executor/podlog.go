package executor

import (
	"bytes"
	"context"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"triphammer/schema/output"
	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// A supervisor in a pod reports by the log of its container, because the log outlives a
// broken connection. The report is frames, each in one or more lines:
//
//	triphammer NUMBER TEXT
//
// The lines are numbered from 1 on without a gap. So a reader that reads them again knows
// which lines it has, and which lines the node has thrown away. The text is sealed, for two
// reasons: logs are copied to places that must not get the agent's output, and only a holder
// of the key can write a line that counts. The first line, number 0, has the salt of the
// pod, so that no two pods seal with the same key.

// PodReport reads the report of a container of a pod from the lines of the log. It skips lines
// that it has read before.
type PodReport struct {
	key      []byte
	receiver receiver
	salt     []byte // nil: it is not known yet
	seal     cipher.AEAD
	next     uint64 // number of the next line
	parts    []byte // of a frame that is not complete
	said     lockedBuffer

	mu      sync.Mutex
	end     *inside.Ending
	lost    uint64 // number of lost lines
	printed int64
}

// NewPodReport makes a reader that passes the events and artifacts of the report to the sink.
func NewPodReport(key []byte, sink task.Sink) *PodReport {
	r := &PodReport{key: key}
	r.receiver = receiver{
		sink:    sink,
		printed: func(n int) { r.mu.Lock(); r.printed += int64(n); r.mu.Unlock() },
		end: func(e inside.Ending) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.end == nil {
				r.end = &e
			}
		},
	}
	return r
}

// NewPodWayReport is NewPodReport for the container of the way out. counted takes what it counts, and stage
// (task.Pushes.Stage) the packs of pushes that wait for a person.
func NewPodWayReport(key []byte, sink task.Sink, counted func(task.Counted), stage func(context.Context, io.Reader) (output.Pack, error)) *PodReport {
	r := NewPodReport(key, sink)
	r.receiver.wayOut, r.receiver.counted, r.receiver.stage, r.receiver.packs = true, counted, stage, make(map[string]output.Pack)
	return r
}

// errLine is the error of a line that was not written by the pod's supervisor.
var errLine = errors.New("a line of the report cannot be read: it was changed, or sealed with another key")

// Line takes a whole line of the log, without its end. It keeps a line that is no part of the
// report for Said. The error says that a line was changed or sealed with another key.
func (r *PodReport) Line(line []byte) error {
	rest, ok := bytes.CutPrefix(line, []byte(inside.LineMark))
	if !ok {
		_, _ = r.said.Write(append(bytes.Clone(line), '\n'))
		return nil
	}
	text, sealed, _ := strings.Cut(string(rest), " ")
	number, err := strconv.ParseUint(text, 10, 64)
	data, decodeErr := base64.RawStdEncoding.DecodeString(sealed)
	if err = errors.Join(err, decodeErr); err != nil {
		return errLine
	}
	if number == 0 {
		if len(data) != inside.SaltSize || bytes.Equal(data, r.salt) {
			return nil
		}
		if r.salt != nil { // the container was started again, and its report begins again
			r.parts = nil
			r.receiver.cut(nil)
		}
		r.salt, r.next = data, 1
		r.seal, err = inside.LineSealer(r.key, data)
		return err
	}
	switch {
	case r.seal == nil:
		return errors.New("the beginning of the report is not in the log of the pod any more: the node has thrown it away")
	case number < r.next:
		return nil // the line was read before
	}
	data, err = r.seal.Open(nil, inside.LineNonce(number), data, nil)
	if err != nil || len(data) < 2 {
		return errLine
	}
	if number > r.next {
		r.gap(number - r.next)
	}
	r.next = number + 1
	if r.parts = append(r.parts, data[2:]...); len(r.parts) > inside.MaxFrame {
		return fmt.Errorf("a frame of %d bytes is more than a supervisor sends", len(r.parts))
	}
	if data[1] == '.' {
		frame := r.parts
		r.parts = nil
		r.receiver.take(data[0], frame)
	}
	return nil
}

// gap notes that lines are lost. The frame that they belong to is lost, too.
func (r *PodReport) gap(lines uint64) {
	r.mu.Lock()
	r.lost += lines
	r.mu.Unlock()
	r.parts = nil
	r.receiver.cut(nil)
	r.receiver.sink.Add(event.Status{Message: fmt.Sprintf(
		"warning: %d lines of the report of this run are lost, because its node had thrown them away before they were read", lines)})
}

// Close ends the keeping of artifacts, even while the report is still read. An incomplete
// artifact fails with the cause; nil: it was cut off.
func (r *PodReport) Close(cause error) { r.receiver.close(cause) }

// Printed is how many bytes the agent has printed.
func (r *PodReport) Printed() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.printed
}

// Said is the container's output besides the report, in one line: it may tell why it crashed.
func (r *PodReport) Said() string {
	said, _ := summary(r.said.String())
	return said
}

// Ended tells whether the supervisor has reported the end of the attempt.
func (r *PodReport) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end != nil
}

// PodEnd is the end of an attempt in a pod.
type PodEnd struct {
	Exit   task.Exit
	Err    error // the agent did not run to its end; for the user
	Memory bool  // a process of the attempt was killed for lack of memory
}

// End is the end that the supervisor has reported; false: it has not reported an end.
func (r *PodReport) End() (PodEnd, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.end
	switch {
	case e == nil:
		return PodEnd{}, false
	case e.Error != "" && e.Cut:
		return PodEnd{Exit: task.Exit{Code: -1, Stopped: true}, Err: inside.ErrCut}, true
	case e.Error != "" && e.Final:
		return PodEnd{Err: &task.FinalError{Err: errors.New(e.Error)}, Memory: e.Exceeded.Memory}, true
	case e.Error != "":
		return PodEnd{Err: errors.New(e.Error), Memory: e.Exceeded.Memory}, true
	}
	return PodEnd{Exit: task.Exit{Code: e.Code, Signal: e.Signal, Stopped: e.Cut}, Memory: e.Exceeded.Memory}, true
}
