package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

const (
	token      = "c4nary-token"
	signingKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// service is a fake of a service's API: it keeps what it was asked.
type service struct {
	mu     sync.Mutex
	asked  []string // method, path, credential and body
	answer func(n int) int
	heard  chan struct{}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	credential := r.Header.Get("Authorization") + r.Header.Get("Private-Token")
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.EscapedPath()+" "+credential+" "+string(body))
	n := len(s.asked)
	s.mu.Unlock()
	w.WriteHeader(s.answer(n))
	_, _ = io.WriteString(w, `{"message":"`+token+`"}`)
	s.heard <- struct{}{}
}

func (s *service) wait(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-s.heard:
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was sent")
		}
	}
}

// logged is what was logged, to be read while more is.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// world is a store and a Teller of it, which can be stopped and started again.
type world struct {
	*testing.T
	dir   string
	url   string
	store *store.Store
	log   logged
	stop  func() // the Teller and the store
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, dir: t.TempDir(), url: storetest.URL(t)}
	w.open()
	t.Cleanup(func() {
		w.stop()
		if text := w.log.String(); strings.Contains(text, token) || strings.Contains(text, signingKey) {
			t.Errorf("the log holds a secret: %s", text)
		}
	})
	return w
}

func (w *world) open() {
	w.Helper()
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		w.Fatal(err)
	}
	opened, err := store.Open(context.Background(), store.Config{Path: filepath.Join(w.dir, "db"), URL: w.url, Key: key})
	if err != nil {
		w.Fatal(err)
	}
	w.store = opened
	w.stop = sync.OnceFunc(func() {
		if err := opened.Close(); err != nil {
			w.Error(err)
		}
	})
}

// start starts a Teller for those who want to know.
func (w *world) start(commits *Commits, runs *Runs) (changed func(applier.State)) {
	w.Helper()
	teller := New(w.store, time.Now, slog.New(slog.NewTextHandler(&w.log, nil)))
	if commits != nil {
		commits.Factory, commits.Secret = "default", func(context.Context) (string, error) { return signingKey, nil }
		var err error
		if changed, err = teller.Commits(*commits); err != nil {
			w.Fatal(err)
		}
	}
	if runs != nil {
		teller.Runs(*runs)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- teller.Run(ctx) }()
	closeStore := w.stop
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
		closeStore()
	})
	return changed
}

func tokenFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func applied(commit string) applier.State {
	r := &applier.Revision{Commit: gitrepo.Commit{Hash: commit}}
	return applier.State{Factory: "default", Head: commit, Applied: r, LastApply: &applier.Apply{ID: "apl_1", Outcome: applier.Applied, Commit: r.Commit}}
}

func refused(commit string) applier.State {
	s := applied("c0")
	s.Head, s.Error, s.Reason, s.Since = commit, "commit "+commit+" is refused: a.md:3: "+strings.Repeat("no ", 100), applier.Invalid, time.Now()
	s.LastApply = &applier.Apply{ID: "apl_2", Outcome: applier.Refused, Commit: gitrepo.Commit{Hash: commit}, Diagnostics: slices.Repeat(schema.Diagnostics{{Severity: schema.Error}}, 30)}
	return s
}

// refusedFor is a commit that is refused for one reason.
func refusedFor(commit, code string) applier.State {
	s := refused(commit)
	s.LastApply.Diagnostics = schema.Diagnostics{{Severity: schema.Error, Code: code}, {Severity: schema.Warning}}
	return s
}

func unreachable(why string, since time.Time) applier.State {
	s := applied("c0")
	s.Error, s.Reason, s.Since, s.NextAttempt = why, applier.Unreachable, since, time.Now().Add(time.Second)
	return s
}

// receiver checks messages as a sender of Standard Webhooks expects it, without
// a network.
type receiver struct {
	t    *testing.T
	mu   sync.Mutex
	got  []string // type, reason and head
	ids  []string
	fail int // how many of the next are not taken
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail > 0 {
		r.fail--
		return nil, errors.New("no route")
	}
	body, _ := io.ReadAll(req.Body)
	scheme, _ := signature.Lookup("standard_webhooks")
	verifier, err := scheme.Verifier(signingKey)
	if err == nil {
		err = verifier.Verify(&signature.Request{Method: req.Method, URL: req.URL.String(), Header: req.Header, Body: body, Now: time.Now()})
	}
	var e Event
	if err := errors.Join(err, json.Unmarshal(body, &e)); err != nil {
		r.t.Errorf("a message cannot be verified: %v", err)
	}
	var found []any
	if e.Data.Diagnostics != nil {
		if err := json.Unmarshal(e.Data.Diagnostics, &found); err != nil || len(found) > 20 {
			r.t.Errorf("%d findings, %v", len(found), err)
		}
	}
	r.got = append(r.got, fmt.Sprintf("%s %s %s", e.Type, e.Data.Reason, e.Data.Head))
	r.ids = append(r.ids, req.Header.Get("Webhook-Id"))
	return &http.Response{StatusCode: http.StatusAccepted, Status: "202 Accepted", Body: http.NoBody, Request: req}, nil
}

