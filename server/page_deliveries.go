package server

import (
	"context"
	"errors"

	"triphammer/server/access"
	"triphammer/server/dashboard"
	"triphammer/server/store"
)

func deliveriesPage(ctx context.Context, c *call) (dashboard.Deliveries, error) {
	before, err := store.ParseID[store.Delivery](c.Query("cursor"))
	if err != nil {
		return dashboard.Deliveries{}, err
	}
	all, err := c.Deliveries(ctx, store.DeliveryQuery{Before: before, Limit: pageSize + 1})
	all, info := page(all, pageSize, func(d *store.Delivery) string { return d.ID.String() })
	if err != nil {
		return dashboard.Deliveries{}, err
	}
	shown, err := c.page("Deliveries")
	return dashboard.Deliveries{Page: shown, Deliveries: all, Next: info.NextCursor}, err
}

func deliveryPage(ctx context.Context, c *call, d access.Delivery) (page dashboard.Delivery, err error) {
	if page.Page, err = c.page("Delivery " + d.ID.String()); err != nil {
		return page, err
	}
	if page.Trace, err = d.Trace(ctx); err != nil {
		return page, err
	}
	runs, err := d.Runs(ctx)
	if err != nil {
		return page, err
	}
	for _, r := range runs {
		belt, err := r.Belt(ctx)
		if err != nil {
			return page, err
		}
		page.Runs = append(page.Runs, dashboard.DeliveryRun{Run: r.Run, Belt: belt})
	}
	payload, err := d.Payload(ctx)
	if page.Damaged = errors.Is(err, store.ErrDamaged); err != nil && !page.Damaged && !errors.Is(err, store.ErrNotFound) {
		return page, err
	}
	page.Payload, page.Truncated = dashboard.PayloadText(payload)
	return page, nil
}
