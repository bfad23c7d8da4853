package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// RunSort is what a list of runs is sorted by.
type RunSort int

// The orders. Runs that are equal in one are in the order of their creation.
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
	Sources                     []string
	Automation, Agent           string
	Webhook                     string // the name of the one that received the delivery
	Creator, Executor           string // names; the executor is the agent, or else the creator
	Environment, Model, Name    string
	NoEnvironment               bool
	ScheduleID                  ScheduleID
	DeliveryID                  DeliveryID
	AncestorID                  RunID // those that it asked for, and those that these asked for
	ID                          RunID
	ConversationID              RunID
	RetryOf                     RunID
	Subject                     string // what they are about
	Person                      string // who caused their events, such as github:ada
	CreatedAfter, CreatedBefore time.Time
	UpdatedAfter                time.Time
	Metadata                    map[string]string
	ArtifactType                string
	Search                      string // each of its words begins a word of the title or the posted prompt, or it begins what they are about

	Sort      RunSort
	Ascending bool
	After     RunCursor // the last run of the previous page
	Limit     int
}

// RunCursor is the position of a run in a list. It stays the same while runs are added.
type RunCursor struct {
	Key string // of the sort; empty for ByCreated
	ID  RunID
}

// Cursor is the position of a run that the query found.
func (q RunQuery) Cursor(r *Run) RunCursor {
	c := RunCursor{ID: r.ID}
	if r.sortKey != nil && q.Sort != ByCreated {
		c.Key = fmt.Sprint(r.sortKey)
	}
	return c
}

