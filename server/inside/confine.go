package inside

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"triphammer/server/inside/limits"
)

// Confinement lists the rights that a supervisor takes away from itself, and so from every
// process of the run, before it starts a process.
type Confinement struct {
	// Landlock restricts which files the run reaches, and keeps its signals and abstract
	// sockets inside. With BestEffort, the parts that the kernel lacks are left out; without
	// it, they are an error.
	Landlock   bool     `json:"landlock,omitempty"`
	BestEffort bool     `json:"best_effort,omitempty"`
	Read       []string `json:"read,omitempty"`  // files and folders that the run may read and execute
	Write      []string `json:"write,omitempty"` // folders in which the run may do anything
	Devices    []string `json:"devices,omitempty"`
	Sockets    []string `json:"sockets,omitempty"` // sockets that the run may connect to

	// Limited takes away every network except TCP to Ports (SPEC 14.5).
	Limited bool     `json:"limited,omitempty"`
	Ports   []uint16 `json:"ports,omitempty"`

	Limits limits.Inherited `json:"limits"`
	User   *Identity        `json:"user,omitempty"`

	Seccomp bool `json:"seccomp,omitempty"` // no system calls that only serve to get out (seccomp.go)
	OwnIPC  bool `json:"own_ipc,omitempty"` // there are an IPC and a PID namespace, and no path to a foreign socket
}

// apply confines this process, with all of its threads.
func (c *Confinement) apply() error {
	if c.Landlock {
		if err := c.landlock(); err != nil {
			return err
		}
	}
	if c.Seccomp {
		rules := seccompRules(c.OwnIPC, LandlockVersion() >= landlockSockets)
		if c.Limits.Measured {
			rules = append(rules, denied{call: unix.SYS_SHMGET, errno: unix.ENOSPC, arg: 1, above: maxSegment})
		}
		if c.Limited {
			rules = append(rules, noOtherNetworks...)
		}
		return loadSeccomp(rules)
	}
	return nil
}

func (c *Confinement) landlock() error {
	if v := LandlockVersion(); v < LandlockSignals && !c.BestEffort {
		return errors.New(NoLandlock(v))
	}
	var dirs, files []string
	for _, path := range c.Read {
		switch info, err := os.Stat(path); {
		case err != nil:
			// The path does not exist, or this user may not see it.
		case info.IsDir():
			dirs = append(dirs, path)
		default:
			files = append(files, path)
		}
	}
	rights := landlock.V9
	rights.HandledAccessNet = 0 // it can limit ports, but not hosts (SPEC 14.5)
	network := make([]landlock.Rule, 0, len(c.Ports))
	if c.Limited {
		rights.HandledAccessNet = llsyscall.AccessNetConnectTCP
		for _, port := range c.Ports {
			network = append(network, landlock.ConnectTCP(port))
		}
	}
	// Each thread of this process gets its own domain, and could not signal the processes of
	// another thread's. So keepSignals restricts signals, in the thread that starts processes.
	rights.Scoped &^= unix.LANDLOCK_SCOPE_SIGNAL
	err := rights.BestEffort().Restrict(append(
		network,
		landlock.RODirs(dirs...).IgnoreIfMissing(),
		landlock.ROFiles(append(files, Self)...).IgnoreIfMissing(),
		landlock.RWDirs(c.Write...).WithRefer().WithIoctlDev().IgnoreIfMissing(), // a folder of the image can go meanwhile
		landlock.RWFiles(c.Devices...).WithIoctlDev().IgnoreIfMissing(),
		landlock.RWDirs("/dev/pts").WithIoctlDev().IgnoreIfMissing(),
		landlock.PathAccess(llsyscall.AccessFSResolveUnix, c.Sockets...).IgnoreIfMissing(),
	)...)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// First versions of Landlock with these features (landlock(7)).
const (
	landlockPorts   = 4 // connecting to ports, Linux 6.7
	LandlockSignals = 6 // scopes for signals and abstract sockets, Linux 6.12
	landlockSockets = 9 // connecting to sockets by path
)

// LandlockVersion is the version of Landlock of this kernel; 0: none.
func LandlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// NoLandlock says why the version of Landlock does not suffice.
func NoLandlock(version int) string {
	if version == 0 {
		return "this kernel has no Landlock, or it is not enabled (Linux 6.12 or newer, with landlock in the list of lsm=)"
	}
	return fmt.Sprintf("this kernel has version %d of Landlock, which cannot keep signals inside a run: version %d takes Linux 6.12", version, LandlockSignals)
}

// keepSignals restricts this thread and every process that it starts to sending signals
// to each other (landlock(7), from Linux 6.12 on). Inside walls, this layer of Landlock
// grants renames and links between folders everywhere: on top of a layer that restricts
// files, it would otherwise forbid them. Without walls, the same grant would forbid mounts.
func keepSignals(walls bool) error {
	attr := struct{ filesystem, network, scoped uint64 }{scoped: unix.LANDLOCK_SCOPE_SIGNAL}
	if walls {
		attr.filesystem = unix.LANDLOCK_ACCESS_FS_REFER
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if !walls {
		return llsyscall.LandlockRestrictSelf(int(fd), 0)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }()
	if err := llsyscall.LandlockAddPathBeneathRule(int(fd), &llsyscall.PathBeneathAttr{ParentFd: root, AllowedAccess: attr.filesystem}, 0); err != nil {
		return err
	}
	return llsyscall.LandlockRestrictSelf(int(fd), 0)
}

// Identity is the user that a supervisor becomes if it was started as root.
type Identity struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// become makes a process of root a process of the user. Another process keeps its user, which
// its starter has chosen.
func (u *Identity) become() error {
	if u == nil || os.Geteuid() != 0 {
		return nil
	}
	err := errors.Join(unix.Setgroups(nil), unix.Setresgid(u.GID, u.GID, u.GID))
	if err == nil {
		err = unix.Setresuid(u.UID, u.UID, u.UID)
	}
	if err != nil {
		return fmt.Errorf("a run of a server that is root becomes the user %d, which does not work inside: %w; map that user into the user namespace, "+
			"or start the run as another user than root", u.UID, err)
	}
	return nil
}

// Elsewhere is the Confinement for walls that another program has made. It does not restrict
// files and sockets.
func Elsewhere() Confinement {
	return Confinement{Landlock: true, BestEffort: true, Read: []string{"/"}, Write: []string{"/"}, Devices: Devices, Seccomp: true, OwnIPC: true}
}

// Devices are the devices that programs need.
var Devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"}
