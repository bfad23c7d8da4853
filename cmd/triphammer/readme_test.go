package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/term/termtest"
)

// walk runs every command of a page, in one shell, as written there, and returns
// what they print.
func walk(t *testing.T, page string) string {
	t.Helper()
	return walkWith(t, page)
}

// walkWith is walk with parts of the commands replaced: each old part is followed by the new part.
func walkWith(t *testing.T, page string, replaced ...string) string {
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
	if len(blocks) < 1 {
		t.Fatalf("%s has %d blocks of commands", page, len(blocks))
	}
	for old := range slices.Chunk(replaced, 2) {
		if !strings.Contains(script.String(), old[0]) {
			t.Fatalf("%s has no command %q", page, old[0])
		}
	}
	return bashed(t, strings.NewReplacer(replaced...).Replace(script.String()))
}

// shell is a shell in a folder of its own. What it leaves in the background ends with it.
func shell(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", "-c", "trap 'jobs -p | xargs --no-run-if-empty kill' EXIT\n"+script)
	cmd.WaitDelay = time.Second // its background server keeps the output open
	cmd.Dir = t.TempDir()
	cmd.Env = append(environment(cmd.Dir), "TMPDIR="+cmd.Dir)
	return cmd
}

// bashed runs a script, and returns what it prints.
func bashed(t *testing.T, script string) string {
	t.Helper()
	cmd := shell(t, script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		failed(t, cmd, err, out)
	}
	return string(out)
}

// failed ends a test whose script has failed, with the logs of its servers.
func failed(t *testing.T, cmd *exec.Cmd, err error, out []byte) {
	t.Helper()
	logs, _ := filepath.Glob(filepath.Join(cmd.Dir, "*/serve.log"))
	for _, name := range append(logs, filepath.Join(cmd.Dir, "serve.log")) {
		text, _ := os.ReadFile(name)
		t.Logf("%s:\n%s", name, text)
	}
	t.Fatalf("%v\n%s", err, out)
}

// session is a part of a session at a terminal: commands after a $, and what they print.
var session = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestReadme runs the README's tour at a terminal: all that its commands print is what the
// page shows. With -update it writes that into the page.
func TestReadme(t *testing.T) {
	t.Parallel()
	const name = "../../README.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	parts := session.FindAllSubmatch(page, -1)
	script := "set -euo pipefail\nset -m\n"
	for _, part := range parts {
		script += "printf '\\0'\n"
		for line := range strings.Lines(string(part[1])) {
			if command, is := strings.CutPrefix(line, "$ "); is {
				script += "cat <<'THE COMMAND'\n" + line + "THE COMMAND\n" + command
			}
		}
	}
	printed := strings.Split(typical(atTerminal(t, shell(t, script))), "\x00")
	if len(parts) < 8 || len(printed) != len(parts)+1 {
		t.Fatalf("of %d parts %d are there:\n%s", len(parts), len(printed)-1, printed)
	}
	n := 0
	shown := session.ReplaceAllStringFunc(string(page), func(string) string {
		n++
		return "```console\n" + printed[n] + "```"
	})
	if *update {
		if err := os.WriteFile(name, []byte(shown), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, part := range parts {
		if printed[i+1] != string(part[1]) {
			t.Errorf("README.md shows\n%s\nand the commands print\n%s\n(go test ./cmd/triphammer -run TestReadme -update writes it)", part[1], printed[i+1])
		}
	}
}

// atTerminal runs a shell that prints to a terminal of 120 columns without colour.
func atTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	person, program := termtest.Open(t)
	cmd.Stdout, cmd.Stderr = program, program
	cmd.Env = append(cmd.Env, "COLUMNS=120", "NO_COLOR=1", "TERM=xterm")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close()          // the shell has it
	out, _ := io.ReadAll(person) // its end is an error: nobody has the terminal any more
	if err := cmd.Wait(); err != nil {
		failed(t, cmd, err, out)
	}
	// What a line showed before it was written anew, such as progress, is not seen any more.
	return regexp.MustCompile(`(?m)^.*\r`).ReplaceAllString(strings.ReplaceAll(string(out), "\r\n", "\n"), "")
}

// varying is what differs from one session to another. The README shows something typical of the
// same length for it; the same id is the same one again.
var varying = []struct{ what, shown string }{
	{`/\S*/tmp\.\w{10}`, "/tmp/tmp.pQ3xJ7mVdK"},
	{`\b((?:dlv|run|whk)_|dev-)\w+`, ""},
	{`\b()[0-9a-f]{12}\b`, ""},
	{`127\.0\.0\.1:[0-9]+`, "127.0.0.1:8787"},
	{`20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \S+`, "2026-11-23 09:14:07 UTC"},
	{`\b[1-9] s ago\b`, "now    "},
	{`\b[0-9.]+ m?s\b`, "18 ms"},
	{`(?m)^isolation    \S+`, "isolation    sandbox"},
}

// typical is a session as the README shows it.
func typical(text string) string {
	for _, d := range varying {
		what, ids := regexp.MustCompile(d.what), make(map[string]string)
		text = what.ReplaceAllStringFunc(text, func(one string) string {
			if d.shown != "" {
				return d.shown
			}
			if ids[one] == "" {
				sum := sha256.Sum256([]byte{byte(len(ids))})
				ids[one] = (what.FindStringSubmatch(one)[1] + hex.EncodeToString(sum[:]))[:len(one)]
			}
			return ids[one]
		})
	}
	return text
}
