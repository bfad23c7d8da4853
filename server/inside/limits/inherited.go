package limits

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Inherited are the limits that a process hands down to its children. The zero value only
// makes the kernel kill the run before the server when memory is short.
type Inherited struct {
	CPUs      int   `json:"cpus,omitempty"`      // number of CPUs; 0: all
	FileSize  int64 `json:"file_size,omitempty"` // largest file that a process may write, in bytes
	Processes int64 `json:"processes,omitempty"` // processes and threads together
	OwnUser   bool  `json:"own_user,omitempty"`  // nothing else runs under the user of the run
	Measured  bool  `json:"measured,omitempty"`  // memory is measured, so memory that measuring does not find must be refused
}

// Inherited are the limits that the first process of the run must apply to itself.
// ownUser tells that the run has its own user or user namespace.
func (g *Group) Inherited(ownUser bool) Inherited {
	i := Inherited{FileSize: max(0, g.limits.Disk), OwnUser: ownUser, Measured: g.limits.Memory > 0 && !g.cgroup.has("memory")}
	if g.limits.CPUs > 0 && !g.cgroup.has("cpu") {
		i.CPUs = int(math.Ceil(min(g.limits.CPUs, 1<<20)))
	}
	if g.limits.Processes > 0 && !g.cgroup.has("pids") {
		i.Processes = g.limits.Processes + OwnTasks
	}
	return i
}

const (
	// badness is added to the score by which the kernel chooses a process to kill when
	// memory is short, from -1000 to 1000 (proc_pid_oom_score_adj(5)).
	badness, maxBadness = 500, 1000
	// spareTasks is how many processes and threads the user of the server may have beyond the
	// limit of one run, if runs share that user. It is an emergency brake for a run that forks
	// faster than it is measured.
	spareTasks = 8192
)

// Apply applies the limits to this process, except CPUs. Call it before the process becomes
// undumpable, because then it cannot write to its own folder in /proc.
func (i Inherited) Apply() error {
	var errs []error
	if err := raiseBadness(); err != nil {
		errs = append(errs, err)
	}
	if i.FileSize > 0 {
		errs = append(errs, lower(unix.RLIMIT_FSIZE, uint64(i.FileSize)))
	}
	if i.Processes > 0 {
		most := uint64(i.Processes)
		if !i.OwnUser {
			most += spareTasks
		}
		errs = append(errs, lower(unix.RLIMIT_NPROC, tasksOfUser()+most))
	}
	return errors.Join(errs...)
}

const scoreFile = "/proc/self/oom_score_adj"

// raiseBadness makes the kernel kill this process rather than the server.
func raiseBadness() error {
	text, err := os.ReadFile(scoreFile)
	if was, parseErr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && parseErr == nil && was >= badness {
		return nil
	}
	return os.WriteFile(scoreFile, []byte(strconv.Itoa(badness)), 0)
}

// TakeCPUs keeps the calling thread, and the processes that it starts, on a random choice of the
// CPUs that it may use, so that several runs do not share CPUs while other CPUs are free.
func (i Inherited) TakeCPUs() error {
	if i.CPUs == 0 {
		return nil
	}
	if err := takeCPUs(i.CPUs); err != nil {
		return fmt.Errorf("limiting the CPUs: %w", err)
	}
	return nil
}

// Victims makes the kernel kill the children of this process, rather than this process, when
// memory is short, because this process has to report it. Make it after Apply, and before the
// process confines itself. Without a usable /proc it does nothing.
type Victims struct {
	file *os.File // sets the score of this process
	own  int
}

// NewVictims opens the score of this process.
func NewVictims() *Victims {
	text, err := os.ReadFile(scoreFile)
	own, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		return &Victims{}
	}
	file, err := os.OpenFile(scoreFile, os.O_WRONLY, 0)
	if err != nil {
		return &Victims{}
	}
	return &Victims{file, own}
}

// Start calls start, which starts a process. The process inherits a higher score.
func (v *Victims) Start(start func()) {
	v.set(min(maxBadness, v.own+badness/2))
	defer v.set(v.own)
	start()
}

func (v *Victims) set(score int) {
	if v.file != nil {
		_, _ = v.file.WriteAt([]byte(strconv.Itoa(score)), 0) // after an error, the limits still hold
	}
}

func takeCPUs(n int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	var all []int
	for cpu := range len(may) * 64 {
		if may.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	if n >= len(all) {
		return nil
	}
	var take unix.CPUSet
	for _, at := range rand.Perm(len(all))[:n] {
		take.Set(all[at])
	}
	return unix.SchedSetaffinity(0, &take)
}

// lower sets a limit of the process for good, unless the limit is already lower.
func lower(resource int, most uint64) error {
	var was unix.Rlimit
	if err := unix.Getrlimit(resource, &was); err != nil {
		return err
	}
	if was.Max <= most {
		return nil
	}
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
}

// tasksOfUser counts the processes and threads of the user that this process sees.
func tasksOfUser() (n uint64) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var st unix.Stat_t
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && unix.Stat(dir, &st) == nil && int(st.Uid) == os.Getuid() {
			n += uint64(tasks([]int{pid}))
		}
	}
	return n
}
