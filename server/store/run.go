package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// RunState is the state of a run (SPEC C3.1, 9.1).
type RunState = terms.RunState

// The states. The last three are terminal and never change.
const (
	Blocked    = terms.Blocked
	Queued     = terms.Queued
	InProgress = terms.InProgress
	Succeeded  = terms.Succeeded
	FailedRun  = terms.FailedRun
	Cancelled  = terms.Cancelled
)

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
	ErrBacklog     = errors.New("the queue of runs is full")
)

// Run is one run of an agent. What it executes is in its spec, which is opaque
// here and shared by all runs of an automation.
type Run struct {
	ID             RunID
	Factory        string
	Automation     string // empty if none started it
	Source         string
	Title          string
	CreatorKind    string // user, agent or automation
	CreatorName    string
	DeliveryID     DeliveryID
	ParentID       RunID // of the run that asked for this one, or none
	Webhook        string
	Commit         string // of the definitions
	Agent          string // that runs it, or empty
	Environment    string
	Model          string
	Name           string       // of the posted configuration
	Schedule       *RunSchedule // that started it, or nil
	Tokens         int64        // as far as the harness told
	CostUSD        float64
	SpecHash       [32]byte
	State          RunState
	StatusMessage  string
	ExitCode       *int64
	Attempt        int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
	StartedAt      time.Time // zero: not yet
	FinishedAt     time.Time
	StopRequested  Stop
	ConversationID RunID     // the first run of its conversation; its own id if it is the first
	RetryOf        RunID     // the run that somebody started again with this one, or none
	RunAt          time.Time // when the next attempt may start; zero: it does not wait for a time
	Behind         bool      // it waits for the run before it in its conversation
	Priority       int64
	Subject        string // what its event is about (SPEC 21.1), or empty
	Person         string // who caused its event (SPEC 24.1), such as github:ada, or empty
	ReplacedBy     RunID  // the run of a newer event of the subject, in favour of which it was cancelled, or none
	Worker         string // id of the worker that has or had it; empty: none yet

	sortKey any // where a list found it
}

// Stop is what somebody asked of a run in progress.
type Stop int64

// What can be asked.
const (
	NoStop Stop = iota
	StopCancel
	StopInterrupt // its conversation is to go on
)

// RunSchedule is the schedule that started a run, as it was then.
type RunSchedule struct {
	ID         ScheduleID
	Name, Cron string
}

// NewRun is what a run is enqueued with.
type NewRun struct {
	Factory, Automation, Source, Title string
	CreatorKind, CreatorName           string
	Webhook, Commit                    string
	Subject                            string // what its event is about, or empty
	// Person is who caused its event, or empty: a name, and after a blank what stays if the name changes.
	Person   string
	SpecHash [32]byte
	Spec     []byte // nil if it is stored already

	ParentID RunID
	Metadata map[string]string
	Search   []string     // texts whose words find the run
	Schedule *RunSchedule // nil: none started it
	Priority int64        // those with a higher one start first

	Answers []NewAnswer  // where to tell what becomes of it (SPEC 22)
	Outputs *OutputPlace // where what its agent asks for is done (SPEC 23); nil: its agent may ask for nothing

	// Event identifies what a sender reports, if several webhooks may report it; else empty.
	Event string

	MaxPerPerson int64 // runs of its automation for one person in an hour; 0: no limit
	MaxPerHour   int64 // the automation is paused if it starts more; 0: the server's limit
	Overflow     bool  // it is not paused: what is more waits until the hour has room
	// PerSubject says what the run does while another one of its automation and subject has not
	// ended; Settle is for how long no newer event of the subject may come before it starts.
	PerSubject string
	Settle     time.Duration
	// Thread is the place of its answer (NewAnswer.PlaceKey), if its event is a reply in a thread: the run
	// goes on with the conversation of the newest run of its automation that is answered there, unless
	// PerSubject says something else. If there is none, an OnlyReply starts nothing (SPEC 21.6). If the
	// automation has an open question there, the run goes on with the conversation of that, whatever
	// PerSubject says (SPEC 26.3); ToQuestion makes nothing else of it a reply.
	Thread     string
	OnlyReply  bool
	ToQuestion bool
	Asks       bool // its agent may ask questions
	// Approval makes it wait for a person before it starts; nil: it does not.
	Approval *NewApproval
	LoopOf   RunID // the run of the same automation whose work would start this one, or none

	DeliveryID DeliveryID // that started the run that is retried
	RetryOf    RunID      // the run that is retried
	// Conversation is the one that the run goes on with. It must not have expired: unless it
	// has a run that has not ended, the last one must have ended after EndedAfter. That holds also
	// for the conversation that PerSubjectContinue finds.
	Conversation RunID
	EndedAfter   time.Time

	countsAt int64 // when it counts for MaxPerHour, if there is no room now
	goesOn   RunID // the conversation of Thread, or none
	answers  RunID // the run to whose question it is the reply, or none
}

