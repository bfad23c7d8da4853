//go:build full

package applier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/applier/gitrepo/gittest"
)

// faulty answers for git now and then, in the ways in which servers and networks
// fail.
type faulty struct {
	mu     sync.Mutex
	random *rand.Rand
	git    http.Handler
	off    bool
	did    map[string]int
}

func (f *faulty) draw() (kind, at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return -1, 0
	}
	return f.random.IntN(16), f.random.IntN(1 << 20)
}

func (f *faulty) answer(w http.ResponseWriter, r *http.Request) bool {
	kind, at := f.draw()
	names := []string{"error", "denied", "nonsense", "cut off", "a wrong byte", "redirect", "nothing"}
	if kind < 0 || kind >= len(names) {
		return false
	}
	f.mu.Lock()
	f.did[names[kind]]++
	f.mu.Unlock()
	switch names[kind] {
	case "error":
		http.Error(w, "later", http.StatusServiceUnavailable)
	case "denied":
		http.Error(w, "no", http.StatusForbidden)
	case "nonsense":
		_, _ = w.Write([]byte("<html>maintenance</html>"))
	case "redirect":
		http.Redirect(w, r, "https://elsewhere.example.com"+r.URL.Path, http.StatusFound)
	case "nothing":
		panic(http.ErrAbortHandler)
	default:
		rec := httptest.NewRecorder()
		f.git.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.WriteHeader(rec.Code)
		if len(body) == 0 {
			return true
		}
		if names[kind] == "cut off" {
			_, _ = w.Write(body[:at%len(body)])
			panic(http.ErrAbortHandler)
		}
		body[at%len(body)] ^= 1 << (at % 8)
		_, _ = w.Write(body)
	}
	return true
}

// soakPushes is how many pushes a soak has: TRIPHAMMER_SOAK of them, or as many as
// every change can wait for.
func soakPushes(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("TRIPHAMMER_SOAK")
	if !ok {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("TRIPHAMMER_SOAK: %v", err)
	}
	return n
}

