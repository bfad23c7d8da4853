//go:build full

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
	"triphammer/server/store/storetest"
)

// TestFollowTwoWriters: who follows the deliveries by their ids, and asks each time for those after the newest
// that it has seen, sees all of them, although two servers write at once. The same follower misses some if the
// writers do not take turns: that is the control.
func TestFollowTwoWriters(t *testing.T) {
	t.Run("the store", func(t *testing.T) {
		first := openPostgres(t)
		second := &fixture{cfg: first.cfg, at: first.at}
		second.reopen(t)
		defer func() { check(t, second.Close()) }()
		var writers []func(i int) error
		for n, s := range []*Store{first.Store, second.Store} {
			for worker := range 4 {
				writers = append(writers, func(i int) error {
					_, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(n, worker, i), "{}", "a"))
					return err
				})
			}
		}
		db := must[*sql.DB](t)(sql.Open("pgx", first.cfg.URL))
		defer func() { _ = db.Close() }()
		if seen, all := follow(t, db, "deliveries", writers); seen != all {
			t.Errorf("%d of %d were seen", seen, all)
		}
	})
	t.Run("without turns", func(t *testing.T) {
		db := must[*sql.DB](t)(sql.Open("pgx", storetest.Postgres(t)))
		defer func() { _ = db.Close() }()
		must[sql.Result](t)(db.ExecContext(t.Context(), "CREATE TABLE naive (id BIGSERIAL PRIMARY KEY)"))
		writers := slices.Repeat([]func(int) error{func(int) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(t.Context(), "INSERT INTO naive DEFAULT VALUES")
			if err == nil {
				_, err = tx.ExecContext(t.Context(), "SELECT 1") // as a batch has further statements
			}
			return errors.Join(err, tx.Commit())
		}}, 8)
		if seen, all := follow(t, db, "naive", writers); seen == all {
			t.Errorf("all %d were seen: the test finds no gap", all)
		}
	})
}

// follow makes the writers write at once, and follows a table meanwhile by its ids.
func follow(t *testing.T, db *sql.DB, table string, writers []func(i int) error) (seen, all int) {
	t.Helper()
	var writing sync.WaitGroup
	for _, write := range writers {
		writing.Go(func() {
			for i := range 100 {
				if err := write(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		writing.Wait()
	}()
	last := int64(0)
	look := func() {
		rows, err := db.QueryContext(t.Context(), "SELECT id FROM "+table+" WHERE id > $1 ORDER BY id", last)
		check(t, err)
		for _, id := range must[[]int64](t)(engine.ScanAll(rows, func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) })) {
			seen, last = seen+1, id
		}
	}
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		look()
	}
	check(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&all))
	return seen, all
}

// TestDatabaseDies: what was acknowledged is there after the database was killed, however late it writes its
// log, and the writers go on with what is there (SPEC 17.1).
func TestDatabaseDies(t *testing.T) {
	server := must[*storetest.Server](t)(storetest.NewServer(nil, nil))
	defer func() { check(t, server.Close()) }()
	admin := must[*sql.DB](t)(sql.Open("pgx", server.URL("127.0.0.1", "postgres")))
	for _, statement := range []string{"ALTER SYSTEM SET wal_writer_delay = '10s'", "ALTER SYSTEM SET wal_writer_flush_after = 0", "SELECT pg_reload_conf()", "CREATE DATABASE kept ENCODING 'UTF8' TEMPLATE template0"} {
		must[sql.Result](t)(admin.ExecContext(t.Context(), statement))
	}
	check(t, admin.Close())
	first := open(t)
	check(t, first.Close())
	first.Store, first.cfg.URL = nil, server.URL("127.0.0.1", "kept")
	first.reopen(t)
	second := &fixture{cfg: first.cfg, at: first.at}
	second.reopen(t)
	defer func() { check(t, second.Close()) }()
	stores := []*Store{first.Store, second.Store}
	for round := range 3 {
		var mu sync.Mutex
		var acknowledged []int64
		var recording sync.WaitGroup
		for n, s := range stores {
			for worker := range 4 {
				recording.Go(func() {
					for i := 0; ; i++ {
						// Automations of their own make groups that the writers remember.
						r, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(round, n, worker, i), "{}", fmt.Sprint("a", round, i)))
						if err != nil {
							return
						}
						mu.Lock()
						acknowledged = append(acknowledged, int64(r.ID))
						mu.Unlock()
					}
				})
			}
		}
		until(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acknowledged) > 200
		})
		server.Stop(9)
		recording.Wait()
		check(t, server.Start())
		for n, s := range stores {
			until(t, func() bool {
				_, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint("after", round, n), "{}", fmt.Sprint("a", round, 0)))
				return err == nil
			})
		}
		db := must[*sql.DB](t)(sql.Open("pgx", first.cfg.URL))
		var kept int
		check(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries WHERE id = ANY($1)", acknowledged).Scan(&kept))
		if kept != len(acknowledged) {
			t.Fatalf("of %d acknowledged in round %d, %d are kept", len(acknowledged), round, kept)
		}
		var lost int
		check(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM runs WHERE group_id NOT IN (SELECT id FROM run_groups)").Scan(&lost))
		if lost > 0 {
			t.Errorf("%d runs are of groups that the database has lost", lost)
		}
		if problems := first.Problems(); len(problems) > 0 {
			t.Errorf("nothing that anybody was told of is lost, and yet: %q", problems)
		}
		check(t, db.Close())
	}
}