const insertRun = `INSERT INTO runs (id, factory, automation, source, title, creator_kind, creator_name, delivery_id, webhook, commit_hash, spec_hash,
	state, status_message, attempt, created_at, updated_at, started_at, finished_at, cancel_requested, worker, lease_token, lease_until, group_id, parent_id, subject, person)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'QUEUED', '', 0, $12, $12, 0, 0, 0, '', 0, 0, $13, $14, $15, $16)`

// Runs are the runs of agents, from the moment that something asks for them.
type Runs struct {
	*db
	maxQueued  atomic.Int64 // LimitQueue
	maxPerHour atomic.Int64 // Guard
}

// insert stores a new run, with its spec.
func (s *Runs) insert(tx *engine.Tx, r *NewRun, delivery DeliveryID) (RunID, error) {
	if most := s.maxQueued.Load(); most > 0 && s.Queued.Add(1) > most {
		s.Queued.Add(-1)
		return 0, ErrBacklog
	}
	if r.Spec != nil {
		if err := s.store.Specs.put(tx, r.SpecHash, r.Spec); err != nil {
			return 0, err
		}
	}
	group, err := s.groupOf(tx, r)
	if err != nil {
		return 0, err
	}
	id := RunID(tx.NextID())
	err = tx.Exec(insertRun, int64(id), r.Factory, r.Automation, r.Source, r.Title, r.CreatorKind, r.CreatorName, int64(delivery), r.Webhook, r.Commit,
		r.SpecHash[:], micros(s.Now()), group, int64(r.ParentID), r.Subject, r.Person) // as in Deliveries.record
	if err != nil {
		return 0, err
	}
	fields, err := s.specFields(tx, r)
	if err != nil {
		return 0, err
	}
	if host := fields.WorkerHost; host != "" {
		if err := tx.Exec("UPDATE runs SET status_message = $1 WHERE id = $2", WaitsFor(host), id); err != nil {
			return 0, err
		}
	}
	for name, value := range r.Metadata {
		if err := tx.Exec("INSERT INTO run_metadata (run_id, name, value) VALUES ($1, $2, $3)", id, name, value); err != nil {
			return 0, err
		}
	}
	for _, word := range wordsOf(r.Search...) {
		if err := tx.Exec("INSERT INTO run_words (word, run_id) VALUES ($1, $2)", word, id); err != nil {
			return 0, err
		}
	}
	if r.RetryOf != 0 {
		if err := tx.Exec("UPDATE runs SET retry_of = $1 WHERE id = $2", r.RetryOf, id); err != nil {
			return 0, err
		}
		if err := errors.Join(s.store.Answers.again(tx, id, r.RetryOf), s.store.Outputs.again(tx, id, r.RetryOf)); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(s.store.Outputs.place(tx, id, r.Outputs, r.answers), s.store.Outputs.ends(tx, id, r)); err != nil {
		return 0, err
	}
	if len(fields.Outputs) > 0 {
		if err := s.store.Outputs.wait(tx, id); err != nil {
			return 0, err
		}
	}
	if err := s.store.Answers.insert(tx, id, delivery, r); err != nil {
		return 0, err
	}
	if r.countsAt > 0 {
		if err := tx.Exec("UPDATE runs SET counts_at = $1 WHERE id = $2", r.countsAt, id); err != nil {
			return 0, err
		}
		if err := s.store.Lines.holdUntil(tx, id, r.countsAt, waitsForRoom); err != nil {
			return 0, err
		}
	}
	if r.Conversation != 0 {
		return id, s.store.Conversations.join(tx, id, r.Conversation, r.EndedAfter)
	}
	return id, nil
}

// Specs are what runs execute, each kept once by its hash.
type Specs struct{ *db }

// put stores a spec. It replaces a damaged one.
func (s *Specs) put(tx *engine.Tx, hash [32]byte, spec []byte) error {
	return tx.Exec(`INSERT INTO specs (hash, data) VALUES ($1, $2)
		ON CONFLICT (hash) DO UPDATE SET data = excluded.data WHERE specs.data <> excluded.data`, hash[:], spec)
}

// Keep stores those of the specs that are not stored yet.
func (s *Specs) Keep(ctx context.Context, specs map[[32]byte][]byte) error {
	lacking := make(map[[32]byte][]byte)
	for hash, spec := range specs {
		if _, err := s.Get(ctx, hash); err != nil {
			lacking[hash] = spec
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return s.Grow(ctx, func(tx *engine.Tx) error {
		for hash, spec := range lacking {
			if err := s.put(tx, hash, spec); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get reads a spec by its hash. The error wraps ErrDamaged for one that is not
// what was stored.
func (s *Specs) Get(ctx context.Context, hash [32]byte) ([]byte, error) {
	data, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) ([]byte, error) {
		var data []byte
		err := rows.Scan(&data)
		return data, err
	}, "SELECT data FROM specs WHERE hash = $1", hash[:]))
	if err == nil && !s.soundHash(hash[:], data) {
		return nil, s.damage("the spec %x", hash[:8])
	}
	return data, err
}

// idempotencyAge is how long an Idempotency-Key is remembered (SPEC 9.7).
const idempotencyAge = 24 * time.Hour

// Create enqueues a run that no delivery started. With a key that was used in
// the last 24 hours it returns the run of that time, if the body was the same,
// or else ErrIdempotency. The caller scopes the key to whoever sent it.
func (s *Runs) Create(ctx context.Context, r NewRun, key string, body []byte) (run *Run, created bool, err error) {
	keyHash, bodyHash := sha256.Sum256([]byte(key)), sha256.Sum256(body)
	var id RunID
	err = s.Grow(ctx, func(tx *engine.Tx) error {
		id, created = 0, false
		if key != "" {
			var was []byte
			err := tx.Row("SELECT body_hash, run_id FROM idempotency WHERE key_hash = $1 AND created_at > $2",
				[]any{keyHash[:], micros(s.Agreed().Add(-idempotencyAge))}, &was, &id)
			if err == nil && !bytes.Equal(was, bodyHash[:]) {
				return ErrIdempotency
			}
			if !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		var err error
		if id, err = s.insert(tx, &r, r.DeliveryID); err != nil {
			return err
		}
		created = true
		if key == "" {
			return nil
		}
		return tx.Exec(`INSERT INTO idempotency (key_hash, body_hash, run_id, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (key_hash) DO UPDATE SET body_hash = excluded.body_hash, run_id = excluded.run_id, created_at = excluded.created_at`,
			keyHash[:], bodyHash[:], id, micros(s.Now()))
	})
	if err != nil {
		return nil, false, err
	}
	run, err = s.Get(ctx, id)
	return run, created, err
}

const runColumns = `r.id, r.factory, r.automation, r.source, r.title, r.creator_kind, r.creator_name, r.delivery_id, r.parent_id, r.webhook, r.commit_hash,
	r.spec_hash, r.state, r.status_message, r.exit_code, r.attempt, r.tokens, r.cost_micros, r.created_at, r.updated_at, r.started_at, r.finished_at,
	r.cancel_requested, r.conversation_id, r.retry_of, r.run_at, r.worker, r.subject, r.replaced_by, r.person, g.priority, g.agent, g.environment, g.model, g.name, g.schedule_id, g.schedule_name, g.schedule_cron`

const selectRun = "SELECT " + runColumns + " FROM runs r JOIN run_groups g ON g.id = r.group_id"

func scanRun(rows *sql.Rows) (*Run, error) {
	r := &Run{}
	var cost, created, updated, started, finished, runAt int64
	var hash []byte
	var by RunSchedule
	err := rows.Scan(&r.ID, &r.Factory, &r.Automation, &r.Source, &r.Title, &r.CreatorKind, &r.CreatorName, &r.DeliveryID, &r.ParentID, &r.Webhook, &r.Commit,
		&hash, &r.State, &r.StatusMessage, &r.ExitCode, &r.Attempt, &r.Tokens, &cost, &created, &updated, &started, &finished,
		&r.StopRequested, &r.ConversationID, &r.RetryOf, &runAt, &r.Worker, &r.Subject, &r.ReplacedBy, &r.Person, &r.Priority, &r.Agent, &r.Environment, &r.Model, &r.Name, &by.ID, &by.Name, &by.Cron)
	r.Person, _, _ = strings.Cut(r.Person, " ")
	if by.ID != 0 {
		r.Schedule = &by
	}
	r.ConversationID = cmp.Or(r.ConversationID, r.ID)
	if r.State == held {
		r.State = Queued
		switch runAt {
		case untilApproved:
			r.State = Blocked
		case untilReleased:
			r.Behind = true
		default:
			r.RunAt = timeOf(runAt)
		}
	}
	copy(r.SpecHash[:], hash)
	r.CostUSD = float64(cost) / 1e6
	r.CreatedAt, r.UpdatedAt, r.StartedAt, r.FinishedAt = timeOf(created), timeOf(updated), timeOf(started), timeOf(finished)
	return r, err
}

// Get reads one run.
func (s *Runs) Get(ctx context.Context, id RunID) (*Run, error) {
	r, err := engine.First(engine.List(ctx, s.DB, scanRun, selectRun+" WHERE r.id = $1", id))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return r, nil
}

// Metadata reads what was attached to runs when they were created.
func (s *Runs) Metadata(ctx context.Context, runs ...RunID) (map[RunID]map[string]string, error) {
	all := make(map[RunID]map[string]string)
	if len(runs) == 0 {
		return all, nil
	}
	w := where{}
	w.add(in(&w, "run_id", runs))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var run RunID
		var name, value string
		if err := rows.Scan(&run, &name, &value); err != nil {
			return none, err
		}
		if all[run] == nil {
			all[run] = make(map[string]string)
		}
		all[run][name] = value
		return none, nil
	}, "SELECT run_id, name, value FROM run_metadata"+w.sql(), w.args...)
	return all, err
}

const (
	countQueued = "SELECT count(*) FROM runs WHERE state = 'QUEUED'"
	countHeld   = "SELECT count(*) FROM runs WHERE state = 'HELD' AND run_at <> 9223372036854775806" // untilApproved
	// countBlocked is the number of runs that wait for a person.
	countBlocked = "SELECT count(*) FROM approvals WHERE decision = '' AND seq = 0"
)

// Roots are the topmost runs above runs that another one asked for, by the id of the run.
// The others have none.
func (s *Runs) Roots(ctx context.Context, runs ...RunID) (map[RunID]RunID, error) {
	all := make(map[RunID]RunID)
	if len(runs) == 0 {
		return all, nil
	}
	// A parent is older than what it asks for, and may be deleted already.
	w := where{}
	w.add(in(&w, "id", runs))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var run, root RunID
		err = rows.Scan(&run, &root)
		all[run] = root
		return none, err
	}, "WITH RECURSIVE above (run, id) AS (SELECT id, parent_id FROM runs"+w.sql()+` AND parent_id <> 0
		UNION SELECT above.run, r.parent_id FROM above JOIN runs r ON r.id = above.id WHERE r.parent_id <> 0) SELECT run, min(id) FROM above GROUP BY run`, w.args...)
	return all, err
}

// Counts is the number of runs in each state that is not terminal.
func (s *Runs) Counts(ctx context.Context) (map[RunState]int64, error) {
	counts := make(map[RunState]int64)
	for state, query := range map[RunState]string{
		Queued:     "SELECT (" + countQueued + ") + (" + countHeld + ")",
		Blocked:    countBlocked,
		InProgress: "SELECT count(*) FROM runs WHERE state = 'INPROGRESS' AND state <> 'QUEUED'", // what its index is for
	} {
		var n int64
		if err := s.Read.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return nil, err
		}
		counts[state] = n
	}
	return counts, nil
}

