package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/crypto/ssh"
)

// ErrUnverified is the error for a commit that no allowed key signed.
var ErrUnverified = errors.New("the commit is not verified")

const (
	pgpKeyBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpKeyEnd   = "-----END PGP PUBLIC KEY BLOCK-----"
	sshSigBegin = "-----BEGIN SSH SIGNATURE-----"
	sshSigEnd   = "-----END SSH SIGNATURE-----"
)

// Signers are who may sign commits.
type Signers struct {
	// File has lines in the format of allowed_signers (ssh-keygen(1)) and armored
	// OpenPGP public keys, in any mixture. It is read each time.
	File string
	// Arrived is when the server first saw a commit. An ssh key must be valid at that
	// time. If Arrived is nil, it must be valid at the time that the commit states.
	Arrived func(ctx context.Context, hash string) (time.Time, error)
}

// Verify checks that a signer signed the commit. The error is ErrUnverified if no signer
// correctly signed the commit. A warning is about a commit that may apply.
func (r *Repo) Verify(ctx context.Context, hash string, signers Signers) (warning string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(signers.File)
	if err != nil {
		return "", misconfigured("--verify-keys: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return "", misconfigured("--verify-keys: %s: %w", signers.File, err)
	}
	raw, err := r.rawCommit(plumbing.NewHash(hash))
	if err != nil {
		return "", err
	}
	var arrived time.Time
	if signers.Arrived != nil {
		if arrived, err = signers.Arrived(ctx, hash); err != nil {
			return "", err
		}
	}
	if warning, err = keys.verify(raw, arrived); err != nil {
		return "", fmt.Errorf("%w: %.12s %w", ErrUnverified, hash, err)
	}
	if warning != "" {
		warning = fmt.Sprintf("%.12s %s", hash, warning)
	}
	return warning, nil
}

// Verify does what Repo.Verify does, for a commit that Head returned.
func (r *Remote) Verify(ctx context.Context, hash string, signers Signers) (warning string, err error) {
	return r.cache.Verify(ctx, hash, signers)
}

// rawCommit is the bytes of a commit object. The signature is verified over the bytes that
// the hash names, not over the output of a parser.
func (r *Repo) rawCommit(hash plumbing.Hash) (raw []byte, err error) {
	defer survive(&err)
	o, err := openObjects(r.path)
	if err != nil {
		return nil, err
	}
	if err := o.bounded(hash, "commit"); err != nil {
		return nil, err
	}
	object, err := o.storage.EncodedObject(plumbing.CommitObject, hash)
	if err != nil {
		return nil, o.damaged(err, "commit", hash)
	}
	reader, err := object.Reader()
	if err != nil {
		return nil, o.damaged(err, "commit", hash)
	}
	defer func() { _ = reader.Close() }() // of memory
	if raw, err = io.ReadAll(reader); err == nil && plumbing.ComputeHash(plumbing.CommitObject, raw) != hash {
		err = errors.New("its content has another hash")
	}
	return raw, o.damaged(err, "commit", hash)
}

// signerKeys are the keys that may sign.
type signerKeys struct {
	ssh []sshSigner
	pgp openpgp.EntityList
}

// sshSigner is a line of allowed_signers.
type sshSigner struct {
	principals    string
	key           ssh.PublicKey
	after, before time.Time // limits of the time of the commit; zero: no limit
}

func parseKeys(text []byte) (*signerKeys, error) {
	keys := &signerKeys{}
	rest := string(text)
	var lines strings.Builder
	for {
		before, block, found := strings.Cut(rest, pgpKeyBegin)
		lines.WriteString(before)
		if !found {
			break
		}
		body, after, closed := strings.Cut(block, pgpKeyEnd)
		if !closed {
			return nil, errors.New("an OpenPGP key does not end")
		}
		ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(pgpKeyBegin + body + pgpKeyEnd))
		if err != nil {
			return nil, fmt.Errorf("an OpenPGP key cannot be read: %w", err)
		}
		keys.pgp = append(keys.pgp, ring...)
		rest = after
	}
	for line := range strings.Lines(lines.String()) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		signer, applies, err := parseSigner(line)
		if err != nil {
			return nil, err
		}
		if applies {
			keys.ssh = append(keys.ssh, signer)
		}
	}
	if len(keys.ssh)+len(keys.pgp) == 0 {
		return nil, errors.New("it holds no key; it has lines such as: ada@example.com ssh-ed25519 AAAA…, or armored OpenPGP public keys")
	}
	return keys, nil
}

// parseSigner reads PRINCIPALS [OPTIONS] KEY. applies is false for a key that is not for
// Git.
func parseSigner(line string) (s sshSigner, applies bool, err error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("the line %.40q…: %w", line, fmt.Errorf(format, args...))
	}
	principals, rest, _ := strings.Cut(line, " ")
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(rest)))
	if err != nil {
		return s, false, bad("it is not PRINCIPALS [OPTIONS] KEY as in allowed_signers")
	}
	s, applies = sshSigner{principals: principals, key: key}, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			applies = slices.Contains(strings.Split(value, ","), "git")
		case "valid-after":
			s.after, err = signerTime(value)
		case "valid-before":
			s.before, err = signerTime(value)
		default:
			// This includes cert-authority. Ignoring an option could let somebody in.
			err = fmt.Errorf("the option %s is not supported", name)
		}
		if err != nil {
			return s, false, bad("%w", err)
		}
	}
	return s, applies, nil
}

