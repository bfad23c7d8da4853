package inside

import (
	"encoding/json"
	"os"
	"strings"
)

// listed is the content of the file. A pid and a start time identify a process until the
// machine restarts.
type listed struct {
	Boot      string      `json:"boot"`
	Processes [][2]uint64 `json:"processes"` // pid and start
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// Keep writes the list of a run, completely or not at all.
func Keep(path string, all []Process) error {
	l := listed{Boot: bootID()}
	for _, p := range all {
		l.Processes = append(l.Processes, [2]uint64{uint64(p.Pid), p.Start})
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		_ = os.Remove(path + ".new") // incomplete, because the disk is full
		return err
	}
	return os.Rename(path+".new", path)
}

// Kept reads the list of a run. It returns nothing if there is no list, or if the list is from
// before the machine started.
func Kept(path string) (all []Process) {
	var l listed
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &l) != nil || l.Boot != bootID() {
		return nil
	}
	for _, p := range l.Processes {
		all = append(all, Process{Pid: int(p[0]), Start: p[1]})
	}
	return all
}