// prepare finds which groups can match, and what else limits the list.
func (l *lister) prepare(ctx context.Context) (err error) {
	l.Limit = limited(l.Limit)
	w := l.ofGroups()
	l.grouped = len(w.terms) > 0 || l.Search != ""
	l.checked = l.Search != "" || l.ArtifactType != "" || len(l.Metadata) > 0 || !l.CreatedAfter.IsZero() || !l.CreatedBefore.IsZero() ||
		!l.UpdatedAfter.IsZero() && l.Sort != ByUpdated || l.Webhook != "" || l.Person != ""
	l.filtered = l.checked || l.grouped || len(l.States) > 0
	if l.filtered || l.Sort == ByAgent || !l.UpdatedAfter.IsZero() {
		l.groups, err = engine.List(ctx, l.db.DB, scanGroup, "SELECT id, automation, agent FROM run_groups"+w.sql()+" ORDER BY id", w.args...)
		l.none = len(l.groups) == 0
	}
	if err != nil || l.none {
		return err
	}
	if !l.CreatedAfter.IsZero() { // ids are times, to the millisecond
		l.least = engine.IDAt(l.CreatedAfter)
	}
	newestFirst := !l.Ascending && (l.Sort == ByCreated || l.Sort == ByAgent) // so updated runs come soon
	if !l.UpdatedAfter.IsZero() && l.Sort != ByUpdated && !newestFirst {
		// Older runs can have been updated since then; a queued one is not updated.
		least, since := int64(0), engine.IDAt(l.UpdatedAfter)
		err := l.db.Read.QueryRowContext(ctx, "SELECT coalesce(min("+l.db.unindexed("id")+"), $1) FROM runs WHERE updated_at > $2 AND "+leftQueue,
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

// ofGroups is the condition for the groups whose runs are listed.
func (l *lister) ofGroups() (w where) {
	if len(l.Factories) > 0 {
		w.add(in(&w, "factory", l.Factories))
	}
	w.text("automation", l.Automation)
	if len(l.Sources) > 0 {
		w.add(in(&w, "source", l.Sources))
	}
	w.text("agent", l.Agent)
	w.text("creator_name", l.Creator)
	w.text("CASE WHEN agent = '' THEN creator_name ELSE agent END", l.Executor)
	w.text("environment", l.Environment)
	w.text("model", l.Model)
	w.text("name", l.Name)
	if l.NoEnvironment {
		w.add("environment = ''")
	}
	if len(l.Metadata) > 0 {
		w.add("automation = ''") // no others have any
	}
	if l.ScheduleID != 0 {
		w.add("schedule_id = ?", l.ScheduleID)
	}
	return w
}

// lifecycle is the order in which runs go through their states. Reading the states in
// this order sees a run that moves on at least once. A run that is tried again goes from
// INPROGRESS to HELD.
var lifecycle = []RunState{Queued, held, InProgress, held, Succeeded, FailedRun, Cancelled}

func (l *lister) states() []RunState {
	if len(l.States) == 0 {
		return lifecycle
	}
	return slices.DeleteFunc(slices.Clone(lifecycle), func(s RunState) bool {
		if s == held {
			return !slices.Contains(l.States, Queued) && !slices.Contains(l.States, Blocked)
		}
		return !slices.Contains(l.States, s)
	})
}

// ofHeld says which runs that are HELD the query selects: those that wait for a person (=), all others
// (<>), or all (empty).
func (q RunQuery) ofHeld() string {
	queued, blocked := slices.Contains(q.States, Queued), slices.Contains(q.States, Blocked)
	switch {
	case queued == blocked:
		return ""
	case blocked:
		return "="
	}
	return "<>"
}

// conditions adds all conditions of the query. Along the order, each run is checked;
// otherwise the conditions that few runs pass are sets, from which the runs are found.
func (l *lister) conditions(w *where, along bool) {
	if l.DeliveryID != 0 {
		w.add("delivery_id = ?", l.DeliveryID)
	}
	if l.AncestorID != 0 {
		w.add(`id IN (WITH RECURSIVE below (id) AS (SELECT r.id FROM runs r WHERE r.parent_id = ? AND r.parent_id <> 0
			UNION SELECT r.id FROM runs r JOIN below ON r.parent_id = below.id WHERE r.parent_id <> 0) SELECT id FROM below)`, l.AncestorID)
	}
	if l.ID != 0 {
		w.add("id = ?", l.ID)
	}
	if l.ConversationID != 0 {
		w.add("id IN (SELECT id FROM runs WHERE conversation_id = ? AND conversation_id <> 0 UNION SELECT ?)", l.ConversationID, l.ConversationID)
	}
	if l.RetryOf != 0 {
		w.add("retry_of = ? AND retry_of <> 0", l.RetryOf)
	}
	if l.Subject != "" {
		w.add("id IN (SELECT id FROM subjects WHERE subject = ?)", l.Subject)
	}
	few, column := l.related() || len(l.words) > 0 || l.about || len(l.Metadata) > 0 || l.ArtifactType != "", func(name string) string { return name }
	if few { // the sets lead, not the indexes of states and groups
		column = l.db.unindexed
	}
	if along || !few || len(l.States) > 0 {
		w.add(in(w, column("state"), l.states()))
	}
	if l.grouped {
		ids := make([]int64, len(l.groups))
		for i, g := range l.groups {
			ids[i] = g.id
		}
		w.add(in(w, column("group_id"), ids))
	}
	l.checks(w, along)
}

// related tells whether the runs have to do with one thing: they are few.
func (l *lister) related() bool {
	return l.ID != 0 || l.DeliveryID != 0 || l.AncestorID != 0 || l.ConversationID != 0 || l.RetryOf != 0 || l.Subject != ""
}

// checks adds the conditions that each run meets by itself.
func (l *lister) checks(w *where, along bool) {
	// An id has the time to the millisecond: in the millisecond of the limit, the row has it
	// exactly.
	if at := l.CreatedAfter; !at.IsZero() {
		w.add("(id >= ? OR created_at > ?)", engine.IDAt(at.Add(time.Millisecond)), micros(at))
	}
	if at := l.CreatedBefore; !at.IsZero() {
		w.add("(id < ? OR created_at < ?)", engine.IDAt(at), micros(at))
	}
	if !l.UpdatedAfter.IsZero() && l.Sort != ByUpdated {
		w.add("updated_at > ?", micros(l.UpdatedAfter))
	}
	if is := l.ofHeld(); is != "" {
		w.add("(state <> 'HELD' OR run_at "+is+" ?)", int64(untilApproved))
	}
	w.text("webhook", l.Webhook)
	if l.Person != "" { // after a blank, the column has what stays if the name changes
		w.add("(person = ? OR substr(person, 1, ?) = ?)", l.Person, len([]rune(l.Person))+1, l.Person+" ")
	}
	l.checkSearch(w, along)
	if l.ArtifactType != "" {
		has := w.bind("type = ?", l.ArtifactType)
		if along {
			w.add("EXISTS (SELECT 1 FROM artifacts WHERE run_id = runs.id AND " + has + ")")
		} else {
			w.add("id IN (SELECT run_id FROM artifacts WHERE " + has + ")")
		}
	}
	for name, value := range l.Metadata {
		equal := w.bind("name = ? AND value = ?", name, value)
		if along {
			w.add("EXISTS (SELECT 1 FROM run_metadata WHERE run_id = runs.id AND " + equal + ")")
		} else {
			w.add("id IN (SELECT run_id FROM run_metadata WHERE " + equal + ")")
		}
	}
}

// word is a word of a search, which begins a word of the runs that match. The title of an
// automation's runs is its name, which is compared once for all of them.
type word struct {
	text   string
	groups []int64 // of the automations whose names match
}

// prepareSearch finds what the words of a search say about the groups.
func (l *lister) prepareSearch(ctx context.Context) error {
	named, err := engine.List(ctx, l.db.DB, scanGroup, "SELECT id, automation, agent FROM run_groups WHERE automation <> ''")
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
	if l.about, err = l.db.store.Subjects.Known(ctx, l.Search); err != nil || l.about {
		return err
	}
	l.groups = slices.DeleteFunc(l.groups, func(g groupRow) bool {
		return g.automation != "" && slices.ContainsFunc(l.words, func(w word) bool { return !slices.Contains(w.groups, g.id) })
	})
	l.none = len(l.words) == 0 || len(l.groups) == 0
	return nil
}

// checkSearch adds the condition that each word of the search begins a word of the run, or that the
// search begins what the run is about.
func (l *lister) checkSearch(w *where, along bool) {
	words := where{args: w.args}
	for _, word := range l.words {
		word.check(&words, along)
	}
	w.args = words.args
	if !l.about {
		w.terms = append(w.terms, words.terms...)
		return
	}
	either := words.terms[:0:0]
	if len(words.terms) > 0 {
		either = append(either, strings.Join(words.terms, " AND "))
	}
	whole, name := w.begins(l.Search)
	for _, begins := range []string{whole, name} {
		if along {
			either = append(either, "EXISTS (SELECT 1 FROM subjects WHERE id = runs.id AND "+begins+")")
		} else {
			either = append(either, "SELECT id FROM subjects WHERE "+begins)
		}
	}
	if along {
		w.terms = append(w.terms, "("+strings.Join(either, " OR ")+")")
		return
	}
	if len(words.terms) > 0 {
		either[0] = "SELECT id FROM runs WHERE " + either[0]
	}
	w.terms = append(w.terms, "id IN ("+strings.Join(either, " UNION ")+")")
}

func (word word) check(w *where, along bool) {
	begins := w.bind("word >= ? AND word < ?", word.text, word.text+"\U0010FFFF")
	exists := "EXISTS (SELECT 1 FROM run_words WHERE run_id = runs.id AND " + begins + ")"
	found := "SELECT run_id FROM run_words WHERE " + begins
	if len(word.groups) > 0 {
		named := in(w, "group_id", word.groups)
		exists = "(" + exists + " OR " + named + ")"
		found += " UNION SELECT id FROM runs WHERE state = 'QUEUED' AND " + named +
			" UNION SELECT id FROM runs WHERE state IN ('HELD', 'INPROGRESS', 'SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED' AND " + named
	}
	if along {
		w.add(exists)
	} else {
		w.add("id IN (" + found + ")")
	}
}
