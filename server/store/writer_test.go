package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/jackc/pgx/v5"
	"github.com/mattn/go-sqlite3"
)

// fault makes COMMIT fail while it is on, and counts the attempts.
type fault struct {
	set      func(on bool)
	attempts func() int64
}

func faulty(t *testing.T, s *fixture) *fault {
	t.Helper()
	if s.Shared() {
		return faultyPostgres(t, s.cfg.URL)
	}
	var on atomic.Bool
	var attempts atomic.Int64
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		return tx.Raw(func(c any) error {
			c.(*sqlite3.SQLiteConn).RegisterCommitHook(func() int {
				if !on.Load() {
					return 0
				}
				attempts.Add(1)
				return 1
			})
			return nil
		})
	}))
	on.Store(true)
	return &fault{on.Store, attempts.Load}
}

// faultyPostgres has triggers that fail when a transaction is committed. Sequences are not
// rolled back with it.
func faultyPostgres(t *testing.T, url string) *fault {
	t.Helper()
	db := must[*sql.DB](t)(sql.Open("pgx", url))
	t.Cleanup(func() { _ = db.Close() })
	run := func(query string, into ...any) {
		t.Helper()
		check(t, db.QueryRowContext(t.Context(), query).Scan(into...))
	}
	_, err := db.ExecContext(t.Context(), `CREATE SEQUENCE fault_on MINVALUE 0; CREATE SEQUENCE fault_attempts MINVALUE 0;
		CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT last_value FROM fault_on) = 1 THEN
				PERFORM nextval('fault_attempts');
				RAISE EXCEPTION 'the disk is broken' USING ERRCODE = '58030';
			END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER fault AFTER INSERT OR UPDATE ON deliveries DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fault();
		CREATE CONSTRAINT TRIGGER fault AFTER INSERT OR UPDATE ON meta DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fault();
		CREATE CONSTRAINT TRIGGER fault AFTER INSERT OR UPDATE ON audit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fault();`, pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	f := &fault{
		set: func(on bool) {
			run("SELECT setval('fault_on', "+map[bool]string{true: "1", false: "0"}[on]+")", new(int64))
		},
		attempts: func() (n int64) {
			run("SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM fault_attempts", &n)
			return n
		},
	}
	f.set(true)
	return f
}

// TestCommitFails (R4): if the commit fails, everyone is told so, in one go, and
// nothing is kept; it works again as soon as the disk does (SPEC 5.4).
func TestCommitFails(t *testing.T) {
	s := open(t)
	fault := faulty(t, s)
	calls := make([]func() error, 32)
	for i := range calls {
		calls[i] = func() error {
			_, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(i), "{}", "a"))
			return err
		}
	}
	calls[7] = func() error { return s.Audit.Add(t.Context(), AuditEntry{Action: "x"}) }
	for i, err := range together(t, s.Store, calls...) {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := fault.attempts(); n > 2 { // of the job that held the writer, and of all the others
		t.Errorf("%d commits were tried while everyone waited", n)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	if all := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{})); len(all) != 0 {
		t.Errorf("%d deliveries are kept", len(all))
	}
	fault.set(false)
	s.at = s.at.Add(time.Second)
	check(t, s.Ping(t.Context()))
	for i, err := range together(t, s.Store, calls...) {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if all := must[[]*Run](t)(s.Runs.List(t.Context(), RunQuery{})); len(all) != len(calls)-1 {
		t.Errorf("%d runs", len(all))
	}
}

