package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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

// TestDeepFolders: folders of any depth are measured and removed with few descriptors, and
// their owner cannot close them to that (SPEC 14.6).
func TestDeepFolders(t *testing.T) {
	const depth = 25_000
	p := newExecutor(t, 0)
	top := filepath.Join(p.dir, "run_deep")
	deepest := dig(t, top, depth)
	fd, err := unix.Openat(deepest, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = unix.Write(fd, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{outside, filepath.Dir(outside), "/", ".."} {
		if err := unix.Symlinkat(link, deepest, "to"+strings.ReplaceAll(link, "/", "-")); err != nil {
			t.Fatal(err)
		}
	}
	_ = unix.Close(deepest) // removing folders around one that is open takes the kernel long
	for n, name := range []string{"-rf", "new\nline", "\xff\xfe", strings.Repeat("x", 255)} {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Join(dir, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0), os.Chmod(dir, os.FileMode([]uint32{0, 0o100, 0o400, 0o555}[n]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(top, 0); err != nil {
		t.Fatal(err)
	}
	fewFiles(t, openLevels+20)
	if !p.mark("run_deep", "run_deep") {
		t.Fatal("it is in progress")
	}
	bytes, files := p.Size(t.Context(), "run_deep")
	if p.unmark("run_deep"); bytes < 1<<20 || files < depth {
		t.Errorf("%d bytes in %d files", bytes, files)
	}
	if info, err := os.Stat(top); err != nil || info.Mode().Perm() != 0 {
		t.Error("measuring changes modes:", info.Mode(), err)
	}
	if err := p.remove("run_deep"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Error("it is still there:", err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error("a link was followed:", err)
	}
	if err := p.remove("run_deep"); err != nil {
		t.Error("what is gone already:", err)
	}
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
		if err := errors.Join(unix.Unmount(mounted, unix.MNT_DETACH), removeAll(filepath.Join(dir, "run_1"))); err != nil {
			t.Error(err)
		}
	}()
	err := removeAll(filepath.Join(dir, "run_1"))
	if !errors.Is(err, syscall.EBUSY) || len(err.Error()) > 100 {
		t.Error(err)
	}
}
