package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/server/lookup"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// eachPlace runs a test at each kind of thread of each sender, with a forge of its own.
func eachPlace(t *testing.T, test func(t *testing.T, s *Sender, p Place, f *forge, api lookup.API)) {
	for _, s := range Senders() {
		for _, p := range append([]Place{testPlaces[s.Provider]}, further[s.Provider]...) {
			if p.Provider == "" {
				continue
			}
			t.Run(s.Provider+" "+p.Kind, func(t *testing.T) {
				f, server := newForge(t, s.Provider)
				if s.Provider == "teams" {
					login(t, server.URL)
				}
				test(t, s, p, f, lookup.API{URL: server.URL, Secret: secret.New(f.secret)})
			})
		}
	}
}

// login makes a forge give tokens to bots.
func login(t *testing.T, address string) {
	before := teamsLogin
	teamsLogin = address + "/login/{tenant}"
	t.Cleanup(func() { teamsLogin = before })
}

// TestAnswers: a sign, a text, and its edits are at the sender once, and a text is found again, but
// not a stranger's copy of its marker.
func TestAnswers(t *testing.T) {
	eachPlace(t, func(t *testing.T, s *Sender, p Place, f *forge, api lookup.API) {
		ctx, c := t.Context(), lookup.NewClient(time.Now)
		if s.Sign != nil && p.Item != "" {
			for range 2 {
				if err := s.Sign(ctx, c, api, p); err != nil {
					t.Fatalf("the sign: %v", err)
				}
			}
			if len(f.signs) != 1 {
				t.Errorf("the signs are %v", f.signs)
			}
		}
		find := func(marker string) (Posted, bool) {
			if s.Find == nil {
				return Posted{}, false
			}
			at, found, err := s.Find(ctx, c, api, p, marker)
			if err != nil {
				t.Fatalf("to find: %v", err)
			}
			return at, found
		}
		if at, found := find(testMarker); found {
			t.Errorf("a stranger's text counts: %+v", at)
		}
		before := len(f.texts)
		m := message(Started)
		at, err := s.Post(ctx, c, api, p, s.Text(m), "key")
		if err != nil || at.ID == "" {
			t.Fatalf("posted %+v, %v", at, err)
		}
		if p.Link != "" && s.Provider != "teams" && !strings.HasPrefix(at.Link, p.Link) {
			t.Errorf("posted at %+v", at)
		}
		if again, found := find(testMarker); s.Find != nil && (!found || again.ID != at.ID || again.Author != at.Author || s.Provider != "azure_devops" && again.Link != at.Link) {
			t.Errorf("posted %+v, and found %+v, %v", at, again, found)
		}
		if at, found := find(strings.Replace(testMarker, "0123", "3210", 1)); found {
			t.Errorf("another marker is found: %+v", at)
		}
		for range 2 {
			if err := s.Edit(ctx, c, api, p, at, s.Text(message(Ended))); err != nil {
				t.Fatalf("to edit: %v", err)
			}
		}
		added := f.texts[before:]
		if last := added[len(added)-1]; len(added) != 1 && p.Kind != "session" || len(added) > 2 || !strings.Contains(last.body, "succeeded") {
			t.Errorf("the texts are %v", added)
		}
		if again, found := find(testMarker); s.Find != nil && (!found || p.Kind != "session" && again.ID != at.ID) {
			t.Errorf("after an edit, posted %+v, and found %+v, %v", at, again, found)
		}
		if strings.Contains(strings.Join(f.asked, "\n"), credential) {
			t.Error("an address has the credential")
		}
		if s.Provider == "linear" { // whose texts have identifiers of ours
			if again, err := s.Post(ctx, c, api, p, s.Text(m), "key"); err != nil || again.ID != at.ID || len(f.texts) != before+len(added) {
				t.Errorf("posted again: %+v, %v", again, err)
			}
		}
		gone := Posted{ID: "99999"}
		if s.Provider == "azure_devops" && p.Kind == "pull" || p.Kind == onCommit {
			gone.ID = "99999/1"
		}
		if p.Kind == "session" {
			return
		}
		if err := s.Edit(ctx, c, api, p, gone, s.Text(m)); failed(err) == nil || !failed(err).Final() || failed(err).Uncertain() || !strings.Contains(err.Error(), "gone") {
			t.Errorf("the edit of a text that is gone: %v", err)
		}
	})
}

