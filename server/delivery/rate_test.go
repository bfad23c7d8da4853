package delivery

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSharedRate (R14): the rate of a webhook counts over all servers of a store, exactly, however
// many send to all of them at once (SPEC C8). The control are servers that count for themselves.
func TestSharedRate(t *testing.T) {
	const servers, limit = 3, 20
	taken := func(shared bool) int64 {
		f := newFixture(t)
		var all []*Service
		for range servers {
			f.start(Config{RateLimit: limit, Shared: shared})
			all = append(all, f.Service)
		}
		// They do not begin by reading what the others took.
		for _, s := range all {
			s.rates.restore = func(string) []time.Time { return nil }
		}
		var accepted atomic.Int64
		send := func(round int) {
			var sending sync.WaitGroup
			for n, s := range all {
				for i := range 2 * limit {
					body := fmt.Sprintf(`{"n":%d}`, round*10000+n*1000+i)
					if i%2 == 0 {
						body = fmt.Sprintf("broken %d", i) // counts, too
					}
					sending.Go(func() {
						got := s.Receive(t.Context(), request("second", body, bearer()...))
						switch got.Status {
						case http.StatusAccepted, http.StatusBadRequest:
							accepted.Add(1)
						case http.StatusTooManyRequests:
							if got.RetryAfter < 1 || got.RetryAfter > 60 || got.Reason != ReasonRate {
								t.Errorf("%+v", got)
							}
						default:
							t.Errorf("%+v", got)
						}
					})
				}
			}
			sending.Wait()
		}
		send(0)
		if !shared {
			return accepted.Load()
		}
		if n := accepted.Load(); n != limit {
			t.Fatalf("%d deliveries were taken", n)
		}
		f.pass(30 * time.Second)
		send(1)
		if n := accepted.Load(); n != limit {
			t.Fatalf("%d deliveries were taken after half a minute", n)
		}
		f.pass(30 * time.Second)
		send(2) // what was refused before does not count
		if n := accepted.Load(); n != 2*limit {
			t.Fatalf("%d deliveries were taken after a minute", n)
		}
		if got := all[1].Receive(t.Context(), request("token", `{}`, bearer()...)); got.Status != http.StatusAccepted {
			t.Errorf("another webhook: %+v", got)
		}
		return accepted.Load()
	}
	taken(true)
	if n := taken(false); n != servers*limit {
		t.Errorf("the control took %d", n)
	}
}
