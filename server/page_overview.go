package server

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"triphammer/server/store"
)

// applyFromPage is the button Apply now. It applies the head even if the head already
// serves (SPEC 4.4).
func (s *Server) applyFromPage(g *gin.Context) {
	c, ctx := callOf(g), g.Request.Context()
	if !s.permits(g, c, store.ScopeOperate) {
		return
	}
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
