package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// RunState is where a run is in its life (CONTRACT.md 3.1, SPEC 9.1).
type RunState string

// The states. The last three are terminal and never change.
const (
	Queued     RunState = "QUEUED"
	InProgress RunState = "INPROGRESS"
	Succeeded  RunState = "SUCCEEDED"
	FailedRun  RunState = "FAILED"
	Cancelled  RunState = "CANCELLED"
)

// RunStates are all of them.
var RunStates = []RunState{Queued, InProgress, Succeeded, FailedRun, Cancelled}

// Terminal tells whether a run in this state has finished.
func (r RunState) Terminal() bool { return r == Succeeded || r == FailedRun || r == Cancelled }

// Sources of a run.
const (
	SourceAPI      = "API"
	SourceWebhook  = "WEBHOOK"
	SourceSchedule = "SCHEDULE"
)

// Errors about runs.
var (
	ErrTerminal    = errors.New("the run has finished")
	ErrFenced      = errors.New("the run belongs to another worker now")
	ErrIdempotency = errors.New("the Idempotency-Key was used with another request")
)

// Run is one run of an agent. What it executes is in its spec, which is opaque
// here and shared by all runs of an automation.
type Run struct {
	ID              string
	Factory         string
	Automation      string // empty if none started it
	Source          string
	Title           string
	CreatorKind     string // user, agent or automation
	CreatorName     string
	DeliveryID      string
	Webhook         string
	Commit          string // of the definitions
	SpecHash        [32]byte
	State           RunState
	StatusMessage   string
	ExitCode        *int64
	Attempt         int64
	CreatedAt       time.Time
	UpdatedAt       time.Time
	StartedAt       time.Time // zero: not yet
	FinishedAt      time.Time
	CancelRequested bool
}

// NewRun is what a run is enqueued with.
type NewRun struct {
	Factory, Automation, Source, Title string
	CreatorKind, CreatorName           string
	Webhook, Commit                    string
	SpecHash                           [32]byte
	Spec                               []byte // nil if it is stored already
}

const insertRun = `INSERT INTO runs (id, factory, automation, source, title, creator_kind, creator_name, delivery_id, webhook, commit_hash, spec_hash,
	state, status_message, attempt, created_at, updated_at, started_at, finished_at, cancel_requested, worker, lease_token, lease_until)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'QUEUED', '', 0, $12, $12, 0, 0, 0, '', 0, 0)`

// insertRun runs on the writer.
func (s *Store) insertRun(ctx context.Context, r *NewRun, deliveryID int64) (int64, error) {
	if r.Spec != nil {
		if err := s.putSpec(ctx, r.SpecHash, r.Spec); err != nil {
			return 0, err
		}
	}
	id := s.nextID()
	return id, s.exec(ctx, insertRun, id, r.Factory, r.Automation, r.Source, r.Title, r.CreatorKind, r.CreatorName, deliveryID, r.Webhook, r.Commit,
		r.SpecHash[:], micros(s.now()))
}

func (s *Store) putSpec(ctx context.Context, hash [32]byte, spec []byte) error {
	return s.exec(ctx, "INSERT INTO specs (hash, data) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING", hash[:], spec)
}

// Spec reads a spec by its hash.
func (s *Store) Spec(ctx context.Context, hash [32]byte) ([]byte, error) {
	return first(list(ctx, s, func(rows *sql.Rows) ([]byte, error) {
		var data []byte
		err := rows.Scan(&data)
		return data, err
	}, "SELECT data FROM specs WHERE hash = $1", hash[:]))
}

// idempotencyAge is how long an Idempotency-Key is remembered (SPEC 9.7).
const idempotencyAge = 24 * time.Hour

