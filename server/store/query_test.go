package store

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/store/storetest"
)

// TestPlans: what pages ask for walks an index from its newest end, and sorts
// nothing, so that it costs the same in a log of a million.
func TestPlans(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	cursor := DeliveryID(1 << 40)
	plan := func(query string, args []any) string {
		steps := must[[]string](t)(engine.List(t.Context(), s.DB, func(rows *sql.Rows) (string, error) {
			var step string
			err := rows.Scan(new(int), new(int), new(int), &step)
			return step, err
		}, "EXPLAIN QUERY PLAN "+query, args...))
		return strings.Join(steps, "; ")
	}
	for want, q := range map[string]DeliveryQuery{
		"INTEGER PRIMARY KEY (rowid<?)":                            {Before: cursor},
		"SCAN deliveries":                                          {}, // by rowid, up to the limit
		"deliveries_webhook (webhook_uid=?)":                       {WebhookUID: "whk_1"},
		"deliveries_webhook (webhook_uid=? AND id>? AND id<?)":     {WebhookUID: "whk_1", Before: cursor, Since: s.at},
		"deliveries_stopped (webhook_uid=? AND <expr>=?)":          {WebhookUID: "whk_1", Outcomes: []Outcome{RejectedAuth}, Factory: "default"},
		"deliveries_stopped (webhook_uid=? AND <expr>=? AND id<?)": {WebhookUID: "whk_1", Stopped: "matched", Before: cursor},
		"deliveries_stopped (webhook_uid=? AND <expr>=? AND id>?)": {WebhookUID: "whk_1", Stopped: Went, Since: s.at},
		"deliveries_repeats (duplicate_of=?)":                      {DuplicateOf: cursor},
		"deliveries_replays (replay_of=?)":                         {ReplayOf: cursor},
	} {
		for _, w := range must[[]*where](t)(s.Deliveries.queries(t.Context(), q)) {
			got := plan("SELECT "+deliveryColumns+" FROM deliveries"+w.sql()+" ORDER BY id DESC"+w.limit(q.Limit), w.args)
			if !strings.Contains(got, want) || strings.Contains(got, "TEMP") {
				t.Errorf("%+v: %s, not %s", q, got, want)
			}
		}
	}
	if got := plan("SELECT kind, count(*) FROM run_events WHERE run_id = $1 GROUP BY kind", []any{1}); !strings.Contains(got, "COVERING INDEX run_events_kind") {
		t.Error(got)
	}
	for want, p := range map[string]EventPage{
		"run_events_kind (run_id=? AND kind=? AND seq>?)":                             {Kinds: []string{"usage", "file"}, Limit: 10, Newest: true},
		"COVERING INDEX sqlite_autoindex_run_events_1 (run_id=? AND seq>? AND seq<?)": {Before: 9, Limit: 10},
	} {
		query, args := p.query(1)
		if got := plan(query, args); !strings.Contains(got, want) {
			t.Errorf("%+v: %s, not %s", p, got, want)
		}
	}
	mark := RunCursor{Key: fmt.Sprint(s.at.UnixMicro()), ID: 1 << 40}
	for _, sort := range []RunSort{ByCreated, ByUpdated} {
		for _, q := range []RunQuery{{}, {Ascending: true}, {After: mark}, {After: mark, Ascending: true}, {UpdatedAfter: s.at}, {Search: "fix", CreatedAfter: s.at}} {
			q.Sort = sort
			l := &lister{db: s.db, RunQuery: q, part: inQueue}
			check(t, l.prepare(t.Context()))
			query, args, _, err := l.ofGroup(50)
			check(t, err)
			if got := plan(query, args); !strings.Contains(got, "runs_queue (group_id=?") || strings.Contains(got, "TEMP") {
				t.Errorf("the queue, %+v: %s", q, got)
			}
		}
	}
}

