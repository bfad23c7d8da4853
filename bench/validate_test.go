package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// actionlint is the peer of BenchmarkValidate: it checks files of a similar kind
// and size, and is known to be fast.
func actionlint(b *testing.B) string {
	b.Helper()
	if bin := os.Getenv("TRIPHAMMER_ACTIONLINT"); bin != "" {
		return bin
	}
	bin := filepath.Join(b.TempDir(), "actionlint")
	cmd := exec.Command("go", "build", "-modfile=tools/go.mod", "-o", bin, "github.com/rhysd/actionlint/cmd/actionlint")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return bin
}

const (
	webhookFile = `authMode: signature
signatureScheme: github
secretName: HOOK_SECRET
deliveryIdHeader: X-Run-Id
`
	automationFile = `---
environmentId: build
secrets: [DEPLOY_TOKEN]
triggers:
  - provider: webhook
    event: received
    filter:
      webhooks: [hook%d]
      payload:
        action: [completed]
        workflow_run: {conclusion: [failure, timed_out], head_branch: {not_in: [wip]}}
        number: [%d]
---
Find out why number %d failed, repair it, and open a pull request that says what was wrong.
`
	workflowFile = `name: Build %d
on:
  push:
    branches: [main]
    paths: ['src/%d/**']
jobs:
  build:
    runs-on: ubuntu-latest
    if: ${{ github.event_name == 'push' && github.ref != 'refs/heads/wip' }}
    steps:
      - uses: actions/checkout@v4
      - run: make build
        env:
          TOKEN: ${{ secrets.DEPLOY_TOKEN }}
`
)

// trees writes n definitions, and as many workflows, into two folders.
func trees(b *testing.B, n int) (definitions, workflows string) {
	b.Helper()
	definitions, workflows = b.TempDir(), b.TempDir()
	write := func(dir, name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	write(definitions, "factory.yaml", "schemaVersion: v1alpha1\nname: Bench\n")
	for i := range n - 1 {
		switch {
		case i == 0:
			write(definitions, "environments/build.yaml", "command: [agent]\nsecrets: [DEPLOY_TOKEN]\n")
		case i <= 20:
			write(definitions, fmt.Sprintf("webhooks/hook%d.yaml", i), webhookFile)
		default:
			write(definitions, fmt.Sprintf("automations/a%d/automation.md", i), fmt.Sprintf(automationFile, 1+i%20, i, i))
		}
	}
	for i := range n {
		write(workflows, fmt.Sprintf(".github/workflows/w%d.yml", i), fmt.Sprintf(workflowFile, i, i))
	}
	if out, err := exec.Command("git", "init", "-q", workflows).CombinedOutput(); err != nil { // it looks for a repository
		b.Fatalf("%v\n%s", err, out)
	}
	return definitions, workflows
}

// timed runs a program as a whole process and returns how long that took, and
// its processor time.
func timed(b *testing.B, dir, bin string, args ...string) (wall, cpu time.Duration) {
	b.Helper()
	cmd := exec.Command(bin, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	start := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v\n%s", err, out.String())
	}
	return time.Since(start), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e6
}

// BenchmarkValidate is the whole process of `triphammer validate` on 1 and on
// 1,000 definitions, beside actionlint on as many workflows in the same run:
// at most 20 ms and 300 ms are wanted. Both check warm files, in turn; figures are
// medians.
func BenchmarkValidate(b *testing.B) {
	bin, peer := program(b), actionlint(b)
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			definitions, workflows := trees(b, n)
			var ours, ourCPU, theirs, theirCPU []time.Duration
			for b.Loop() {
				wall, cpu := timed(b, definitions, bin, "validate")
				ours, ourCPU = append(ours, wall), append(ourCPU, cpu)
				wall, cpu = timed(b, workflows, peer, "-shellcheck=", "-pyflakes=")
				theirs, theirCPU = append(theirs, wall), append(theirCPU, cpu)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ours), "ms")
			b.ReportMetric(median(ourCPU), "cpu-ms")
			b.ReportMetric(median(theirs), "actionlint-ms")
			b.ReportMetric(median(theirCPU), "actionlint-cpu-ms")
		})
	}
}
