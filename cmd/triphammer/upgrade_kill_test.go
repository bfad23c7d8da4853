package main

import (
	"database/sql"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/host"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// rowsOfOld is how many deliveries and runs the stores of older programs have.
const rowsOfOld = 400

// makeOldStore makes a store as a program had it whose last migration has that number.
func makeOldStore(t *testing.T, dir string, schema int) {
	t.Helper()
	if _, err := secret.LoadOrCreateKey(filepath.Join(dir, host.KeyName)); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", filepath.Join(dir, host.StoreFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	do := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("schema %d: %s: %v", schema, query, err)
		}
	}
	do("PRAGMA auto_vacuum = incremental; PRAGMA synchronous = OFF; PRAGMA application_id = 0x54727048")
	do("CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
	for _, name := range migrationFiles(t)[:schema] {
		text, err := fs.ReadFile(store.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		do(string(text))
	}
	do("INSERT INTO meta VALUES ('schema', $1)", schema)
	known := map[string]string{"outcome": "accepted", "state": "SUCCEEDED", "factory": "default", "source": "webhook", "headers": "{}", "metadata": "{}"}
	for _, table := range []string{"deliveries", "runs"} {
		rows, err := db.QueryContext(t.Context(), "SELECT name, type FROM pragma_table_info($1) WHERE \"notnull\" AND dflt_value IS NULL OR pk OR name = 'delivery_id'", table)
		if err != nil {
			t.Fatal(err)
		}
		var names, values []string
		for rows.Next() {
			var name, kind string
			if err := rows.Scan(&name, &kind); err != nil {
				t.Fatal(err)
			}
			value := "n.value"
			switch {
			case known[name] != "":
				value = "'" + known[name] + "'"
			case strings.HasPrefix(kind, "TEXT"):
				value = "'x' || n.value"
			case strings.HasPrefix(kind, "BLOB"):
				value = "randomblob(32)"
			}
			names, values = append(names, name), append(values, value)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		do(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < %d) SELECT value FROM n) n",
			table, strings.Join(names, ", "), strings.Join(values, ", "), rowsOfOld))
	}
}

// migrationFiles are those of SQLite, in their order.
func migrationFiles(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(store.Migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

// TestUpgradeKilled (R28): a program that is killed before any of its changes of files while it
// opens the store of an older program, of any schema, leaves a store that the next start opens
// with all of its rows.
func TestUpgradeKilled(t *testing.T) {
	t.Parallel()
	newest := len(migrationFiles(t))
	schemas := []int{1, newest / 3, 2 * newest / 3, newest - 1}
	kills := bounded(2, 4, 12)
	if *campaign {
		schemas = nil
		for schema := 1; schema < newest; schema++ {
			schemas = append(schemas, schema)
		}
	}
	random := rand.New(rand.NewPCG(9, uint64(kills)))
	killed := 0
	for _, schema := range schemas {
		w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
		data := filepath.Join(w.dir, "data")
		fresh := func() {
			t.Helper()
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			makeOldStore(t, data, schema)
		}
		open := func(decide func(c *diskCall) verdict) error {
			cmd := w.command("secrets", "list")
			cmd.Path = plain
			x := &watcher{t: t, dir: data, decide: decide}
			x.watch(cmd)
			out, err := cmd.CombinedOutput()
			<-x.ended
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
		fresh()
		calls := 0
		if err := open(func(c *diskCall) (v verdict) { calls++; return v }); err != nil {
			t.Fatalf("schema %d: %v", schema, err)
		}
		for range kills {
			fresh()
			at, n := 1+random.IntN(calls), 0
			if err := open(func(*diskCall) verdict { n++; return verdict{kill: n == at} }); err != nil {
				killed++
			}
			if err := open(nil); err != nil {
				t.Fatalf("schema %d, killed before call %d of %d: %v", schema, at, calls, err)
			}
			k, err := readStore(t.Context(), data)
			for id, runs := range k.runs {
				if runs != 1 {
					t.Fatalf("schema %d, killed before call %d: %s has %d runs", schema, at, id, runs)
				}
			}
			if len(k.runs) != rowsOfOld {
				t.Fatalf("schema %d, killed before call %d of %d: %d deliveries, %v", schema, at, calls, len(k.runs), err)
			}
		}
	}
	if t.Logf("%d schemas, %d kills", len(schemas), killed); killed < len(schemas)*kills/2 {
		t.Error("the kills hit nothing")
	}
}
