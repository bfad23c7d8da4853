package main

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"triphammer/cmd/triphammer/host"
)

// Parts that stop an escape.
const (
	byFiles     = "Landlock 1 (Linux 5.13)"
	bySignals   = "Landlock 6 (Linux 6.12)"
	bySockets   = "Landlock 9, or seccomp: no Unix sockets by path"
	bySeccomp   = "seccomp"
	byServer    = "the server: not dumpable"
	byRunner    = "the supervisor"
	byNoPrivs   = "no_new_privs"
	bySocket    = "the server: admin.key"
	byRefusal   = "the run is refused"
	byMeasuring = "cgroup v2 where it is delegated, else limits of processes and measuring"
	bySandbox   = "nothing: use `sandbox`"
	byNetwork   = "nothing: use `sandbox`, with `network: off` or a list of hosts"
	byOwner     = "nothing, if the runs have the server's user"
	byTerminal  = "nothing, if the runs have the terminal's user"
)

// shows: the agent shows the beginning of what is in a file or in the memory of a victim.
func shows(secret func(*outside) []byte) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, said string) bool {
		want := secret(o)
		if len(want) < 8 {
			t.Fatal("there is nothing to find")
		}
		return strings.Contains(said, hex.EncodeToString(want[:min(len(want), 32)]))
	}
}

func file(name string) func(*testing.T, *outside, string) bool {
	return shows(func(o *outside) []byte { return o.secrets[name] })
}

func bystanders(o *outside) []byte { return []byte(o.bystander) }
func neighbours(o *outside) []byte { return []byte(o.neighbour) }

// says: only the agent can tell.
func says(_ *testing.T, _ *outside, said string) bool { return said != "" }

// exists: the agent has made a file.
func exists(path func(*targets) string) func(*testing.T, *outside, string) bool {
	return func(_ *testing.T, o *outside, _ string) bool {
		text, err := os.ReadFile(path(&o.targets))
		return err == nil && strings.HasPrefix(string(text), o.Mark)
	}
}

// noted: one of the lines is among those that the victim has noted.
func noted(t *testing.T, v victim, lines ...string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(v.Dir, victimRecord))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool { return slices.Contains(lines, line) })
}

// recorded: the mark has reached the victim in this way.
func recorded(v func(*outside) victim, way string) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool { return noted(t, v(o), way+" "+o.Mark) }
}

// signalled: a signal has reached the victim.
func signalled(v func(*outside) victim) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool { return noted(t, v(o), "signal ") }
}

// bystanderGot: the bystander has noted one of these.
func bystanderGot(lines ...string) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool { return noted(t, o.Bystander, lines...) }
}

// exceeds: a run has used more than its environment lets it for a long time, and then ended.
func exceeds(environment string) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool {
		t.Log(o.used[environment].State, o.used[environment].StatusMessage)
		return o.used[environment].State == "SUCCEEDED"
	}
}

func aBystander(o *outside) victim { return o.Bystander }

// below makes a path below that of a target.
func below(f func(*targets) string, names ...string) func(*targets) string {
	return func(t *targets) string { return filepath.Join(append([]string{f(t)}, names...)...) }
}

func ofData(t *targets) string      { return t.Data }
func ofHome(t *targets) string      { return t.Home }
func ofRuns(t *targets) string      { return t.Runs }
func ofRepo(t *targets) string      { return t.Repo }
func ofNeighbour(t *targets) string { return t.Neighbour.Dir }
func inTemp(t *targets) string      { return "/tmp/hostile-" + t.Mark }
func inShared(t *targets) string    { return "/dev/shm/hostile-" + t.Mark }

const (
	hostileFile = "hostile.txt"
	setuidFile  = "setuid"                // in the workspace
	sharedFile  = "/dev/shm/hostile-use-" // and a mark: columns are tested side by side
)

const withItsKey = "use the server's socket with its key"

// escapes are all attempts, in the order of the table.
var escapes []escape

