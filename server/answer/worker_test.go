package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// loopback is a service with threads, which takes comments as senders do.
type loopback struct {
	*httptest.Server
	mu       sync.Mutex
	comments map[string]string // by id
	signs    int
	requests int
	refuse   func(method string) int  // status; 0: it answers
	after    string                   // Retry-After of a refusal
	lose     func(method string) bool // the request is done, and its answer lost
}

func newLoopback(t testing.TB) *loopback {
	f := &loopback{comments: make(map[string]string)}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *loopback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Text string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests++; f.refuse != nil {
		if status := f.refuse(r.Method); status != 0 {
			if f.after != "" {
				w.Header().Set("Retry-After", f.after)
			}
			w.WriteHeader(status)
			return
		}
	}
	id := strings.TrimPrefix(r.URL.Path, "/comments/")
	switch {
	case r.URL.Path == "/signs":
		f.signs++
	case r.Method == http.MethodPost:
		id = strconv.Itoa(len(f.comments) + 1)
		f.comments[id] = body.Text
	case r.Method == http.MethodPatch && f.comments[id] == "":
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPatch:
		f.comments[id] = body.Text
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(f.comments)
		return
	}
	if f.lose != nil && f.lose(r.Method) {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(Posted{ID: id, Link: "https://forge.example.com/c/" + id})
}

// set changes how the service answers, between requests.
func (f *loopback) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// asked counts the requests.
func (f *loopback) asked() (n int) {
	f.set(func() { n = f.requests })
	return n
}

// signed counts the signs.
func (f *loopback) signed() (n int) {
	f.set(func() { n = f.signs })
	return n
}

func (f *loopback) texts() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range len(f.comments) {
		all = append(all, f.comments[strconv.Itoa(i+1)])
	}
	return all
}

// row is the Sender of a loopback.
func row() *Sender {
	call := func(ctx context.Context, c *lookup.Client, api lookup.API, method, path, text string, into any) error {
		return c.Do(ctx, api, lookup.Request{Method: method, Path: path, Body: map[string]string{"text": text}, Into: into})
	}
	return &Sender{
		Provider: "forge", MaxText: 10_000, Needs: "comments:write",
		Text: func(m Message) string {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s %s (%s)", m.Asker, m.State, m.Why, m.Outcome, m.Text, strings.Join(m.PullRequests, " "), m.Marker) + m.Asks)
		},
		Sign: func(ctx context.Context, c *lookup.Client, api lookup.API, _ Place) error {
			return call(ctx, c, api, http.MethodPost, "/signs", "", nil)
		},
		Post: func(ctx context.Context, c *lookup.Client, api lookup.API, _ Place, text, _ string) (at Posted, err error) {
			err = call(ctx, c, api, http.MethodPost, "/comments", text, &at)
			return at, err
		},
		Edit: func(ctx context.Context, c *lookup.Client, api lookup.API, _ Place, at Posted, text string) error {
			return call(ctx, c, api, http.MethodPatch, "/comments/"+at.ID, text, nil)
		},
		Find: func(ctx context.Context, c *lookup.Client, api lookup.API, _ Place, marker string) (Posted, bool, error) {
			var all map[string]string
			err := c.Do(ctx, api, lookup.Request{Method: http.MethodGet, Path: "/comments", Into: &all})
			for id, text := range all {
				if strings.Contains(text, marker) {
					return Posted{ID: id}, true, err
				}
			}
			return Posted{}, false, err
		},
	}
}

type fixture struct {
	*Worker
	t     testing.TB
	forge *loopback
	row   *Sender
	store *store.Store
	clock atomic.Int64
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, forge: newLoopback(t), row: row()}
	f.clock.Store(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC).UnixNano())
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	f.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "s.db"), URL: storetest.URL(t), Key: key, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	f.again()
	return f
}

