//go:build full

package gitrepo

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSSHD: the same with OpenSSH as the server, which has host keys of three
// kinds; one kind is known.
func TestSSHD(t *testing.T) {
	sshd := "/usr/sbin/sshd" // it must be started by its full path
	if _, err := os.Stat(sshd); err != nil {
		t.Fatalf("%v; install openssh-server", err)
	}
	bare, work := clone(t, "main")
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	runKeygen := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ssh-keygen", append([]string{"-q", "-N", ""}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	runKeygen("-t", "ed25519", "-f", key)
	config := []string{
		"AuthorizedKeysFile " + key + ".pub", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PidFile none", "PermitRootLogin prohibit-password", "LogLevel VERBOSE",
	}
	for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
		file := filepath.Join(dir, "host_"+kind)
		runKeygen("-t", kind, "-f", file)
		config = append(config, "HostKey "+file)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "config"), strings.Join(append(config, "ListenAddress 127.0.0.1", "Port "+port), "\n")+"\n")
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // of its privilege separation
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "log")
	server := exec.Command(sshd, "-D", "-f", filepath.Join(dir, "config"), "-E", log)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("sshd: %s", text)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(dir, "host_ed25519.pub"))
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(dir, "known_hosts")
	write(t, known, fmt.Sprintf("[127.0.0.1]:%s %s", port, public))
	checkSSH(t, bare, work, sshWorld{address, me.Username, key, known})
}