// LongestWait is for how long the run that waits longest has waited to be started; 0: none waits.
// A run that is held until a time, or for the run before it in its conversation, counts from then
// on.
func (s *Runs) LongestWait(ctx context.Context) (time.Duration, error) {
	var id, released sql.NullInt64
	if err := s.Read.QueryRowContext(ctx, "SELECT min(id) FROM runs WHERE state = 'QUEUED'").Scan(&id); err != nil {
		return 0, err
	}
	now := s.Now()
	if err := s.Read.QueryRowContext(ctx, "SELECT min(run_at) FROM runs WHERE state = 'HELD' AND run_at <= $1", micros(now)).Scan(&released); err != nil {
		return 0, err
	}
	since := now
	if id.Valid {
		since = engine.TimeOfID(id.Int64)
	}
	if at := timeOf(released.Int64); released.Valid && at.Before(since) {
		since = at
	}
	return max(0, now.Sub(since)), nil
}

// LimitQueue limits how many runs may wait. One more is ErrBacklog, and so is the
// delivery that would start it. 0: no limit. LimitQueue counts the queue; between two
// calls the count is only updated, and runs that were cancelled still count.
func (s *Runs) LimitQueue(ctx context.Context, most int64) error {
	s.maxQueued.Store(most)
	if most <= 0 {
		return nil
	}
	return s.Do(ctx, func(tx *engine.Tx) error {
		var n int64
		err := tx.Row("SELECT ("+countQueued+") + ("+countHeld+")", nil, &n)
		s.Queued.Store(n)
		return err
	})
}

