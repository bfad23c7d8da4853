package executor

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"triphammer/server/inside"
)

// throughCommand is the isolation command: a program of the operator starts the supervisor
// inside its own walls, here or elsewhere. docs/operating.md says what that program can rely on.
func (e *Executor) throughCommand(r room) (command, inside.Confinement) {
	network := "on"
	if r.off {
		network = "off"
	}
	uid, gid := os.Geteuid(), os.Getegid()
	confine := inside.Elsewhere()
	if e.account != nil {
		uid, gid = int(e.account.uid), int(e.account.gid)
		confine.User = &inside.Identity{UID: uid, GID: gid}
	}
	env := []string{inside.RunVariable + "=" + r.runID}
	for _, v := range []struct{ name, value string }{
		{"NAME", r.name},
		{"FOLDER", r.folder},
		{"READ", strings.Join(append([]string{e.program}, r.granted...), ":")},
		{"IMAGE", cmp.Or(r.image, e.containers.Image)},
		{"NETWORK", network},
		{"MEMORY", number(r.limits.Memory)},
		{"PROCESSES", number(r.limits.Processes)},
		{"CPUS", number(r.limits.CPUs)},
		{"UID", strconv.Itoa(uid)},
		{"GID", strconv.Itoa(gid)},
	} {
		env = append(env, "TRIPHAMMER_ATTEMPT_"+v.name+"="+v.value)
	}
	return outsideCommand(env, append(slices.Clone(e.command), e.program, inside.SuperviseCommand)...), confine
}

// number is a limit; empty: there is none.
func number[N int64 | float64](n N) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n), 'f', -1, 64)
}

// noCommand says that the operator has named no program.
func noCommand(e *Executor) string {
	if len(e.command) == 0 {
		return "no program was named that starts runs (--isolation-command)"
	}
	return ""
}
