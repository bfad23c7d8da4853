package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// runUsers are the names of users for the runs of a server that is root, unless the operator
// names a user. The first that exists is taken.
var runUsers = []string{"triphammer-run", "nobody"}

// account is the user of the runs.
type account struct {
	name     string
	uid, gid uint32
}

// accountOf finds the user of the runs; nil: the user of the server. Runs are never root,
// unless the operator demands it (SPEC 14.1).
func accountOf(name string) (*account, error) {
	if os.Geteuid() != 0 {
		if name == "" {
			return nil, nil
		}
		if self, err := user.Current(); err == nil && (self.Username == name || self.Uid == name) {
			return nil, nil
		}
		return nil, errors.New("only a server that runs as root can give its runs another user: leave --run-user out")
	}
	if name == "root" || name == "0" {
		return nil, nil
	}
	names := runUsers
	if name != "" {
		names = []string{name}
	}
	for _, n := range names {
		u, err := user.Lookup(n)
		if err != nil {
			u, err = user.LookupId(n)
		}
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("reading the user %s: %w", n, err)
		}
		return &account{name: u.Username, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	if name == "" {
		return nil, errors.New("this server runs as root, and there is no user for its runs: make one (useradd --system triphammer-run), or name one (--run-user)")
	}
	return nil, fmt.Errorf("--run-user: there is no user %q on this machine", name)
}

// credential is the credential with which a process of the run starts.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// reaches says why the user cannot get into the folder; nil: it can.
func (a *account) reaches(dir string) error {
	if a == nil {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !a.mayEnter(st, info.Mode()) {
			return fmt.Errorf("runs have the user %s, who cannot reach the folder of the workspaces %s, because %s is closed to others: "+
				"name a folder that everybody can reach (--workspaces), or open it (chmod o+x %s)", a.name, dir, at, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// sees tells whether the user can get to a file or folder.
func (a *account) sees(path string) bool { return a.reaches(filepath.Dir(path)) == nil }

func (a *account) mayEnter(st *syscall.Stat_t, mode fs.FileMode) bool {
	switch {
	case st.Uid == a.uid:
		return mode&0o100 != 0
	case st.Gid == a.gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(dir, int(a.uid), int(a.gid))
}
