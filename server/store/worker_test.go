package store

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// silent makes it so that no worker has been heard of for that much longer.
func (f *fixture) silent(t *testing.T, d time.Duration) {
	t.Helper()
	check(t, f.Do(t.Context(), func(tx *engine.Tx) error {
		return tx.Exec("UPDATE workers SET seen_at = seen_at - $1, started_at = started_at - $1", d.Microseconds())
	}))
}

// TestWorkers: a worker is one row, however often it starts; it is live while it tells so; one
// whose identity another process has is told; it can be drained by its name (SPEC 17.4).
func TestWorkers(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	one := Worker{ID: "a1", Kind: KindWorker, Names: []string{"gpu"}, Labels: map[string]string{"zone": "b", "arch": "arm"}, Host: "one", Version: "v1", MaxRuns: 4, Lease: time.Hour}
	if before := must[bool](t)(s.Workers.Start(ctx, one, "p1")); before {
		t.Error("it had started before")
	}
	must[bool](t)(s.Workers.Start(ctx, Worker{ID: "b2", Kind: KindServe, Host: "two"}, "p2"))
	s.silent(t, 30*time.Second)
	one.Blocked, one.Isolation = "the disk is full", "sandbox"
	s.asked(t, NewRun{})
	must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "a1", Most: 1, Lease: time.Minute}))
	if must[bool](t)(s.Workers.Beat(ctx, one, "p1", false)) {
		t.Error("it is to drain")
	}
	s.silent(t, 30*time.Second)
	all := must[[]*Worker](t)(s.Workers.List(ctx))
	w := *all[0]
	if len(all) != 2 || w.ID != "a1" || w.Active != 1 || w.Lease != time.Hour || w.Blocked != one.Blocked || w.Isolation != "sandbox" || w.SeenAt.Sub(w.StartedAt) < 30*time.Second || !w.Live() || all[1].Live() ||
		!slices.Equal(w.Names, one.Names) || !maps.Equal(w.Labels, one.Labels) || w.Name() != "gpu" || all[1].Name() != "two" {
		t.Errorf("workers %+v %+v", w, all[1])
	}
	if got := w.Hosts(); !slices.Equal(got, []string{"gpu", "arch=arm", "zone=b"}) {
		t.Errorf("it is asked for as %q", got)
	}
	for _, name := range []string{"gpu", "a1", "one"} {
		for _, drain := range []bool{true, false} {
			if got := must[[]string](t)(s.Workers.Drain(ctx, name, drain)); !slices.Equal(got, []string{"a1"}) || must[bool](t)(s.Workers.Draining(ctx, "a1")) != drain {
				t.Errorf("drain %s %v: %+v", name, drain, got)
			}
			if must[bool](t)(s.Workers.Beat(ctx, one, "p1", false)) != drain {
				t.Errorf("drain %s %v: it was not told so", name, drain)
			}
		}
	}
	if _, err := s.Workers.Drain(ctx, "arch=arm", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("drain of nobody: %v", err)
	}
	// It starts again: the same row, and what was asked of it stays asked.
	must[[]string](t)(s.Workers.Drain(ctx, "gpu", true))
	if !must[bool](t)(s.Workers.Start(ctx, one, "p3")) {
		t.Error("its first start is forgotten")
	}
	if _, err := s.Workers.Beat(ctx, one, "p1", false); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the first process: %v", err)
	}
	if !must[bool](t)(s.Workers.Beat(ctx, one, "p3", true)) {
		t.Error("the drain is forgotten")
	}
	if w := must[[]*Worker](t)(s.Workers.List(ctx))[0]; w.StoppedAt.IsZero() || w.Live() {
		t.Errorf("it has stopped: %+v", w)
	}
	moved := one
	moved.Host = "elsewhere" // a copy of the folder: the process on the other host may live
	if must[bool](t)(s.Workers.Start(ctx, moved, "p4")) {
		t.Error("a worker on another host is taken for a dead one")
	}
	s.silent(t, forgetWorkers+time.Minute)
	check(t, s.Workers.Forget(ctx))
	if all := must[[]*Worker](t)(s.Workers.List(ctx)); len(all) != 0 {
		t.Errorf("left %+v", all)
	}
	if _, err := s.Workers.Beat(ctx, one, "p4", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("a worker that was forgotten: %v", err)
	}
}

// TestBoundRuns: a follow-up goes to the worker that has the workspace, for as long as that
// lives; others neither take it nor wait behind it (SPEC 17.4).
func TestBoundRuns(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	for _, id := range []string{"w", "other"} {
		must[bool](t)(s.Workers.Start(ctx, Worker{ID: id, Host: id}, "p"))
	}
	claims := func(worker string, most int) []Lease {
		return must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: worker, Most: most, Lease: time.Minute}))
	}
	first := s.asked(t, NewRun{})
	lease := claims("w", 1)[0]
	check(t, s.Conversations.SetSession(ctx, lease, Session{"claude", "s1"}))
	waits := s.asked(t, NewRun{Conversation: first, EndedAfter: s.at.Add(-time.Hour)}) // bound when the first ends
	check(t, s.Leases.Finish(ctx, lease, Succeeded, "", nil))
	unrelated := s.asked(t, NewRun{})
	if got := must[string](t)(s.Workers.BoundTo(ctx, waits)); got != "w" {
		t.Errorf("bound to %q", got)
	}
	if got := must[string](t)(s.Workers.BoundTo(ctx, unrelated)); got != "" {
		t.Errorf("bound to %q", got)
	}
	if got := idsOf(claims("other", 10)); !slices.Equal(got, []RunID{unrelated}) {
		t.Errorf("the other worker got %v", got)
	}
	got := claims("w", 10)
	if !slices.Equal(idsOf(got), []RunID{waits}) {
		t.Fatalf("the worker got %v", got)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, waits)); r.Worker != "w" {
		t.Errorf("the run is of %q", r.Worker)
	}
	check(t, s.Leases.Finish(ctx, got[0], Succeeded, "", nil))
	later := s.asked(t, NewRun{Conversation: first, EndedAfter: s.at.Add(-time.Hour)}) // bound at once
	if got := claims("other", 10); len(got) != 0 {
		t.Errorf("the other worker got %v", got)
	}
	s.silent(t, LostAfter)
	if got := idsOf(claims("other", 10)); !slices.Equal(got, []RunID{later}) {
		t.Errorf("when the worker was lost, the other one got %v", got)
	}
}

