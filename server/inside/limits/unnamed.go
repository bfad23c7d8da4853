package limits

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Files are files, or whole file systems, with their sizes in bytes.
type Files map[fileID]int64

// fileID is the device and the inode of a file, or a device and 0 for its file system.
type fileID struct{ dev, ino uint64 }

// Held are the files without a name that processes hold open, and that go when no process holds
// them: files in memory, such as memfds, and files on a disk. memory includes the file systems
// at the paths tmpfs, which only the processes have. disk includes files on the file system of
// dir, whatever its kind. Only a root server finds files that are only mapped. Files that the
// user of the server may not see are left out.
func Held(pids []int, dir string, tmpfs ...string) (memory, disk Files) {
	memory, disk = make(Files), make(Files)
	var fs unix.Statfs_t
	var st, own unix.Stat_t
	_ = unix.Stat(dir, &own) // dir may be missing
	for _, path := range tmpfs {
		var own unix.Stat_t // of a file system that some of the processes may see
		_ = unix.Stat(path, &own)
		for _, pid := range pids {
			at := filepath.Join("/proc", strconv.Itoa(pid), "root", path)
			if unix.Statfs(at, &fs) == nil && unix.Stat(at, &st) == nil && fs.Type == unix.TMPFS_MAGIC && st.Dev != own.Dev {
				memory[fileID{uint64(st.Dev), 0}] = int64(fs.Blocks-fs.Bfree)*fs.Bsize + int64(fs.Files-fs.Ffree)*inodeMemory
				break
			}
		}
	}
	look := func(path string) {
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 || memory.has(uint64(st.Dev), st.Ino) {
			return
		}
		to := disk
		if st.Dev != own.Dev && unix.Statfs(path, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC) {
			to = memory
		}
		to[fileID{uint64(st.Dev), st.Ino}] = st.Blocks * 512
	}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		fds, _ := os.ReadDir(filepath.Join(dir, "fd")) // the process may have ended
		for _, fd := range fds {
			look(filepath.Join(dir, "fd", fd.Name()))
		}
		if os.Geteuid() != 0 {
			continue // map_files is for privileged users
		}
		maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
		for line := range strings.Lines(string(maps)) {
			if at, _, _ := strings.Cut(line, " "); strings.HasSuffix(line, " (deleted)\n") {
				look(filepath.Join(dir, "map_files", strings.ReplaceAll(strings.TrimLeft(at, "0"), "-0", "-")))
			}
		}
	}
	return memory, disk
}

// inodeMemory is the kernel's memory for a file of a tmpfs besides its content, in bytes.
const inodeMemory = 1 << 10

func (f Files) has(dev, ino uint64) bool {
	_, one := f[fileID{dev, ino}]
	_, all := f[fileID{dev, 0}]
	return one || all
}

// Bytes adds up the sizes of the files.
func (f Files) Bytes() (n int64) {
	for _, size := range f {
		n += size
	}
	return n
}

// besides is the proportional size of a process without its mappings of the files.
func (f Files) besides(pid int) (n int64) {
	maps, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		return proportionalSize(pid)
	}
	defer func() { _ = maps.Close() }()
	counts := false
	for s := bufio.NewScanner(maps); s.Scan(); {
		switch w := strings.Fields(s.Text()); {
		case len(w) >= 5 && strings.Contains(w[0], "-"): // a mapping: address, rights, offset, device, inode, and maybe a path
			var major, minor uint32
			_, _ = fmt.Sscanf(w[3], "%x:%x", &major, &minor)
			ino, _ := strconv.ParseUint(w[4], 10, 64)
			counts = !f.has(unix.Mkdev(major, minor), ino)
		case len(w) == 3 && w[0] == "Pss:" && counts:
			kib, _ := strconv.ParseInt(w[1], 10, 64)
			n += kib << 10
		}
	}
	return n
}
