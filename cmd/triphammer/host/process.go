package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"triphammer/cmd/triphammer/client/exit"
)

// userOf names a user by its number.
func userOf(uid string) string {
	if u, err := user.LookupId(uid); err == nil {
		return "the user " + u.Username
	}
	return "the user with the number " + uid
}

// serversHere are the data directories of the servers of this machine that this user can ask.
// /proc/net has the network of the first thread, which may be elsewhere, so the thread that asks looks at its own.
func serversHere() (dirs []string) {
	text, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		// Num RefCount Protocol Flags Type St Inode Path
		row := strings.Fields(line)
		const listens = "00010000"
		if len(row) != 8 || row[3] != listens || filepath.Base(row[7]) != SocketName {
			continue
		}
		dir := filepath.Dir(row[7])
		if f, err := os.Open(filepath.Join(dir, AdminKeyFile)); err == nil && filepath.IsAbs(dir) {
			_ = f.Close()
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// othersHere says where servers run, to somebody who looked elsewhere.
func othersHere() string {
	dirs := serversHere()
	const most = 3
	text := ""
	for _, dir := range dirs[:min(len(dirs), most)] {
		text += "\nA server runs on another data directory: --data " + dir
	}
	return text
}

// noEntry is the error of a user who may not look into a data directory; nil: they may.
func noEntry(dir string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	who, as := "another user", ""
	if info, err := os.Stat(dir); err == nil {
		uid := fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
		if uid == fmt.Sprint(os.Geteuid()) {
			return exit.With(exit.Usage, "you own the data directory %s, and its mode keeps you out: chmod -R u+rwX %s", dir, dir)
		}
		who = userOf(uid)
		if u, err := user.LookupId(uid); err == nil {
			as = " -u " + u.Username
		}
	}
	return exit.With(exit.Auth, `the data directory %s is that of %s, and you (%s) may not look into it.
Run the command as its user (sudo%s triphammer …), or with a key over the network: --server URL and TRIPHAMMER_API_KEY`,
		dir, who, userOf(fmt.Sprint(os.Geteuid())), as)
}
