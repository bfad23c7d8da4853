package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/inside/limits"
	"triphammer/server/run/task"
)

const hogged = 256 << 20 // bytes that a hog takes

// hog is an agent that takes memory, or room on the disk, where it is not easily found. It waits
// for its end when it has it, and fails if it does not get it.
func hog(kind string) {
	if err := hogs[kind](); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println("hogged")
	never := make(chan os.Signal, 1)
	signal.Notify(never, unix.SIGUSR1)
	<-never
}

// fill writes so many bytes.
func fill(fd, size int) error {
	for n := 0; n < size; n += 1 << 20 {
		if _, err := unix.Write(fd, slices.Repeat([]byte{1}, 1<<20)); err != nil {
			return err
		}
	}
	return nil
}

// fillFiles fills new files. No file is larger than a run may make it.
func fillFiles(name string, keep bool) error {
	for n := range 8 {
		name := fmt.Sprint(name, n)
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_EXCL, 0o600)
		if err == nil {
			err = fill(fd, hogged/8)
		}
		if !keep {
			err = errors.Join(err, os.Remove(name))
		} else if err == nil {
			err = unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var hogs = map[string]func() error{
	"memfd": func() error {
		fd, err := unix.MemfdCreate("hog", 0)
		return errors.Join(err, fill(fd, hogged))
	},
	"memfd that is only mapped": func() error {
		fd, err := unix.MemfdCreate("hog", 0)
		if err == nil {
			err = fill(fd, hogged)
		}
		if err == nil {
			_, err = unix.Mmap(fd, 0, hogged, unix.PROT_READ, unix.MAP_SHARED)
		}
		return errors.Join(err, unix.Close(fd))
	},
	"file in /dev/shm": func() error {
		return fillFiles("/dev/shm/hog", true)
	},
	"many files in /dev/shm": func() error {
		for n := range hogged >> 10 {
			if err := os.WriteFile(fmt.Sprint("/dev/shm/", n), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	},
	"file in /run": func() error {
		return fillFiles("/run/hog", true)
	},
	"segments of System V": func() error {
		for range 16 {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, hogged/16, unix.IPC_CREAT|0o600)
			if err != nil {
				return err
			}
			data, err := unix.SysvShmAttach(id, 0, 0)
			if err != nil {
				return err
			}
			for i := 0; i < len(data); i += 4096 {
				data[i] = 1
			}
			if err := unix.SysvShmDetach(data); err != nil {
				return err
			}
		}
		return nil
	},
	"file without a name, of a process without environment": func() error {
		os.Clearenv()
		if os.Args[len(os.Args)-1] != "bare" {
			return unix.Exec("/proc/self/exe", append(os.Args, "bare"), nil)
		}
		return fillFiles("hog", false)
	},
	"file below a long path": func() error {
		for range 100 {
			name := strings.Repeat("long", 25)
			if err := errors.Join(os.Mkdir(name, 0o700), os.Chdir(name)); err != nil {
				return err
			}
		}
		return fillFiles("hog", true)
	},
	"file below a closed folder": func() error {
		if err := errors.Join(os.MkdirAll("a/b", 0o700), os.Chdir("a/b"), unix.Chmod("../../a", 0)); err != nil {
			return err
		}
		return fillFiles("hog", true)
	},
}

// TestHiddenUse: without cgroups, memory and files count wherever a run has them, and a run does
// not get what is not found (SPEC 14.6).
func TestHiddenUse(t *testing.T) {
	for kind := range hogs {
		memory := strings.Contains(kind, "mem") || strings.Contains(kind, "/") || strings.Contains(kind, "System V")
		own := strings.Contains(kind, "/") || strings.Contains(kind, "System V") // only a run with namespaces has these
		mapped := strings.Contains(kind, "only mapped")
		if isolation == Container || isolation == Command || own && isolation != Sandbox || mapped && os.Geteuid() != 0 {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			p, r := newExecutor(t, 0), newRecorder()
			p.machine = &limits.Machine{}
			work := sh("")
			work.Command = []string{"triphammer", "hog", kind}
			if work.Limits = (task.Limits{Disk: hogged / 4}); memory {
				work.Limits = task.Limits{Memory: hogged / 2}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			exit, err := p.Start(ctx, work, r)
			refused := err == nil && exit.Code == 3 && own
			if !errors.Is(err, limits.ErrExceeded) && !refused || strings.Contains(r.said("stdout"), "hogged") && refused {
				t.Errorf("%+v, %v, %s", exit, err, r.said("stdout"))
			}
		})
	}
}
