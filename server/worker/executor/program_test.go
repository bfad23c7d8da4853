package executor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLookPath: a program is found exactly if a run starts it, whatever links lead to it. What
// is there and hidden from runs is named, with the folder to let them read.
func TestLookPath(t *testing.T) {
	dir := openDir(t)
	tool := func(name string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("#!/bin/sh\necho started\n"), mode), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.Symlink(target, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	tool("bin/plain", 0o755)
	tool("bin/text", 0o644)
	tool("bin/owners", 0o700)
	tool("lib/node_modules/package/bin/cli", 0o755)
	tool("granted/package/cli", 0o755)
	tool("elsewhere/bin/far", 0o755)
	link("plain", "bin/beside")
	link("../lib/node_modules/package/bin/cli", "bin/packaged") // as npm does
	link(filepath.Join(dir, "granted/package/cli"), "bin/granted")
	link("../lib/back", "bin/roundabout")
	link("../bin/plain", "lib/back")
	link("nothing", "bin/dangling")
	link("elsewhere", "moved")
	link("elsewhere/bin", "linkedbin")
	linked := filepath.Join(dir, "linkedbin")
	for _, tt := range []struct{ program, also string }{
		{"plain", ""},
		{"text", ""},
		{"owners", ""},
		{"beside", ""},
		{"packaged", ""},
		{"granted", ""},
		{"roundabout", ""},
		{"dangling", ""},
		{"none", ""},
		{"sh", ""},
		{"far", linked},
		{"far", filepath.Join(dir, "moved", "bin")},
		{filepath.Join(dir, "bin", "plain"), ""},
		{filepath.Join(dir, "lib", "node_modules", "package", "bin", "cli"), ""},
		{"/bin/sh", ""},
	} {
		e, r := newExecutor(t, 0), newRecorder()
		e.path = strings.Join([]string{filepath.Join(dir, "bin"), tt.also, "relative", os.Getenv("PATH")}, ":")
		e.read = append(e.read, filepath.Join(dir, "granted"))
		path, err := e.LookPath(tt.program)
		work := sh("")
		work.Command = []string{tt.program}
		if tt.program == "sh" || tt.program == "/bin/sh" {
			work.Command = []string{tt.program, "-c", "echo started"}
		}
		_, startErr := e.Start(t.Context(), work, r)
		if starts := startErr == nil && r.said("stdout") == "started\n"; starts != (err == nil) || starts != (path != "") {
			t.Errorf("%s (%s): found at %q, %v; a run: %v %q", tt.program, tt.also, path, err, startErr, r.said("stderr"))
		}
		switch tt.program {
		case "none", "text", "dangling":
			if !errors.Is(err, exec.ErrNotFound) {
				t.Errorf("%s: %v", tt.program, err)
			}
		case "packaged":
			if want := "(--run-read " + filepath.Join(dir, "lib", "node_modules") + ")"; isolation != None && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v", tt.program, err)
			}
		}
	}
}