func (f *fixture) now() time.Time       { return time.Unix(0, f.clock.Load()).UTC() }
func (f *fixture) pass(d time.Duration) { f.clock.Add(int64(d)) }
func (f *fixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// again is another server in the place of the one before.
func (f *fixture) again() {
	f.Worker = New(Config{
		Store: f.store, Now: f.now, Logger: slog.New(slog.DiscardHandler), Sender: func(string) *Sender { return f.row },
		API:   func(context.Context, string) (lookup.API, error) { return lookup.API{URL: f.forge.URL}, nil },
		Waits: func(context.Context, *store.Run) (string, error) { return "for a worker", nil },
		Link:  func(id store.RunID) string { return "https://hammer.example.com/runs/" + id.String() },
	})
}

// deliver records a delivery that starts a run with an answer.
func (f *fixture) deliver(identity string, answers ...store.NewAnswer) store.RunID {
	f.t.Helper()
	for i := range answers {
		a := &answers[i]
		if a.Kind == "" {
			a.Kind = store.AnswerThread
		}
		a.WebhookUID, a.Provider, a.Status = "whk_1", "forge", store.AnswerPending
	}
	recorded, err := f.store.Deliveries.Record(f.t.Context(), &store.NewDelivery{Payload: []byte("{}"), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, ReceivedAt: f.now(), Identity: store.Identity{Source: store.IdentitySender, Value: identity},
	}, Runs: []store.NewRun{{Factory: "default", Automation: "fix", Source: store.SourceWebhook, Title: "fix", Answers: answers}}})
	f.check(err)
	return recorded.RunIDs[0]
}

func thread(number, kind, asker string) store.NewAnswer {
	place, _ := json.Marshal(Place{Provider: "forge", Container: "acme/app", Thread: number, Kind: kind, Item: number, Asker: asker})
	return store.NewAnswer{Place: string(place), PlaceKey: "acme/app#" + number, Next: store.AnswerStart}
}

// start claims a run.
func (f *fixture) start() store.Lease {
	f.t.Helper()
	leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 1, Lease: 48 * time.Hour})
	if err != nil || len(leases) != 1 {
		f.t.Fatal(leases, err)
	}
	return leases[0]
}

func (f *fixture) say(l store.Lease, text string) {
	f.t.Helper()
	f.check(f.store.Transcripts.Append(f.t.Context(), l, []store.Event{
		{Seq: 1, At: f.now(), Kind: "message", Data: json.RawMessage(`{"role":"assistant","text":` + strconv.Quote(text) + `}`)},
		{Seq: 2, At: f.now(), Kind: "message", Data: json.RawMessage(`{"role":"reasoning","text":"hm"}`)},
	}))
}

func (f *fixture) end(l store.Lease) {
	f.t.Helper()
	f.check(f.store.Leases.Finish(f.t.Context(), l, store.Succeeded, "", nil))
}

// turns sends what is due, until nothing is.
func (f *fixture) turns(ctx context.Context) {
	f.t.Helper()
	for range 20 {
		due, err := f.store.Answers.Due(f.t.Context(), 8)
		f.check(err)
		if len(due) == 0 || ctx.Err() != nil {
			return
		}
		for _, a := range due {
			f.check(f.send(ctx, a))
		}
	}
	f.t.Fatal("something is always due")
}

func (f *fixture) answer(id store.RunID) store.Answer {
	f.t.Helper()
	all, err := f.store.Answers.Of(f.t.Context(), id)
	if err != nil || len(all) != 1 {
		f.t.Fatal(all, err)
	}
	return all[0]
}

// TestAnswer: a sign at once, one text that is edited from what the run waits for to its end, and one
// mention of whoever asked (SPEC 22.2).
func TestAnswer(t *testing.T) {
	f := newFixture(t)
	a := thread("7", "issue", "@ann")
	a.Next = store.AnswerSign
	id := f.deliver("1", a)
	f.check(f.signRun(t.Context(), id))
	f.check(f.signRun(t.Context(), id))
	if f.forge.signed() != 1 || len(f.forge.texts()) != 0 {
		t.Fatalf("%d signs, %q", f.forge.signed(), f.forge.texts())
	}
	f.turns(t.Context())
	if len(f.forge.texts()) != 0 {
		t.Errorf("told before a minute that it waits: %q", f.forge.texts())
	}
	f.pass(store.StartPatience)
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "waits for a worker") {
		t.Fatalf("%q", got)
	}
	l := f.start()
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "started") {
		t.Fatalf("%q", got)
	}
	f.say(l, "Mended.")
	f.end(l)
	f.turns(t.Context())
	got := f.forge.texts()
	if len(got) != 2 || !strings.HasPrefix(got[0], "ended  succeeded Mended.") || !strings.HasPrefix(got[1], "@ann ended  succeeded ") || strings.Contains(got[1], "Mended") {
		t.Fatalf("%q", got)
	}
	given := f.answer(id)
	if given.Status != store.AnswerDelivered || !strings.Contains(given.Posted, "forge.example.com/c/1") || !given.DueAt.IsZero() {
		t.Errorf("%+v", given)
	}
	if marker := markers.FindString(got[1]); !f.store.Answers.HasMarker(&given, marker) || f.store.Answers.HasMarker(&given, strings.Replace(marker, ":", ";", 1)) {
		t.Errorf("marker %q", marker)
	}
}

