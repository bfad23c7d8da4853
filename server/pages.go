package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/dashboard"
	"triphammer/server/run"
	"triphammer/server/store"
)

const (
	sessionCookie = "triphammer_session"
	sessionLife   = 12 * time.Hour
	linkLife      = 10 * time.Minute
	pageSize      = 50
)

// pages are the routes of the dashboard.
func (s *Server) pages(e *gin.Engine) {
	e.GET("/static/style.css", func(c *gin.Context) {
		c.Header("Cache-Control", "max-age=300")
		c.Data(http.StatusOK, "text/css; charset=utf-8", dashboard.Style)
	})
	e.GET("/auth/login", pageHeaders, s.login)
	e.POST("/auth/logout", pageHeaders, sameOrigin, s.logout)
	p := e.Group("", pageHeaders, s.signedIn)
	p.GET("/", s.overviewPage)
	p.GET("/deliveries", s.deliveriesPage)
	p.GET("/deliveries/:id", s.deliveryPage)
	p.GET("/automations", s.automationsPage)
	p.GET("/automations/test", s.filterTestPage)
	p.POST("/automations/test", sameOrigin, s.testFromPage)
	p.GET("/runs", s.runsPage)
	p.GET("/runs/:id", s.runPage)
	p.POST("/factories/:name/apply", sameOrigin, s.applyFromPage)
}

func pageHeaders(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// sameOrigin refuses state-changing requests that another site made (SPEC 10.3).
func sameOrigin(c *gin.Context) {
	if err := http.NewCrossOriginProtection().Check(c.Request); err != nil {
		fail(c, api.NotAuthorized, "the request came from another site")
	}
}

// signedIn lets pages through that have a session (SPEC 10.3).
func (s *Server) signedIn(c *gin.Context) {
	if actor, ok := c.Request.Context().Value(localKey).(string); ok {
		c.Set(principalKey, &Principal{Name: "local " + actor, Kind: "local", Owner: actor, Scopes: []string{store.ScopeManage}})
		return
	}
	if token, err := c.Cookie(sessionCookie); err == nil {
		actor, err := s.cfg.Store.Session(c.Request.Context(), token)
		if err == nil {
			c.Set(principalKey, &Principal{Name: "page " + actor, Kind: store.KeyPersonal, Owner: actor, Scopes: []string{store.ScopeManage}})
			return
		}
		if !errors.Is(err, store.ErrNotFound) {
			s.message(c, http.StatusServiceUnavailable, "The store cannot be read", "Try again.")
			return
		}
	}
	s.message(c, http.StatusUnauthorized, "Sign in", "Run `triphammer auth login` on the server's machine: it prints a link that opens these pages once.")
}

func (s *Server) message(c *gin.Context, status int, title, text string) {
	c.Abort()
	s.render(c, status, dashboard.Message{Page: dashboard.Page{Title: title, Base: s.base}, Text: text})
}

func (s *Server) render(c *gin.Context, status int, data any) {
	var b bytes.Buffer
	if err := dashboard.Render(&b, data); err != nil {
		s.cfg.Logger.Error("a page could not be made", "error", err)
		c.String(http.StatusInternalServerError, "internal error\n")
		return
	}
	c.Data(status, "text/html; charset=utf-8", b.Bytes())
}

// failPage says why there is no page.
func (s *Server) failPage(c *gin.Context, err error) {
	if errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusNotFound, "Not found", "There is nothing at this address. It may have been removed with the age of the log.")
		return
	}
	if errors.Is(err, store.ErrDamaged) {
		s.message(c, http.StatusInternalServerError, "Stored data is damaged", "What this page would show is not what was stored, so that it is not shown. The server's log says what it is.")
		return
	}
	s.cfg.Logger.Error("a page could not be made", "route", c.FullPath(), "error", err)
	s.message(c, http.StatusInternalServerError, "Internal error", "The server's log has the reason.")
}

func (s *Server) pageOf(c *gin.Context, title string) dashboard.Page {
	return dashboard.Page{Title: title, Actor: who(c).Owner, Base: s.base}
}

// createLoginLink makes a one-time link for whoever asks.
func (s *Server) createLoginLink(c *gin.Context) {
	if !forAll(c) {
		return
	}
	token, err := s.cfg.Store.CreateLoginLink(c.Request.Context(), who(c).Owner, who(c).KeyID, linkLife)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "auth.link", who(c).Owner, "", "")
	c.JSON(http.StatusCreated, api.LoginLink{URL: s.cfg.BaseURL + "/auth/login?token=" + token, ExpiresAt: s.cfg.Now().Add(linkLife)})
}

// endSessions signs everybody out of the pages.
func (s *Server) endSessions(c *gin.Context) {
	if !forAll(c) {
		return
	}
	ended, err := s.cfg.Store.EndSessions(c.Request.Context())
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "auth.logout_all", "", "", fmt.Sprintf("ended %d sessions and %d links", ended.Sessions, ended.LoginLinks))
	c.JSON(http.StatusOK, api.Ended{Sessions: ended.Sessions, LoginLinks: ended.LoginLinks})
}

func (s *Server) login(c *gin.Context) {
	session, actor, err := s.cfg.Store.RedeemLoginLink(c.Request.Context(), c.Query("token"), sessionLife)
	if errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusUnauthorized, "This link does not work", "It was used, it is too old, or the key that made it was revoked. Run `triphammer auth login` for another.")
		return
	}
	if err != nil {
		s.failPage(c, err)
		return
	}
	http.SetCookie(c.Writer, &http.Cookie{
		Name: sessionCookie, Value: session, Path: cmp.Or(s.base, "/"), MaxAge: int(sessionLife.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(s.cfg.BaseURL, "https://"),
	})
	c.Set(principalKey, &Principal{Name: "page " + actor, Owner: actor})
	s.audit(c, "auth.login", actor, "", "")
	c.Redirect(http.StatusSeeOther, s.base+"/")
}

