package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/secret"
	"triphammer/server/store/internal/engine"
)

// TestFile: what is no store, or not a whole one, is refused, and is the same
// afterwards.
func TestFile(t *testing.T) {
	key := must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key")))
	whole := func(t *testing.T, path string) {
		s := must[*Store](t)(Open(t.Context(), Config{Path: path, Key: key}))
		for _, id := range []string{"1", "2", "3"} {
			must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery(id, strings.Repeat("a payload ", 5000)+id)))
		}
		check(t, s.Close())
	}
	change := func(t *testing.T, path string, at int64, to string) {
		f := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
		_, err := f.WriteAt([]byte(to), at)
		check(t, errors.Join(err, f.Close()))
	}
	execute := func(t *testing.T, path string, queries ...string) {
		db := must[*sql.DB](t)(sql.Open("sqlite3", path))
		for _, q := range queries {
			_, err := db.Exec(q)
			check(t, err)
		}
		check(t, db.Close())
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want error
		text string
	}{
		{"missing", func(*testing.T, string) {}, ErrMissing, "no store"},
		{"its log alone", func(t *testing.T, path string) { check(t, os.WriteFile(path+"-wal", []byte("x"), 0o600)) }, ErrDamaged, "without it"},
		{"empty", func(t *testing.T, path string) { check(t, os.WriteFile(path, nil, 0o600)) }, ErrDamaged, "it is empty"},
		{"text", func(t *testing.T, path string) {
			check(t, os.WriteFile(path, []byte(strings.Repeat("hello ", 100)), 0o600))
		}, ErrForeign, "not begin like"},
		{"short text", func(t *testing.T, path string) { check(t, os.WriteFile(path, []byte("hi"), 0o600)) }, ErrForeign, "not begin like"},
		{"folder", func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o700)) }, ErrForeign, "not a file"},
		{"cut in its header", func(t *testing.T, path string) { whole(t, path); check(t, os.Truncate(path, 40)) }, ErrDamaged, "ends after 40"},
		{"cut in a page", func(t *testing.T, path string) { whole(t, path); check(t, os.Truncate(path, 20_000)) }, ErrDamaged, ""},
		{"a page of nonsense", func(t *testing.T, path string) { whole(t, path); change(t, path, 4096, strings.Repeat("x", 4096)) }, ErrDamaged, ""},
		{"another program's", func(t *testing.T, path string) {
			execute(t, path, "PRAGMA application_id = 252006673", "CREATE TABLE event (rid INTEGER)")
		}, ErrForeign, "application_id"},
		{"a nameless program's", func(t *testing.T, path string) { execute(t, path, "CREATE TABLE notes (text TEXT)") }, ErrForeign, "another program"},
		{"a nameless program's with a log", func(t *testing.T, path string) {
			execute(t, path, "PRAGMA journal_mode = WAL", "CREATE TABLE meta (name TEXT)")
		}, ErrForeign, "another program"},
		{"ours without its tables", func(t *testing.T, path string) {
			whole(t, path)
			execute(t, path, "DELETE FROM meta")
		}, ErrDamaged, "schema"},
		{"a newer one", func(t *testing.T, path string) {
			whole(t, path)
			execute(t, path, "UPDATE meta SET value = '999' WHERE name IN ('schema', 'oldest program')")
		}, ErrNewerSchema, "999"},
		{"one from before it had an id", func(t *testing.T, path string) {
			whole(t, path)
			execute(t, path, "PRAGMA application_id = 0")
		}, nil, ""},
		{"a whole one", whole, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			c.make(t, path)
			before, readErr := os.ReadFile(path)
			// Twice: the first attempt leaves nothing that the second takes for a store.
			for range 2 {
				s, err := Open(t.Context(), Config{Path: path, Key: key, Existing: true})
				if c.want == nil {
					check(t, err)
					if all := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{})); len(all) != 3 {
						t.Errorf("%d deliveries", len(all))
					}
					check(t, s.Close())
					continue
				}
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v, not %v with %q", err, c.want, c.text)
				}
			}
			if c.want != nil && readErr == nil {
				if after := must[[]byte](t)(os.ReadFile(path)); string(after) != string(before) {
					t.Error("the file was changed")
				}
			}
			// Also where a store may be made, none takes the place of what is there.
			if c.want != nil && c.want != ErrMissing {
				if _, err := Open(t.Context(), Config{Path: path, Key: key}); !errors.Is(err, c.want) {
					t.Errorf("where one may be made: %v", err)
				}
			}
		})
	}
}

// TestUnfinished: a store whose making was cut off is made anew, whatever is left
// of the attempt.
func TestUnfinished(t *testing.T) {
	key := must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key")))
	path := filepath.Join(t.TempDir(), "x.db")
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		check(t, os.WriteFile(Unfinished(path)+suffix, []byte(strings.Repeat("nonsense", 1000)), 0o644))
	}
	s := must[*Store](t)(Open(t.Context(), Config{Path: path, Key: key}))
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	var synchronous int
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error { return tx.Row("PRAGMA synchronous", nil, &synchronous) }))
	if synchronous != 2 {
		t.Errorf("synchronous is %d", synchronous)
	}
	var vacuum int
	check(t, s.Read.QueryRow("PRAGMA auto_vacuum").Scan(&vacuum))
	if vacuum != 2 {
		t.Errorf("auto_vacuum is %d", vacuum)
	}
	check(t, s.Close())
	left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path)))
	if len(left) != 2 { // it, and the number of its transactions
		t.Errorf("left: %v", left)
	}
	if info := must[os.FileInfo](t)(os.Stat(path)); info.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v", info.Mode())
	}
}
