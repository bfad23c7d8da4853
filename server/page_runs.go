package server

import (
	"context"
	"strconv"

	"triphammer/server/access"
	"triphammer/server/dashboard"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

func runPage(ctx context.Context, c *call, r access.Run) (page dashboard.Run, err error) {
	spec, err := r.Spec(ctx)
	if err != nil {
		return page, err
	}
	page = dashboard.Run{Run: r.Run, Prompt: spec.Prompt}
	if page.Page, err = c.page(r.Title); err != nil {
		return page, err
	}
	if page.Belt, err = r.Belt(ctx); err != nil {
		return page, err
	}
	if w, err := r.Workspace(ctx); err != nil {
		return page, err
	} else if w != nil {
		page.Workspace, page.KeptUntil, page.Removed = w.Path, w.KeptUntil, w.Path == ""
	}
	artifacts, err := access.Artifacts(ctx, r)
	if err != nil {
		return page, err
	}
	page.Artifacts = artifacts[r.ID]
	if text := c.Query("after"); text != "" {
		if page.After, err = strconv.ParseInt(text, 10, 64); err != nil || page.After < 0 {
			return page, store.ErrNotFound
		}
	}
	for after := int64(0); ; {
		events, err := r.Events(ctx, after, maxEvents)
		if err != nil {
			return page, err
		}
		for _, e := range events {
			if page.Begin.IsZero() {
				page.Begin = e.At
			}
			if decoded, err := event.Decode(e.Kind, e.Data); err == nil {
				page.Totals.Add(decoded)
			}
			switch {
			case e.Seq <= page.After:
			case len(page.Events) < pageEvents:
				page.Events = append(page.Events, e)
			default:
				page.Next = page.Events[pageEvents-1].Seq
			}
		}
		if len(events) < maxEvents {
			return page, nil
		}
		after = events[len(events)-1].Seq
	}
}

// pageEvents is the largest number of events on one page.
const pageEvents = 2000
