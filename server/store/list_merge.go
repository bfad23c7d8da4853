package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"triphammer/server/store/internal/engine"
)

// merge reads the first runs of each group and state, and keeps the first of all. By
// agent, it reads the groups of one agent after those of another. If runs are checked,
// it can end before there is a page: then it is not complete.
func (l *lister) merge(ctx context.Context, states []RunState) (found []hit, complete bool, err error) {
	if l.Sort != ByAgent {
		return l.mergeGroups(ctx, l.groups, states)
	}
	groups := slices.Clone(l.groups)
	slices.SortStableFunc(groups, func(a, b groupRow) int { return l.directed(cmp.Compare(a.agent, b.agent)) })
	for len(groups) > 0 && len(found) < l.Limit {
		agent := groups[0].agent
		n := slices.IndexFunc(groups, func(g groupRow) bool { return g.agent != agent })
		if n < 0 {
			n = len(groups)
		}
		q, some := *l, groups[:n]
		q.Sort, q.Limit, groups = ByCreated, l.Limit-len(found), groups[n:]
		if l.After.ID != 0 {
			switch order := l.directed(cmp.Compare(agent, l.After.Key)); {
			case order < 0:
				continue // on an earlier page
			case order > 0:
				q.After = RunCursor{}
			}
		}
		hits, complete, err := q.mergeGroups(ctx, some, states)
		if err != nil || !complete {
			return nil, false, err
		}
		for i := range hits {
			hits[i].key = agent
		}
		found = append(found, hits...)
	}
	return found, true, nil
}

// mergeGroups reads a page of each group and state. If runs are checked and too few of them
// match, it reads more, up to walkRows in all.
func (l *lister) mergeGroups(ctx context.Context, groups []groupRow, states []RunState) (found []hit, complete bool, err error) {
	for most := l.Limit; ; most *= 8 {
		found, complete, err = l.mergeFirst(ctx, groups, states, most)
		if err != nil || complete || most*len(groups)*len(states) >= walkRows {
			return found, complete, err
		}
	}
}

// mergeFirst merges the first rows of each group and state, as many as most of each.
func (l *lister) mergeFirst(ctx context.Context, groups []groupRow, states []RunState, most int) (found []hit, complete bool, err error) {
	query, args, at, err := l.ofGroup(most)
	if err != nil {
		return nil, false, err
	}
	conn, err := l.db.Read.Conn(ctx) // to look for a free one each time costs 6 %
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = conn.Close() }()
	stmt, err := conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = stmt.Close() }()
	all := make(map[RunID]hit)
	var end *hit // beyond it, not every group was read
	for _, state := range states {
		for _, g := range groups {
			args[at], args[at+1] = string(state), g.id
			rows, err := stmt.QueryContext(ctx, l.db.Plain(args)...)
			if err != nil {
				return nil, false, err
			}
			hits, err := engine.ScanAll(rows, scanHit)
			if err != nil {
				return nil, false, err
			}
			for _, h := range hits {
				if h.matches {
					all[h.id] = h
				}
			}
			if last := len(hits) - 1; len(hits) == most && (end == nil || l.compare(hits[last], *end) < 0) {
				end = &hits[last]
			}
		}
	}
	for _, h := range all {
		if end == nil || l.compare(h, *end) <= 0 {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, l.compare)
	return found[:min(len(found), l.Limit)], end == nil || len(found) >= l.Limit, nil
}

// ofGroup is the query for the first rows of one group and state. The state is args[at],
// the group is args[at+1].
func (l *lister) ofGroup(most int) (query string, args []any, at int, err error) {
	column, direction, _ := l.key()
	w, matches := where{}, "TRUE"
	if l.checked || l.ofHeld() != "" {
		l.checks(&w, true)
		matches, w.terms = strings.Join(append(w.terms, "TRUE"), " AND "), nil
	}
	at = len(w.args)
	w.add("state = ? AND group_id = ?", "", 0)
	w.add(l.part)
	if err := l.bounds(&w, "id"); err != nil {
		return "", nil, 0, err
	}
	order := column + " " + direction + ", id "
	if l.part == inQueue {
		order = "id " // which is every order there
	}
	query = fmt.Sprintf("SELECT id, %s, %s FROM runs%s ORDER BY %s%s LIMIT %d", column, matches, w.sql(), order, direction, most)
	return query, w.args, at, engine.CheckPlaceholders(query)
}

// compare is the order of the list.
func (l *lister) compare(a, b hit) int {
	order := cmp.Compare(a.id, b.id)
	switch key := a.key.(type) {
	case int64:
		order = cmp.Or(cmp.Compare(key, b.key.(int64)), order)
	case string:
		order = cmp.Or(cmp.Compare(key, b.key.(string)), order)
	}
	return l.directed(order)
}

// directed turns an ascending comparison into that of the list.
func (l *lister) directed(order int) int {
	if l.Ascending {
		return order
	}
	return -order
}
