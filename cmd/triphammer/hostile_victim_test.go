package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The hostile agent of TestHostileAgentEscapes and its victims are this test binary.
const hostileCommand = "__hostile"

// hostileMain is a victim or the hostile agent.
func hostileMain(args []string) int {
	var err error
	switch args[0] {
	case "victim":
		err = beVictim()
	case "standin":
		err = standIn(args[1:])
	case "agent":
		err = beHostile()
	case "outlive":
		err = outlive(args[1])
	case "dial":
		err = dialBystander(args[1])
	case "use":
		err = use(args[1], args[2])
	case "ways":
		err = tryWays(args[1])
	case "kill":
		err = killServer()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0], err)
		return 1
	}
	return 0
}

// victim is what a victim says of itself, in its working directory.
type victim struct {
	PID      int
	Dir      string // its working directory
	Address  uint64 // of its secret in its memory
	FD       int    // an open file with its secret
	Shm      int    // shared memory with its secret
	Queue    string // POSIX message queue with its secret
	Key      string // in the keyring of its user, with its secret
	Socket   string // its sockets: what arrives is recorded
	Abstract string
	TCP, UDP string
	Metadata []string // listeners on addresses of metadata services of clouds; empty ones are not there
	Terminal string   // slave of a terminal whose master it reads
}

// Files in the working directory of a victim.
const (
	victimReady  = "ready.json"
	victimRecord = "record"
	victimSecret = "secret.txt"
)

// victimMemory holds the secret where others look for it.
var victimMemory []byte

// beVictim is a program that minds its own business: VICTIM_SECRET is its secret. It records
// what others manage to do to it, and ends when it is killed.
func beVictim() error {
	secret := os.Getenv("VICTIM_SECRET")
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	record, err := os.OpenFile(victimRecord, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	note := func(what, text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(record, what, text)
	}
	v := victim{PID: os.Getpid(), Dir: dir, FD: -1, Shm: -1, Socket: filepath.Join(dir, "s"), Abstract: "@victim-" + secret[:8], Key: "victim-" + secret[:8], Queue: queueOf(secret)}

	victimMemory, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	copy(victimMemory, secret)
	v.Address = uint64(uintptr(unsafe.Pointer(&victimMemory[0])))
	if fd, err := unix.MemfdCreate("victim", 0); err == nil {
		if _, err := unix.Pwrite(fd, []byte(secret), 0); err != nil {
			return err
		}
		v.FD = fd
	}
	// Inside walls, a victim can make fewer of these, and is not asked for them.
	if id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); err == nil {
		memory, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return err
		}
		copy(memory, secret)
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // it goes with this process
		v.Shm = id
	}
	if id, err := unix.AddKey("user", v.Key, []byte(secret), unix.KEY_SPEC_USER_KEYRING); err == nil {
		_, _ = unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, id, 120, 0, 0)
	}
	serve := func(what string, l net.Listener, err error) {
		if err != nil {
			return
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				text, _ := io.ReadAll(c)
				note(what, string(text))
				_ = c.Close()
			}
		}()
	}
	byPath, err := net.Listen("unix", "s")
	serve("path", byPath, err)
	abstract, err := net.Listen("unix", v.Abstract)
	serve("abstract", abstract, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		v.TCP = tcp.Addr().String()
	}
	serve("tcp", tcp, err)
	for _, address := range metadataAddresses {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		found := ""
		if err == nil {
			found = l.Addr().String()
		}
		v.Metadata = append(v.Metadata, found)
		serve("metadata "+address, l, err)
	}
	if err := fillQueue(v.Queue, secret); err != nil {
		v.Queue = ""
	}
	if udp, err := net.ListenPacket("udp", "127.0.0.1:0"); err == nil {
		v.UDP = udp.LocalAddr().String()
		go func() {
			for buf := make([]byte, 1500); ; {
				n, _, err := udp.ReadFrom(buf)
				if err != nil {
					return
				}
				if label := firstLabel(buf[:n]); label != "" {
					note("dns", label)
				}
			}
		}()
	}
	if master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
		}
		if err == nil {
			v.Terminal = fmt.Sprint("/dev/pts/", n)
			go func() {
				for buf := make([]byte, 1500); ; {
					n, err := master.Read(buf)
					if n > 0 {
						note("terminal", string(buf[:n]))
					}
					if err != nil && n == 0 {
						if e, ok := err.(*os.PathError); !ok || e.Err != syscall.EIO { // nobody has it open: wait for somebody
							return
						}
						_, _ = unix.Poll([]unix.PollFd{{Fd: -1}}, 20)
					}
				}
			}()
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	if err := os.WriteFile(victimSecret, []byte(secret), 0o600); err != nil {
		return err
	}
	if home := os.Getenv("HOME"); home != "" {
		if err := os.WriteFile(filepath.Join(home, victimSecret), []byte(secret), 0o600); err != nil {
			return err
		}
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(victimReady+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(victimReady+".new", victimReady)
	}
	if err != nil {
		return err
	}
	for range signals {
		note("signal", "")
	}
	return nil
}

// standIn stands for a supervisor: it starts a program with its own standard input, and with a
// descriptor that nobody gave to it, and ends as it does.
func standIn(args []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{hostileCommand}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{os.Stdout}
	runtime.LockOSThread() // the program ends with the thread that started it
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}
