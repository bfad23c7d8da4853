package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/dashboard"
	"triphammer/server/store"
)

func overviewPage(ctx context.Context, c *call) (page dashboard.Overview, err error) {
	if page.Page, err = c.page("Overview"); err != nil {
		return page, err
	}
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
		page.Serves = append(page.Serves, shown)
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
