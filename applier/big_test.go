package applier

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/applier/gitrepo/gittest"
)

// applyVariable makes a process of this test's program apply the repository that
// it names, so that its memory can be measured.
const applyVariable = "TRIPHAMMER_BENCH_APPLY"

func TestMain(m *testing.M) {
	if repository := os.Getenv(applyVariable); repository != "" {
		if err := applyOnce(repository); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// applyOnce resolves the head and builds what it defines, as an apply does, and
// prints how long that took, in microseconds.
func applyOnce(repository string) error {
	began := time.Now()
	source, err := openBench(repository)
	if err != nil {
		return err
	}
	head, err := source.Head(context.Background())
	if err != nil {
		return err
	}
	tree, err := source.Tree(context.Background(), head.Hash, "factory")
	if err != nil {
		return err
	}
	m := &Memory{}
	m.SetSecret("HOOK_SECRET", "s")
	built, err := Build(context.Background(), BuildInput{Factory: "f", Commit: head, Tree: tree, Secrets: m.Secrets, UIDs: m.UIDs, Spec: m.Spec})
	if err != nil {
		return err
	}
	if built.Revision == nil || len(built.Revision.Automations) != bigAutomations {
		return fmt.Errorf("not applied: %v", built.Diagnostics)
	}
	took := time.Since(began)
	peak, err := peakOf("self")
	fmt.Println(took.Microseconds(), peak)
	return err
}

// openBench opens a path, or URL CA-FILE CACHE.
func openBench(repository string) (Source, error) {
	parts := strings.Fields(repository)
	if len(parts) == 1 {
		return gitrepo.Open(repository, "main")
	}
	return gitrepo.OpenRemote(gitrepo.RemoteConfig{URL: parts[0], Branch: "main", Cache: parts[2], Credentials: gitrepo.Credentials{CAFile: parts[1]}})
}

const (
	bigFiles       = 20_000
	bigCommits     = 5_000
	bigWebhooks    = 10
	bigAutomations = 29 // with factory.yaml and the webhooks: 40 files
)

// bigRepository has 40 definitions among 20,000 files, after 5,000 commits.
func bigRepository(b *testing.B) string {
	b.Helper()
	bare := filepath.Join(b.TempDir(), "big.git")
	gittest.Git(b, filepath.Dir(bare), "init", "-q", "--bare", "--initial-branch=main", bare)
	var in bytes.Buffer
	file := func(name, text string) { fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text) }
	for n := range bigCommits {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Ada <ada@example.com> %d +0000\ndata 4\nnext\n", 1_700_000_000+n)
		if n == 0 {
			file("factory/factory.yaml", factoryYAML)
			for i := range bigWebhooks {
				file(fmt.Sprintf("factory/webhooks/hook%d.yaml", i), webhookYAML)
			}
			for i := range bigAutomations {
				file(fmt.Sprintf("factory/automations/a%d.md", i), strings.ReplaceAll(automation, "[hook]", fmt.Sprintf("[hook%d]", i%bigWebhooks)))
			}
			for i := range bigFiles {
				file(fmt.Sprintf("src/%d/%d/file%d.go", i%20, i%200, i), strings.Repeat(fmt.Sprintf("line %d of file\n", i), 60))
			}
		}
		file(fmt.Sprintf("src/%d/%d/file%d.go", n%20, n%200, n), strings.Repeat(fmt.Sprintf("commit %d\n", n), 80))
		if n%50 == 0 {
			file("factory/automations/a1.md", strings.ReplaceAll(automation, "[hook]", "[hook1]")+fmt.Sprint(n))
		}
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = bare, &in
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	gittest.Git(b, bare, "gc", "-q")
	return bare
}

// BenchmarkBigRepository applies 40 definitions out of a big repository, each time
// in a process of its own, beside the git program that reads the same objects. The
// figures are medians: milliseconds of the apply itself and of the process, and
// the peak of its memory.
func BenchmarkBigRepository(b *testing.B) {
	bare := bigRepository(b)
	apply := func(b *testing.B, repository string) {
		var inside, whole, peak []float64
		for b.Loop() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), applyVariable+"="+repository)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			if err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
			whole = append(whole, time.Since(began).Seconds()*1000)
			var us, mb float64
			if _, err := fmt.Sscan(string(out), &us, &mb); err != nil {
				b.Fatal(err)
			}
			inside, peak = append(inside, us/1000), append(peak, mb)
			if parts := strings.Fields(repository); len(parts) > 1 {
				if err := os.RemoveAll(parts[2]); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(median(inside), "apply-ms")
		b.ReportMetric(median(whole), "process-ms")
		b.ReportMetric(median(peak), "peak-MB")
	}
	b.Run("apply", func(b *testing.B) { apply(b, bare) })
	server := gittest.Serve(b, filepath.Dir(bare))
	b.Run("fetch and apply", func(b *testing.B) {
		apply(b, server.URL+"/big.git "+server.CAFile+" "+filepath.Join(b.TempDir(), "cache"))
	})
	b.Run("git fetch", func(b *testing.B) {
		var whole []float64
		for b.Loop() {
			into := b.TempDir()
			began := time.Now()
			gittest.Git(b, into, "-c", "http.sslVerify=false", "clone", "-q", "--bare", "--depth=1", "--single-branch", "--branch=main", server.URL+"/big.git", "x.git")
			whole = append(whole, time.Since(began).Seconds()*1000)
		}
		b.ReportMetric(median(whole), "process-ms")
	})
	b.Run("git", func(b *testing.B) {
		var whole, peak []float64
		for b.Loop() {
			began := time.Now()
			head := gittest.Git(b, bare, "rev-parse", "--verify", "main^{commit}")
			list := gittest.Git(b, bare, "ls-tree", "-r", head, "--", "factory")
			var names strings.Builder
			files := 0
			for line := range strings.Lines(list) {
				names.WriteString(strings.Fields(line)[2] + "\n")
				files++
			}
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = bare
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				b.Fatal(err)
			}
			// An object that there is not is answered last, while the process lives.
			if _, err := io.WriteString(in, names.String()+"end\n"); err != nil {
				b.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "end missing" {
			}
			mb, err := peakOf(strconv.Itoa(cmd.Process.Pid))
			if err := errors.Join(err, in.Close(), cmd.Wait()); err != nil || files != 1+bigWebhooks+bigAutomations {
				b.Fatalf("%d files, %v", files, err)
			}
			whole = append(whole, time.Since(began).Seconds()*1000)
			peak = append(peak, mb)
		}
		b.ReportMetric(median(whole), "process-ms")
		b.ReportMetric(median(peak), "peak-MB")
	})
}

// peakOf is the most memory that a living process had, in MB.
func peakOf(pid string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("no VmHWM")
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	return kb / 1024, err
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
