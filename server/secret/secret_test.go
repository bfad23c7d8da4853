package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestValueDoesNotPrintItself (SPEC 10.1).
func TestValueDoesNotPrintItself(t *testing.T) {
	v := New("hunter22")
	in := struct {
		V Value
		P *Value
	}{v, &v}
	encoded, err := json.Marshal(map[string]any{"v": v, "in": in})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v, "in", in)
	shown := []string{v.String(), string(encoded), log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, v), fmt.Sprintf(verb, in))
	}
	for _, s := range shown {
		if strings.Contains(s, "hunter22") || strings.Contains(s, hex.EncodeToString([]byte("hunter22"))) {
			t.Errorf("printed: %s", s)
		}
	}
	if v.Reveal() != "hunter22" || v.IsZero() || !(Value{}).IsZero() {
		t.Error("the value is not what it was made from")
	}
}

func TestTokens(t *testing.T) {
	token := NewToken("th")
	if !ValidToken("th", token) || len(token) != 52 || token == NewToken("th") {
		t.Errorf("token %q", token)
	}
	for _, bad := range []string{"", "th_", token[:51], token + "0", "ti" + token[2:], token[:10] + flip(token[10]) + token[11:]} {
		if ValidToken("th", bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}

func flip(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func TestSeal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	key, err := LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadOrCreateKey(path)
	if err != nil || again.ID() != key.ID() {
		t.Fatalf("the key changed: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	sealed := key.Seal([]byte("plain"), []byte("here"))
	if plain, err := again.Open(sealed, []byte("here")); err != nil || string(plain) != "plain" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := key.Open(sealed, []byte("there")); err == nil {
		t.Error("opened in another context")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := key.Open(changed, []byte("here")); err == nil {
			t.Errorf("opened with byte %d changed", i)
		}
	}
	other, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(sealed, []byte("here")); !errors.Is(err, ErrWrongKey) {
		t.Errorf("another key: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("c2hvcnQ="), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKey(path); err == nil || strings.Contains(err.Error(), "c2hvcnQ") {
		t.Errorf("a damaged key: %v", err)
	}
}

// TestKeyFiles: what is refused as a key file, and that the error says what to do
// without saying what the file holds (SPEC 10.1).
func TestKeyFiles(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, keySize))
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"good":           {good + "\n", 0o600, ""},
		"read-only":      {good, 0o400, ""},
		"group":          {good, 0o640, "chmod 600"},
		"world":          {good, 0o604, "chmod 600"},
		"writable":       {good, 0o620, "chmod 600"},
		"empty":          {"", 0o600, "restore it"},
		"short":          {good[:40] + "\n", 0o600, "restore it"},
		"long":           {base64.StdEncoding.EncodeToString(make([]byte, keySize+1)), 0o600, "restore it"},
		"raw":            {strings.Repeat("\xff", keySize), 0o600, "restore it"},
		"something else": {strings.Repeat(good+"\n", 100), 0o600, "restore it"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		for _, load := range []func(string) (*Key, error){LoadKey, LoadOrCreateKey} {
			key, err := load(path)
			switch {
			case c.want == "" && (err != nil || key == nil):
				t.Errorf("%s: %v", name, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("%s: %v, want %q and the path", name, err, c.want)
			case err != nil && strings.Contains(err.Error(), good[:8]):
				t.Errorf("%s: the error holds the key: %v", name, err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != c.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	dir := t.TempDir()
	if _, err := LoadKey(dir); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := LoadKey(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := LoadOrCreateKey(filepath.Join(dir, "none", "key")); err == nil {
		t.Error("a key was made in no directory")
	}
}

// TestOneKeyIsMade: of many that make the key at once, one does, and all have it.
func TestOneKeyIsMade(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			key, err := LoadOrCreateKey(filepath.Join(dir, "key"))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = key.ID()
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] != ids[len(ids)-1] {
		t.Errorf("keys %q", ids)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}

// TestKeyDoesNotPrintItself (SPEC 10.1).
func TestKeyDoesNotPrintItself(t *testing.T) {
	raw := []byte("0123456789abcdef0123456789abcdef")
	key, err := NewKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v %s", key, key, key, key), fmt.Sprintf("%+v", struct{ K *Key }{key})} {
		if strings.Contains(shown, "0123") || strings.Contains(shown, "48 49 50") || strings.Contains(shown, "0x30, 0x31") {
			t.Errorf("printed: %s", shown)
		}
	}
	sealed := key.Seal([]byte("plain"), nil)
	if bytes.Equal(sealed, key.Seal([]byte("plain"), nil)) {
		t.Error("two seals of one value are alike")
	}
	for n := range sealed {
		if _, err := key.Open(sealed[:n], nil); err == nil {
			t.Errorf("opened when cut to %d bytes", n)
		}
	}
	if _, err := NewKey(raw[1:]); err == nil {
		t.Error("a key of 31 bytes")
	}
}

// FuzzOpen: nothing but what Seal made opens.
func FuzzOpen(f *testing.F) {
	key, err := NewKey(bytes.Repeat([]byte{7}, keySize))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Add(append(key.id[:], make([]byte, 28)...))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := key.Open(sealed, []byte("here")); err == nil {
			t.Errorf("%x opened as %q", sealed, plain)
		}
	})
}

// FuzzValidToken: whatever passes has the form that scanners look for.
func FuzzValidToken(f *testing.F) {
	form := regexp.MustCompile(`^th_[0-9A-Za-z]{49}$`)
	f.Add(NewToken("th"), true)
	f.Add("th_"+strings.Repeat(" ", 43), true)
	f.Add("th_", false)
	f.Fuzz(func(t *testing.T, s string, sum bool) {
		if sum {
			s += checksum(s)
		}
		if ValidToken("th", s) && !form.MatchString(s) {
			t.Errorf("%q is valid", s)
		}
	})
}
