package server

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/dashboard"
	"triphammer/server/oidc"
	"triphammer/server/store"
)

const (
	sessionCookie = "triphammer_session"
	flowCookie    = "triphammer_signin" // while the person is at the provider
	flowLife      = 10 * time.Minute
	sessionLife   = 12 * time.Hour
	sessionIdle   = 2 * time.Hour
	linkLife      = 10 * time.Minute
)

// oidcCallback is where the provider sends a person back to.
const oidcCallback = "/auth/oidc/callback"

// CallbackURL is the address to register at an OpenID Connect provider.
func CallbackURL(baseURL string) string { return baseURL + oidcCallback }

// cookieName is the name of a cookie. Over https, its prefix makes browsers refuse one that
// another host or a page without https has set.
func (s *Server) cookieName(name string) string {
	switch {
	case !s.secure():
		return name
	case s.base == "":
		return "__Host-" + name
	}
	return "__Secure-" + name // __Host- is only for cookies of the whole host
}

// setCookie sets a cookie that no script reads; with a life of 0, it removes it.
func (s *Server) setCookie(c *gin.Context, name, value string, life time.Duration) {
	cookie := &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: cmp.Or(s.base, "/"), MaxAge: int(life.Seconds()),
		HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteLaxMode,
	}
	if life == 0 {
		cookie.MaxAge = -1
	}
	http.SetCookie(c.Writer, cookie)
}

// signedIn lets requests through that have a session (SPEC 10.3).
func (s *Server) signedIn(c *gin.Context) {
	by, err := s.session(c)
	if err == nil {
		c.Set(inRail, s.admit(c, by))
		return
	}
	if !errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusServiceUnavailable, "The store cannot be read", "Try again.")
		return
	}
	to := ""
	if c.Request.Method == http.MethodGet {
		to = c.Request.URL.RequestURI()
	}
	s.signInPage(c, to)
}

// session is who looks at a page; store.ErrNotFound: nobody whom this server knows.
func (s *Server) session(c *gin.Context) (*access.Caller, error) {
	if actor, ok := c.Request.Context().Value(localKey).(string); ok {
		return access.Local(actor), nil
	}
	token, err := c.Cookie(s.cookieName(sessionCookie))
	if err != nil {
		return nil, store.ErrNotFound
	}
	return s.cfg.Data.BySession(c.Request.Context(), token)
}

// signInPage says how to sign in, and then goes to a path.
func (s *Server) signInPage(c *gin.Context, to string) {
	page := dashboard.SignIn{Page: dashboard.Page{Title: "Sign in", Base: s.base}, To: returnPath(to)}
	if s.cfg.SignIn != nil {
		page.Provider = s.cfg.SignIn.Name()
	}
	c.Abort()
	s.render(c, http.StatusUnauthorized, page)
}

// returnPath is where a person goes on after signing in; empty: to the first page.
func returnPath(to string) string {
	to = dashboard.LocalPath(to)
	if u, err := url.Parse(to); err != nil || to == "/" || strings.HasPrefix(u.Path, "/auth/") {
		return ""
	}
	return to
}

// loginPath is the path of a link, and of the form that uses it up.
func loginPath(token, to string) string {
	path := "/auth/login?token=" + url.QueryEscape(token)
	if to != "" {
		path += "&to=" + url.QueryEscape(to)
	}
	return path
}

// loginPage shows for whom a link is. The link is used up by the button, not by the look:
// programs that check links in mails and messages open them, and another site could sign a
// person in as somebody else by a mere link.
func (s *Server) loginPage(c *gin.Context) {
	token, to := c.Query("token"), c.Query("to")
	if token == "" {
		s.signInPage(c, "")
		return
	}
	by, none := s.session(c)
	l, err := s.cfg.Data.LoginLink(c.Request.Context(), token)
	// Whoever is signed in, may do as much and wants a page needs no link, so nobody else may use
	// it then.
	if none == nil && to != "" && (err != nil || by.May(access.ScopeOf(l.Role))) {
		if err := s.cfg.Data.DropLoginLink(c.Request.Context(), token); err != nil {
			s.failPage(c, err)
			return
		}
		s.goOn(c, to)
		return
	}
	if err != nil {
		s.deadLink(c, err)
		return
	}
	s.render(c, http.StatusOK, dashboard.SignIn{Page: dashboard.Page{Title: "Sign in", Base: s.base}, Action: s.base + loginPath(token, to), Who: l.Person, Role: l.Role})
}

// login turns a link into a session. It reads no body, as nothing does for strangers.
func (s *Server) login(c *gin.Context) {
	token, by, err := s.cfg.Data.SignIn(c.Request.Context(), c.Query("token"), visitor(c))
	if err != nil {
		s.deadLink(c, err)
		return
	}
	s.begin(c, token, by, c.Query("to"))
}