// TestOnePerPull: the runs of an automation on one pull request edit one text, also a run that
// somebody starts again (SPEC 22.2). What was asked in an internal note is answered in a text of its own.
func TestOnePerPull(t *testing.T) {
	f := newFixture(t)
	for i := range 3 {
		f.deliver(fmt.Sprint(i), thread("7", "pull", ""))
		l := f.start()
		f.say(l, fmt.Sprint("Run ", i))
		f.end(l)
		f.turns(t.Context())
		if got := f.forge.texts(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprint("Run ", i)) {
			t.Fatalf("%q", got)
		}
	}
	for i := range 2 {
		note := thread("7", "pull", "")
		note.Place = strings.Replace(note.Place, "{", `{"internal":true,`, 1)
		f.deliver(fmt.Sprint("note", i), note)
		f.end(f.start())
		f.turns(t.Context())
		if got := f.forge.texts(); len(got) != 2 || !strings.Contains(got[0], "Run 2") {
			t.Fatalf("%q", got)
		}
	}
	f.deliver("public", thread("7", "pull", ""))
	f.end(f.start())
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 2 || strings.Contains(got[0], "Run 2") {
		t.Fatalf("%q", got)
	}
	first := f.deliver("other", thread("8", "issue", ""))
	f.end(f.start())
	f.turns(t.Context())
	_, _, err := f.store.Runs.Create(t.Context(), store.NewRun{Factory: "default", Automation: "fix", Title: "again", RetryOf: first}, "", nil)
	f.check(err)
	l := f.start()
	f.say(l, "Again")
	f.end(l)
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 3 || !strings.Contains(got[2], "Again") {
		t.Fatalf("%q", got)
	}
}

// TestKilled: whatever a server is doing when it is killed, another one sends each text once
// (SPEC 22.3).
func TestKilled(t *testing.T) {
	for _, step := range []string{"started", "ended", "@ann"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after %v", step, after), func(t *testing.T) {
				f := newFixture(t)
				ctx, kill := context.WithCancel(t.Context())
				killed := false
				dies := func(text string, do func()) {
					if hit := strings.HasPrefix(text, step) && !killed; hit && after {
						do()
						killed = true
						kill()
					} else if hit {
						killed = true
						kill()
					} else {
						do()
					}
				}
				post, edit := f.row.Post, f.row.Edit
				f.row.Post = func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, key string) (at Posted, err error) {
					err = context.Canceled
					dies(text, func() { at, err = post(ctx, c, api, p, text, key) })
					return at, err
				}
				f.row.Edit = func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, at Posted, text string) error {
					err := context.Canceled
					dies(text, func() { err = edit(ctx, c, api, p, at, text) })
					return err
				}
				id := f.deliver("1", thread("7", "issue", "@ann"))
				l := f.start()
				f.turns(ctx)
				f.say(l, "Mended.")
				f.end(l)
				f.turns(ctx)
				if !killed {
					t.Fatal("nothing was killed")
				}
				f.again()
				f.turns(t.Context())
				f.pass(lease)
				f.turns(t.Context())
				got := f.forge.texts()
				if step == "started" && !after { // the end is a new text here, and the sender tells people of new texts
					got = append(got, "@ann")
				}
				if len(got) != 2 || !strings.HasPrefix(got[0], "ended") || !strings.HasPrefix(got[1], "@ann") {
					t.Errorf("%q", got)
				}
				if a := f.answer(id); a.Status != store.AnswerDelivered {
					t.Errorf("%+v", a)
				}
			})
		}
	}
}

