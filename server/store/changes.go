package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// Mark is how far somebody has read what happens in the store. As text it lasts a restart.
type Mark struct {
	Delivery DeliveryID // the newest
	Run      RunID
	Updated  int64 // microseconds: the newest change of a run that has left the queue
	Apply    ApplyID
	Audit    AuditID
}

// MarkAt is the mark of a time: before everything that is newer.
func MarkAt(t time.Time) Mark {
	id := engine.IDAt(t)
	return Mark{DeliveryID(id), RunID(id), micros(t), ApplyID(id), AuditID(id)}
}

func (m *Mark) fields() []*int64 {
	return []*int64{(*int64)(&m.Delivery), (*int64)(&m.Run), &m.Updated, (*int64)(&m.Apply), (*int64)(&m.Audit)}
}

// String is the mark as text.
func (m Mark) String() string {
	var text []string
	for _, field := range m.fields() {
		text = append(text, strconv.FormatInt(*field, 36))
	}
	return strings.Join(text, ".")
}

// ParseMark reads what String wrote.
func ParseMark(text string) (m Mark, err error) {
	parts, fields := strings.Split(text, "."), m.fields()
	if len(parts) != len(fields) {
		return m, fmt.Errorf("%q: %w", text, ErrNotFound)
	}
	for i, part := range parts {
		if *fields[i], err = strconv.ParseInt(part, 36, 64); err != nil || *fields[i] < 0 {
			return m, fmt.Errorf("%q: %w", text, ErrNotFound)
		}
	}
	return m, nil
}

// Mark is the mark of now.
func (s *Store) Mark(ctx context.Context) (m Mark, err error) {
	var into []any
	for _, field := range m.fields() {
		into = append(into, field)
	}
	err = s.Read.QueryRowContext(ctx, `SELECT (SELECT coalesce(max(id), 0) FROM deliveries), (SELECT coalesce(max(id), 0) FROM runs),
		(SELECT coalesce(max(updated_at), 0) FROM runs WHERE state <> 'QUEUED'), (SELECT coalesce(max(id), 0) FROM applies),
		(SELECT coalesce(max(id), 0) FROM audit)`).Scan(into...)
	return m, engine.Damaged(err)
}

// Changes are what came between two marks. Of each kind, only so many are counted: see MostChanges.
type Changes struct {
	Deliveries []DeliveryCount
	Runs       map[string]int64 // that are new or changed, by factory
	// Definitions are the applies, and what the audit log got, by factory; empty: it concerns
	// them all.
	Definitions map[string]int64
}

// DeliveryCount counts deliveries that are alike.
type DeliveryCount struct {
	Factory, Webhook, WebhookUID string
	Outcome                      Outcome
	Stopped                      string // the stage at which they left the belt; empty: they started a run
	Count                        int64
}

// Refused tells whether they were neither accepted nor duplicates.
func (d DeliveryCount) Refused() bool { return d.Outcome != Accepted && d.Outcome != Duplicate }

// MostChanges is how many changes of a kind are counted. There may be more.
const MostChanges = 2000

// stoppedAt is the stage of the belt at which a delivery stopped, as package delivery names
// it; empty: it went through.
const stoppedAt = `CASE outcome
	WHEN 'accepted' THEN CASE WHEN reason <> '0' THEN '' WHEN detail <> '' THEN 'run' ELSE 'matched' END
	WHEN 'duplicate' THEN 'new'
	WHEN 'rejected_auth' THEN 'authenticated'
	WHEN 'rejected_invalid_json' THEN CASE WHEN reason IN ('body_incomplete', 'body_too_slow', 'body_malformed') THEN 'received' ELSE 'parsed' END
	ELSE 'received' END`

// Changes reads what came after one mark, up to another one. It costs nothing if nothing
// came, and at most as much as counting MostChanges of each kind.
func (s *Store) Changes(ctx context.Context, from, to Mark) (c Changes, err error) {
	most := strconv.Itoa(MostChanges)
	if to.Delivery > from.Delivery {
		c.Deliveries, err = engine.List(ctx, s.DB, func(rows *sql.Rows) (d DeliveryCount, err error) {
			return d, rows.Scan(&d.Factory, &d.Webhook, &d.WebhookUID, &d.Outcome, &d.Stopped, &d.Count)
		}, `SELECT factory, webhook, webhook_uid, outcome, stopped, count(*) FROM (SELECT factory, webhook, webhook_uid, outcome, `+stoppedAt+` AS stopped
			FROM deliveries WHERE id > $1 AND id <= $2 ORDER BY id DESC LIMIT `+most+`) AS newest GROUP BY factory, webhook, webhook_uid, outcome, stopped`, from.Delivery, to.Delivery)
		if err != nil {
			return c, err
		}
	}
	if to.Run > from.Run || to.Updated > from.Updated {
		c.Runs, err = s.byFactory(ctx, `SELECT factory, count(*) FROM (SELECT id, factory FROM (SELECT id, factory FROM runs WHERE id > $1 AND id <= $2 LIMIT `+most+`) AS new
			UNION SELECT id, factory FROM (SELECT id, factory FROM runs WHERE state <> 'QUEUED' AND updated_at > $3 AND updated_at <= $4 LIMIT `+most+`) AS changed) AS either GROUP BY factory`,
			from.Run, to.Run, from.Updated, to.Updated)
		if err != nil {
			return c, err
		}
	}
	if to.Audit > from.Audit || to.Apply > from.Apply {
		c.Definitions, err = s.byFactory(ctx, `SELECT factory, sum(n) FROM (SELECT factory, 1 AS n FROM applies WHERE id > $1 AND id <= $2
			UNION ALL SELECT factory, 1 AS n FROM (SELECT factory FROM audit WHERE id > $3 AND id <= $4 LIMIT `+most+`) AS entries) AS either GROUP BY factory`,
			from.Apply, to.Apply, from.Audit, to.Audit)
	}
	return c, err
}

func (s *Store) byFactory(ctx context.Context, query string, args ...any) (map[string]int64, error) {
	counts := make(map[string]int64)
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var factory string
		var n int64
		err = rows.Scan(&factory, &n)
		counts[factory] = n
		return none, err
	}, query, args...)
	return counts, err
}
