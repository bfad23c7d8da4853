package gateway

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// pushWorld is a gateway with a forge that has the branches main and theirs, and a clone.
func pushWorld(t *testing.T, rules task.Pushes) (w *gatewayWorld, work string) {
	t.Helper()
	w = startGatewayWith(t, false, usually(rules))
	bare := filepath.Join(w.root, "example/app.git")
	gittest.Git(t, bare, "config", "receive.advertisePushOptions", "true")
	seed := filepath.Join(w.root, "seed")
	gittest.Git(t, w.root, "init", "-q", "-b", "main", seed)
	gittest.Git(t, seed, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, seed, "tag", "v1")
	gittest.Git(t, seed, "push", "-q", bare, "main", "main:triphammer/theirs", "v1")
	gittest.Git(t, seed, "commit", "-q", "--allow-empty", "-m", "theirs")
	gittest.Git(t, seed, "push", "-q", bare, "HEAD:triphammer/theirs")
	work = filepath.Join(w.root, "work")
	if out, err := w.git(w.root, "clone", "-q", w.forge.URL+"/example/app", work); err != nil {
		t.Fatal(err, out)
	}
	return w, work
}

// usually are rules with the values that the factory gives to those that nobody said.
func usually(rules task.Pushes) task.Pushes {
	if rules.Branches == nil {
		rules.Branches = []string{"triphammer/*", task.EventBranch}
	}
	rules.Max, rules.MaxBytes = cmp.Or(rules.Max, 3), cmp.Or(rules.MaxBytes, 64<<20)
	return rules
}

func (w *gatewayWorld) must(dir string, args ...string) {
	w.t.Helper()
	if out, err := w.git(dir, args...); err != nil {
		w.t.Fatalf("git %q: %v %s", args, err, out)
	}
}

// TestPushRules: what may be pushed arrives, and Git shows the rule for what may not.
func TestPushRules(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules task.Pushes
		args  string // of git push
		want  string // what Git prints of the refusal; empty: it arrives
	}{
		{"a branch of its own", task.Pushes{}, "HEAD:triphammer/new", ""},
		{"the default branch", task.Pushes{}, "HEAD:main", "(a run pushes to the default branch only if push.branches of the automation names it, without *)"},
		{"the default branch by a pattern", task.Pushes{Branches: []string{"*"}}, "HEAD:main", "default branch only if"},
		{"the default branch by name", task.Pushes{Branches: []string{"main"}}, "HEAD:main", ""},
		{"the default branch in capitals", task.Pushes{Branches: []string{"*"}}, "HEAD:refs/heads/MAIN", "default branch only if"},
		{"HEAD as a branch", task.Pushes{}, "HEAD:refs/heads/HEAD", "(a run pushes to triphammer/*: push.branches of the automation)"},
		{"another branch", task.Pushes{}, "HEAD:other", "(a run pushes to triphammer/*"},
		{"a branch that only begins so", task.Pushes{}, "HEAD:triphammer", "(a run pushes to triphammer/*"},
		{"one allowed and one not", task.Pushes{}, "HEAD:triphammer/new HEAD:other", "(it came with an update that is refused)"},
		{"one allowed and one not, atomic", task.Pushes{}, "--atomic HEAD:triphammer/new HEAD:other", "(a run pushes to triphammer/*"},
		{"a deletion", task.Pushes{}, ":triphammer/theirs", "(a run deletes nothing)"},
		{"a tag", task.Pushes{}, "HEAD:refs/tags/v2", "(a run pushes no tag that push.tags of the automation does not name)"},
		{"a tag that is named", task.Pushes{Tags: []string{"v*"}}, "HEAD:refs/tags/v2", ""},
		{"a tag that is moved", task.Pushes{Tags: []string{"v*"}}, "-f HEAD:refs/tags/v1", "(a run moves no tag that its automation did not push)"},
		{"a review", task.Pushes{Branches: []string{"*"}}, "HEAD:refs/for/main", "(a run pushes branches)"},
		{"notes", task.Pushes{Branches: []string{"*"}}, "HEAD:refs/notes/commits", "(a run pushes branches)"},
		{"settings of the forge", task.Pushes{Branches: []string{"*"}}, "HEAD:refs/pull/1/head", "(a run pushes branches)"},
		{"an option", task.Pushes{}, "-o merge_request.create HEAD:triphammer/new", "(a run sends no options of a push: POST to /pulls opens a pull request)"},
		{"a branch of others, rewritten", task.Pushes{}, "-f HEAD:triphammer/theirs", "(a run does not rewrite what its automation did not push: begin with the newest commit of the branch)"},
		{"a branch of others, continued", task.Pushes{}, "theirs:triphammer/theirs", ""},
		{"a branch of others, taken back", task.Pushes{}, "-f origin/main:triphammer/theirs", "does not rewrite what"},
		{"four branches", task.Pushes{}, "HEAD:triphammer/1 HEAD:triphammer/2 HEAD:triphammer/3 HEAD:triphammer/4", "(a run pushes to no more branches and tags than push.max of the automation: 3)"},
		{"three branches", task.Pushes{}, "HEAD:triphammer/1 HEAD:triphammer/2 HEAD:triphammer/3", ""},
		{"much", task.Pushes{MaxBytes: 10_000}, "big:triphammer/big", "(a run pushes at most 10000 bytes: push.maxBytes of the automation)"},
		{"much, to a branch of others", task.Pushes{MaxBytes: 10_000}, "bigtheirs:triphammer/theirs", "(a run pushes at most 10000 bytes: push.maxBytes of the automation)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, work := pushWorld(t, tt.rules)
			w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
			w.must(work, "checkout", "-q", "-b", "theirs", "origin/triphammer/theirs")
			w.must(work, "commit", "-q", "--allow-empty", "-m", "on top of theirs")
			for _, branch := range []string{"big", "bigtheirs"} {
				w.must(work, "checkout", "-q", "-b", branch)
				noise := make([]byte, 100_000)
				_, _ = rand.Read(noise)
				if err := os.WriteFile(filepath.Join(work, branch), noise, 0o600); err != nil {
					t.Fatal(err)
				}
				w.must(work, "add", ".")
				w.must(work, "commit", "-q", "-m", "big")
			}
			w.must(work, "checkout", "-q", "main")
			before := gittest.Git(t, filepath.Join(w.root, "example/app.git"), "for-each-ref")
			out, err := w.git(work, append([]string{"push", "origin"}, strings.Fields(tt.args)...)...)
			after := gittest.Git(t, filepath.Join(w.root, "example/app.git"), "for-each-ref")
			w.end()
			if tt.want == "" {
				if err != nil || before == after || len(w.pushed) == 0 || slices.ContainsFunc(w.pushed, refusedPush) {
					t.Errorf("%v, told %+v: %s", err, w.pushed, out)
				}
				return
			}
			if err == nil || !strings.Contains(out, tt.want) || before != after || !slices.ContainsFunc(w.pushed, refusedPush) {
				t.Errorf("%v, told %+v: %s\nbefore %s\nafter %s", err, w.pushed, out, before, after)
			}
		})
	}
}

