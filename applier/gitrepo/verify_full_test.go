//go:build full

package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"triphammer/applier/gitrepo/gittest"
)

// signing is a repository in which commits are signed with real keys.
type signing struct {
	*testing.T
	work string
	repo *Repo
	keys string
}

func newSigning(t *testing.T) *signing {
	_, work := clone(t, "main")
	repo, err := Open(work, "main")
	if err != nil {
		t.Fatal(err)
	}
	return &signing{t, work, repo, filepath.Join(t.TempDir(), "keys")}
}

func (s *signing) commit(args ...string) string {
	s.Helper()
	runGit(s.T, s.work, append(append([]string{}, args...), "commit", "-q", "--allow-empty", "-S", "-m", "signed\n\ngpgsig of nobody\n gpgsig")...)
	return runGit(s.T, s.work, "rev-parse", "HEAD")
}

// tampered writes a commit that differs from another in its raw bytes.
func (s *signing) tampered(hash string, change func(raw []byte) []byte) string {
	s.Helper()
	cmd := exec.Command("git", "cat-file", "commit", hash)
	cmd.Dir = s.work
	raw, err := cmd.Output()
	if err != nil {
		s.Fatal(err)
	}
	changed := change(bytes.Clone(raw))
	if bytes.Equal(changed, raw) {
		s.Fatal("nothing is changed")
	}
	file := filepath.Join(s.TempDir(), "raw")
	write(s.T, file, string(changed))
	return runGit(s.T, s.work, "hash-object", "-t", "commit", "-w", "--literally", file)
}

func (s *signing) allowed(hash string) {
	s.Helper()
	if warning, err := s.repo.Verify(s.Context(), hash, Signers{File: s.keys}); err != nil || warning != "" {
		s.Errorf("refused: %v, %s", err, warning)
	}
}

func (s *signing) refused(hash, text string) {
	s.Helper()
	if _, err := s.repo.Verify(s.Context(), hash, Signers{File: s.keys}); !errors.Is(err, ErrUnverified) || !strings.Contains(err.Error(), text) {
		s.Errorf("%v, want %q", err, text)
	}
}

// unusable are keys that allow nothing, which is not the commit's fault.
func (s *signing) unusable(keys, text string) {
	s.Helper()
	write(s.T, s.keys, keys)
	if _, err := s.repo.Verify(s.Context(), runGit(s.T, s.work, "rev-parse", "HEAD"), Signers{File: s.keys}); err == nil || errors.Is(err, ErrUnverified) || !strings.Contains(err.Error(), text) {
		s.Errorf("%v, want %q", err, text)
	}
}

func (s *signing) forgeries(hash string) {
	s.Helper()
	replace := func(old, new string) func([]byte) []byte {
		return func(raw []byte) []byte { return bytes.Replace(raw, []byte(old), []byte(new), 1) }
	}
	s.refused(s.tampered(hash, replace("\n\nsigned", "\n\nSigned")), "")
	s.refused(s.tampered(hash, replace("author Ada", "author Eve")), "")
	s.refused(s.tampered(hash, func(raw []byte) []byte { return append(raw, '\n') }), "")
	s.refused(s.tampered(hash, replace("gpgsig -", "gpgsig2 -")), "is not signed")
	// A signature in the message is none, and of two none counts.
	s.refused(s.tampered(hash, func(raw []byte) []byte {
		head, message, _ := bytes.Cut(raw, []byte("\n\n"))
		before, sig, _ := bytes.Cut(head, []byte("\ngpgsig "))
		return fmt.Appendf(nil, "%s\n\ngpgsig %s\n\n%s", before, sig, message)
	}), "is not signed")
	s.refused(s.tampered(hash, func(raw []byte) []byte {
		head, message, _ := bytes.Cut(raw, []byte("\n\n"))
		_, sig, _ := bytes.Cut(head, []byte("\ngpgsig "))
		return fmt.Appendf(nil, "%s\ngpgsig %s\n\n%s", head, sig, message)
	}), "two signatures")
}

