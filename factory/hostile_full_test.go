//go:build full

package factory

import (
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/schema"
)

// TestHostileRepositories (R24): a commit is refused, soon and in little memory,
// whatever is in it (SPEC 2.4, 2.5).
func TestHostileRepositories(t *testing.T) {
	r := newHostileRepository(t)
	for name, tree := range hostileTrees(r) {
		r.git(nil, "update-ref", "refs/heads/main", r.git(nil, "commit-tree", "-m", "hostile", tree))
		repo, err := gitrepo.Open(r.path, "main")
		if err != nil {
			t.Fatal(err)
		}
		check := func() (codes []string, err error) {
			head, err := repo.Head(t.Context())
			if err != nil {
				return nil, err
			}
			tree, err := repo.Tree(t.Context(), head.Hash, ".")
			if err != nil {
				return nil, err
			}
			_, report, err := Load(t.Context(), tree, Options{})
			if err != nil {
				return nil, err
			}
			if len(report.Diagnostics) > DefaultMaxFindings+1 {
				t.Errorf("%s: %d findings", name, len(report.Diagnostics))
			}
			for _, d := range report.Diagnostics {
				if d.Severity == schema.Error {
					codes = append(codes, d.Code)
				}
			}
			return slices.Compact(codes), nil
		}
		before := cpuTime(t)
		got, err := check()
		cpu := cpuTime(t) - before
		heap := peakHeap(func() { _, _ = check() })
		t.Logf("%s: %v CPU, %d MB, %v %v", name, cpu.Round(time.Millisecond), heap>>20, got[:min(len(got), 3)], err)
		if refused := err != nil || len(got) > 0; refused == strings.HasPrefix(name, "odd: ") {
			t.Errorf("%s: refused is %v", name, refused)
		}
		if cpu > slowdown*hostileCPU || heap > hostileHeap {
			t.Errorf("%s: %v of CPU time and %d MB; at most %v and %d MB are expected", name, cpu, heap>>20, slowdown*hostileCPU, hostileHeap>>20)
		}
	}
}
