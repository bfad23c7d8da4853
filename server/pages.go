package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/dashboard"
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
	p.GET("/", shown(overviewPage))
	p.GET("/deliveries", shown(deliveriesPage))
	p.GET("/deliveries/:id", shown(on(aDelivery, deliveryPage)))
	p.GET("/automations", shown(automationsPage))
	p.GET("/automations/test", shown(filterTestPage))
	p.POST("/automations/test", sameOrigin, s.testFromPage)
	p.GET("/runs", shown(runsPage))
	p.GET("/runs/:id", shown(on(aRun, runPage)))
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

// signedIn lets requests through that have a session (SPEC 10.3).
func (s *Server) signedIn(c *gin.Context) {
	if actor, ok := c.Request.Context().Value(localKey).(string); ok {
		s.admit(c, access.Local(actor))
		return
	}
	if token, err := c.Cookie(sessionCookie); err == nil {
		by, err := s.cfg.Data.BySession(c.Request.Context(), token)
		if err == nil {
			s.admit(c, by)
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

// shown makes the handler of a page from a function that returns its data.
func shown[T dashboard.Content](handle func(context.Context, *call) (T, error)) gin.HandlerFunc {
	return func(g *gin.Context) {
		c := callOf(g)
		content, err := handle(g.Request.Context(), c)
		if err != nil {
			c.server.failPage(g, err)
			return
		}
		c.server.render(g, http.StatusOK, content)
	}
}

func (s *Server) render(c *gin.Context, status int, content dashboard.Content) {
	var b bytes.Buffer
	if err := dashboard.Render(&b, content); err != nil {
		s.cfg.Logger.Error("a page could not be made", "error", err)
		c.String(http.StatusInternalServerError, "internal error\n")
		return
	}
	c.Data(status, "text/html; charset=utf-8", b.Bytes())
}

// failPage answers with a page that shows an error.
func (s *Server) failPage(c *gin.Context, err error) {
	if errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusNotFound, "Not found", "There is nothing at this address. It may have been removed with the age of the log.")
		return
	}
	if errors.Is(err, store.ErrDamaged) {
		s.message(c, http.StatusInternalServerError, "Stored data is damaged",
			"The data of this page is not what was stored, so it is not shown. The server's log says what is damaged.")
		return
	}
	s.cfg.Logger.Error("a page could not be made", "route", c.FullPath(), "error", err)
	s.message(c, http.StatusInternalServerError, "Internal error", "The server's log has the reason.")
}

// page makes the fields that every page has, for this caller.
func (c *call) page(title string) dashboard.Page {
	return dashboard.Page{Title: title, Actor: c.Owner, Base: c.server.base}
}

// createLoginLink makes a link that signs the caller in once.
func (s *Server) createLoginLink(ctx context.Context, c *call, all access.Whole) (link api.LoginLink, err error) {
	token, err := all.CreateLoginLink(ctx, c.Owner, c.KeyID, linkLife)
	if err != nil {
		return link, err
	}
	c.audit("auth.link", c.Owner, "", "")
	return api.LoginLink{URL: s.cfg.BaseURL + "/auth/login?token=" + token, ExpiresAt: s.cfg.Now().Add(linkLife)}, nil
}

// endSessions signs everybody out of the pages.
func (s *Server) endSessions(ctx context.Context, c *call, all access.Whole) (api.Ended, error) {
	ended, err := all.EndSessions(ctx)
	if err != nil {
		return api.Ended{}, err
	}
	c.audit("auth.logout_all", "", "", fmt.Sprintf("ended %d sessions and %d links", ended.Sessions, ended.LoginLinks))
	return api.Ended(ended), nil
}

func (s *Server) login(c *gin.Context) {
	session, by, err := s.cfg.Data.SignIn(c.Request.Context(), c.Query("token"), sessionLife)
	if errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusUnauthorized, "This link does not work",
			"It was used, it is too old, or the key that made it was revoked. Run `triphammer auth login` for another.")
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
	s.admit(c, by).audit("auth.login", by.Owner, "", "")
	c.Redirect(http.StatusSeeOther, s.base+"/")
}