// TestVerifySSH: only commits that an allowed ssh key signed are verified, as
// git and ssh-keygen sign them (SPEC 4.10).
func TestVerifySSH(t *testing.T) {
	s := newSigning(t)
	dir := t.TempDir()
	public := make(map[string]string)
	for _, kind := range []string{"ed25519", "ecdsa", "rsa", "other"} {
		file := filepath.Join(dir, kind)
		if kind == "other" {
			public[kind] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(gittest.Key(t, file))))
			write(t, file+".pub", public[kind])
			continue
		}
		if out, err := exec.Command("ssh-keygen", "-q", "-N", "", "-C", "", "-t", kind, "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(file + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		public[kind] = strings.TrimSpace(string(text))
	}
	sign := func(kind string, args ...string) string {
		t.Helper()
		return s.commit(append(args, "-c", "gpg.format=ssh", "-c", "user.signingkey="+filepath.Join(dir, kind))...)
	}
	first := runGit(t, s.work, "rev-parse", "HEAD")
	write(t, s.keys, "# who may\n\nada@example.com,*@example.org "+public["ed25519"]+" of Ada\nbob namespaces=\"file,git\" "+public["ecdsa"]+"\ncarl "+public["rsa"]+"\nfiles namespaces=\"file\" "+public["other"]+"\n")
	s.refused(first, "is not signed")
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		hash := sign(kind)
		s.allowed(hash)
		s.forgeries(hash)
	}
	s.refused(sign("other"), "is not in --verify-keys: SHA256:") // its namespace is not git
	hash := sign("ed25519")
	for _, c := range []struct{ options, refused string }{
		{`valid-after="20200101"`, ""},
		{`valid-before="20200101Z"`, "outside of the time"},
		{`valid-after="209901010000"`, "outside of the time"},
		{`valid-after="20200101",valid-before="20990101000000Z"`, ""},
	} {
		write(t, s.keys, "ada "+c.options+" "+public["ed25519"]+"\n")
		if c.refused == "" {
			s.allowed(hash)
		} else {
			s.refused(hash, c.refused)
		}
	}
	// A signature for something else than Git.
	s.refused(s.tampered(hash, func(raw []byte) []byte {
		payload, _, err := splitSignature(raw)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "payload")
		write(t, file, string(payload))
		if out, err := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", filepath.Join(dir, "ed25519"), file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		sig, err := os.ReadFile(file + ".sig")
		if err != nil {
			t.Fatal(err)
		}
		head, message, _ := bytes.Cut(payload, []byte("\n\n"))
		return fmt.Appendf(nil, "%s\ngpgsig %s\n\n%s", head, strings.ReplaceAll(strings.TrimSpace(string(sig)), "\n", "\n "), message)
	}), `for "file", not for git`)

	s.unusable("", "holds no key")
	s.unusable("ada cert-authority "+public["ed25519"], "cert-authority is not supported")
	s.unusable("ada "+public["ed25519"][:40], "is not PRINCIPALS")
	s.unusable(`ada valid-after="soon" `+public["ed25519"], "is not a time")
	s.unusable(pgpKeyBegin, "does not end")
	s.unusable(pgpKeyBegin+"\n\nAAAA\n"+pgpKeyEnd, "cannot be read")
	s.keys += "-none"
	if _, err := s.repo.Verify(t.Context(), hash, Signers{File: s.keys}); err == nil || errors.Is(err, ErrUnverified) {
		t.Errorf("without the file: %v", err)
	}
}

// TestVerifyOpenPGP: the same with gpg, and with keys of both kinds in one file.
func TestVerifyOpenPGP(t *testing.T) {
	s := newSigning(t)
	home := t.TempDir()
	t.Setenv("GNUPGHOME", home)
	gpg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("gpg", append([]string{"--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...).Output()
		if err != nil {
			t.Fatalf("gpg %v: %v", args, err)
		}
		return string(out)
	}
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--kill", "gpg-agent").Run() })
	for _, name := range []string{"ada@example.com", "eve@example.com"} {
		gpg("--quick-generate-key", name, "ed25519", "sign", "never")
	}
	gpg("--quick-generate-key", "rsa@example.com", "rsa3072", "sign", "never")
	sign := func(who string) string { return s.commit("-c", "gpg.format=openpgp", "-c", "user.signingkey="+who) }
	write(t, s.keys, "# Ada, then one for everything\n"+gpg("--armor", "--export", "ada@example.com")+"\nx ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"+gpg("--armor", "--export", "rsa@example.com"))
	for _, who := range []string{"ada@example.com", "rsa@example.com"} {
		hash := sign(who)
		s.allowed(hash)
		s.forgeries(hash)
	}
	hash := sign("eve@example.com")
	s.refused(hash, "is not signed with an OpenPGP key of --verify-keys")
	write(t, s.keys, "x ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n")
	s.refused(hash, "has no such key")
}
