// Package containertest makes the image in which tests run containers of Podman.
package containertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Image is an image of Debian packages, with the file /only-in-the-image.
const Image = "localhost/triphammer-test:1"

// Options let Podman start containers on machines with control groups of both versions, and
// in places that may not raise limits.
const Options = "--runtime=runc --ulimit=nofile=4096:4096 --ulimit=nproc=4096:4096"

// MakeImage makes the image, unless the engine has it. Tests of other packages, which run at
// the same time, wait for it.
func MakeImage(t testing.TB) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "triphammer-test-image.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if exec.CommandContext(t.Context(), "podman", "image", "exists", Image).Run() == nil {
		return
	}
	tree := filepath.Join(t.TempDir(), "tree.tar")
	for _, argv := range [][]string{
		append([]string{
			"mmdebstrap", "--quiet", "--variant=extract", "--include=dash,coreutils,grep,sed,findutils,procps,util-linux,libc-bin,git,ca-certificates,curl",
			"--extract-hook=echo here >$1/only-in-the-image", "bookworm", tree,
		}, Mirrors()...),
		{"podman", "import", "--quiet", "--change", "ENV OF_THE_IMAGE=yes", "--change", `ENTRYPOINT ["/bin/false"]`, tree, Image},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}

// Mirrors are the files that name where this machine gets Debian's packages.
func Mirrors() []string {
	return slices.DeleteFunc([]string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"}, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || info.Size() == 0
	})
}
