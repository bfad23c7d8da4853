package server

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
	"triphammer/server/dashboard"
	"triphammer/server/store"
)

// pages are the routes of the dashboard.
func (s *Server) pages(e *gin.Engine) {
	e.GET(dashboard.AssetPath+":name", asset)
	e.GET("/auth/login", pageHeaders, s.loginPage)
	e.POST("/auth/login", pageHeaders, sameOrigin, s.login)
	e.GET("/auth/oidc", pageHeaders, s.toProvider)
	e.GET(oidcCallback, pageHeaders, s.fromProvider)
	e.POST("/auth/logout", pageHeaders, sameOrigin, s.logout)
	p := e.Group("", pageHeaders, s.signedIn)
	p.GET(dashboard.LivePath, s.pageEvents)
	for i := range dashboard.Routes {
		r := &dashboard.Routes[i]
		if r.Method == http.MethodGet {
			p.GET(r.Path, s.page(r))
		} else {
			p.POST(r.Path, sameOrigin, s.page(r))
		}
	}
}

// asset answers with a file that pages load. Its address has the hash of its content, so
// that it may be kept for ever.
func asset(c *gin.Context) {
	data, kind, hash, ok := dashboard.Asset(c.Param("name"))
	if !ok {
		fail(c, api.NotFound, "there is no such file")
		return
	}
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Cache-Control", "no-cache")
	if c.Query("v") == hash {
		c.Header("Cache-Control", "max-age=31536000, immutable")
	}
	c.Data(http.StatusOK, kind, data)
}

// maxForm is the largest form of a page, in bytes: that of a definition file with every byte
// escaped.
const maxForm = 3 << 20

// page makes the handler of a page, or of the action of a form.
func (s *Server) page(r *dashboard.Route) gin.HandlerFunc {
	return func(g *gin.Context) {
		c := callOf(g)
		v := c.visit()
		if !s.permits(g, c, r.Needs()) {
			return
		}
		if r.Method == http.MethodPost {
			body, err := readBody(g, maxForm)
			if err == nil {
				v.Form, err = url.ParseQuery(string(body))
			}
			if err != nil {
				s.message(g, http.StatusBadRequest, "The form cannot be read", err.Error())
				return
			}
		}
		content, err := r.Handle(v)
		if err != nil {
			s.failPage(g, err)
			return
		}
		switch answer := content.(type) {
		case dashboard.SetCookie:
			answer.Cookie.Secure = s.secure()
			http.SetCookie(g.Writer, answer.Cookie)
			s.seeOther(g, answer.SeeOther)
		case dashboard.SeeOther:
			s.seeOther(g, answer)
		case dashboard.Download:
			s.download(g, c.Caller, answer)
		case dashboard.Sheet:
			sheet(g, answer)
		default:
			if said, err := g.Cookie(dashboard.SaidCookie); err == nil && said != "" {
				s.setSaid(g, "")
			}
			status := http.StatusOK
			if other, ok := content.(dashboard.Status); ok {
				status = other.Status()
			}
			s.render(g, status, content)
		}
	}
}

// sheet answers with a table.
func sheet(g *gin.Context, answer dashboard.Sheet) {
	g.Header("Content-Type", "text/csv; charset=utf-8")
	g.Header("Content-Disposition", `attachment; filename="`+answer.File+`"`)
	w := csv.NewWriter(g.Writer)
	for _, row := range answer.Rows {
		for i, text := range row {
			row[i] = harmless(text)
		}
		_ = w.Write(row) // nobody is there any more to whom an error could be told
	}
	w.Flush()
}

// harmless is a text for a spreadsheet, which takes none of it for a formula.
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// permits tells whether the caller has a scope. If not, it answers with a page.
func (s *Server) permits(g *gin.Context, c *call, scope string) bool {
	if c.May(scope) {
		return true
	}
	s.message(g, http.StatusForbidden, "Not allowed", "This needs the scope "+scope+", which the role "+c.Role()+" does not have.")
	return false
}

// secure tells whether cookies travel over https only.
func (s *Server) secure() bool { return strings.HasPrefix(s.cfg.BaseURL, "https://") }

func (s *Server) seeOther(g *gin.Context, to dashboard.SeeOther) {
	if to.Said != "" {
		s.setSaid(g, url.QueryEscape(to.Said))
	}
	g.Redirect(http.StatusSeeOther, s.base+to.To)
}

// setSaid carries a sentence to the next page. Empty: there is none.
func (s *Server) setSaid(g *gin.Context, said string) {
	c := &http.Cookie{Name: dashboard.SaidCookie, Value: said, Path: cmp.Or(s.base, "/"), MaxAge: 60, HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteLaxMode}
	if said == "" {
		c.MaxAge = -1
	}
	http.SetCookie(g.Writer, c)
}

// visit is the request as the pages see it.
func (c *call) visit() *dashboard.Visit {
	return &dashboard.Visit{
		Request: c.Request, Base: c.server.base, Param: c.Param, API: inside{c.server, c.Caller, c.Request},
		Person: dashboard.Person{Name: c.Owner, Role: c.Role(), May: c.May},
	}
}

// contentPolicy lets a page load files of this server, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func pageHeaders(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with none, browsers send forms without their origin
	h.Set("Cache-Control", "no-store")
}

// sameOrigin refuses state-changing requests that another site made (SPEC 10.3).
func sameOrigin(c *gin.Context) {
	if err := http.NewCrossOriginProtection().Check(c.Request); err != nil {
		fail(c, api.NotAuthorized, "the request came from another site")
	}
}

// inRail is the key of the call of a person who is signed in, and so sees the navigation.
const inRail = "triphammer.rail"

// message is a page that only says something: beside the navigation, for who is signed in.
func (s *Server) message(c *gin.Context, status int, title, text string) {
	c.Abort()
	page := dashboard.Page{Title: title, Base: s.base}
	if who, ok := c.Get(inRail); ok {
		if whole, err := who.(*call).visit().Page(title); err == nil { // else it says it without
			page = whole
		}
	}
	s.render(c, status, dashboard.Message{Page: page, Text: text})
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
	if refused := (*dashboard.Refused)(nil); errors.As(err, &refused) {
		s.message(c, refused.Status, refused.Title, refused.Message)
		return
	}
	if store.Away(err) {
		s.message(c, http.StatusServiceUnavailable, "The store cannot be read", "Try again.")
		return
	}
	s.cfg.Logger.Error("a page could not be made", "route", c.FullPath(), "error", err)
	s.message(c, http.StatusInternalServerError, "Internal error", "The server's log has the reason.")
}
