package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"triphammer/server/store/internal/engine"

	"triphammer/server/disk"
	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestReserve: what the store must write on a full disk uses the reserve, what
// brings something new does not, and the reserve comes back when there is room.
func TestReserve(t *testing.T) {
	storetest.SQLite(t)
	s, log := open(t), &safeBuffer{}
	s.cfg.Reserve = filepath.Join(filepath.Dir(s.cfg.Path), "reserve")
	s.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	s.reopen(t)
	room := must[disk.Room](t)(disk.Measure(filepath.Dir(s.cfg.Path)))
	takes := func() int64 {
		info, err := os.Stat(s.cfg.Reserve)
		if err != nil {
			return 0
		}
		return info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	if want := min(16<<20, room.Total/16); takes() < want || want < 1<<20 {
		t.Fatalf("the reserve takes %d bytes of the disk, not %d", takes(), want)
	}
	limit := func(pages string) {
		check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
			return tx.Row("PRAGMA max_page_count = "+pages, nil, new(int))
		}))
	}
	limit("1") // SQLite takes the present size
	text := strings.Repeat("random", 10_000)
	if _, _, err := s.Runs.Create(t.Context(), NewRun{Source: SourceAPI, Title: text}, "", nil); err != nil && takes() == 0 {
		t.Errorf("a new run spends the reserve: %v", err)
	}
	if _, err := s.Secrets.Set(t.Context(), "A", secret.New(text)); !errors.Is(err, ErrFull) { // the limit holds, whatever is freed
		t.Errorf("a secret on a full disk: %v", err)
	}
	if !strings.Contains(log.String(), "the disk is full: no delivery and no new run is taken") {
		t.Errorf("the log says %s", log)
	}
	limit("1000000")
	until(t, func() bool {
		_, err := s.Deliveries.Record(t.Context(), delivery("1", "{}", "a"))
		return err == nil && takes() > 0
	})
	if !strings.Contains(log.String(), "the disk has room again") {
		t.Errorf("the log says %s", log)
	}
	// Where the reserve cannot be made there is no room: nothing new is taken.
	check(t, s.Close())
	check(t, os.Remove(s.cfg.Reserve))
	s.cfg.Reserve = filepath.Join(filepath.Dir(s.cfg.Path), "no", "such", "folder")
	s.Store = nil
	s.reopen(t)
	if _, err := s.Deliveries.Record(t.Context(), delivery("2", "{}", "a")); !errors.Is(err, ErrFull) {
		t.Errorf("without a reserve: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrFull) {
		t.Errorf("ping without a reserve: %v", err)
	}
	if _, err := s.Secrets.Set(t.Context(), "A", secret.New("value")); err != nil {
		t.Error(err)
	}
}