// applyFromPage is the button Apply now. It applies the head even if the head already
// serves (SPEC 4.4).
func (s *Server) applyFromPage(g *gin.Context) {
	c, ctx := callOf(g), g.Request.Context()
	f, err := aFactory(ctx, c)
	if err != nil {
		s.failPage(g, store.ErrNotFound)
		return
	}
	done, err := c.apply(ctx, f, "dashboard")
	if err != nil {
		s.failPage(g, err)
		return
	}
	c.audit("factory.apply", f.Name, f.Name, string(done.Outcome)+" "+done.Commit.Hash)
	c.Redirect(http.StatusSeeOther, s.base+"/") // that page shows the outcome
}

func (s *Server) logout(c *gin.Context) {
	if token, err := c.Cookie(sessionCookie); err == nil {
		by, err := s.cfg.Data.SignOut(c.Request.Context(), token)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.failPage(c, err)
			return
		}
		if err == nil {
			s.admit(c, by).audit("auth.logout", by.Owner, "", "")
		}
	}
	http.SetCookie(c.Writer, &http.Cookie{Name: sessionCookie, Path: cmp.Or(s.base, "/"), MaxAge: -1, HttpOnly: true})
	s.message(c, http.StatusOK, "Signed out", "The session has ended.")
}

func overviewPage(ctx context.Context, c *call) (page dashboard.Overview, err error) {
	page.Page = c.page("Overview")
	for _, f := range c.Factories() {
		shown := dashboard.Factory{State: f.State()}
		last, err := f.LastApply(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return page, err
		}
		if err == nil {
			shown.LastOutcome, shown.LastCommit = last.Outcome, last.Commit
			_ = json.Unmarshal(last.Diagnostics, &shown.Diagnostics) // on an error, none are shown
		}
		page.Factories = append(page.Factories, shown)
	}
	if page.Deliveries, err = c.Deliveries(ctx, store.DeliveryQuery{Limit: 10}); err != nil {
		return page, err
	}
	runs, err := c.Runs(ctx, store.RunQuery{Limit: 10})
	page.Runs = rows(runs)
	return page, err
}

// rows are the runs for a table.
func rows(runs []access.Run) []*store.Run {
	all := make([]*store.Run, len(runs))
	for i, r := range runs {
		all[i] = r.Run
	}
	return all
}

func deliveriesPage(ctx context.Context, c *call) (dashboard.Deliveries, error) {
	before, err := store.ParseID[store.Delivery](c.Query("cursor"))
	if err != nil {
		return dashboard.Deliveries{}, err
	}
	all, err := c.Deliveries(ctx, store.DeliveryQuery{Before: before, Limit: pageSize + 1})
	all, info := page(all, pageSize, func(d *store.Delivery) string { return d.ID.String() })
	return dashboard.Deliveries{Page: c.page("Deliveries"), Deliveries: all, Next: info.NextCursor}, err
}

func deliveryPage(ctx context.Context, c *call, d access.Delivery) (page dashboard.Delivery, err error) {
	page.Page = c.page("Delivery " + d.ID.String())
	if page.Trace, err = d.Trace(ctx); err != nil {
		return page, err
	}
	payload, err := d.Payload(ctx)
	if page.Damaged = errors.Is(err, store.ErrDamaged); err != nil && !page.Damaged && !errors.Is(err, store.ErrNotFound) {
		return page, err
	}
	page.Payload, page.Truncated = dashboard.PayloadText(payload)
	return page, nil
}

func runsPage(ctx context.Context, c *call) (dashboard.Runs, error) {
	after, err := store.ParseID[store.Run](c.Query("cursor"))
	if err != nil {
		return dashboard.Runs{}, err
	}
	all, err := c.Runs(ctx, store.RunQuery{After: store.RunCursor{ID: after}, Limit: pageSize + 1})
	all, info := page(all, pageSize, func(r access.Run) string { return r.ID.String() })
	return dashboard.Runs{Page: c.page("Runs"), Runs: rows(all), Next: info.NextCursor}, err
}

func runPage(ctx context.Context, c *call, r access.Run) (page dashboard.Run, err error) {
	spec, err := r.Spec(ctx)
	if err != nil {
		return page, err
	}
	events, err := r.Events(ctx, 0, maxEvents)
	return dashboard.Run{Page: c.page(r.Title), Run: r.Run, Prompt: spec.Prompt, Events: events}, err
}
