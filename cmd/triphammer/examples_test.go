package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"triphammer/examples"
)

// TestExamples: each example of init is valid, its tests pass, and dev serves it, sends it
// a sample as its sender would, and sees the demonstration agent succeed (SPEC 11.1).
func TestExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	all := examples.All()
	if len(all) < 8 {
		t.Fatalf("%d examples", len(all))
	}
	for _, e := range all {
		t.Run(e.Name, func(t *testing.T) {
			if e.Description == "" {
				t.Error("factory.yaml has no description")
			}
			if !strings.Contains(string(page), "../examples/"+e.Name+"/README.md") {
				t.Error("docs/examples.md does not link to it")
			}
			home := t.TempDir()
			run := func(dir string, args ...string) string {
				t.Helper()
				cmd := exec.Command(binary, args...)
				cmd.Dir, cmd.Env = dir, append(environment(home), "TRIPHAMMER_DATA=")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("triphammer %v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			if out := run(home, "init", "--example", e.Name); !strings.Contains(out, "cd "+e.Name+"\n") || !strings.Contains(out, "triphammer dev") {
				t.Errorf("init does not say what is next:\n%s", out)
			}
			dir := filepath.Join(home, e.Name)
			strict := []string{"validate"}
			github, err := os.ReadFile(filepath.Join(dir, "webhooks/github.yaml"))
			if err == nil && e.Name != "github-issue-triage" {
				// These keep to the common format, which names a webhook of any other sender
				// by an identifier that it does not have yet, and does not say who may start work.
				strict = append(strict, "--strict")
			}
			for _, args := range [][]string{{"validate"}, strict} {
				if out := run(dir, args...); !strings.Contains(out, "0 errors, 0 warnings") {
					t.Errorf("%v:\n%s", args, out)
				}
			}
			if out := run(dir, "test"); !regexp.MustCompile(`(?m)^([2-9]|\d\d) of `).MatchString(out) {
				t.Errorf("test:\n%s", out)
			}
			if out := run(dir, "dev", "--once"); !strings.HasSuffix(out, "\nSUCCEEDED\n") {
				t.Errorf("dev:\n%s", out)
			}
			readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			if len(github) > 0 && !strings.Contains(string(readme), "`application/json`") {
				t.Error("README.md does not say which content type to choose: GitHub's default is refused")
			}
			if _, err := os.Stat(filepath.Join(dir, "environments/demo.yaml")); (err == nil) != strings.Contains(string(readme), "a demonstration agent runs") {
				t.Errorf("README.md is wrong about the demonstration agent: %v", err)
			}
			for _, m := range regexp.MustCompile("`(tests/payloads/[a-z]+\\.json)`").FindAllSubmatch(readme, -1) {
				if _, err := os.Stat(filepath.Join(dir, string(m[1]))); err != nil {
					t.Errorf("README.md: %v", err)
				}
			}
			// What the definitions ask for stands in the README.
			for _, folder := range []string{"webhooks", "environments"} {
				files, _ := filepath.Glob(filepath.Join(dir, folder, "*.yaml")) // the pattern is good
				for _, name := range files {
					text, err := os.ReadFile(name)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range regexp.MustCompile(`(?:secretName|secret): ([A-Z_]+)`).FindAllSubmatch(text, -1) {
						if !strings.Contains(string(readme), "`"+string(m[1])+"`") {
							t.Errorf("README.md does not tell of the secret %s", m[1])
						}
					}
				}
			}
			if out := run(dir, "validate", "--rev", "HEAD"); !strings.Contains(out, "valid: ") {
				t.Errorf("its commit:\n%s", out)
			}
		})
	}
}
