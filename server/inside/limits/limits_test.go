package limits

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/run/task"
)

// TestMain lets the test program play the processes of a run.
func TestMain(m *testing.M) {
	switch os.Getenv("LIMITS_TEST") {
	case "hog": // touches as many MiB as it is told, says so, and waits
		n, _ := strconv.Atoi(os.Getenv("LIMITS_MIB"))
		if _, err := touch(n<<20, unix.MAP_PRIVATE); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "memfd": // as hog, by a file in memory that it also maps
		n, _ := strconv.Atoi(os.Getenv("LIMITS_MIB"))
		fd, err := unix.MemfdCreate("hog", 0)
		if err == nil {
			err = unix.Fallocate(fd, 0, 0, int64(n)<<20)
		}
		if err == nil {
			_, err = unix.Mmap(fd, 0, n<<20, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "inherit": // applies the limits, and lets a shell show them
		runtime.LockOSThread()
		var i Inherited
		err := json.Unmarshal([]byte(os.Getenv("LIMITS_JSON")), &i)
		if err == nil {
			err = errors.Join(i.Apply(), i.TakeCPUs())
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		shell := exec.Command("/bin/sh", "-c", os.Getenv("LIMITS_SHELL"))
		shell.Stdout, shell.Stderr = os.Stdout, os.Stdout
		if err := shell.Run(); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// touch takes so many bytes of memory.
func touch(size, flags int) ([]byte, error) {
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|flags)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	return data, err
}

// play starts the test program in a part, and returns when it has said that it is ready.
func play(t *testing.T, part string, env ...string) int {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(env, "LIMITS_TEST="+part)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return c.Process.Pid
}

func group(t *testing.T, m *Machine, l task.Limits) *Group {
	t.Helper()
	g, err := m.New("run_1", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// watched is what a watch of the group reports; nil if it reports nothing until there is
// enough of it.
func watched(t *testing.T, g *Group, u Usage, enough func() bool) (found error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	looked := u.Processes
	u.Processes = func() []int {
		if enough != nil && enough() {
			cancel()
		}
		return looked()
	}
	g.Watch(ctx, u, func(err error) { found = err })
	if !errors.Is(ctx.Err(), context.Canceled) && found == nil {
		t.Fatal("nothing was reported")
	}
	return found
}

// TestMeasuring: processes that use more than they may together are found, and others are
// left alone.
func TestMeasuring(t *testing.T) {
	one, two := play(t, "hog", "LIMITS_MIB=60"), play(t, "hog", "LIMITS_MIB=60")
	pids := func() []int { return []int{one, two, 1 << 30} } // the last has ended meanwhile
	many := func() []int { return slices.Repeat([]int{one, two}, OwnTasks/2) }
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "big"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	size := func(context.Context) (bytes, files int64) {
		info, err := os.Stat(filepath.Join(folder, "big"))
		if err != nil {
			return 0, 0
		}
		return info.Size(), 1
	}
	m := &Machine{}
	for name, c := range map[string]struct {
		limits task.Limits
		want   string
	}{
		"memory":         {task.Limits{Memory: 100 << 20}, "more than its memory of 100 MiB, and was stopped (resources.memoryMb"},
		"processes":      {task.Limits{Processes: 3}, "more than its 3 processes and threads"},
		"disk":           {task.Limits{Disk: 2 << 20}, "more than its disk of 2.0 MiB"},
		"enough for all": {task.Limits{Memory: 200 << 20, Processes: 1000, Disk: 4 << 20}, ""},
		"no limits":      {task.Limits{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := group(t, m, c.limits)
			if c.limits == (task.Limits{}) {
				if g.look(pids) || g.Err() != nil {
					t.Error(g.Err())
				}
				return
			}
			looks := 0
			enough := func() bool { looks++; return c.want == "" && looks > 2 }
			usage := Usage{Processes: pids, Disk: size}
			if name == "processes" {
				usage.Processes = many
			}
			err := watched(t, g, usage, enough)
			if c.want == "" {
				if err != nil || g.Err() != nil {
					t.Error(err, g.Err())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrExceeded) || !errors.Is(g.Err(), ErrExceeded) {
				t.Error(err)
			}
		})
	}
}

// TestSharedMemoryCountsOnce: memory that processes share does not count for each of them.
func TestSharedMemoryCountsOnce(t *testing.T) {
	const size = 64 << 20
	shared, err := touch(size, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(shared) }()
	// The copies of this program share its code.
	one, two := play(t, "hog", "LIMITS_MIB=1"), play(t, "hog", "LIMITS_MIB=1")
	pids := []int{one, two}
	if all, own := memory(pids, residentSize), memory(pids, proportionalSize); own >= all || own < 2<<20 {
		t.Errorf("resident %d, proportional %d", all, own)
	}
	if n := proportionalSize(os.Getpid()); n < size {
		t.Errorf("%d bytes, with %d shared with nobody", n, size)
	}
}

// TestFilesInMemoryCountOnce: what a process maps of a file in memory does not count beside the
// file, and a file counts once for all who hold it.
func TestFilesInMemoryCountOnce(t *testing.T) {
	one := play(t, "memfd", "LIMITS_MIB=256") // beside it, what the race detector takes counts for little
	for limit, want := range map[int64]bool{400 << 20: false, 200 << 20: true} {
		g := group(t, &Machine{}, task.Limits{Memory: limit})
		if g.look(func() []int { return []int{one, one} }); (g.Err() != nil) != want {
			t.Errorf("limit %d: %v", limit, g.Err())
		}
	}
}

// TestOutput: what the agent prints is counted, and told once.
func TestOutput(t *testing.T) {
	g := group(t, &Machine{}, task.Limits{Output: 1000})
	g.Printed(1000)
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	for range 3 {
		g.Printed(1)
	}
	err := watched(t, g, Usage{Processes: func() []int { return nil }}, nil)
	if err == nil || !strings.Contains(err.Error(), "output of 1000 bytes") {
		t.Error(err)
	}
}

// TestInherited: what the first process applies holds for all that it starts.
func TestInherited(t *testing.T) {
	g := group(t, &Machine{}, task.Limits{CPUs: 0.5, Disk: 1 << 20, Processes: 7})
	text, err := json.Marshal(g.Inherited(false))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = []string{
		"LIMITS_TEST=inherit", "LIMITS_JSON=" + string(text), "PATH=" + os.Getenv("PATH"), "LIMITS_FILE=" + filepath.Join(t.TempDir(), "f"),
		`LIMITS_SHELL=cat /proc/self/oom_score_adj
		grep Cpus_allowed_list /proc/self/status
		grep -E "Max (processes|file size)" /proc/self/limits
		head -c 3000000 /dev/zero > $LIMITS_FILE; wc -c < $LIMITS_FILE`,
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Join(strings.Fields(string(out)), " ")
	file := "Max file size 1048576 1048576 bytes"
	if !strings.HasPrefix(got, "500 Cpus_allowed_list: ") || !strings.Contains(got, file) || !strings.HasSuffix(got, "1048576") {
		t.Errorf("%s", out)
	}
	if _, list, _ := strings.Cut(got, "Cpus_allowed_list: "); strings.ContainsAny(strings.Fields(list)[0], ",-") {
		t.Errorf("the run may use more than one CPU: %s", out)
	}
	var hard uint64
	if _, rest, ok := strings.Cut(got, "Max processes "); !ok {
		t.Errorf("%s", out)
	} else if _, err := fmt.Sscan(strings.Fields(rest)[1], &hard); err != nil || hard < spareTasks || hard > 4*spareTasks {
		t.Errorf("%d processes: %s", hard, out)
	}
}

// fakeTree is a folder with the files that the kernel would make.
func fakeTree(t *testing.T, controllers string) (proc, dir string) {
	t.Helper()
	root := t.TempDir()
	mounts := "30 23 0:26 / /proc rw - proc proc rw\n31 23 0:27 / " + filepath.Join(root, "cgroup") + " rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	proc, dir = filepath.Join(root, "proc"), filepath.Join(root, "cgroup", "system.slice", "triphammer.service")
	for path, text := range map[string]string{
		filepath.Join(proc, "mountinfo"):                                    mounts,
		filepath.Join(proc, "cgroup"):                                       "3:cpu:/\n0::/system.slice/triphammer.service\n",
		filepath.Join(dir, "cgroup.controllers"):                            controllers + "\n",
		filepath.Join(dir, "cgroup.subtree_control"):                        "",
		filepath.Join(dir, "memory.max"):                                    "max\n",
		filepath.Join(root, "cgroup", "system.slice", "cgroup.controllers"): controllers,
		filepath.Join(root, "cgroup", "system.slice", "memory.max"):         "8589934592\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proc, dir
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(text))
}

// TestCgroupFiles: what is written into the files of a tree, and read from them. A folder
// stands for the kernel, so it cannot show that the kernel does as it is told.
func TestCgroupFiles(t *testing.T) {
	proc, dir := fakeTree(t, "cpuset cpu io memory pids")
	tr, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	tr.rmdir = os.RemoveAll
	if _, err := findTree(proc); (err == nil) != (os.Geteuid() != 0) { // a root user divides only what is marked as his
		t.Error(err)
	}
	if n := tr.memory(); n != 8<<30 {
		t.Errorf("%d bytes of memory", n)
	}
	if err := tr.divide(8 << 30); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"server/cgroup.procs": strconv.Itoa(os.Getpid()), "cgroup.subtree_control": "+memory +pids +cpu",
		"runs/cgroup.subtree_control": "+memory +pids +cpu", "runs/memory.max": strconv.Itoa(7 << 30),
	} {
		if got := content(t, dir, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	m := &Machine{tree: tr}
	g, err := m.New("run_1", task.Limits{Memory: 2 << 30, CPUs: 1.5, Processes: 100})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "runs", "run_1")
	for path, want := range map[string]string{
		"memory.max": "2147483648", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "132", "cpu.max": "150000 100000",
	} {
		if got := content(t, own, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if i := g.Inherited(true); i.CPUs != 0 || i.Processes != 0 {
		t.Errorf("what the kernel keeps is bounded again: %+v", i)
	}
	var attr syscall.SysProcAttr
	if g.Apply(&attr); !attr.UseCgroupFD {
		t.Error("the first process does not start in the group")
	}
	if g.look(func() []int { t.Error("what the kernel keeps is measured"); return nil }) || g.Err() != nil {
		t.Error(g.Err())
	}
	for _, c := range []struct{ file, text, want string }{
		{"memory.events", "low 0\nhigh 0\nmax 31\noom 1\noom_kill 4\n", "its memory of 2.0 GiB"},
		{"memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 4\n", "no memory was left"},
		{"pids.events", "max 3\n", "its 100 processes"},
	} {
		one := &Group{limits: g.limits, cgroup: g.cgroup, notify: make(chan error, 1)}
		if err := write(own, c.file, c.text); err != nil {
			t.Fatal(err)
		}
		if err := one.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
		if err := os.Remove(filepath.Join(own, c.file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(own); !errors.Is(err, os.ErrNotExist) {
		t.Error("the group is still there:", err)
	}
	if err := m.Reap("run_1"); err != nil { // it is gone already
		t.Error(err)
	}
}

// TestNoCgroups: why there are none is told, for whoever can change it.
func TestNoCgroups(t *testing.T) {
	proc, dir := fakeTree(t, "hugetlb")
	if _, err := openTree(dir); err == nil || !strings.Contains(err.Error(), "none of the controllers memory, pids, cpu") {
		t.Error(err)
	}
	for _, c := range []struct{ file, text, want string }{
		{"mountinfo", "30 23 0:26 / /proc rw - proc proc rw\n", "not mounted"},
		{"cgroup", "1:memory:/x\n", "in no cgroup of version 2"},
	} {
		was := content(t, proc, c.file)
		if err := os.WriteFile(filepath.Join(proc, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := findTree(proc); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
		if err := os.WriteFile(filepath.Join(proc, c.file), []byte(was), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "..", "..", "cgroup.controllers"), []byte("hugetlb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findTree(proc); err == nil || !strings.Contains(err.Error(), "cgroup version 1 has the controllers") {
		t.Error(err)
	}
	// Dividing is undone where it fails.
	_, dir = fakeTree(t, "memory")
	tr, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "cgroup.subtree_control")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "cgroup.subtree_control"), 0o700); err != nil { // cannot be written
		t.Fatal(err)
	}
	if err := tr.divide(1 << 30); err == nil || content(t, dir, "cgroup.procs") != strconv.Itoa(os.Getpid()) {
		t.Error(err)
	}
}

func TestDefaults(t *testing.T) {
	m := &Machine{Memory: 8 << 30, CPUs: 4}
	d := m.Defaults()
	if d.Memory != 4<<30 || d.Processes != 2048 || d.CPUs != 0 || d.Output == 0 {
		t.Errorf("%+v", d)
	}
	if got := Or(task.Limits{Memory: 1, CPUs: 2}, d); got.Memory != 1 || got.CPUs != 2 || got.Processes != 2048 {
		t.Errorf("%+v", got)
	}
	if n := memoryOf("/proc/meminfo"); n < 64<<20 || n == math.MaxInt64 {
		t.Errorf("%d bytes", n)
	}
	kept := strings.Join((&Machine{why: "because"}).Kept(), "; ")
	if !strings.Contains(kept, "memory: measured") || !strings.Contains(kept, "because") {
		t.Error(kept)
	}
}
