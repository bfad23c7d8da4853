package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// watchedVariable starts this program as another one, whose calls of the kernel that change
// files wait until the test has seen them. Unlike a preloaded library, the test also sees
// the calls that Go makes itself, and no program knows that it is watched.
const watchedVariable = "TRIPHAMMER_TEST_WATCHED"

// diskCall is what a watched program asks of the kernel.
type diskCall struct {
	what     string // write, truncate, sync, create, rename, link, remove; answer: a sender is told of its delivery
	path, to string // below the folder
	at       int64  // where a write begins; the length after truncate
	data     []byte // of a write; of an answer, the id of the delivery
	failed   bool   // a sync that was refused: the disk has dropped what it was to confirm
}

// verdict is what becomes of a call. The zero value: it is made.
type verdict struct {
	errno   unix.Errno
	most    int  // of a write: no more bytes than that; 0: all
	kill    bool // the program ends before the call
	pretend bool // the program is told that a write was made
}

// watcher sees the calls of a program and its children that concern a folder.
type watcher struct {
	t      testing.TB
	dir    string
	decide func(c *diskCall) verdict // on one goroutine; nil: every call is made
	total  uint64                    // size of the disk that the program sees, in bytes; 0: the real one

	pid   int // of the program
	ended chan struct{}

	mu     sync.Mutex
	record bool
	calls  []diskCall
}

// notification and its response are struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// callsOf are the numbers of calls that only some machines have.
var callsOf = map[string]map[int32]string{"amd64": {2: "open", 82: "rename", 86: "link", 87: "unlink"}}

// watch makes a command a watched one. It is not started yet.
func (x *watcher) watch(cmd *exec.Cmd) {
	x.t.Helper()
	self, err := os.Executable()
	if err != nil {
		x.t.Fatal(err)
	}
	if x.dir, err = filepath.EvalSymlinks(x.dir); err != nil {
		x.t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "watched")
	cmd.Args = append([]string{self, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = self, []*os.File{theirs}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, watchedVariable+"=1")
	x.ended = make(chan struct{})
	go func() {
		defer close(x.ended)
		defer func() { _ = theirs.Close() }()
		listener, pid, err := receive(pair[0])
		_ = unix.Close(pair[0])
		if err != nil {
			x.t.Errorf("the program does not become a watched one: %v", err)
			return
		}
		defer func() { _ = unix.Close(listener) }()
		x.pid = pid // cmd.Process may not be set yet
		x.serve(listener)
	}()
}

// receive takes the listener of a filter, and the id of the process that sends it, from a socket.
func receive(socket int) (listener, pid int, err error) {
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		return -1, 0, err
	}
	sender, control := make([]byte, 20), make([]byte, unix.CmsgSpace(4))
	digits, n, err := 0, 0, error(unix.EINTR)
	for err == unix.EINTR {
		digits, n, _, _, err = unix.Recvmsg(socket, sender, control, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return -1, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return -1, 0, fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, 0, err
	}
	pid, err = strconv.Atoi(string(sender[:digits]))
	return fds[0], pid, err
}

// becomeWatched is what a watched program is at first: it sends the listener of its filter to
// the test through descriptor 3, and becomes the program of its arguments.
func becomeWatched() error {
	runtime.LockOSThread()
	const (
		number   = 0
		argument = 16
		created  = unix.O_CREAT | unix.O_TRUNC
	)
	notify := bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: number, Size: 4}}
	on := func(nr uint32) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: 1}, notify)
	}
	opens := func(nr uint32, flags uint32) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: 4},
			bpf.LoadAbsolute{Off: argument + 8*flags, Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: created, SkipFalse: 1},
			notify, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	}
	for _, nr := range []uint32{
		unix.SYS_PWRITE64, unix.SYS_WRITE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE,
		unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_STATFS,
	} {
		on(nr)
	}
	opens(unix.SYS_OPENAT, 2)
	for nr, name := range callsOf[runtime.GOARCH] {
		if name == "open" {
			opens(uint32(nr), 1)
		} else {
			on(uint32(nr))
		}
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	list := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&list)))
	if errno != 0 {
		return errno
	}
	if err := unix.Sendmsg(3, []byte(strconv.Itoa(os.Getpid())), unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(3)
	if err := os.Unsetenv(watchedVariable); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// serve answers the calls until the program and its children have ended.
func (x *watcher) serve(listener int) {
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR || poll[0].Revents&unix.POLLHUP != 0 {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			continue
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the thread has ended meanwhile
		}
		r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if x.answer(&n, &r) {
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r))) // or it has ended
		}
	}
}

// answer fills the response to a call, and tells whether there is one.
func (x *watcher) answer(n *notification, r *response) bool {
	if n.nr == unix.SYS_STATFS {
		x.measure(n, r)
		return true
	}
	c, ok := x.look(n)
	if !ok {
		return true
	}
	var v verdict
	if x.decide != nil && c.what != "answer" {
		v = x.decide(&c)
	}
	switch {
	case v.kill:
		_ = unix.Kill(x.pid, unix.SIGKILL) // it may have ended
		return false
	case v.errno != 0:
		r.errno, r.flags = -int32(v.errno), 0
		if c.failed = true; c.what != "sync" {
			return true
		}
	case v.pretend:
		r.val, r.flags = int64(len(c.data)), 0
		return true
	case c.what == "write" && v.most > 0 && v.most < len(c.data):
		c.data = c.data[:v.most]
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(c.data, c.at)
			_ = f.Close()
		}
		if err != nil {
			x.t.Errorf("a short write of %s: %v", c.path, err)
		}
		r.val, r.flags = int64(v.most), 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.record {
		x.calls = append(x.calls, c)
	}
	return true
}

