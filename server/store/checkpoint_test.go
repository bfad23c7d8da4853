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
	const long, most, writers, each, size = 200, 500, 4, 500, 16 << 10 // the log would be full 16 times
	check(t, s.do(t.Context(), func(*Tx) error {
		s.long = longLog{long, long, most}
		return nil
	}))
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
	// It is a share of the database by now.
	check(t, s.do(t.Context(), func(*Tx) error {
		if s.long.pages != most {
			t.Errorf("the log is long from %d pages on", s.long.pages)
		}
		return nil
	}))
	if pages := info.Size() / 4096; pages < most || pages > 8*most {
		t.Errorf("the log has grown to %d pages of %d", pages, writers*each*size/4096)
	}
	s.reopen(t)
	var kept int
	check(t, s.read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries").Scan(&kept))
	if kept != writers*each {
		t.Errorf("%d of %d deliveries are there", kept, writers*each)
	}
	for _, d := range must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{Limit: 3})) {
		if got := must[[]byte](t)(s.Deliveries.Payload(t.Context(), d.ID)); string(got) != string(body) {
			t.Errorf("%s has another body", d.ID)
		}
	}
}
