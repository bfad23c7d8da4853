package exit

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlain: what people read of a file, a network or JSON has none of Go's words.
func TestPlain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(name string) error { _, err := os.ReadFile(name); return err }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, dialed := net.Dial("tcp", closed)
	_, asked := http.Get("http://" + closed + "/secret/path")
	for want, err := range map[string]error{
		"--key-file: " + dir + "/none does not exist":             fmt.Errorf("--key-file: %w", read(dir+"/none")),
		dir + " is a folder, and not a file":                      read(dir),
		file + "/x is no folder, or lies below a file":            read(file + "/x"),
		`"\x01" does not exist`:                                   read("\x01"),
		closed + ": nothing listens there":                        dialed,
		"no server: http://" + closed + ": nothing listens there": With(Unreachable, "no server: %w", asked),
		"the answer: it is not JSON":                              fmt.Errorf("the answer: %w", json.Unmarshal([]byte("<html>"), new(any))),
		"something else: EOF":                                     fmt.Errorf("something else: %w", io.EOF),
	} {
		if err == nil {
			t.Fatalf("nothing failed for %q", want)
		}
		var out strings.Builder
		if Report(&out, err); out.String() != "triphammer: "+want+"\n" {
			t.Errorf("%v is said as %q; want %q", err, out.String(), want)
		}
	}
}
