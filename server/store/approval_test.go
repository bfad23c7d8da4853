package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// blocked makes a delivery of a person whose run waits for a person.
func (f *fixture) blocked(t *testing.T, person string, change func(*NewRun)) Recorded {
	t.Helper()
	f.lined++
	d := delivery(fmt.Sprint("blocked ", f.lined), "{}", "a")
	r := &d.Runs[0]
	r.Person, r.Subject, r.Approval, r.EndedAfter = person, "github:acme/app#1", &NewApproval{For: 24 * time.Hour}, f.at.Add(-time.Hour)
	if change != nil {
		change(r)
	}
	return must[Recorded](t)(f.Deliveries.Record(t.Context(), d))
}

func (f *fixture) approvals(t *testing.T, id RunID) []Approval {
	t.Helper()
	return must[[]Approval](t)(f.Approvals.Of(t.Context(), id))
}

func (f *fixture) decide(t *testing.T, d Decision) error {
	t.Helper()
	d.By, d.Actor, d.Origin = "ada", "page ada", "local"
	_, _, err := f.Approvals.Decide(t.Context(), d)
	return err
}

// TestApproveStart: a run that waits for a person is in no queue, and starts by the decision about exactly
// what was shown, once (SPEC 26.1).
func TestApproveStart(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	id := f.blocked(t, "github:eve 7", func(r *NewRun) { r.Approval.Outsider = true }).RunIDs[0]
	other := f.blocked(t, "github:bob 8", nil).RunIDs[0]
	r := must[*Run](t)(f.Runs.Get(ctx, id))
	if r.State != Blocked || r.StatusMessage != "waits for a person to approve it: github:eve may not start it" {
		t.Errorf("%+v", r)
	}
	if got := f.claimed(t); len(got) != 0 {
		t.Fatalf("a worker takes %v", got)
	}
	for _, q := range []struct {
		states []RunState
		want   int
	}{{nil, 2}, {[]RunState{Blocked}, 2}, {[]RunState{Queued}, 0}, {[]RunState{Queued, Blocked}, 2}, {[]RunState{Cancelled, Queued}, 0}} {
		for _, sort := range []RunSort{ByCreated, ByUpdated, ByTitle, ByAgent} {
			if got := must[[]*Run](t)(f.Runs.List(ctx, RunQuery{States: q.states, Sort: sort})); len(got) != q.want {
				t.Errorf("%v by %v: %d runs", q.states, sort, len(got))
			}
		}
		counts, _, err := f.Runs.Count(ctx, RunQuery{States: q.states})
		check(t, err)
		if counts[Blocked] != int64(q.want) || counts[Queued] != 0 {
			t.Errorf("%v: %v", q.states, counts)
		}
	}
	if c := must[map[RunState]int64](t)(f.Runs.Counts(ctx)); c[Blocked] != 2 || c[Queued] != 0 {
		t.Errorf("%v", c)
	}

	shown := ShownOf(f.approvals(t, id)...)
	if err := f.decide(t, Decision{Run: id + 1, Approve: true, Shown: shown}); !errors.Is(err, ErrNotFound) {
		t.Errorf("no run: %v", err)
	}
	for name, wrong := range map[string]string{"nothing": "", "another run": ShownOf(f.approvals(t, other)...), "its code": f.Approvals.Code(other, shown), "more": shown + "0"} {
		if err := f.decide(t, Decision{Run: id, Approve: true, Shown: wrong}); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	code := f.Approvals.Code(id, shown)
	if len(code) != 8 || strings.ContainsAny(code, "01IO") {
		t.Errorf("code %q", code)
	}
	check(t, f.decide(t, Decision{Run: id, Approve: true, Shown: " " + strings.ToLower(code) + "\n"}))
	if r = must[*Run](t)(f.Runs.Get(ctx, id)); r.State != Queued || r.StatusMessage != "" {
		t.Errorf("%+v", r)
	}
	late := &DecidedError{}
	if err := f.decide(t, Decision{Run: id, Shown: shown}); !errors.As(err, &late) || !errors.Is(err, ErrConflict) || late.Error() != "approved by ada, at 2026-11-21T12:00:00Z" {
		t.Errorf("decided twice: %v", err)
	}
	if got := f.claimed(t); len(got) != 1 || got[0].RunID != id {
		t.Errorf("a worker takes %v", got)
	}
	log := must[[]AuditEntry](t)(f.Audit.List(ctx, AuditQuery{Action: "run.approve"}))
	if len(log) != 1 || log[0].Actor != "page ada" || log[0].Object != id.String() || log[0].Details != "sha256:"+shown {
		t.Errorf("%+v", log)
	}
	if err := f.decide(t, Decision{Run: f.about(t, NewRun{}), Approve: true}); !errors.Is(err, ErrNothingWaits) {
		t.Errorf("of a run that waits for nobody: %v", err)
	}
}

// TestNotApproved: what is declined, not decided in time or cancelled never starts, and says why (SPEC 26.1).
func TestNotApproved(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	for name, c := range map[string]struct {
		end  func(id RunID) error
		want string
	}{
		"declined": {func(id RunID) error { return f.decide(t, Decision{Run: id, Reason: "too risky"}) }, "declined by ada (too risky) before it started"},
		"expired": {func(id RunID) error {
			f.at = f.at.Add(24 * time.Hour)
			if err := f.decide(t, Decision{Run: id, Approve: true, Shown: ShownOf(f.approvals(t, id)...)}); !errors.As(err, new(*DecidedError)) {
				t.Errorf("approved too late: %v", err)
			}
			cancelled, err := f.Approvals.Expire(ctx)
			if !slices.Equal(cancelled, []RunID{id}) {
				t.Errorf("%v", cancelled)
			}
			return err
		}, "not approved within 24h0m0s before it started"},
		"cancelled": {func(id RunID) error { _, err := f.Runs.Stop(ctx, id, StopCancel, "bob"); return err }, "cancelled by bob before it started"},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.blocked(t, "github:ada 1", nil).RunIDs[0]
			check(t, c.end(id))
			if r := must[*Run](t)(f.Runs.Get(ctx, id)); r.State != Cancelled || r.StatusMessage != c.want {
				t.Errorf("%+v", r)
			}
			if err := f.decide(t, Decision{Run: id, Approve: true, Shown: ShownOf(f.approvals(t, id)...)}); !errors.As(err, new(*DecidedError)) {
				t.Errorf("afterwards: %v", err)
			}
			if got := f.claimed(t); len(got) != 0 {
				t.Errorf("a worker takes %v", got)
			}
			if got := must[[]*Run](t)(f.Runs.List(ctx, RunQuery{States: []RunState{Queued, Blocked}})); len(got) != 0 {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestDecideAtOnce: of decisions at the same time, also of several servers, one counts, and the others are
// told so (SPEC 26.1).
func TestDecideAtOnce(t *testing.T) {
	f := open(t)
	servers := []*Store{f.Store}
	if f.cfg.URL != "" {
		second := must[*Store](t)(Open(t.Context(), f.cfg))
		defer func() { _ = second.Close() }()
		servers = append(servers, second)
	}
	for range 5 {
		id := f.blocked(t, "github:ada 1", nil).RunIDs[0]
		shown := ShownOf(f.approvals(t, id)...)
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			group.Go(func() {
				_, _, errs[i] = servers[i%len(servers)].Approvals.Decide(t.Context(), Decision{Run: id, Approve: i%4 < 2, Shown: shown, By: fmt.Sprint(i), Actor: fmt.Sprint("page ", i)})
			})
		}
		group.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won < 0:
				won = i
			case !errors.As(err, new(*DecidedError)):
				t.Errorf("%d: %v", i, err)
			}
		}
		a := f.approvals(t, id)[0]
		state := must[*Run](t)(f.Runs.Get(t.Context(), id)).State
		if a.By != fmt.Sprint(won) || (a.Decision == Approved) != (won%4 < 2) || (state == Queued) != (won%4 < 2) {
			t.Errorf("%d won: %+v, %s", won, a, state)
		}
		if n := len(must[[]AuditEntry](t)(f.Audit.List(t.Context(), AuditQuery{Object: id.String()}))); n != 1 {
			t.Errorf("%d entries of the audit log", n)
		}
	}
}

// TestApproveBounds: however many events outsiders cause, few runs of them wait, and they keep no other
// run from anything: neither by maxRunsPerHour nor by their subject (SPEC 26.1).
func TestApproveBounds(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	outsider := func(r *NewRun) { r.Approval.Outsider, r.MaxPerHour, r.PerSubject = true, 3, PerSubjectSkip }
	limited := func(done Recorded) string {
		t.Helper()
		return must[*Delivery](t)(f.Deliveries.Get(ctx, done.ID)).Limited["a"]
	}
	var last Recorded
	for i := range MaxWaiting + MaxWaiting/outsiderRuns + 1 {
		if last = f.blocked(t, fmt.Sprint("github:eve", i/(outsiderRuns+1), " ", i/(outsiderRuns+1)), outsider); i == outsiderRuns {
			if why := limited(last); why != "github:eve0 has started 10 runs of it within an hour (maxRunsPerPersonPerHour)" {
				t.Errorf("%q", why)
			}
			f.reopen(t) // what the writer remembers is in the store
		}
	}
	if why := limited(last); why != "100 runs of it wait for a person to approve them already, which is the most" {
		t.Errorf("%q", why)
	}
	if starts, outputs, err := f.Approvals.Counts(ctx); starts != MaxWaiting || outputs != 0 || err != nil {
		t.Errorf("%d, %d, %v", starts, outputs, err)
	}
	insider := func(r *NewRun) { r.Approval, r.MaxPerHour, r.PerSubject = nil, 3, PerSubjectSkip }
	own := f.blocked(t, "github:ada 1", insider)
	if len(own.RunIDs) != 1 || must[*Run](t)(f.Runs.Get(ctx, own.RunIDs[0])).State != Queued {
		t.Errorf("an insider's run: %+v %q", own, limited(own))
	}
	if start := f.blocked(t, "github:ada 1", nil); len(start.RunIDs) != 1 {
		t.Errorf("the outsiders push out others: %q", limited(start))
	}
	if p, paused := f.Pauses.Of(Pausable{KindAutomation, "default", "a"}); paused {
		t.Errorf("%+v", p)
	}
}

// TestApproveInLine: a run takes its place among those about its subject when it is approved (SPEC 26.1).
func TestApproveInLine(t *testing.T) {
	for rule, c := range map[string]struct {
		before, after RunState // of the run that was there, once the other one is approved
		approved      RunState
		message       string
	}{
		PerSubjectQueue:   {Queued, Queued, Queued, "waits for"},
		PerSubjectSkip:    {Queued, Queued, Queued, ""},
		PerSubjectReplace: {Queued, Cancelled, Queued, ""},
		"":                {Queued, Queued, Queued, ""},
	} {
		t.Run(rule, func(t *testing.T) {
			f := open(t)
			at := func(r *NewRun) { r.PerSubject = rule }
			was := f.blocked(t, "github:ada 1", func(r *NewRun) { r.PerSubject, r.Approval = rule, nil }).RunIDs[0]
			first := f.blocked(t, "github:eve 7", at).RunIDs[0]
			other := f.blocked(t, "github:mal 9", at).RunIDs[0]
			id := f.blocked(t, "github:eve 7", at).RunIDs[0]
			state := func(id RunID) RunState { return must[*Run](t)(f.Runs.Get(t.Context(), id)).State }
			if want := map[bool]RunState{true: Cancelled, false: Blocked}[rule == PerSubjectReplace]; state(first) != want || state(other) != Blocked || state(was) != c.before {
				t.Errorf("while it waits: %s, %s, %s", state(first), state(other), state(was))
			}
			check(t, f.decide(t, Decision{Run: id, Approve: true, Shown: ShownOf(f.approvals(t, id)...)}))
			r := must[*Run](t)(f.Runs.Get(t.Context(), id))
			if r.State != c.approved || !strings.HasPrefix(r.StatusMessage, c.message) || state(was) != c.after {
				t.Errorf("approved: %+v; the other one is %s", r, state(was))
			}
		})
	}
}

// TestApprovedWaits: a run that was approved late has an older id than the run at work. It does not start beside that
// when another one that waits is cancelled, and it starts when that has ended (SPEC 21.3).
func TestApprovedWaits(t *testing.T) {
	for _, rule := range []string{PerSubjectQueue, PerSubjectContinue} {
		f := open(t)
		id := f.blocked(t, "github:eve 7", func(r *NewRun) { r.PerSubject = rule }).RunIDs[0]
		f.about(t, NewRun{PerSubject: rule, EndedAfter: f.at.Add(-time.Hour)})
		leases := f.claimed(t)
		check(t, f.decide(t, Decision{Run: id, Approve: true, Shown: ShownOf(f.approvals(t, id)...)}))
		last := f.about(t, NewRun{PerSubject: rule, EndedAfter: f.at.Add(-time.Hour)})
		must[*Run](t)(f.Runs.Stop(t.Context(), last, StopCancel, ""))
		if got := f.claimed(t); len(leases) != 1 || len(got) != 0 {
			t.Errorf("%s: claimed %v beside %v", rule, got, leases)
		}
		check(t, f.Leases.Finish(t.Context(), leases[0], Succeeded, "", nil))
		if got := idsOf(f.claimed(t)); !slices.Equal(got, []RunID{id}) {
			t.Errorf("%s: claimed %v and not %v", rule, got, id)
		}
	}
}

// TestApproveReplay: a replay is parallel, before and after somebody approves it (SPEC 21.3).
func TestApproveReplay(t *testing.T) {
	f := open(t)
	state := func(id RunID) RunState { return must[*Run](t)(f.Runs.Get(t.Context(), id)).State }
	was := f.blocked(t, "github:ada 1", func(r *NewRun) { r.PerSubject, r.Approval = PerSubjectReplace, nil }).RunIDs[0]
	waits := f.blocked(t, "github:eve 7", func(r *NewRun) { r.PerSubject = PerSubjectReplace }).RunIDs[0]
	d := delivery("replay", "{}", "a")
	d.ReplayOf = 1
	d.Runs[0].Person, d.Runs[0].Subject, d.Runs[0].Approval, d.Runs[0].PerSubject = "github:eve 7", "github:acme/app#1", &NewApproval{For: time.Hour}, PerSubjectReplace
	id := must[Recorded](t)(f.Deliveries.Record(t.Context(), d)).RunIDs[0]
	if state(waits) != Blocked || state(id) != Blocked {
		t.Errorf("while it waits: %s, %s", state(waits), state(id))
	}
	check(t, f.decide(t, Decision{Run: id, Approve: true, Shown: ShownOf(f.approvals(t, id)...)}))
	if state(was) != Queued || state(id) != Queued {
		t.Errorf("approved: %s, %s", state(was), state(id))
	}
}

// TestApproveOutputs: what an agent asked for leaves after the decision about exactly what was shown, each
// by itself or all together; what is declined or not decided in time is discarded (SPEC 26.1).
func TestApproveOutputs(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	asked := []NewOutput{{Kind: "comment", Request: `{"kind":"comment","body":"one"}`, Bounds: "{}"}, {Kind: "close", Request: `{"kind":"close"}`, Bounds: "{}"}, {Kind: "comment", Request: `{"kind":"comment","body":"two"}`, Bounds: "{}"}}
	ended := func(waits time.Duration, n int) RunID {
		f.lined++
		d := delivery(fmt.Sprint("asks ", f.lined), "{}", "a")
		d.Runs[0].Outputs = &OutputPlace{WebhookUID: "w", Provider: "github", Place: "{}", Waits: waits}
		must[Recorded](t)(f.Deliveries.Record(ctx, d))
		l := f.claimed(t)[0]
		check(t, f.Leases.Finish(ctx, l, Succeeded, "", nil, asked[:n]...))
		return l.RunID
	}
	states := func(id RunID) (all []string) {
		for _, o := range must[[]Output](t)(f.Outputs.Of(ctx, id)) {
			all = append(all, strings.TrimSpace(o.Status+" "+o.Detail))
		}
		return all
	}
	due := func() (all []string) {
		for _, o := range must[[]Output](t)(f.Outputs.Due(ctx, 10)) {
			all = append(all, fmt.Sprint(o.RunID, " ", o.Seq))
		}
		return all
	}
	id := ended(time.Hour, 3)
	if got := states(id); !slices.Equal(got, []string{"waiting", "waiting", "waiting"}) || len(due()) != 0 {
		t.Fatalf("%q, %q", got, due())
	}
	all := f.approvals(t, id)
	whole := ShownOf(all...)
	if err := f.decide(t, Decision{Run: id, Output: 2, Approve: true, Shown: ShownOf(all[0])}); !errors.Is(err, ErrChanged) {
		t.Errorf("by the hash of another one: %v", err)
	}
	check(t, f.decide(t, Decision{Run: id, Output: 2, Approve: true, Shown: ShownOf(all[1])}))
	if got := due(); !slices.Equal(got, []string{id.String() + " 2"}) {
		t.Errorf("%q", got)
	}
	if err := f.decide(t, Decision{Run: id, Approve: true, Shown: whole}); !errors.Is(err, ErrChanged) {
		t.Errorf("all, as they were shown before one was decided: %v", err)
	}
	check(t, f.decide(t, Decision{Run: id, Output: 1, Reason: "rude"}))
	f.at = f.at.Add(time.Hour)
	if cancelled := must[[]RunID](t)(f.Approvals.Expire(ctx)); len(cancelled) != 0 {
		t.Errorf("%v", cancelled)
	}
	if got := states(id); !slices.Equal(got, []string{"discarded declined by ada (rude)", "pending", "discarded not approved within 1h0m0s"}) {
		t.Errorf("%q", got)
	}
	if r := must[*Run](t)(f.Runs.Get(ctx, id)); r.State != Succeeded {
		t.Errorf("%+v", r)
	}

	f.Outputs.Approve(time.Hour) // of the server
	all2 := ended(0, 2)
	shown := ShownOf(f.approvals(t, all2)...)
	check(t, f.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("UPDATE outputs SET request = '{}' WHERE run_id = $1 AND seq = 1", int64(all2))
	}))
	if err := f.decide(t, Decision{Run: all2, Approve: true, Shown: shown}); !errors.Is(err, ErrChanged) {
		t.Errorf("of something else: %v", err)
	}
	check(t, f.decide(t, Decision{Run: all2, Approve: true, Shown: ShownOf(f.approvals(t, all2)...)}))
	if got := states(all2); !slices.Equal(got, []string{"pending", "pending"}) {
		t.Errorf("%q", got)
	}
	if a := f.approvals(t, all2)[1]; a.Decision != Approved || a.Said() != "approved by ada" || a.Actor != "page ada" {
		t.Errorf("%+v", a)
	}
	f.Outputs.Approve(0)
	if got := states(ended(0, 1)); !slices.Equal(got, []string{"pending"}) {
		t.Errorf("%q", got)
	}
}

