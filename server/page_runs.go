package server

import (
	"context"

	"triphammer/server/access"
	"triphammer/server/dashboard"
	"triphammer/server/store"
)

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
