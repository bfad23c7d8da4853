package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"triphammer/server/store/storetest"
)

// TestCheckpointUnderLoad: the write-ahead log begins anew though writes never
// pause, and nothing of it is lost.
func TestCheckpointUnderLoad(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	const most, writers, each, size = 500, 4, 500, 16 << 10 // the log would be full 16 times
	s.cfg.maxLog = most
	s.reopen(t)
	body := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(body) // nothing compresses it
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if _, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(w, "-", i), string(body), "a")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	info, err := os.Stat(s.cfg.Path + "-wal")
	check(t, err)
	if pages := info.Size() / 4096; pages < most || pages > 8*most {
		t.Errorf("the log has grown to %d pages of %d", pages, writers*each*size/4096)
	}
	s.reopen(t)
	var kept int
	check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries").Scan(&kept))
	if kept != writers*each {
		t.Errorf("%d of %d deliveries are there", kept, writers*each)
	}
	for _, d := range must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{Limit: 3})) {
		if got := must[[]byte](t)(s.Deliveries.Payload(t.Context(), d.ID)); string(got) != string(body) {
			t.Errorf("%s has another body", d.ID)
		}
	}
}
