//go:build full

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// testImage is an image of Debian packages, with a file that is nowhere else.
const testImage = "localhost/triphammer-test:1"

// containerOptions let Podman start containers on machines with control groups of both
// versions, and in places that may not raise limits.
const containerOptions = "--runtime=runc --ulimit=nofile=4096:4096 --ulimit=nproc=4096:4096"

// makeImage makes the image, unless the engine has it.
var makeImage = sync.OnceValue(func() error {
	if exec.Command("podman", "image", "exists", testImage).Run() == nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tree := filepath.Join(dir, "tree.tar")
	for _, argv := range [][]string{
		append([]string{
			"mmdebstrap", "--quiet", "--variant=extract", "--include=dash,coreutils,grep,sed,findutils,procps,util-linux,libc-bin,git,ca-certificates,curl",
			"--extract-hook=echo here >$1/only-in-the-image", "bookworm", tree,
		}, mirrors()...),
		{"podman", "import", "--quiet", "--change", "ENV OF_THE_IMAGE=yes", "--change", `ENTRYPOINT ["/bin/false"]`, tree, testImage},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
})

// mirrors are the files that name where this machine gets Debian's packages.
func mirrors() []string {
	return slices.DeleteFunc([]string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"}, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || info.Size() == 0
	})
}

func newContained(t *testing.T, cfg Config) *Executor {
	t.Helper()
	if err := makeImage(); err != nil {
		t.Fatal(err)
	}
	cfg.Container.Program, cfg.Container.Options = "podman", containerOptions
	if cfg.Isolation == "" {
		cfg.Isolation, cfg.Container.Image = Container, testImage
	}
	if !cfg.Network.On {
		cfg.Network.Off = true
	}
	return newWalled(t, cfg)
}

// containersLeft are the containers of this machine that an executor has made.
func containersLeft(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("podman", "ps", "--all", "--filter=label="+containerLabel, "--format={{.Names}}").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestContainer: a run of everything in a container.
func TestContainer(t *testing.T) {
	e, r := newContained(t, Config{}), newRecorder()
	task := sh(`cat /only-in-the-image set-up; echo "$OF_THE_IMAGE $SECRET"; echo new >changed; touch /root-of-the-image; ls -A /root-of-the-image; id -u; pwd`)
	task.Setup = []string{"echo set up >set-up"}
	task.Env = map[string]string{"SECRET": "granted"}
	exit, err := e.Start(t.Context(), task, r)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v: %s", exit, err, r.said("stderr"))
	}
	if got, want := r.said("stdout"), "here\nset up\nyes granted\n1\n"; !strings.HasPrefix(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
	t.Log(r.said("stdout"), r.said("stderr"), containersLeft(t))
}
