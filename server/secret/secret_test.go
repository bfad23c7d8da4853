package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

const pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END KEY-----"

func TestRedact(t *testing.T) {
	value := `p@ss/w"ord+é`
	r := NewRedactor(New(value), New("tiny"), New("abc"), New(""), New(pem))
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		value, string(quoted), url.QueryEscape(value), url.PathEscape(value), hex.EncodeToString([]byte(value)),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte("x" + value)),
		base64.StdEncoding.EncodeToString([]byte("user:" + value + "\n")), "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "tiny",
	} {
		got := string(r.Redact([]byte("before " + shown + " after")))
		if !strings.Contains(got, hidden) || strings.Contains(got, shown) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%q became %q", shown, got)
		}
	}
	if got := string(r.Redact([]byte("abc p@ss"))); got != "abc p@ss" {
		t.Errorf("too much hidden: %q", got)
	}
}

// FuzzRedactWriter: cut anywhere, a stream is redacted like the whole.
func FuzzRedactWriter(f *testing.F) {
	f.Add([]byte("say hunter2222 and hunter2hunter2222"), uint8(3))
	f.Add([]byte("aHVudGVyMjIyMg== hunter222"), uint8(1))
	r := NewRedactor(New("hunter2222"), New("2222abcd"))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var out bytes.Buffer
		w := r.Writer(&out)
		for chunk := text; len(chunk) > 0; {
			n := min(len(chunk), int(size)%16+1)
			if _, err := w.Write(chunk[:n]); err != nil {
				t.Fatal(err)
			}
			chunk = chunk[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if want := r.Redact(text); !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%q: streamed %q, whole %q", text, out.Bytes(), want)
		}
		if bytes.Contains(bytes.ReplaceAll(out.Bytes(), []byte(hidden), nil), []byte("hunter2222")) && !bytes.Contains(out.Bytes(), []byte(hidden)) {
			t.Errorf("%q left the value: %q", text, out.Bytes())
		}
	})
}