// TestMessages: one message when a problem begins and one when it ends. What may
// heal by itself is told if it lasts; a receiver that is away is tried again.
func TestMessages(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		r, w := &receiver{t: t}, newWorld(t)
		changed := w.start(&Commits{Hook: Hook{URL: "https://example.com/" + token, Client: &http.Client{Transport: r}}, BaseURL: "https://hammer.example.com"}, nil)
		expect := func(what string, want ...string) { t.Helper(); r.take(t, what, want...) }
		changed(applied("c1"))
		expect("all is well")
		changed(refused("c2"))
		expect("a refusal", "apply.failed invalid c2")
		changed(refused("c2"))
		time.Sleep(time.Hour)
		expect("the same refusal")
		changed(refused("c3"))
		expect("another one", "apply.failed invalid c3")
		changed(applied("c4"))
		expect("recovered", "apply.recovered  c4")

		for i := range 10 { // for a short while, in other words each time
			changed(unreachable(fmt.Sprint("timeout ", i), time.Now()))
			time.Sleep(10 * time.Second)
		}
		changed(applied("c4"))
		time.Sleep(time.Hour)
		expect("a short outage")
		for i := range 100 {
			changed(unreachable(fmt.Sprint("timeout ", i), time.Now()))
			time.Sleep(10 * time.Second)
		}
		expect("a long outage", "apply.failed unreachable c0")
		changed(applied("c4"))
		expect("its end", "apply.recovered  c4")
		changed(unreachable("down", time.Now()))
		time.Sleep(patience + time.Second) // nobody says anything meanwhile
		expect("another outage", "apply.failed unreachable c0")
		changed(applied("c4"))
		expect("its end", "apply.recovered  c4")
		r.mu.Lock()
		seen := slices.Clone(r.ids)
		r.mu.Unlock()
		if len(slices.Compact(slices.Sorted(slices.Values(seen)))) != len(seen) {
			t.Errorf("ids twice: %v", seen)
		}

		failNext := func(n int) { r.mu.Lock(); r.fail = n; r.mu.Unlock() }
		failNext(5)
		changed(refused("c5"))
		time.Sleep(time.Minute)
		expect("after five failures", "apply.failed invalid c5")
		failNext(1000)
		changed(refused("c6"))
		time.Sleep(time.Hour)
		failNext(0)
		time.Sleep(again + patience)
		expect("one was given up and is told while it lasts", "apply.failed invalid c6")
		time.Sleep(time.Hour)
		expect("once")
		failNext(1000)
		changed(applied("c7"))
		time.Sleep(time.Hour)
		failNext(0)
		time.Sleep(again + patience)
		expect("so is the end", "apply.recovered  c7")
		if text := w.log.String(); !strings.Contains(text, "tries=8") || !strings.Contains(text, "https://example.com: no route") {
			t.Errorf("log: %s", text)
		}
	})
}

// both tells a service and a receiver, both without a network.
func both(t *testing.T, service, messages http.RoundTripper) (changed func(applier.State)) {
	return newWorld(t).start(&Commits{
		Service: "github", Project: Project{API: "https://api.example.com", Path: "team/f"}, TokenFile: tokenFile(t),
		Hook: Hook{URL: "https://example.com/", Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "example.com" {
				return messages.RoundTrip(r)
			}
			return service.RoundTrip(r)
		})}},
	}, nil)
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hangs is a service that takes requests and answers none.
var hangs = transport(func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
})

func (r *receiver) take(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.got, want) {
		t.Errorf("%s: %q, want %q", what, r.got, want)
	}
	r.got = nil
}

// TestServicesApart: a service of commit statuses that is down holds back no
// message, nor the other way round; and when it is back it hears the newest.
func TestServicesApart(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{t: t}
		var mu sync.Mutex
		var statuses []string
		down := true
		service := transport(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return nil, errors.New("no route")
			}
			statuses = append(statuses, filepath.Base(req.URL.Path))
			return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: req}, nil
		})
		changed := both(t, hangs, r)
		for i := range 5 {
			changed(refused(fmt.Sprint("c", i)))
			r.take(t, "beside a service that hangs", fmt.Sprint("apply.failed invalid c", i))
		}
		changed = both(t, service, hangs)
		changed(refused("c8"))
		time.Sleep(time.Hour)
		changed(refused("c9"))
		time.Sleep(time.Hour)
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(again + patience)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(statuses, []string{"c9", "c9"}) {
			t.Errorf("statuses of %v", statuses)
		}
	})
}

