package store

import (
	"context"
	"database/sql"
	"time"

	"triphammer/server/store/internal/engine"
)

// AuditEntry is one change of state: who did what to what, when, from where
// (SPEC 10.4). It holds nothing secret.
type AuditEntry struct {
	ID      AuditID
	At      time.Time
	Actor   string // such as "key ci (ada)", "local ada", "page ada"
	Action  string // such as secret.set
	Object  string
	Factory string
	Details string
	Origin  string // an address, or "local"
}

// Audit is the log of what people and servers changed.
type Audit struct{ *db }

// Add appends an entry.
func (s *Audit) Add(ctx context.Context, e AuditEntry) error {
	return s.Do(ctx, func(tx *engine.Tx) error { return s.add(tx, e) })
}

// add is Audit within a transaction.
func (s *Audit) add(tx *engine.Tx, e AuditEntry) error {
	return tx.Exec("INSERT INTO audit (id, at, actor, action, object, factory, details, origin) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		tx.NextID(), micros(s.Now()), e.Actor, e.Action, e.Object, e.Factory, e.Details, e.Origin)
}

// AuditQuery selects entries of the audit log; zero fields select all.
type AuditQuery struct {
	Actor, Action, Object string // parts of them
	Since, Until          time.Time
	Before                AuditID // the one after which to go on, towards older ones
	Limit                 int
}

// List reads the entries of a query, newest first.
func (s *Audit) List(ctx context.Context, q AuditQuery) ([]AuditEntry, error) {
	w := where{}
	before(&w, "id", q.Before)
	for _, part := range [][2]string{{"actor", q.Actor}, {"action", q.Action}, {"object", q.Object}} {
		if part[1] != "" {
			w.add("instr(lower("+part[0]+"), ?) > 0", lowered(part[1]))
		}
	}
	if !q.Since.IsZero() {
		w.add("at >= ?", micros(q.Since))
	}
	if !q.Until.IsZero() {
		w.add("at < ?", micros(q.Until))
	}
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (AuditEntry, error) {
		var e AuditEntry
		var at int64
		err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Object, &e.Factory, &e.Details, &e.Origin)
		e.At = timeOf(at)
		return e, err
	}, "SELECT id, at, actor, action, object, factory, details, origin FROM audit"+w.sql()+" ORDER BY id DESC"+w.limit(q.Limit), w.args...)
}
