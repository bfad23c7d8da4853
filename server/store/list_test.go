package store

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// listed is a store with runs of every kind, and what is known of them without
// the store.
type listed struct {
	*fixture
	runs []*Run
	meta map[RunID]map[string]string
	text map[RunID]string
	rand *rand.Rand
}

func spec(environment, agent, model, name string) ([32]byte, []byte) {
	text := fmt.Appendf(nil, `{"agent":%q,"environment":{"name":%q},"harness":{"model":%q},"config":{"name":%q},"retry":{"attempts":2,"delay_ns":1000000}}`, agent, environment, model, name)
	return sha256.Sum256(text), text
}

var someWords = []string{"fix", "fixture", "the", "login", "page", "Größe", "release", "v2"}

func (l *listed) pick(of ...string) string { return of[l.rand.IntN(len(of))] }

// add enqueues a run of any kind.
func (l *listed) add(t *testing.T) {
	t.Helper()
	l.at = l.at.Add(time.Duration(l.rand.IntN(3)) * time.Millisecond)
	r := NewRun{
		Factory: l.pick("one", "two"), Source: l.pick(SourceAPI, SourceSchedule, SourceWebhook), Title: l.pick(someWords...) + " " + l.pick(someWords...),
		CreatorKind: "user", CreatorName: l.pick("ada", "bob"),
	}
	r.SpecHash, r.Spec = spec(l.pick("", "web", "db"), l.pick("", "fixer", "lead"), l.pick("", "m1"), l.pick("", "nightly"))
	switch {
	case r.Source == SourceWebhook:
		r.Automation, r.CreatorKind = l.pick("triage", "review-page", "z"), "automation"
		r.CreatorName, r.Title, r.Webhook = r.Automation, r.Automation, l.pick("ci", "cd")
	case l.rand.IntN(3) == 0:
		r.Metadata = map[string]string{"ticket": l.pick("1", "2"), "team": l.pick("a", "b")}
	}
	if len(l.runs) > 0 && l.rand.IntN(4) == 0 {
		r.ParentID = l.runs[l.rand.IntN(len(l.runs))].ID
	}
	if r.Source == SourceSchedule {
		r.Schedule = &RunSchedule{ID: ScheduleID(1 + l.rand.IntN(2)), Name: "n", Cron: "@daily"}
	}
	text := r.Title
	if r.Automation == "" {
		r.Search = []string{r.Title, l.pick(someWords...) + ", " + l.pick(someWords...)}
		text = strings.Join(r.Search, " ")
	}
	made, _, err := l.Runs.Create(t.Context(), r, "", nil)
	check(t, err)
	l.runs = append(l.runs, made)
	l.meta[made.ID], l.text[made.ID] = r.Metadata, text
}

// move lets a run go on in its life.
func (l *listed) move(t *testing.T) {
	t.Helper()
	l.at = l.at.Add(time.Duration(l.rand.IntN(3)) * time.Millisecond)
	for _, lease := range must[[]Lease](t)(l.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 1 + l.rand.IntN(2), Lease: time.Minute})) {
		switch l.rand.IntN(4) {
		case 0:
		case 1:
			must[time.Time](t)(l.Leases.Fail(t.Context(), lease, "x", nil))
		default:
			check(t, l.Leases.Finish(t.Context(), lease, []RunState{Succeeded, FailedRun, Cancelled}[l.rand.IntN(3)], "", nil))
		}
	}
}

func (l *listed) refresh(t *testing.T) {
	t.Helper()
	for i, r := range l.runs {
		l.runs[i] = must[*Run](t)(l.Runs.Get(t.Context(), r.ID))
	}
}

