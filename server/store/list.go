package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// RunSort is what a list of runs is sorted by.
type RunSort int

// The orders. Runs that are equal in it are in the order of their creation.
const (
	ByCreated RunSort = iota
	ByUpdated
	ByTitle
	ByAgent
)

// RunQuery selects runs; zero fields select all.
type RunQuery struct {
	States                      []RunState
	Factories                   []string
	Automation, Source, Agent   string
	Creator, Executor           string // names; the executor is the agent, or else the creator
	Environment, Model, Name    string
	NoEnvironment               bool
	ScheduleID                  ScheduleID
	DeliveryID                  DeliveryID
	AncestorID                  RunID // those that it asked for, and those that these asked for
	CreatedAfter, CreatedBefore time.Time
	UpdatedAfter                time.Time
	Metadata                    map[string]string
	Search                      string // each of its words begins a word of the title or the posted prompt

	Sort      RunSort
	Ascending bool
	After     RunMark // where the page before ended
	Limit     int
}

// RunMark is a place in a list that stays the same while runs are added.
type RunMark struct {
	Key string // of the sort; empty for ByCreated
	ID  RunID
}

// Mark is the place of a run that the query found.
func (q RunQuery) Mark(r *Run) RunMark {
	m := RunMark{ID: r.ID}
	if r.sortKey != nil && q.Sort != ByCreated {
		m.Key = fmt.Sprint(r.sortKey)
	}
	return m
}

const (
	// maxWalks is how many groups and states are merged; beyond it the order of
	// the list is walked instead.
	maxWalks = 256
	// walkRows is how far the order of a list is walked in search of runs that
	// rarely come: if it ends without a full page, there are few, and they are
	// collected and sorted.
	walkRows = 5000
)

// place is a run in an order.
type place struct {
	id   RunID
	key  any  // int64 or string
	good bool // it passed the checks
}

