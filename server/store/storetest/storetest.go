// Package storetest gives tests databases of PostgreSQL, and lets the tests of a store run on
// both engines.
//
// With TRIPHAMMER_TEST_STORE=postgres, stores of tests are in PostgreSQL. TRIPHAMMER_TEST_POSTGRES
// is the address of a server in which the tests may make databases, such as
// postgres://postgres@127.0.0.1:5432/postgres. The command withpostgres starts one and sets both.
package storetest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

const (
	switchName = "TRIPHAMMER_TEST_STORE"
	serverName = "TRIPHAMMER_TEST_POSTGRES"
)

// OnPostgres tells whether stores of tests are in PostgreSQL.
func OnPostgres() bool { return os.Getenv(switchName) == "postgres" }

// URL is the address of a new database for the store of a test. It is empty if stores of tests
// are in SQLite.
func URL(t testing.TB) string {
	t.Helper()
	if !OnPostgres() {
		return ""
	}
	return Postgres(t)
}

// Postgres is the address of a new database, which goes with the test.
func Postgres(t testing.TB) string {
	t.Helper()
	server, err := url.Parse(os.Getenv(serverName))
	if err != nil || server.Host == "" {
		t.Fatalf("this test needs PostgreSQL: run it by `go run ./server/store/storetest/withpostgres go test …`, or set %s", serverName)
	}
	db, err := sql.Open("pgx", server.String())
	if err != nil {
		t.Fatal(err)
	}
	var random string
	name := ""
	err = db.QueryRowContext(t.Context(), "SELECT substr(md5(random()::text || clock_timestamp()::text), 1, 16)").Scan(&random)
	if err == nil {
		name = fmt.Sprintf("triphammer_test_%d_%s", os.Getpid(), random)
		_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'")
	}
	if err != nil {
		t.Fatal("making a database: ", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := db.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error("removing a database: ", err)
		}
		_ = db.Close()
	})
	server.Path = "/" + name
	return server.String()
}

//go:embed sqlite_only.txt
var sqliteOnly []byte

// Only are the tests that run on SQLite alone, and why.
func Only() map[string]string {
	reasons := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(sqliteOnly)); lines.Scan(); {
		if name, reason, ok := strings.Cut(lines.Text(), ": "); ok {
			reasons[name] = reason
		}
	}
	return reasons
}

// SQLite skips a test when stores are in PostgreSQL. The test and the reason must be in
// sqlite_only.txt.
func SQLite(t testing.TB) {
	t.Helper()
	if !OnPostgres() {
		return
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	reason := Only()[name]
	if reason == "" {
		t.Fatalf("%s is not in sqlite_only.txt: why does it not run on PostgreSQL?", name)
	}
	t.Skip(reason)
}
