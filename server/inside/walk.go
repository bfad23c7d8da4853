package inside

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// level is a folder that a walk is in.
type level struct {
	fd       int    // -1: closed
	name     string // in the folder above
	dev, ino uint64
	position int64  // after the last entry that was taken
	read     []byte // the entries after position
	closed   uint32 // the mode that the folder must get back; 0: it is unchanged
}

// OpenLevels is how many folders a walk keeps open. It finds the way back to a closed folder by
// "..", so that no depth needs more descriptors.
const OpenLevels = 64

// Walk calls visit for each entry below the folder top, and closes top. To walk through an entry,
// visit returns the results of OpenFolder; else it returns -1. left is called for each such
// entry after all entries in it. A folder deeper than OpenLevels that is moved meanwhile may be
// left out: then Walk fails with errMoved at its end.
func Walk(top int, mode uint32, visit func(dir int, name string) (enter int, mode uint32), left func(dir int, name string)) (err error) {
	var levels []level
	enter := func(fd int, name string, mode uint32) {
		var st unix.Stat_t
		_ = unix.Fstat(fd, &st) // cannot fail
		levels = append(levels, level{fd: fd, name: name, dev: uint64(st.Dev), ino: st.Ino, closed: mode})
	}
	enter(top, "", mode)
	leave := func() {
		l := levels[len(levels)-1]
		if levels = levels[:len(levels)-1]; l.closed != 0 {
			_ = unix.Fchmod(l.fd, l.closed)
		}
		_ = unix.Close(l.fd)
	}
	buffer := make([]byte, 16<<10)
	for len(levels) > 0 {
		at := &levels[len(levels)-1]
		name, more := at.next(buffer)
		if more {
			fd, mode := visit(at.fd, name)
			if fd < 0 {
				continue
			}
			if len(levels) >= OpenLevels {
				_ = unix.Close(at.fd)
				at.fd, at.read = -1, nil
			}
			enter(fd, name, mode)
			continue
		}
		name = at.name
		if len(levels) > OpenLevels && !levels[len(levels)-2].reopen(at.fd) {
			err = errMoved
			for leave(); levels[len(levels)-1].fd < 0; {
				levels = levels[:len(levels)-1]
			}
			continue
		}
		if leave(); len(levels) > 0 {
			left(levels[len(levels)-1].fd, name)
		}
	}
	return err
}

var errMoved = errors.New("a folder was moved while it was looked through")

// folderFlags are flags of open(2) for folders that anybody may have made.
const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// reopen opens a folder that was closed, from a folder in it.
func (l *level) reopen(below int) bool {
	fd, err := unix.Openat(below, "..", folderFlags, 0)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	_, err = unix.Seek(fd, l.position, 0)
	if err != nil || unix.Fstat(fd, &st) != nil || st.Ino != l.ino || uint64(st.Dev) != l.dev {
		_ = unix.Close(fd)
		return false
	}
	l.fd = fd
	return true
}

// next is the name of the next entry; false: there is none, or the folder cannot be read.
func (l *level) next(buffer []byte) (name string, ok bool) {
	const lengthAt, nameAt = 16, 19 // in struct linux_dirent64 (getdents(2))
	for {
		if len(l.read) == 0 {
			n, err := unix.Getdents(l.fd, buffer)
			if err != nil || n <= 0 {
				return "", false
			}
			l.read = bytes.Clone(buffer[:n])
		}
		entry := l.read[:binary.NativeEndian.Uint16(l.read[lengthAt:])]
		l.read, l.position = l.read[len(entry):], int64(binary.NativeEndian.Uint64(entry[8:]))
		raw, _, _ := bytes.Cut(entry[nameAt:], []byte{0})
		if name = string(raw); name != "." && name != ".." {
			return name, true
		}
	}
}

// OpenFolder opens a folder in a folder. If the owner lacks some of the rights, OpenFolder adds
// them, and mode is the mode before. The error is ENOTDIR for any other file.
func OpenFolder(dir int, name string, rights uint32) (fd int, mode uint32, err error) {
	path, err := unix.Openat(dir, name, folderFlags|unix.O_PATH, 0)
	if err != nil {
		return -1, 0, err
	}
	defer func() { _ = unix.Close(path) }()
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, 0, err
	}
	if st.Mode&rights != rights && int(st.Uid) == os.Geteuid() {
		mode = st.Mode // not 0, as it has the type too
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(path), mode|rights); err != nil {
			return -1, 0, err
		}
	}
	fd, err = unix.Openat(path, ".", folderFlags, 0)
	return fd, mode, err
}

// RemoveAll removes the file or folder at the path, of any depth, and even folders that their owner
// has closed. It follows no symbolic link. The error names the entry in the way, without its path.
func RemoveAll(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the folder of %s: %w", path, err)
	}
	defer func() { _ = unix.Close(parent) }()
	for {
		var first error
		progress := false
		// remove tells whether an entry is a folder that is not empty.
		remove := func(dir int, name string) (full bool) {
			err := unix.Unlinkat(dir, name, 0)
			if errors.Is(err, unix.EISDIR) {
				err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
			}
			switch {
			case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
				return true
			case err == nil:
				progress = true
			case !errors.Is(err, unix.ENOENT):
				first = cmp.Or(first, fmt.Errorf("%.40q: %w", name, err))
			}
			return false
		}
		enter := func(dir int, name string) (int, uint32) {
			if !remove(dir, name) {
				return -1, 0
			}
			fd, _, err := OpenFolder(dir, name, 0o700)
			if err != nil {
				first = cmp.Or(first, fmt.Errorf("%.40q: %w", name, err))
			}
			return fd, 0
		}
		name := filepath.Base(path)
		top, _ := enter(parent, name)
		if top < 0 {
			return first
		}
		err = Walk(top, 0, enter, func(dir int, name string) { remove(dir, name) })
		if !remove(parent, name) {
			return first
		}
		if !progress { // even after another look, for entries that moved while they were read
			return cmp.Or(first, err, fmt.Errorf("%.40q: %w", name, unix.ENOTEMPTY))
		}
	}
}
