package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"triphammer/server/inside"

	"golang.org/x/sys/unix"
)

// dig makes a folder with folders in one another, of that depth, and returns a descriptor of
// the deepest.
func dig(t *testing.T, top string, depth int) (deepest int) {
	t.Helper()
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for n := range depth {
		name := fmt.Sprint("folder-", n%10)
		if err == nil {
			err = unix.Mkdirat(at, name, 0o700)
		}
		below := -1
		if err == nil {
			below, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		if err == nil {
			err = errors.Join(unix.Close(at))
		}
		if at = below; err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// fewFiles limits the descriptors of this process until the end of the test, to those that it
// has and some more.
func fewFiles(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + more), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// TestRemoveErrors: what cannot be removed is named in a short line.
func TestRemoveErrors(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can make a file that its owner cannot remove")
		return
	}
	dir := t.TempDir()
	at := dig(t, filepath.Join(dir, "run_1"), 200)
	mounted := fmt.Sprintf("/proc/self/fd/%d", at)
	if err := unix.Mount("none", mounted, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
	mounted = filepath.Join(dir, "run_1", strings.Repeat("folder-0/folder-1/folder-2/folder-3/folder-4/folder-5/folder-6/folder-7/folder-8/folder-9/", 20))
	defer func() {
		if err := errors.Join(unix.Unmount(mounted, unix.MNT_DETACH), inside.RemoveAll(filepath.Join(dir, "run_1"))); err != nil {
			t.Error(err)
		}
	}()
	err := inside.RemoveAll(filepath.Join(dir, "run_1"))
	if !errors.Is(err, syscall.EBUSY) || len(err.Error()) > 100 {
		t.Error(err)
	}
}