// TestPushAgain: a run may rewrite what it pushed itself, and its branches are counted over
// all its pushes.
func TestPushAgain(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{Max: 2})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "first")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/mine")
	w.must(work, "commit", "-q", "--amend", "--allow-empty", "-m", "second")
	w.must(work, "push", "-q", "-f", "origin", "HEAD:triphammer/mine")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/more")
	if out, err := w.git(work, "push", "origin", "HEAD:triphammer/third"); err == nil || !strings.Contains(out, "push.max of the automation: 2") {
		t.Errorf("%v %s", err, out)
	}
}

// TestPushElsewhere: what a run has pushed to one branch, it may put on top of another one, although the
// commits do not come a second time.
func TestPushElsewhere(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{})
	w.must(work, "checkout", "-q", "-b", "theirs", "origin/triphammer/theirs")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "on top of theirs")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "and one more")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/mine")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/theirs")
}

// TestPushTwice: a run does not rewrite what others pushed by a push of its own before, whatever it pushes between.
// Its own commits on top of that it may replace.
func TestPushTwice(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{})
	w.must(work, "checkout", "-q", "-b", "theirs", "origin/triphammer/theirs")
	refused := func(from string) {
		t.Helper()
		if out, err := w.git(work, "push", "-f", "origin", from+":triphammer/theirs"); err == nil || !strings.Contains(out, "does not rewrite what") {
			t.Errorf("%s replaced theirs: %v %s", from, err, out)
		}
	}
	for range 2 {
		w.must(work, "commit", "-q", "--allow-empty", "-m", "on top of theirs")
		w.must(work, "push", "-q", "origin", "HEAD:triphammer/theirs")
		refused("origin/main")
	}
	w.must(work, "commit", "-q", "--amend", "--allow-empty", "-m", "better")
	w.must(work, "push", "-q", "-f", "origin", "HEAD:triphammer/theirs")
	refused("origin/main")
	w.must(work, "push", "-q", "-f", "origin", "HEAD~2:triphammer/theirs") // as it was
	refused("origin/main")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/theirs")
	w.end()

	// Another run of the automation knows what the first one pushed.
	made := slices.DeleteFunc(w.pushed, refusedPush)
	p := newPushes(GatewayConfig{Pushes: task.Pushes{Earlier: made}})
	bare := filepath.Join(w.root, "example/app.git")
	id := func(name string) string { return strings.TrimSpace(gittest.Git(t, bare, "rev-parse", name)) }
	c := command{id("triphammer/theirs"), id("main"), "refs/heads/triphammer/theirs"}
	s, err := newServed(Repository{URL: made[0].Repository, Credential: secret.New("x")})
	if err != nil || p.keeps(s, c) || len(p.below(s, c)) == 0 {
		t.Errorf("%v: %+v may become %s", err, made, c.New)
	}
}