// measure answers how large the disk is.
func (x *watcher) measure(n *notification, r *response) {
	if x.total == 0 {
		return
	}
	const block = 4096
	st := unix.Statfs_t{Bsize: block, Frsize: block, Blocks: x.total / block, Bfree: x.total / block * 9 / 10, Bavail: x.total / block * 9 / 10}
	of := unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st))
	local := unix.Iovec{Base: &of[0]}
	local.SetLen(len(of))
	if _, err := unix.ProcessVMWritev(int(n.pid), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(n.args[1]), Len: len(of)}}, 0); err == nil {
		r.flags = 0
	}
}

// look says what a call does. It is not ok if that is of no interest.
func (x *watcher) look(n *notification) (c diskCall, ok bool) {
	switch a := n.args; n.nr {
	case unix.SYS_PWRITE64:
		c.what, c.path, c.at = "write", x.open(n, a[0]), int64(a[3])
		if ok = x.below(&c.path); ok {
			c.data = memory(n.pid, a[1], a[2])
		}
	case unix.SYS_WRITE:
		c.what, c.path = "write", x.open(n, a[0])
		if strings.HasPrefix(c.path, "socket:") {
			const head = `"delivery_id":"`
			c.what, c.data = "answer", memory(n.pid, a[1], min(a[2], 4096))
			_, id, told := bytes.Cut(c.data, []byte(head))
			if end := bytes.IndexByte(id, '"'); told && end > 0 && bytes.HasPrefix(c.data, []byte("HTTP/1.1 202")) {
				c.path, c.data = "", id[:end]
				return c, true
			}
			return c, false
		}
		if ok = x.below(&c.path); ok {
			c.data, c.at = memory(n.pid, a[1], a[2]), position(n, a[0])
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		c.what, c.path = "sync", x.open(n, a[0])
		ok = x.below(&c.path)
	case unix.SYS_FTRUNCATE:
		c.what, c.path, c.at = "truncate", x.open(n, a[0]), int64(a[1])
		ok = x.below(&c.path)
	case unix.SYS_OPENAT:
		c.what, c.path, c.at = "create", x.at(n, a[0], a[1]), int64(a[2]&unix.O_TRUNC)
		ok = x.below(&c.path)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		c.what, c.path, c.to = "rename", x.at(n, a[0], a[1]), x.at(n, a[2], a[3])
		ok = x.below(&c.path) && x.below(&c.to)
	case unix.SYS_LINKAT:
		c.what, c.path, c.to = "link", x.at(n, a[0], a[1]), x.at(n, a[2], a[3])
		ok = x.below(&c.path) && x.below(&c.to)
	case unix.SYS_UNLINKAT:
		c.what, c.path = "remove", x.at(n, a[0], a[1])
		ok = x.below(&c.path)
	default:
		const here = uint64(1<<64 - 100) // AT_FDCWD
		switch name := callsOf[runtime.GOARCH][n.nr]; name {
		case "open":
			c.what, c.path, c.at = "create", x.at(n, here, a[0]), int64(a[1]&unix.O_TRUNC)
		case "rename", "link":
			c.what, c.path, c.to = name, x.at(n, here, a[0]), x.at(n, here, a[1])
		case "unlink":
			c.what, c.path = "remove", x.at(n, here, a[0])
		}
		ok = x.below(&c.path) && (c.to == "" || x.below(&c.to))
	}
	return c, ok
}

// below makes a path one below the folder, if it is there.
func (x *watcher) below(path *string) bool {
	rest, ok := strings.CutPrefix(*path, x.dir)
	if !ok || rest != "" && rest[0] != '/' || strings.HasSuffix(rest, " (deleted)") {
		return false
	}
	*path = strings.TrimPrefix(rest, "/")
	return true
}

// open is the path of what a program has open.
func (x *watcher) open(n *notification, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(fd))) // or it has ended
	return path
}

// at is the path of a name that a program gives the kernel.
func (x *watcher) at(n *notification, folder, name uint64) string {
	text := string(memory(n.pid, name, 4096-name%4096))
	text, _, whole := strings.Cut(text, "\x00")
	if !whole { // it goes on in the next page
		rest, _, _ := strings.Cut(string(memory(n.pid, name+uint64(len(text)), 4096)), "\x00")
		text += rest
	}
	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	of := fmt.Sprintf("/proc/%d/cwd", n.pid)
	if int32(folder) != unix.AT_FDCWD {
		of = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(folder))
	}
	base, _ := os.Readlink(of)
	return filepath.Join(base, text)
}

// position is where the next write to a descriptor begins.
func position(n *notification, fd uint64) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", n.pid, int32(fd)))
	at, append := int64(0), false
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "pos":
			at, _ = strconv.ParseInt(value, 10, 64)
		case "flags":
			flags, _ := strconv.ParseInt(value, 8, 64)
			append = flags&unix.O_APPEND != 0
		}
	}
	if append {
		if info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(fd))); err == nil {
			at = info.Size()
		}
	}
	return at
}

// memory reads the memory of a program.
func memory(pid uint32, from, n uint64) []byte {
	if n == 0 {
		return nil
	}
	data := make([]byte, n)
	local := unix.Iovec{Base: &data[0]}
	local.SetLen(len(data))
	read, err := unix.ProcessVMReadv(int(pid), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(from), Len: int(n)}}, 0)
	if err != nil {
		return nil
	}
	return data[:read]
}
