package executor

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// push commits files to a branch of the forge.
func (f *forge) push(t *testing.T, ref string, files map[string]string) {
	t.Helper()
	work := t.TempDir()
	git(t, work, "clone", "-q", f.bare, ".")
	for name, text := range files {
		write(t, work, name, text)
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "more")
	git(t, work, "push", "-q", f.bare, "HEAD:"+ref)
}

// TestCache: what the setup commands made is there for later runs with the same lock files, as it was before the
// agent of the earlier run, and whoever runs the code of an event only reads it (SPEC 15.9).
func TestCache(t *testing.T) {
	forge := newForge(t)
	forge.push(t, "refs/heads/main", map[string]string{"app.lock": "1", "sub/app.lock": "1"})
	forge.push(t, "refs/heads/topic", map[string]string{"app.lock": "topic"})
	e := newExecutor(t, 0)
	e.roots = forge.roots
	head := &task.Head{What: "branch topic", Fetch: "refs/heads/topic", Branch: "topic", Base: "main"}
	const setup = `[ -e dep/file ] && echo used >state || { echo made >state; mkdir -p dep/closed ~/.tool; echo right >dep/file; echo '#!/bin/sh
echo runs' >dep/program; chmod 755 dep/program; ln -s file dep/link; ln -s /etc/passwd dep/out; touch -d @1000 dep/file; echo kept >dep/closed/x; chmod 555 dep/closed; echo home >~/.tool/x; echo not >other; }`
	const agent = `cat state dep/link dep/closed/x ~/.tool/x; dep/program; readlink dep/out; stat -c '%Y %a' dep/file; stat -c %a dep/closed; [ state -nt dep/file ] && ls other 2>/dev/null
echo poison | tee dep/file ~/.tool/x >/dev/null; for f in ../../../.cache/*/*; do echo poison >"$f"; done 2>/dev/null; true`
	const content = "right\nkept\nhome\nruns\n/etc/passwd\n1000 644\n555\n"
	for i, c := range []struct {
		name, want string
		change     func(*task.Task)
		kept       bool
	}{
		{"the event's code, before anybody else", "made\n" + content + "other\n", func(w *task.Task) { w.Repositories[0].Head = head }, false},
		{"a setup that fails", "", func(w *task.Task) { w.Setup = append(w.Setup, "false") }, false},
		{"the first", "made\n" + content + "other\n", nil, true},
		{"the second", "used\n" + content, nil, false},
		{"another setup", "made\n" + content + "other\n", func(w *task.Task) { w.Setup = append(w.Setup, "true") }, true},
		{"another environment", "made\n" + content + "other\n", func(w *task.Task) { w.Cache.Scope = "f/other" }, true},
		{"the event's code, with another lock file", "made\n" + content + "other\n", func(w *task.Task) { w.Repositories[0].Head = head }, false},
		{"the code of a fork, with the same lock files", "used\n" + content, func(w *task.Task) {
			w.Foreign, w.Repositories[0].Head = true, &task.Head{What: "pull request 1", Fetch: "refs/heads/main", Foreign: true}
		}, false},
		{"no lock file", "made\n" + content + "other\n", func(w *task.Task) { w.Cache.Files = []string{"none.lock"} }, false},
	} {
		if isolation == None && c.name == "the second" {
			continue // nothing keeps its agents from the archives
		}
		r, work := newRecorder(), forge.task(agent)
		work.RunID = fmt.Sprintf("run_%d", i)
		work.Setup, work.Cache = []string{setup}, &task.Cache{Scope: "f/e", Paths: []string{"dep", "missing", "~/.tool"}, Files: []string{"app.lock", "*/app.lock"}}
		if c.change != nil {
			c.change(work)
		}
		before := archives(t, e)
		exit, err := e.Start(t.Context(), work, r)
		if c.want != "" && (err != nil || exit.Code != 0) {
			t.Fatal(c.name, exit, err, r.said("stderr"))
		}
		said := ""
		for _, s := range of[event.Status](r) {
			said += s.Message + "\n"
		}
		if isolation == None && strings.HasPrefix(c.want, "used") {
			continue
		}
		if got := r.said("stdout"); got != c.want {
			t.Errorf("%s: the agent printed %q, want %q\n%s%s", c.name, got, c.want, said, r.said("stderr"))
		}
		if kept := archives(t, e) > before; kept != c.kept || kept != strings.Contains(said, "cache: kept ") {
			t.Errorf("%s: an archive is kept: %v\n%s", c.name, kept, said)
		}
	}
}

