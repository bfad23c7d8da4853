package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/api"
	"triphammer/server/sandbox"
)

// escape is something that an agent must not get done (SPEC 14.1).
type escape struct {
	name string // as the table has it
	// try is what the agent does. What it says counts only if seen believes it.
	try func(*targets) (string, error)
	// seen tells from outside whether the agent has got through.
	seen func(t *testing.T, o *outside, said string) bool
	by   string // what stops it in the isolation kernel
	// machine marks those that the machine may refuse to everybody, without any walls.
	machine bool
}

// outside is what the test sees around a hostile agent.
type outside struct {
	*world
	targets
	secrets   map[string][]byte // files that nobody may read, by their names in targets
	bystander string            // secrets of the victims
	neighbour string
	before    os.FileInfo // the program that runs start with, if the walls need a copy of it
	attacked  string      // id of the run of the hostile agent
	outlived  bool
	used      map[string]api.Run // runs that used more than they may, by environment
}

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

// recorded: the victim has noted it.
func recorded(v func(*outside) victim, what string) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool {
		text, err := os.ReadFile(filepath.Join(v(o).Dir, victimRecord))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), strings.TrimSuffix(what+" "+o.Mark, " "))
	}
}

// listenerGot: the listener has got a word.
func listenerGot(word string) func(*testing.T, *outside, string) bool {
	return func(t *testing.T, o *outside, _ string) bool {
		text, err := os.ReadFile(filepath.Join(o.Bystander.Dir, victimRecord))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "tcp "+word)
	}
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

const hostileFile = "hostile.txt"

// escapes are all attempts, in the order of the table.
var escapes []escape

