package engine

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// open opens a database with a table, on SQLite.
func open(t *testing.T) *DB {
	t.Helper()
	s := NewDB(Options{
		Path:       filepath.Join(t.TempDir(), "x.db"),
		Migrations: fstest.MapFS{"migrations/0001_first.sql": &fstest.MapFile{Data: []byte("CREATE TABLE things (id INTEGER PRIMARY KEY)")}},
	})
	check(t, s.Open(t.Context()))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPowerLoss fails if anything but synchronous=FULL in WAL mode could be in
// use: with less, a commit that was acknowledged is lost with the power.
func TestPowerLoss(t *testing.T) {
	s := open(t)
	check(t, s.Do(t.Context(), func(tx *Tx) error { return assertDurable(tx.ctx, s.conn) }))
	for _, weaker := range []string{"NORMAL", "OFF"} {
		path := filepath.Join(t.TempDir(), "weak.db")
		weak := newSQLite(Options{})
		if err := (&sqlite{weak}).openFile(t.Context(), Options{Path: path}, Durable(map[string]string{"_synchronous": weaker})); err == nil || !strings.Contains(err.Error(), "FULL") {
			t.Errorf("a store with synchronous=%s opens: %v", weaker, err)
		}
		check(t, weak.closeHandles())
		db := NewDatabase(filepath.Join(t.TempDir(), "x.db"), Durable(map[string]string{"_synchronous": weaker}))
		conn, err := db.Conn(t.Context())
		check(t, err)
		if err := assertDurable(t.Context(), conn); err == nil {
			t.Errorf("a connection with synchronous=%s was taken", weaker)
		}
		check(t, errors.Join(conn.Close(), db.Close()))
	}
}

// TestMarkedMigrations: a migration that is not additive says so in its first line.
func TestMarkedMigrations(t *testing.T) {
	words := map[string]bool{"DROP TABLE": true, "DROP COLUMN": true, "RENAME": true}
	marks := make(map[int]bool)
	for _, folder := range []string{"migrations", "migrations/postgres"} {
		all, err := MigrationsOf(os.DirFS("../.."), folder)
		check(t, err)
		for _, m := range all {
			if m.number <= firstLasting {
				continue
			}
			for word := range maps.Keys(words) {
				if strings.Contains(strings.ToUpper(m.Text), word) && !m.breaks {
					t.Errorf("%s/%s has %s, and does not begin with %s", folder, m.Name, word, breaksMark)
				}
			}
			if was, seen := marks[m.number]; seen && was != m.breaks {
				t.Errorf("migration %d breaks programs of before on one engine alone", m.number)
			}
			marks[m.number] = m.breaks
		}
	}
}
