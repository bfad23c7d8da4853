package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// bash runs a script as a CI does: it stops at the first command that fails.
func bash(t *testing.T, dir, script string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = slices.Concat(environment(dir), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkouts are a repository that must pass and one that must not.
func checkouts(t *testing.T) map[bool]string {
	t.Helper()
	all := map[bool]string{true: filepath.Join(t.TempDir(), "good"), false: filepath.Join(t.TempDir(), "bad")}
	for good, dir := range all {
		script := `triphammer init "$DIR"`
		if !good {
			script += ` && cd "$DIR" && echo 'colour: green' >> webhooks/hello.yaml && git commit -qam 'A key that does not exist'`
		}
		if out, err := bash(t, t.TempDir(), script, "DIR="+dir); err != nil {
			t.Fatal(err, out)
		}
	}
	return all
}

// TestAction runs the steps of the composite action, in order, with the values
// that GitHub's runner would put in.
func TestAction(t *testing.T) {
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				Name, If, Run, Shell, Uses string
				Env                        map[string]string
			}
		}
	}
	readYAML(t, "../../deploy/ci/action.yml", &action)
	for good, dir := range checkouts(t) {
		temp := t.TempDir()
		values := map[string]string{"github.action_path": mustAbs(t, "../../deploy/ci")}
		for name, input := range action.Inputs {
			values["inputs."+name] = input.Default
		}
		values["inputs.sarif"] = "findings.sarif"
		for _, name := range []string{"path", "summary", "output"} {
			if err := os.WriteFile(filepath.Join(temp, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		failed := ""
		for _, step := range action.Runs.Steps {
			if step.Run == "" || failed != "" || step.If == "inputs.server != ''" {
				continue
			}
			if step.Shell != "bash" || strings.Contains(step.Run, "${{") {
				t.Errorf("%s: an input must reach the script as a variable, in bash", step.Name)
			}
			env := []string{"RUNNER_TEMP=" + temp, "GITHUB_PATH=" + filepath.Join(temp, "path"), "GITHUB_STEP_SUMMARY=" + filepath.Join(temp, "summary"), "GITHUB_OUTPUT=" + filepath.Join(temp, "output")}
			for name, value := range step.Env {
				for expression, is := range values {
					value = strings.ReplaceAll(value, "${{ "+expression+" }}", is)
				}
				env = append(env, name+"="+value)
			}
			if step.Name == "Build triphammer" {
				continue // what it builds is what this test has built
			}
			if out, err := bash(t, dir, step.Run, env...); err != nil {
				failed = step.Name
				if good || !strings.Contains(out, "::error file=webhooks/hello.yaml,") {
					t.Errorf("%s: %v\n%s", step.Name, err, out)
				}
			}
		}
		if good != (failed == "") || !good && failed != "Validate" {
			t.Errorf("good %v, failed at %q", good, failed)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "findings.sarif")); err != nil || strings.Contains(string(text), "ruleIndex") == good {
			t.Errorf("SARIF: %v\n%s", err, text)
		}
		if text, err := os.ReadFile(filepath.Join(temp, "summary")); err != nil || !strings.Contains(string(text), "### Definitions: ") {
			t.Errorf("the summary: %v\n%s", err, text)
		}
	}
}

// TestGitLabTemplate runs the script of the job as GitLab's runner does: its
// lines are one script.
func TestGitLabTemplate(t *testing.T) {
	var template struct {
		Triphammer struct{ Script []string }
	}
	readYAML(t, "../../deploy/ci/gitlab.yml", &template)
	for good, dir := range checkouts(t) {
		out, err := bash(t, dir, strings.Join(template.Triphammer.Script, "\n"), "FACTORY=.")
		if (err == nil) != good {
			t.Errorf("good %v: %v\n%s", good, err, out)
		}
		for name, want := range map[string]bool{"gl-code-quality-report.json": true, "triphammer-validate.xml": true, "triphammer-test.xml": good} {
			if info, err := os.Stat(filepath.Join(dir, name)); (err == nil && info.Size() > 0) != want {
				t.Errorf("good %v: %s: %v", good, name, err)
			}
		}
	}
}

// TestPreCommit: the hook looks at what is staged.
func TestPreCommit(t *testing.T) {
	dir := checkouts(t)[true]
	hook, err := os.ReadFile("../../deploy/ci/pre-commit")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ".git/hooks/pre-commit"), hook, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	bad := `echo 'colour: green' >> webhooks/hello.yaml`
	if out, err := bash(t, dir, bad+` && echo more >> README.md && git add README.md && git commit -qm 'Something else'`); err != nil {
		t.Errorf("what is not staged is not looked at: %v\n%s", err, out)
	}
	if out, err := bash(t, dir, `git commit -qam 'A key that does not exist'`); err == nil || !strings.Contains(out, "webhooks/hello.yaml:") {
		t.Errorf("a bad commit: %v\n%s", err, out)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
