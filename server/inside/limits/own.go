package limits

import "path/filepath"

// Exceeded tells which limits of a cgroup its processes have met.
type Exceeded struct {
	Memory    bool `json:"memory,omitempty"`
	Processes bool `json:"processes,omitempty"`
}

// OwnExceeded asks the cgroup of this process, of version 1 or 2, as a container sees it.
func OwnExceeded() Exceeded { return exceededIn("/sys/fs/cgroup") }

func exceededIn(dir string) Exceeded {
	return Exceeded{
		Memory:    0 < counter(filepath.Join(dir, "memory.events"), "oom_kill") || 0 < counter(filepath.Join(dir, "memory", "memory.oom_control"), "oom_kill"),
		Processes: 0 < counter(filepath.Join(dir, "pids.events"), "max") || 0 < counter(filepath.Join(dir, "pids", "pids.events"), "max"),
	}
}

// Exceed records which limits the run has exceeded in the cgroup of its container.
func (g *Group) Exceed(e Exceeded) {
	if e.Memory && g.limits.Memory > 0 {
		g.tooMuchMemory()
	}
	if e.Processes && g.limits.Processes > 0 {
		g.tooManyProcesses()
	}
}