// TestSoak: hundreds of pushes of all kinds, to a remote that fails in all ways,
// with a cache that is damaged and a record that fails now and then. What serves
// is a good commit at any time, and in the end the last good one (SPEC 4.2, 4.8).
func TestSoak(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	r := newRemote(t)
	r.records.SetSecret("HOOK_SECRET", "s3cret")
	s := gittest.Serve(t, filepath.Dir(r.bare))
	faults := &faulty{random: rand.New(rand.NewPCG(seed, 2)), git: s.Backend, did: make(map[string]int)}
	s.Fault(faults.answer)
	cache := filepath.Join(t.TempDir(), "cache")
	source, err := gitrepo.OpenRemote(gitrepo.RemoteConfig{
		URL: s.URL + "/f.git", Branch: "main", Cache: cache, Poll: 20 * time.Millisecond, Credentials: gitrepo.Credentials{CAFile: s.CAFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.Source = source
	var recording sync.Mutex
	harmed, unrecorded := 0, 0
	fails := rand.New(rand.NewPCG(seed, 3))
	r.records.onRecord = func(context.Context, *Apply) error {
		recording.Lock()
		defer recording.Unlock()
		if fails.IntN(20) == 0 {
			unrecorded++
			return errors.New("disk full")
		}
		return nil
	}
	r.cfg.OnChange = func(State) {}
	a := New(r.cfg)
	start(t, a)

	good := map[string]bool{}
	var commits []string
	commit := func(valid bool) string {
		t.Helper()
		n := len(commits)
		r.write(t, "factory.yaml", factoryYAML+fmt.Sprintf("description: number %d\n", n))
		r.write(t, "notes/large", strings.Repeat(fmt.Sprint(random.Uint64(), "\n"), 2000))
		if valid {
			r.write(t, "webhooks/hook.yaml", webhookYAML)
			if n%3 > 0 {
				r.write(t, "automations/a.md", automation)
			} else {
				_ = os.RemoveAll(filepath.Join(r.work, "automations")) // most of it goes
			}
		} else {
			r.write(t, "webhooks/hook.yaml", "colour: green\n")
		}
		gittest.Git(t, r.work, "add", "-A")
		gittest.Git(t, r.work, "commit", "-q", "-m", fmt.Sprint("number ", n))
		hash := gittest.Git(t, r.work, "rev-parse", "HEAD")
		commits = append(commits, hash)
		good[hash] = valid
		return hash
	}
	pushes := 0
	push := func(hash string) {
		pushes++
		gittest.Git(t, r.work, "push", "-qf", "origin", hash+":refs/heads/main")
	}
	check := func() {
		t.Helper()
		if live, ok := r.cfg.Live.Revision("default"); ok && !good[live.Commit.Hash] {
			t.Fatalf("%s serves, which is not good", live.Commit.Hash)
		}
	}
	settle := func(what string, is func(State) bool) State {
		t.Helper()
		for deadline := time.Now().Add(60 * time.Second); ; {
			a.Kick("push")
			check()
			switch s := a.State(); {
			case is(s):
				return s
			case time.Now().After(deadline):
				t.Fatalf("%s: %+v", what, s)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	push(commit(true))
	for wanted := soakPushes(t); pushes < wanted; {
		switch random.IntN(12) {
		case 0, 1, 2, 3:
			push(commit(true))
		case 4, 5, 6:
			push(commit(false))
		case 7, 8:
			push(commits[random.IntN(len(commits))])
		case 9:
			gittest.Git(t, r.bare, "update-ref", "-d", "refs/heads/main")
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
			push(commits[random.IntN(len(commits))])
		case 10:
			gittest.Git(t, r.bare, "gc", "-q", "--prune=now")
		case 11: // the cache loses or changes a file
			harmed++
			files, _ := filepath.Glob(filepath.Join(cache, "objects", "pack", "*"))
			for _, extra := range []string{"HEAD", "shallow", "config"} {
				files = append(files, filepath.Join(cache, extra))
			}
			file := files[random.IntN(len(files))]
			_ = os.Chmod(file, 0o600) // it may be gone
			if info, err := os.Stat(file); err == nil && random.IntN(2) == 0 {
				_ = os.Truncate(file, info.Size()/2)
			} else {
				_ = os.Remove(file)
			}
		}
		if random.IntN(3) == 0 {
			a.Kick("push")
		}
		check()
	}
	// Once more each, with the faults still there.
	last := commit(true)
	push(last)
	settle("a good commit", func(s State) bool { return s.Applied != nil && s.Applied.Commit.Hash == last && s.Error == "" })
	bad := commit(false)
	push(bad)
	settle("a bad commit", func(s State) bool { return s.Head == bad && s.Reason == Invalid })
	if live, _ := r.cfg.Live.Revision("default"); live.Commit.Hash != last {
		t.Errorf("%s serves, the last good one is %s", live.Commit.Hash, last)
	}
	push(last)
	settle("back", func(s State) bool { return s.Head == last && s.Error == "" })
	if live, _ := r.cfg.Live.Revision("default"); live.Commit.Hash != last {
		t.Errorf("%s serves, the last good one is %s", live.Commit.Hash, last)
	}
	counts := make(map[Outcome]int)
	recording.Lock()
	defer recording.Unlock()
	faults.mu.Lock() // looks go on
	defer faults.mu.Unlock()
	for _, one := range r.records.Applies() {
		counts[one.Outcome]++
		if one.Outcome == Applied && !good[one.Commit.Hash] || one.Outcome == Refused && good[one.Commit.Hash] {
			t.Errorf("%s was %s", one.Commit.Hash, one.Outcome)
		}
	}
	t.Logf("%d pushes of %d commits; applies %v; faults of the remote %v, of the cache %d, of the record %d", pushes, len(commits), counts, faults.did, harmed, unrecorded)
	if counts[Applied] < 20 || counts[Refused] < 5 || len(faults.did) < 7 {
		t.Error("too little has happened to prove anything")
	}
}
