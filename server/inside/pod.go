package inside

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PodJob is the input of a supervisor in a pod.
type PodJob struct {
	Key     []byte        `json:"key"`
	Grace   time.Duration `json:"grace"`
	Job     Job           `json:"job"`
	Limited bool          `json:"limited,omitempty"` // the run reaches only Ports
	Ports   []uint16      `json:"ports,omitempty"`
	Wait    []string      `json:"wait,omitempty"` // addresses that must answer before the job begins
}

// Unpack reads the compressed JSON of a file into a value.
func Unpack(file string, to any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(to)
}

// place copies this program to the file, and beside it git and the program of the agent if this
// image has them, because the image of the run may lack them.
func place(file, program string) int {
	if err := CopyTool(Self, file); err != nil {
		return Said(err)
	}
	t, err := MakeTools(filepath.Dir(file), os.Getenv("PATH"))
	if err == nil {
		err = t.place(program, os.Getenv("PATH"))
	}
	if err != nil {
		_ = Said(err) // no failure, because the image of the run may have the programs
	}
	return 0
}

// supervisePod executes the job of the file in the folder, and returns the exit status. The
// status is 0 if the job's end is reported, whatever the end.
func supervisePod(file, dir string) int {
	var p PodJob
	if err := Unpack(file, &p); err != nil {
		return Said(fmt.Errorf("the job of the run cannot be read: %w", err))
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM, syscall.SIGINT)
	orders, give := io.Pipe()
	ended := make(chan struct{})
	report, err := NewLineWriter(os.Stdout, p.Key, func(kind byte) {
		if kind == FrameEnd {
			close(ended)
		}
	})
	if err != nil {
		return Said(fmt.Errorf("the report of the run cannot be written: %w", err))
	}
	if err := p.waitForWayOut(terms); err != nil {
		return Said(err)
	}
	confine, err := p.confine(file, dir)
	if err != nil {
		return Said(err)
	}
	p.settle(Folder{dir})
	go func() {
		defer func() { _ = give.Close() }()
		tell := json.NewEncoder(give)
		_ = tell.Encode(Order{Job: &p.Job}) // supervise reads to the end
		for next := (Order{Interrupt: true}); ; next = (Order{Kill: true}) {
			var wait <-chan time.Time
			if next.Kill {
				wait = time.After(p.Grace)
			}
			for asked := false; !asked; {
				select {
				case <-ended:
					return
				case <-terms:
					asked = next.Interrupt // a second interrupt changes nothing
				case <-wait:
					asked = true
				}
			}
			_ = tell.Encode(next)
			if next.Kill {
				<-ended
				return
			}
		}
	}()
	return supervise(confine, report, orders)
}

// settle completes the job with values that only the pod knows.
func (p *PodJob) settle(f Folder) {
	p.Job.Root = f.Root
	if program, err := os.Executable(); err == nil {
		p.Job.Tools = Tools(filepath.Dir(program) + toolsFolder)
	}
}

// confine is the Confinement of the supervisor. The run may read everything in its image, but
// not the job.
func (p *PodJob) confine(file, dir string) (Confinement, error) {
	if err := os.MkdirAll(Folder{dir}.Temp(), 0o700); err != nil {
		return Confinement{}, fmt.Errorf("making the folder of the run: %w", err)
	}
	c := Elsewhere()
	c.Read = visible("/", filepath.Dir(file))
	c.Write = append(slices.DeleteFunc(slices.Clone(c.Read), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	}), dir)
	if p.Limited {
		if v := LandlockVersion(); v < landlockPorts {
			return c, fmt.Errorf("the network of this run is to be limited, which the kernel of its node cannot do: "+
				"Landlock has version %d there, and this takes version %d (Linux 6.7)", v, landlockPorts)
		}
		c.Limited, c.Ports = true, p.Ports
	}
	return c, nil
}

// visible are the entries of dir, without the hidden path.
func visible(dir, hidden string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, entry := range entries {
		switch path := filepath.Join(dir, entry.Name()); {
		case path == hidden:
		case strings.HasPrefix(hidden, path+"/"):
			all = append(all, visible(path, hidden)...)
		default:
			all = append(all, path)
		}
	}
	return all
}

// wayOutTime is how long the way out may take to begin.
const wayOutTime = 30 * time.Second

// waitForWayOut waits until the other container serves.
func (p *PodJob) waitForWayOut(stop <-chan os.Signal) error {
	deadline := time.Now().Add(wayOutTime)
	for _, address := range p.Wait {
		for {
			c, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the way out of the run does not answer: %w", err)
			}
			select {
			case <-stop:
				return errors.New("the pod was ended before its run began")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

const (
	// LineMark begins each line of a report.
	LineMark = "triphammer "
	// maxPiece keeps a line shorter than 16 KiB, because container runtimes split longer lines.
	maxPiece = 8 << 10
	// SaltSize is the length of the salt in the first line, in bytes.
	SaltSize = 16
)

// LineSealer seals the lines of one pod.
func LineSealer(key, salt []byte) (cipher.AEAD, error) {
	own, err := hkdf.Key(sha256.New, key, salt, "the report of a run", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// LineNonce is the nonce of the line with the number.
func LineNonce(number uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), number)
}

// LineWriter writes frames as lines.
type LineWriter struct {
	w      io.Writer
	seal   cipher.AEAD
	number uint64
	frame  func(kind byte) // called after each frame; may be nil
}

// NewLineWriter begins a report that is sealed with the key. frame is called after each frame; it may be nil.
func NewLineWriter(w io.Writer, key []byte, frame func(kind byte)) (*LineWriter, error) {
	salt := make([]byte, SaltSize)
	_, _ = rand.Read(salt) // it never fails
	seal, err := LineSealer(key, salt)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(w, "%s0 %s\n", LineMark, base64.RawStdEncoding.EncodeToString(salt))
	return &LineWriter{w: w, seal: seal, frame: frame}, err
}

// Write takes one whole frame with its header. A FrameWriter calls it, one call at a time.
func (l *LineWriter) Write(p []byte) (int, error) {
	kind, rest := p[0], p[frameHeader:]
	for more := true; more; {
		piece := rest[:min(len(rest), maxPiece)]
		rest = rest[len(piece):]
		more = len(rest) > 0
		l.number++
		flag := byte('.')
		if more {
			flag = '+'
		}
		sealed := l.seal.Seal(nil, LineNonce(l.number), append([]byte{kind, flag}, piece...), nil)
		line := append(strconv.AppendUint([]byte(LineMark), l.number, 10), ' ')
		line = append(base64.RawStdEncoding.AppendEncode(line, sealed), '\n')
		if _, err := l.w.Write(line); err != nil {
			return 0, err
		}
	}
	if l.frame != nil {
		l.frame(kind)
	}
	return len(p), nil
}

// First arguments after SuperviseCommand in the containers of a pod, with their further arguments.
const (
	PodPlace = "place" // FILE PROGRAM: copy this program to the file, and git and the agent's program beside it
	PodRun   = "pod"   // FILE FOLDER: execute the job of the file in the folder
)
