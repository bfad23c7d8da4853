package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

// save makes a backup and opens the copy as a store of its own.
func (f *fixture) save(t testing.TB) (*fixture, []byte) {
	t.Helper()
	copied := must[*os.File](t)(f.DB.Backup(t.Context(), nil))
	data := must[[]byte](t)(io.ReadAll(copied))
	check(t, copied.Close())
	other := &fixture{cfg: f.cfg, at: f.at}
	other.cfg.Path, other.cfg.URL = filepath.Join(t.TempDir(), "copy.db"), ""
	check(t, os.WriteFile(other.cfg.Path, data, 0o600))
	if r := must[*Report](t)(CheckFile(t.Context(), other.cfg.Path)); len(r.Problems) > 0 || r.KeyID != f.key.ID() {
		t.Errorf("the copy: %+v", r)
	}
	other.reopen(t)
	t.Cleanup(func() { _ = other.Close() })
	return other, data
}

// TestBackupWhileWriting (R27): a backup ends however much is written meanwhile, and has
// each delivery that was acknowledged before it began, none of them half.
func TestBackupWhileWriting(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	check(t, s.bind(t.Context()))
	s.stock(t, 5000, time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil { // checkpoints come in between
			if _, err := s.Read.ExecContext(t.Context(), "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
				t.Error(err)
			}
		}
	})
	acked := make([][]DeliveryID, 4)
	var mu sync.Mutex
	for w := range acked {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := s.Deliveries.Record(t.Context(), numbered(1_000_000+i*len(acked)+w, s.at))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				acked[w] = append(acked[w], r.ID)
				mu.Unlock()
				if i%10 == 0 {
					_ = s.Do(t.Context(), func(tx *engine.Tx) error {
						return errors.Join(tx.SetMeta("half", fmt.Sprint(i)), errors.New("no"))
					})
				}
			}
		})
	}
	for range 3 {
		mu.Lock()
		var before []DeliveryID
		for _, some := range acked {
			before = append(before, some...)
		}
		mu.Unlock()
		copied, _ := s.save(t)
		for _, id := range before {
			if _, err := copied.Deliveries.Payload(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		var runs, deliveries int
		check(t, copied.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM runs").Scan(&runs))
		check(t, copied.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries WHERE substr(identity_value, -1) IN ('0', '2', '4', '6', '8')").Scan(&deliveries))
		if deliveries < 2500+len(before)/2-4 || runs != deliveries {
			t.Errorf("%d runs of %d deliveries, %d acknowledged before", runs, deliveries, len(before))
		}
	}
	stop()
	all.Wait()
}

// TestBackup: one at a time; the key is not in it; nothing is left beside the
// store, also not by one that is cut off.
func TestBackup(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	check(t, s.bind(t.Context()))
	s.stock(t, 1000, time.Hour)
	check(t, os.WriteFile(s.cfg.Path+"-backup", []byte("left over"), 0o600))
	must[int64](t)(s.Secrets.Set(t.Context(), "S", secret.New("correct-horse-battery-staple")))
	copied, data := s.save(t)
	value := must[SecretValue](t)(copied.Secrets.At(t.Context(), "S", 1))
	if value.Value.Reveal() != "correct-horse-battery-staple" || bytes.Contains(data, []byte("correct-horse")) {
		t.Error("the copy does not have the secret, sealed")
	}
	key := must[[]byte](t)(os.ReadFile(filepath.Join(filepath.Dir(s.cfg.Path), "key")))
	if bytes.Contains(data, bytes.TrimSpace(key)) {
		t.Error("the copy has the key")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.DB.Backup(ctx, nil); err == nil {
		t.Error("a backup that was cancelled is there")
	}
	held, release := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		_ = s.Do(t.Context(), func(*engine.Tx) error { // the first backup waits for the writer
			close(held)
			<-release
			return nil
		})
	})
	<-held
	both.Go(func() { check(t, must[*os.File](t)(s.DB.Backup(t.Context(), nil)).Close()) })
	beside := filepath.Join(filepath.Dir(s.cfg.Path), "*-backup")
	until(t, func() bool { return len(must[[]string](t)(filepath.Glob(beside))) > 0 })
	if _, err := s.DB.Backup(t.Context(), nil); !errors.Is(err, ErrBackup) {
		t.Errorf("a second one: %v", err)
	}
	close(release)
	both.Wait()
	if left := must[[]string](t)(filepath.Glob(beside)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	check(t, s.Close())
	if _, err := s.DB.Backup(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
}

// TestCheckFindsDamage (R6): in the structure of the file and in what it holds.
func TestCheckFindsDamage(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	check(t, s.bind(t.Context()))
	s.stock(t, 300, time.Hour)
	if r := must[*Report](t)(s.Check(t.Context())); len(r.Problems) > 0 || r.Rows["deliveries"] != 300 || r.Partial {
		t.Errorf("%+v", r)
	}
	_, data := s.save(t)
	for name, damage := range map[string]func(data []byte) []byte{
		"cut off": func(data []byte) []byte { return data[:len(data)/2] },
		"a page of 0s": func(data []byte) []byte {
			return append(append(bytes.Clone(data[:20*engine.PageSize]), make([]byte, engine.PageSize)...), data[21*engine.PageSize:]...)
		},
		"empty":    func([]byte) []byte { return nil },
		"nonsense": func(data []byte) []byte { return bytes.Repeat([]byte("x"), len(data)) },
	} {
		path := filepath.Join(t.TempDir(), "copy.db")
		check(t, os.WriteFile(path, damage(data), 0o600))
		if r, err := CheckFile(t.Context(), path); err == nil && len(r.Problems) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		return tx.Exec("UPDATE deliveries SET payload = zeroblob(length(payload)) WHERE id = (SELECT min(id) FROM deliveries)")
	}))
	if r := must[*Report](t)(s.Check(t.Context())); len(r.Problems) != 1 {
		t.Errorf("a damaged payload: %v", r.Problems)
	}
}

// TestPayloadsLeaveOutDamage: who reads many bodies gets none in which the disk has lost bits, because what walks
// over them relies on their being JSON. Else one damaged body would end the server, at each start.
func TestPayloadsLeaveOutDamage(t *testing.T) {
	s, ctx := open(t), t.Context()
	var ids []DeliveryID
	for _, body := range []string{`{"a":"b"}`, `{"c":"` + strings.Repeat("long ", 100) + `"}`, `{"d":"e"}`} {
		ids = append(ids, must[Recorded](t)(s.Deliveries.Record(ctx, delivery(body, body))).ID)
	}
	for _, id := range ids[:2] {
		check(t, s.Do(ctx, func(tx *engine.Tx) error {
			return tx.Exec("UPDATE deliveries SET payload = $1, codec = 0 WHERE id = $2", []byte(`{"a":"b"`), id)
		}))
	}
	bodies := must[map[DeliveryID][]byte](t)(s.Deliveries.Payloads(ctx, must[[]*Delivery](t)(s.Deliveries.List(ctx, DeliveryQuery{}))))
	if len(bodies) != 1 || string(bodies[ids[2]]) != `{"d":"e"}` || s.Damages() != 2 {
		t.Errorf("%q, %d damages", bodies, s.Damages())
	}
	read := 0
	check(t, s.Subjects.Index(ctx, func(_ *Delivery, body []byte) ([]string, PullState, bool) {
		if read++; !json.Valid(body) {
			t.Errorf("the index reads %q", body)
		}
		return nil, PullState{}, false
	}))
	if read != 1 {
		t.Errorf("the index reads %d bodies", read)
	}
}
