package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

const (
	// siftTime is how long one request looks for entries by what no index has.
	siftTime = 100 * time.Millisecond
	// siftPage is how many entries it reads at once. About reads all of their payloads, of 256 kB at most
	// (SPEC C4.4).
	siftPage = 32
)

// sift reads a list page by page and keeps what is wanted, until it has limit entries or siftTime is
// over. Then the answer has fewer, and the cursor with which to go on. Read returns the page after a
// cursor, and the cursor of its end; this is empty if nothing follows.
func sift[T any](limit int, at string, read func(after string) ([]T, string, error), cursor func(T) string, wanted func([]T) (func(T) bool, error)) (kept []T, info api.PageInfo, err error) {
	for began := time.Now(); ; {
		some, next, err := read(at)
		if err != nil {
			return nil, info, err
		}
		keep, err := wanted(some)
		if err != nil {
			return nil, info, err
		}
		for _, one := range some {
			if !keep(one) {
				continue
			}
			if kept = append(kept, one); len(kept) == limit {
				return kept, api.PageInfo{HasNextPage: true, NextCursor: cursor(one)}, nil
			}
		}
		if next == "" || time.Since(began) > siftTime {
			return kept, api.PageInfo{HasNextPage: next != "", NextCursor: next}, nil
		}
		at = next
	}
}

// runsOf are the runs of a list that an event started. What was delivered says which event that was,
// as long as it is kept.
func runsOf(ctx context.Context, c *call, l *runListing, limit int) ([]access.Run, api.PageInfo, error) {
	read := func(after string) ([]access.Run, string, error) {
		if after != "" {
			l.goOn(after)
		}
		l.Limit = siftPage
		all, err := c.Runs(ctx, l.RunQuery)
		if err != nil || len(all) < siftPage {
			return all, "", err
		}
		return all, l.cursor(all[len(all)-1]), nil
	}
	wanted := func(all []access.Run) (func(access.Run) bool, error) {
		about, err := aboutRuns(ctx, c, all)
		return func(r access.Run) bool { return r.DeliveryID != 0 && about[r.DeliveryID].Has(l.event) }, err
	}
	return sift(limit, "", read, l.cursor, wanted)
}

// deliveriesOf are the deliveries of a list that report an event, that a person caused, and that an
// automation wanted. Empty: any.
func deliveriesOf(ctx context.Context, c *call, q store.DeliveryQuery, event, person, automation string, limit int) ([]*store.Delivery, api.PageInfo, error) {
	of := func(a delivery.About) bool { // the identifiers of some senders have a colon, too
		_, name, named := strings.Cut(person, ":")
		return person == "" || strings.EqualFold(a.Person, person) || named && strings.EqualFold(a.Person, name)
	}
	cursor := func(d *store.Delivery) string { return d.ID.String() }
	read := func(after string) (all []*store.Delivery, next string, err error) {
		if q.Before, err = store.ParseID[store.Delivery](after); err != nil {
			return nil, "", err
		}
		q.Limit = siftPage
		if q.Text != "" {
			found, end, err := c.SearchDeliveries(ctx, q)
			return found, end.String(), err
		}
		if all, err = c.Deliveries(ctx, q); err != nil || len(all) < siftPage {
			return all, "", err
		}
		return all, cursor(all[len(all)-1]), nil
	}
	wanted := func(all []*store.Delivery) (func(*store.Delivery) bool, error) {
		if automation != "" {
			all = slices.DeleteFunc(slices.Clone(all), func(d *store.Delivery) bool { return !wants(automation, d) })
		}
		about, err := c.About(ctx, all)
		return func(d *store.Delivery) bool {
			a := about[d.ID]
			return a.Has(event) && of(a) && (automation == "" || slices.Contains(all, d))
		}, err
	}
	return sift(limit, q.Before.String(), read, cursor, wanted)
}

// wants tells whether an automation wanted a delivery, also if it started nothing.
func wants(automation string, d *store.Delivery) bool {
	return slices.Contains(d.Paused, automation) || d.Limited[automation] != "" ||
		slices.ContainsFunc(d.Runs, func(r store.RunRef) bool { return r.Automation == automation }) ||
		slices.ContainsFunc(d.Skips, func(s store.Skip) bool { return s.Automation == automation }) ||
		slices.ContainsFunc(d.Repeats, func(r store.Repeat) bool { return r.Automation == automation })
}
