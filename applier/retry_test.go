package applier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo"
)

// TestLooksDoNotHurryRetries: the poll of a source kicks far more often than a
// failed attempt is repeated, and a newer commit does not wait for its turn.
func TestLooksDoNotHurryRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(), "c2": tree()}}
		r := newRecords()
		r.broken = errors.New("disk full")
		attempts := 0
		r.onRecord = func(context.Context, *Apply) error {
			attempts++
			return nil
		}
		a := New(r.config(source))
		start(t, a)
		synctest.Wait()
		for range 120 {
			time.Sleep(5 * time.Second)
			source.push("c1", nil)
		}
		synctest.Wait()
		// 1+2+4+8+16+32 s, then every 60 s. Each one tries to record the apply, and
		// then that it failed.
		if n := attempts / 2; n < 14 || n > 17 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		if s := a.State(); !s.NextAttempt.After(time.Now()) || time.Until(s.NextAttempt) > lastRetry || time.Since(s.Since) < 9*time.Minute {
			t.Errorf("state %+v", s)
		}
		r.breaks(nil)
		source.push("c2", nil)
		synctest.Wait()
		if s := a.State(); s.Error != "" || s.Applied.Commit.Hash != "c2" {
			t.Errorf("a newer commit waits: %+v", s)
		}
	})
}

// TestFailureIsRecordedLate: a failure that could not be recorded when it came
// is recorded once that is possible, and then not again.
func TestFailureIsRecordedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{err: errors.New("unreachable")}
		r := newRecords()
		r.broken = errors.New("disk full")
		a := New(r.config(source))
		start(t, a)
		time.Sleep(10 * time.Minute)
		r.breaks(nil)
		time.Sleep(10 * time.Minute)
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Failed}) {
			t.Errorf("applies %v", got)
		}
		if last := a.State().LastApply; last.ID != "apl_1" {
			t.Errorf("last apply %+v", last)
		}
	})
}

// TestHealingIsTold: OnChange hears of the end of a failure too, and of the
// state at the start.
func TestHealingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		cfg := r.config(source)
		var told []string
		cfg.OnChange = func(s State) { told = append(told, s.Error) }
		start(t, New(cfg))
		synctest.Wait()
		source.push("", errors.New("gone"))
		synctest.Wait()
		source.push("c1", nil)
		synctest.Wait()
		source.push("c1", nil)
		synctest.Wait()
		if !slices.Equal(told, []string{"", "", "gone", ""}) {
			t.Errorf("told %q", told)
		}
	})
}

// TestSecretSetDuringApply: a secret that is set after an apply has looked for
// it, and before that apply is refused, is not lost (SPEC 4.4).
func TestSecretSetDuringApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree("webhooks/hook.yaml", webhookYAML)}}
		r := newRecords()
		cfg := r.config(source)
		var a *Applier
		first := true
		r.onSecrets = func() {
			if first {
				first = false
				r.SetSecret("HOOK_SECRET", "s3cret")
				a.SecretSet("HOOK_SECRET")
			}
		}
		a = New(cfg)
		start(t, a)
		time.Sleep(time.Hour)
		if _, live := cfg.Live.Webhook("whk_hook"); !live {
			t.Errorf("still refused: %+v", a.State())
		}
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Refused, Applied}) {
			t.Errorf("applies %v", got)
		}
	})
}

// TestApplyOutlivesItsCaller: a caller that goes away while its apply is being
// recorded leaves no difference between what is recorded and what serves.
func TestApplyOutlivesItsCaller(t *testing.T) {
	source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}
	r := newRecords()
	cfg := r.config(source)
	ctx, cancel := context.WithCancel(t.Context())
	r.onRecord = func(ctx context.Context, _ *Apply) error {
		cancel()
		return ctx.Err()
	}
	done, err := New(cfg).Apply(ctx, "command")
	if err != nil || done.Outcome != Applied {
		t.Fatalf("%+v, %v", done, err)
	}
	if live, ok := cfg.Live.Revision("default"); !ok || live.ApplyID != "apl_1" {
		t.Error("recorded and not live")
	}
	if done, err := New(cfg).Apply(ctx, "command"); done != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %+v, %v", done, err)
	}
}