func init() { // it and the agent refer to each other
	none := func() [6]uintptr { return [6]uintptr{} }
	escapes = []escape{
		{"read the key that seals the secrets", reading(below(ofData, "key")), file("key"), byFiles, false},
		{"read the database", reading(below(ofData, storeFile)), file("database"), byFiles, false},
		{"read the configuration", reading(func(t *targets) string { return t.Config }), file("config"), byFiles, false},
		{"read the key of the TLS certificate", reading(func(t *targets) string { return t.TLSKey }), file("tls"), byFiles, false},
		{"read the folder of secrets", reading(func(t *targets) string { return filepath.Join(t.Secrets, "S2") }), file("secrets"), byFiles, false},
		{"read `admin.key`", reading(below(ofData, adminKeyFile)), file("admin"), byFiles, false},
		{"read the home of the server's user", reading(below(ofHome, ".ssh", "id_ed25519")), file("home"), byFiles, false},
		{"read a file by a hard link in the workspace", func(t *targets) (string, error) {
			if err := os.Link(t.Mine, "linked"); err != nil {
				return "", err
			}
			return reading(func(*targets) string { return "linked" })(t)
		}, file("mine"), byFiles, false},
		{"have links in the workspace or among the artifacts read outside", plant, func(t *testing.T, o *outside, _ string) bool {
			key := string(o.secrets["key"])
			shown := o.run("", "runs", "logs", "--full", o.attacked) + o.run("", "runs", "show", o.attacked, "-o", "json")
			return strings.Contains(shown, strings.TrimSpace(key)) || strings.Contains(shown, hex.EncodeToString([]byte(key)))
		}, byRunner, false},
		{"have hooks or `core.fsmonitor` of the workspace run outside", nil, func(_ *testing.T, o *outside, _ string) bool {
			_, err := os.Lstat(filepath.Join(o.Dir, "open", "trap-"+o.Mark))
			return err == nil
		}, byRunner, false},

		{"read the server's environment", reading(func(t *targets) string { return procFile(t.Server, "environ") }), says, byServer, false},
		{"read the server's memory by /proc", func(t *targets) (string, error) { return readMemory(t.Server, 0x400000) }, says, byServer, false},
		{"read the server's memory by process_vm_readv", func(t *targets) (string, error) { return readProcess(t.Server, 0x400000) }, says, byServer, false},
		{"open the server's files by /proc", reading(func(t *targets) string { return procFile(t.Server, "fd/2") }), says, byServer, false},
		{"take a descriptor of the server", func(t *targets) (string, error) { return takeDescriptor(t.Server, 2) }, says, byServer, false},
		{"trace the server", func(t *targets) (string, error) { return trace(t.Server) }, says, byServer, false},
		{"use the server's socket without its key", func(t *targets) (string, error) { return ask(t, "") }, says, bySocket, false},
		{"use the server's socket with its key", func(t *targets) (string, error) {
			key, err := os.ReadFile(filepath.Join(t.Data, adminKeyFile))
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
		{"slow the server down", func(t *targets) (string, error) {
			return "", unix.Setpriority(unix.PRIO_PROCESS, t.Server, 1)
		}, func(t *testing.T, o *outside, _ string) bool {
			raw, err := unix.Getpriority(unix.PRIO_PROCESS, o.Server)
			if err != nil {
				t.Fatal(err)
			}
			return 20-raw == 1 // as getpriority(2) has it in the kernel
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
			recorded(func(o *outside) victim { return o.Neighbour }, "signal"), bySignals, false,
		},
		{"read the memory of its own supervisor", func(*targets) (string, error) { return readMemory(os.Getppid(), 0x400000) }, says, byRunner + ": not dumpable", false},
		{"forge what its supervisor tells, by its pipe", func(t *targets) (string, error) {
			f, err := os.OpenFile(procFile(os.Getppid(), "fd/1"), os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(forge(t))
			}
			return "", err
		}, func(_ *testing.T, o *outside, _ string) bool {
			return strings.Contains(o.run("", "runs", "logs", "--full", o.attacked), forgedEvent+o.Mark)
		}, byRunner + ": not dumpable", false},
		{"take a descriptor of its own supervisor", func(*targets) (string, error) { return takeDescriptor(os.Getppid(), 1) }, says, byRunner + ": not dumpable", false},
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
			recorded(aBystander, "signal"), bySignals, false,
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
		{"push to the repository of the definitions", func(t *targets) (string, error) {
			head, err := exec.Command("git", "-C", t.Repo, "-c", "safe.directory=*", "rev-parse", "HEAD").Output()
			if err != nil {
				head = []byte(t.Mark)
			}
			return "", os.WriteFile(filepath.Join(t.Repo, ".git", "refs", "heads", "hostile"), head, 0o644)
		}, func(_ *testing.T, o *outside, _ string) bool {
			_, err := os.Lstat(filepath.Join(o.Repo, ".git", "refs", "heads", "hostile"))
			return err == nil
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
		{"make an io_uring", calling(unix.SYS_IO_URING_SETUP, func() [6]uintptr { return [6]uintptr{1, pointer(&ringParams)} }), says, bySeccomp, true},
		{"use bpf", calling(unix.SYS_BPF, func() [6]uintptr { return [6]uintptr{0, pointer(&bpfAttr), 128} }), says, bySeccomp, true},
		{"use perf events", calling(unix.SYS_PERF_EVENT_OPEN, func() [6]uintptr { return [6]uintptr{pointer(&perfAttr), 0, ^uintptr(0), ^uintptr(0), 0} }), says, bySeccomp, true},
		{"run a program with 32-bit system calls", run32, says, bySeccomp, true},
		{"make a system call of x32", calling(unix.SYS_GETPID|0x40000000, none), says, bySeccomp, true},

		{"outlive its run (sessions, double forks, its supervisor killed)", nil, func(_ *testing.T, o *outside, _ string) bool { return o.outlived }, byRunner, false},
		{"reach a loopback port, network on", sending("tcp", func(t *targets) string { return t.Bystander.TCP }), recorded(aBystander, "tcp"), bySandbox, false},
		{"send a packet to a loopback port, network on", sending("udp", func(t *targets) string { return t.Bystander.UDP }), recorded(aBystander, "udp"), bySandbox, false},
		{"reach a loopback port, network off", nil, listenerGot("offline"), byRefusal, false},
		{"reach a loopback port, network a list of hosts", nil, listenerGot("listed"), byRefusal, false},
		{"keep more memory than its limit", nil, exceeds("memory"), byMeasuring, false},
		{"keep more processes than its limit", nil, exceeds("processes"), byMeasuring, false},
		{"keep more files than its limit", nil, exceeds("disk"), byMeasuring, false},
		{"kill the server", nil, func(_ *testing.T, o *outside, _ string) bool { // it is the last
			id := strings.Fields(o.run("", "runs", "create", "--prompt", strconv.Itoa(o.Server), "--environment", "kill"))[0]
			_ = o.command("runs", "watch", id).Run() // it fails, or the server has gone
			return o.command("status").Run() != nil
		}, bySignals, false},
	}
}

// walled are walls and users of runs: a column of the table.
type walled struct {
	isolation string
	root      bool // the server is root, and its runs are not
}

func (c walled) String() string {
	if c.root {
		return c.isolation + ", server is root"
	}
	return c.isolation
}

// hostileColumns are all columns.
var hostileColumns = []walled{
	{sandbox.None, false},
	{sandbox.None, true},
	{sandbox.Kernel, false},
	{sandbox.Kernel, true},
	{sandbox.Sandbox, false},
	{sandbox.Sandbox, true},
}

// attacked are the columns that are tested: the fast ones, or all (hostile_full_test.go).
var attacked = []walled{{sandbox.None, false}, {sandbox.Kernel, false}}

// hostileProgram is a copy of this program that everybody can run.
func hostileProgram(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "hostile")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// escapesOf starts a server, lets a hostile agent try everything, and returns what it has
// reached, by the names of the escapes.
func escapesOf(t *testing.T, c walled) map[string]bool {
	mark := fmt.Sprintf("m%x", time.Now().UnixNano())
	o := &outside{bystander: rand.Text(), neighbour: rand.Text(), secrets: make(map[string][]byte), used: make(map[string]api.Run)}
	o.world = &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	w := o.world
	bin := filepath.Join(w.dir, "bin")
	at := func(name string) string { return filepath.Join(w.dir, name) }
	o.targets = targets{
		Mark: mark, Dir: w.dir, Data: at("data"), Runs: at("runs"), Config: at("config.yaml"), TLSKey: at("tls.key"), Secrets: at("secrets"), Home: w.dir,
		Repo: at("repo"), Bin: bin, Mine: at("mine"), Setuid: filepath.Join(bin, "setuid"),
	}
	for _, dir := range []string{bin, at("secrets"), at(".ssh"), at("bystander"), at("open"), at("runs")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := hostileProgram(t, bin)
	command := func(args ...string) string {
		text, err := json.Marshal(append([]string{program, hostileCommand}, args...))
		if err != nil {
			t.Fatal(err)
		}
		return "command: " + string(text) + "\n"
	}
	sleep := fmt.Sprintf("6%d", time.Now().UnixNano())
	w.write(map[string]string{
		"factory.yaml": factoryYAML, "environments/agent.yaml": command("agent"), "environments/outlive.yaml": command("outlive", sleep),
		"environments/neighbour.yaml": command("victim", "neighbour", mark) + "env: {VICTIM_SECRET: " + o.neighbour + "}\n",
		"environments/offline.yaml":   "network: off\n" + command("dial", "offline"),
		"environments/listed.yaml":    "network: [api.example.com]\n" + command("dial", "listed"),
		"environments/memory.yaml":    "resources: {memoryMb: 256}\n" + command("use", "memory"),
		"environments/processes.yaml": "resources: {processes: 60}\n" + command("use", "processes"),
		"environments/disk.yaml":      "resources: {diskMb: 16}\n" + command("use", "disk"),
		"environments/kill.yaml":      command("kill"),
	})
	w.git("init", "-q", "--initial-branch=main")
	w.push()
	secretFile := func(name, path string, mode os.FileMode, text []byte) {
		t.Helper()
		if text == nil {
			text = []byte(rand.Text() + "\n")
		}
		o.secrets[name] = text
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	secretFile("config", o.Config, 0o600, []byte("# "+rand.Text()+"\nrate-limit: 60\n"))
	certificate, key := selfSigned(t)
	secretFile("tls", o.TLSKey, 0o600, key)
	secretFile("certificate", at("tls.crt"), 0o644, certificate)
	secretFile("secrets", filepath.Join(o.Secrets, "S2"), 0o600, nil)
	secretFile("home", at(".ssh/id_ed25519"), 0o600, nil)
	secretFile("mine", o.Mine, 0o600, nil)
	err := errors.Join(exec.Command("cp", "/usr/bin/id", o.Setuid).Run(), os.Chmod(at("open"), 0o777), os.Chmod(filepath.Dir(binary), 0o711),
		os.Chmod(filepath.Dir(w.dir), 0o711), os.Chmod(w.dir, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	if !c.root {
		w.plainUser()
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(o.Setuid, 12345, 0), os.Chmod(o.Setuid, 0o4755)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = os.Remove(inTemp(&o.targets)), os.Remove(inShared(&o.targets)) // if it has made them
		if w.cmd != nil {
			w.kill()
		}
		if t.Failed() && w.logs != nil {
			t.Log(w.logs)
		}
	})

	bystander := exec.Command(program, hostileCommand, "victim", "bystander", mark)
	bystander.Dir, bystander.Env = at("bystander"), []string{"VICTIM_SECRET=" + o.bystander}
	bystander.SysProcAttr = &syscall.SysProcAttr{Credential: w.user, Pdeathsig: syscall.SIGKILL}
	bystander.Stderr = t.Output()
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(bystander.Process.Kill(), bystander.Wait()) })
	o.Bystander = awaitVictim(t, at("bystander"))

	w.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(binary)+":"+bin+":"+os.Getenv("PATH"), "TRIPHAMMER_ISOLATION="+c.isolation, "TRIPHAMMER_RUN_USER=")
	}, "--config", o.Config, "--tls-cert", at("tls.crt"), "--tls-key", o.TLSKey, "--secrets-dir", o.Secrets, "--workspaces", o.Runs)
	o.Server = w.cmd.Process.Pid
	for name, file := range map[string]string{"key": "key", "admin": adminKeyFile, "database": storeFile} {
		text, err := os.ReadFile(filepath.Join(o.Data, file))
		if err != nil {
			t.Fatal(err)
		}
		o.secrets[name] = text
	}
	create := func(environment, prompt string) string {
		return strings.Fields(w.run("", "runs", "create", "--prompt", prompt, "--environment", environment))[0]
	}
	neighbour := create("neighbour", "x")
	o.Neighbour = awaitVictim(t, filepath.Join(o.Runs, neighbour, "workspace"))
	o.Neighbour.PID = someProcess(t, func(line string) bool { return strings.HasSuffix(line, "\x00victim\x00neighbour\x00"+mark+"\x00") })
	if o.Neighbour.PID == 0 {
		t.Fatal("the victim has gone")
	}
	if o.before, err = os.Stat(filepath.Join(o.Runs, ".triphammer")); errors.Is(err, fs.ErrNotExist) {
		o.before = nil
	} else if err != nil {
		t.Fatal(err)
	}

	prompt, err := json.Marshal(o.targets)
	if err != nil {
		t.Fatal(err)
	}
	o.attacked = create("agent", string(prompt))
	wait := func(id string) api.Run {
		t.Helper()
		_ = w.command("runs", "watch", id).Run() // its status tells whether the run has failed
		var r api.Run
		w.decode(&r, "runs", "show", id, "-o", "json")
		return r
	}
	if r := wait(o.attacked); r.State != "SUCCEEDED" {
		t.Fatalf("the hostile agent: %s %s\n%s", r.State, r.StatusMessage, w.run("", "runs", "logs", o.attacked))
	}
	said := make(map[string]answered)
	text, err := os.ReadFile(filepath.Join(o.Runs, o.attacked, "workspace", hostileSeen))
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	started := make(map[string]string)
	for _, environment := range []string{"memory", "processes", "disk"} {
		started[environment] = create(environment, "x")
	}
	for environment, id := range started {
		o.used[environment] = wait(id)
	}
	for _, environment := range []string{"offline", "listed"} {
		wait(create(environment, o.Bystander.TCP)) // it may be refused
	}
	wait(create("outlive", "x"))
	o.outlived = someProcess(t, func(line string) bool { return strings.Contains(line, sleep) }) != 0
	got := make(map[string]bool)
	for _, e := range escapes {
		got[e.name] = e.seen(t, o, said[e.name].Said)
		t.Logf("%-70s %v %.100s %s", e.name, got[e.name], said[e.name].Said, said[e.name].Err)
	}
	return got
}

// decode reads what a command prints in JSON.
func (w *world) decode(into any, args ...string) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.run("", args...)), into); err != nil {
		w.t.Fatal(err)
	}
}