// Runs reads runs. What it costs depends on the size of the page, not of the
// table: conditions on groups and states are indexes that are merged; others are
// checked along the order, or collected and sorted where the order has few.
func (s *Store) Runs(ctx context.Context, q RunQuery) ([]*Run, error) {
	l := &lister{store: s, RunQuery: q}
	if err := l.prepare(ctx); err != nil || l.none {
		return []*Run{}, err
	}
	places, err := l.find(ctx)
	if err != nil || len(places) == 0 {
		return []*Run{}, err
	}
	ids := make([]any, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	rows, err := list(ctx, s, scanRun, selectRun+"IN ("+marks(len(ids))+")", ids...)
	if err != nil {
		return nil, err
	}
	byID := make(map[RunID]*Run, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	all := make([]*Run, 0, len(places))
	for _, p := range places {
		if r := byID[p.id]; r != nil { // else it was deleted just now
			r.sortKey = p.key
			all = append(all, r)
		}
	}
	return all, nil
}

// lister is one query on its way.
type lister struct {
	store *Store
	RunQuery

	none    bool // nothing can match
	queue   bool // of those in the queue alone
	grouped bool // the groups are a condition
	checked bool // there are conditions that no index of the order has
	groups  []groupRow
	least   int64 // the smallest id that can match
	words   []word
}

// word begins a word of each run that is searched. An automation's runs have its
// name for title: that is looked for once for all of them.
type word struct {
	text   string
	groups []any
}

func (l *lister) prepare(ctx context.Context) (err error) {
	l.Limit = limited(l.Limit)
	w := where{}
	if len(l.Factories) > 0 {
		var names []any
		for _, name := range l.Factories {
			names = append(names, name)
		}
		w.terms = append(w.terms, "factory IN ("+w.list(names)+")")
	}
	w.text("automation", l.Automation)
	w.text("source", l.Source)
	w.text("agent", l.Agent)
	w.text("creator_name", l.Creator)
	w.text("CASE WHEN agent = '' THEN creator_name ELSE agent END", l.Executor)
	w.text("environment", l.Environment)
	w.text("model", l.Model)
	w.text("name", l.Name)
	if l.NoEnvironment {
		w.add("environment = ", "")
	}
	if len(l.Metadata) > 0 {
		w.add("automation = ", "") // no others have any
	}
	if l.ScheduleID != 0 {
		w.add("schedule_id = ", l.ScheduleID)
	}
	l.grouped = len(w.terms) > 0
	if l.grouped || len(l.States) > 0 || l.Sort == ByAgent || l.Search != "" || !l.CreatedAfter.IsZero() || !l.CreatedBefore.IsZero() || !l.UpdatedAfter.IsZero() {
		l.groups, err = list(ctx, l.store, scanGroup, "SELECT id, automation, agent FROM run_groups"+w.sql()+" ORDER BY id", w.args...)
		l.none = len(l.groups) == 0
	}
	if err != nil || l.none {
		return err
	}
	if !l.CreatedAfter.IsZero() { // ids are times, to the millisecond
		l.least = idAt(l.CreatedAfter)
	}
	newestFirst := !l.Ascending && (l.Sort == ByCreated || l.Sort == ByAgent) // which are updated since
	if !l.UpdatedAfter.IsZero() && l.Sort != ByUpdated && !newestFirst {
		// Older runs can have been updated since; a queued one never is.
		least, since := int64(0), idAt(l.UpdatedAfter)
		err := l.store.read.QueryRowContext(ctx, "SELECT coalesce(min(+id), $1) FROM runs WHERE updated_at > $2 AND "+leftQueue,
			since, micros(l.UpdatedAfter)).Scan(&least)
		if err != nil {
			return err
		}
		l.least = max(l.least, min(least, since))
	}
	if l.Search == "" {
		return nil
	}
	return l.prepareSearch(ctx)
}

func (l *lister) prepareSearch(ctx context.Context) error {
	named, err := list(ctx, l.store, scanGroup, "SELECT id, automation, agent FROM run_groups WHERE automation <> ''")
	if err != nil {
		return err
	}
	for _, text := range wordsOf(l.Search) {
		w := word{text: text}
		for _, g := range named {
			if slices.ContainsFunc(wordsOf(g.automation), func(of string) bool { return strings.HasPrefix(of, text) }) {
				w.groups = append(w.groups, g.id)
			}
		}
		l.words = append(l.words, w)
	}
	l.grouped = true
	l.groups = slices.DeleteFunc(l.groups, func(g groupRow) bool {
		return g.automation != "" && slices.ContainsFunc(l.words, func(w word) bool { return !slices.Contains(w.groups, any(g.id)) })
	})
	l.none = len(l.words) == 0 || len(l.groups) == 0
	return nil
}

// lifecycle is the order in which runs go through their states: walks in this
// order see a run that moves on at least once.
var lifecycle = []RunState{Queued, InProgress, Succeeded, FailedRun, Cancelled}

func (l *lister) states() []RunState {
	if len(l.States) == 0 {
		return lifecycle
	}
	var all []RunState
	for _, state := range lifecycle {
		if slices.Contains(l.States, state) {
			all = append(all, state)
		}
	}
	return all
}

func (l *lister) find(ctx context.Context) (found []place, err error) {
	l.checked = len(l.words) > 0 || len(l.Metadata) > 0 || !l.CreatedAfter.IsZero() || !l.CreatedBefore.IsZero() ||
		!l.UpdatedAfter.IsZero() && l.Sort != ByUpdated
	if l.DeliveryID != 0 || l.AncestorID != 0 {
		return l.collect(ctx, where{})
	}
	narrowed := l.grouped || len(l.States) > 0
	if !l.checked && !narrowed && l.Sort == ByCreated {
		return l.walk(ctx, where{})
	}
	// The queue first: a run that leaves it in between is then seen.
	var queued []place
	states := l.states()
	if i := slices.Index(states, Queued); i >= 0 {
		if queued, err = l.queued(ctx); err != nil {
			return nil, err
		}
		states = slices.Delete(slices.Clone(states), i, i+1)
	}
	rest, err := l.left(ctx, states, narrowed)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(queued, func(q place) bool { return slices.ContainsFunc(rest, func(r place) bool { return r.id == q.id }) })
	all = append(all, rest...)
	slices.SortFunc(all, l.compare)
	return all[:min(len(all), l.Limit)], nil
}

// The indexes are of those in the queue, and of those that have left it.
const (
	inQueue   = "state = 'QUEUED'"
	leftQueue = "state <> 'QUEUED'"
)

// queued finds those in the queue, which can be long. Its index has them by group,
// in the order of their ids; all but the titles are in that order too.
func (l *lister) queued(ctx context.Context) (found []place, err error) {
	part := *l
	part.queue = true
	if !l.UpdatedAfter.IsZero() {
		part.least = max(l.least, idAt(l.UpdatedAfter)) // none was updated since it came
	}
	if part.groups, err = l.queuedGroups(ctx); err != nil || len(part.groups) == 0 {
		return nil, err
	}
	var complete bool
	switch {
	case len(part.groups) > maxWalks || l.Sort == ByTitle:
	case l.Sort == ByAgent:
		found, complete, err = part.byAgent(ctx, []RunState{Queued})
	default:
		found, complete, err = part.merge(ctx, part.groups, []RunState{Queued})
	}
	if err != nil || complete {
		return found, err
	}
	return part.collect(ctx, where{terms: []string{inQueue}})
}

// queuedGroups are the groups that have runs in the queue, and are asked for: by a
// jump from each to the next one, however many runs they have. Of more than can be
// merged there are some.
func (l *lister) queuedGroups(ctx context.Context) ([]groupRow, error) {
	if l.grouped && len(l.groups) <= maxWalks {
		return l.groups, nil
	}
	all, err := list(ctx, l.store, scanGroup, fmt.Sprintf(`WITH RECURSIVE q(id) AS (SELECT min(group_id) FROM runs WHERE state = 'QUEUED'
		UNION ALL SELECT (SELECT min(group_id) FROM runs WHERE state = 'QUEUED' AND group_id > q.id) FROM q WHERE q.id IS NOT NULL LIMIT %d)
		SELECT g.id, g.automation, g.agent FROM q JOIN run_groups g ON g.id = q.id`, maxWalks+1))
	if err != nil || !l.grouped || len(all) > maxWalks {
		return all, err
	}
	return slices.DeleteFunc(all, func(g groupRow) bool {
		return !slices.ContainsFunc(l.groups, func(o groupRow) bool { return o.id == g.id })
	}), nil
}

// left finds those that have left the queue.
func (l *lister) left(ctx context.Context, states []RunState, narrowed bool) ([]place, error) {
	switch {
	case len(states) == 0:
		return nil, nil
	case l.Sort == ByAgent:
		if found, complete, err := l.byAgent(ctx, states); err != nil || complete {
			return found, err
		}
	case !l.checked && !narrowed:
		return l.walk(ctx, where{terms: []string{leftQueue}})
	case len(l.groups)*len(states) <= maxWalks:
		if found, complete, err := l.merge(ctx, l.groups, states); err != nil || complete {
			return found, err
		}
	default:
		if found, err := l.search(ctx); err != nil || len(found) == l.Limit {
			return found, err
		}
	}
	return l.collect(ctx, where{terms: []string{leftQueue}})
}

// key is the column of the sort, and how it goes on.
func (l *lister) key() (column string, direction string, beyond string) {
	direction, beyond = "DESC", "<"
	if l.Ascending {
		direction, beyond = "ASC", ">"
	}
	switch {
	case l.Sort == ByUpdated && l.queue:
		return queuedAt, direction, beyond
	case l.Sort == ByUpdated:
		return "updated_at", direction, beyond
	case l.Sort == ByTitle:
		return "title", direction, beyond
	case l.Sort == ByAgent:
		return "(SELECT g.agent FROM run_groups g WHERE g.id = group_id)", direction, beyond
	}
	return "id", direction, beyond
}

// queuedAt is when a run came into the queue, by its id and to the millisecond: it
// is not updated before it leaves it. The ids are in this order.
var queuedAt = fmt.Sprintf("((id >> %d) + %d) * 1000", randomBits, epoch)

// boundsInQueue is bounds for the order of queuedAt, by the ids.
func (l *lister) boundsInQueue(w *where, id string) error {
	if !l.UpdatedAfter.IsZero() {
		w.add(id+" >= ", idAt(l.UpdatedAfter))
	}
	if l.After.ID == 0 {
		return nil
	}
	micros, err := strconv.ParseInt(l.After.Key, 10, 64)
	if err != nil {
		return fmt.Errorf("%q: %w", l.After.Key, ErrNotFound)
	}
	// Those of the mark's millisecond are beyond it by their ids, if it is at its
	// beginning, and else all on the one side.
	first, next := idAt(timeOf(micros)), idAt(timeOf(micros).Add(time.Millisecond))
	switch {
	case l.Ascending && micros%1000 == 0:
		w.add(id+" > ", max(first-1, min(int64(l.After.ID), next-1)))
	case l.Ascending:
		w.add(id+" >= ", next)
	case micros%1000 == 0:
		w.add(id+" < ", max(first, min(int64(l.After.ID), next)))
	default:
		w.add(id+" < ", next)
	}
	return nil
}

// bounds adds where the page begins, and the limits that an index can tell. With
// "+id" for the id, the rows' own order is not taken for the index.
func (l *lister) bounds(w *where, id string) error {
	column, _, beyond := l.key()
	if l.least > 0 {
		w.add(id+" >= ", l.least)
	}
	if !l.CreatedBefore.IsZero() {
		w.add(id+" < ", idAt(l.CreatedBefore.Add(time.Millisecond)))
	}
	if l.Sort == ByUpdated {
		if l.queue {
			if err := l.boundsInQueue(w, id); err != nil {
				return err
			}
		}
		if !l.UpdatedAfter.IsZero() {
			w.add("updated_at > ", micros(l.UpdatedAfter))
		}
		if l.CreatedAfter.After(l.UpdatedAfter) {
			w.add("updated_at > ", micros(l.CreatedAfter)) // none is updated before it is created
		}
	}
	if l.After.ID == 0 || l.Sort == ByUpdated && l.queue {
		return nil
	}
	var key any = l.After.Key
	switch l.Sort {
	case ByCreated:
		w.add(id+" "+beyond+" ", l.After.ID)
		return nil
	case ByUpdated:
		n, err := strconv.ParseInt(l.After.Key, 10, 64)
		if err != nil {
			return fmt.Errorf("%q: %w", l.After.Key, ErrNotFound)
		}
		key = n
	}
	w.args = append(w.args, key, l.After.ID)
	w.terms = append(w.terms, fmt.Sprintf("(%s, id) %s ($%d, $%d)", column, beyond, len(w.args)-1, len(w.args)))
	return nil
}

// walk reads a page along the order itself.
func (l *lister) walk(ctx context.Context, w where) ([]place, error) {
	column, direction, _ := l.key()
	if err := l.bounds(&w, "id"); err != nil {
		return nil, err
	}
	query := fmt.Sprintf("SELECT id, %s, 1 FROM runs%s ORDER BY %[1]s %[3]s, id %[3]s", column, w.sql(), direction)
	return list(ctx, l.store, scanPlace, query+w.limit(l.Limit), w.args...)
}

func scanPlace(rows *sql.Rows) (place, error) {
	var p place
	err := rows.Scan(&p.id, &p.key, &p.good)
	return p, err
}

// merge reads a part of each group and state, and keeps the first of them all.
// Where runs are checked, the parts can end before there is a page: then it is
// not complete.
func (l *lister) merge(ctx context.Context, groups []groupRow, states []RunState) (found []place, complete bool, err error) {
	rows := l.Limit
	if l.checked {
		rows = max(rows, walkRows/(len(groups)*len(states)))
	}
	query, args, at, err := l.part(rows)
	if err != nil {
		return nil, false, err
	}
	conn, err := l.store.read.Conn(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = conn.Close() }()
	stmt, err := conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = stmt.Close() }()
	all := make(map[RunID]place)
	var end *place // what lies beyond it is not known of all parts
	for _, state := range states {
		for _, g := range groups {
			args[at], args[at+1] = string(state), g.id
			part, err := readPlaces(ctx, stmt, args)
			if err != nil {
				return nil, false, err
			}
			for _, p := range part {
				if p.good {
					all[p.id] = p
				}
			}
			if last := len(part) - 1; len(part) == rows && (end == nil || l.compare(part[last], *end) < 0) {
				end = &part[last]
			}
		}
	}
	for _, p := range all {
		if end == nil || l.compare(p, *end) <= 0 {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, l.compare)
	return found[:min(len(found), l.Limit)], end == nil || len(found) >= l.Limit, nil
}

// part is the query for the first rows of a group and state, which are args[at] and
// the one after it.
func (l *lister) part(rows int) (query string, args []any, at int, err error) {
	column, direction, _ := l.key()
	w, good := where{}, "1"
	if l.checked {
		l.checks(&w, true)
		good, w.terms = strings.Join(append(w.terms, "1"), " AND "), nil
	}
	at = len(w.args)
	w.add("state = ", "")
	w.add("group_id = ", int64(0))
	order := fmt.Sprintf("%s %s, id %[2]s", column, direction)
	if l.queue {
		w.terms = append(w.terms, inQueue)
		order = "id " + direction
	} else {
		w.terms = append(w.terms, leftQueue)
	}
	if err := l.bounds(&w, "id"); err != nil {
		return "", nil, 0, err
	}
	query = fmt.Sprintf("SELECT id, %s, %s FROM runs%s ORDER BY %s LIMIT %d", column, good, w.sql(), order, rows)
	return query, w.args, at, checkMarks(query)
}

func readPlaces(ctx context.Context, stmt *sql.Stmt, args []any) ([]place, error) {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []place
	for rows.Next() {
		p, err := scanPlace(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

func (l *lister) compare(a, b place) int {
	order := cmp.Compare(a.id, b.id)
	switch key := a.key.(type) {
	case int64:
		order = cmp.Or(cmp.Compare(key, b.key.(int64)), order)
	case string:
		order = cmp.Or(cmp.Compare(key, b.key.(string)), order)
	}
	if l.Ascending {
		return order
	}
	return -order
}

// byAgent reads the groups of one agent after those of another.
func (l *lister) byAgent(ctx context.Context, states []RunState) (all []place, complete bool, err error) {
	groups := slices.Clone(l.groups)
	slices.SortStableFunc(groups, func(a, b groupRow) int {
		if l.Ascending {
			return cmp.Compare(a.agent, b.agent)
		}
		return cmp.Compare(b.agent, a.agent)
	})
	for len(groups) > 0 && len(all) < l.Limit {
		agent := groups[0].agent
		n := slices.IndexFunc(groups, func(g groupRow) bool { return g.agent != agent })
		if n < 0 {
			n = len(groups)
		}
		some := groups[:n]
		groups = groups[n:]
		part := *l
		part.Limit = l.Limit - len(all)
		if l.After.ID != 0 {
			order := cmp.Compare(agent, l.After.Key)
			if order != 0 && (order < 0) == l.Ascending {
				continue
			}
			if order != 0 {
				part.After = RunMark{}
			}
		}
		part.Sort = ByCreated
		found, complete, err := part.merge(ctx, some, states)
		if err != nil || !complete {
			return nil, false, err
		}
		for i := range found {
			found[i].key = agent
		}
		all = append(all, found...)
	}
	return all, true, nil
}

// conditions adds all of the query's conditions. Along the order, each is checked
// for the run at hand; otherwise sets are formed, from which the runs are found.
func (l *lister) conditions(w *where, along bool) {
	in := func(column string, values []any) {
		if len(values) > 0 {
			w.terms = append(w.terms, column+" IN ("+w.list(values)+")")
		}
	}
	if l.DeliveryID != 0 {
		w.add("delivery_id = ", l.DeliveryID)
	}
	if l.AncestorID != 0 {
		w.args = append(w.args, l.AncestorID)
		w.terms = append(w.terms, fmt.Sprintf(`id IN (WITH RECURSIVE below (id) AS (SELECT r.id FROM runs r WHERE r.parent_id = $%d AND r.parent_id <> 0
			UNION SELECT r.id FROM runs r JOIN below ON r.parent_id = below.id WHERE r.parent_id <> 0) SELECT id FROM below)`, len(w.args)))
	}
	few := l.DeliveryID != 0 || l.AncestorID != 0 || len(l.words) > 0 || len(l.Metadata) > 0
	if along || !few {
		var states []any
		for _, state := range l.states() {
			states = append(states, string(state))
		}
		in("state", states)
	} else if len(l.States) > 0 {
		var states []any
		for _, state := range l.states() {
			states = append(states, string(state))
		}
		in("+state", states)
	}
	if l.grouped {
		var groups []any
		for _, g := range l.groups {
			groups = append(groups, g.id)
		}
		column := "group_id"
		if few {
			column = "+group_id"
		}
		in(column, groups)
	}
	l.checks(w, along)
}

// checks adds the conditions on what belongs to one run alone.
func (l *lister) checks(w *where, along bool) {
	// An id tells the millisecond: the row is looked at in the one of the border.
	exactly := func(beyond, exact string, at, border time.Time) {
		if !at.IsZero() {
			w.args = append(w.args, idAt(border), micros(at))
			w.terms = append(w.terms, fmt.Sprintf("(id %s $%d OR created_at %s $%d)", beyond, len(w.args)-1, exact, len(w.args)))
		}
	}
	exactly(">=", ">", l.CreatedAfter, l.CreatedAfter.Add(time.Millisecond))
	exactly("<", "<", l.CreatedBefore, l.CreatedBefore)
	if !l.UpdatedAfter.IsZero() && l.Sort != ByUpdated {
		w.add("updated_at > ", micros(l.UpdatedAfter))
	}
	for _, word := range l.words {
		w.args = append(w.args, word.text, word.text+"\U0010FFFF")
		begins := fmt.Sprintf("word >= $%d AND word < $%d", len(w.args)-1, len(w.args))
		var named string
		if len(word.groups) > 0 {
			named = "group_id IN (" + w.list(word.groups) + ")"
		}
		switch {
		case along && named != "":
			w.terms = append(w.terms, "(EXISTS (SELECT 1 FROM run_words WHERE run_id = runs.id AND "+begins+") OR "+named+")")
		case along:
			w.terms = append(w.terms, "EXISTS (SELECT 1 FROM run_words WHERE run_id = runs.id AND "+begins+")")
		case named != "":
			named = " UNION SELECT id FROM runs WHERE state = 'QUEUED' AND " + named + // each has its index
				" UNION SELECT id FROM runs WHERE state IN ('INPROGRESS', 'SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED' AND " + named
			fallthrough
		default:
			w.terms = append(w.terms, "id IN (SELECT run_id FROM run_words WHERE "+begins+named+")")
		}
	}
	for name, value := range l.Metadata {
		w.args = append(w.args, name, value)
		equal := fmt.Sprintf("name = $%d AND value = $%d", len(w.args)-1, len(w.args))
		if along {
			w.terms = append(w.terms, "EXISTS (SELECT 1 FROM run_metadata WHERE run_id = runs.id AND "+equal+")")
		} else {
			w.terms = append(w.terms, "id IN (SELECT run_id FROM run_metadata WHERE "+equal+")")
		}
	}
}

// search walks the order for a bounded way, and checks each run.
func (l *lister) search(ctx context.Context) ([]place, error) {
	column, direction, _ := l.key()
	w := where{terms: []string{leftQueue}}
	if err := l.bounds(&w, "id"); err != nil {
		return nil, err
	}
	inner := fmt.Sprintf("SELECT * FROM runs%s ORDER BY %s %[3]s, id %[3]s LIMIT %d", w.sql(), column, direction, walkRows)
	w.terms = nil
	l.conditions(&w, true)
	query := fmt.Sprintf("SELECT id, %s, 1 FROM (%s) AS runs%s ORDER BY %[1]s %[4]s, id %[4]s", column, inner, w.sql(), direction)
	return list(ctx, l.store, scanPlace, query+w.limit(l.Limit), w.args...)
}

// collect finds all that match, also what w says, and sorts them.
func (l *lister) collect(ctx context.Context, w where) ([]place, error) {
	column, direction, _ := l.key()
	id, queue := "id", slices.Contains(w.terms, inQueue)
	if queue { // which is short: it is walked, whatever is asked of its runs
		id = "+id"
	}
	l.conditions(&w, queue)
	if err := l.bounds(&w, id); err != nil {
		return nil, err
	}
	// The sign keeps the order's own index out of it.
	query := fmt.Sprintf("SELECT id, %s, 1 FROM runs%s ORDER BY +%[1]s %[3]s, +id %[3]s", column, w.sql(), direction)
	return list(ctx, l.store, scanPlace, query+w.limit(l.Limit), w.args...)
}

const (
	maxWords = 64 // different ones of a run that are remembered
	maxWord  = 40 // bytes of one
)

// wordsOf are the different words of texts, in lower case: letters and digits.
func wordsOf(texts ...string) []string {
	var words []string
	seen := make(map[string]bool)
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if len(word) > maxWord {
				word = strings.ToValidUTF8(word[:maxWord], "")
			}
			if seen[word] {
				continue
			}
			seen[word] = true
			if words = append(words, word); len(words) == maxWords {
				return words
			}
		}
	}
	return words
}