// TestFailedApplyIsRetried: the worker takes over from an apply that somebody
// asked for and that failed.
func TestFailedApplyIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(), "c2": tree()}}
		r := newRecords()
		a := New(r.config(source))
		start(t, a)
		synctest.Wait()
		source.mu.Lock()
		source.head = "c2" // without a kick
		source.mu.Unlock()
		r.breaks(errors.New("disk full"))
		if done, err := a.Apply(t.Context(), "command"); err != nil || done.Outcome != Failed {
			t.Fatalf("%+v, %v", done, err)
		}
		r.breaks(nil)
		time.Sleep(2 * firstRetry)
		if s := a.State(); s.Error != "" || s.Applied.Commit.Hash != "c2" {
			t.Errorf("state %+v", s)
		}
	})
}

// TestPanicIsAFailure: a commit that nothing foresaw leaves what serves.
func TestPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(), "c2": tree("automations/a.md", strings.ReplaceAll(automation, "webhooks: [hook]", "webhook_ids: [whk_x]"))}}
		r := newRecords()
		var panics atomic.Bool
		panics.Store(true)
		r.onSpec = func() {
			if panics.Load() {
				panic("boom")
			}
		}
		a := New(r.config(source))
		start(t, a)
		synctest.Wait()
		source.push("c2", nil)
		synctest.Wait()
		if s := a.State(); s.Applied.Commit.Hash != "c1" || !strings.Contains(s.Error, "boom") || s.LastApply.Outcome != Failed {
			t.Fatalf("state %+v", s)
		}
		panics.Store(false)
		time.Sleep(lastRetry)
		if s := a.State(); s.Applied.Commit.Hash != "c2" || s.Error != "" {
			t.Errorf("state %+v", s)
		}
	})
}

// TestKicksMerge: of several kicks the one that says most is the trigger, and
// many of them are few looks.
func TestKicksMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		a := New(r.config(source))
		for range 1000 {
			a.Kick("watch")
		}
		a.Kick("push")
		a.Kick("watch")
		start(t, a)
		synctest.Wait()
		if got := fmt.Sprintf("%d %s", len(r.Applies()), r.Applies()[0].Trigger); got != "1 push" {
			t.Errorf("applies %s", got)
		}
	})
}

// TestOneProblemIsRecordedOnce: what differs in its words alone is one problem
// since its beginning, and one entry of the history; the state has the newest
// words.
func TestOneProblemIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		a := New(r.config(source))
		start(t, a)
		synctest.Wait()
		begin := time.Now()
		for port := range 100 {
			source.push("", fmt.Errorf("%w: reset by port %d", gitrepo.ErrUnreachable, port))
			time.Sleep(lastRetry)
		}
		source.push("", fmt.Errorf("%w: no such user", gitrepo.ErrDenied))
		synctest.Wait()
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Applied, Failed, Failed}) {
			t.Errorf("applies %v", got)
		}
		if first := r.Applies()[1]; first.FinishedAt.Sub(begin) > time.Second {
			t.Errorf("recorded at %s", first.FinishedAt)
		}
		if s := a.State(); s.Reason != Denied || !strings.Contains(s.Error, "no such user") || !s.Since.After(begin.Add(time.Hour)) {
			t.Errorf("state %+v", s)
		}
		source.push("", fmt.Errorf("%w: another", gitrepo.ErrDenied))
		time.Sleep(lastRetry)
		if s := a.State(); !strings.Contains(s.Error, "another") || time.Since(s.Since) < lastRetry {
			t.Errorf("state %+v", s)
		}
	})
}
