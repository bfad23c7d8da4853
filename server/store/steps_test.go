package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
	"triphammer/server/store/storetest"

	"github.com/mattn/go-sqlite3"
)

// TestPruneInSteps: what is old goes in many transactions, by rows and by bytes.
func TestPruneInSteps(t *testing.T) {
	for _, c := range []struct{ deliveries, size, transactions int }{{2000, 10, 2000 / engine.StepRows}, {200, 20_000, 200 * 20_000 >> 20}} {
		s := open(t)
		check(t, s.bind(t.Context()))
		for i := range c.deliveries {
			body := make([]byte, c.size)
			_, _ = rand.Read(body)
			check(t, s.Do(t.Context(), func(tx *engine.Tx) error { return s.record(tx, delivery(fmt.Sprint(i), string(body))) }))
		}
		s.at = s.at.Add(8 * 24 * time.Hour)
		before := s.Commits()
		if n := must[int64](t)(s.Deliveries.Prune(t.Context(), Retention{Age: time.Hour})); n != int64(c.deliveries) {
			t.Errorf("%d of %d deleted", n, c.deliveries)
		}
		if n := s.Commits() - before; n < int64(c.transactions) {
			t.Errorf("%d of %d bytes went in %d transactions", c.deliveries, c.size, n)
		}
	}
}

// TestPruneAgain: a step whose transaction is made again, here for want of room, deletes all of its rows and counts
// them once. Else a run would go, and what came before it in the step would stay for good.
func TestPruneAgain(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	s.cfg.Reserve = filepath.Join(filepath.Dir(s.cfg.Path), "reserve")
	s.reopen(t)
	const number = 3 * engine.StepRows
	var all []oldRow
	for id := range int64(number) {
		all = append(all, oldRow{id: id})
	}
	full := false
	n, err := s.remove(t.Context(), func() (some []oldRow, err error) {
		some, all = all, nil
		return some, nil
	}, func(tx *engine.Tx, v oldRow) error {
		if v.id == 5 && !full {
			full = true
			return sqlite3.Error{Code: sqlite3.ErrFull}
		}
		return tx.SetMeta(fmt.Sprint("gone ", v.id), "")
	})
	var gone int64
	check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM meta WHERE name LIKE 'gone %'").Scan(&gone))
	if err != nil || !full || n != number || gone != number {
		t.Errorf("%d of %d rows are gone, and %d are counted: %v", gone, number, n, err)
	}
}

// TestPruneUnderLoad (R29): while deliveries come, exactly what is old goes, the log
// begins anew meanwhile, and the file shrinks.
func TestPruneUnderLoad(t *testing.T) {
	storetest.SQLite(t)
	const old, writers, long = 6000, 4, 500
	s := open(t)
	s.cfg.maxLog = long
	s.reopen(t)
	check(t, s.bind(t.Context()))
	s.stock(t, old, time.Hour)
	s.at = s.at.Add(8 * 24 * time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var kept atomic.Int64
	for w := range writers {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := s.Deliveries.Record(t.Context(), numbered(old+i*writers+w, s.at)); err != nil {
					t.Error(err)
				}
				kept.Add(1)
			}
		})
	}
	n, err := s.Deliveries.Prune(t.Context(), Retention{Age: 7 * 24 * time.Hour})
	check(t, s.Shrink(t.Context()))
	stop()
	all.Wait()
	var left int64
	check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries").Scan(&left))
	if err != nil || n != old || left != kept.Load() {
		t.Errorf("%d of %d deleted, %d of %d left, %v", n, old, left, kept.Load(), err)
	}
	info, err := os.Stat(s.cfg.Path + "-wal")
	check(t, err)
	if pages := info.Size() / 4096; pages > 16*long { // without copying it in between: more than 24 times
		t.Errorf("the log has grown to %d pages", pages)
	}
}