// TestTriesAreOfTheClock: many changes in a short while are no tries, and what was
// refused or given up is told while it lasts.
func TestTriesAreOfTheClock(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{t: t}
		var mu sync.Mutex
		var attempts []time.Duration
		begin, status, back := time.Now(), 0, 20*time.Second
		misbehaves := transport(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			since := time.Since(begin)
			attempts = append(attempts, since)
			switch {
			case since >= back:
				return r.RoundTrip(req)
			case status != 0:
				return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody, Request: req}, nil
			}
			return nil, errors.New("no route")
		})
		changed := both(t, hangs, misbehaves)
		for range 30 {
			changed(refused("c1"))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.take(t, "a receiver that was away for 20 s", "apply.failed invalid c1")
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second}
		if mu.Lock(); !slices.Equal(attempts, want) {
			t.Errorf("attempts at %v, want %v", attempts, want)
		}
		mu.Unlock()
		for _, code := range []int{http.StatusNotFound, http.StatusServiceUnavailable} {
			mu.Lock()
			begin, status, back, attempts = time.Now(), code, 3*time.Hour+time.Minute, nil
			mu.Unlock()
			changed(refused(fmt.Sprint("c", code)))
			time.Sleep(3 * time.Hour)
			r.take(t, "refused for hours")
			time.Sleep(again + patience)
			r.take(t, "and then not", fmt.Sprint("apply.failed invalid c", code))
			mu.Lock()
			if len(attempts) > 8*19 {
				t.Errorf("%d: %d attempts", code, len(attempts))
			}
			mu.Unlock()
		}
	})
}

// TestEachProblemLasts: while a refused commit stands, a repository that does not
// answer is a problem of its own: told when it lasts, once, as is the other.
func TestEachProblemLasts(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{t: t}
		changed := both(t, hangs, r)
		hiccup := func(reason applier.Reason) applier.State {
			s := refused("c1")
			s.Error, s.Reason, s.Since, s.NextAttempt = "it hiccups at "+time.Now().String(), reason, time.Now(), time.Now().Add(time.Second)
			return s
		}
		changed(refused("c1"))
		r.take(t, "a refusal", "apply.failed invalid c1")
		for range 60 {
			time.Sleep(10 * time.Minute)
			changed(hiccup(applier.Unreachable))
			time.Sleep(10 * time.Second)
			changed(refused("c1"))
		}
		r.take(t, "hiccups")
		changed(hiccup(applier.Unreachable))
		time.Sleep(patience - time.Second)
		r.take(t, "not yet")
		time.Sleep(2 * time.Second) // nothing changes: a look takes its time
		r.take(t, "an outage", "apply.failed unreachable c1")
		time.Sleep(time.Hour)
		changed(hiccup(applier.Denied))
		time.Sleep(10 * time.Second)
		changed(hiccup(applier.Unreachable))
		time.Sleep(time.Hour)
		changed(hiccup(applier.Denied)) // that of an hour ago does not count
		time.Sleep(10 * time.Second)
		changed(hiccup(applier.Unreachable))
		time.Sleep(time.Hour)
		r.take(t, "the same outage, with a hiccup of another kind")
		changed(refused("c1"))
		time.Sleep(time.Hour)
		r.take(t, "the same refusal")
		for range 10 { // never the same for long
			changed(hiccup(applier.Unreachable))
			time.Sleep(time.Minute)
			changed(hiccup(applier.Denied))
			time.Sleep(time.Minute)
		}
		r.take(t, "an outage of two kinds", "apply.failed unreachable c1", "apply.failed denied c1")
		changed(refused("c2"))
		r.take(t, "another refusal", "apply.failed invalid c2")
		changed(applied("c3"))
		r.take(t, "recovered", "apply.recovered  c3")
		time.Sleep(time.Hour)
		r.take(t, "nothing more")
	})
}

// TestRestart: what happened to a commit or a run while nobody could be told, or
// right before the server ended, is told by the next server, once.
func TestRestart(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		r, w := &receiver{t: t, fail: 1000}, newWorld(t)
		commits := &Commits{Hook: Hook{URL: "https://example.com/", Client: &http.Client{Transport: r}}}
		restart := func(states ...applier.State) {
			w.stop()
			w.open()
			changed := w.start(commits, nil)
			changed(applier.State{Factory: "default", Applied: applied("c0").Applied}) // nobody looked yet
			synctest.Wait()
			for _, s := range states {
				changed(s)
				synctest.Wait()
			}
		}
		w.start(commits, nil)(refused("c1"))
		time.Sleep(10 * time.Second) // in vain
		r.take(t, "a receiver that is away")
		r.mu.Lock()
		r.fail = 0
		r.mu.Unlock()
		restart()
		time.Sleep(time.Minute)
		r.take(t, "by the next server, which looked at no repository", "apply.failed invalid c1")
		restart(refused("c1"))
		time.Sleep(time.Hour)
		r.take(t, "what was told")
		restart(applied("c2"))
		r.take(t, "what ended meanwhile", "apply.recovered  c2")
		restart(applied("c2"))
		r.take(t, "once")
		if r.ids[1] != r.ids[0]+"_over" {
			t.Errorf("ids %v", r.ids)
		}
		r.mu.Lock()
		r.fail = 1000
		r.mu.Unlock()
		restart(refused("c3"))
		time.Sleep(5 * time.Minute) // it is given up
		r.mu.Lock()
		r.fail = 0
		r.mu.Unlock()
		restart(refused("c3"))
		r.take(t, "what was given up and is still so", "apply.failed invalid c3")
		restart(refused("c4"), refused("c3"))
		r.take(t, "the same commit after another one", "apply.failed invalid c4", "apply.failed invalid c3")
	})
}

// until waits for a condition of the store.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatal("waited in vain: " + what)
		}
	}
}
