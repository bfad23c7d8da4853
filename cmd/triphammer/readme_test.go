package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// walk runs every command of a page, in one shell, as written there, and returns
// what they print.
func walk(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var script bytes.Buffer
	script.WriteString("set -euo pipefail\nset -m\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1)
	for _, block := range blocks {
		// The program is built already.
		script.Write(bytes.ReplaceAll(bytes.ReplaceAll(block[1], []byte("make build\n"), nil), []byte("export PATH=\"$PWD/bin:$PATH\"\n"), nil))
	}
	if len(blocks) < 5 {
		t.Fatalf("%s has %d blocks of commands", page, len(blocks))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.WaitDelay = time.Second // its background server keeps the output open
	cmd.Dir = t.TempDir()
	cmd.Env = append(environment(cmd.Dir), "TMPDIR="+cmd.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		logs, _ := filepath.Glob(filepath.Join(cmd.Dir, "*/serve.log"))
		for _, name := range append(logs, filepath.Join(cmd.Dir, "serve.log")) {
			text, _ := os.ReadFile(name)
			t.Logf("%s:\n%s", name, text)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestReadme runs the README's tour.
func TestReadme(t *testing.T) {
	out := walk(t, "../../README.md")
	for _, want := range []string{
		"SUCCEEDED", "would trigger", "would not trigger", `wanted "greet"`, "refused, still serving", "CI would say no",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour does not print %q:\n%s", want, out)
		}
	}
}
