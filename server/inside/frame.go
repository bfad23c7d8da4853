package inside

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"triphammer/schema/output"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// The server talks to a supervisor over its standard input and output, so that the same
// supervisor works as a process here and in a container. The input has orders, each a JSON
// value; when the input ends, the server is gone. The output has frames: a type, a length and
// that number of bytes. All events and artifacts of a run share the output, so they stay in
// order.

// Order is a request of the server to the supervisor. One field is set.
type Order struct {
	Confine   *Confinement `json:"confine,omitempty"`   // the first
	Job       *Job         `json:"job,omitempty"`       // the second
	Interrupt bool         `json:"interrupt,omitempty"` // SIGINT to the process group of the step in progress
	Kill      bool         `json:"kill,omitempty"`      // SIGKILL to everything
	Live      int64        `json:"live_ms,omitempty"`   // milliseconds until everything of the run must be dead, unless another such order comes before
}

// Job is everything that a supervisor must know of an attempt. It holds secrets, so it goes
// over a pipe and never onto a command line.
type Job struct {
	Root         string            `json:"root"`             // path of the run's folder inside the walls
	Resume       bool              `json:"resume,omitempty"` // go on in the folder as it is
	Env          []string          `json:"env"`
	Prompt       string            `json:"prompt"`
	Skills       []task.AskedSkill `json:"skills,omitempty"`
	Attachments  []task.Attachment `json:"attachments,omitempty"`
	Files        []task.File       `json:"files,omitempty"`
	Repositories []task.Repository `json:"repositories,omitempty"`
	Trusted      []string          `json:"trusted,omitempty"` // repositories that are folders of this machine
	Foreign      bool              `json:"foreign,omitempty"` // as in the task
	Instructions []string          `json:"instructions,omitempty"`
	Withheld     []string          `json:"withheld,omitempty"` // variables that only the agent gets, not the commands before it
	Setup        []string          `json:"setup,omitempty"`
	Cache        *Cache            `json:"cache,omitempty"`   // of the setup
	Outputs      output.Allowed    `json:"outputs,omitempty"` // what the agent may ask the server to do
	Forwards     []Forward         `json:"forwards,omitempty"`
	GitSettings  string            `json:"git_settings,omitempty"` // lines of a file of settings
	Command      []string          `json:"command"`
	This         string            `json:"this,omitempty"` // what task.ThisProgram means; empty: the program of the supervisor

	// Inherit tells that the supervisor was started with the variables of an image, to which
	// the run's own variables are added.
	Inherit bool   `json:"inherit,omitempty"`
	Image   string `json:"image,omitempty"`   // name of the image; empty: there is none, or it is not known
	Program string `json:"program,omitempty"` // the program that Command starts, if it is not the first word
	Tools   Tools  `json:"tools,omitempty"`   // of the server's machine
	Offline bool   `json:"offline,omitempty"` // there must be no network
	Bounded bool   `json:"bounded,omitempty"` // the supervisor's cgroup has the limits of the run
}

// Ending is how an attempt ended.
type Ending struct {
	Code   int    `json:"code"`             // -1 if a signal ended the agent
	Signal string `json:"signal,omitempty"` // name of the signal
	Error  string `json:"error,omitempty"`  // why the agent did not run to its end; for the user
	Cut    bool   `json:"cut,omitempty"`    // the attempt ended after an order to stop
	Said   string `json:"said,omitempty"`   // last line on the agent's standard error
	Final  bool   `json:"final,omitempty"`  // every further attempt would end with the same Error

	// Exceeded tells which limits of its cgroup a bounded job has reached.
	Exceeded limits.Exceeded `json:"exceeded,omitzero"`
}

// Types of frames.
const (
	FrameStdout   = 'o'
	FrameStderr   = 'e'
	FrameEvent    = 'v' // a ToldEvent
	FrameArtifact = 'a' // an event.Artifact, or of the way out of a pod the pack of a push that waits; its content follows
	FrameContent  = 'd' // of the artifact
	FrameWhole    = 'w' // the artifact is complete
	FrameEnd      = 'x' // an Ending
	FrameCounted  = 'c' // a task.Counted, of the way out of a pod
	FrameCache    = 'k' // a part of an archive of the cache
	FrameCached   = 'K' // the key of an archive that was used, or is complete
)

// ToldEvent is an event of a transcript on its way to the server.
type ToldEvent struct {
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

const (
	frameHeader = 5
	// MaxFrame is the largest length that the server accepts.
	MaxFrame = 4 << 20
)

// FrameWriter writes frames; it is safe for concurrent use.
type FrameWriter struct {
	mu sync.Mutex
	W  io.Writer
}

func (f *FrameWriter) write(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := make([]byte, frameHeader, frameHeader+len(data))
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(data)))
	_, err := f.W.Write(append(header, data...))
	return err
}

// Tell writes a frame of JSON.
func (f *FrameWriter) Tell(kind byte, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.write(kind, data)
}

// Artifact sends an artifact with its content, or with the part of the content that could be read.
func (f *FrameWriter) Artifact(a event.Artifact, content io.Reader) error {
	err := f.Tell(FrameArtifact, a)
	for buf := make([]byte, 64<<10); err == nil; {
		n, readErr := content.Read(buf)
		if n > 0 {
			err = f.write(FrameContent, buf[:n])
		}
		if readErr != nil && err == nil {
			err = f.write(FrameWhole, nil)
			if !errors.Is(readErr, io.EOF) {
				err = errors.Join(readErr, err)
			}
			break
		}
	}
	return err
}

// ReadFrame reads one frame. A clean end is io.EOF.
func ReadFrame(r io.Reader) (kind byte, data []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is more than a supervisor sends", n)
	}
	data = make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("a frame was cut off: %w", err)
	}
	return header[0], data, nil
}
