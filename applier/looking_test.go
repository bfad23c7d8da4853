package applier

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo"
)

// TestSecretIsLookedFor: a commit that was refused for a secret applies when the
// secret has another value, whoever gave it that; what does not suit is not tried
// again as it is, and what serves is not touched (SPEC 4.4).
func TestSecretIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree("webhooks/hook.yaml", webhookYAML+"authMode: url_token\n")}}
		r := newRecords()
		reads := 0
		r.onSecrets = func() { reads++ }
		start(t, New(r.config(source)))
		outcomes := func(want ...Outcome) {
			t.Helper()
			time.Sleep(time.Hour)
			if got := r.outcomes(); !slices.Equal(got, want) {
				t.Errorf("applies %v, want %v", got, want)
			}
		}
		outcomes(Refused)
		r.SetSecret("ANOTHER", "x")
		outcomes(Refused)
		r.SetSecret("HOOK_SECRET", "not/suitable")
		outcomes(Refused, Refused)
		r.SetSecret("HOOK_SECRET", "suitable")
		outcomes(Refused, Refused, Applied)
		reads = 0
		r.SetSecret("HOOK_SECRET", "also-suitable")
		outcomes(Refused, Refused, Applied)
		if reads > 0 {
			t.Errorf("the secrets were read %d times while nothing lacked one", reads)
		}
		if last := r.Applies()[2]; last.Trigger != "secret" {
			t.Errorf("the trigger was %s", last.Trigger)
		}
	})
}

// slow is a source whose looks take a while, or until they are ended.
type slow struct {
	*fake
	takes time.Duration
	looks []string // how they ended, and after how long
}

func (s *slow) Head(ctx context.Context) (gitrepo.Commit, error) {
	began := time.Now()
	timer := time.NewTimer(s.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.ended("done", began)
		return s.fake.Head(ctx)
	case <-ctx.Done():
		s.ended("ended", began)
		return gitrepo.Commit{}, context.Cause(ctx)
	}
}

func (s *slow) ended(how string, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, fmt.Sprint(how, " ", time.Since(began)))
}

func (s *slow) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.looks)
}

// TestKickEndsALook: who knows that something was pushed does not wait for a look
// that gets nowhere; but one that is slow comes to its end, however often somebody
// pushes.
func TestKickEndsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slow{fake: &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}, takes: time.Minute}
		r := newRecords()
		a := New(r.config(source))
		start(t, a)
		time.Sleep(5 * time.Second)
		a.Kick("push")
		a.Kick("watch")
		time.Sleep(15 * time.Second)
		if s := a.State(); time.Since(s.Looking) != 20*time.Second {
			t.Errorf("looking since %s", time.Since(s.Looking))
		}
		a.Kick("watch")
		time.Sleep(5 * time.Second)
		for range 13 {
			a.Kick("push")
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		if want := []string{"ended 25s", "done 1m0s"}; !slices.Equal(source.all(), want) {
			t.Errorf("looks %v, want %v", source.all(), want)
		}
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Applied}) {
			t.Errorf("applies %v", got)
		}
		time.Sleep(time.Hour)
		if s := a.State(); !s.Looking.IsZero() || s.Error != "" {
			t.Errorf("state %+v", s)
		}
	})
}

// TestWhatKeepsTheHeadAway: each kind of trouble has its word, and a branch that
// has served is not one that is yet to come.
func TestWhatKeepsTheHeadAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{err: gitrepo.ErrEmpty, tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		a := New(r.config(source))
		start(t, a)
		synctest.Wait()
		if s := a.State(); s.Reason != NoBranch || !strings.Contains(s.Error, "none yet") {
			t.Errorf("before the first push: %+v", s)
		}
		source.push("c1", nil)
		time.Sleep(time.Minute)
		for err, want := range map[error]Reason{
			gitrepo.ErrEmpty: NoBranch, gitrepo.ErrNoBranch: NoBranch, gitrepo.ErrMisconfigured: Misconfigured, gitrepo.ErrUnsupported: NoRepository,
			gitrepo.ErrDenied: Denied, gitrepo.ErrUnreachable: Unreachable, gitrepo.ErrCorrupt: Damaged,
		} {
			source.push("", fmt.Errorf("%w: where", err))
			synctest.Wait()
			if s := a.State(); s.Reason != want || strings.Contains(s.Error, "yet") || s.Applied.Commit.Hash != "c1" {
				t.Errorf("%v: %+v", err, s)
			}
			if err == gitrepo.ErrEmpty && !strings.Contains(a.State().Error, "is gone, and there is no other; c1 keeps serving") {
				t.Error(a.State().Error)
			}
			source.push("c1", nil)
			synctest.Wait()
		}
	})
}

// far is a slow source that tells how far it is.
type far struct{ *slow }

func (far) Progress() gitrepo.Progress { return gitrepo.Progress{Received: 7, Said: "Counting"} }

// TestLookIsTold: the log says now and then how far a look is that lasts, and so does the
// state, until it ends.
func TestLookIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := far{&slow{fake: &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}, takes: 25 * time.Second}}
		r := newRecords()
		cfg := r.config(source)
		var logged strings.Builder
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		a := New(cfg)
		start(t, a)
		time.Sleep(21 * time.Second)
		if s := a.State(); s.Progress != source.Progress() {
			t.Errorf("during the look, the state has %+v", s.Progress)
		}
		time.Sleep(time.Hour)
		if s := a.State(); s.Progress != (gitrepo.Progress{}) {
			t.Errorf("after the look, the state has %+v", s.Progress)
		}
		line := `msg="still reading the repository of the definitions" factory=default repository=%s for=%s received_bytes=7 repository_says=Counting`
		repository, _ := source.Describe()
		for _, passed := range []string{"10s", "20s"} {
			if want := fmt.Sprintf(line, repository, passed); !strings.Contains(logged.String(), want) {
				t.Errorf("the log lacks %s", want)
			}
		}
		if n := strings.Count(logged.String(), "still reading"); n != 2 {
			t.Errorf("the log has %d lines:\n%s", n, &logged)
		}
	})
}