// TestReapLeases: an attempt is ended only if its lease is still the one that was seen, and
// a renewal always changes it, also with a clock that stands still (SPEC 17.4).
func TestReapLeases(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	for range 3 {
		s.asked(t, NewRun{})
	}
	leases := s.claimed(t)
	seen := must[[]Held](t)(s.Leases.Held(ctx))
	if len(seen) != 3 || seen[0].Lease != leases[0] || seen[0].Worker != "w" || seen[0].Lasts != DefaultLease {
		t.Fatal(seen)
	}
	if may := must[bool](t)(s.Leases.MayClaim(ctx)); may {
		t.Error("there is something to claim")
	}
	must[Stop](t)(s.Leases.Renew(ctx, leases[1], time.Minute))
	check(t, s.Leases.Finish(ctx, leases[2], Succeeded, "", nil))
	if got := must[[]RunID](t)(s.Leases.ReapHeld(ctx, seen, "gone")); !slices.Equal(got, []RunID{leases[0].RunID}) {
		t.Errorf("ended %v", got)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, leases[0].RunID)); r.State != FailedRun || r.StatusMessage != "gone" {
		t.Errorf("%+v", r)
	}
	must[Stop](t)(s.Leases.Renew(ctx, leases[1], time.Minute))
	must[*Run](t)(s.Runs.Stop(ctx, leases[1].RunID, StopInterrupt, ""))
	asked := must[map[RunID]Stop](t)(s.Leases.StopsAsked(ctx, []RunID{leases[0].RunID, leases[1].RunID}))
	if !maps.Equal(asked, map[RunID]Stop{leases[1].RunID: StopInterrupt}) {
		t.Errorf("asked to stop: %v", asked)
	}
	if got := must[[]RunID](t)(s.Leases.ReapWorker(ctx, "other", "gone")); len(got) != 0 {
		t.Errorf("ended %v of another worker", got)
	}
	if got := must[[]RunID](t)(s.Leases.ReapWorker(ctx, "w", "gone")); !slices.Equal(got, []RunID{leases[1].RunID}) {
		t.Errorf("ended %v", got)
	}
}

// TestArtifactParts: without a folder, the content of artifacts is in the database; it is kept
// whole or not at all, damage is found, and it goes with its run.
func TestArtifactParts(t *testing.T) {
	s, ctx := open(t), t.Context()
	s.asked(t, NewRun{})
	lease := s.claimed(t)[0]
	keep := func(l Lease, content string, broken error) (Artifact, error) {
		return s.Artifacts.KeepFile(ctx, l, Artifact{Type: "FILE", Name: "a"}, func(w io.Writer) error {
			for rest := content; rest != ""; { // in pieces of any size
				n := min(len(rest), 100_001)
				if _, err := io.WriteString(w, rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return broken
		})
	}
	parts := func() (n int) {
		check(t, s.Read.QueryRowContext(ctx, "SELECT count(*) FROM artifact_parts").Scan(&n))
		return n
	}
	var last *Artifact
	for _, content := range []string{"", "hello", strings.Repeat("x", ArtifactPart), strings.Repeat("0123456789", ArtifactPart/4)} {
		a, err := keep(lease, content, nil)
		check(t, err)
		last = must[*Artifact](t)(s.Artifacts.Get(ctx, a.ID))
		f, err := s.Artifacts.Open(ctx, last)
		check(t, err)
		if got := must[[]byte](t)(io.ReadAll(f)); string(got) != content || last.Size != int64(len(content)) {
			t.Errorf("%d bytes of %d came back", len(got), len(content))
		}
		check(t, f.Close())
	}
	kept := parts()
	broken := errors.New("broken")
	if _, err := keep(lease, strings.Repeat("y", 2*ArtifactPart), broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	stale := lease
	stale.Token++
	if _, err := keep(stale, "stale", nil); !errors.Is(err, ErrFenced) {
		t.Error(err)
	}
	if got := parts(); got != kept {
		t.Errorf("%d parts, and before %d", got, kept)
	}
	if r := must[*Report](t)(s.Check(ctx)); len(r.Problems) != 0 {
		t.Errorf("problems %v", r.Problems)
	}
	check(t, s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("DELETE FROM artifact_parts WHERE artifact_id = $1 AND at > 0", last.ID)
	}))
	if _, err := s.Artifacts.Open(ctx, last); !errors.Is(err, ErrDamaged) {
		t.Errorf("content that is cut off: %v", err)
	}
	if r := must[*Report](t)(s.Check(ctx)); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], last.ID.String()) {
		t.Errorf("problems %v", r.Problems)
	}
	check(t, s.Leases.Finish(ctx, lease, Succeeded, "", nil))
	s.at = s.at.Add(48 * time.Hour)
	if n, _, err := s.Runs.Prune(ctx, RunRetention{Runs: time.Hour}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n := must[int](t)(s.Artifacts.Sweep(ctx)); n != 3 || parts() != 0 {
		t.Errorf("%d swept, %d parts left", n, parts())
	}
}
