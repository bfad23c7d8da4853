package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/server/store"
)

func (f *fixture) page(cookie string) int { return f.do("GET", "/", "", "", "Cookie", cookie).status }

// link makes a login link with a key and returns its path.
func (f *fixture) link(key string) string {
	f.t.Helper()
	return strings.TrimPrefix(field(f.t, f.do("POST", "/api/v1/auth/links", key, ""), "url"), f.url)
}

// redeem presses the button of the page that a login link opens.
func (f *fixture) redeem(link string) answer {
	f.t.Helper()
	return f.do("POST", strings.TrimPrefix(link, f.url), "", "")
}

func (f *fixture) signIn(link string) (cookie string) {
	f.t.Helper()
	got := f.redeem(link)
	if got.status != http.StatusSeeOther {
		f.t.Fatalf("sign in: %d", got.status)
	}
	cookie, _, _ = strings.Cut(got.header.Get("Set-Cookie"), ";")
	return cookie
}

// TestNothingOutlivesItsKey: sessions, links and schedules end with the key that
// they were made with, and no others (SPEC 10.2).
func TestNothingOutlivesItsKey(t *testing.T) {
	const schedules = "/api/v1/agent/schedules"
	for _, tt := range []struct {
		name, why string
		end       func(*fixture, *clock, string)
	}{
		{"revoked", "its API key leaked was revoked", func(f *fixture, _ *clock, admin string) {
			got := f.do("DELETE", "/api/v1/keys/leaked", admin, "")
			if got.status != 200 || field(f.t, got, "ended", "sessions") != "1" || field(f.t, got, "ended", "login_links") != "1" || field(f.t, got, "ended", "schedules") != "1" {
				f.t.Errorf("%d %s", got.status, got.body)
			}
			entries, err := f.store.Audit.List(f.t.Context(), store.AuditQuery{Limit: 1})
			if err != nil || entries[0].Action != "key.revoke" || entries[0].Details != "ended 1 session and 1 link, paused 1 schedule" {
				f.t.Errorf("audit %+v %v", entries, err)
			}
		}},
		{"expired", "its API key leaked has expired", func(_ *fixture, c *clock, _ string) { c.pass(5 * time.Minute) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &clock{now: time.Now().Truncate(time.Microsecond)}
			f := newFixtureWith(t, options{now: c.Now})
			admin := f.key("admin", "manage")
			_, token, err := f.store.Keys.Create(t.Context(), store.Key{
				Name: "leaked", Kind: store.KeyPersonal, Owner: "ada", Scopes: []string{"manage"}, ExpiresAt: c.Now().Add(5 * time.Minute),
			})
			if err != nil {
				t.Fatal(err)
			}
			leaked := token.Reveal()
			body := `{"name":"Nightly","cron_schedule":"@every 1m","prompt":"Tidy up."}`
			session, unused := f.signIn(f.link(leaked)), f.link(leaked)
			otherSession, otherLink := f.signIn(f.link(admin)), f.link(admin)
			made, other := f.do("POST", schedules, leaked, body), f.do("POST", schedules, admin, body)
			id := field(t, made, "id")
			before, err := f.store.Schedules.Get(t.Context(), idOf[store.Schedule](t, id))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.page(session); got != 200 {
				t.Fatalf("before: %d", got)
			}

			tt.end(f, c, admin)
			if got := f.page(session); got != 401 {
				t.Errorf("its session: %d", got)
			}
			if got := f.get(unused, ""); got.status != 401 {
				t.Errorf("its link: %d", got.status)
			}
			if got := f.page(otherSession); got != 200 {
				t.Errorf("another key's session: %d", got)
			}
			if got := f.page(f.signIn(otherLink)); got != 200 {
				t.Errorf("another key's link: %d", got)
			}
			got := f.get(schedules+"/"+id, admin)
			if field(t, got, "enabled") != "false" || field(t, got, "paused_reason") != tt.why || field(t, got, "history", "next_run") != "<nil>" {
				t.Errorf("its schedule: %s", got.body)
			}
			if got := f.get(schedules+"/"+field(t, other, "id"), admin); field(t, got, "enabled") != "true" || strings.Contains(string(got.body), "paused_reason") {
				t.Errorf("another key's schedule: %s", got.body)
			}
			// A tick that was looked at while the key still worked.
			r, err := f.scheduledRun(before)
			if err != nil {
				t.Fatal(err)
			}
			if runs, err := f.store.Schedules.Fire(t.Context(), store.Tick{Schedule: before, At: c.Now(), Runs: []store.NewRun{r}}); len(runs) != 0 || err != nil {
				t.Errorf("its schedule started %v, %v", runs, err)
			}
			// With another key of hers it goes on from now.
			c.pass(time.Hour)
			again := f.key("again", "runs")
			if got := f.do("POST", schedules+"/"+id+"/resume", again, ""); field(t, got, "enabled") != "true" || field(t, got, "created_by", "uid") != "ada" {
				t.Errorf("resumed: %s", got.body)
			}
			if n, err := f.store.Schedules.Get(t.Context(), idOf[store.Schedule](t, id)); err != nil || !n.Active() || !n.Seen.Equal(c.Now()) || n.KeyID == before.KeyID {
				t.Errorf("resumed: %+v %v", n, err)
			}
		})
	}
}

