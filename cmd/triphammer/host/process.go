package host

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
)

// Messages name the process that is in the way. What the system does not tell, such as of a
// process in another container or of another user, is left out.
// Networks are those of the thread that asks: /proc/net has those of the first thread, which may be elsewhere.

// describeProcess names a process: its number, its program, and of this program the command.
func describeProcess(pid int) string {
	text := fmt.Sprintf("process %d", pid)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return text
	}
	program := strings.TrimSpace(string(name))
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // without it, the name is enough
	words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if program == "triphammer" { // a flag may have anything, and two words are a command
		for _, word := range words[1:min(len(words), 3)] {
			if strings.HasPrefix(word, "-") {
				break
			}
			program += " " + word
		}
	}
	return fmt.Sprintf("%s, %s", text, term.OneLine.Replace(program))
}

// Listener names who listens on an address that is taken; empty: the system does not tell.
func Listener(address string) string {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			row := strings.Fields(line)
			if len(row) < 10 || row[3] != "0A" || !covers(row[1], at) {
				continue
			}
			if pid := socketOwner(row[9]); pid > 0 {
				return describeProcess(pid)
			}
			return "a process of " + userOf(row[7])
		}
	}
	return ""
}

// covers tells whether a local address of /proc/net/tcp, such as 0100007F:1F90, is the one that is wanted.
func covers(local string, want *net.TCPAddr) bool {
	host, port, _ := strings.Cut(local, ":")
	raw, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || int(number) != want.Port {
		return false
	}
	for word := range slices.Chunk(raw, 4) { // each in the order of this machine's bytes, which is that of all that are built for
		slices.Reverse(word)
	}
	ip := net.IP(raw)
	return ip.IsUnspecified() || want.IP == nil || want.IP.IsUnspecified() || ip.Equal(want.IP)
}

// socketOwner is the process that has a socket open; 0: none that this user may look at.
func socketOwner(inode string) int {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well formed
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "socket:["+inode+"]" {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// userOf names a user by its number.
func userOf(uid string) string {
	if u, err := user.LookupId(uid); err == nil {
		return "the user " + u.Username
	}
	return "the user with the number " + uid
}

// serversHere are the data directories of the servers of this machine that this user can ask.
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
			return exit.With(exit.Usage, "you own the data directory %s, and its mode does not let you in: chmod -R u+rwX %s", dir, dir)
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
