package gitrepo

import (
	"path/filepath"
	"testing"

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
		if keys.verify(raw) == nil {
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