// TestLostAnswer: a text whose acceptance got lost is looked for, and not sent again. Where it cannot be
// looked for, it needs a person (SPEC 22.3).
func TestLostAnswer(t *testing.T) {
	for _, find := range []bool{true, false} {
		f := newFixture(t)
		f.row.Edit = nil
		if !find {
			f.row.Find = nil
		}
		lost := 0
		f.forge.set(func() {
			f.forge.lose = func(method string) bool { lost++; return lost == 1 && method == http.MethodPost }
		})
		a := thread("7", "issue", "")
		a.Next = store.AnswerEnd
		id := f.deliver("1", a)
		f.end(f.start())
		f.turns(t.Context())
		f.forge.set(func() {
			f.forge.refuse = func(method string) int { // it cannot be looked for at first
				return map[string]int{http.MethodGet: http.StatusBadGateway}[method]
			}
		})
		f.pass(time.Minute)
		f.turns(t.Context())
		f.forge.set(func() { f.forge.refuse = nil })
		f.pass(10 * time.Minute)
		f.turns(t.Context())
		if got := f.forge.texts(); len(got) != 1 {
			t.Errorf("%q", got)
		}
		want := map[bool]string{true: store.AnswerDelivered, false: store.AnswerFailed}[find]
		if a := f.answer(id); a.Status != want || !find && !strings.Contains(a.Detail, "nobody knows") {
			t.Errorf("find %v: %+v", find, a)
		}
	}
}

// TestRefusals: what a sender refuses for good is given up at once with the reason, a rate waits, and a
// service that is down is tried for a day (SPEC 22.3).
func TestRefusals(t *testing.T) {
	f := newFixture(t)
	id := f.deliver("1", thread("7", "issue", ""))
	l := f.start()
	f.forge.set(func() { f.forge.refuse = func(string) int { return http.StatusForbidden } })
	f.turns(t.Context())
	if a := f.answer(id); a.Status != store.AnswerPending || a.Next != store.AnswerEnd || !strings.Contains(a.Detail, "comments:write") {
		t.Errorf("start refused: %+v", a)
	}
	f.end(l)
	f.turns(t.Context())
	if a := f.answer(id); a.Status != store.AnswerFailed || !strings.Contains(a.Detail, "answered 403") || !strings.Contains(a.Detail, "comments:write") {
		t.Errorf("end refused: %+v", a)
	}
	failed, err := f.store.Answers.Failed(t.Context(), "default", f.now().Add(-time.Hour), 10)
	f.check(err)
	if len(failed) != 1 || failed[0].RunID != id {
		t.Errorf("failed: %+v", failed)
	}
	id = f.deliver("2", thread("7", "issue", ""))
	f.end(f.start())
	f.forge.set(func() { f.forge.after = "600" })
	requests := f.forge.asked()
	f.turns(t.Context())
	f.pass(9 * time.Minute)
	f.turns(t.Context())
	if f.forge.asked() != requests+1 {
		t.Errorf("%d requests within a rate", f.forge.asked()-requests)
	}
	f.forge.set(func() { f.forge.after, f.forge.refuse = "", nil })
	f.pass(2 * time.Minute)
	f.turns(t.Context())
	if a := f.answer(id); a.Status != store.AnswerDelivered || len(f.forge.texts()) != 1 {
		t.Errorf("after the rate: %+v, %q", a, f.forge.texts())
	}

	f.forge.set(func() { f.forge.refuse = func(string) int { return http.StatusBadGateway } })
	for _, down := range []time.Duration{23 * time.Hour, 25 * time.Hour} {
		f.forge.set(func() { f.forge.refuse = func(string) int { return http.StatusBadGateway } })
		id = f.deliver(down.String(), thread(down.String(), "issue", ""))
		f.end(f.start())
		for passed := time.Duration(0); passed < down; passed += 10 * time.Minute {
			f.turns(t.Context())
			f.pass(10 * time.Minute)
		}
		f.forge.set(func() { f.forge.refuse = nil })
		f.pass(time.Hour)
		f.turns(t.Context())
		want := store.AnswerDelivered
		if down > giveUp {
			want = store.AnswerFailed
		}
		if a := f.answer(id); a.Status != want || down > giveUp && !strings.Contains(a.Detail, "given up after 24h") {
			t.Errorf("down for %v: %+v", down, a)
		}
	}
}