// fenced changes an INPROGRESS run if the lease still holds it, and else returns
// ErrFenced. It adds the condition to the statement.
func (s *Leases) fenced(tx *engine.Tx, l Lease, query string, args ...any) error {
	query += fmt.Sprintf(" WHERE id = $%d AND lease_token = $%d AND state = 'INPROGRESS'", len(args)+1, len(args)+2)
	n, err := tx.ExecCount(query, append(args, l.RunID, l.Token)...)
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}

// Renew extends the lease, and tells whether somebody asked for the run to
// stop.
func (s *Leases) Renew(ctx context.Context, l Lease, d time.Duration) (asked Stop, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		// Each renewal changes the number, whatever the clock shows: Leases.ReapHeld relies on it.
		until := micros(s.Now().Add(d))
		if err := s.fenced(tx, l, "UPDATE runs SET lease_until = CASE WHEN lease_until < $1 THEN $1 ELSE lease_until + 1 END", until); err != nil {
			return err
		}
		return tx.Row("SELECT cancel_requested FROM runs WHERE id = $1", []any{l.RunID}, &asked)
	})
	return asked, err
}

// Finish ends a run. A terminal state never changes (SPEC 9.1). asked are what the agent of a run asked
// for that has SUCCEEDED; of other runs they are discarded (SPEC 23.2).
func (s *Leases) Finish(ctx context.Context, l Lease, state RunState, message string, exitCode *int64, asked ...NewOutput) error {
	if !state.Terminal() {
		return fmt.Errorf("run %s: %s ends no run", l.RunID, state)
	}
	return s.Do(ctx, func(tx *engine.Tx) error {
		if err := s.finish(tx, l, state, message, exitCode); err != nil || state != Succeeded {
			return err
		}
		return s.store.Outputs.ofRun(tx, l.RunID, asked)
	})
}

