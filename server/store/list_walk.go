package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"triphammer/server/store/internal/engine"
)

// walk reads a page along the order itself. If not every run matches, it reads at most
// walkRows runs, and the page may be short.
func (l *lister) walk(ctx context.Context) ([]hit, error) {
	column, direction, _ := l.key()
	w := l.from()
	if err := l.bounds(&w, "id"); err != nil {
		return nil, err
	}
	order := fmt.Sprintf(" ORDER BY %s %s, id %[2]s", column, direction)
	from := "runs" + w.sql()
	if l.filtered {
		from = fmt.Sprintf("(SELECT * FROM %s%s LIMIT %d) AS runs", from, order, walkRows)
		w.terms = nil
		l.conditions(&w, true)
		from += w.sql()
	}
	return engine.List(ctx, l.db.DB, scanHit, "SELECT id, "+column+", TRUE FROM "+from+order+w.limit(l.Limit), w.args...)
}

func scanHit(rows *sql.Rows) (h hit, err error) {
	err = rows.Scan(&h.id, &h.key, &h.matches)
	return h, err
}

// from begins a query of the part that is read.
func (l *lister) from() (w where) {
	if l.part != "" {
		w.add(l.part)
	}
	return w
}

// key is the column of the order, its direction, and the comparison with what comes
// after.
func (l *lister) key() (column, direction, beyond string) {
	direction, beyond = "DESC", "<"
	if l.Ascending {
		direction, beyond = "ASC", ">"
	}
	switch {
	case l.Sort == ByUpdated && l.part == inQueue:
		column = queuedAt
	case l.Sort == ByUpdated:
		column = "updated_at"
	case l.Sort == ByTitle:
		column = "title"
	case l.Sort == ByAgent:
		column = "(SELECT g.agent FROM run_groups g WHERE g.id = group_id)"
	default:
		column = "id"
	}
	return column, direction, beyond
}

// bounds adds where the page begins, and the limits that an index can use. id is "id", or
// "+id" if the order of the rows is not to be used.
func (l *lister) bounds(w *where, id string) error {
	if l.least > 0 {
		w.add(id+" >= ?", l.least)
	}
	if !l.CreatedBefore.IsZero() {
		w.add(id+" < ?", engine.IDAt(l.CreatedBefore.Add(time.Millisecond)))
	}
	if l.Sort == ByUpdated {
		if l.part == inQueue {
			if err := l.boundsInQueue(w, id); err != nil {
				return err
			}
		}
		if !l.UpdatedAfter.IsZero() {
			w.add("updated_at > ?", micros(l.UpdatedAfter))
		}
		if l.CreatedAfter.After(l.UpdatedAfter) {
			w.add("updated_at > ?", micros(l.CreatedAfter)) // a run is created before it is updated
		}
	}
	column, _, beyond := l.key()
	switch {
	case l.After.ID == 0 || l.Sort == ByUpdated && l.part == inQueue:
	case l.Sort == ByCreated:
		w.add(id+" "+beyond+" ?", l.After.ID)
	case l.Sort == ByUpdated:
		at, err := l.After.time()
		if err != nil {
			return err
		}
		w.add("(updated_at, id) "+beyond+" (?, ?)", at, l.After.ID)
	default:
		w.add("("+column+", id) "+beyond+" (?, ?)", l.After.Key, l.After.ID)
	}
	return nil
}

// queuedAt is when a run came into the queue, from its id and to the millisecond. A queued
// run is not updated, so this is updated_at, and the ids are in its order.
var queuedAt = fmt.Sprintf("((id >> %d) + %d) * 1000", engine.RandomBits, engine.Epoch)

// boundsInQueue is bounds for the order of queuedAt, in terms of the ids.
func (l *lister) boundsInQueue(w *where, id string) error {
	if !l.UpdatedAfter.IsZero() {
		w.add(id+" >= ?", engine.IDAt(l.UpdatedAfter))
	}
	if l.After.ID == 0 {
		return nil
	}
	micros, err := l.After.time()
	if err != nil {
		return err
	}
	// If the cursor is at the beginning of a millisecond, the runs of this millisecond are
	// compared by their ids. Else all of them come before it.
	first, next := engine.IDAt(timeOf(micros)), engine.IDAt(timeOf(micros).Add(time.Millisecond))
	switch {
	case l.Ascending && micros%1000 == 0:
		w.add(id+" > ?", max(first-1, min(int64(l.After.ID), next-1)))
	case l.Ascending:
		w.add(id+" >= ?", next)
	case micros%1000 == 0:
		w.add(id+" < ?", max(first, min(int64(l.After.ID), next)))
	default:
		w.add(id+" < ?", next)
	}
	return nil
}

// time is the key of an order by time, in microseconds.
func (c RunCursor) time() (int64, error) {
	n, err := strconv.ParseInt(c.Key, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", c.Key, ErrNotFound)
	}
	return n, nil
}