// applyFromPage is the button Apply now: the head is applied anew, even if it
// serves already (SPEC 4.4).
func (s *Server) applyFromPage(c *gin.Context) {
	name := c.Param("name")
	for _, a := range s.cfg.Appliers {
		if a.State().Factory != name {
			continue
		}
		// An apply takes as long as it takes: reading a repository has its own limits.
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
		done, err := a.Apply(c.Request.Context(), "dashboard")
		if err != nil {
			s.failPage(c, err)
			return
		}
		s.audit(c, "factory.apply", name, name, string(done.Outcome)+" "+done.Commit.Hash)
		c.Redirect(http.StatusSeeOther, s.base+"/") // which says what came of it
		return
	}
	s.failPage(c, store.ErrNotFound)
}

func (s *Server) logout(c *gin.Context) {
	if token, err := c.Cookie(sessionCookie); err == nil {
		actor, err := s.cfg.Store.Session(c.Request.Context(), token)
		if err == nil {
			err = s.cfg.Store.EndSession(c.Request.Context(), token)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.failPage(c, err)
			return
		}
		if err == nil {
			c.Set(principalKey, &Principal{Name: "page " + actor, Owner: actor})
			s.audit(c, "auth.logout", actor, "", "")
		}
	}
	http.SetCookie(c.Writer, &http.Cookie{Name: sessionCookie, Path: cmp.Or(s.base, "/"), MaxAge: -1, HttpOnly: true})
	s.message(c, http.StatusOK, "Signed out", "The session has ended.")
}

func (s *Server) overviewPage(c *gin.Context) {
	ctx := c.Request.Context()
	data := dashboard.Overview{Page: s.pageOf(c, "Overview")}
	for _, a := range s.cfg.Appliers {
		f := dashboard.Factory{State: a.State()}
		last, err := s.cfg.Store.LastApply(ctx, f.Factory, "")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.failPage(c, err)
			return
		}
		if err == nil {
			f.LastOutcome, f.LastCommit = last.Outcome, last.Commit
			_ = json.Unmarshal(last.Diagnostics, &f.Diagnostics) // none are shown if they do not decode
		}
		data.Factories = append(data.Factories, f)
	}
	var err1, err2 error
	data.Deliveries, err1 = s.cfg.Store.Deliveries(ctx, store.DeliveryQuery{Limit: 10})
	data.Runs, err2 = s.cfg.Store.Runs(ctx, store.RunQuery{Limit: 10})
	if err := errors.Join(err1, err2); err != nil {
		s.failPage(c, err)
		return
	}
	s.render(c, http.StatusOK, data)
}

func (s *Server) deliveriesPage(c *gin.Context) {
	before, err := store.ParseID[store.Delivery](c.Query("cursor"))
	var all []*store.Delivery
	if err == nil {
		all, err = s.cfg.Store.Deliveries(c.Request.Context(), store.DeliveryQuery{Before: before, Limit: pageSize + 1})
	}
	if err != nil {
		s.failPage(c, err)
		return
	}
	all, info := page(all, pageSize, func(d *store.Delivery) string { return d.ID.String() })
	s.render(c, http.StatusOK, dashboard.Deliveries{Page: s.pageOf(c, "Deliveries"), Deliveries: all, Next: info.NextCursor})
}

func (s *Server) deliveryPage(c *gin.Context) {
	trace, err := byID(c, c.Param("id"), s.cfg.Delivery.Show)
	if err != nil {
		s.failPage(c, err)
		return
	}
	data := dashboard.Delivery{Page: s.pageOf(c, "Delivery "+trace.Delivery.ID.String()), Trace: trace}
	payload, err := s.cfg.Store.Payload(c.Request.Context(), trace.Delivery.ID)
	if data.Damaged = errors.Is(err, store.ErrDamaged); err != nil && !data.Damaged && !errors.Is(err, store.ErrNotFound) {
		s.failPage(c, err)
		return
	}
	data.Payload, data.Truncated = dashboard.PayloadText(payload)
	s.render(c, http.StatusOK, data)
}

func (s *Server) runsPage(c *gin.Context) {
	after, err := store.ParseID[store.Run](c.Query("cursor"))
	var all []*store.Run
	if err == nil {
		all, err = s.cfg.Store.Runs(c.Request.Context(), store.RunQuery{After: store.RunMark{ID: after}, Limit: pageSize + 1})
	}
	if err != nil {
		s.failPage(c, err)
		return
	}
	all, info := page(all, pageSize, func(r *store.Run) string { return r.ID.String() })
	s.render(c, http.StatusOK, dashboard.Runs{Page: s.pageOf(c, "Runs"), Runs: all, Next: info.NextCursor})
}

func (s *Server) runPage(c *gin.Context) {
	ctx := c.Request.Context()
	r, err := byID(c, c.Param("id"), s.cfg.Store.Run)
	if err != nil {
		s.failPage(c, err)
		return
	}
	data, err := s.cfg.Store.Spec(ctx, r.SpecHash)
	if err != nil {
		s.failPage(c, err)
		return
	}
	spec, err := run.DecodeSpec(data)
	if err != nil {
		s.failPage(c, err)
		return
	}
	events, err := s.cfg.Store.Events(ctx, r.ID, 0, maxEvents)
	if err != nil {
		s.failPage(c, err)
		return
	}
	s.render(c, http.StatusOK, dashboard.Run{Page: s.pageOf(c, r.Title), Run: r, Prompt: spec.Prompt, Events: events})
}
