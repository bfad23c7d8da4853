package server

import (
	"cmp"
	"context"
	"strings"
	"unicode"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// createLoginLink makes a link that signs somebody in once: the caller, with a role of the
// caller's, or whomever a manager names.
func (s *Server) createLoginLink(ctx context.Context, c *call, all *store.Store) (link api.LoginLink, err error) {
	req, err := optionalBody[api.CreateLoginLink](c)
	if err != nil {
		return link, err
	}
	l := store.LoginLink{
		Person: cmp.Or(req.Name, c.Owner), Role: cmp.Or(req.Role, c.Role()), Via: "link of " + c.Name, KeyID: c.KeyID,
		Life: sessionLife, Idle: sessionIdle,
	}
	scope := access.ScopeOf(l.Role)
	switch {
	case scope == "":
		return link, refuse("role", l.Role, "%q is no role: they are %s", l.Role, strings.Join(access.Roles, ", "))
	case !c.May(scope):
		return link, api.Refuse(api.NotAuthorized, "a link for the role "+l.Role+" needs the scope "+scope)
	case (l.Person != c.Owner || c.Kind == store.KeyAgent) && !c.May(store.ScopeManage):
		return link, api.Refuse(api.NotAuthorized, "a link for somebody else needs the scope "+store.ScopeManage)
	case c.SessionID != 0 && !c.May(store.ScopeManage):
		return link, api.Refuse(api.NotAuthorized, "a session cannot make another session: ask a manager for a link, or use a key")
	case c.Kind == store.KeyAgent && req.Name == "":
		return link, refuse("name", "", "this key is an agent's, and the pages are for people: say who signs in")
	case len(l.Person) > maxPerson || strings.ContainsFunc(l.Person, func(r rune) bool { return !unicode.IsPrint(r) }):
		return link, refuse("name", "", "a name has up to %d bytes, which can be shown", maxPerson)
	}
	if req.To != "" && req.To != "/" && returnPath(req.To) == "" {
		return link, refuse("to", req.To, "to is the path of a page of this server, such as /runs")
	}
	token, err := all.Sessions.CreateLoginLink(ctx, l, linkLife)
	if err != nil {
		return link, err
	}
	c.audit("auth.link", l.Person, "", l.Role)
	return api.LoginLink{
		URL: s.cfg.BaseURL + loginPath(token, req.To), Name: l.Person, Role: l.Role, ExpiresAt: s.cfg.Now().Add(linkLife),
	}, nil
}

// maxPerson is the largest length of a person's name, in bytes.
const maxPerson = 100

func (s *Server) listSessions(ctx context.Context, _ *call, all *store.Store) (api.List[api.Session], error) {
	sessions, err := all.Sessions.List(ctx)
	return listOf(sessions, showSession), err
}

func showSession(n *store.PageSession) api.Session {
	return api.Session{
		ID: n.ID.String(), Name: n.Person, Role: n.Role, Via: n.Via, CreatedAt: n.CreatedAt, SeenAt: n.SeenAt,
		ExpiresAt: n.ExpiresAt, IdleSeconds: int64(n.Idle.Seconds()), From: n.Address, Browser: n.Browser,
	}
}

// endSession signs somebody out of the pages at once.
func (s *Server) endSession(ctx context.Context, c *call, all *store.Store) (shown api.Session, err error) {
	id, err := store.ParseID[store.PageSession](c.Param("id"))
	if err != nil {
		return shown, err
	}
	n, err := all.Sessions.End(ctx, id)
	if err != nil {
		return shown, err
	}
	s.streams.revoke(func(by *access.Caller) bool { return by.SessionID == id })
	c.audit("auth.session_end", n.Person, "", n.ID.String())
	return showSession(n), nil
}

// endSessions signs everybody out of the pages.
func (s *Server) endSessions(ctx context.Context, c *call, all *store.Store) (api.Ended, error) {
	ended, err := all.Sessions.EndAll(ctx)
	if err != nil {
		return api.Ended{}, err
	}
	s.streams.revoke(func(by *access.Caller) bool { return by.SessionID != 0 })
	c.audit("auth.logout_all", "", "", "ended "+terms.Counted(ended.Sessions, "session")+" and "+terms.Counted(ended.LoginLinks, "link"))
	return api.Ended(ended), nil
}

func visitor(c *gin.Context) store.Visitor {
	return store.Visitor{Address: c.ClientIP(), Browser: browserOf(c.Request.UserAgent())}
}

// browserOf names the browser and the system of a User-Agent, in words of this server. So
// nothing that a stranger wrote is kept.
func browserOf(userAgent string) string {
	pick := func(otherwise string, names ...string) string { // pairs of what it contains and what that means
		for i := 0; i < len(names); i += 2 {
			if strings.Contains(userAgent, names[i]) {
				return names[i+1]
			}
		}
		return otherwise
	}
	browser := pick("", "Edg", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "FxiOS/", "Firefox", "Chrome/", "Chrome", "CriOS/", "Chrome",
		"Safari/", "Safari", "curl/", "curl")
	system := pick("", "Android", "Android", "iPhone", "iOS", "iPad", "iOS", "Windows", "Windows", "Mac OS X", "macOS", "CrOS", "ChromeOS", "Linux", "Linux")
	if browser == "" || system == "" {
		return cmp.Or(browser, system, "unknown")
	}
	return browser + " on " + system
}
