//go:build full

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"triphammer/server/store/storetest"
)

// openPostgres opens a store in a database of its own, whatever the switch says.
func openPostgres(t *testing.T) *fixture {
	t.Helper()
	f := open(t)
	check(t, f.Close())
	f.Store, f.cfg.URL = nil, storetest.Postgres(t)
	f.reopen(t)
	return f
}

// TestPostgresSettings: a database that could lose acknowledged deliveries, or cannot hold every
// text, is refused.
func TestPostgresSettings(t *testing.T) {
	f := openPostgres(t)
	check(t, f.Close())
	for option, want := range map[string]string{
		"synchronous_commit=off": "would lose acknowledged deliveries",
		"synchronous_commit=on":  "",
	} {
		cfg := f.cfg
		cfg.URL += "?" + option
		s, err := Open(t.Context(), cfg)
		switch {
		case want == "":
			check(t, err)
			check(t, s.Close())
		case err == nil:
			t.Errorf("%s: it opens", option)
			check(t, s.Close())
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v", option, err)
		}
	}
	cfg := f.cfg
	cfg.URL = strings.Replace(cfg.URL, "/triphammer_test", "/no_such_triphammer_test", 1)
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a database that is not there: %v", err)
	}
}

// TestPostgresText: what PostgreSQL's text cannot have is replaced, and nothing is refused for it.
func TestPostgresText(t *testing.T) {
	f := openPostgres(t)
	d := delivery("1\x00\xff", "{}", "a")
	d.ClientAddr = "\xc3("
	recorded := must[Recorded](t)(f.Deliveries.Record(t.Context(), d))
	read := must[*Delivery](t)(f.Deliveries.Get(t.Context(), recorded.ID))
	if read.Identity.Value != "1\uFFFD\uFFFD" || read.ClientAddr != "\uFFFD(" {
		t.Errorf("%+v", read)
	}
	again := must[Recorded](t)(f.Deliveries.Record(t.Context(), d))
	if !again.Duplicate || again.DuplicateOf != recorded.ID {
		t.Errorf("%+v", again)
	}
	for _, q := range []RunQuery{{Webhook: "\x00\xff"}, {Webhook: "\x00\xff", Automation: "a"}, {Sort: ByTitle, Automation: "a", After: RunCursor{Key: "\x00", ID: 1}}, {Metadata: map[string]string{"k": "\xff"}}} {
		q.Limit = 10
		must[[]*Run](t)(f.Runs.List(t.Context(), q))
	}
}

// TestPostgresConnectionLost: a writer whose connection the database ends says so, and goes on
// with a new one.
func TestPostgresConnectionLost(t *testing.T) {
	f := openPostgres(t)
	other := must[*sql.DB](t)(sql.Open("pgx", f.cfg.URL))
	defer func() { _ = other.Close() }()
	for i := range 5 {
		must[Recorded](t)(f.Deliveries.Record(t.Context(), delivery(fmt.Sprint(i), "{}", "a")))
		_, err := other.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		check(t, err)
		until(t, func() bool {
			_, err := f.Deliveries.Record(t.Context(), delivery(fmt.Sprint("after ", i), "{}", "a"))
			return err == nil
		})
	}
	if all := must[[]*Delivery](t)(f.Deliveries.List(t.Context(), DeliveryQuery{Outcomes: []Outcome{Accepted}})); len(all) != 10 {
		t.Errorf("%d deliveries", len(all))
	}
}

