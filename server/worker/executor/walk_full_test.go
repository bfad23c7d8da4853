//go:build full

package executor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/inside"

	"golang.org/x/sys/unix"
)

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
	fewFiles(t, inside.OpenLevels+20)
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
