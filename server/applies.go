package server

import (
	"net/http"
	"strings"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/store"
)

func (s *Server) listApplies(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok {
		return
	}
	factory, ok := factoryOf(c)
	if !ok {
		return
	}
	cursor, ok := cursorOf[store.Apply](c)
	if !ok {
		return
	}
	all, err := s.cfg.Store.Applies(c.Request.Context(), factory, cursor, limit+1)
	if err != nil {
		s.failWith(c, err)
		return
	}
	all, info := page(all, limit, func(a *store.Apply) string { return a.ID.String() })
	shown := make([]api.Apply, len(all))
	for i, a := range all {
		shown[i] = showApply(a)
	}
	c.JSON(http.StatusOK, gin.H{"applies": shown, "page_info": info})
}

func (s *Server) getApply(c *gin.Context) {
	if a := s.applyOf(c, c.Param("id")); a != nil {
		c.JSON(http.StatusOK, showApply(a))
	}
}

func showApply(a *store.Apply) api.Apply {
	author := a.AuthorName
	if a.AuthorEmail != "" {
		author = strings.TrimSpace(author + " <" + a.AuthorEmail + ">")
	}
	shown := api.Apply{
		ID: a.ID.String(), Factory: a.Factory, Repository: a.Repository, Branch: a.Branch, Commit: a.Commit, Author: author, Subject: a.Subject,
		Trigger: a.Trigger, Outcome: a.Outcome, Error: a.Error, Plan: a.Plan, Diagnostics: orEmptyList(a.Diagnostics),
		StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
	}
	for _, w := range a.Webhooks {
		shown.Webhooks = append(shown.Webhooks, api.BoundWebhook(w))
	}
	return shown
}