// TestTwoWriters: two processes write at the same time. Every id is larger than those of earlier
// commits, an identity is accepted once, and each hears of what the other wrote.
func TestTwoWriters(t *testing.T) {
	first := openPostgres(t)
	first.cfg.URL += "?default_transaction_isolation=repeatable%20read" // as somebody may set for all databases of a server
	first.reopen(t)
	second := &fixture{cfg: first.cfg, at: first.at}
	second.reopen(t)
	defer func() { check(t, second.Close()) }()
	changed := second.Changed()
	const each = 200
	var mu sync.Mutex
	accepted := make(map[string]int)
	var all sync.WaitGroup
	for _, s := range []*Store{first.Store, second.Store} {
		for worker := range 8 {
			all.Go(func() {
				newest := DeliveryID(0)
				for i := range each {
					name := fmt.Sprint(worker, "-", i)
					r, err := s.Deliveries.Record(t.Context(), delivery(name, "{}", "a"))
					if err != nil {
						t.Error(err)
						return
					}
					if r.ID <= newest {
						t.Errorf("%s came after %s", r.ID, newest)
					}
					newest = r.ID
					mu.Lock()
					if !r.Duplicate {
						accepted[name]++
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	for name, n := range accepted {
		if n != 1 {
			t.Errorf("%s was accepted %d times", name, n)
		}
	}
	if len(accepted) != 8*each {
		t.Errorf("%d identities were accepted", len(accepted))
	}
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("the second has not heard of the first")
	}
}

// TestLeader: one process leads at a time, and the writes of one that has lost the lead are
// refused.
func TestLeader(t *testing.T) {
	first := openPostgres(t)
	second := &fixture{cfg: first.cfg, at: first.at}
	second.reopen(t)
	defer func() { check(t, second.Close()) }()
	leads := make(chan context.Context)
	lead := func(ctx context.Context) {
		leads <- ctx
		<-ctx.Done()
	}
	ctx, stop := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() { first.Lead(ctx, lead) })
	one := <-leads
	both.Go(func() { second.Lead(ctx, lead) })
	select {
	case <-leads:
		t.Error("two lead")
	case <-time.After(3 * time.Second): // as often as the second may have tried
	}
	check(t, first.Audit.Add(one, AuditEntry{Action: "x"}))
	db := must[*sql.DB](t)(sql.Open("pgx", first.cfg.URL))
	defer func() { _ = db.Close() }()
	_, err := db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1 AND granted", int64(0x54727048_0002)) // lockLeader
	check(t, err)
	<-leads
	if one.Err() == nil {
		<-one.Done()
	}
	if err := first.Audit.Add(context.WithoutCancel(one), AuditEntry{Action: "y"}); err == nil {
		t.Error("the write of an earlier leadership is taken")
	}
	stop()
	both.Wait()
}

// planTracer remembers the statements of a pool.
type planTracer struct {
	mu         sync.Mutex
	statements map[string][]any
}

func (p *planTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statements[q.SQL] = q.Args
	return ctx
}

func (p *planTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// planNode is a node of EXPLAIN (ANALYZE, FORMAT JSON).
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Plans    []planNode `json:"Plans"`
}

// read is how many rows a node and those below it read of large tables.
func (n planNode) read() (rows float64) {
	for _, below := range n.Plans {
		rows += below.read()
	}
	switch n.Relation {
	case "runs", "deliveries", "run_events":
		rows += (n.Rows + n.Removed) * n.Loops
	}
	return rows
}

// TestPostgresPlans: lists read no more rows of a large table than SQLite does by its indexes.
func TestPostgresPlans(t *testing.T) {
	f := openPostgres(t)
	ctx := t.Context()
	rows := 200_000
	if os.Getenv("TRIPHAMMER_MILLION") != "" {
		rows = 1_000_000
	}
	for i := range 20 {
		must[Recorded](t)(f.Deliveries.Record(ctx, delivery(fmt.Sprint(i), "{}", fmt.Sprint("a", i))))
	}
	db := must[*sql.DB](t)(sql.Open("pgx", f.cfg.URL))
	defer func() { _ = db.Close() }()
	first := engine.IDAt(f.at.Add(-24 * time.Hour))
	step := int64((23*time.Hour).Milliseconds()<<engine.RandomBits) / int64(rows)
	fill := func(query string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(ctx, query, args...)
		check(t, err)
	}
	fill(`INSERT INTO runs (id, factory, automation, source, title, creator_kind, creator_name, delivery_id, webhook, commit_hash, spec_hash, state,
		status_message, attempt, created_at, updated_at, started_at, finished_at, cancel_requested, worker, lease_token, lease_until, group_id)
		SELECT $1::bigint + n * $2::bigint, 'default', 'a' || n % 20, 'WEBHOOK', 'title ' || n % 1000, 'automation', 'a' || n % 20, $1::bigint + n * $2::bigint, 'hook', '', ''::bytea,
		CASE n % 100 WHEN 0 THEN 'QUEUED' WHEN 1 THEN 'FAILED' WHEN 2 THEN 'CANCELLED' ELSE 'SUCCEEDED' END,
		'', 1, ((($1::bigint + n * $2::bigint) >> 22) + 1704067200000) * 1000, ((($1::bigint + n * $2::bigint) >> 22) + 1704067200000) * 1000, 0, 0, 0, '', 0, 0,
		(SELECT g.id FROM run_groups g WHERE g.automation = 'a' || n % 20) FROM generate_series(0, $3::int - 1) AS n`, first, step, rows)
	fill(`INSERT INTO deliveries (id, factory, webhook, webhook_uid, outcome, reason, detail, size, received_at, identity_source, identity_value,
		duplicate_of, replay_of, client_addr, headers, apply_id, secret_generation, codec)
		SELECT $1::bigint + n * $2::bigint, 'default', 'hook', 'whk_' || n % 5, CASE n % 50 WHEN 0 THEN 'rejected_auth' WHEN 1 THEN 'duplicate' ELSE 'accepted' END, '1', '', 10, 0,
		'header', '', 0, 0, '', '{}', 0, 0, 0 FROM generate_series(0, $3::int - 1) AS n`, first, step, rows)
	fill("INSERT INTO webhook_uids (factory, name, uid) SELECT 'default', 'hook' || n, 'whk_' || n FROM generate_series(0, 4) AS n ON CONFLICT DO NOTHING")
	fill("VACUUM ANALYZE")
	tracer := &planTracer{statements: make(map[string][]any)}
	traced := must[*pgx.ConnConfig](t)(engine.PostgresConfig(f.cfg.URL))
	traced.Tracer = tracer
	check(t, f.Read.Close())
	f.Read = stdlib.OpenDB(*traced)
	recent := f.at.Add(-time.Hour - time.Minute)
	mark := must[Mark](t)(f.Mark(ctx))
	for name, ask := range map[string]func() error{
		"newest runs":      func() error { _, err := f.Runs.List(ctx, RunQuery{Limit: 20}); return err },
		"of an automation": func() error { _, err := f.Runs.List(ctx, RunQuery{Automation: "a3", Limit: 20}); return err },
		"of a state": func() error {
			_, err := f.Runs.List(ctx, RunQuery{States: []RunState{FailedRun}, Limit: 20})
			return err
		},
		"queue":     func() error { _, err := f.Runs.List(ctx, RunQuery{States: []RunState{Queued}, Limit: 20}); return err },
		"by update": func() error { _, err := f.Runs.List(ctx, RunQuery{Sort: ByUpdated, Limit: 20}); return err },
		"by title":  func() error { _, err := f.Runs.List(ctx, RunQuery{Sort: ByTitle, Limit: 20}); return err },
		"by agent":  func() error { _, err := f.Runs.List(ctx, RunQuery{Sort: ByAgent, Limit: 20}); return err },
		"automation, by title": func() error {
			_, err := f.Runs.List(ctx, RunQuery{Automation: "a3", Sort: ByTitle, Limit: 20})
			return err
		},
		"state, by update": func() error {
			_, err := f.Runs.List(ctx, RunQuery{States: []RunState{Cancelled}, Sort: ByUpdated, Limit: 20})
			return err
		},
		"recently updated": func() error { _, err := f.Runs.List(ctx, RunQuery{UpdatedAfter: recent, Limit: 20}); return err },
		"of a delivery": func() error {
			_, err := f.Runs.List(ctx, RunQuery{DeliveryID: DeliveryID(first), Limit: 20})
			return err
		},
		"counts":            func() error { _, _, err := f.Runs.Count(ctx, RunQuery{Automation: "a3"}); return err },
		"newest deliveries": func() error { _, err := f.Deliveries.List(ctx, DeliveryQuery{Limit: 20}); return err },
		"of a webhook": func() error {
			_, err := f.Deliveries.List(ctx, DeliveryQuery{WebhookUID: "whk_2", Limit: 20})
			return err
		},
		"refused": func() error {
			_, err := f.Deliveries.List(ctx, DeliveryQuery{Outcomes: []Outcome{RejectedAuth}, Limit: 20})
			return err
		},
		"stopped at a stage": func() error {
			_, err := f.Deliveries.List(ctx, DeliveryQuery{WebhookUID: "whk_1", Stopped: "new", Limit: 20})
			return err
		},
		"changes":               func() error { _, err := f.Changes(ctx, MarkAt(recent), mark); return err },
		"mark":                  func() error { _, err := f.Mark(ctx); return err },
		"times of a webhook":    func() error { _, err := f.Deliveries.RecentTimes(ctx, "whk_2", f.at); return err },
		"how many are in state": func() error { _, err := f.Runs.Counts(ctx); return err },
	} {
		clear(tracer.statements)
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for query, args := range tracer.statements {
			var text []byte
			if err := db.QueryRowContext(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+query, args...).Scan(&text); err != nil {
				t.Errorf("%s: %v\n%s", name, err, query)
				continue
			}
			var plans []struct{ Plan planNode }
			check(t, json.Unmarshal(text, &plans))
			if read := plans[0].Plan.read(); read > 2*MaxCount {
				t.Errorf("%s reads %.0f rows:\n%s\n%s", name, read, query, text)
			}
		}
	}
}

// TestPostgresHangs (R8): a database that does not answer in the middle of a transaction keeps nobody
// waiting for longer than a transaction may take (20 s), however many wait.
func TestPostgresHangs(t *testing.T) {
	s := openPostgres(t)
	db := must[*sql.DB](t)(sql.Open("pgx", s.cfg.URL))
	defer func() { _ = db.Close() }()
	tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
	_, err := tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE workers IN ACCESS EXCLUSIVE MODE", pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	calls := make([]func() error, 4)
	for i := range calls {
		calls[i] = func() error { // it reads before it writes
			_, err := s.Workers.Start(t.Context(), Worker{ID: fmt.Sprint(i)}, "p")
			return err
		}
	}
	released := time.AfterFunc(40*time.Second, func() { _ = tx.Rollback() })
	for i, err := range together(t, s.Store, calls...) {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if !released.Stop() {
		t.Error("they wait until the database answers")
	}
	check(t, tx.Rollback())
	must[bool](t)(s.Workers.Start(t.Context(), Worker{ID: "after"}, "p"))
}