func init() { // it and the agent refer to each other
	none := func() [6]uintptr { return [6]uintptr{} }
	escapes = []escape{
		{"read the key that seals the secrets", reading(below(ofData, "key")), file("key"), byFiles, false},
		{"read the database", reading(below(ofData, host.StoreFile)), file("database"), byFiles, false},
		{"read the configuration", reading(func(t *targets) string { return t.Config }), file("config"), byFiles, false},
		{"read the key of the TLS certificate", reading(func(t *targets) string { return t.TLSKey }), file("tls"), byFiles, false},
		{"read the folder of secrets", reading(func(t *targets) string { return filepath.Join(t.Secrets, "S2") }), file("secrets"), byFiles, false},
		{"read `admin.key`", reading(below(ofData, host.AdminKeyFile)), file("admin"), byFiles, false},
		{"read the home of the server's user", reading(below(ofHome, ".ssh", "id_ed25519")), file("home"), byFiles, false},
		{"read a file by a hard link in the workspace", func(t *targets) (string, error) {
			if err := os.Link(t.Mine, "linked"); err != nil {
				return "", err
			}
			return reading(func(*targets) string { return "linked" })(t)
		}, file("mine"), byFiles, false},
		{"have links in the workspace or among the artifacts read outside", plant, func(_ *testing.T, o *outside, _ string) bool { return o.linksRead() }, byRunner, false},
		{"have hooks or `core.fsmonitor` of the workspace run outside", nil, func(_ *testing.T, o *outside, _ string) bool { return o.hooksRun() }, byRunner, false},

		{"read the server's environment", reading(func(t *targets) string { return procFile(t.Server, "environ") }), says, byServer, false},
		{"read the server's memory by /proc", func(t *targets) (string, error) { return readMemory(t.Server, 0x400000) }, says, byServer, false},
		{"read the server's memory by process_vm_readv", func(t *targets) (string, error) { return readProcess(t.Server, 0x400000) }, says, byServer, false},
		{"open the server's files by /proc", reading(func(t *targets) string { return procFile(t.Server, "fd/2") }), says, byServer, false},
		{"take a descriptor of the server", func(t *targets) (string, error) { return takeDescriptor(t.Server, 2) }, says, byServer, false},
		{"trace the server", func(t *targets) (string, error) { return trace(t.Server) }, says, byServer, false},
		{"use the server's socket without its key", func(t *targets) (string, error) { return ask(t, "") }, func(_ *testing.T, o *outside, said string) bool {
			return said != "" || o.control && o.said[withItsKey].Said != "" // nobody else gets in without it either
		}, bySocket, false},
		{withItsKey, func(t *targets) (string, error) {
			key, err := os.ReadFile(filepath.Join(t.Data, host.AdminKeyFile))
			if err != nil {
				return "", err
			}
			return ask(t, strings.TrimSpace(string(key)))
		}, says, byFiles, false},
		{"change the limits of the server", func(t *targets) (string, error) {
			return "", unix.Prlimit(t.Server, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 4242, Max: 4343}, nil)
		}, func(t *testing.T, o *outside, _ string) bool {
			text, err := os.ReadFile(procFile(o.Server, "limits"))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(text), " 4242 ")
		}, bySeccomp, false},
		{"make the server run only when nothing else wants to", func(t *targets) (string, error) { return setIdle(t.Server) }, func(t *testing.T, o *outside, _ string) bool {
			policy, _, errno := syscall.Syscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(o.Server), 0, 0)
			if errno != 0 {
				t.Fatal(errno)
			}
			return policy == unix.SCHED_IDLE
		}, bySeccomp, false},

		{"read the workspace of another run", reading(below(ofNeighbour, victimSecret)), shows(neighbours), byFiles, false},
		{"read the home of another run", reading(below(ofNeighbour, "..", "home", victimSecret)), shows(neighbours), byFiles, false},
		{"write into the workspace of another run", writing(below(ofNeighbour, hostileFile)), exists(below(ofNeighbour, hostileFile)), byFiles, false},
		{
			"read the environment of another run", reading(func(t *targets) string { return procFile(t.Neighbour.PID, "environ") }),
			func(_ *testing.T, o *outside, said string) bool {
				return strings.Contains(said, hex.EncodeToString([]byte(o.neighbour)))
			}, byFiles, false,
		},
		{"read the memory of another run", func(t *targets) (string, error) { return readProcess(t.Neighbour.PID, t.Neighbour.Address) }, shows(neighbours), byFiles, false},
		{"trace another run", func(t *targets) (string, error) { return trace(t.Neighbour.PID) }, says, byFiles, false},
		{"take a descriptor of another run", func(t *targets) (string, error) { return takeDescriptor(t.Neighbour.PID, t.Neighbour.FD) }, shows(neighbours), byFiles, false},
		{
			"signal another run", func(t *targets) (string, error) { return "", syscall.Kill(t.Neighbour.PID, syscall.SIGUSR1) },
			signalled(func(o *outside) victim { return o.Neighbour }), bySignals, false,
		},
		{"read the memory of its own supervisor", func(*targets) (string, error) { return readMemory(os.Getppid(), 0x400000) }, says, byRunner + ": not dumpable", false},
		{"forge what its supervisor tells, by its pipe", func(t *targets) (string, error) {
			f, err := os.OpenFile(procFile(os.Getppid(), "fd/1"), os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(forge(t))
			}
			return "", err
		}, func(_ *testing.T, o *outside, _ string) bool {
			return strings.Contains(o.told(), forgedEvent+o.Mark)
		}, byRunner + ": not dumpable", false},
		{"take a descriptor of its own supervisor", func(*targets) (string, error) { return takeDescriptor(os.Getppid(), 1) }, says, byRunner + ": not dumpable", false},
		{"change the limits of its own supervisor", func(*targets) (string, error) {
			return "changed", unix.Prlimit(os.Getppid(), unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 4242, Max: 4343}, nil)
		}, says, bySeccomp, false},
		{"make its own supervisor run only when nothing else wants to", func(*targets) (string, error) {
			_, err := setIdle(os.Getppid())
			return "changed", err
		}, says, bySeccomp, false},
		{"have descriptors that it was not given", descriptors, says, byRunner, false},
		{"forge the list of a run's processes", writing(below(ofRuns, ".run_forged.processes")), exists(below(ofRuns, ".run_forged.processes")), byFiles, false},
		{"replace the program that runs start with", replaceProgram, func(t *testing.T, o *outside, _ string) bool {
			now, err := os.Stat(filepath.Join(o.Runs, ".triphammer"))
			if errors.Is(err, fs.ErrNotExist) {
				return o.before != nil
			} else if err != nil {
				t.Fatal(err)
			}
			return o.before == nil || !os.SameFile(o.before, now)
		}, byFiles, false},

		{
			"read the memory of a program of the server's user", func(t *targets) (string, error) { return readMemory(t.Bystander.PID, t.Bystander.Address) },
			shows(bystanders), byFiles, false,
		},
		{
			"signal a program of the server's user", func(t *targets) (string, error) { return "", syscall.Kill(t.Bystander.PID, syscall.SIGUSR1) },
			signalled(aBystander), bySignals, false,
		},
		{
			"say on which CPUs a program of the server's user runs", func(t *targets) (string, error) { return pinTo(t.Bystander.PID) },
			func(t *testing.T, o *outside, _ string) bool {
				var set unix.CPUSet
				if err := unix.SchedGetaffinity(o.Bystander.PID, &set); err != nil {
					t.Fatal(err)
				}
				return set.Count() == 1
			}, bySeccomp, true,
		},
		{"reach its socket by path", sending("unix", func(t *targets) string { return t.Bystander.Socket }), recorded(aBystander, "path"), bySockets, false},
		{"reach its abstract socket", sending("unix", func(t *targets) string { return t.Bystander.Abstract }), recorded(aBystander, "abstract"), bySignals, false},
		{"read its System V shared memory", sharedMemory, shows(bystanders), bySeccomp, false},
		{"read its POSIX message queue", messageQueue, shows(bystanders), bySeccomp, true},
		{"read the keyring of the user", keyring, shows(bystanders), bySeccomp, true},
		{"write to a terminal of the user", writing(func(t *targets) string { return t.Bystander.Terminal }), recorded(aBystander, "terminal"), byTerminal, false},
		{
			"change the mode of a file of the user", func(t *targets) (string, error) { return "", os.Chmod(t.Mine, 0o604) },
			func(t *testing.T, o *outside, _ string) bool {
				info, err := os.Stat(o.Mine)
				if err != nil {
					t.Fatal(err)
				}
				return info.Mode().Perm() == 0o604
			}, byOwner, false,
		},

		{"change the mode of a file of another run", func(t *targets) (string, error) {
			return "", os.Chmod(filepath.Join(t.Neighbour.Dir, victimSecret), 0o604)
		}, func(t *testing.T, o *outside, _ string) bool {
			info, err := os.Stat(filepath.Join(o.Neighbour.Dir, victimSecret))
			if err != nil {
				t.Fatal(err)
			}
			return info.Mode().Perm() == 0o604
		}, bySandbox, false},
		{"write into the data directory", writing(below(ofData, hostileFile)), exists(below(ofData, hostileFile)), byFiles, false},
		{
			"write into a folder of PATH", writing(func(t *targets) string { return filepath.Join(t.Bin, hostileFile) }),
			exists(func(t *targets) string { return filepath.Join(t.Bin, hostileFile) }), byFiles, false,
		},
		{"write into the home of the server's user", writing(below(ofHome, ".profile")), exists(below(ofHome, ".profile")), byFiles, false},
		{"write into /tmp of the machine", writing(inTemp), exists(inTemp), byFiles, false},
		{"write into /dev/shm of the machine", writing(inShared), exists(inShared), byFiles, false},
		{"push to the production branch of the definitions", push, func(t *testing.T, o *outside, _ string) bool {
			head, err := exec.Command("git", "-C", o.Repo, "-c", "safe.directory=*", "log", "-1", "--format=%s", "main").Output()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(head), o.Mark)
		}, byFiles, false},
		{
			"plant a hook in a repository that others use", writing(below(ofRepo, ".git", "hooks", "post-checkout")),
			exists(below(ofRepo, ".git", "hooks", "post-checkout")), byFiles, false,
		},

		{"make a user namespace", func(*targets) (string, error) { return cloned(syscall.CLONE_NEWUSER, "/usr/bin/id", "-u") }, says, bySeccomp, true},
		{"mount", func(*targets) (string, error) {
			return cloned(syscall.CLONE_NEWUSER|syscall.CLONE_NEWNS, "/bin/sh", "-c", "mount -t tmpfs none /mnt && echo mounted")
		}, says, bySeccomp, true},
		{"become another user by a setuid program", func(t *targets) (string, error) {
			out, err := exec.Command(t.Setuid, "-u").Output()
			return strings.TrimSpace(string(out)), err
		}, func(_ *testing.T, o *outside, said string) bool { return said == "12345" }, byNoPrivs, true},
		{"leave a program that gives others its user (setuid)", func(*targets) (string, error) {
			return "", errors.Join(os.WriteFile(setuidFile, nil, 0o700), os.Chmod(setuidFile, os.ModeSetuid|0o755))
		}, func(t *testing.T, o *outside, _ string) bool {
			info, err := os.Stat(filepath.Join(o.Runs, o.attacked, "workspace", setuidFile))
			if err != nil {
				t.Fatal(err)
			}
			return info.Mode()&os.ModeSetuid != 0
		}, bySeccomp, false},
		{"make an io_uring", calling(unix.SYS_IO_URING_SETUP, func() [6]uintptr { return [6]uintptr{1, pointer(&ringParams)} }), says, bySeccomp, true},
		{"make a socket to other virtual machines (AF_VSOCK)", calling(unix.SYS_SOCKET, func() [6]uintptr {
			return [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}
		}), says, bySeccomp, true},
		{"use bpf", calling(unix.SYS_BPF, func() [6]uintptr { return [6]uintptr{0, pointer(&bpfAttr), 128} }), says, bySeccomp, true},
		{"use perf events", calling(unix.SYS_PERF_EVENT_OPEN, func() [6]uintptr { return [6]uintptr{pointer(&perfAttr), 0, ^uintptr(0), ^uintptr(0), 0} }), says, bySeccomp, true},
		{"run a program with 32-bit system calls", run32, says, bySeccomp, true},
		{"make a system call of x32", calling(unix.SYS_GETPID|0x40000000, none), says, bySeccomp, true},

		{"outlive its run (sessions, double forks, its supervisor killed)", nil, func(_ *testing.T, o *outside, _ string) bool { return o.outlived }, byRunner, false},
		{"reach a loopback port, network on", sending("tcp", func(t *targets) string { return t.Bystander.TCP }), recorded(aBystander, "tcp"), byNetwork, false},
		{"ask a name server, network on", func(t *targets) (string, error) { return "", askName(&t.Bystander, t.Mark) }, recorded(aBystander, "dns"), byNetwork, false},
		{"reach the metadata address 169.254.169.254, network on", metadata(0), recorded(aBystander, "metadata 169.254.169.254"), byNetwork, true},
		{"reach the metadata address fd00:ec2::254, network on", metadata(1), recorded(aBystander, "metadata fd00:ec2::254"), byNetwork, true},
		{"reach a loopback port, network off", nil, bystanderGot("tcp offline"), byRefusal, false},
		{"ask a name server, network off", nil, bystanderGot("dns offline"), byRefusal, false},
		{"reach a metadata address, network off", nil, bystanderGot("metadata 169.254.169.254 offline", "metadata fd00:ec2::254 offline"), byRefusal, true},
		{"reach a loopback port, network a list of hosts", nil, bystanderGot("tcp listed"), byRefusal, false},
		{"ask a name server, network a list of hosts", nil, bystanderGot("dns listed"), byRefusal, false},
		{"reach a metadata address, network a list of hosts", nil, bystanderGot("metadata 169.254.169.254 listed", "metadata fd00:ec2::254 listed"), byRefusal, true},
		{"keep more memory than its limit", nil, exceeds("memory"), byMeasuring, false},
		{"keep more memory than its limit in memfds", nil, exceeds("memfd"), byMeasuring, false},
		{"keep more memory than its limit in /dev/shm", nil, exceeds("shm"), byFiles, false},
		{"keep more processes than its limit", nil, exceeds("processes"), byMeasuring, false},
		{"keep more files than its limit", nil, exceeds("disk"), byMeasuring, false},
		{"keep more files than its limit, without names", nil, exceeds("unnamed"), byMeasuring, false},
		{"kill the server", nil, func(_ *testing.T, o *outside, _ string) bool { // it is the last
			o.start("kill", strconv.Itoa(o.Server))()
			return !o.serves()
		}, bySignals, false},
	}
}
