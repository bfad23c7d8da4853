package inside

import (
	"fmt"
	"maps"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied is a rule of the filter: a system call that fails. A call can have several rules.
type denied struct {
	call    int
	errno   unix.Errno
	arg     int      // number of the argument for the following tests, if one of them is set
	equal   []uint32 // fails only if the argument is one of these
	bits    uint32   // fails only if the argument has one of these bits
	nonzero bool     // fails only if the argument is not 0
	only    []uint32 // fails unless the argument is one of these
	above   uint32   // fails only if the argument is larger, in 64 bits

	// creates tests the bits only if the argument before, flags of open(2), makes the call create
	// a file. Otherwise the argument is no mode and can be anything.
	creates bool

	// streams fails for an Internet socket of any protocol but TCP, because Landlock limits only
	// the ports of TCP (and not of MPTCP).
	streams bool
}

// noOtherNetworks leaves a run only TCP, which Landlock limits. It also denies data in the packet
// that opens a connection, because some kernels let it past Landlock.
var noOtherNetworks = []denied{
	{call: unix.SYS_SOCKET, errno: unix.EACCES, only: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
	{call: unix.SYS_SOCKET, errno: unix.EACCES, streams: true},
	{call: unix.SYS_SENDTO, errno: unix.EACCES, arg: 3, bits: unix.MSG_FASTOPEN},
	{call: unix.SYS_SENDMSG, errno: unix.EACCES, arg: 2, bits: unix.MSG_FASTOPEN},
	{call: unix.SYS_SENDMMSG, errno: unix.EACCES, arg: 3, bits: unix.MSG_FASTOPEN},
}

// namespaces are the flags of clone(2) that make namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// seccompRules deny system calls that no honest run needs, and that reach parts of the kernel
// or of the machine that the other walls do not guard. ownIPC tells that the run has its own
// IPC and PID namespaces and sees no foreign socket. scopedSockets tells that Landlock keeps
// the run from connecting to foreign sockets by their path.
func seccompRules(ownIPC, scopedSockets bool) []denied {
	var rules []denied
	deny := func(errno unix.Errno, calls ...int) {
		for _, c := range calls {
			rules = append(rules, denied{call: c, errno: errno})
		}
	}
	// Mounts and namespaces.
	deny(unix.EPERM, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
		unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR)
	rules = append(rules, denied{call: unix.SYS_CLONE, errno: unix.EPERM, bits: namespaces})
	// A filter cannot see the flags of clone3. C libraries then use clone.
	deny(unix.ENOSYS, unix.SYS_CLONE3)
	// No filter sees the system calls of an io_uring.
	deny(unix.ENOSYS, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER)
	// The kernel itself, and its keys.
	deny(unix.EPERM, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
		unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL,
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT)
	// Landlock does not guard these calls. A process may use them on itself, as process 0. With
	// other processes they would work on the server, and on the supervisor in every isolation.
	others := func(arg int, calls ...int) {
		for _, c := range calls {
			rules = append(rules, denied{call: c, errno: unix.EPERM, arg: arg, nonzero: true})
		}
	}
	others(0, unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR)
	others(1, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET)
	rules = append(rules, denied{call: unix.SYS_SETPRIORITY, errno: unix.EPERM, equal: []uint32{unix.PRIO_USER}},
		denied{call: unix.SYS_IOPRIO_SET, errno: unix.EPERM, equal: []uint32{ioprioUser}})
	// Somebody outside all walls who runs a file with these bits would get the rights of the run's
	// user. The mode of openat2 is in memory, where no filter sees it; C libraries then use openat.
	for call, arg := range modes {
		rules = append(rules, denied{call: call, errno: unix.EPERM, arg: arg, bits: setID})
	}
	for call, arg := range creations {
		rules = append(rules, denied{call: call, errno: unix.EPERM, arg: arg, bits: setID, creates: true})
	}
	deny(unix.ENOSYS, unix.SYS_OPENAT2)
	families := []uint32{unix.AF_VSOCK, unix.AF_ALG, unix.AF_PACKET}
	if !ownIPC {
		// Other programs of the same user may use these calls, too.
		deny(unix.EPERM, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV,
			unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK)
		if !scopedSockets {
			families = append(families, unix.AF_UNIX) // socketpair(2) stays
		}
	}
	return append(rules, denied{call: unix.SYS_SOCKET, errno: unix.EACCES, equal: families})
}

// maxSegment bounds a segment of System V shared memory, in bytes, if memory is measured: measuring
// does not find segments that no process has attached, and there can be 4,096 of them.
const maxSegment = 16 << 10

// setID are the bits by which a program gets the user or the group of its file.
const setID = unix.S_ISUID | unix.S_ISGID

// modes are calls that give a file its mode, with the number of that argument. creations give a
// mode only to a file that they create. New architectures lack oldModes and oldCreations.
var (
	modes     = merged(oldModes, map[int]int{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2})
	creations = merged(oldCreations, map[int]int{unix.SYS_OPENAT: 3})
)

func merged(a, b map[int]int) map[int]int {
	maps.Copy(b, a)
	return b
}

// ioprioUser is IOPRIO_WHO_USER: all processes of a user (ioprio_set(2)).
const ioprioUser = 3

// openTemporary is the bit of O_TMPFILE that no other flag of open(2) has.
const openTemporary = 0x400000

// Offsets in struct seccomp_data (seccomp(2)); arguments are 64 bits, little-endian.
const (
	callOffset = 0
	archOffset = 4
	argsOffset = 16
)

// auditArch are the architectures for which the filter is made, as the kernel numbers them.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32Bit marks the calls of a second set of system calls of x86-64.
const x32Bit = 0x40000000

// loadSeccomp loads a filter with the rules in all threads of this process. From then on, programs
// of another architecture, such as 32-bit programs, cannot make system calls.
func loadSeccomp(rules []denied) error {
	arch, known := auditArch[runtime.GOARCH]
	if !known {
		return fmt.Errorf("there is no seccomp filter for %s", runtime.GOARCH)
	}
	fails := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		fails(unix.ENOSYS),
		bpf.LoadAbsolute{Off: callOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1},
		fails(unix.ENOSYS),
	}
	for _, r := range rules {
		var body []bpf.Instruction // the next rule follows
		load := bpf.LoadAbsolute{Off: argsOffset + 8*uint32(r.arg), Size: 4}
		switch {
		case r.creates:
			flags := bpf.LoadAbsolute{Off: argsOffset + 8*uint32(r.arg-1), Size: 4}
			body = []bpf.Instruction{
				flags,
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | openTemporary, SkipFalse: 3},
				load,
				bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: r.bits, SkipFalse: 1},
				fails(r.errno),
			}
		case r.bits != 0:
			body = []bpf.Instruction{load, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: r.bits, SkipFalse: 1}, fails(r.errno)}
		case r.only != nil:
			body = []bpf.Instruction{load}
			for i, v := range r.only {
				body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(r.only) - i)})
			}
			body = append(body, fails(r.errno))
		case r.streams:
			argument := func(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: argsOffset + 8*n, Size: 4} }
			body = []bpf.Instruction{
				argument(0),
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipFalse: 7},
				argument(1),
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // without SOCK_CLOEXEC and SOCK_NONBLOCK
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipFalse: 3},
				argument(2),
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1},
				fails(r.errno),
			}
		case r.above != 0:
			high := bpf.LoadAbsolute{Off: argsOffset + 8*uint32(r.arg) + 4, Size: 4}
			body = []bpf.Instruction{
				high,
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
				load,
				bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: r.above, SkipFalse: 1},
				fails(r.errno),
			}
		case r.nonzero:
			body = []bpf.Instruction{load, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, fails(r.errno)}
		case r.equal != nil:
			body = []bpf.Instruction{load}
			for i, v := range r.equal {
				body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(r.equal) - i)})
			}
			body = append(body, bpf.Jump{Skip: 1}, fails(r.errno))
		default:
			body = []bpf.Instruction{fails(r.errno)}
		}
		program = append(program, bpf.LoadAbsolute{Off: callOffset, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.call), SkipFalse: uint8(len(body))})
		program = append(program, body...)
	}
	raw, err := bpf.Assemble(append(program, allow))
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	list := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&list)))
	switch {
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d could not be confined", thread)
	}
	return nil
}
