package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// guardProcess keeps what this process holds from others of its user, such as the
// agents that a server starts: they can neither trace it nor read its memory,
// environment and descriptors, and it leaves no core file (PR_SET_DUMPABLE(2const)).
func guardProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("other processes of this user can read the memory of this one: %w", err)
	}
	return nil
}

// closeInherited closes the descriptors that whoever started this process left
// open, beside the standard ones: a server would hold them for as long as it
// lives, and hand them to agents. What this process opens itself is closed at
// exec, by which it is told apart; so a file such as /dev/fd/63 has to be read
// before.
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