// TestEndSessions: who manages signs everybody out, the server's own user too.
func TestEndSessions(t *testing.T) {
	f := newFixture(t)
	admin := f.key("admin", "manage")
	token, err := f.store.Sessions.CreateLoginLink(t.Context(), linkFor("root", "manager"), linkLife)
	if err != nil {
		t.Fatal(err)
	}
	open := []string{f.signIn(f.link(admin)), f.signIn("/auth/login?token=" + token)}
	unused := f.link(admin)
	got := f.do("DELETE", "/api/v1/auth/sessions", admin, "")
	if got.status != 200 || field(t, got, "sessions") != "2" || field(t, got, "login_links") != "1" {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, cookie := range open {
		if got := f.page(cookie); got != 401 {
			t.Errorf("a session: %d", got)
		}
	}
	if got := f.get(unused, ""); got.status != 401 {
		t.Errorf("a link: %d", got.status)
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || entries[0].Action != "auth.logout_all" || entries[0].Actor != "key admin (ada)" || entries[0].Details != "ended 2 sessions and 1 link" {
		t.Errorf("audit %+v %v", entries, err)
	}
	if got := f.page(f.signIn(f.link(admin))); got != 200 {
		t.Errorf("afterwards: %d", got)
	}
}

// TestExpiredStream: a stream ends when its key does, also one on which there is
// always something to say.
func TestExpiredStream(t *testing.T) {
	f := newFixture(t)
	_, token, err := f.store.Keys.Create(t.Context(), store.Key{
		Name: "short", Kind: store.KeyPersonal, Owner: "ada", Scopes: []string{"runs"}, ExpiresAt: time.Now().Add(2 * time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := f.claimed(token.Reveal())
	s := f.follow(token.Reveal(), l.RunID.String(), "")
	for seq := int64(1); ; seq++ {
		f.say(l, seq, seq)
		if _, ok := s.next(t); !ok {
			break
		}
	}
	if got := f.get("/api/v1/agent/runs", token.Reveal()); got.status != 401 {
		t.Errorf("the stream ended before its key: %d", got.status)
	}
}

// TestScheduleOwners: a schedule's runs count as its creator's, so nobody else can
// change what they are or when, and who manages answers for what he changes.
func TestScheduleOwners(t *testing.T) {
	const same, other = `"name":"Nightly","cron_schedule":"@daily","prompt":"Tidy up."`, `"name":"Nightly","cron_schedule":"@daily","prompt":"Delete it all."`
	type key struct {
		kind, owner string
		scopes      []string
	}
	keys := map[string]key{
		"ada":       {store.KeyPersonal, "ada", []string{"runs"}},
		"ada again": {store.KeyPersonal, "ada", []string{"runs"}},
		"bob":       {store.KeyPersonal, "bob", []string{"runs"}},
		"agent ada": {store.KeyAgent, "ada", []string{"runs"}},
		"reader":    {store.KeyPersonal, "ada", []string{"read"}},
		"boss":      {store.KeyPersonal, "boss", []string{"manage"}},
	}
	f := newFixture(t)
	tokens, ids := make(map[string]string), make(map[string]string)
	create := func(name string) {
		k := keys[name]
		made, token, err := f.store.Keys.Create(t.Context(), store.Key{Name: name, Kind: k.kind, Owner: k.owner, Scopes: k.scopes})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name], ids[name] = token.Reveal(), made.ID.String()
	}
	for name := range keys {
		create(name)
	}
	for _, tt := range []struct {
		who, method, suffix, body string
		status                    int
		creator, changer, key     string // of the schedule afterwards
		revoked                   bool   // before that, ada's key
	}{
		{"ada", "PUT", "", "{" + other + `,"enabled":true}`, 200, "user ada", "user ada", "ada", false},
		{"ada again", "PUT", "", "{" + other + `,"enabled":true}`, 200, "user ada", "user ada", "ada again", false},
		{"ada again", "POST", "/pause", "", 200, "user ada", "user ada", "ada", false},
		{"ada again", "POST", "/resume", "", 200, "user ada", "user ada", "ada again", false},
		{"ada again", "DELETE", "", "", 200, "", "", "", false},
		{"ada again", "POST", "/resume", "", 200, "user ada", "user ada", "ada again", true},

		{"bob", "PUT", "", "{" + other + `,"enabled":true}`, 403, "user ada", "user ada", "ada", false},
		{"bob", "PUT", "", "{" + same + `,"enabled":false}`, 403, "user ada", "user ada", "ada", false},
		{"bob", "PUT", "", `not JSON`, 403, "user ada", "user ada", "ada", false},
		{"bob", "POST", "/pause", "", 403, "user ada", "user ada", "ada", false},
		{"bob", "POST", "/resume", "", 403, "user ada", "user ada", "ada", false},
		{"bob", "POST", "/resume", "", 403, "user ada", "user ada", "ada", true},
		{"bob", "DELETE", "", "", 403, "user ada", "user ada", "ada", false},
		{"agent ada", "PUT", "", "{" + other + `,"enabled":true}`, 403, "user ada", "user ada", "ada", false},
		{"agent ada", "POST", "/pause", "", 403, "user ada", "user ada", "ada", false},
		{"agent ada", "DELETE", "", "", 403, "user ada", "user ada", "ada", false},
		{"reader", "POST", "/pause", "", 403, "user ada", "user ada", "ada", false},

		{"boss", "PUT", "", "{" + other + `,"enabled":true}`, 200, "user boss", "user boss", "boss", false},
		{"boss", "PUT", "", "{" + same + `,"enabled":true}`, 200, "user ada", "user boss", "ada", false},
		{"boss", "PUT", "", "{" + same + `,"enabled":true}`, 200, "user boss", "user boss", "boss", true},
		{"boss", "PUT", "", "{" + same + `,"enabled":false}`, 200, "user ada", "user boss", "ada", true},
		{"boss", "PUT", "", `{"name":"Nightly","cron_schedule":"@hourly","prompt":"Tidy up.","enabled":true}`, 200, "user boss", "user boss", "boss", false},
		{"boss", "POST", "/pause", "", 200, "user ada", "user boss", "ada", false},
		{"boss", "POST", "/resume", "", 200, "user ada", "user boss", "ada", false},
		{"boss", "POST", "/resume", "", 200, "user boss", "user boss", "boss", true},
		{"boss", "DELETE", "", "", 200, "", "", "", false},
	} {
		t.Run(strings.ReplaceAll(tt.who+" "+tt.method+tt.suffix, "/", " "), func(t *testing.T) {
			if tokens["ada"] == "" { // the one that may have been revoked
				create("ada")
			}
			path := "/api/v1/agent/schedules"
			id := field(t, f.do("POST", path, tokens["ada"], "{"+same+"}"), "id")
			if tt.revoked {
				f.do("DELETE", "/api/v1/keys/"+ids["ada"], tokens["boss"], "")
				tokens["ada"] = ""
			}
			if got := f.do(tt.method, path+"/"+id+tt.suffix, tokens[tt.who], tt.body); got.status != tt.status {
				t.Errorf("%d, want %d: %s", got.status, tt.status, got.body)
			}
			n, err := f.store.Schedules.Get(t.Context(), idOf[store.Schedule](t, id))
			if tt.creator == "" {
				if err == nil {
					t.Error("it is still there")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if creator, changer := n.CreatorKind+" "+n.CreatorName, n.UpdatedKind+" "+n.UpdatedBy; creator != tt.creator || changer != tt.changer || n.KeyID.String() != ids[tt.key] {
				t.Errorf("it is %s's, changed by %s, and needs %s; want %s, %s, %s", creator, changer, n.KeyID, tt.creator, tt.changer, ids[tt.key])
			}
			if r, err := f.scheduledRun(n); err != nil || r.CreatorKind+" "+r.CreatorName != tt.creator {
				t.Errorf("its runs are %s %s's, %v", r.CreatorKind, r.CreatorName, err)
			}
			audit, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 1})
			if changed := err == nil && audit[0].Object == id && strings.Contains(audit[0].Actor, "key "+tt.who+" "); changed != (tt.status == 200) {
				t.Errorf("audit %+v %v", audit, err)
			}
		})
	}
}