// TestPackCommits: the commits of packs that Git writes are read, also as deltas.
func TestPackCommits(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir := t.TempDir()
		gittest.Git(t, dir, "init", "-q", "--object-format="+format, "-b", "main")
		long := strings.Repeat("the same words in each message, so that Git stores differences\n", 60)
		for i := range 40 {
			gittest.Git(t, dir, "commit", "-q", "--allow-empty", "-m", long+strings.Repeat("x", i))
		}
		tip, first := gittest.Git(t, dir, "rev-parse", "HEAD"), gittest.Git(t, dir, "rev-list", "--max-parents=0", "HEAD")
		tip, first = strings.TrimSpace(tip), strings.TrimSpace(first)
		for _, option := range []string{"--delta-base-offset", "--no-reuse-delta"} {
			cmd := exec.CommandContext(t.Context(), "git", "-C", dir, "pack-objects", "--stdout", "--revs", "-q", "--window=50", option)
			cmd.Stdin = strings.NewReader("HEAD\n")
			data, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			p, err := readPack(bytes.NewReader(data), tip)
			if err != nil {
				t.Fatal(format, option, err)
			}
			if len(p.id) != 40 || !leads(p.parents, tip, first) || leads(p.parents, first, tip) || leads(p.parents, tip, strings.Repeat("1", len(tip))) {
				t.Errorf("%s %s: %d commits", format, option, len(p.id))
			}
		}
	}
}

// TestPackMemory: what is kept of a pack does not grow with the messages of its commits, and many commits of no
// bytes are too many.
func TestPackMemory(t *testing.T) {
	first := strings.Repeat("1", 40)
	commit := "tree " + first + "\nparent " + first + "\n\n" + strings.Repeat("x", maxCommitBytes/2)
	data := packOf(1, commit)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	p, err := readPack(strings.NewReader(data), first)
	if err != nil {
		t.Fatal(err)
	}
	known := pushes{parents: make(map[string][]string)}
	known.learn(p)
	p = nil
	if grown := int64(heap()) - int64(before); grown > maxCommitBytes/4 {
		t.Errorf("%d bytes are kept of a commit with one parent", grown)
	}
	if !leads(known.parents, commitID(commit), first) {
		t.Errorf("%d commits are known", len(known.parents))
	}
	p = &pack{bytes: maxCommitBytes - leastCommit, at: make(map[int64][]byte), id: make(map[string][]byte), parents: make(map[string][]string)}
	if first, second := p.commit(0, nil), p.commit(1, nil); first != nil || second == nil {
		t.Error(first, second)
	}
}

func refusedPush(e event.Push) bool { return e.Refused != "" }

// FuzzReadPush: no bytes of a run make the reader of pushes panic, it reads no byte of the pack,
// and a forge reads what was read here.
func FuzzReadPush(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add([]byte(packet(strings.Repeat("0", 40)+" "+id+" refs/heads/a\x00 report-status side-band-64k push-options\n") + flush + packet("o") + flush + "PACK"))
	f.Add([]byte(packet("shallow "+id) + packet(id+" "+id+" refs/tags/v1") + flush))
	f.Add([]byte(packet("push-cert\x00x") + flush))
	f.Fuzz(func(t *testing.T, sent []byte) {
		from := bytes.NewReader(sent)
		p, err := readPush(from)
		if err != nil {
			return
		}
		if read := len(sent) - from.Len(); read != p.size {
			t.Errorf("%q: %d bytes were read, not %d", sent, read, p.size)
		}
		if !p.signed {
			again, err := readPush(bytes.NewReader(p.encode()))
			if err != nil || !slices.Equal(again.commands, p.commands) || !slices.Equal(again.shallow, p.shallow) || len(p.commands) > 0 && !slices.Equal(again.capable, p.capable) || again.more {
				t.Errorf("%+v became %+v: %v", p, again, err)
			}
		}
		for _, c := range p.commands {
			if !refName(c.Ref) || len(c.Old) != len(c.New) {
				t.Errorf("%+v", c)
			}
		}
		report := &results{banded: p.can("side-band-64k")}
		_, _ = report.Write(p.refuse(map[string]string{"refs/heads/a": "no"}))
		for ref, reason := range report.outcomes() {
			if reason == "" {
				t.Errorf("a refusal accepts %q", ref)
			}
		}
	})
}

// FuzzReadPack: no bytes of a run make the reader of packs panic or take much memory.
func FuzzReadPack(f *testing.F) {
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x90\x78\x9c\x03\x00\x00\x00\x00\x01"))
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if p, err := readPack(bytes.NewReader(sent), strings.Repeat("0", 40)); err == nil && p.bytes > maxCommitBytes {
			t.Errorf("%d bytes", p.bytes)
		}
	})
}

// FuzzApplyDelta: no delta makes an object that is larger than it says.
func FuzzApplyDelta(f *testing.F) {
	f.Add([]byte("base"), []byte{4, 4, 0x90, 4})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		if made, err := applyDelta(base, delta); err == nil && len(made) > maxCommitBytes {
			t.Errorf("%d bytes", len(made))
		}
	})
}
