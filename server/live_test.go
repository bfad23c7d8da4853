package server

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// session signs somebody in, and returns the cookie.
func (f *fixture) session() string {
	f.t.Helper()
	token, err := f.store.Sessions.CreateLoginLink(f.t.Context(), linkFor("ada", "manager"), linkLife)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.signIn("/auth/login?token=" + token)
}

// look opens the stream of a page.
func (f *fixture) look(cookie, query, lastID string) *sse {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/ui/events?"+query, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(cancel)
	s := &sse{status: resp.StatusCode, events: make(chan [3]string, 10_000), close: cancel}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("X-Accel-Buffering") != "no" {
		f.t.Error("a proxy may keep the stream to itself")
	}
	lines := bufio.NewScanner(resp.Body)
	if resp.StatusCode == http.StatusOK && (!lines.Scan() || lines.Text() != ": open") {
		f.t.Errorf("the stream begins with %q", lines.Text())
	}
	go func() {
		defer close(s.events)
		defer func() { _ = resp.Body.Close() }()
		var e [3]string
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			if i := slices.Index([]string{"id", "event", "data"}, field); i >= 0 {
				e[i] = value
			}
			if field == "" && e[2] != "" {
				s.events <- e
				e = [3]string{}
			}
		}
	}()
	return s
}

// until waits for an event that says that n are new.
func (s *sse) until(t *testing.T, kind string, n int64) (id string) {
	t.Helper()
	for {
		e, ok := s.next(t)
		if !ok {
			t.Fatalf("the stream ended before %d %s", n, kind)
		}
		var change api.LiveChange
		if err := json.Unmarshal([]byte(e[2]), &change); err != nil {
			t.Fatalf("%v: %v", e, err)
		}
		if e[1] == kind && change.New == n {
			return e[0]
		}
		if e[1] == kind && change.New > n {
			t.Fatalf("%v, more than %d", e, n)
		}
	}
}

func now() string { return "at=" + strconv.FormatInt(time.Now().UnixMilli(), 10) }