// archives counts what is kept.
func archives(t *testing.T, e *Executor) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(e.dir, cacheFolder, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestCacheDamaged: an archive that cannot be read costs time only.
func TestCacheDamaged(t *testing.T) {
	forge := newForge(t)
	forge.push(t, "refs/heads/main", map[string]string{"app.lock": "1"})
	e := newExecutor(t, 0)
	e.roots = forge.roots
	for _, damaged := range []string{"", "no archive", strings.Repeat("no archive", 100)} {
		all, _ := filepath.Glob(filepath.Join(e.dir, cacheFolder, "*", "*"))
		for _, name := range all {
			if err := os.WriteFile(name, []byte(damaged), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, work := newRecorder(), forge.task("cat dep")
		work.Setup, work.Cache = []string{"echo made >dep"}, &task.Cache{Scope: "f/e", Paths: []string{"dep"}, Files: []string{"app.lock"}}
		if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 || r.said("stdout") != "made\n" {
			t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
		}
	}
}

// TestCacheTooLarge: an archive that was not written to its end is not kept.
func TestCacheTooLarge(t *testing.T) {
	k := &kept{dir: t.TempDir(), logger: slog.New(slog.DiscardHandler), may: true, sweep: func() error { return nil }}
	k.write([]byte("some"))
	k.size = inside.MaxCache
	k.write([]byte("more"))
	k.use(strings.Repeat("0", 64))
	if left, err := os.ReadDir(k.dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestSweepCaches: what nobody uses goes, and the oldest when there is too much.
func TestSweepCaches(t *testing.T) {
	e := newExecutor(t, 0)
	keep := func(name string, age time.Duration) {
		path := filepath.Join(e.dir, cacheFolder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 100), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.sweepCaches(maxCaches); err != nil {
		t.Fatal(err)
	}
	keep("a/new", time.Hour)
	keep("a/"+newCache+"1", 2*time.Hour)
	keep("b/old", 3*time.Hour)
	keep("b/unused", cacheAge+time.Hour)
	keep("b/"+newCache+"2", cacheAge+time.Hour)
	for _, c := range []struct {
		most int64
		left int
	}{{maxCaches, 3}, {250, 2}, {0, 1}} {
		if err := e.sweepCaches(c.most); err != nil || archives(t, e) != c.left {
			t.Errorf("of at most %d bytes, %d are left, want %d: %v", c.most, archives(t, e), c.left, err)
		}
	}
	if _, err := e.Reclaim(t.Context(), func() bool { return false }, func(string) bool { return true }); err != nil {
		t.Error(err)
	}
}

// TestMirrors: a second run has from the mirror what the first one cloned; no agent reaches the mirror; and what
// nobody uses goes, but not under a run (SPEC 15.10).
func TestMirrors(t *testing.T) {
	forge := newForge(t)
	e := newExecutor(t, 0)
	e.roots = forge.roots
	agent := `git log --format=%s; for f in $(find ../../../.mirrors -type f 2>/dev/null); do echo "$f"; echo poison >"$f"; done 2>/dev/null; true`
	if isolation == None { // nothing keeps its agents from the mirrors
		agent = "git log --format=%s"
	}
	for i := range 2 {
		r, work := newRecorder(), forge.task(agent)
		work.RunID, work.Factory = fmt.Sprintf("run_%d", i), "f"
		if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 || r.said("stdout") != "one\n" {
			t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
		}
		said := ""
		for _, s := range of[event.Status](r) {
			said += s.Message + "\n"
		}
		if !strings.Contains(said, "from the mirror of this worker, for which the forge sent") {
			t.Errorf("run %d: %s", i, said)
		}
	}
	mirrors := func() []string {
		all, err := filepath.Glob(filepath.Join(e.dir, mirrorFolder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := mirrors()
	if len(all) != 1 {
		t.Fatal(all)
	}
	forge.noToken(t, filepath.Join(e.dir, mirrorFolder))
	if info, err := os.Stat(filepath.Join(e.dir, mirrorFolder)); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	for _, c := range []struct {
		most int64
		age  time.Duration
		left int
	}{{maxCaches, cacheAge - time.Hour, 1}, {1 << 20, 0, 0}, {maxCaches, cacheAge + time.Hour, 0}} {
		if err := os.MkdirAll(all[0], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(all[0], "more"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(all[0], time.Time{}, time.Now().Add(-c.age)); err != nil {
			t.Fatal(err)
		}
		if err := e.sweepCaches(c.most); err != nil {
			t.Error(err)
		}
		if left := mirrors(); len(left) != c.left {
			t.Errorf("%+v: %v", c, left)
		}
	}
}

// sends counts what the forge sends.
type sends struct {
	http.ResponseWriter
	sum *atomic.Int64
}

func (s sends) Write(part []byte) (int, error) {
	s.sum.Add(int64(len(part)))
	return s.ResponseWriter.Write(part)
}

// TestMirrorHead: a run on what its event is about has the whole history and the files, and the forge sends a
// second run no files again (SPEC 15.10, 21.7).
func TestMirrorHead(t *testing.T) {
	forge := newForge(t)
	git(t, forge.bare, "config", "uploadpack.allowFilter", "true") // as forges do
	old, big := make([]byte, 1<<20), make([]byte, 1<<20)
	_, _ = rand.Read(old)
	_, _ = rand.Read(big)
	forge.push(t, "refs/heads/main", map[string]string{"big": string(old)})
	forge.push(t, "refs/heads/main", map[string]string{"big": string(big)})
	forge.push(t, "refs/heads/topic", map[string]string{"small": "topic"})
	var sent atomic.Int64
	forge.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if _, password, _ := r.BasicAuth(); password != forgeToken {
			return false
		}
		forge.Backend.ServeHTTP(sends{w, &sent}, r)
		return true
	})
	e := newExecutor(t, 0)
	e.roots = forge.roots
	for i, most := range []int64{3 << 19, 1 << 16} {
		r := newRecorder()
		work := forge.task(`git rev-parse --is-shallow-repository; git log --format=%s origin/main..; git rev-list --count HEAD; wc -c <big; git status --short; git fsck --connectivity-only >/dev/null`)
		work.RunID = fmt.Sprintf("run_%d", i)
		work.Repositories[0].Head = &task.Head{What: "pull request 1", Fetch: "refs/heads/topic", Branch: "topic", Base: "main"}
		if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 || r.said("stdout") != "false\nmore\n4\n1048576\n" {
			t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
		}
		if n := sent.Swap(0); n > most {
			t.Errorf("run %d: the forge sent %d bytes", i, n)
		}
	}
	// What has changed since comes when something asks for it.
	r, work := newRecorder(), forge.task("git show HEAD~2:big | wc -c")
	work.RunID, work.Resume = "run_1", true
	if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 || r.said("stdout") != "1048576\n" || sent.Load() < 1<<20 {
		t.Error(exit, err, r.said("stdout"), r.said("stderr"), sent.Load())
	}
}