// wants tells by the plainest means whether a query selects a run.
func (l *listed) wants(q RunQuery, r *Run) bool {
	equal := func(want, got string) bool { return want == "" || want == got }
	if len(q.States) > 0 && !slices.Contains(q.States, r.State) {
		return false
	}
	for parent := q.AncestorID; parent != 0; parent = 0 {
		above := r.ParentID
		for above != 0 && above != parent {
			i := slices.IndexFunc(l.runs, func(o *Run) bool { return o.ID == above })
			above = l.runs[i].ParentID
		}
		if above == 0 {
			return false
		}
	}
	for name, value := range q.Metadata {
		if l.meta[r.ID][name] != value {
			return false
		}
	}
	for word := range strings.FieldsSeq(strings.ToLower(q.Search)) {
		words := strings.FieldsFunc(strings.ToLower(l.text[r.ID]), func(r rune) bool { return strings.ContainsRune(" ,-", r) })
		if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, word) }) {
			return false
		}
	}
	schedule := ScheduleID(0)
	if r.Schedule != nil {
		schedule = r.Schedule.ID
	}
	return (len(q.Factories) == 0 || slices.Contains(q.Factories, r.Factory)) && equal(q.Automation, r.Automation) && equal(q.Webhook, r.Webhook) && (q.ID == 0 || q.ID == r.ID) && (len(q.Sources) == 0 || slices.Contains(q.Sources, r.Source)) && equal(q.Agent, r.Agent) &&
		equal(q.Creator, r.CreatorName) && equal(q.Executor, cmp.Or(r.Agent, r.CreatorName)) && equal(q.Environment, r.Environment) &&
		equal(q.Model, r.Model) && equal(q.Name, r.Name) && (q.ScheduleID == 0 || q.ScheduleID == schedule) && (!q.NoEnvironment || r.Environment == "") &&
		(q.CreatedAfter.IsZero() || r.CreatedAt.After(q.CreatedAfter)) && (q.CreatedBefore.IsZero() || r.CreatedAt.Before(q.CreatedBefore)) &&
		(q.UpdatedAfter.IsZero() || r.UpdatedAt.After(q.UpdatedAfter))
}

func (l *listed) expected(q RunQuery) []RunID {
	var all []*Run
	for _, r := range l.runs {
		if l.wants(q, r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Run) int {
		order := 0
		switch q.Sort {
		case ByUpdated:
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		case ByTitle:
			order = cmp.Compare(a.Title, b.Title)
		case ByAgent:
			order = cmp.Compare(a.Agent, b.Agent)
		}
		order = cmp.Or(order, cmp.Compare(a.ID, b.ID))
		if q.Ascending {
			return order
		}
		return -order
	})
	ids := make([]RunID, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	return ids
}

func (l *listed) query() RunQuery {
	q := RunQuery{Sort: RunSort(l.rand.IntN(4)), Ascending: l.rand.IntN(2) == 0, Limit: 7 + l.rand.IntN(100)}
	some := func(f func()) {
		if l.rand.IntN(6) == 0 {
			f()
		}
	}
	at := func() time.Time { return l.runs[l.rand.IntN(len(l.runs))].CreatedAt }
	some(func() { q.States = []RunState{lifecycle[l.rand.IntN(5)], lifecycle[l.rand.IntN(5)]} })
	some(func() { q.Factories = []string{"one"} })
	some(func() { q.Automation = "triage" })
	some(func() { q.Sources = []string{SourceAPI, SourceSchedule}[:1+l.rand.IntN(2)] })
	some(func() { q.Agent = "fixer" })
	some(func() { q.Webhook = "ci" })
	some(func() { q.ID = l.runs[l.rand.IntN(len(l.runs))].ID })
	some(func() { q.Creator = "ada" })
	some(func() { q.Executor = l.pick("ada", "lead") })
	some(func() { q.Environment = "web" })
	some(func() { q.NoEnvironment = true })
	some(func() { q.Model = "m1" })
	some(func() { q.Name = "nightly" })
	some(func() { q.ScheduleID = 1 })
	some(func() { q.AncestorID = l.runs[l.rand.IntN(len(l.runs)/4)].ID })
	some(func() { q.CreatedAfter = at() })
	some(func() { q.CreatedBefore = at() })
	some(func() { q.UpdatedAfter = at() })
	some(func() { q.Metadata = map[string]string{"ticket": "1"} })
	some(func() { q.Metadata = map[string]string{"ticket": "2", "team": "a"} })
	some(func() { q.Search = l.pick("fi", "page", "größ", "the log", "nothing", "re pa", "V2") })
	return q
}

// TestLists: 600 queries of every kind find what a plain comparison of every
// run finds, in its order, page by page, also while runs are added.
func TestLists(t *testing.T) {
	l := &listed{fixture: open(t), meta: map[RunID]map[string]string{}, text: map[RunID]string{}, rand: rand.New(rand.NewPCG(1, 2))}
	for range 400 {
		l.add(t)
		if l.rand.IntN(2) == 0 {
			l.move(t)
		}
	}
	l.refresh(t)
	found := 0
	for range 600 {
		q := l.query()
		want := l.expected(q)
		if l.rand.IntN(20) == 0 && !strings.Contains(q.Search, "e") {
			l.add(t) // newer than all that this list begins with: it may come, but moves nothing
		}
		known := make(map[RunID]bool)
		for _, r := range l.runs[:400] {
			known[r.ID] = true
		}
		var got []RunID
		for page := q; ; {
			some := must[[]*Run](t)(l.Runs.List(t.Context(), page))
			for _, r := range some {
				if known[r.ID] || slices.Contains(want, r.ID) {
					got = append(got, r.ID)
				}
			}
			if len(some) < q.Limit {
				break
			}
			page.After = page.Cursor(some[len(some)-1])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v finds\n%v, not\n%v", q, got, want)
		}
		found += len(got)
	}
	if found < 5_000 {
		t.Errorf("only %d runs were found in all", found)
	}
	if none := must[[]*Run](t)(l.Runs.List(t.Context(), RunQuery{Search: "!"})); len(none) != 0 {
		t.Errorf("a search without words finds %d", len(none))
	}
}

// TestFairOrder: an automation with a long queue does not keep others waiting,
// also where there are more groups than one claim looks at (SPEC 9.6).
func TestFairOrder(t *testing.T) {
	s := open(t)
	var order []string
	automationOf := func(l Lease) string { return must[*Run](t)(s.Runs.Get(t.Context(), l.RunID)).Automation }
	for i, name := range []string{"a", "a", "a", "a", "b", "c", "b"} {
		must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(i), "{}", name)))
	}
	for {
		leases := must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 2, Lease: time.Minute}))
		if len(leases) == 0 {
			break
		}
		for _, l := range leases {
			order = append(order, automationOf(l))
		}
	}
	if got := strings.Join(order, ""); got != "abcabaa" {
		t.Errorf("started in the order %s", got)
	}
}

