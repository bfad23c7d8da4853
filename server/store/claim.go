package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"triphammer/server/store/internal/engine"
)

// Lease is a worker's right to write about a run. Its token refuses the writes of a
// worker that has lost the run and does not know it.
type Lease struct {
	RunID RunID
	Token int64
}

// Claim says which runs a worker takes.
type Claim struct {
	Worker string        // its id
	Most   int           // runs
	Lease  time.Duration // how long they are the worker's
	// PerAutomation is how many runs of one automation may be in progress. Further ones
	// stay queued, and later runs of other automations are claimed. 0: no limit.
	PerAutomation int
	// Hosts are the names of the worker. Runs that ask for another one stay queued, and so do
	// those that go on in the workspace of another worker, while that lives.
	Hosts []string
}

// WaitsFor is the status message of a queued run that asks for a worker.
func WaitsFor(host string) string { return "waits for a worker named " + host }

// full tells whether an automation with so many runs in progress has to wait.
func (c *Claim) full(automation string, running int) bool {
	return automation != "" && c.PerAutomation > 0 && running >= c.PerAutomation
}

// Leases are the runs that workers have: who executes each run, and until when it may.
type Leases struct {
	*db
	claims claims
}

// AutomationFull tells whether a queued run has to wait until another run of its
// automation ends, and how many of these are in progress.
func (s *Leases) AutomationFull(ctx context.Context, claim Claim, r *Run) (running int, full bool, err error) {
	if !claim.full(r.Automation, math.MaxInt) {
		return 0, false, nil
	}
	err = s.Read.QueryRowContext(ctx, `SELECT count(*) FROM runs r JOIN run_groups g ON g.id = r.group_id
		WHERE r.state = 'INPROGRESS' AND r.state <> 'QUEUED' AND g.factory = $1 AND g.automation = $2`, r.Factory, r.Automation).Scan(&running)
	return running, err == nil && claim.full(r.Automation, running), err
}

// claims are the leases of claims that may or may not have been committed: the connection to the
// database was lost meanwhile.
type claims struct {
	mu     sync.Mutex
	doubts []Lease
}

// take empties it.
func (c *claims) take() []Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubts := c.doubts
	c.doubts = nil
	return doubts
}

func (c *claims) add(leases []Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range leases {
		if !slices.Contains(c.doubts, l) {
			c.doubts = append(c.doubts, l)
		}
	}
}

func (c *claims) some() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.doubts) > 0
}

// Claim takes queued runs, oldest first. What an earlier call of this process took without
// being told so comes first: nobody else would execute it.
func (s *Leases) Claim(ctx context.Context, claim Claim) ([]Lease, error) {
	var claimed []Lease
	doubts := s.claims.take()
	err := s.Do(ctx, func(tx *engine.Tx) error {
		claimed = nil
		claim := claim
		for _, l := range doubts {
			n, err := tx.ExecCount("UPDATE runs SET lease_until = $1 WHERE id = $2 AND lease_token = $3 AND worker = $4 AND state = 'INPROGRESS'",
				micros(s.Now().Add(claim.Lease)), l.RunID, l.Token, claim.Worker)
			if err != nil {
				return err
			}
			if n > 0 {
				claimed = append(claimed, l)
			}
		}
		claim.Most -= len(claimed)
		ids, err := s.claimable(tx, claim)
		if err != nil {
			return err
		}
		if claimed, err = s.begin(tx, claim, ids, claimed); err == nil {
			s.Queued.Add(-int64(len(ids)))
		}
		return err
	})
	if err != nil {
		if s.Shared() { // a file is one of this process alone, which knows what is in it
			s.claims.add(doubts)
			s.claims.add(claimed)
		}
		return nil, err
	}
	return claimed, nil
}

