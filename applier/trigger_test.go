package applier

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/applier/gitrepo/gittest"
)

// TestEveryRefChange moves a branch in all the ways that Git has, in random
// order: each time the head goes live, and an unchanged one is never applied again
// by itself (SPEC 4.1, 4.4). The source is watched, or is remote and only told.
func TestEveryRefChange(t *testing.T) {
	const branch = "release/2026/autumn"
	for name, open := range map[string]func(t *testing.T, r *remote) Source{
		"bare": func(t *testing.T, r *remote) Source { return openLocal(t, r.bare, branch) },
		"linked worktree": func(t *testing.T, r *remote) Source {
			// What the branch does happens in the repository that the worktree belongs to.
			linked := filepath.Join(t.TempDir(), "linked")
			gittest.Git(t, r.bare, "worktree", "add", "-q", "--detach", linked, branch)
			return openLocal(t, linked, branch)
		},
		"https": func(t *testing.T, r *remote) Source {
			s := gittest.Serve(t, filepath.Dir(r.bare))
			source, err := gitrepo.OpenRemote(gitrepo.RemoteConfig{
				URL: s.URL + "/f.git", Branch: branch, Cache: filepath.Join(t.TempDir(), "cache"), Poll: time.Hour,
				Credentials: gitrepo.Credentials{CAFile: s.CAFile},
			})
			if err != nil {
				t.Fatal(err)
			}
			return source
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemote(t)
			r.records.SetSecret("HOOK_SECRET", "s3cret")
			gittest.Git(t, r.work, "checkout", "-q", "-b", branch)
			commits := []string{}
			commit := func() string {
				r.write(t, "factory.yaml", factoryYAML+fmt.Sprintf("description: number %d\n", len(commits)))
				gittest.Git(t, r.work, "add", "-A")
				gittest.Git(t, r.work, "commit", "-q", "-m", "next")
				commits = append(commits, gittest.Git(t, r.work, "rev-parse", "HEAD"))
				return commits[len(commits)-1]
			}
			push := func(hash string) { gittest.Git(t, r.work, "push", "-qf", "origin", hash+":refs/heads/"+branch) }
			head := commit()
			push(head)
			r.cfg.Source = open(t, r)
			a := New(r.cfg)
			start(t, a)
			told := func() {
				if name == "https" {
					a.Kick("push")
				}
			}
			settled := func(what string, is func(State) bool) {
				t.Helper()
				told()
				if s := a.State(); !is(s) {
					r.until(t, what, is)
				}
			}
			live := func(what string) {
				t.Helper()
				settled(what, func(s State) bool { return s.Applied != nil && s.Applied.Commit.Hash == head && s.Error == "" })
			}
			live("the start")
			random := rand.New(rand.NewPCG(3, 4))
			for n := range 70 {
				what := fmt.Sprintf("change %d: ", n)
				switch random.IntN(6) {
				case 0, 1:
					gittest.Git(t, r.work, "reset", "-q", "--hard", head)
					head = commit()
					push(head)
					what += "a push"
				case 2:
					head = commits[random.IntN(len(commits))]
					push(head)
					what += "a forced push"
				case 3:
					gittest.Git(t, r.bare, "pack-refs", "--all", "--prune")
					what += "pack-refs"
				case 4:
					gittest.Git(t, r.bare, "gc", "-q", "--prune=now")
					what += "gc"
				case 5:
					gittest.Git(t, r.bare, "update-ref", "-d", "refs/heads/"+branch)
					settled(what+"the branch deleted", func(s State) bool { return s.Error != "" })
					if random.IntN(2) == 0 {
						head = commits[random.IntN(len(commits))]
					}
					push(head)
					what += "the branch restored"
				}
				live(what)
			}
			if _, err := a.Apply(context.Background(), "end"); err != nil {
				t.Fatal(err)
			}
			last := ""
			for _, one := range r.records.Applies() {
				if one.Outcome == Failed {
					continue
				}
				if one.Outcome != Applied || one.Commit.Hash == last && one.Trigger != "end" {
					t.Errorf("%s of %s by %s, after %s", one.Outcome, one.Commit.Hash, one.Trigger, last)
				}
				last = one.Commit.Hash
			}
			if last != head {
				t.Errorf("%s is live, the head is %s", last, head)
			}
		})
	}
}

func openLocal(t *testing.T, path, branch string) Source {
	t.Helper()
	source, err := gitrepo.Open(path, branch)
	if err != nil {
		t.Fatal(err)
	}
	return source
}
