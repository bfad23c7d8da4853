package host

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// guardProcess protects this process from other processes of its user, such as the agents
// that a server starts. They cannot trace it, or read its memory, environment and
// descriptors. It leaves no core file (PR_SET_DUMPABLE(2const)).
func guardProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("other processes of this user can read the memory of this one: %w", err)
	}
	return nil
}

// closeInherited closes the descriptors that this process inherited, except the standard
// ones. Otherwise a server would keep them open while it runs, and pass them to agents.
// Descriptors that this process opened itself are closed at exec, and so can be told
// apart. A file such as /dev/fd/63 must be read before this call.
func closeInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("closing what was inherited: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // only read
	if err != nil {
		return fmt.Errorf("closing what was inherited: %w", err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd) // it is closed whatever this returns
		}
	}
	return nil
}