// signerTime reads YYYYMMDD[HHMM[SS]][Z]. Without Z it is local time.
func signerTime(text string) (time.Time, error) {
	zone := time.Local
	if cut, utc := strings.CutSuffix(text, "Z"); utc {
		text, zone = cut, time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(text) == len(layout) {
			return time.ParseInLocation(layout, text, zone)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20260131Z", text)
}

// verify checks the signature of a raw commit. arrived is when the commit arrived; zero
// means the time that the commit states. The texts continue a sentence that begins with
// the hash of the commit.
func (k *signerKeys) verify(raw []byte, arrived time.Time) (warning string, err error) {
	payload, signature, err := splitSignature(raw)
	if err != nil {
		return "", err
	}
	switch {
	case signature == "":
		return "", errors.New("is not signed")
	case strings.HasPrefix(signature, sshSigBegin):
		return k.verifySSH(payload, signature, arrived)
	case len(k.pgp) == 0:
		return "", errors.New("is signed with OpenPGP, and --verify-keys has no such key")
	}
	if _, err := openpgp.CheckArmoredDetachedSignature(k.pgp, bytes.NewReader(payload), strings.NewReader(signature), nil); err != nil {
		return "", fmt.Errorf("is not signed with an OpenPGP key of --verify-keys: %w", err)
	}
	return "", nil
}

// splitSignature takes the gpgsig header out of a commit. The rest is what was signed. A
// commit with two such headers is an error.
func splitSignature(raw []byte) (payload []byte, signature string, err error) {
	head, message, found := bytes.Cut(raw, []byte("\n\n"))
	if !found {
		head = bytes.TrimSuffix(raw, []byte("\n"))
	}
	var sig strings.Builder
	inside := false
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		if text, begins := bytes.CutPrefix(line, []byte("gpgsig ")); begins {
			if sig.Len() > 0 {
				return nil, "", errors.New("has two signatures")
			}
			inside = true
			sig.Write(text)
			sig.WriteByte('\n')
			continue
		}
		if text, continues := bytes.CutPrefix(line, []byte(" ")); inside && continues {
			sig.Write(text)
			sig.WriteByte('\n')
			continue
		}
		inside = false
		payload = append(append(payload, line...), '\n')
	}
	if found {
		payload = append(append(payload, '\n'), message...)
	}
	return payload, sig.String(), nil
}

// commitTime is the time that the committer header states; zero if there is none.
func commitTime(payload []byte) time.Time {
	for line := range bytes.Lines(payload) {
		if text, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			fields := strings.Fields(string(text))
			if len(fields) < 2 {
				return time.Time{}
			}
			seconds, err := strconv.ParseInt(fields[len(fields)-2], 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.Unix(seconds, 0)
		}
		if len(line) == 1 {
			break
		}
	}
	return time.Time{}
}

// The layout of a signature is described in PROTOCOL.sshsig of OpenSSH.
const sshSigMagic = "SSHSIG"

type sshSig struct {
	Version                              uint32
	PublicKey, Namespace, Reserved, Hash string
	Signature                            []byte
}

type sshSigned struct{ Namespace, Reserved, Hash, Digest string }

func (k *signerKeys) verifySSH(payload []byte, armored string, arrived time.Time) (warning string, err error) {
	at, whose := arrived, "at which it arrived"
	if arrived.IsZero() {
		at, whose = commitTime(payload), "that it gives"
	}
	body, ok := strings.CutPrefix(strings.TrimSpace(armored), sshSigBegin)
	body, ok2 := strings.CutSuffix(body, sshSigEnd)
	blob, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
	blob, magic := bytes.CutPrefix(blob, []byte(sshSigMagic))
	var sig sshSig
	var inner ssh.Signature
	if !ok || !ok2 || err != nil || !magic || ssh.Unmarshal(blob, &sig) != nil || sig.Version != 1 || ssh.Unmarshal(sig.Signature, &inner) != nil {
		return "", errors.New("has an ssh signature that cannot be read")
	}
	if sig.Namespace != "git" {
		return "", fmt.Errorf("has an ssh signature for %q, not for git", sig.Namespace)
	}
	signed := sshSigned{Namespace: sig.Namespace, Reserved: sig.Reserved, Hash: sig.Hash}
	switch sig.Hash {
	case "sha256":
		sum := sha256.Sum256(payload)
		signed.Digest = string(sum[:])
	case "sha512":
		sum := sha512.Sum512(payload)
		signed.Digest = string(sum[:])
	default:
		return "", fmt.Errorf("has an ssh signature with the hash %q", sig.Hash)
	}
	if inner.Format == ssh.KeyAlgoRSA {
		return "", errors.New("has an ssh signature with SHA-1")
	}
	public, err := ssh.ParsePublicKey([]byte(sig.PublicKey))
	if err != nil {
		return "", errors.New("has an ssh signature by a key of an unknown kind")
	}
	print := ssh.FingerprintSHA256(public)
	outside := ""
	for _, s := range k.ssh {
		if !bytes.Equal(s.key.Marshal(), public.Marshal()) {
			continue
		}
		if !s.after.IsZero() && at.Before(s.after) || !s.before.IsZero() && !at.Before(s.before) {
			outside = s.principals
			continue
		}
		if err := public.Verify(append([]byte(sshSigMagic), ssh.Marshal(signed)...), &inner); err != nil {
			return "", fmt.Errorf("has an ssh signature by %s (%s) that is not of this commit", s.principals, print)
		}
		if arrived.IsZero() && !s.before.IsZero() && !time.Now().Before(s.before) {
			warning = fmt.Sprintf("is signed with the key of %s, which may sign before %s alone: it counts because the commit has an earlier date, which its committer sets",
				s.principals, s.before.UTC().Format(time.RFC3339))
		}
		return warning, nil
	}
	if outside != "" {
		return "", fmt.Errorf("is signed with the key of %s (%s) outside of the time in which that may sign: the time %s is %s",
			outside, print, whose, at.UTC().Format(time.RFC3339))
	}
	return "", fmt.Errorf("is signed with an ssh key that is not in --verify-keys: %s", print)
}
