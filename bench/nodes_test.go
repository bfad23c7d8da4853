package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// BenchmarkIngressNodes is what one server on SQLite, one on PostgreSQL and two on the same PostgreSQL
// acknowledge per second, in turns: sqlite/s, one/s and two/s; one-of-sqlite and two-of-one, the medians over
// the rounds of the one by the other, and two-of-one-min, the least; and how long an acknowledged delivery
// took, such as one-p99-ms. All share the machine, also the database: two servers then have no more
// processors than one.
func BenchmarkIngressNodes(b *testing.B) {
	body := pullRequest(1 << 10)
	for _, connections := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			alone := freeAddress(b)
			alonePath := serveProgram(b, alone).path("github")
			nodes, path := serveNodes(b, 2)
			signed := signature256(b, body)
			n := max(b.N/rounds, connections)
			var took [3][]time.Duration // of SQLite, of one, of two
			var rates [3][]float64
			turn := func(i int, path string, addresses ...string) float64 {
				some := make([][]time.Duration, len(addresses))
				began := time.Now()
				var wg sync.WaitGroup
				for j, address := range addresses {
					wg.Go(func() { some[j] = load(b, address, path, connections/len(addresses), n/len(addresses), body, signed) })
				}
				wg.Wait()
				all := slices.Concat(some...)
				rate := float64(len(all)) / time.Since(began).Seconds()
				took[i], rates[i] = append(took[i], all...), append(rates[i], rate)
				return rate
			}
			var oneOfSQLite, twoOfOne []float64
			b.ResetTimer()
			for range rounds {
				sqlite := turn(0, alonePath, alone)
				one := turn(1, path, nodes[0])
				two := turn(2, path, nodes...)
				oneOfSQLite, twoOfOne = append(oneOfSQLite, one/sqlite), append(twoOfOne, two/one)
			}
			b.StopTimer()
			if b.Failed() {
				b.FailNow()
			}
			for i, name := range []string{"sqlite", "one", "two"} {
				slices.Sort(rates[i])
				slices.Sort(took[i])
				b.ReportMetric(rates[i][rounds/2], name+"/s")
				b.ReportMetric(float64(took[i][len(took[i])*99/100].Microseconds())/1000, name+"-p99-ms")
			}
			slices.Sort(oneOfSQLite)
			slices.Sort(twoOfOne)
			b.ReportMetric(oneOfSQLite[rounds/2], "one-of-sqlite")
			b.ReportMetric(twoOfOne[rounds/2], "two-of-one")
			b.ReportMetric(twoOfOne[0], "two-of-one-min")
		})
	}
}

// serveNodes starts servers on a database of their own, and returns their addresses and the path
// of an ingress.
func serveNodes(b *testing.B, nodes int) (addresses []string, path string) {
	b.Helper()
	database := storetest.Postgres(b)
	first := serveProgram(b, freeAddress(b), "TRIPHAMMER_STORE="+database)
	addresses = append(addresses, first.address)
	for range nodes - 1 {
		next := &instance{b: b, dir: b.TempDir(), bin: first.bin, address: freeAddress(b), env: []string{
			"TRIPHAMMER_STORE=" + database, "TRIPHAMMER_KEY_FILE=" + filepath.Join(first.dir, "data", "key"),
		}}
		if err := os.Symlink(filepath.Join(first.dir, "repo"), filepath.Join(next.dir, "repo")); err != nil {
			b.Fatal(err)
		}
		next.serve("--max-runs", "0")
		addresses = append(addresses, next.address)
	}
	return addresses, first.path("github")
}
