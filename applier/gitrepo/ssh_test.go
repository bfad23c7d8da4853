package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"triphammer/applier/gitrepo/gittest"
)

// TestPublishedHosts: the services publish the fingerprints of the keys that are
// shipped.
func TestPublishedHosts(t *testing.T) {
	published := map[string]bool{}
	for line := range strings.Lines(string(publishedHosts)) {
		if text, ok := strings.CutPrefix(line, "#   SHA256:"); ok {
			published["SHA256:"+strings.Fields(text)[0]] = true
		}
	}
	hosts := map[string]int{}
	for rest := publishedHosts; ; {
		_, names, key, _, more, err := ssh.ParseKnownHosts(rest)
		if err != nil {
			break
		}
		if print := ssh.FingerprintSHA256(key); !published[print] {
			t.Errorf("%s has a key %s whose fingerprint is not published", names[0], print)
		}
		hosts[names[0]]++
		rest = more
	}
	if fmt.Sprint(hosts) != "map[bitbucket.org:3 github.com:3 gitlab.com:3]" || len(published) != 9 {
		t.Errorf("hosts %v", hosts)
	}
	_, algorithms, err := Credentials{}.hostKeys("github.com:22", t.TempDir())
	if err != nil || fmt.Sprint(algorithms) != "[ecdsa-sha2-nistp256 rsa-sha2-256 rsa-sha2-512 ssh-ed25519]" {
		t.Errorf("algorithms of github.com: %v, %v", algorithms, err)
	}
}

// sshWorld is what checkSSH needs of a server: its address, a key that it lets
// in, and its host key's line for known_hosts.
type sshWorld struct{ address, user, key, known string }

// checkSSH follows a branch over ssh, and is let in nowhere else (SPEC 4.1, 4.9).
func checkSSH(t *testing.T, bare, work string, w sshWorld) {
	t.Helper()
	head := runGit(t, work, "rev-parse", "HEAD")
	good := RemoteConfig{URL: "ssh://" + w.user + "@" + w.address + bare, Credentials: Credentials{SSHKey: w.key, KnownHosts: w.known}}
	r := remote(t, good)
	remoteHead(t, r, head)
	for n := range 3 {
		write(t, filepath.Join(work, "note"), fmt.Sprint(n))
		head = commit(t, work, "More")
		runGit(t, work, "push", "-qf", "origin", "main")
		remoteHead(t, r, head)
	}
	if repository, _ := r.Describe(); repository != good.URL {
		t.Errorf("described as %s", repository)
	}
	with := func(change func(*RemoteConfig)) *Remote {
		cfg := good
		change(&cfg)
		return remote(t, cfg)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	public := gittest.Key(t, other)
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = other }), ErrDenied, "--git-ssh-key")
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = w.known }), ErrMisconfigured, "is not a private key")
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = "" }), ErrUnreachable, "is not known: it shows ")
	wrong := filepath.Join(dir, "known_hosts")
	host, port, _ := net.SplitHostPort(w.address)
	write(t, wrong, "["+host+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(public)))
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = wrong }), ErrUnreachable, "is not the known one")
	refused(t, with(func(c *RemoteConfig) { c.URL += "/none.git" }), ErrDenied, "there is no repository at ssh://")
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = dir }), ErrMisconfigured, "--git-known-hosts")
	runGit(t, dir, "init", "-q", "--bare", "--object-format=sha256", "new.git")
	newer := with(func(c *RemoteConfig) { c.URL = "ssh://" + w.user + "@" + w.address + dir + "/new.git" })
	refused(t, newer, ErrEmpty, "first push") // nothing tells them apart yet
	commitTo(t, filepath.Join(dir, "new.git"))
	refused(t, newer, ErrUnsupported, "SHA-256")
	runGit(t, dir, "init", "-q", "--bare", "it's empty.git")
	refused(t, with(func(c *RemoteConfig) { c.URL = "ssh://" + w.user + "@" + w.address + dir + "/it's empty.git" }), ErrEmpty, "first push")
	t.Setenv("SSH_AUTH_SOCK", "")
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = "" }), ErrMisconfigured, "--git-ssh-key")
	agent := filepath.Join(dir, "agent")
	startAgent(t, agent, w.key)
	t.Setenv("SSH_AUTH_SOCK", agent)
	remoteHead(t, with(func(c *RemoteConfig) { c.SSHKey = "" }), head)
}

func TestSSH(t *testing.T) {
	bare, work := clone(t, "main")
	dir := t.TempDir()
	key, hostKey, known := filepath.Join(dir, "key"), filepath.Join(dir, "host"), filepath.Join(dir, "known_hosts")
	hostPublic := gittest.Key(t, hostKey)
	address := gittest.SSH(t, gittest.Key(t, key), hostKey)
	host, port, _ := net.SplitHostPort(address)
	write(t, known, "["+host+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(hostPublic)))
	checkSSH(t, bare, work, sshWorld{address, "git", key, known})
}

// TestSSHSilence: a server that takes the connection and says nothing holds
// nobody who stops waiting.
func TestSSHSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	key := filepath.Join(t.TempDir(), "key")
	gittest.Key(t, key)
	r := remote(t, RemoteConfig{URL: "ssh://" + l.Addr().String() + "/f.git", Credentials: Credentials{SSHKey: key}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Head(ctx); done <- err }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