// begin makes runs those of a worker, and appends their leases in the same order.
func (s *Leases) begin(tx *engine.Tx, claim Claim, ids []RunID, leases []Lease) ([]Lease, error) {
	const set = `UPDATE runs SET state = 'INPROGRESS', started_at = $1, updated_at = $1, attempt = attempt + 1, status_message = '', run_at = 0,
		worker = $2, lease_token = lease_token + 1, lease_until = $3 WHERE state IN ('QUEUED', 'HELD') AND `
	if len(ids) == 0 {
		return leases, nil
	}
	tokens := make(map[RunID]int64, len(ids))
	update := func(which string, ids any) error {
		return tx.Each(set+which+" RETURNING id, lease_token", []any{s.stamp(tx), claim.Worker, micros(s.Now().Add(claim.Lease)), ids}, func(rows *sql.Rows) (bool, error) {
			var id RunID
			var token int64
			err := rows.Scan(&id, &token)
			tokens[id] = token
			return true, err
		})
	}
	if s.Shared() { // at once: each answer takes the time of a packet
		numbers := make([]int64, len(ids))
		for i, id := range ids {
			numbers[i] = int64(id)
		}
		if err := update("id = ANY($4)", numbers); err != nil {
			return nil, err
		}
	} else {
		for _, id := range ids {
			if err := update("id = $4", id); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range ids {
		token, began := tokens[id]
		if !began {
			return nil, fmt.Errorf("%s: %w", id, ErrNotFound)
		}
		leases = append(leases, Lease{RunID: id, Token: token})
	}
	return leases, nil
}

// maxHeads bounds how many groups of queued runs one claim looks at.
const maxHeads = 1000

// claimable are the runs that may start. Those of the highest priority come first; among
// these, the runs of the automation with the fewest runs in progress; among these, the
// oldest. So one automation with a long queue does not keep the others waiting. The runs
// of one creator that no automation started count as one automation.
func (s *Leases) claimable(tx *engine.Tx, claim Claim) (ids []RunID, err error) {
	if claim.Most <= 0 {
		return nil, nil
	}
	// Here it is sure that a worker starts nothing once somebody has asked it to drain.
	var drain int64
	if err := tx.Row("SELECT drain FROM workers WHERE id = $1", []any{claim.Worker}, &drain); err != nil && !errors.Is(err, ErrNotFound) || drain != 0 {
		return nil, err
	}
	heads, err := s.heads(tx, &carrier{db: s.db, claim: &claim})
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	inProgress, err := s.turns(tx, claim)
	for err == nil && len(ids) < claim.Most {
		best := -1
		for i, h := range heads {
			running := inProgress[h.owner]
			if claim.full(h.owner.automation, running) {
				continue
			}
			if best < 0 || cmp.Or(cmp.Compare(heads[best].priority, h.priority), cmp.Compare(running, inProgress[heads[best].owner]),
				cmp.Compare(h.id, heads[best].id)) < 0 {
				best = i
			}
		}
		if best < 0 {
			break
		}
		h := &heads[best]
		if !h.taken {
			ids, h.taken = append(ids, h.id), true
			inProgress[h.owner]++
		} else if err = s.next(tx, h, claim.Most-len(ids)); errors.Is(err, ErrNotFound) {
			heads, err = slices.Delete(heads, best, best+1), nil
		}
	}
	return ids, err
}

// manyInProgress is from how many runs in progress on a shared store remembers, for up to countAfter, how many
// each automation has. Counting them takes longer than all else of a claim, and other servers wait meanwhile.
// So few more or less do not make a turn unfair.
const (
	manyInProgress = 1000
	countAfter     = time.Second
)

// turns is how many runs each automation or creator has in progress. A limit of them is held exactly.
func (s *Leases) turns(tx *engine.Tx, claim Claim) (counts map[owner]int, err error) {
	if s.Shared() && claim.PerAutomation == 0 && s.running != nil && s.Now().Sub(s.counted).Abs() < countAfter {
		return s.running, nil
	}
	counts, all := make(map[owner]int), 0
	err = tx.Each(`SELECT g.factory, g.automation, CASE WHEN g.automation = '' THEN g.creator_name ELSE '' END, count(*) FROM runs r
		JOIN run_groups g ON g.id = r.group_id WHERE r.state = 'INPROGRESS' AND r.state <> 'QUEUED' GROUP BY 1, 2, 3`, nil,
		func(rows *sql.Rows) (bool, error) {
			var o owner
			var count int
			err := rows.Scan(&o.factory, &o.automation, &o.creator, &count)
			counts[o] = count
			all += count
			return true, err
		})
	s.running, s.counted = nil, s.Now()
	if err == nil && all >= manyInProgress {
		s.running = counts // to which claims add theirs
	}
	return counts, err
}

// owner is the automation or the creator whose runs share a turn.
type owner struct{ factory, automation, creator string }

// head is the first run of a group that may start: the oldest in the queue, or the first
// held one whose time has come.
type head struct {
	id       RunID
	at       int64 // of a held run: since when it may start; 0: it is in the queue
	group    int64
	owner    owner
	priority int64
	taken    bool   // the claim has it. It is moved on when its turn comes again: none behind it comes sooner
	behind   []head // the next ones of its group, as far as they are read: their id and at
}

// next moves a head to the run behind it in its group. It reads up to most runs at once. The error is
// ErrNotFound if there is none.
func (s *Leases) next(tx *engine.Tx, h *head, most int) error {
	if len(h.behind) == 0 {
		query, args := "SELECT CAST(0 AS BIGINT), id FROM runs WHERE state = 'QUEUED' AND group_id = $1 AND id > $2 ORDER BY id LIMIT $3", []any{h.group, h.id, most}
		if h.at != 0 {
			query = `SELECT run_at, id FROM runs WHERE state = 'HELD' AND group_id = $1 AND (run_at, id) > ($2, $3) AND run_at <= $4
				ORDER BY run_at, id LIMIT $5`
			args = []any{h.group, h.at, h.id, micros(s.Now()), most}
		}
		err := tx.Each(query, args, func(rows *sql.Rows) (bool, error) {
			var next head
			err := rows.Scan(&next.at, &next.id)
			h.behind = append(h.behind, next)
			return true, err
		})
		if err == nil && len(h.behind) == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
	}
	h.at, h.id, h.behind, h.taken = h.behind[0].at, h.behind[0].id, h.behind[1:], false
	return nil
}

// The queries for the first run after a group, in the queue and among those that are held.
const (
	headColumns = `r.id, r.group_id, g.worker_host, g.priority, g.factory, g.automation, CASE WHEN g.automation = '' THEN g.creator_name ELSE '' END
		FROM runs r JOIN run_groups g ON g.id = r.group_id WHERE r.group_id > $1 AND r.state = `
	headQueued = "SELECT 0, " + headColumns + "'QUEUED' ORDER BY r.group_id, r.id LIMIT 1"
	headHeld   = "SELECT r.run_at, " + headColumns + "'HELD' ORDER BY r.group_id, r.run_at, r.id LIMIT 1"
)

// headsAtOnce are all those of the groups after one, up to maxHeads, by a walk within the
// database: PostgreSQL would need the time of a packet there and back for each group.
func headsAtOnce(state, at, order string) string {
	after := func(group string) string {
		return "SELECT " + at + " AS at, id, group_id FROM runs WHERE state = '" + state + "' AND group_id > " + group + " ORDER BY group_id, " + order + " LIMIT 1"
	}
	return "WITH RECURSIVE first (at, id, group_id) AS ((" + after("$1") + ") UNION ALL SELECT n.at, n.id, n.group_id FROM first f CROSS JOIN LATERAL (" + after("f.group_id") + `) AS n)
		SELECT f.at, f.id, f.group_id, g.worker_host, g.priority, g.factory, g.automation, CASE WHEN g.automation = '' THEN g.creator_name ELSE '' END
		FROM (SELECT * FROM first LIMIT ` + strconv.Itoa(maxHeads) + ") AS f JOIN run_groups g ON g.id = f.group_id ORDER BY f.group_id"
}

var (
	queuedAtOnce = headsAtOnce("QUEUED", "CAST(0 AS BIGINT)", "id")
	heldAtOnce   = headsAtOnce("HELD", "run_at", "run_at, id")
)

// groupHead is a head with the worker that its group asks for.
type groupHead struct {
	head
	host string
}

func (h *groupHead) fields() []any {
	return []any{&h.at, &h.id, &h.group, &h.host, &h.priority, &h.owner.factory, &h.owner.automation, &h.owner.creator}
}

// headsBy returns a function that finds the first run of the next group after one, or
// ErrNotFound. It is to be called with the group that it returned before, or with 0.
func (s *Leases) headsBy(one, atOnce string) func(tx *engine.Tx, after int64) (groupHead, error) {
	if !s.Shared() {
		return func(tx *engine.Tx, after int64) (h groupHead, err error) {
			return h, tx.Row(one, []any{after}, h.fields()...)
		}
	}
	var found []groupHead
	asked := false
	return func(tx *engine.Tx, after int64) (h groupHead, err error) {
		if !asked || after == 0 || len(found) == 0 {
			asked, found = true, nil
			err = tx.Each(atOnce, []any{after}, func(rows *sql.Rows) (bool, error) {
				var h groupHead
				err := rows.Scan(h.fields()...)
				found = append(found, h)
				return true, err
			})
			if err != nil {
				return h, err
			}
		}
		if len(found) == 0 {
			return h, ErrNotFound
		}
		h, found = found[0], found[1:]
		return h, nil
	}
}

// heads finds the first run of each group that may start. If there are more groups than
// one claim looks at, the next claim continues with the others.
func (s *Leases) heads(tx *engine.Tx, who *carrier) ([]head, error) {
	queued, err := s.headsOf(tx, s.headsBy(headQueued, queuedAtOnce), who, &s.lastHead)
	if err != nil {
		return nil, err
	}
	waiting, err := s.headsOf(tx, s.headsBy(headHeld, heldAtOnce), who, &s.lastHeld)
	now := micros(s.Now())
	return append(queued, slices.DeleteFunc(waiting, func(h head) bool { return h.at > now })...), err
}

// headsOf finds the first runs of up to maxHeads groups, without those that other workers carry. next finds
// the first one after a group. last is the group at which the claim before stopped, if it left some out.
func (s *Leases) headsOf(tx *engine.Tx, next func(tx *engine.Tx, after int64) (groupHead, error), who *carrier, last *int64) (heads []head, err error) {
	after := *last
	looked := 0
	for wrapped := false; looked < maxHeads; {
		h, err := next(tx, after)
		if errors.Is(err, ErrNotFound) {
			if wrapped || *last == 0 {
				*last = 0
				return heads, nil
			}
			wrapped, after = true, 0
			continue
		}
		if err != nil {
			return nil, err
		}
		if wrapped && h.group > *last {
			*last = 0
			return heads, nil
		}
		carries, err := who.carries(tx, h.host)
		if err != nil {
			return nil, err
		}
		if carries {
			heads = append(heads, h.head)
		}
		looked++
		after = h.group
	}
	*last = after
	return heads, nil
}