// stopped is a way to a server on which all stands still while it holds.
type stopped struct {
	net.Listener
	arm   atomic.Bool
	begun atomic.Bool  // the first statements of a transaction were passed on since the way was armed
	gate  sync.RWMutex // is held while all stands still
}

// goOn ends that all stands still.
func (l *stopped) goOn() {
	if l.begun.CompareAndSwap(true, false) {
		l.gate.Unlock()
	}
}

func (l *stopped) pass(to, from net.Conn, asks bool) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !asks && l.arm.CompareAndSwap(true, false) { // the answer to a BEGIN waits here, with all that comes after
			l.gate.Lock()
			l.begun.Store(true)
		}
		l.gate.RLock() // as the process that stands still
		_, err = to.Write(buffer[:n])
		l.gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// TestHolderStandsStill: if a server stands still while it has the lock of the writers, another server
// acknowledges again within two seconds. What the first one was about to write is made again when it goes on,
// once (SPEC 17.1).
func TestHolderStandsStill(t *testing.T) {
	direct := openPostgres(t)
	address := must[*url.URL](t)(url.Parse(direct.cfg.URL))
	there := address.Host
	way := &stopped{Listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	defer func() { _ = way.Close() }()
	go func() {
		for {
			client, err := way.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", there)
			if err != nil {
				_ = client.Close()
				continue
			}
			go way.pass(server, client, true)
			go way.pass(client, server, false)
		}
	}()
	address.Host = way.Addr().String()
	behind := &fixture{cfg: direct.cfg, at: direct.at}
	behind.cfg.URL = address.String()
	behind.reopen(t)
	defer func() { check(t, behind.Close()) }()
	must[Recorded](t)(behind.Deliveries.Record(t.Context(), delivery("before", "{}", "a")))
	held := make(chan error, 1)
	way.arm.Store(true)
	defer way.goOn()
	go func() {
		_, err := behind.Deliveries.Record(context.WithoutCancel(t.Context()), delivery("held", "{}", "a"))
		held <- err
	}()
	until(t, way.begun.Load)
	began := time.Now()
	must[Recorded](t)(direct.Deliveries.Record(t.Context(), delivery("other", "{}", "a")))
	took := time.Since(began)
	t.Logf("acknowledged again after %s", took.Round(time.Millisecond))
	if took > 4*time.Second { // two, and as long on a machine that is busy
		t.Errorf("it took %s", took)
	}
	way.goOn()
	check(t, <-held)
	all := must[[]*Delivery](t)(direct.Deliveries.List(t.Context(), DeliveryQuery{Outcomes: []Outcome{Accepted}}))
	if len(all) != 3 {
		t.Errorf("%d deliveries", len(all))
	}
}