// awaitVictim waits until a victim has told of itself.
func awaitVictim(t *testing.T, dir string) (v victim) {
	t.Helper()
	err := waitFor(t.Context(), 20*time.Second, "a victim is not there", func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(dir, victimReady))
		return err == nil && json.Unmarshal(text, &v) == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// someProcess finds a process by its command line, in which a zero byte ends each word, as
// this machine numbers it; 0: there is none.
func someProcess(t *testing.T, matches func(line string) bool) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && matches(string(line)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// selfSigned is a certificate of 127.0.0.1, and its key.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// The table of SPEC 14.3 is between these lines.
const (
	securityPage = "../../docs/security.md"
	tableBegins  = "<!-- The table is made by `go test -tags full ./cmd/triphammer -run TestHostileAgentEscapes -update`. -->\n"
	tableEnds    = "<!-- The table ends here. -->\n"
)

const stopped, reached = "stopped", "**done**"

func verdict(got bool) string {
	if got {
		return reached
	}
	return stopped
}

// TestHostileAgentEscapes: an agent tries to get out of each isolation, and docs/security.md
// says exactly what it gets done (SPEC 14.1, 14.3). -update writes the table, if all columns
// are tested.
func TestHostileAgentEscapes(t *testing.T) {
	got := make(map[walled]map[string]bool)
	for _, c := range attacked {
		if c.root && os.Geteuid() != 0 {
			t.Logf("%s: only root can test it", c)
			continue
		}
		t.Run(c.String(), func(t *testing.T) { got[c] = escapesOf(t, c) })
	}
	if t.Failed() {
		return
	}
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(page), tableBegins)
	table, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", securityPage)
	}
	if *update && len(got) == len(hostileColumns) {
		if err := os.WriteFile(securityPage, []byte(before+tableBegins+tableOf(got)+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	claims := make(map[string][]string) // cells of a row, by its first
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		claims[cells[0]] = cells[1:]
	}
	if len(claims) != len(escapes)+2 {
		t.Errorf("the table has %d rows for %d attempts", len(claims)-2, len(escapes))
	}
	for _, e := range escapes {
		cells := claims[e.name]
		if len(cells) != len(hostileColumns)+1 || cells[len(cells)-1] != e.by {
			t.Errorf("%s: the table says %q", e.name, cells)
			continue
		}
		for i, c := range hostileColumns {
			if seen, ok := got[c]; ok && cells[i] != verdict(seen[e.name]) && (seen[e.name] || !e.machine) {
				t.Errorf("%s (%s): the table says %s, and it was %s", e.name, c, cells[i], verdict(seen[e.name]))
			}
		}
	}
}

// tableOf is the table in Markdown.
func tableOf(got map[walled]map[string]bool) string {
	var b strings.Builder
	b.WriteString("| The agent tries to …")
	for _, c := range hostileColumns {
		fmt.Fprintf(&b, " | %s", c)
	}
	b.WriteString(" | What stops it in kernel |\n|" + strings.Repeat(" --- |", len(hostileColumns)+2) + "\n")
	for _, e := range escapes {
		fmt.Fprintf(&b, "| %s", e.name)
		for _, c := range hostileColumns {
			fmt.Fprintf(&b, " | %s", verdict(got[c][e.name]))
		}
		fmt.Fprintf(&b, " | %s |\n", e.by)
	}
	return b.String()
}
