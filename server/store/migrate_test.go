package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store/internal/engine"
)

// later are the migrations of a program that has more of them, the same for both engines.
func later(t *testing.T, more ...string) fs.FS {
	t.Helper()
	all := make(fstest.MapFS)
	for _, folder := range []string{"migrations", "migrations/postgres"} {
		known := must[[]engine.Migration](t)(engine.MigrationsOf(Migrations, folder))
		for _, m := range known {
			all[path.Join(folder, m.Name)] = &fstest.MapFile{Data: []byte(m.Text)}
		}
		for i, text := range more {
			all[path.Join(folder, fmt.Sprintf("%04d_more.sql", engine.Newest(known)+1+i))] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return all
}

const (
	adding   = "ALTER TABLE pins ADD COLUMN added BIGINT NOT NULL DEFAULT 7;"
	breaking = "-- breaks: programs of before write a column that is gone\nALTER TABLE pins DROP COLUMN reason;"
)

// TestRollingUpgrade (R28): a program opens and writes a store that a newer one has added to, also
// beside it, and refuses one that a newer one has changed in another way (SPEC 17.6).
func TestRollingUpgrade(t *testing.T) {
	s := open(t)
	known, _ := versionOf(t, s.Store)
	newer := s.cfg
	newer.migrations = later(t, adding)
	if s.Shared() { // both are up at the same time
		next := must[*Store](t)(Open(t.Context(), newer))
		check(t, s.Pins.Set(t.Context(), "default", Pin{Commit: "abc", Reason: "why"}))
		check(t, next.Close())
	} else {
		check(t, s.Close())
		next := must[*Store](t)(Open(t.Context(), newer))
		check(t, next.Close())
		s.reopen(t)
		check(t, s.Pins.Set(t.Context(), "default", Pin{Commit: "abc", Reason: "why"}))
	}
	s.reopen(t) // a start of the older program
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", `{"n":1}`, "a")))
	var added int
	check(t, s.Read.QueryRowContext(t.Context(), "SELECT added FROM pins").Scan(&added))
	if v, _ := versionOf(t, s.Store); added != 7 || v != known+1 {
		t.Errorf("schema %d, %d", v, added)
	}
	if r := must[*Report](t)(s.Check(t.Context())); len(r.Problems) > 0 || r.Schema != known+1 || r.Partial {
		t.Errorf("%+v", r)
	}

	newer.migrations = later(t, adding, breaking, adding[:len(adding)-len(" BIGINT NOT NULL DEFAULT 7;")]+"_too BIGINT;")
	if s.Shared() {
		_, err := Open(t.Context(), newer)
		if !errors.Is(err, ErrOthers) || !strings.Contains(err.Error(), "Stop all servers and workers") {
			t.Fatalf("a migration that breaks a program which is connected: %v", err)
		}
		must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("2", `{"n":2}`, "a"))) // nothing has changed
	}
	check(t, s.Close())
	next := must[*Store](t)(Open(t.Context(), newer))
	check(t, next.Close())
	for _, older := range []fs.FS{nil, later(t, adding)} {
		cfg := s.cfg
		cfg.migrations = older
		if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("a program that does not know the change: %v", err)
		}
	}
	newer.migrations = later(t, adding, breaking) // it need not know the last one
	next = must[*Store](t)(Open(t.Context(), newer))
	check(t, next.Close())
}

// versionOf is the schema of the database, and the newest one that this program knows.
func versionOf(t *testing.T, s *Store) (have, known int) {
	t.Helper()
	r := must[*Report](t)(s.Check(t.Context()))
	return r.Schema, r.Known
}
