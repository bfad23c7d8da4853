package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// A list of runs is read in one of three ways:
//
//   - A merge (list_merge.go) reads the first runs of each group and state that can match,
//     each from its index, and keeps the first of all.
//   - A walk (list_walk.go) reads along the index of the order. If not every run matches,
//     it checks each run and ends after walkRows.
//   - Collecting (here) finds all runs that match and sorts them. It is for filters that
//     few runs pass: what a merge or a walk did not find soon is rare.
//
// The queue and the runs that have left it have different indexes. They are read one after
// the other, and their results are joined.
//
// SQLite's planner chooses the indexes, and nothing but the text of a query steers it:
//
//   - It takes a partial index only if the index's own condition (inQueue, leftQueue) is
//     written in the query, even where another condition implies it.
//   - `+column` is the column's value without its index (unindexed). It keeps the planner from
//     an index that looks good to it and reads too much.
//   - A subquery with LIMIT is evaluated as it is written. This bounds a walk.
//   - For OR it does not combine indexes reliably: conditions that have an index each are
//     written as a UNION.
//
// PostgreSQL's planner knows how often values occur, and needs only the conditions of the
// indexes and the bounds: TestPlans has its plans for a million runs.
const (
	inQueue   = "state = 'QUEUED'"
	leftQueue = "state <> 'QUEUED'"
)

const (
	// maxWalks is how many groups and states are merged. For more of them, the order is
	// walked instead.
	maxWalks = 256
	// walkRows is how many runs a walk or a merge checks. If they do not fill a page, few
	// runs match, and these are collected.
	walkRows = 5000
)

// unindexed is a column of runs whose index SQLite's planner is not to use.
func (s *db) unindexed(column string) string {
	if s.Shared() {
		return column
	}
	return "+" + column
}

// hit is a run that was found, with its key in the order of the list.
type hit struct {
	id      RunID
	key     any  // int64 or string
	matches bool // it passed the checks
}

// lister reads one list.
type lister struct {
	db *db
	RunQuery

	part     string     // inQueue, leftQueue, or empty: all runs
	filtered bool       // not every run matches
	checked  bool       // there are conditions that no index of the order has
	grouped  bool       // the groups are a condition
	groups   []groupRow // that can match
	none     bool       // nothing can match
	least    int64      // the smallest id that can match
	words    []word     // of the search
	about    bool       // the search begins a subject
}

