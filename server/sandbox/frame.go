package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// The server talks to a supervisor over two pipes. On one it sends orders, each a JSON
// value; when that pipe ends, the server is gone. On the other the supervisor sends
// frames: a type, a length and as many bytes. Output and the ends of steps share that
// pipe, so that they stay in order.

// order is a request of the server to the supervisor. One field is set.
type order struct {
	Run       *step `json:"run,omitempty"`
	Interrupt bool  `json:"interrupt,omitempty"` // SIGINT to the step's process group
	Kill      bool  `json:"kill,omitempty"`      // SIGKILL to everything
}

// step is a command to run.
type step struct {
	Path  string   `json:"path"` // of the program
	Argv  []string `json:"argv"`
	Dir   string   `json:"dir"`
	Env   []string `json:"env"`
	Stdin string   `json:"stdin,omitempty"` // file; empty: nothing to read
	Last  bool     `json:"last,omitempty"`  // no process may outlive it
}

// end is how a step ended.
type end struct {
	Code    int    `json:"code"`             // -1 if a signal ended it
	Signal  string `json:"signal,omitempty"` // its name
	Error   string `json:"error,omitempty"`  // the step could not be started
	Stopped bool   `json:"-"`                // the server ordered it to stop
}

// Types of frames.
const (
	frameStdout = 'o'
	frameStderr = 'e'
	frameEnd    = 'x' // an end as JSON
)

const (
	frameHeader = 5
	// maxFrame is the largest length that the server accepts.
	maxFrame = 1 << 20
)

// frameWriter writes frames; it is safe for concurrent use.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frameWriter) write(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := make([]byte, frameHeader, frameHeader+len(data))
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(data)))
	_, err := f.w.Write(append(header, data...))
	return err
}

// readFrame reads one frame. A clean end is io.EOF.
func readFrame(r io.Reader) (kind byte, data []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is more than a supervisor sends", n)
	}
	data = make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("a frame was cut off: %w", err)
	}
	return header[0], data, nil
}

func decodeEnd(data []byte) (end, error) {
	var e end
	if err := json.Unmarshal(data, &e); err != nil {
		return end{}, fmt.Errorf("reading how a step ended: %w", err)
	}
	return e, nil
}
