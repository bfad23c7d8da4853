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

// BenchmarkIngressNodes is what one, two and three servers on one PostgreSQL acknowledge per
// second, beside one server on SQLite in turns: nodes/s, sqlite/s, and of-sqlite, the median over
// the rounds of the one by the other. All share the machine, also the database.
func BenchmarkIngressNodes(b *testing.B) {
	body := pullRequest(1 << 10)
	for _, nodes := range []int{1, 2, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			alone := freeAddress(b)
			alonePath, _ := serveProgram(b, alone)
			addresses, path := serveNodes(b, nodes)
			signed := signature256(b, body)
			const connections = 64
			n := max(b.N/rounds, connections)
			var all []time.Duration
			var shares, rates, others []float64
			b.ResetTimer()
			for range rounds {
				b.StopTimer()
				began := time.Now()
				one := len(load(b, alone, alonePath, connections, n, body, signed))
				other := float64(one) / time.Since(began).Seconds()
				b.StartTimer()
				began = time.Now()
				took := make([][]time.Duration, nodes)
				var wg sync.WaitGroup
				for i, address := range addresses {
					wg.Go(func() { took[i] = load(b, address, path, connections/nodes, n/nodes, body, signed) })
				}
				wg.Wait()
				some := slices.Concat(took...)
				rate := float64(len(some)) / time.Since(began).Seconds()
				all = append(all, some...)
				rates, others, shares = append(rates, rate), append(others, other), append(shares, rate/other)
			}
			b.StopTimer()
			if b.Failed() {
				b.FailNow()
			}
			for _, list := range [][]float64{rates, others, shares} {
				slices.Sort(list)
			}
			slices.Sort(all)
			b.ReportMetric(rates[rounds/2], "nodes/s")
			b.ReportMetric(others[rounds/2], "sqlite/s")
			b.ReportMetric(shares[rounds/2], "of-sqlite")
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// serveNodes starts servers on a database of their own, and returns their addresses and the path
// of an ingress.
func serveNodes(b *testing.B, nodes int) (addresses []string, path string) {
	b.Helper()
	database := storetest.Postgres(b)
	first := newInstance(b, freeAddress(b), map[string]string{
		"environments/e.yaml": "command: ['true']\n", "webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n",
		"automations/a.md": "---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {action: [opened]}}}\n---\nDo it.\n",
	})
	first.env = []string{"TRIPHAMMER_STORE=" + database}
	first.launch("--max-runs", "0")
	first.run(hookSecret, first.bin, "secrets", "set", "S")
	first.run("", first.bin, "status", "--wait")
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
	path = first.run("", first.bin, "webhooks", "url", "hook")[len("http://"+first.address):]
	return addresses, path
}
