package inside

import "golang.org/x/sys/unix"

var (
	oldModes     = map[int]int{unix.SYS_CHMOD: 1, unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1}
	oldCreations = map[int]int{unix.SYS_OPEN: 2}
)
