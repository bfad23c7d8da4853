package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkClaims claims runs in batches of eight, by several workers at once, while as many runs as busy
// says are in progress already: claims/s. On PostgreSQL each worker is a process's own store.
func BenchmarkClaims(b *testing.B) {
	for _, c := range []struct{ workers, busy int }{{1, 0}, {4, 0}, {16, 0}, {4, 10_000}} {
		workers := c.workers
		b.Run(fmt.Sprintf("workers=%d/busy=%d", workers, c.busy), func(b *testing.B) {
			first := open(b)
			stores := []*Store{first.Store}
			for len(stores) < workers && first.Shared() {
				next := &fixture{cfg: first.cfg, at: first.at}
				next.reopen(b)
				b.Cleanup(func() { _ = next.Close() })
				stores = append(stores, next.Store)
			}
			var filling sync.WaitGroup
			var n atomic.Int64
			for range 64 {
				filling.Go(func() {
					for i := n.Add(1); i <= int64(b.N+c.busy); i = n.Add(1) {
						if _, err := first.Deliveries.Record(b.Context(), delivery(fmt.Sprint(i), "{}", fmt.Sprint("a", i%50))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			filling.Wait()
			for left := c.busy; left > 0; {
				leases, err := first.Leases.Claim(b.Context(), Claim{Worker: "busy", Most: min(left, 1000), Lease: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				left -= len(leases)
			}
			var claimed atomic.Int64
			b.ResetTimer()
			var working sync.WaitGroup
			for w := range workers {
				working.Go(func() {
					s := stores[w%len(stores)]
					for claimed.Load() < int64(b.N) {
						leases, err := s.Leases.Claim(b.Context(), Claim{Worker: fmt.Sprint(w), Most: 8, Lease: time.Minute})
						if err != nil {
							b.Error(err)
							return
						}
						claimed.Add(int64(len(leases)))
					}
				})
			}
			working.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}
