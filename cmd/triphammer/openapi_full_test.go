//go:build full

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestGeneratedClients: openapi.yaml makes a client in two languages, which
// compiles and drives a running server (SPEC 13.10).
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs(filepath.Join("testdata", "openapi"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := filepath.Abs("../../server/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "openapi-typescript")); err != nil {
		t.Fatalf("the generator is not installed (npm ci --prefix cmd/triphammer/testdata/openapi): %v", err)
	}
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "environments/quick.yaml": "command: ['true']\n"})
	w.start()
	key := strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "BASE_URL=http://"+w.addr, "API_KEY="+key, "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	done := regexp.MustCompile(`(?m)^SUCCEEDED run_[0-9a-z]{13}$`)

	t.Run("TypeScript", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(folder, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"package.json", "drive.ts"} {
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		bin := filepath.Join(dir, "node_modules", ".bin")
		command(dir, filepath.Join(bin, "openapi-typescript"), document, "-o", "api.d.ts")
		command(dir, filepath.Join(bin, "tsc"), "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "drive.ts")
		if out := command(dir, "node", "drive.js"); !done.MatchString(out) {
			t.Error(out)
		}
	})
	t.Run("Go", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(folder, "goclient"))); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "api"), 0o700); err != nil {
			t.Fatal(err)
		}
		command(dir, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.go", document)
		if out := command(dir, "go", "run", "."); !done.MatchString(out) {
			t.Error(out)
		}
	})
}