// TestOrderAndPace: the ends in one place are told in order; when a sender takes little, starts are left
// out before ends, and no end is dropped (SPEC 22.3).
func TestOrderAndPace(t *testing.T) {
	f := newFixture(t)
	f.row.Paces = []Pace{{Writes: 4, Per: time.Minute}}
	const runs = 10
	var leases []store.Lease
	for i := range runs {
		f.deliver(fmt.Sprint(i), thread("7", "issue", ""))
		leases = append(leases, f.start())
	}
	f.turns(t.Context())
	if started := len(f.forge.texts()); started != 2 {
		t.Errorf("%d starts with a pace of 4", started)
	}
	for i, l := range leases {
		f.say(l, fmt.Sprintf("number %d.", i))
		f.end(l)
	}
	f.forge.set(func() { f.forge.refuse = func(string) int { return http.StatusBadGateway } })
	f.turns(t.Context())
	f.forge.set(func() { f.forge.refuse = nil })
	for range runs {
		f.pass(time.Minute)
		f.turns(t.Context())
	}
	got := f.forge.texts()
	if len(got) != runs {
		t.Fatalf("%q", got)
	}
	for i, text := range got {
		if !strings.Contains(text, fmt.Sprintf("number %d.", i)) {
			t.Errorf("%d: %q", i, text)
		}
	}
}

// TestLeaders: a leader that is stopped in the middle leaves the rest to the next one, and both
// together tell each run once.
func TestLeaders(t *testing.T) {
	f := newFixture(t)
	const runs = 40
	for i := range runs {
		f.deliver(fmt.Sprint(i), thread(fmt.Sprint(i), "issue", ""))
		f.end(f.start())
	}
	first, stop := context.WithCancel(t.Context())
	var both sync.WaitGroup
	w := f.Worker
	f.again()
	other := f.Worker
	both.Go(func() { f.check(w.Run(first)) })
	second, stopOther := context.WithCancel(t.Context())
	defer func() { stopOther(); both.Wait() }()
	both.Go(func() { f.check(other.Run(second)) })
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; n < runs; n = len(f.forge.texts()) {
		if n > runs/4 {
			stop()
			f.pass(lease)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("not told in time")
		case <-ticker.C:
		}
	}
	stop()
	f.pass(lease)
	f.turns(t.Context())
	seen := make(map[string]bool)
	for _, text := range f.forge.texts() {
		if marker := markers.FindString(text); seen[marker] {
			t.Errorf("twice: %q", text)
		} else {
			seen[marker] = true
		}
	}
	if len(seen) != runs {
		t.Errorf("%d of %d runs were told", len(seen), runs)
	}
}

// TestFor: an event that cannot be answered says why.
func TestFor(t *testing.T) {
	event := native.Find("github", "push")
	place, err := Place{Container: "acme/app"}, error(nil)
	s := row()
	s.Provider, s.Place = "github", func(*native.Event, native.Delivery) (Place, error) { return place, err }
	was := senders
	senders = []*Sender{s}
	defer func() { senders = was }()
	for want, change := range map[string]func(){
		"push has no thread to answer in": func() {},
		"needs apiSecretName":             nil,
		"it says so":                      func() { err = errors.New("it says so") },
		"":                                func() { place.Thread, err = "7", nil },
	} {
		if change != nil {
			place, err = Place{Container: "acme/app"}, nil
			change()
		}
		lacks := "needs apiSecretName"
		if change != nil {
			lacks = ""
		}
		got := For([]string{store.AnswerThread}, false, "whk_1", lacks, false, event, native.Delivery{})
		if len(got) != 1 || !strings.HasPrefix(got[0].Detail, want) || (got[0].Status == store.AnswerPending) != (want == "") || want == "" && got[0].Detail != "" {
			t.Errorf("%q: %+v", want, got)
		}
	}
	if got := For([]string{store.AnswerCheck}, false, "whk_1", "", false, event, native.Delivery{}); !strings.Contains(got[0].Detail, "takes no check") {
		t.Errorf("%+v", got)
	}
}

// FuzzMarked: no payload makes the search for markers fail, and what is found is a marker.
func FuzzMarked(f *testing.F) {
	const marker = "triphammer:run_0123456789abc:0123456789abcdef0123456789abcdef"
	f.Add("github", []byte(`{"comment":{"body":"x <!-- `+marker+` -->"}}`))
	f.Add("slack", []byte(`{"event":{"metadata":{"event_payload":{"m":"`+marker+`"}}}}`))
	f.Add("jira", []byte(`{"issue":{"comment":"`+marker+`"}}`))
	f.Add("linear", []byte(`[1,`))
	f.Fuzz(func(t *testing.T, provider string, body []byte) {
		for id, found := range Marked(provider, body) {
			if !markers.MatchString(found) || !strings.Contains(found, id.String()) || !slices.Contains([]string{"github", "gitlab", "jira", "linear", "slack", "teams", "azure_devops"}, provider) {
				t.Errorf("%s: %q", id, found)
			}
		}
	})
}