// TestPromptSigns: each prompt of a session of Linear gets a sign, once.
func TestPromptSigns(t *testing.T) {
	f, server := newForge(t, "linear")
	api, p, before := lookup.API{URL: server.URL, Secret: secret.New(f.secret)}, further["linear"][0], len(f.texts)
	for _, item := range []string{p.Thread, "act-1", "act-2", "act-1"} {
		if p.Item = item; linearSign(t.Context(), lookup.NewClient(time.Now), api, p) != nil {
			t.Fatalf("the sign of %s is not taken", item)
		}
	}
	if got := len(f.texts) - before; got != 3 {
		t.Errorf("%d signs of a session and two prompts", got)
	}
}

// TestAlone: what is told of a delivery without a run (SPEC 21.6, 22.2).
func TestAlone(t *testing.T) {
	f := newFixture(t)
	for kind, want := range map[string]linearPayload{
		store.AnswerUnmatched: {"error", "**Triphammer** has no automation for this session: no filter of an automation accepts it, so nobody works on it."},
		store.AnswerIdle:      {"response", "**Triphammer** cancelled nothing: no run of this session is at work."},
	} {
		a := &store.Answer{RunID: 7, DeliveryID: 7, NewAnswer: store.NewAnswer{Kind: kind, Provider: "linear", PlaceKey: "k"}}
		m := f.alone(a)
		var got linearPayload
		if err := json.Unmarshal([]byte(linearSender.Text(m)), &got); err != nil || got.Type != want.Type || !strings.HasPrefix(got.Body, want.Body) ||
			!strings.Contains(got.Body, "Delivery dlv") || !strings.Contains(got.Body, mark(m.Marker)) || strings.Contains(got.Body, "Run ") {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
	if m := f.alone(&store.Answer{RunID: 7, DeliveryID: 6}); m.State != "" {
		t.Errorf("an answer of a run is %+v", m)
	}
}

// TestChecks: a check follows its run, on the head of a pull request whose comment does not say it.
func TestChecks(t *testing.T) {
	eachPlace(t, func(t *testing.T, s *Sender, p Place, f *forge, api lookup.API) {
		if s.Check == nil {
			return
		}
		ctx, c := t.Context(), lookup.NewClient(time.Now)
		if p.Kind != "pull" {
			if _, err := s.Check(ctx, c, api, p, message(Started)); failed(err) == nil || !failed(err).Final() {
				t.Errorf("a check of what is no commit: %v", err)
			}
			return
		}
		tokens := []string{f.secret}
		if s.Provider == "github" {
			tokens = append(tokens, "ghs_"+credential)
		}
		for _, token := range tokens {
			if s.Provider == "github" {
				f.header = "Bearer " + token
			}
			api.Secret = secret.New(token)
			for _, m := range []Message{message(Started), message(Started), message(Ended)} {
				m.Why = "the agent @ada\n/close said so"
				if _, err := s.Check(ctx, c, api, p, m); err != nil {
					t.Fatalf("%v", err)
				}
				t.Log(f.state)
			}
		}
		got := fmt.Sprint(f.state)
		want := map[string]string{
			"github":       "map[triphammer/fix-bug:success succeeded: the agent @ada /close said so triphammer/fix-bug run:completed success]",
			"gitlab":       "map[triphammer/fix-bug:success succeeded: the agent @ada /close said so]",
			"azure_devops": "map[fix-bug:succeeded succeeded: the agent @ada /close said so]",
		}[s.Provider]
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

// TestEnterpriseServer: an App of a GitHub Enterprise Server finds its own account beside the REST API.
func TestEnterpriseServer(t *testing.T) {
	f, server := newForge(t, "github")
	f.header = "Bearer ghs_x"
	whole := http.NewServeMux()
	whole.Handle("/api/v3/", http.StripPrefix("/api/v3", f))
	whole.Handle("/api/", http.StripPrefix("/api", f))
	server.Config.Handler = whole
	api := lookup.API{URL: server.URL + "/api/v3", Secret: secret.New("ghs_x\n")}
	c, p := lookup.NewClient(time.Now), testPlaces["github"]
	if _, err := githubPost(t.Context(), c, api, p, githubSender.Text(message(Started)), ""); err != nil {
		t.Fatal(err)
	}
	if _, found, err := githubFind(t.Context(), c, api, p, testMarker); !found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestOddAnswers: of each odd answer, a row says what is known: whether to try again, when, and whether
// the text may be there.
func TestOddAnswers(t *testing.T) {
	const secretWord = "what-only-the-answer-says"
	type verdict struct{ final, uncertain, after bool }
	for name, odd := range map[string]struct {
		answer func(w http.ResponseWriter)
		post   verdict
	}{
		"page":    {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>"+secretWord+"</html>") }, verdict{uncertain: true}},
		"empty":   {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") }, verdict{uncertain: true}},
		"nothing": {func(http.ResponseWriter) {}, verdict{uncertain: true}},
		"broken":  {func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = io.WriteString(w, secretWord) }, verdict{uncertain: true}},
		"cut":     {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, verdict{uncertain: true}},
		"rate":    {func(w http.ResponseWriter) { w.Header().Set("Retry-After", "30"); w.WriteHeader(429) }, verdict{after: true}},
		"rate 403": {func(w http.ResponseWriter) {
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"message":"You have exceeded a secondary rate limit"}`)
		}, verdict{after: true}},
		"gone":    {func(w http.ResponseWriter) { w.WriteHeader(410); _, _ = io.WriteString(w, secretWord) }, verdict{final: true}},
		"absent":  {func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = io.WriteString(w, secretWord) }, verdict{final: true}},
		"moved":   {func(w http.ResponseWriter) { w.Header().Set("Location", "https://example.com/"); w.WriteHeader(307) }, verdict{final: true}},
		"refused": {func(w http.ResponseWriter) { w.WriteHeader(401) }, verdict{}},
		"locked": {func(w http.ResponseWriter) {
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"message":"locked or archived: no permission"}`)
		}, verdict{final: true}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/login") {
					_, _ = io.WriteString(w, `{"access_token":"a-token"}`)
					return
				}
				odd.answer(w)
			}))
			defer server.Close()
			login(t, server.URL)
			for _, s := range Senders() {
				f := &forge{t: t, mux: http.NewServeMux(), signs: map[string]bool{}}
				f.secret = credential
				if s.Provider == "teams" {
					teamsForge(f)
				}
				api := lookup.API{URL: server.URL, Secret: secret.New(f.secret)}
				c, p := lookup.NewClient(time.Now), testPlaces[s.Provider]
				check := func(what string, err error, want verdict) {
					t.Helper()
					f := failed(err)
					if f == nil {
						t.Errorf("%s, %s: no failure: %v", s.Provider, what, err)
						return
					}
					if got := (verdict{f.Final(), f.Uncertain(), f.After() > 0}); got != want && !slackOf403(s, name) && !linearOf(s, name) {
						t.Errorf("%s, %s: %+v, want %+v: %v", s.Provider, what, got, want, err)
					}
					if strings.Contains(err.Error(), secretWord) || strings.Contains(err.Error(), credential) {
						t.Errorf("%s, %s tells what it must not: %v", s.Provider, what, err)
					}
				}
				_, err := s.Post(t.Context(), c, api, p, s.Text(message(Ended)), "key")
				check("post", err, odd.post)
				err = s.Edit(t.Context(), c, api, p, Posted{ID: "7/1"}, s.Text(message(Ended)))
				if (s.Provider != "linear" && s.Provider != "slack") && name == "empty" {
					if err != nil {
						t.Errorf("%s, edit: %v", s.Provider, err)
					}
				} else {
					check("edit", err, odd.post)
				}
				if s.Find != nil {
					read := odd.post
					read.uncertain = false
					_, found, err := s.Find(t.Context(), c, api, p, testMarker)
					if found {
						t.Errorf("%s found it", s.Provider)
					}
					check("find", err, read)
				}
			}
		})
	}
}

