//go:build full

package gitrepo

import (
	"crypto/rand"
	"path/filepath"
	"testing"

	"triphammer/applier/gitrepo/gittest"
)

// TestPushCostFull is TestPushCost with a repository of the size of a real one.
func TestPushCostFull(t *testing.T) { pushCost(t, 40*tooBig, 10000, 1) }

// TestCacheGrowthFull: pushes of much leave a cache of a bounded size.
func TestCacheGrowthFull(t *testing.T) {
	bare, work := clone(t, "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	for _, dir := range []string{bare, work} { // git need not look for what is alike
		runGit(t, dir, "config", "core.bigFileThreshold", "1m")
		runGit(t, dir, "config", "core.compression", "0")
	}
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
	noise := make([]byte, maxGrowth*5/4)
	whole := 0
	for n := range 4 {
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(work, "movie"), string(noise))
		head := commit(t, work, "Next")
		runGit(t, work, "push", "-q", "origin", "main")
		remoteHead(t, r, head)
		stored, err := r.stored()
		if err != nil || len(stored.packs) != 1 || stored.looseBytes > stored.packsBytes+3*maxGrowth {
			t.Fatalf("push %d: the cache holds the packs %v with %d bytes and %d objects with %d bytes, %v",
				n, stored.packs, stored.packsBytes, len(stored.loose), stored.looseBytes, err)
		}
		if len(stored.loose) == 0 {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d of 4 pushes were fetched whole", whole)
	}
}