// TestOneBadJob: a job that fails takes nothing of others with it, and leaves
// nothing of itself.
func TestOneBadJob(t *testing.T) {
	s := open(t)
	broken := errors.New("broken")
	record := func(identity string) func() error {
		return func() error {
			_, err := s.Deliveries.Record(t.Context(), delivery(identity, "{}", "a"))
			return err
		}
	}
	badRow := delivery("bad", "{}", "a")
	results := together(t, s.Store, record("1"),
		func() error {
			return s.Do(t.Context(), func(tx *engine.Tx) error {
				return errors.Join(tx.SetMeta("half", "1"), broken)
			})
		},
		record("2"),
		func() error { // fails in the database, without a savepoint
			return s.DB.Record(t.Context(), nil, func(tx *engine.Tx) error {
				if _, err := s.Deliveries.record(tx, badRow, encodeDelivery(badRow, new([]byte))); err != nil {
					return err
				}
				return tx.Exec("INSERT INTO audit (id) VALUES ($1)", 1)
			})
		},
		record("3"))
	if !errors.Is(results[1], broken) || errors.Is(results[1], ErrUnavailable) || results[3] == nil {
		t.Errorf("the bad ones: %v", results)
	}
	if err := errors.Join(results[0], results[2], results[4]); err != nil {
		t.Errorf("the good ones: %v", err)
	}
	var kept []string
	for _, d := range must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{})) {
		kept = append(kept, d.Identity.Value)
	}
	if slices.Sort(kept); !slices.Equal(kept, []string{"1", "2", "3"}) {
		t.Errorf("kept %v", kept)
	}
	if runs := must[[]*Run](t)(s.Runs.List(t.Context(), RunQuery{})); len(runs) != 3 {
		t.Errorf("%d runs of 3 deliveries", len(runs))
	}
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		half, err := tx.Meta("half")
		if half != "" {
			t.Error("a failed job is half-kept")
		}
		return err
	}))
}

// TestCloseUnderLoad: what was acknowledged is there afterwards, and what was
// refused is not.
func TestCloseUnderLoad(t *testing.T) {
	s := open(t)
	var mu sync.Mutex
	acknowledged := make(map[DeliveryID]bool)
	var all sync.WaitGroup
	for worker := range 32 {
		all.Go(func() {
			for i := 0; ; i++ {
				r, err := s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(worker, "-", i), "{}", "a"))
				if err != nil {
					if !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnavailable) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				acknowledged[r.ID] = true
				mu.Unlock()
			}
		})
	}
	until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged) > 200
	})
	check(t, s.Close())
	all.Wait()
	if err := s.Ping(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("ping: %v", err)
	}
	s.Store = nil
	s.reopen(t)
	n := 0
	for before := DeliveryID(0); ; {
		page := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{Before: before, Limit: 500}))
		for _, d := range page {
			if n++; !acknowledged[d.ID] || len(d.Runs) != 1 {
				t.Errorf("%s was not acknowledged, or has %d runs", d.ID, len(d.Runs))
			}
		}
		if len(page) == 0 {
			break
		}
		before = page[len(page)-1].ID
	}
	if n != len(acknowledged) {
		t.Errorf("%d of %d acknowledged deliveries are there", n, len(acknowledged))
	}
}

// TestPing: it costs a commit only if none has just gone well.
func TestPing(t *testing.T) {
	s := open(t)
	pinged := func() string {
		var value string
		check(t, s.Read.QueryRowContext(t.Context(), "SELECT coalesce(max(value), '') FROM meta WHERE name = 'ping'").Scan(&value))
		return value
	}
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	if check(t, s.Ping(t.Context())); pinged() != "" {
		t.Error("a ping after a commit commits again")
	}
	s.at = s.at.Add(2 * time.Second)
	if check(t, s.Ping(t.Context())); pinged() == "" {
		t.Error("the ping of an idle store proves nothing")
	}
}

func TestPlaceholders(t *testing.T) {
	for query, ok := range map[string]bool{
		"a = $1 AND b = $2 AND c = $1": true, "a = 1": true, "a = $2 AND b = $1": false, "a = $1 AND b = $3": false,
	} {
		if err := engine.CheckPlaceholders(query); (err == nil) != ok {
			t.Errorf("%s: %v", query, err)
		}
	}
	s := open(t)
	if _, err := engine.List(t.Context(), s.DB, func(*sql.Rows) (int, error) { return 0, nil }, "SELECT $2, $1", 1, 2); err == nil {
		t.Error("values would be mixed up")
	}
}
