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
	"net/http/httptest"
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
)

const (
	token  = "c4nary-token"
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
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

func start(t *testing.T, cfg Config) (*Notifier, *logged) {
	t.Helper()
	var log logged
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), token) || strings.Contains(log.String(), secret) {
			t.Errorf("the log holds a secret: %s", &log)
		}
	})
	return n, &log
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

// TestCommitStatus: each service is asked in its own way; what it cannot take now
// it is asked again, and what it refuses is given up, without a word of the
// credential.
func TestCommitStatus(t *testing.T) {
	for name, c := range map[string]struct{ path, credential, success, failure, pending string }{
		"github": {"/repos/team/factory/statuses/", "Bearer " + token, `"state":"success"`, `"state":"failure"`, `"state":"pending"`},
		"gitlab": {"/projects/team%2Ffactory/statuses/", token, `"state":"success"`, `"state":"failed"`, `"state":"pending"`},
		"gitea":  {"/repos/team/factory/statuses/", "token " + token, `"state":"success"`, `"state":"failure"`, `"state":"pending"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{heard: make(chan struct{}, 100), answer: func(n int) int {
				switch n {
				case 3:
					return http.StatusBadGateway
				case 6:
					return http.StatusForbidden
				}
				return http.StatusCreated
			}}
			server := httptest.NewServer(s)
			defer server.Close()
			n, _ := start(t, Config{
				Service: name, Project: Project{API: server.URL + "/api", Path: "team/factory"}, TokenFile: tokenFile(t), BaseURL: "https://hammer.example.com", Client: server.Client(),
			})
			n.Changed(applied("c1"))
			s.wait(t, 2)
			n.Changed(applied("c1")) // nothing new
			n.Changed(refused("c2"))
			s.wait(t, 3) // the first time in vain
			n.Changed(applied("c3"))
			s.wait(t, 2) // the first is forbidden: not again
			n.Changed(refusedFor("c4", schema.MissingSecret))
			s.wait(t, 2)
			n.Changed(refusedFor("c5", schema.UnverifiedCommit)) // nothing of it was read
			s.wait(t, 1)
			pinned := applied("c1")
			pinned.Head, pinned.Pin = "c6", &applier.Pin{Commit: "c1", Reason: "because"}
			n.Changed(pinned)
			s.wait(t, 1)
			const apply, validate = `"triphammer/apply"`, `"triphammer/validate"`
			want := [][]string{
				{"/api" + c.path + "c1", c.success, apply},
				{"/api" + c.path + "c1", c.success, validate, "warnings: 0"},
				{"c2", c.failure, "a.md:3", apply},
				{"c2", c.failure, "…", apply},
				{"c2", c.failure, "a.md:3", validate},
				{"c3", c.success, apply},
				{"c3", c.success, validate},
				{"c4", c.failure, apply},
				{"c4", c.success, validate, "warnings: 1"},
				{"c5", c.failure, apply},
				{"c6", c.pending, "because", apply},
			}
			if len(s.asked) != len(want) {
				t.Fatalf("asked %d times: %s", len(s.asked), strings.Join(s.asked, "\n"))
			}
			for i, parts := range want {
				for _, part := range append(parts, "POST ", c.credential+" {", `"https://hammer.example.com"`) {
					if !strings.Contains(s.asked[i], part) {
						t.Errorf("request %d lacks %s: %s", i, part, s.asked[i])
					}
				}
			}
		})
	}
	if _, err := New(Config{Service: "cvs"}); err == nil {
		t.Error("there is a service cvs")
	}
}

// TestProtection: each service is asked once whether the branch is protected; it
// is said if it is not, and only then.
func TestProtection(t *testing.T) {
	for service, path := range map[string]string{
		"github": "/repos/team/f/branches/release%2F1", "gitlab": "/projects/team%2Ff/repository/branches/release%2F1", "forgejo": "/repos/team/f/branches/release%2F1",
	} {
		for answer, want := range map[string]string{
			`{"name":"release/1","protected":false}`: "is not protected", `{"protected":true}`: "", `{"name":"x"}`: "does not say", `<html>`: "does not say",
		} {
			asked := make(chan string, 10)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, answer)
				asked <- fmt.Sprint(r.Method, " ", r.URL.EscapedPath(), " ", strings.Contains(r.Header.Get("Authorization")+r.Header.Get("Private-Token"), token))
			}))
			n, log := start(t, Config{Service: service, Project: Project{API: server.URL, Path: "team/f"}, TokenFile: tokenFile(t), Branch: "release/1", Client: server.Client()})
			if got := <-asked; got != "GET "+path+" true" {
				t.Errorf("%s was asked %s", service, got)
			}
			n.Changed(applied("c1"))
			if got := <-asked; !strings.HasPrefix(got, "POST ") { // what follows is sent after the answer was read
				t.Errorf("%s was asked %s", service, got)
			}
			if text := log.String(); want == "" && text != "" || !strings.Contains(text, want) {
				t.Errorf("%s, %s: logged %q", service, answer, text)
			}
			server.Close()
		}
	}
}

func TestProjectOf(t *testing.T) {
	for _, c := range []struct{ service, repository, api, path string }{
		{"github", "https://github.com/team/f.git", "https://api.github.com", "team/f"},
		{"github", "ssh://git@github.com/team/f.git", "https://api.github.com", "team/f"},
		{"github", "https://git.example.com:8443/team/f", "https://git.example.com:8443/api/v3", "team/f"},
		{"gitlab", "ssh://git@gitlab.com:2222/group/sub/f.git", "https://gitlab.com/api/v4", "group/sub/f"},
		{"gitea", "http://localhost:3000/team/f.git", "http://localhost:3000/api/v1", "team/f"},
		{"forgejo", "https://codeberg.org/team/f.git", "https://codeberg.org/api/v1", "team/f"},
		{"forgejo", "/srv/f.git", "", ""},
	} {
		p, err := ProjectOf(c.service, c.repository)
		if p.API != c.api || p.Path != c.path || (err != nil) != (c.api == "") {
			t.Errorf("%s: %+v, %v", c.repository, p, err)
		}
	}
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
	verifier, err := scheme.Verifier(secret)
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
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{t: t}
		n, log := start(t, Config{
			URL: "https://example.com/" + token, Client: &http.Client{Transport: r}, BaseURL: "https://hammer.example.com",
			Secret: func(context.Context) (string, error) { return secret, nil },
		})
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.got, want) {
				t.Errorf("%s: %q, want %q", what, r.got, want)
			}
			r.got = nil
		}
		n.Changed(applied("c1"))
		expect("all is well")
		n.Changed(refused("c2"))
		expect("a refusal", "apply.failed invalid c2")
		n.Changed(refused("c2"))
		time.Sleep(time.Hour)
		expect("the same refusal")
		n.Changed(refused("c3"))
		expect("another one", "apply.failed invalid c3")
		n.Changed(applied("c4"))
		expect("recovered", "apply.recovered  c4")

		for i := range 10 { // for a short while, in other words each time
			n.Changed(unreachable(fmt.Sprint("timeout ", i), time.Now()))
			time.Sleep(10 * time.Second)
		}
		n.Changed(applied("c4"))
		time.Sleep(time.Hour)
		expect("a short outage")
		for i := range 100 {
			n.Changed(unreachable(fmt.Sprint("timeout ", i), time.Now()))
			time.Sleep(10 * time.Second)
		}
		expect("a long outage", "apply.failed unreachable c0")
		n.Changed(applied("c4"))
		expect("its end", "apply.recovered  c4")
		n.Changed(unreachable("down", time.Now()))
		time.Sleep(patience + time.Second) // nobody says anything meanwhile
		expect("another outage", "apply.failed unreachable c0")
		n.Changed(applied("c4"))
		expect("its end", "apply.recovered  c4")
		r.mu.Lock()
		seen := slices.Clone(r.ids)
		r.mu.Unlock()
		if len(slices.Compact(slices.Sorted(slices.Values(seen)))) != len(seen) {
			t.Errorf("ids twice: %v", seen)
		}

		failNext := func(n int) { r.mu.Lock(); r.fail = n; r.mu.Unlock() }
		failNext(5)
		n.Changed(refused("c5"))
		time.Sleep(time.Minute)
		expect("after five failures", "apply.failed invalid c5")
		failNext(1000)
		n.Changed(refused("c6"))
		time.Sleep(time.Hour)
		failNext(0)
		time.Sleep(again + patience)
		expect("one was given up and is told while it lasts", "apply.failed invalid c6")
		time.Sleep(time.Hour)
		expect("once")
		failNext(1000)
		n.Changed(applied("c7"))
		time.Sleep(time.Hour)
		failNext(0)
		time.Sleep(again + patience)
		expect("so is the end", "apply.recovered  c7")
		if text := log.String(); !strings.Contains(text, "tries=8") || strings.Contains(text, "example.com") {
			t.Errorf("log: %s", text)
		}
	})
}

// notifier is one that speaks to a service and to a receiver, both without a
// network.
func notifier(t *testing.T, service, messages http.RoundTripper) *Notifier {
	n, _ := start(t, Config{
		Service: "github", Project: Project{API: "https://api.example.com", Path: "team/f"}, TokenFile: tokenFile(t),
		URL: "https://example.com/", Secret: func(context.Context) (string, error) { return secret, nil },
		Client: &http.Client{Timeout: sendTime, Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "example.com" {
				return messages.RoundTrip(r)
			}
			return service.RoundTrip(r)
		})},
	})
	return n
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
		n := notifier(t, hangs, r)
		for i := range 5 {
			n.Changed(refused(fmt.Sprint("c", i)))
			r.take(t, "beside a service that hangs", fmt.Sprint("apply.failed invalid c", i))
		}
		m := notifier(t, service, hangs)
		m.Changed(refused("c8"))
		time.Sleep(time.Hour)
		m.Changed(refused("c9"))
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
		n := notifier(t, hangs, misbehaves)
		for range 30 {
			n.Changed(refused("c1"))
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
			n.Changed(refused(fmt.Sprint("c", code)))
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
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{t: t}
		n := notifier(t, hangs, r)
		hiccup := func(reason applier.Reason) applier.State {
			s := refused("c1")
			s.Error, s.Reason, s.Since, s.NextAttempt = "it hiccups at "+time.Now().String(), reason, time.Now(), time.Now().Add(time.Second)
			return s
		}
		n.Changed(refused("c1"))
		r.take(t, "a refusal", "apply.failed invalid c1")
		for range 60 {
			time.Sleep(10 * time.Minute)
			n.Changed(hiccup(applier.Unreachable))
			time.Sleep(10 * time.Second)
			n.Changed(refused("c1"))
		}
		r.take(t, "hiccups")
		n.Changed(hiccup(applier.Unreachable))
		time.Sleep(patience - time.Second)
		r.take(t, "not yet")
		time.Sleep(2 * time.Second) // nothing changes: a look takes its time
		r.take(t, "an outage", "apply.failed unreachable c1")
		time.Sleep(time.Hour)
		n.Changed(hiccup(applier.Denied))
		time.Sleep(10 * time.Second)
		n.Changed(hiccup(applier.Unreachable))
		time.Sleep(time.Hour)
		n.Changed(hiccup(applier.Denied)) // that of an hour ago does not count
		time.Sleep(10 * time.Second)
		n.Changed(hiccup(applier.Unreachable))
		time.Sleep(time.Hour)
		r.take(t, "the same outage, with a hiccup of another kind")
		n.Changed(refused("c1"))
		time.Sleep(time.Hour)
		r.take(t, "the same refusal")
		for range 10 { // never the same for long
			n.Changed(hiccup(applier.Unreachable))
			time.Sleep(time.Minute)
			n.Changed(hiccup(applier.Denied))
			time.Sleep(time.Minute)
		}
		r.take(t, "an outage of two kinds", "apply.failed unreachable c1", "apply.failed denied c1")
		n.Changed(refused("c2"))
		r.take(t, "another refusal", "apply.failed invalid c2")
		n.Changed(applied("c3"))
		r.take(t, "recovered", "apply.recovered  c3")
		time.Sleep(time.Hour)
		r.take(t, "nothing more")
	})
}