// TestLivePages: an open page hears of what it shows and of nothing else, with numbers, and
// after a break of what it missed (SPEC 18.5).
func TestLivePages(t *testing.T) {
	f := newFixture(t)
	ada := f.session()
	send := func(body string) string {
		return field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, body), "delivery_id")
	}
	shown := send(`{"n":2}`)
	all := f.look(ada, "view=deliveries&view=runs&"+now()+"&after="+shown, "")
	unmatched := f.look(ada, "view=deliveries&stopped=matched&webhook=hook&"+now()+"&after="+shown, "")
	elsewhere := f.look(ada, "view=deliveries&view=runs&factory=other&"+now(), "")
	if f.watch.open() != 3 {
		t.Errorf("%d pages are open", f.watch.open())
	}
	send(`{"n":3}`)
	last := unmatched.until(t, "deliveries", 1)
	send(`{"n":1}`) // starts a run
	all.until(t, "deliveries", 2)
	all.until(t, "runs", 1)
	send(`{"n":4}`)
	unmatched.until(t, "deliveries", 2)
	unmatched.close()
	send(`{"n":5}`)
	again := f.look(ada, "view=deliveries&stopped=matched&webhook=hook&"+now()+"&after="+shown, last)
	again.until(t, "deliveries", 3)

	later := strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10) // so what was before does not count
	admin := f.key("admin", "manage")
	definitions := f.look(ada, "view=definitions&at="+later, "")
	if got := f.do("PUT", "/api/v1/secrets/NEW", admin, `{"value":"0123456789abcdef0123456789abcdef"}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	definitions.until(t, "definitions", 1)
	select {
	case e := <-elsewhere.events:
		t.Errorf("a page of another factory heard of %v", e)
	default:
	}
	for query, status := range map[string]int{
		"view=deliveries&at=x": 400, "view=deliveries&after=run_1": 400, "view=run&run=run_0000000000001": 404,
	} {
		if got := f.look(ada, query, ""); got.status != status {
			t.Errorf("%s: %d", query, got.status)
		}
	}
	if got := f.look(ada, "view=runs", "1.2"); got.status != 400 {
		t.Errorf("a foreign id: %d", got.status)
	}
	if got := f.look("", "view=runs", ""); got.status != 401 {
		t.Errorf("without a session: %d", got.status)
	}
	for _, s := range []*sse{all, again, elsewhere, definitions} {
		s.close()
	}
	waitUntil(t, "pages are still followed", func() bool { return f.watch.open() == 0 })
}

// TestLiveRun: the page of a run hears of its state and its newest event.
func TestLiveRun(t *testing.T) {
	f := newFixture(t)
	key, ada := f.key("k", "runs"), f.session()
	l := f.claimed(key)
	id := url.QueryEscape(l.RunID.String())
	s := f.look(ada, "view=run&state=INPROGRESS&run="+id+"&"+now(), "")
	f.say(l, 1, 3)
	said := func(want string) {
		t.Helper()
		for {
			if e, ok := s.next(t); !ok {
				t.Fatalf("ended before %s", want)
			} else if e[1] == "run" && e[2] == want {
				return
			}
		}
	}
	said(`{"state":"INPROGRESS","events":3}`)
	if err := f.store.Leases.Finish(t.Context(), l, store.Succeeded, "", new(int64)); err != nil {
		t.Fatal(err)
	}
	said(`{"state":"SUCCEEDED","events":3}`)
}

// TestLiveEnds: a stream ends with the session, which it says, and with the server, after
// which the page comes back.
func TestLiveEnds(t *testing.T) {
	f := newFixture(t)
	ada, again := f.session(), f.session()
	out, stays := f.look(ada, "view=runs", ""), f.look(again, "view=runs", "")
	begin := time.Now()
	if got := f.do("POST", "/auth/logout", "", "", "Cookie", ada, "Sec-Fetch-Site", "same-origin"); got.status != 200 {
		t.Fatal(got.status)
	}
	for {
		e, ok := out.next(t)
		if !ok {
			t.Fatal("the stream ended without a word")
		}
		if e[1] == "ended" {
			break
		}
	}
	if took := time.Since(begin); took > quietTime/2 {
		t.Errorf("it took %v", took)
	}
	for _, ok := out.next(t); ok; _, ok = out.next(t) {
	}
	if f.watch.open() == 0 {
		t.Error("the other session's page was closed too")
	}
	f.streams.stop()
	for e, ok := stays.next(t); ok; e, ok = stays.next(t) {
		if e[1] == "ended" {
			t.Error("a stopping server says that the session has ended")
		}
	}
}

// TestMarkText: what a page shows is known again after a restart.
func TestMarkText(t *testing.T) {
	m := store.MarkAt(time.Now())
	if got, err := store.ParseMark(m.String()); err != nil || got != m {
		t.Errorf("%v, %v of %v", got, err, m)
	}
	for _, bad := range []string{"", "1.2.3", "1.2.3.4.!", "1.2.3.4.-5", "1.2.3.4.5.6"} {
		if _, err := store.ParseMark(bad); err == nil {
			t.Errorf("%q is a mark", bad)
		}
	}
}

// TestLiveViewsOnce: a view that is asked for many times is told once.
func TestLiveViewsOnce(t *testing.T) {
	f := newFixture(t)
	s := f.look(f.session(), now()+strings.Repeat("&view=definitions", 100), "")
	var told []string
	for n := range 2 {
		if err := f.store.Audit.Add(t.Context(), store.AuditEntry{Actor: "ada", Action: "test"}); err != nil {
			t.Fatal(err)
		}
		e, ok := s.next(t)
		if !ok {
			t.Fatalf("the stream ended after %d", n)
		}
		told = append(told, e[0]+" "+e[2])
	}
	if told[0] == told[1] {
		t.Errorf("told twice: %s", told[0])
	}
}
