package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	keySize    = 32   // bytes: AES-256
	maxKeyFile = 1024 // bytes that are read of a key file, far more than a key needs
)

// ErrWrongKey is the error of Key.Open for data that another key sealed.
var ErrWrongKey = errors.New("sealed with another key")

// Key seals values with AES-256-GCM, each with a random nonce. It does not print itself, and is
// safe for concurrent use.
type Key struct {
	aead cipher.AEAD
	id   [8]byte
	root []byte // Derive makes other keys from it
}

// NewKey makes a Key from 32 bytes.
func NewKey(raw []byte) (*Key, error) {
	if len(raw) != keySize {
		return nil, fmt.Errorf("a sealing key has %d bytes, not %d", keySize, len(raw))
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	root, err := hkdf.Key(sha256.New, raw, nil, "the root of derived keys", keySize)
	if err != nil {
		return nil, err
	}
	return &Key{aead: aead, id: shortHash(raw), root: root}, nil
}

// Derive makes another key, of 32 bytes, for one purpose. Every process with this key makes
// the same key.
func (k *Key) Derive(purpose string) []byte {
	derived, _ := hkdf.Key(sha256.New, k.root, nil, purpose, keySize) // fails only for a greater length
	return derived
}

// ID is a fingerprint of the key. It may be stored beside the sealed data.
func (k *Key) ID() string { return hex.EncodeToString(k.id[:]) }

func (k *Key) String() string { return "sealing key " + k.ID() }

// GoString keeps %#v from printing the cipher.
func (k *Key) GoString() string { return k.String() }

// Seal encrypts plain and binds it to the context aad: Open needs the same context.
func (k *Key) Seal(plain, aad []byte) []byte {
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	out := append(k.id[:len(k.id):len(k.id)], nonce...)
	return k.aead.Seal(out, nonce, plain, aad)
}

// Open decrypts the result of Seal with the same context. It returns ErrWrongKey for data that
// another key sealed, and another error for data that was changed.
func (k *Key) Open(sealed, aad []byte) ([]byte, error) {
	n := len(k.id) + k.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("a sealed value is cut short")
	}
	if string(sealed[:len(k.id)]) != string(k.id[:]) {
		return nil, ErrWrongKey
	}
	plain, err := k.aead.Open(nil, sealed[len(k.id):n], sealed[n:], aad)
	if err != nil {
		return nil, errors.New("a sealed value was changed or moved")
	}
	return plain, nil
}

// LoadOrCreateKey reads the key file, or makes it (0600, durable) if there is
// none.
func LoadOrCreateKey(path string) (*Key, error) {
	key, err := LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw)
	if err := createKey(path, raw); err != nil {
		if errors.Is(err, fs.ErrExist) { // made by another process meanwhile
			return LoadKey(path)
		}
		return nil, fmt.Errorf("making the sealing key: %w", err)
	}
	return NewKey(raw)
}

// NextKeyFile is the path of the next key, which replaces a key file.
func NextKeyFile(path string) string { return path + ".next" }

// CreateNextKey makes the next key durable in NextKeyFile. If an interrupted replacement left a
// next key, CreateNextKey uses that key.
func CreateNextKey(path string) (*Key, error) {
	if err := os.Remove(NextKeyFile(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return LoadOrCreateKey(NextKeyFile(path))
}

// TakeNextKey puts the next key in the place of the key file.
func TakeNextKey(path string) error {
	if err := os.Rename(NextKeyFile(path), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// LoadKey reads a key file: 32 bytes in base64. It refuses a file that others than its owner can
// read, unless root hands the file to this user by its group or its access list, as systemd
// does with credentials and Kubernetes with secrets. Errors say what to do, and never quote
// the file.
func LoadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the sealing key: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat() // of the open file, even if another file has the name by now
	if err != nil {
		return nil, fmt.Errorf("reading the sealing key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the sealing key %s is not a file: name the file that holds it", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && !(mode&0o077 == 0o040 && handed(info)) {
		return nil, fmt.Errorf("the sealing key %s can be read by others (mode %04o): chmod 600 it", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the sealing key: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != keySize {
		return nil, fmt.Errorf("the sealing key %s is damaged: it should be %d bytes in base64; restore it from where you keep it", path, keySize)
	}
	return NewKey(raw)
}

// handed tells whether a file belongs to root, and this process does not.
func handed(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0 && os.Geteuid() != 0
}

// createKey writes the whole file under another name and links it into place, so that a crash
// leaves a whole key or no key.
func createKey(path string, raw []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(raw) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes durable that files in a folder were made, renamed or removed.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