// CreateRun enqueues a run that no delivery started. With a key that was used in
// the last 24 hours it returns the run of that time, if the body was the same,
// or else ErrIdempotency. The caller scopes the key to whoever sent it.
func (s *Store) CreateRun(ctx context.Context, r NewRun, key string, body []byte) (run *Run, created bool, err error) {
	keyHash, bodyHash := sha256.Sum256([]byte(key)), sha256.Sum256(body)
	var id int64
	err = s.do(ctx, func(ctx context.Context) error {
		id, created = 0, false
		if key != "" {
			var was []byte
			err := s.row(ctx, "SELECT body_hash, run_id FROM idempotency WHERE key_hash = $1 AND created_at > $2",
				[]any{keyHash[:], micros(s.now().Add(-idempotencyAge))}, &was, &id)
			if err == nil && !bytes.Equal(was, bodyHash[:]) {
				return ErrIdempotency
			}
			if !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		var err error
		if id, err = s.insertRun(ctx, &r, 0); err != nil {
			return err
		}
		created = true
		if key == "" {
			return nil
		}
		return s.exec(ctx, `INSERT INTO idempotency (key_hash, body_hash, run_id, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (key_hash) DO UPDATE SET body_hash = excluded.body_hash, run_id = excluded.run_id, created_at = excluded.created_at`,
			keyHash[:], bodyHash[:], id, micros(s.now()))
	})
	if err != nil {
		return nil, false, err
	}
	run, err = s.Run(ctx, formatID(prefixRun, id))
	return run, created, err
}

const runColumns = `id, factory, automation, source, title, creator_kind, creator_name, delivery_id, webhook, commit_hash, spec_hash, state, status_message,
	exit_code, attempt, created_at, updated_at, started_at, finished_at, cancel_requested`

func scanRun(rows *sql.Rows) (*Run, error) {
	r := &Run{}
	var id, delivery, created, updated, started, finished int64
	var hash []byte
	err := rows.Scan(&id, &r.Factory, &r.Automation, &r.Source, &r.Title, &r.CreatorKind, &r.CreatorName, &delivery, &r.Webhook, &r.Commit, &hash,
		&r.State, &r.StatusMessage, &r.ExitCode, &r.Attempt, &created, &updated, &started, &finished, &r.CancelRequested)
	r.ID, r.DeliveryID = formatID(prefixRun, id), formatID(prefixDelivery, delivery)
	copy(r.SpecHash[:], hash)
	r.CreatedAt, r.UpdatedAt, r.StartedAt, r.FinishedAt = timeOf(created), timeOf(updated), timeOf(started), timeOf(finished)
	return r, err
}

// Run reads one run.
func (s *Store) Run(ctx context.Context, id string) (*Run, error) {
	n, err := parseID(prefixRun, id)
	if err != nil {
		return nil, err
	}
	r, err := first(list(ctx, s, scanRun, "SELECT "+runColumns+" FROM runs WHERE id = $1", n))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return r, nil
}

// RunQuery selects runs; zero fields select all.
type RunQuery struct {
	States                                  []RunState
	Factory, Automation, Source, DeliveryID string
	Before                                  string
	Limit                                   int
}

// Runs reads runs, newest first.
func (s *Store) Runs(ctx context.Context, q RunQuery) ([]*Run, error) {
	states := slices.Clone(q.States)
	if slices.Sort(states); len(states) == 0 {
		states = []RunState{""}
	}
	var all []*Run
	for _, state := range slices.Compact(states) { // one walk of an index each, instead of a sort of all
		query, args, err := q.sql(state)
		if err != nil {
			return nil, err
		}
		some, err := list(ctx, s, scanRun, query, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return newest(all, q.Limit, func(r *Run) string { return r.ID }), nil
}

// sql is the query for one state, or for all.
func (q RunQuery) sql(state RunState) (string, []any, error) {
	w := where{}
	w.text("factory", q.Factory)
	w.text("automation", q.Automation)
	w.text("source", q.Source)
	w.text("state", string(state))
	if q.DeliveryID != "" {
		n, err := parseID(prefixDelivery, q.DeliveryID)
		if err != nil {
			return "", nil, err
		}
		w.add("delivery_id = ", n)
	}
	err := w.before(prefixRun, q.Before)
	return "SELECT " + runColumns + " FROM runs" + w.sql() + " ORDER BY id DESC" + w.limit(q.Limit), w.args, err
}

// RunCounts is the number of runs in each state that is not terminal.
func (s *Store) RunCounts(ctx context.Context) (map[RunState]int64, error) {
	counts := map[RunState]int64{Queued: 0, InProgress: 0}
	for state := range counts {
		var n int64
		if err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM runs WHERE state = $1", string(state)).Scan(&n); err != nil {
			return nil, err
		}
		counts[state] = n
	}
	return counts, nil
}

// Lease is a worker's right to a run. Its token fences off a worker that lost
// the run and does not know it.
type Lease struct {
	RunID string
	Token int64
}

// Claim says which runs a worker takes.
type Claim struct {
	Worker string
	Most   int           // runs
	Lease  time.Duration // how long they are the worker's
	// PerAutomation is how many runs of one automation may be in progress; those
	// beyond stay queued, and later ones of others are taken. 0: no limit.
	PerAutomation int
}

// ClaimRuns takes queued runs, oldest first.
func (s *Store) ClaimRuns(ctx context.Context, claim Claim) ([]Lease, error) {
	var claimed []Lease
	err := s.do(ctx, func(ctx context.Context) error {
		claimed = nil
		ids, err := s.claimable(ctx, claim)
		if err != nil {
			return err
		}
		now := s.now()
		for _, id := range ids {
			lease := Lease{RunID: formatID(prefixRun, id)}
			err := s.row(ctx, `UPDATE runs SET state = 'INPROGRESS', started_at = $1, updated_at = $1, attempt = attempt + 1,
				worker = $2, lease_token = lease_token + 1, lease_until = $3 WHERE id = $4 AND state = 'QUEUED' RETURNING lease_token`,
				[]any{micros(now), claim.Worker, micros(now.Add(claim.Lease)), id}, &lease.Token)
			if err != nil {
				return err
			}
			claimed = append(claimed, lease)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// claimable are the queued runs that may start. It reads no further into the
// queue than it must.
func (s *Store) claimable(ctx context.Context, claim Claim) (ids []int64, err error) {
	if claim.Most <= 0 {
		return nil, nil
	}
	type automation struct{ factory, name string }
	inProgress := make(map[automation]int)
	if claim.PerAutomation > 0 {
		err = s.each(ctx, "SELECT factory, automation, count(*) FROM runs WHERE state = 'INPROGRESS' GROUP BY factory, automation", nil,
			func(rows *sql.Rows) (bool, error) {
				var a automation
				var count int
				err := rows.Scan(&a.factory, &a.name, &count)
				inProgress[a] = count
				return true, err
			})
	}
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, "SELECT id, factory, automation FROM runs WHERE state = 'QUEUED' ORDER BY id", nil,
		func(rows *sql.Rows) (bool, error) {
			var a automation
			var id int64
			if err := rows.Scan(&id, &a.factory, &a.name); err != nil {
				return false, err
			}
			if a.name == "" || claim.PerAutomation <= 0 || inProgress[a] < claim.PerAutomation {
				inProgress[a]++
				ids = append(ids, id)
			}
			return len(ids) < claim.Most, nil
		})
	return ids, err
}

// fenced runs a change of an INPROGRESS run that the lease still holds; the
// condition is added to the statement.
func (s *Store) fenced(ctx context.Context, l Lease, query string, args ...any) error {
	id, err := parseID(prefixRun, l.RunID)
	if err != nil {
		return err
	}
	query += fmt.Sprintf(" WHERE id = $%d AND lease_token = $%d AND state = 'INPROGRESS'", len(args)+1, len(args)+2)
	n, err := s.execCount(ctx, query, append(args, id, l.Token)...)
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}

// RenewLease extends the lease, and tells whether somebody asked for the run to
// stop.
func (s *Store) RenewLease(ctx context.Context, l Lease, d time.Duration) (cancelRequested bool, err error) {
	id, err := parseID(prefixRun, l.RunID)
	if err != nil {
		return false, err
	}
	err = s.do(ctx, func(ctx context.Context) error {
		if err := s.fenced(ctx, l, "UPDATE runs SET lease_until = $1", micros(s.now().Add(d))); err != nil {
			return err
		}
		return s.row(ctx, "SELECT cancel_requested FROM runs WHERE id = $1", []any{id}, &cancelRequested)
	})
	return cancelRequested, err
}

// FinishRun ends a run. A terminal state never changes (SPEC 9.1).
func (s *Store) FinishRun(ctx context.Context, l Lease, state RunState, message string, exitCode *int64) error {
	if !state.Terminal() {
		return fmt.Errorf("run %s: %s ends no run", l.RunID, state)
	}
	return s.do(ctx, func(ctx context.Context) error {
		return s.fenced(ctx, l, "UPDATE runs SET state = $1, status_message = $2, exit_code = $3, finished_at = $4, updated_at = $4", string(state), message, exitCode, micros(s.now()))
	})
}

// RequestCancel cancels a queued run at once, and asks the worker of a running
// one to stop it. A finished one is ErrTerminal.
func (s *Store) RequestCancel(ctx context.Context, id string) (*Run, error) {
	n, err := parseID(prefixRun, id)
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, func(ctx context.Context) error {
		var state RunState
		if err := s.row(ctx, "SELECT state FROM runs WHERE id = $1", []any{n}, &state); err != nil {
			return fmt.Errorf("run %s: %w", id, err)
		}
		switch {
		case state.Terminal():
			return fmt.Errorf("run %s: %w", id, ErrTerminal)
		case state == Queued:
			return s.exec(ctx, "UPDATE runs SET state = 'CANCELLED', status_message = 'cancelled before it started', finished_at = $1, updated_at = $1 WHERE id = $2", micros(s.now()), n)
		}
		return s.exec(ctx, "UPDATE runs SET cancel_requested = 1, updated_at = $1 WHERE id = $2", micros(s.now()), n)
	})
	if err != nil {
		return nil, err
	}
	return s.Run(ctx, id)
}

// ReapRuns fails the running runs whose lease has ended, or all of them if no
// other process can hold one, and returns their ids (SPEC 9.6).
func (s *Store) ReapRuns(ctx context.Context, all bool, message string) ([]string, error) {
	var reaped []string
	err := s.do(ctx, func(ctx context.Context) error {
		reaped = nil
		now := s.now()
		ended := micros(now)
		if all {
			ended = math.MaxInt64
		}
		return s.each(ctx, `UPDATE runs SET state = 'FAILED', status_message = $1, finished_at = $2, updated_at = $2, lease_token = lease_token + 1
			WHERE state = 'INPROGRESS' AND lease_until < $3 RETURNING id`, []any{message, micros(now), ended}, func(rows *sql.Rows) (bool, error) {
			var id int64
			err := rows.Scan(&id)
			reaped = append(reaped, formatID(prefixRun, id))
			return true, err
		})
	})
	if err != nil {
		return nil, err
	}
	return reaped, nil
}
