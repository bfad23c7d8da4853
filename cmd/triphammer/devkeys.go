//go:build linux && !client

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keyboard takes single keys from a terminal. Output and Ctrl-C stay as they are.
type keyboard struct {
	fd          int
	was, single unix.Termios // without and with single keys
	keeper      io.WriteCloser

	mu    sync.Mutex
	taken bool // the terminal gives single keys
	ended bool // it was given back for good
}

// suspend is the key that stops a job, so that the shell is back: Ctrl-Z.
const suspend = 0x1a

// openKeyboard takes keys from f; nil if it is no terminal, or that of another job.
func openKeyboard(f *os.File) *keyboard {
	k := &keyboard{fd: int(f.Fd())}
	was, err := unix.IoctlGetTermios(k.fd, unix.TCGETS)
	if err != nil || !k.ours() {
		return nil
	}
	k.was, k.single = *was, *was
	k.single.Lflag &^= unix.ICANON | unix.ECHO
	k.single.Cc[unix.VMIN], k.single.Cc[unix.VTIME] = 1, 0
	k.single.Cc[unix.VSUSP] = 0 // it comes as a key, so that the terminal is given back first
	if k.keeper, err = startKeeper(f, k.was, k.single); err != nil {
		return nil // without keys, nothing can go wrong
	}
	k.take()
	return k
}

// ours tells whether this process may use the terminal. A job in the background would be
// stopped.
func (k *keyboard) ours() bool {
	group, err := unix.IoctlGetInt(k.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// take makes the terminal give single keys.
func (k *keyboard) take() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.taken && !k.ended && k.ours() {
		k.taken = unix.IoctlSetTermios(k.fd, unix.TCSETS, &k.single) == nil
	}
}

// release gives the terminal back as it was, until take.
func (k *keyboard) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken && k.ours() {
		_ = unix.IoctlSetTermios(k.fd, unix.TCSETS, &k.was)
	}
	k.taken = false
}

// restore gives the terminal back for good.
func (k *keyboard) restore() {
	k.release()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		_ = debug.SetCrashOutput(nil, debug.CrashOptions{})
		_, _ = k.keeper.Write([]byte(keeperDone))
		_ = k.keeper.Close()
	}
}

// keys calls pressed for each key until ctx is done.
func (k *keyboard) keys(ctx context.Context, pressed func(key byte)) {
	defer k.restore() // also if pressed panics
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	for ctx.Err() == nil {
		select {
		case <-continued:
			k.release() // whoever used the terminal meanwhile has left it in another way
		default:
		}
		if !k.ours() {
			time.Sleep(100 * time.Millisecond) // in the background, the keys are for others
			continue
		}
		k.take()
		polled := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(polled, 100); n < 1 || err != nil || !k.ours() {
			continue
		}
		var key [1]byte
		if n, err := unix.Read(k.fd, key[:]); err != nil && err != unix.EINTR && err != unix.EAGAIN || n == 0 && err == nil {
			return // the terminal is gone
		} else if n != 1 {
			continue
		}
		if key[0] != suspend {
			pressed(key[0])
			continue
		}
		k.release()
		_ = unix.Kill(0, unix.SIGTSTP) // as the terminal does: all of the job
		select {
		case <-continued:
		case <-time.After(500 * time.Millisecond): // without a shell that could continue it, nothing is stopped
		}
	}
}

// keeperCommand is the process that gives the terminal back if this program ends without having
// done so: by a panic of any part, or killed. It gets the program's crash output, which begins
// before the program ends, and so before a shell looks at the terminal.
const (
	keeperCommand = "__keep-terminal"
	keeperDone    = "done" // no crash output begins with it
)

func startKeeper(terminal *os.File, was, single unix.Termios) (io.WriteCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // the keeper has its own
	modes, err := json.Marshal([]unix.Termios{was, single})
	if err == nil {
		cmd := exec.Command(self, keeperCommand, string(modes))
		cmd.Stdin, cmd.ExtraFiles, cmd.Env = terminal, []*os.File{from}, []string{}
		err = startReady(cmd)
	}
	if err == nil {
		err = debug.SetCrashOutput(to, debug.CrashOptions{})
	}
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	return to, nil
}

// startReady starts the keeper, and waits until no signal ends it.
func startReady(cmd *exec.Cmd) error {
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(ready, make([]byte, 1))
		go func() { _ = cmd.Wait() }()
	}
	return err
}

// keepTerminal is the keeper.
func keepTerminal(args []string) int {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTOU)
	var modes [2]unix.Termios // as it was, and with single keys
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &modes) != nil {
		return exitUsage
	}
	if _, err := os.Stdout.WriteString("."); err != nil { // it is ready
		return exitUsage
	}
	from := os.NewFile(3, "crash output")
	said := make([]byte, len(keeperDone))
	n, _ := io.ReadFull(from, said)
	if string(said[:n]) == keeperDone {
		return 0
	}
	// A shell that uses it by now has its own mode.
	if now, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil && *now == modes[1] {
		_ = unix.IoctlSetTermios(0, unix.TCSETS, &modes[0])
	}
	_, _ = io.Copy(io.Discard, from) // else the program would wait at the end of its report
	return 0
}
