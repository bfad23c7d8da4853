package applier

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo"
)

// TestPin: a pinned commit serves whatever is pushed, until its time has come or
// it is unpinned; then the newest commit does.
func TestPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree("webhooks/hook.yaml", webhookYAML), "c2": tree(), "c3": tree("agents/a/agent.md", "no")}}
		r := newRecords()
		r.SetSecret("HOOK_SECRET", "s")
		cfg := r.config(source)
		reads := 0
		r.onPast = func() { reads++ }
		ends := 0
		r.onEndPin = func() error {
			ends++
			return errors.New("disk full")
		}
		var heard State
		cfg.OnChange = func(s State) { heard = s }
		a := New(cfg)
		start(t, a)
		synctest.Wait()
		source.push("c2", nil)
		synctest.Wait()
		serves := func(commit, head string, pinned bool) {
			t.Helper()
			s := a.State()
			if live, _ := cfg.Live.Revision("default"); live.Commit.Hash != commit || s.Applied != live || s.Head != head || (s.Pin != nil) != pinned {
				t.Fatalf("%s serves, state %+v; want %s with the head %s", live.Commit.Hash, s, commit, head)
			}
		}
		serves("c2", "c2", false)

		a.SetPin(&Pin{Commit: "c1", Reason: "c2 is bad", Until: time.Now().Add(time.Hour)})
		if done, err := a.Apply(t.Context(), "pin"); err != nil || done.Outcome != Applied || done.Commit.Hash != "c1" {
			t.Fatal(done, err)
		}
		serves("c1", "c2", true)
		source.push("c3", nil)
		synctest.Wait()
		serves("c1", "c3", true)
		if heard.Head != "c3" || heard.Pin == nil { // a commit status says that it waits
			t.Errorf("heard %+v", heard)
		}
		source.push("", errors.New("unreachable")) // the pin needs no repository
		time.Sleep(10 * time.Minute)
		serves("c1", "c3", true)
		if a.State().Error != "" {
			t.Errorf("state %+v", a.State())
		}
		r.SetSecret("HOOK_SECRET", "t")
		if done, err := a.Apply(t.Context(), "command"); err != nil || done.Outcome != Applied || done.Revision.Webhooks[0].SecretGeneration != 2 {
			t.Fatal(done, err)
		}
		if reads != 2 {
			t.Errorf("the pinned commit was read %d times", reads)
		}
		// The end of the pin: the newest commit is refused, and what served stays.
		source.mu.Lock()
		source.head, source.err = "c3", nil // without a kick
		source.mu.Unlock()
		time.Sleep(time.Hour)
		serves("c1", "c3", false)
		if s := a.State(); s.Reason != Invalid {
			t.Errorf("state %+v", s)
		}
		if ends != 2 { // and at the start: one may have run out before
			t.Errorf("the end of a pin was told %d times", ends)
		}

		a.SetPin(&Pin{Commit: "c9", Reason: "a mistake"})
		if done, err := a.Apply(t.Context(), "pin"); err != nil || done.Outcome != Failed {
			t.Fatal(done, err)
		}
		serves("c1", "c3", true)
		a.SetPin(nil)
		source.push("c2", nil)
		synctest.Wait()
		serves("c2", "c2", false)
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Applied, Applied, Applied, Applied, Refused, Failed, Applied}) {
			t.Errorf("applies %v", got)
		}
	})
}

// TestPinRestored: a server that starts pinned neither applies anew nor follows
// the branch.
func TestPinRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c2", tree: map[string]fs.FS{"c2": tree()}}
		r := newRecords()
		cfg := r.config(source)
		cfg.Pin = &Pin{Commit: "c1"}
		restored := &Revision{Factory: "default", Commit: gitrepo.Commit{Hash: "c1"}}
		cfg.Live.Swap(restored)
		r.onPast = func() { t.Error("the pinned commit is read, which serves already") }
		a := New(cfg)
		start(t, a)
		time.Sleep(time.Hour)
		if s := a.State(); s.Head != "c2" || s.Applied != restored || len(r.outcomes()) > 0 {
			t.Errorf("state %+v, applies %v", s, r.outcomes())
		}
	})
}

// TestVerify: a commit that may not apply is refused and not asked about again;
// a commit that cannot be judged yet is tried again (SPEC 4.10).
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "good", tree: map[string]fs.FS{"good": tree(), "bad": tree(), "unclear": tree()}}
		r := newRecords()
		cfg := r.config(source)
		asked := make(map[string]int)
		cfg.Verify = func(_ context.Context, hash string) (string, error) {
			asked[hash]++
			switch {
			case hash == "bad":
				return "", gitrepo.ErrUnverified
			case hash == "unclear" && asked[hash] < 3:
				return "", errors.New("no such file")
			}
			return map[string]string{"unclear": "its key is old"}[hash], nil
		}
		a := New(cfg)
		start(t, a)
		synctest.Wait()
		source.push("bad", nil)
		time.Sleep(time.Hour)
		if s := a.State(); s.Applied.Commit.Hash != "good" || s.Reason != Unverified || s.LastApply.Diagnostics[0].Code != "TH_UNVERIFIED_COMMIT" || asked["bad"] != 1 {
			t.Errorf("state %+v, asked %v", s, asked)
		}
		source.push("unclear", nil)
		synctest.Wait()
		if s := a.State(); s.Applied.Commit.Hash != "good" || s.Reason != Other {
			t.Errorf("state %+v", s)
		}
		time.Sleep(time.Hour)
		if s := a.State(); s.Applied.Commit.Hash != "unclear" || s.Error != "" || asked["unclear"] != 3 || s.LastApply.Diagnostics[0].Code != "TH_EXPIRED_SIGNER" {
			t.Errorf("state %+v, asked %v", s, asked)
		}
	})
}

// silent is a source whose repository does not answer.
type silent struct{ *fake }

func (s silent) Head(ctx context.Context) (gitrepo.Commit, error) {
	<-ctx.Done()
	return gitrepo.Commit{}, context.Cause(ctx)
}

// TestPinAtOnce: a repository that does not answer delays neither a pin nor,
// when it does again, what comes after.
func TestPinAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecords()
		earlier := &Apply{Outcome: Applied, Commit: gitrepo.Commit{Hash: "c1"}, Snapshot: Snapshot{Files: []File{{Path: "factory.yaml", Data: []byte(factoryYAML)}}}}
		if _, err := r.Record(t.Context(), earlier); err != nil {
			t.Fatal(err)
		}
		a := New(r.config(silent{&fake{}}))
		start(t, a)
		synctest.Wait() // the worker waits for the repository
		began := time.Now()
		for range 3 {
			a.SetPin(&Pin{Commit: "c1"})
			if done, err := a.Apply(t.Context(), "pin"); err != nil || done.Outcome != Applied || time.Since(began) > 0 {
				t.Fatal(done, err, time.Since(began))
			}
			synctest.Wait() // it waits again
		}
		if s := a.State(); s.Error != "" || s.Applied.Commit.Hash != "c1" {
			t.Errorf("state %+v", s)
		}
		// Without a pin who asks has to wait, and can stop waiting.
		a.SetPin(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if done, err := a.Apply(ctx, "command"); done != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