// TestMergedQueries: a name has a UID in each factory, and a query may name
// several states; the answer is one list, newest first, of its limit.
func TestMergedQueries(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	for i, factory := range []string{"one", "two"} {
		must[ApplyID](t)(s.Applies.Record(ctx, &Apply{
			Factory: factory, Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
			Webhooks: []BoundWebhook{{"hook", fmt.Sprint("whk_", i), "S", 1}, {"other", fmt.Sprint("whk_other", i), "S", 1}},
		}, nil, nil))
	}
	var ids []DeliveryID
	var runs []RunID
	for i := range 10 {
		d := delivery(fmt.Sprint(i), "{}", "a")
		d.Factory, d.WebhookUID = []string{"one", "two"}[i%2], fmt.Sprint("whk_", i%2)
		r := must[Recorded](t)(s.Deliveries.Record(ctx, d))
		ids, runs = append(ids, r.ID), append(runs, r.RunIDs[0])
		d = delivery("elsewhere", "{}")
		d.Webhook, d.WebhookUID = "other", "whk_other0"
		must[Recorded](t)(s.Deliveries.Record(ctx, d))
	}
	slices.Reverse(ids)
	got := func(q DeliveryQuery) (out []DeliveryID) {
		for _, d := range must[[]*Delivery](t)(s.Deliveries.List(ctx, q)) {
			out = append(out, d.ID)
		}
		return out
	}
	if all := got(DeliveryQuery{Webhook: "hook"}); !slices.Equal(all, ids) {
		t.Errorf("%v", all)
	}
	if page := got(DeliveryQuery{Webhook: "hook", Limit: 3, Before: ids[1]}); !slices.Equal(page, ids[2:5]) {
		t.Errorf("page %v", page)
	}
	if one := got(DeliveryQuery{Webhook: "hook", Factory: "two"}); len(one) != 5 || one[0] != ids[0] {
		t.Errorf("of a factory: %v", one)
	}
	if none := got(DeliveryQuery{Webhook: "unknown"}); len(none) != 0 {
		t.Errorf("%v", none)
	}
	if dup := got(DeliveryQuery{Outcomes: []Outcome{Duplicate}}); len(dup) != 9 {
		t.Errorf("%d duplicates", len(dup))
	}
	must[*Run](t)(s.Runs.Stop(ctx, runs[3], StopCancel, ""))
	slices.Reverse(runs)
	var found []RunID
	for _, r := range must[[]*Run](t)(s.Runs.List(ctx, RunQuery{States: []RunState{Queued, Cancelled, Queued}})) {
		found = append(found, r.ID)
	}
	if !slices.Equal(found, runs) {
		t.Errorf("runs %v", found)
	}
}

// TestBindings: a UID is one webhook's for good (SPEC 4.6).
func TestBindings(t *testing.T) {
	s := open(t)
	record := func(factory, name, uid string) error {
		_, err := s.Applies.Record(t.Context(), &Apply{
			Factory: factory, Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
			Webhooks: []BoundWebhook{{name, uid, "S", 1}},
		}, []File{{Path: "factory.yaml", Data: []byte("x")}}, nil)
		return err
	}
	check(t, record("one", "a", "whk_1"))
	check(t, record("one", "a", "whk_1"))
	for _, c := range [][3]string{{"one", "a", "whk_2"}, {"one", "b", "whk_1"}, {"two", "a", "whk_1"}} {
		if err := record(c[0], c[1], c[2]); !errors.Is(err, ErrConflict) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if all := must[[]*Apply](t)(s.Applies.List(t.Context(), ApplyQuery{})); len(all) != 2 {
		t.Errorf("%d applies: a refused one is half-kept", len(all))
	}
}

// TestPayloadErrors tells a delivery without a body from one that is not there.
func TestPayloadErrors(t *testing.T) {
	s := open(t)
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	again := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	if _, err := s.Deliveries.Payload(t.Context(), again.ID); !errors.Is(err, ErrNoPayload) || !errors.Is(err, ErrNotFound) {
		t.Errorf("of a duplicate: %v", err)
	}
	if _, err := s.Deliveries.Payload(t.Context(), 1); errors.Is(err, ErrNoPayload) || !errors.Is(err, ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

// TestFileShrinks: what Prune deletes, the file system has back after Shrink.
func TestFileShrinks(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	must[ApplyID](t)(s.Applies.Record(t.Context(), &Apply{
		Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
		Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}},
	}, nil, nil))
	for i := range 600 {
		body := make([]byte, 20_000)
		_, _ = rand.Read(body)
		must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(i), string(body))))
	}
	pages := func() (n int64) {
		check(t, s.Read.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&n))
		return n
	}
	before := pages()
	s.at = s.at.Add(8 * 24 * time.Hour)
	if n := must[int64](t)(s.Deliveries.Prune(t.Context(), Retention{Keep: 50, Age: 7 * 24 * time.Hour})); n != 550 {
		t.Errorf("%d deleted", n)
	}
	check(t, s.Shrink(t.Context()))
	if after := pages(); after > before/5 {
		t.Errorf("%d pages of %d are left", after, before)
	}
	if n := must[int64](t)(s.Deliveries.Prune(t.Context(), Retention{Age: time.Hour})); n != 50 {
		t.Errorf("%d deleted where none need be kept", n)
	}
}