// TestGroupsAreForgotten: a group whose transaction is rolled back is made again
// by the next run, which lists find.
func TestGroupsAreForgotten(t *testing.T) {
	s := open(t)
	failure := fmt.Errorf("no")
	hash, data := spec("web", "", "", "")
	r := NewRun{Factory: "default", Source: SourceAPI, SpecHash: hash, Spec: data}
	err := s.Do(t.Context(), func(tx *engine.Tx) error {
		if _, err := s.Runs.insert(tx, &r, 0); err != nil {
			return err
		}
		return failure
	})
	if err != failure {
		t.Fatal(err)
	}
	made, _, err := s.Runs.Create(t.Context(), r, "", nil)
	check(t, err)
	if found := must[[]*Run](t)(s.Runs.List(t.Context(), RunQuery{Environment: "web"})); len(found) != 1 || found[0].ID != made.ID {
		t.Errorf("found %v", found)
	}
}

// BenchmarkLists reads pages of a store with TRIPHAMMER_RUNS runs (default
// 1,000,000): each filter and each sort. It fails above 50 ms of processor time at
// the 99th percentile.
func BenchmarkLists(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("TRIPHAMMER_RUNS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	s := open(b)
	fill(b, s, n)
	middle := timeOf(s.at.Add(-time.Duration(n/2) * time.Second).UnixMicro())
	queries := map[string]RunQuery{
		"none": {}, "state": {States: []RunState{FailedRun}}, "state rare": {States: []RunState{Cancelled}}, "automation": {Automation: "a7"},
		"automation old": {Automation: "old"}, "automation and state": {Automation: "a7", States: []RunState{FailedRun}},
		"source": {Sources: []string{SourceAPI}}, "creator": {Creator: "ada"}, "executor": {Executor: "fixer"}, "environment": {Environment: "e3"},
		"model": {Model: "m2"}, "name": {Name: "nightly"}, "schedule": {ScheduleID: 1}, "factory": {Factories: []string{"default"}},
		"no environment": {NoEnvironment: true}, "created after": {CreatedAfter: middle}, "created before": {CreatedBefore: middle},
		"updated after": {UpdatedAfter: middle}, "metadata common": {Metadata: map[string]string{"team": "web"}},
		"metadata rare": {Metadata: map[string]string{"ticket": "77"}}, "search common": {Search: "fix"}, "search rare": {Search: "needle"},
		"search none": {Search: "absent"}, "webhook": {Webhook: "ci"}, "ancestor": {AncestorID: 1},
	}
	for _, name := range slices.Sorted(maps.Keys(queries)) {
		for sort, by := range map[RunSort]string{ByCreated: "created", ByUpdated: "updated", ByTitle: "title", ByAgent: "agent"} {
			for _, ascending := range []bool{false, true} {
				q := queries[name]
				q.Sort, q.Ascending, q.Limit = sort, ascending, 21
				b.Run(fmt.Sprintf("%s by %s asc=%t", name, by, ascending), func(b *testing.B) { timedList(b, s, q) })
			}
		}
	}
}

// processorTime is what this process has used of processors: what others on the
// machine do is not in it.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// fill writes finished runs without waiting for the disk.
func fill(b *testing.B, s *fixture, n int) {
	b.Helper()
	ctx := b.Context()
	type kind struct {
		NewRun
		group int64
	}
	var kinds []kind
	check(b, s.Do(ctx, func(tx *engine.Tx) error {
		for i := range 100 {
			k := kind{NewRun: NewRun{Factory: "default", Source: SourceWebhook, Automation: fmt.Sprint("a", i), Title: fmt.Sprint("a", i), CreatorKind: "automation", CreatorName: fmt.Sprint("a", i)}}
			if i == 99 {
				k.Automation = "old"
			}
			if i%10 == 0 {
				k.Source, k.Automation, k.CreatorKind, k.CreatorName = SourceAPI, "", "user", []string{"ada", "bob"}[i/10%2]
			}
			if i%10 == 1 {
				k.Source, k.Schedule = SourceSchedule, &RunSchedule{ID: ScheduleID(1 + i%3), Name: "n", Cron: "@daily"}
			}
			k.SpecHash, k.Spec = spec(fmt.Sprint("e", i%5), []string{"", "fixer"}[i%2], fmt.Sprint("m", i%3), []string{"", "nightly"}[i%2])
			if i%20 == 0 {
				k.SpecHash, k.Spec = spec("", "", "", "")
			}
			if err := s.Specs.put(tx, k.SpecHash, k.Spec); err != nil {
				return err
			}
			var err error
			if k.group, err = s.Runs.groupOf(tx, &k.NewRun); err != nil {
				return err
			}
			kinds = append(kinds, k)
		}
		return nil
	}))
	start := s.at.Add(-time.Duration(n) * time.Second)
	r := rand.New(rand.NewPCG(1, 2))
	for from := 0; from < n; from += 20_000 {
		check(b, s.Do(ctx, func(tx *engine.Tx) error {
			for i := from; i < min(n, from+20_000); i++ {
				k := kinds[r.IntN(99)]
				if i < n/4 && i%2 == 0 {
					k = kinds[99] // an automation that was deleted long ago
				}
				state := Succeeded
				switch r.IntN(100) {
				case 0:
					state = FailedRun
				case 1:
					if i%1000 == 1 {
						state = Cancelled
					}
				}
				at := start.Add(time.Duration(i) * time.Second)
				id := engine.IDAt(at) | int64(i)&(1<<engine.RandomBits-1)
				title := k.Title
				if k.Automation == "" {
					title = fmt.Sprint("Fix number ", i)
				}
				parent := int64(0)
				if i%10_000 == 3 {
					parent = 1
				}
				err := tx.Exec(`INSERT INTO runs (id, factory, automation, source, title, creator_kind, creator_name, delivery_id, webhook, commit_hash, spec_hash,
					state, status_message, attempt, created_at, updated_at, started_at, finished_at, cancel_requested, worker, lease_token, lease_until, group_id, parent_id)
					VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', 'c', $8, $9, '', 1, $10, $11, $12, $11, 0, '', 0, 0, $13, $14)`,
					id, k.Factory, k.Automation, k.Source, title, k.CreatorKind, k.CreatorName, k.SpecHash[:], string(state), micros(at),
					micros(at.Add(time.Duration(r.IntN(3600))*time.Second)), micros(at), k.group, parent)
				if err != nil {
					return err
				}
				if k.Automation != "" {
					continue
				}
				words := []string{title, "the", "changelog"}
				if i%200_000 < 100 {
					words = append(words, "needle")
				}
				for _, word := range wordsOf(words...) {
					if err := tx.Exec("INSERT INTO run_words (word, run_id) VALUES ($1, $2)", word, id); err != nil {
						return err
					}
				}
				for name, value := range map[string]string{"team": "web", "ticket": fmt.Sprint(i % 10_000)} {
					if err := tx.Exec("INSERT INTO run_metadata (run_id, name, value) VALUES ($1, $2, $3)", id, name, value); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
}

// TestLeaseAndClock: a clock that jumps takes no run from its worker, starts none
// twice, and mixes up no order.
func TestLeaseAndClock(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	create := func() RunID {
		r, _, err := s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}")}, "", nil)
		check(t, err)
		return r.ID
	}
	start := s.at
	ids := []RunID{create()}
	lease := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	for i, jump := range []time.Duration{time.Hour, -time.Hour, 10 * 365 * 24 * time.Hour, 0, -10 * 365 * 24 * time.Hour, time.Second} {
		s.at = start.Add(jump)
		if asked := must[Stop](t)(s.Leases.Renew(ctx, lease, time.Minute)); asked != NoStop {
			t.Errorf("%v: cancelled", jump)
		}
		check(t, s.Transcripts.Append(ctx, lease, []Event{{Seq: int64(i + 1), At: s.at, Kind: "output", Data: []byte("{}")}}))
		ids = append(ids, create())
		for _, l := range must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "other", Most: 10, Lease: time.Minute})) {
			if l.RunID == lease.RunID {
				t.Fatalf("%v: the run has a second worker", jump)
			}
		}
	}
	check(t, s.Leases.Finish(ctx, lease, Succeeded, "", nil))
	if r := must[*Run](t)(s.Runs.Get(ctx, lease.RunID)); r.Attempt != 1 {
		t.Errorf("attempt %d", r.Attempt)
	}
	var listed []RunID
	for _, r := range must[[]*Run](t)(s.Runs.List(ctx, RunQuery{Ascending: true})) {
		listed = append(listed, r.ID)
	}
	if !slices.Equal(listed, ids) {
		t.Errorf("listed %v, made %v", listed, ids)
	}
}

// BenchmarkQueue reads pages of a store with 300,000 queued runs of 50 automations
// among as many that have ended. It fails above 50 ms of processor time at the 99th
// percentile.
func BenchmarkQueue(b *testing.B) {
	s := open(b)
	check(b, s.Do(b.Context(), func(tx *engine.Tx) error {
		for i := range 600_000 {
			name := fmt.Sprint("a", i%50)
			if i == 300_000 {
				if err := tx.Exec("UPDATE runs SET state = 'SUCCEEDED'"); err != nil {
					return err
				}
			}
			s.at = s.at.Add(time.Millisecond)
			r := NewRun{Factory: "default", Source: SourceWebhook, Automation: name, Title: name, CreatorKind: "automation", CreatorName: name}
			if _, err := s.Runs.insert(tx, &r, 0); err != nil {
				return err
			}
		}
		return nil
	}))
	middle := RunID(engine.IDAt(s.at.Add(-150 * time.Second)))
	for name, q := range map[string]RunQuery{
		"none": {}, "state": {States: []RunState{Queued}}, "automation": {Automation: "a7"}, "source": {Sources: []string{SourceWebhook}},
		"updated after": {States: []RunState{Queued}, UpdatedAfter: s.at.Add(-time.Minute)}, "created after": {States: []RunState{Queued}, CreatedAfter: s.at.Add(-time.Minute)},
		"page": {States: []RunState{Queued}, After: RunCursor{Key: fmt.Sprint(s.at.Add(-150 * time.Second).UnixMicro()), ID: middle}},
	} {
		for sort, by := range map[RunSort]string{ByCreated: "created", ByUpdated: "updated", ByAgent: "agent"} {
			q := q
			if sort == ByAgent {
				q.After.Key = ""
			}
			for _, ascending := range []bool{false, true} {
				q.Sort, q.Ascending, q.Limit = sort, ascending, 21
				b.Run(fmt.Sprintf("%s by %s asc=%t", name, by, ascending), func(b *testing.B) { timedList(b, s, q) })
			}
		}
	}
}

// timedList reads a page again and again.
func timedList(b *testing.B, s *fixture, q RunQuery) {
	var times []time.Duration
	for b.Loop() {
		from := processorTime(b)
		must[[]*Run](b)(s.Runs.List(b.Context(), q))
		times = append(times, processorTime(b)-from)
	}
	slices.Sort(times)
	p99 := times[len(times)*99/100]
	b.ReportMetric(float64(p99.Microseconds())/1000, "p99-cpu-ms")
	if p99 > 50*time.Millisecond && len(times) > 10 {
		b.Errorf("p99 is %v", p99)
	}
}
