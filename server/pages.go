package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
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
	p.GET("/artifacts/:id", s.downloadFromPage)
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
