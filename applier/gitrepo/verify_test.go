package gitrepo

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"triphammer/applier/gitrepo/gittest"
)

// FuzzVerify: no commit object makes the check fall over, or pass without the
// key's signature.
func FuzzVerify(f *testing.F) {
	keys := &signerKeys{}
	public := gittest.Key(f, filepath.Join(f.TempDir(), "key"))
	keys.ssh = []sshSigner{{principals: "ada", key: public}}
	f.Add([]byte("tree x\ncommitter Ada <a> 1 +0\ngpgsig " + sshSigBegin + "\n U1NIU0lHAAAAAQ==\n " + sshSigEnd + "\n\nmessage\n"))
	f.Add([]byte("gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----\n\nx"))
	f.Add([]byte("gpgsig \ngpgsig x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := keys.verify(raw, time.Time{}); err == nil {
			t.Errorf("%q is verified", raw)
		}
	})
}

// FuzzKeys: no file of keys makes the parser fall over.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("ada valid-after=\"20200101\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"))
	f.Add([]byte(pgpKeyBegin + "\n\nmQ==\n" + pgpKeyEnd))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = parseKeys(text) })
}

// TestExpiredSigner: an ssh key counts at the time that the commit gives, which is
// said when the key's time is over, or at the time at which the commit arrived.
func TestExpiredSigner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	public := gittest.Key(t, file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(at string) []byte {
		t.Helper()
		date, err := time.Parse(time.DateOnly, at)
		if err != nil {
			t.Fatal(err)
		}
		head, rest := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a> 1 +0000\n", fmt.Sprintf("committer A <a> %d +0000\n\nx\n", date.Unix())
		sum := sha512.Sum512([]byte(head + rest))
		signed := ssh.Marshal(sshSigned{Namespace: "git", Hash: "sha512", Digest: string(sum[:])})
		inner, err := key.Sign(rand.Reader, append([]byte(sshSigMagic), signed...))
		if err != nil {
			t.Fatal(err)
		}
		blob := ssh.Marshal(sshSig{Version: 1, PublicKey: string(public.Marshal()), Namespace: "git", Hash: "sha512", Signature: ssh.Marshal(inner)})
		armored := sshSigBegin + "\n " + base64.StdEncoding.EncodeToString(append([]byte(sshSigMagic), blob...)) + "\n " + sshSigEnd
		return []byte(head + "gpgsig " + armored + "\n" + rest)
	}
	keys, err := parseKeys([]byte("ada@example.com valid-after=\"20240101Z\",valid-before=\"20260101Z\" " + string(ssh.MarshalAuthorizedKey(public))))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ committed, arrived, warning, refused string }{
		{"2025-05-05", "", "is signed with the key of ada@example.com, which may sign before 2026-01-01T00:00:00Z alone: it counts because the commit has an earlier date, which its committer sets", ""},
		{"2026-01-01", "", "", "the time that it gives is 2026-01-01T00:00:00Z"},
		{"2023-05-05", "", "", "the time that it gives is 2023-05-05T00:00:00Z"},
		{"2025-05-05", "2025-05-06", "", ""},
		{"2025-05-05", "2026-05-05", "", "the time at which it arrived is 2026-05-05T00:00:00Z"},
		{"2030-05-05", "2025-05-05", "", ""},
	} {
		var arrived time.Time
		if c.arrived != "" {
			arrived, _ = time.Parse(time.DateOnly, c.arrived)
		}
		warning, err := keys.verify(signed(c.committed), arrived)
		if warning != c.warning || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("committed %s, arrived %s: %q, %v", c.committed, c.arrived, warning, err)
		}
		docs, readErr := os.ReadFile("../../docs/diagnostics.md")
		if readErr != nil || c.warning != "" && !strings.Contains(string(docs), "warning: 0123456789ab "+c.warning+" [TH_EXPIRED_SIGNER]\n") {
			t.Errorf("docs/diagnostics.md does not have: %s, %v", c.warning, readErr)
		}
	}
}
