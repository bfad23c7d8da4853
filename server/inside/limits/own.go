package limits

import "path/filepath"

// Exceeded is what the processes of a cgroup wanted more of than there was.
type Exceeded struct {
	Memory    bool `json:"memory,omitempty"`
	Processes bool `json:"processes,omitempty"`
}

// OwnExceeded asks the cgroup of this process, of either version, as a container sees it.
func OwnExceeded() Exceeded { return exceededIn("/sys/fs/cgroup") }

func exceededIn(dir string) Exceeded {
	return Exceeded{
		Memory:    0 < counter(filepath.Join(dir, "memory.events"), "oom_kill") || 0 < counter(filepath.Join(dir, "memory", "memory.oom_control"), "oom_kill"),
		Processes: 0 < counter(filepath.Join(dir, "pids.events"), "max") || 0 < counter(filepath.Join(dir, "pids", "pids.events"), "max"),
	}
}

// Exceed records what the cgroup of a container says of the run.
func (g *Group) Exceed(e Exceeded) {
	if e.Memory && g.limits.Memory > 0 {
		g.tooMuchMemory()
	}
	if e.Processes && g.limits.Processes > 0 {
		g.tooManyProcesses()
	}
}
