package dashboard

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

var peopleRoutes = []Route{
	need(get("/people", peoplePage), store.ScopeManage),
	need(get("/audit", auditPage), store.ScopeManage),
	post("/people/keys", store.ScopeManage, createKey, "POST /keys"),
	post("/people/keys/:id/revoke", store.ScopeManage, revokeKey, "DELETE /keys/:name"),
	post("/people/links", store.ScopeManage, createLink, "POST /auth/links"),
	post("/people/sessions/:id/end", store.ScopeManage, endSession, "DELETE /auth/sessions/:id"),
	post("/people/sessions/end", store.ScopeManage, endSessions, "DELETE /auth/sessions"),
}

// need makes a route need a scope.
func need(r Route, scope string) Route {
	r.Scope = scope
	return r
}

// People is the page of the API keys and the sessions, with a newly made key or link.
type People struct {
	Page
	Keys     []api.Key // valid keys, by their last use
	KeysTurn Turn
	Turn     Turn // of the sessions
	Working  int  // valid keys, and Open is how many sessions there are, whatever the page shows
	Open     int
	Ended    []api.Key // revoked or expired keys
	Sessions []api.Session
	// These are shown only once.
	Made *api.Key
	Link *api.LoginLink

	Form    url.Values // a refused form
	Problem string     // why the form was refused
}

var people = parse("people")

func (People) template() *template.Template { return people() }

// Status tells that a form was refused.
func (p People) Status() int {
	if p.Problem != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// Scopes are the scopes of keys, with their purposes.
func (People) Scopes() [][2]string {
	return [][2]string{
		{store.ScopeRuns, "create, read and cancel runs"},
		{store.ScopeRead, "read everything"},
		{store.ScopeOperate, "runs and read, and also test, replay, pause, approve, apply and pin"},
		{store.ScopeManage, "everything"},
	}
}

func peoplePage(v *Visit) (page People, err error) {
	if page.Page, err = v.Page("Keys and people"); err != nil {
		return page, err
	}
	var keys api.List[api.Key]
	var sessions api.List[api.Session]
	if err := errors.Join(v.Get("/keys", &keys), v.Get("/auth/sessions", &sessions)); err != nil {
		return page, err
	}
	slices.SortStableFunc(keys.Entries, func(a, b api.Key) int { return lastUse(b).Compare(lastUse(a)) })
	for _, k := range keys.Entries {
		if k.RevokedAt != nil || k.ExpiresAt != nil && !k.ExpiresAt.After(page.At) {
			page.Ended = append(page.Ended, k)
		} else {
			page.Keys = append(page.Keys, k)
		}
	}
	page.Working, page.Open = len(page.Keys), len(sessions.Entries)
	page.Keys, page.KeysTurn = turnBy(v, "key", page.Keys, func(k api.Key) []string { return append(k.Scopes, k.Name, k.Owner, k.Factory) })
	page.Sessions, page.Turn = turn(v, sessions.Entries, func(s api.Session) []string { return []string{s.Name, s.Role, s.Via, s.From} })
	return page, nil
}

func lastUse(k api.Key) time.Time {
	if k.LastUsedAt == nil {
		return time.Time{}
	}
	return *k.LastUsedAt
}

func (v *Visit) peopleAgain(err error) (Content, error) {
	refused := (*Refused)(nil)
	if !errors.As(err, &refused) || refused.Status >= 500 {
		return nil, err
	}
	page, failed := peoplePage(v)
	page.Form, page.Problem = v.Form, err.Error()
	return page, failed
}

// createKey makes a key. Only this answer shows it.
func createKey(v *Visit) (Content, error) {
	req := api.CreateKey{
		Name: strings.TrimSpace(v.Form.Get("name")), Scopes: v.Form["scope"], Factory: strings.TrimSpace(v.Form.Get("only")),
	}
	if who := strings.TrimSpace(v.Form.Get("owner")); v.Form.Get("kind") == store.KeyAgent {
		req.Agent = who
	} else {
		req.Owner = who
	}
	if days := v.Form.Get("expires"); days != "" {
		d, err := time.ParseDuration(days)
		if err != nil {
			return nil, err
		}
		req.ExpiresSeconds = int64(d.Seconds())
	}
	var made api.Key
	if err := v.Send("POST", "/keys", req, &made); err != nil {
		return v.peopleAgain(err)
	}
	page, err := peoplePage(v)
	page.Made = &made
	return page, err
}

func revokeKey(v *Visit) (SeeOther, error) {
	var k api.Key
	err := v.Send("DELETE", escaped("/keys", v.Param("id")), nil, &k)
	return SeeOther{To: "/people", Said: "The key " + k.Name + " is revoked, and what was made with it has ended."}, err
}

// createLink makes a link that signs somebody in. Only this answer shows it.
func createLink(v *Visit) (Content, error) {
	req := api.CreateLoginLink{Name: strings.TrimSpace(v.Form.Get("name")), Role: v.Form.Get("role")}
	var link api.LoginLink
	if err := v.Send("POST", "/auth/links", req, &link); err != nil {
		return v.peopleAgain(err)
	}
	page, err := peoplePage(v)
	page.Link = &link
	return page, err
}

func endSession(v *Visit) (SeeOther, error) {
	var n api.Session
	err := v.Send("DELETE", escaped("/auth/sessions", v.Param("id")), nil, &n)
	return SeeOther{To: "/people", Said: n.Name + " is signed out of that session."}, err
}

func endSessions(v *Visit) (SeeOther, error) {
	return SeeOther{To: "/", Said: "Everybody is signed out."}, v.Send("DELETE", "/auth/sessions", nil, nil)
}

// Audit is a page of the audit log.
type Audit struct {
	Page
	Entries []api.AuditEntry
	Query   url.Values // the filters
	Next    string     // address of the page with older entries
}

var audit = parse("audit")

func (Audit) template() *template.Template { return audit() }

// Asks returns the value of a filter.
func (a Audit) Asks(name string) string { return a.Query.Get(name) }

// Filtered tells whether a filter is set.
func (a Audit) Filtered() bool { return len(a.Query) > 0 }

func auditPage(v *Visit) (page Audit, err error) {
	if page.Page, err = v.Page("Audit"); err != nil {
		return page, err
	}
	query, shown := url.Values{"limit": {"50"}}, url.Values{}
	for _, name := range []string{"actor", "action", "object", "since", "until", "cursor"} {
		if value := strings.TrimSpace(v.Query(name)); value != "" {
			if name != "cursor" {
				shown.Set(name, value)
			}
			if _, err := time.Parse(time.DateOnly, value); err == nil && (name == "since" || name == "until") {
				value += "T00:00:00Z"
			}
			query.Set(name, value)
		}
	}
	var entries api.List[api.AuditEntry]
	if err := v.Get("/audit?"+query.Encode(), &entries); err != nil {
		return page, err
	}
	page.Entries, page.Query = entries.Entries, shown
	if entries.PageInfo.HasNextPage {
		next := cloned(shown)
		next.Set("cursor", entries.PageInfo.NextCursor)
		page.Next = page.Base + "/audit?" + next.Encode()
	}
	return page, nil
}