// TestApproveEverywhere: what a server that asks for approval takes waits on each worker, although a worker was not
// told so: also of a run without an event, and of one that is retried (SPEC 26.1).
func TestApproveEverywhere(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	create := func(spec string, retryOf RunID, place *OutputPlace) RunID {
		t.Helper()
		n := NewRun{Factory: "default", Automation: "a", Source: SourceAPI, Spec: []byte(spec), SpecHash: sha256.Sum256([]byte(spec)), RetryOf: retryOf, Outputs: place}
		r, _, err := f.Runs.Create(ctx, n, "", nil)
		check(t, err)
		return r.ID
	}
	const asks = `{"outputs":{"comment":{}}}`
	before := create(asks, 0, &OutputPlace{Provider: "github", Place: `{"x":1}`})
	f.Outputs.Approve(time.Hour)
	for _, tt := range []struct {
		id    RunID
		wait  time.Duration
		place string
	}{
		{create(asks, 0, nil), time.Hour, ""},
		{create(asks, before, nil), time.Hour, `{"x":1}`},
		{create(asks, 0, &OutputPlace{Provider: "github", Place: `{"x":2}`, Waits: time.Minute}), time.Minute, `{"x":2}`},
		{create(`{}`, 0, nil), 0, ""},
		{before, 0, `{"x":1}`},
	} {
		f.Outputs.Approve(0) // of a worker
		p := must[*OutputPlace](t)(f.Outputs.Place(ctx, tt.id))
		if p == nil {
			p = new(OutputPlace)
		}
		if p.Waits != tt.wait || p.Place != tt.place {
			t.Errorf("%s: %+v, want %v and %s", tt.id, p, tt.wait, tt.place)
		}
	}
}

// TestRunStates: each state but those that are terminal is counted.
func TestRunStates(t *testing.T) {
	counts := must[map[RunState]int64](t)(open(t).Runs.Counts(t.Context()))
	for _, state := range terms.RunStates {
		if _, counted := counts[state]; counted == state.Terminal() {
			t.Errorf("%s: %v", state, counts)
		}
	}
}