// TestMigrations: a store of each earlier schema opens, and has kept what was in it.
func TestMigrations(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	names := must[[]engine.Migration](t)(engine.MigrationsOf(Migrations, "migrations"))
	for version := 1; version < len(names); version++ {
		now := s.from(t, version, "INSERT INTO webhook_uids (factory, name, uid) VALUES ('default', 'hook', 'whk_1')")
		if uids := must[map[string]string](t)(now.Applies.WebhookUIDs(t.Context(), "default", []string{"hook"})); uids["hook"] != "whk_1" {
			t.Errorf("from schema %d: %v", version, uids)
		}
		if v, _ := versionOf(t, now); v != len(names) {
			t.Errorf("schema %d", v)
		}
	}
}

// from opens a store that an older program left with a schema, and with what a
// statement put into it.
func (f *fixture) from(t *testing.T, schema int, statement string) *Store {
	t.Helper()
	cfg := f.cfg
	cfg.Path = filepath.Join(t.TempDir(), "old.db")
	old := engine.NewDB(engine.Options{Path: cfg.Path, Migrations: upTo(t, schema), Now: cfg.Now})
	check(t, old.Open(t.Context()))
	check(t, old.Do(t.Context(), func(tx *engine.Tx) error { return tx.Exec(statement) }))
	check(t, old.Close())
	now := must[*Store](t)(Open(t.Context(), cfg))
	t.Cleanup(func() { _ = now.Close() })
	return now
}

// TestClaimOrder: leases come oldest first, also when a limit holds some back
// (SPEC 9.6).
func TestClaimOrder(t *testing.T) {
	s := open(t)
	var automations []string
	for i := range 60 {
		automations = append(automations, []string{"a", "b", "c"}[i%3])
	}
	d := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}", automations...)))
	claimed := func(claim Claim) (ids []RunID) {
		claim.Worker, claim.Lease = "w", time.Minute
		for _, l := range must[[]Lease](t)(s.Leases.Claim(t.Context(), claim)) {
			ids = append(ids, l.RunID)
		}
		return ids
	}
	if got := claimed(Claim{Most: 10, PerAutomation: 2}); !slices.Equal(got, d.RunIDs[:6]) {
		t.Errorf("within the limit: %v", got)
	}
	if got := claimed(Claim{Most: 10}); !slices.Equal(got, d.RunIDs[6:16]) {
		t.Errorf("without one: %v", got)
	}
	if got := claimed(Claim{}); len(got) != 0 {
		t.Errorf("none wanted: %v", got)
	}
}

// TestFence: only the token of the present lease may touch a run, neither an
// older nor a made-up one.
func TestFence(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a")))
	lease := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	for _, token := range []int64{lease.Token - 1, lease.Token + 1} {
		other := Lease{RunID: lease.RunID, Token: token}
		_, renewed := s.Leases.Renew(ctx, other, time.Hour)
		for what, err := range map[string]error{
			"renew": renewed, "append": s.Transcripts.Append(ctx, other, []Event{{Seq: 1, Kind: "x", Data: json.RawMessage("{}")}}),
			"finish": s.Leases.Finish(ctx, other, Succeeded, "", nil),
		} {
			if !errors.Is(err, ErrFenced) {
				t.Errorf("%s with token %d of %d: %v", what, token, lease.Token, err)
			}
		}
	}
	if events := must[[]Event](t)(s.Transcripts.List(ctx, lease.RunID, 0, 10)); len(events) != 0 {
		t.Errorf("a fenced worker wrote %v", events)
	}
	if err := s.Leases.Finish(ctx, lease, Queued, "", nil); err == nil || must[*Run](t)(s.Runs.Get(ctx, lease.RunID)).State != InProgress {
		t.Errorf("SPEC 9.1: a run finished as QUEUED: %v", err)
	}
	check(t, s.Leases.Finish(ctx, lease, Succeeded, "", nil))
}

// upTo are the migrations of SQLite up to a schema.
func upTo(t *testing.T, schema int) fs.FS {
	t.Helper()
	all := make(fstest.MapFS)
	for _, name := range must[[]string](t)(fs.Glob(Migrations, "migrations/*.sql"))[:schema] {
		all[name] = &fstest.MapFile{Data: must[[]byte](t)(Migrations.ReadFile(name))}
	}
	return all
}
