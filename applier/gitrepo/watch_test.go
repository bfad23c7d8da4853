package gitrepo

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// until waits for a kick after which the head is want ("" for no branch), and
// not for the poll.
func until(t *testing.T, kicks <-chan struct{}, r *Repo, want string) {
	t.Helper()
	deadline := time.After(pollEvery - time.Second)
	for {
		select {
		case <-kicks:
		case <-deadline:
			t.Fatalf("no kick showed head %q", want)
		}
		c, err := r.Head(t.Context())
		if err != nil && !errors.Is(err, ErrNoBranch) {
			t.Fatal(err)
		}
		if c.Hash == want {
			return
		}
	}
}

// TestWatchMissesNothing moves a branch in all the ways that Git has, in random
// order: notification finds each of them. The ref's folder comes and goes, which
// is where watching it alone goes wrong.
func TestWatchMissesNothing(t *testing.T) {
	const branch, ref = "release/2026/autumn", "refs/heads/release/2026/autumn"
	bare, work := clone(t, branch)
	commits := []string{commit(t, work, "Second"), commit(t, work, "Third")}
	runGit(t, work, "push", "-q", "origin", branch)
	r, err := Open(bare, branch)
	if err != nil {
		t.Fatal(err)
	}
	kicks := watched(t, r.Watch)
	now := commits[1]
	random := rand.New(rand.NewPCG(1, 2))
	for range 80 {
		switch random.IntN(4) {
		case 0:
			runGit(t, bare, "pack-refs", "--all", "--prune")
		case 1:
			if now != "" {
				runGit(t, bare, "update-ref", "-d", ref)
				now = ""
				until(t, kicks, r, now)
			}
		default:
			if now == commits[0] {
				now = commits[1]
			} else {
				now = commits[0]
			}
			runGit(t, bare, "update-ref", ref, now)
			until(t, kicks, r, now)
		}
	}
}

// TestWatchKinds: the refs of a linked worktree are in another place, and those
// of a working tree move with each commit.
func TestWatchKinds(t *testing.T) {
	_, work := clone(t, "main")
	linked := filepath.Join(t.TempDir(), "linked")
	runGit(t, work, "worktree", "add", "-q", "-b", "side", linked)
	for _, path := range []string{work, linked, filepath.Join(work, ".git")} {
		r, err := Open(path, "main")
		if err != nil {
			t.Fatal(err)
		}
		kicks := watched(t, r.Watch)
		until(t, kicks, r, commit(t, work, "to be seen from "+path))
	}
}

// TestWatchReplaced: a repository that is replaced as a whole, as by a restore,
// is found again, if only by the poll.
func TestWatchReplaced(t *testing.T) {
	bare, work := clone(t, "main")
	r, err := Open(bare, "main")
	if err != nil {
		t.Fatal(err)
	}
	kicks := watched(t, r.Watch)
	if err := os.Rename(bare, bare+".old"); err != nil {
		t.Fatal(err)
	}
	runGit(t, work, "clone", "-q", "--bare", bare+".old", bare)
	want := commit(t, work, "After the restore")
	runGit(t, work, "push", "-q", "origin", "main")
	for c := (Commit{}); c.Hash != want; {
		select {
		case <-kicks:
		case <-time.After(3 * pollEvery):
			t.Fatal("not found again")
		}
		c, _ = r.Head(t.Context()) // fails meanwhile
	}
}

// TestPoll: without notification there is still a kick at once, and one for each
// look.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kicks, done := 0, make(chan error, 1)
		go func() { done <- poll(ctx, func() { kicks++ }) }()
		time.Sleep(3*pollEvery + time.Second) // of the bubble's clock
		cancel()
		if err := <-done; err != nil || kicks != 4 {
			t.Errorf("%d kicks, %v", kicks, err)
		}
	})
}
