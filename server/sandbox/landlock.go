package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepSignals restricts this thread and every process that it starts to sending signals
// to each other (landlock(7), from Linux 6.12 on). So an agent can end its own
// supervisor, but neither the server nor another run. ok tells whether the kernel
// supports it.
func keepSignals() (ok bool, err error) {
	attr := struct{ filesystem, network, scoped uint64 }{scoped: unix.LANDLOCK_SCOPE_SIGNAL}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return false, errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, errno
	}
	return true, nil
}

// KeepsSignals tells whether the kernel keeps an agent from signalling the server.
func KeepsSignals() bool {
	const scopes = 6 // the version of Landlock that can scope signals
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= scopes
}
