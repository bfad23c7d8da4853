package secret

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestSources: what an orchestrator puts beside the program is found by name, and
// by no other way.
func TestSources(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"TOKEN": "value\n", "CRLF": "value\r\n", "TWO": "value\n\n", "EMPTY": "", "NEWLINE": "\n", "lower": "x", ".hidden": "x",
		"BIG": strings.Repeat("x", MaxValue+1), "JUST": strings.Repeat("x", MaxValue) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(folder, "TOKEN"), filepath.Join(folder, "LINKED")); err != nil { // as Kubernetes does
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "FOLDER"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "PIPE"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HAMMER_SECRET_TOKEN", "value")
	t.Setenv("HAMMER_SECRET_EMPTY", "")
	t.Setenv("HAMMER_SECRET_lower", "x")
	for _, c := range []struct {
		source Source
		name   string
		want   string // empty: not found
		bad    bool
	}{
		{Dir(folder), "TOKEN", "value", false},
		{Dir(folder), "LINKED", "value", false},
		{Dir(folder), "CRLF", "value", false},
		{Dir(folder), "TWO", "value\n", false},
		{Dir(folder), "JUST", strings.Repeat("x", MaxValue), false},
		{Dir(folder), "BIG", "", true},
		{Dir(folder), "EMPTY", "", true},
		{Dir(folder), "NEWLINE", "", true},
		{Dir(folder), "FOLDER", "", true},
		{Dir(folder), "PIPE", "", true},
		{Dir(folder), "NONE", "", false},
		{Dir(folder), "lower", "", false},
		{Dir(folder), "../" + filepath.Base(folder) + "/TOKEN", "", false},
		{Environment("HAMMER_SECRET_"), "TOKEN", "value", false},
		{Environment("HAMMER_SECRET_"), "EMPTY", "", true},
		{Environment("HAMMER_SECRET_"), "lower", "", false},
		{Environment("HAMMER_SECRET_"), "PATH", "", false},
	} {
		value, found, err := c.source.Lookup(c.name)
		if value.Reveal() != c.want || found != (c.want != "") || (err != nil) != c.bad {
			t.Errorf("%s, %s: found %v, %v", c.source, c.name, found, err)
		}
		if err != nil && strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: the error holds the value", c.name)
		}
	}
	if names, err := Environment("HAMMER_SECRET_").Names(); err != nil || !slices.Equal(names, []string{"EMPTY", "TOKEN"}) {
		t.Errorf("%v %v", names, err)
	}
	if names, err := Dir(folder).Names(); err != nil || slices.Contains(names, "lower") || !slices.Contains(names, "LINKED") {
		t.Errorf("%v %v", names, err)
	}
}