// slackOf403 tells of what Slack never answers: it gives its reasons with the status 200.
func slackOf403(s *Sender, name string) bool {
	return s.Provider == "slack" && (name == "rate 403" || name == "locked" || name == "gone")
}

// linearOf tells of what Linear never answers, for the same reason.
func linearOf(s *Sender, name string) bool {
	return s.Provider == "linear" && (name == "rate 403" || name == "locked")
}

// TestNotSent: without a connection, nothing was sent; after the request, nobody knows.
func TestNotSent(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, p, text := lookup.NewClient(time.Now), testPlaces["github"], githubSender.Text(message(Ended))
	if _, err := githubPost(t.Context(), c, lookup.API{URL: server.URL, Secret: secret.New("x")}, p, text, ""); failed(err) == nil || failed(err).Uncertain() || failed(err).Final() {
		t.Errorf("no connection: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer slow.Close()
	if _, err := githubPost(ctx, c, lookup.API{URL: slow.URL, Secret: secret.New("x")}, p, text, ""); failed(err) == nil || !failed(err).Uncertain() {
		t.Errorf("no answer: %v", err)
	}
}

// TestCodes: what the error codes of Slack and Linear mean.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		provider, answer, want string
		final, uncertain       bool
	}{
		{"slack", `{"ok":false,"error":"is_archived"}`, "answered is_archived: the channel is archived", true, false},
		{"slack", `{"ok":false,"error":"missing_scope"}`, "the credential lacks a permission; it needs the scopes chat:write", true, false},
		{"slack", `{"ok":false,"error":"invalid_auth"}`, "does not take the secret of apiSecretName", false, false},
		{"slack", `{"ok":false,"error":"ratelimited"}`, "too many requests", false, false},
		{"slack", `{"ok":false,"error":"internal_error"}`, "answered internal_error", false, true},
		{"slack", `{"ok":false,"error":"some <b>page</b>"}`, "answered an error", false, true},
		{"slack", `{"ok":false,"error":"strange_code"}`, "answered strange_code", true, false},
		{"linear", `{"errors":[{"message":"x","extensions":{"code":"RATELIMITED"}}]}`, "answered RATELIMITED: too many requests", false, false},
		{"linear", `{"errors":[{"message":"x","extensions":{"code":"FORBIDDEN"}}]}`, "lacks a permission", true, false},
		{"linear", `{"errors":[{"message":"Entity not found: Issue","extensions":{"code":"INPUT_ERROR"}}]}`, "the thread is gone", true, false},
		{"linear", `{"errors":[{"message":"x","extensions":{"code":"AUTHENTICATION_ERROR"}}]}`, "answered AUTHENTICATION_ERROR", false, false},
		{"linear", `{"errors":[{"message":"x","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`, "answered INTERNAL_SERVER_ERROR", false, true},
		{"linear", `{"errors":[{"message":"x","extensions":{"code":"<b>"}}]}`, "answered an error of GraphQL", false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
		s := ByProvider(c.provider)
		_, err := s.Post(t.Context(), lookup.NewClient(time.Now), lookup.API{URL: server.URL, Secret: secret.New("x")}, testPlaces[c.provider], s.Text(message(Ended)), "k")
		server.Close()
		if f := failed(err); f == nil || !strings.Contains(f.Error(), c.want) || f.Final() != c.final || f.Uncertain() != c.uncertain {
			t.Errorf("%s: %+v", c.answer, f)
		}
	}
}

// TestTeamsNeedsABot: without the credential of a bot, the answer says what is missing.
func TestTeamsNeedsABot(t *testing.T) {
	_, err := teamsSender.Post(t.Context(), lookup.NewClient(time.Now), lookup.API{Secret: secret.New("a-token")}, testPlaces["teams"], teamsSender.Text(message(Ended)), "k")
	if f := failed(err); f == nil || !f.Final() || f.Uncertain() || !strings.Contains(f.Error(), "a bot that is in the team") {
		t.Errorf("%v", err)
	}
}