func (s *Server) deadLink(c *gin.Context, err error) {
	if !errors.Is(err, store.ErrNotFound) {
		s.failPage(c, err)
		return
	}
	s.message(c, http.StatusUnauthorized, "This link does not work",
		"It was used, it is too old, or the key that made it was revoked. Run `triphammer auth login` for another.")
}

// begin gives a new session to the browser, and ends the one that it had.
func (s *Server) begin(c *gin.Context, token string, by *access.Caller, to string) {
	if old, err := c.Cookie(s.cookieName(sessionCookie)); err == nil {
		if err := s.signOut(c, old); err != nil {
			s.cfg.Logger.Warn("the earlier session of a browser could not be ended", "error", err)
		}
	}
	s.setCookie(c, sessionCookie, token, sessionLife)
	s.admit(c, by).audit("auth.login", by.Owner, "", by.Role())
	s.goOn(c, to)
}

// goOn sends a person who is signed in to the page that was asked for.
func (s *Server) goOn(c *gin.Context, to string) {
	c.Redirect(http.StatusSeeOther, s.base+cmp.Or(returnPath(to), "/"))
}

func (s *Server) logout(c *gin.Context) {
	if token, err := c.Cookie(s.cookieName(sessionCookie)); err == nil {
		if err := s.signOut(c, token); err != nil {
			s.failPage(c, err)
			return
		}
	}
	s.setCookie(c, sessionCookie, "", 0)
	s.message(c, http.StatusOK, "Signed out", "The session has ended.")
}

// signOut ends a session and its streams, if there is one.
func (s *Server) signOut(c *gin.Context, token string) error {
	by, err := s.cfg.Data.SignOut(c.Request.Context(), token)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		s.streams.revoke(func(other *access.Caller) bool { return other.SessionID == by.SessionID })
		s.admit(c, by).audit("auth.logout", by.Owner, "", "")
	}
	return err
}

// toProvider sends a person to the provider.
func (s *Server) toProvider(c *gin.Context) {
	if s.cfg.SignIn == nil {
		s.message(c, http.StatusNotFound, "Not found", "This server has no sign-in service (--oidc-issuer).")
		return
	}
	address, flow, err := s.cfg.SignIn.Begin(c.Request.Context(), returnPath(c.Query("to")))
	if err != nil {
		s.noSignIn(c, err)
		return
	}
	s.setCookie(c, flowCookie, flow.Encode(), flowLife)
	c.Redirect(http.StatusSeeOther, address)
}

// fromProvider takes a person who comes back from the provider.
func (s *Server) fromProvider(c *gin.Context) {
	if s.cfg.SignIn == nil {
		s.toProvider(c)
		return
	}
	kept, _ := c.Cookie(s.cookieName(flowCookie))
	s.setCookie(c, flowCookie, "", 0) // an answer counts once
	flow := oidc.DecodeFlow(kept)
	who, err := s.cfg.SignIn.Finish(c.Request.Context(), flow, c.Request.URL.Query())
	if err != nil {
		if errors.Is(err, oidc.ErrNoRole) {
			refused := &access.Caller{Name: "page " + who.Name, Owner: who.Name}
			s.admit(c, refused).audit("auth.refused", who.Name, "", "no rule gives a role; signed in at "+s.cfg.SignIn.Name())
			s.message(c, http.StatusForbidden, "You have no role here",
				"You are "+who.Name+" at "+s.cfg.SignIn.Name()+", and nothing gives you a role on this server. Ask whoever runs it: a rule of --oidc-role, or a link (triphammer auth login --name).")
			return
		}
		s.noSignIn(c, err)
		return
	}
	token, by, err := s.cfg.Data.Open(c.Request.Context(), store.LoginLink{
		Person: who.Name, Role: who.Role, Via: s.cfg.SignIn.Name(), Life: sessionLife, Idle: sessionIdle,
	}, visitor(c))
	if err != nil {
		s.failPage(c, err)
		return
	}
	s.begin(c, token, by, flow.To)
}

// noSignIn says that a sign-in at the provider failed. Anybody can cause that.
func (s *Server) noSignIn(c *gin.Context, err error) {
	s.seldom.say("sign-in", func(times int) {
		s.cfg.Logger.Warn("a sign-in at the sign-in service failed", "service", s.cfg.SignIn.Name(), "times", times, "error", err)
	})
	if errors.Is(err, oidc.ErrUnreachable) {
		s.message(c, http.StatusServiceUnavailable, "The sign-in service does not answer",
			s.cfg.SignIn.Name()+" does not answer. Try again, or use a link: `triphammer auth login` on the server's machine prints one.")
		return
	}
	s.message(c, http.StatusUnauthorized, "The sign-in failed", "Begin again at the page Sign in. The reason: "+err.Error()+".")
}
