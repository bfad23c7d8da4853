package executor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// throughCommand is the isolation command: a program of the operator starts the supervisor
// inside walls of its own, here or elsewhere. docs/operating.md has what it can rely on.
func (e *Executor) throughCommand(r room) (command, confinement) {
	network := "on"
	if r.off {
		network = "off"
	}
	uid, gid := os.Geteuid(), os.Getegid()
	confine := elsewhere()
	if e.account != nil {
		uid, gid = int(e.account.uid), int(e.account.gid)
		confine.User = &identity{uid, gid}
	}
	env := []string{runVariable + "=" + r.runID}
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
	return outsideCommand(env, append(slices.Clone(e.command), e.program, SuperviseCommand)...), confine
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

// identity is the user that a supervisor becomes that was started as root.
type identity struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// become makes this process one of the user, if it is one of root. Otherwise whoever has
// started it has chosen a user.
func (u *identity) become() error {
	if u == nil || os.Geteuid() != 0 {
		return nil
	}
	err := errors.Join(unix.Setgroups(nil), unix.Setresgid(u.GID, u.GID, u.GID))
	if err == nil {
		err = unix.Setresuid(u.UID, u.UID, u.UID)
	}
	if err != nil {
		return fmt.Errorf("a run of a server that is root becomes the user %d, which does not work inside: %w; map that user into the user namespace, "+
			"or start the run as another user than root", u.UID, err)
	}
	return nil
}