// finish is Finish within a transaction.
func (s *Leases) finish(tx *engine.Tx, l Lease, state RunState, message string, exitCode *int64) error {
	err := s.fenced(tx, l, "UPDATE runs SET state = $1, status_message = $2, exit_code = $3, finished_at = $4, updated_at = $4, "+countEvents, string(state), message, exitCode, s.stamp(tx))
	if err != nil {
		return err
	}
	return s.store.Conversations.ended(tx, l.RunID)
}

// Fail ends an attempt that failed. If the run's spec allows another attempt and nobody
// has asked the run to stop, the run waits for it; next is when it may start. Else the run
// has FAILED, and next is zero.
func (s *Leases) Fail(ctx context.Context, l Lease, message string, exitCode *int64) (next time.Time, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		if err = s.fenced(tx, l, "UPDATE runs SET updated_at = $1", s.stamp(tx)); err != nil {
			return err
		}
		if next, err = s.again(tx, l.RunID, message); err != nil || !next.IsZero() {
			return err
		}
		return s.finish(tx, l, FailedRun, message, exitCode)
	})
	return next, err
}

// CancelledQueued ends the message of a cancelled run that Runs.Stop has ended itself, and of no other.
const CancelledQueued = " before it started"

// Stop cancels a queued run at once, and asks the worker of a running one to stop
// it. The message of the run then says who asked, if by is not empty. A finished run is
// ErrTerminal. Only a run in progress can be interrupted; another one is ErrConflict. A cancel is not turned into an interrupt.
func (s *Runs) Stop(ctx context.Context, id RunID, stop Stop, by string) (*Run, error) {
	said := map[Stop]string{StopCancel: "cancelled", StopInterrupt: "interrupted"}[stop]
	if by != "" {
		said += " by " + by
	}
	err := s.Do(ctx, func(tx *engine.Tx) error { return s.stop(tx, id, stop, said) })
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// stop is Stop within a transaction. said is what the message of the run begins with.
func (s *Runs) stop(tx *engine.Tx, id RunID, stop Stop, said string) error {
	var state RunState
	var at int64
	if err := tx.Row("SELECT state, run_at FROM runs WHERE id = $1", []any{id}, &state, &at); err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	switch {
	case state.Terminal():
		return fmt.Errorf("run %s: %w", id, ErrTerminal)
	case state == InProgress:
		return tx.Exec("UPDATE runs SET cancel_requested = $1, updated_at = $2, status_message = $3 WHERE id = $4 AND cancel_requested NOT IN ($1, $5)",
			int64(stop), s.stamp(tx), said, id, int64(StopCancel))
	case stop == StopInterrupt:
		return fmt.Errorf("run %s has no turn to interrupt, because it is queued: cancel it (%w)", id, ErrConflict)
	case state == held && at == untilApproved:
		if err := s.store.Approvals.withdraw(tx, id, said); err != nil {
			return err
		}
	}
	err := tx.Exec("UPDATE runs SET state = 'CANCELLED', status_message = $1, finished_at = $2, updated_at = $2, "+countEvents+
		" WHERE id = $3", said+CancelledQueued, s.stamp(tx), id)
	if err != nil {
		return err
	}
	return s.store.Conversations.ended(tx, id)
}

// Reap ends the attempts in progress whose lease has expired, and returns the ids of
// their runs (SPEC 9.6). A run whose spec allows another attempt waits for it; the others
// have FAILED. With all, it ends all attempts in progress: call it so only if no other
// process can hold a lease. The runs in but it leaves alone.
func (s *Leases) Reap(ctx context.Context, all bool, message string, but ...RunID) ([]RunID, error) {
	return s.reap(ctx, message, func(tx *engine.Tx) ([]RunID, error) {
		until := micros(s.Now())
		if all {
			until = math.MaxInt64
		}
		return without(but)(s.inProgress(tx, "lease_until < $1", until))
	})
}

// without leaves some runs out.
func without(but []RunID) func([]RunID, error) ([]RunID, error) {
	return func(ids []RunID, err error) ([]RunID, error) {
		return slices.DeleteFunc(ids, func(id RunID) bool { return slices.Contains(but, id) }), err
	}
}

// ReapWorker is Reap of the attempts of one worker, which must be dead.
func (s *Leases) ReapWorker(ctx context.Context, worker, message string, but ...RunID) ([]RunID, error) {
	return s.reap(ctx, message, func(tx *engine.Tx) ([]RunID, error) {
		return without(but)(s.inProgress(tx, "worker = $1", worker))
	})
}

// ReapHeld is Reap of those of the attempts whose lease is still the one that was seen.
// So a caller that has seen a lease unchanged for longer than it lasts can end the attempt,
// whatever the clocks of other machines show.
func (s *Leases) ReapHeld(ctx context.Context, seen []Held, message string) ([]RunID, error) {
	return s.reap(ctx, message, func(tx *engine.Tx) ([]RunID, error) {
		var ids []RunID
		for _, h := range seen {
			same, err := s.inProgress(tx, "id = $1 AND lease_token = $2 AND lease_until = $3", h.RunID, h.Token, h.Until)
			if err != nil {
				return nil, err
			}
			ids = append(ids, same...)
		}
		return ids, nil
	})
}

// inProgress are the runs in progress that meet a condition.
func (s *Leases) inProgress(tx *engine.Tx, condition string, args ...any) (ids []RunID, err error) {
	err = tx.Each("SELECT id FROM runs WHERE state = 'INPROGRESS' AND state <> 'QUEUED' AND "+condition, args, func(rows *sql.Rows) (bool, error) {
		var id RunID
		err := rows.Scan(&id)
		ids = append(ids, id)
		return true, err
	})
	return ids, err
}

// reap ends the attempts in progress of some runs.
func (s *Leases) reap(ctx context.Context, message string, dead func(*engine.Tx) ([]RunID, error)) ([]RunID, error) {
	var reaped []RunID
	err := s.Do(ctx, func(tx *engine.Tx) (err error) {
		reaped, err = dead(tx)
		for _, id := range reaped {
			if err != nil {
				break
			}
			var next time.Time
			if next, err = s.again(tx, id, message); err != nil || !next.IsZero() {
				continue
			}
			err = tx.Exec("UPDATE runs SET state = 'FAILED', status_message = $1, finished_at = $2, updated_at = $2, lease_token = lease_token + 1, "+countEvents+
				" WHERE id = $3", message, s.stamp(tx), id)
			if err == nil {
				err = s.store.Conversations.ended(tx, id)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return reaped, nil
}
