package server

import (
	"context"
	"strings"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) listApplies(ctx context.Context, c *call) (shown api.List[api.Apply], err error) {
	cursor, limit, err := from[store.Apply](c)
	if err != nil {
		return shown, err
	}
	q := store.ApplyQuery{Factory: c.Query("factory"), Before: cursor, Limit: limit + 1}
	if q.Since, q.Until, err = c.timespan(); err != nil {
		return shown, err
	}
	all, err := c.Applies(ctx, q)
	return listPage(all, limit, func(a *store.Apply) string { return a.ID.String() }, showApply), err
}

func (s *Server) getApply(_ context.Context, _ *call, a access.Apply) (api.Apply, error) {
	return showApply(a.Apply), nil
}

func showApply(a *store.Apply) api.Apply {
	author := a.AuthorName
	if a.AuthorEmail != "" {
		author = strings.TrimSpace(author + " <" + a.AuthorEmail + ">")
	}
	return api.Apply{
		ID: a.ID.String(), Factory: a.Factory, Repository: a.Repository, Branch: a.Branch, Commit: a.Commit, Author: author, Subject: a.Subject,
		Trigger: a.Trigger, Outcome: a.Outcome, Error: a.Error, Plan: a.Plan, Diagnostics: orEmptyList(a.Diagnostics),
		StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
		Webhooks: terms.Each(a.Webhooks, func(w store.BoundWebhook) api.BoundWebhook {
			return api.BoundWebhook{Name: w.Name, UID: w.UID, ID: w.UID, SecretName: w.SecretName, Generation: w.Generation}
		}),
	}
}