// List reads runs. Its cost depends on the size of the page, not on the size of the
// table.
func (s *Runs) List(ctx context.Context, q RunQuery) ([]*Run, error) {
	l := &lister{db: s.db, RunQuery: q}
	if err := l.prepare(ctx); err != nil || l.none {
		return []*Run{}, err
	}
	hits, err := l.find(ctx)
	if err != nil || len(hits) == 0 {
		return []*Run{}, err
	}
	ids := make([]RunID, len(hits))
	for i, h := range hits {
		ids[i] = h.id
	}
	w := where{}
	w.add(in(&w, "r.id", ids))
	rows, err := engine.List(ctx, s.DB, scanRun, selectRun+w.sql(), w.args...)
	if err != nil {
		return nil, err
	}
	byID := make(map[RunID]*Run, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	all := make([]*Run, 0, len(hits))
	for _, h := range hits {
		if r := byID[h.id]; r != nil { // else it was deleted just now
			r.sortKey = h.key
			all = append(all, r)
		}
	}
	return all, nil
}

func (l *lister) find(ctx context.Context) ([]hit, error) {
	if l.related() {
		return l.collect(ctx)
	}
	if !l.filtered && l.Sort == ByCreated {
		return l.walk(ctx)
	}
	// The queue first: so a run that leaves it meanwhile is seen.
	var queued []hit
	states := l.states()
	if i := slices.Index(states, Queued); i >= 0 {
		var err error
		if queued, err = l.queued(ctx); err != nil {
			return nil, err
		}
		states = slices.Delete(slices.Clone(states), i, i+1)
	}
	left, err := l.left(ctx, states)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(queued, func(q hit) bool { return slices.ContainsFunc(left, func(h hit) bool { return h.id == q.id }) })
	all = append(all, left...)
	slices.SortFunc(all, l.compare)
	return all[:min(len(all), l.Limit)], nil
}

// queued finds runs in the queue, which can be long. Its index has them by group, in the
// order of their ids. This is every order but that of titles.
func (l *lister) queued(ctx context.Context) (found []hit, err error) {
	q := *l
	q.part = inQueue
	if !l.UpdatedAfter.IsZero() {
		q.least = max(l.least, engine.IDAt(l.UpdatedAfter)) // a queued run is not updated
	}
	if q.groups, err = l.queuedGroups(ctx); err != nil || len(q.groups) == 0 {
		return nil, err
	}
	if len(q.groups) <= maxWalks && l.Sort != ByTitle {
		if found, complete, err := q.merge(ctx, []RunState{Queued}); err != nil || complete {
			return found, err
		}
	}
	return q.collect(ctx)
}

// queuedGroups are the groups that can match and have runs in the queue. It jumps from
// each group to the next one, however many runs they have. If there are more than
// maxWalks, it returns only some of them.
func (l *lister) queuedGroups(ctx context.Context) ([]groupRow, error) {
	if l.grouped && len(l.groups) <= maxWalks {
		return l.groups, nil
	}
	all, err := engine.List(ctx, l.db.DB, scanGroup, fmt.Sprintf(`WITH RECURSIVE q(id, n) AS (SELECT min(group_id), 1 FROM runs WHERE state = 'QUEUED'
		UNION ALL SELECT (SELECT min(group_id) FROM runs WHERE state = 'QUEUED' AND group_id > q.id), n + 1 FROM q WHERE q.id IS NOT NULL AND n < %d)
		SELECT g.id, g.automation, g.agent FROM q JOIN run_groups g ON g.id = q.id`, maxWalks+1))
	if err != nil || !l.grouped || len(all) > maxWalks {
		return all, err
	}
	return slices.DeleteFunc(all, func(g groupRow) bool {
		return !slices.ContainsFunc(l.groups, func(o groupRow) bool { return o.id == g.id })
	}), nil
}

// left finds runs that have left the queue.
func (l *lister) left(ctx context.Context, states []RunState) ([]hit, error) {
	q := *l
	q.part = leftQueue
	switch {
	case len(states) == 0:
		return nil, nil
	case l.Sort == ByAgent || l.filtered && len(l.groups)*len(states) <= maxWalks:
		if found, complete, err := q.merge(ctx, states); err != nil || complete {
			return found, err
		}
	default:
		if found, err := q.walk(ctx); err != nil || len(found) == l.Limit || !l.filtered {
			return found, err
		}
	}
	return q.collect(ctx)
}

// collect finds all runs of the part that match, and sorts them.
func (l *lister) collect(ctx context.Context) ([]hit, error) {
	column, direction, _ := l.key()
	w, id := l.from(), "id"
	if l.part == inQueue { // which is walked, whatever is asked of its runs
		id = l.db.unindexed("id")
	}
	l.conditions(&w, l.part == inQueue)
	if err := l.bounds(&w, id); err != nil {
		return nil, err
	}
	query := fmt.Sprintf("SELECT id, %s, TRUE FROM runs%s ORDER BY %s %[4]s, %[5]s %[4]s", column, w.sql(), l.db.unindexed(column), direction, l.db.unindexed("id"))
	return engine.List(ctx, l.db.DB, scanHit, query+w.limit(l.Limit), w.args...)
}

// MaxCount is the largest number of runs of a state that Runs.Count counts.
const MaxCount = 10_000

// Count is how many runs of each state a query selects; states that it does not select
// are left out. MaxCount means that there may be more. ok is false if nobody knows, because the query has conditions that no index of the
// states has.
func (s *Runs) Count(ctx context.Context, q RunQuery) (counts map[RunState]int64, ok bool, err error) {
	since := q.CreatedAfter
	q.CreatedAfter = time.Time{}
	l := &lister{db: s.db, RunQuery: q}
	if err := l.prepare(ctx); err != nil || l.checked || l.related() || !l.UpdatedAfter.IsZero() {
		return nil, false, err
	}
	counts = make(map[RunState]int64)
	if l.none {
		return counts, true, nil
	}
	states := l.states()
	slices.Sort(states) // they are counted once each
	for _, state := range slices.Compact(states) {
		w := where{}
		w.add("state = ?", state)
		if state == Queued {
			w.add(inQueue)
		} else {
			w.add(leftQueue)
		}
		if l.grouped {
			w.add("group_id IN (" + l.groupIDs() + ")")
		}
		if !since.IsZero() {
			w.add("id >= ?", engine.IDAt(since))
		}
		var n int64
		err := s.Read.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM runs%s LIMIT %d) AS part", w.sql(), MaxCount), w.args...).Scan(&n)
		if err != nil {
			return nil, false, err
		}
		if state == held { // those that wait for a person are few
			w.add("run_at = ?", int64(untilApproved))
			var blocked int64
			if err := s.Read.QueryRowContext(ctx, "SELECT count(*) FROM runs"+w.sql(), w.args...).Scan(&blocked); err != nil {
				return nil, false, err
			}
			if len(q.States) == 0 || slices.Contains(q.States, Blocked) {
				counts[Blocked] = blocked
			}
			if state, n = Queued, n-blocked; len(q.States) > 0 && !slices.Contains(q.States, Queued) {
				continue
			}
		}
		counts[state] = min(counts[state]+n, MaxCount)
	}
	return counts, true, nil
}

// groupIDs are the ids of the groups that can match, for a query.
func (l *lister) groupIDs() string {
	ids := make([]string, len(l.groups))
	for i, g := range l.groups {
		ids[i] = strconv.FormatInt(g.id, 10)
	}
	return strings.Join(ids, ", ")
}
