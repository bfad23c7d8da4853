package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// Kinds of workers.
const (
	KindServe  = "serve"
	KindWorker = "worker"
)

// Worker is a process that executes runs (SPEC 17.4).
type Worker struct {
	ID        string // of its data directory, so that it stays the same when it starts again
	Kind      string
	Names     []string          // by which runs ask for it
	Labels    map[string]string // the same, as KEY=VALUE
	Host      string
	Version   string
	Isolation string
	MaxRuns   int64
	Active    int64         // runs in progress, as the store has them
	Blocked   string        // why it starts none, besides that it has as many as it may; empty: nothing keeps it
	Lease     time.Duration // how long a run is the worker's without a renewal
	Drain     bool          // somebody has asked it to start none
	StartedAt time.Time
	SeenAt    time.Time     // by the clock of a database that machines share, whose own clocks need not agree
	Silent    time.Duration // since then
	StoppedAt time.Time     // zero: it has not
}

// LostAfter is the time without a heartbeat after which a worker counts as lost. One with a
// shorter lease is lost when that is over: its runs are taken from it then.
const LostAfter = 45 * time.Second

// Live tells whether a worker is connected.
func (w *Worker) Live() bool {
	return w.StoppedAt.IsZero() && w.Silent < min(LostAfter, cmp.Or(w.Lease, LostAfter))
}

// workersClock reads the clock of a PostgreSQL database.
const workersClock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// Workers are the processes that execute runs of a shared store.
type Workers struct{ *db }

// time is the time by which workers are judged, in a turn of the writer.
func (s *Workers) time(tx *engine.Tx) (now int64, err error) {
	if !s.Shared() {
		return micros(s.Now()), nil
	}
	err = tx.Row(workersClock, nil, &now)
	return now, err
}

// Name is what people call the worker.
func (w *Worker) Name() string {
	if len(w.Names) > 0 {
		return w.Names[0]
	}
	return w.Host
}

// Hosts are the names by which a run may ask for the worker (workerHost).
func (w *Worker) Hosts() []string { return hostsOf(w.Names, w.Labels) }

func hostsOf(names []string, labels map[string]string) []string {
	all := slices.Clone(names)
	for key, value := range labels {
		all = append(all, key+"="+value)
	}
	slices.Sort(all[len(names):])
	return all
}

// ErrSuperseded is the error of a worker whose id another process uses.
var ErrSuperseded = errors.New("another process has the identity of this worker")

// Start records that a worker has started. process is a random text that no other start
// has. If the worker ran before, on the same host, that process is dead, because the data
// directory is locked: then before is true.
func (s *Workers) Start(ctx context.Context, w Worker, process string) (before bool, err error) {
	names, labels, err := w.encode()
	if err != nil {
		return false, err
	}
	err = s.Do(ctx, func(tx *engine.Tx) error {
		var host string
		err := tx.Row("SELECT host FROM workers WHERE id = $1", []any{w.ID}, &host)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		before = host == w.Host
		now, err := s.time(tx)
		if err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO workers (id, process, kind, names, labels, host, version, isolation, max_runs, lease, blocked, drain, started_at, seen_at, stopped_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', 0, $11, $11, 0)
			ON CONFLICT (id) DO UPDATE SET process = excluded.process, kind = excluded.kind, names = excluded.names, labels = excluded.labels,
			host = excluded.host, version = excluded.version, isolation = excluded.isolation, max_runs = excluded.max_runs, lease = excluded.lease, blocked = '',
			started_at = excluded.started_at, seen_at = excluded.seen_at, stopped_at = 0`,
			w.ID, process, w.Kind, names, labels, w.Host, w.Version, w.Isolation, w.MaxRuns, int64(w.Lease), now)
	})
	return before, err
}

func (w *Worker) encode() (names, labels string, err error) {
	list, err := json.Marshal(append([]string{}, w.Names...))
	if err != nil {
		return "", "", err
	}
	object, err := json.Marshal(w.Labels)
	if w.Labels == nil {
		object = []byte("{}")
	}
	return string(list), string(object), err
}

// Beat records that a worker is alive, and what it does. It tells whether somebody has
// asked it to start no runs. The error is ErrSuperseded if another process has started with
// its id, and ErrNotFound if its row was deleted.
func (s *Workers) Beat(ctx context.Context, w Worker, process string, stopped bool) (drain bool, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		now, err := s.time(tx)
		if err != nil {
			return err
		}
		end := int64(0)
		if stopped {
			end = now
		}
		n, err := tx.ExecCount(`UPDATE workers SET seen_at = $1, stopped_at = $2, blocked = $3, isolation = $4 WHERE id = $5 AND process = $6`,
			now, end, w.Blocked, w.Isolation, w.ID, process)
		if err != nil {
			return err
		}
		var asked int64
		if err := tx.Row("SELECT drain FROM workers WHERE id = $1", []any{w.ID}, &asked); err != nil {
			return err
		}
		if n == 0 {
			return ErrSuperseded
		}
		drain = asked != 0
		return nil
	})
	return drain, err
}

const selectWorker = `SELECT id, kind, names, labels, host, version, isolation, max_runs, lease, blocked, drain, started_at, seen_at, stopped_at,
	(SELECT count(*) FROM runs r WHERE r.state = 'INPROGRESS' AND r.state <> 'QUEUED' AND r.worker = workers.id) FROM workers`

// workerAt reads a worker at a time by which workers are judged.
func workerAt(now int64) func(rows *sql.Rows) (*Worker, error) {
	return func(rows *sql.Rows) (*Worker, error) { return scanWorker(rows, now) }
}

func scanWorker(rows *sql.Rows, now int64) (*Worker, error) {
	w := &Worker{}
	var names, labels string
	var drain, started, seen, stopped int64
	err := rows.Scan(&w.ID, &w.Kind, &names, &labels, &w.Host, &w.Version, &w.Isolation, &w.MaxRuns, &w.Lease, &w.Blocked, &drain, &started, &seen, &stopped, &w.Active)
	if err != nil {
		return nil, err
	}
	w.Silent = time.Duration(now-seen) * time.Microsecond
	w.Drain, w.StartedAt, w.SeenAt, w.StoppedAt = drain != 0, timeOf(started), timeOf(seen), timeOf(stopped)
	return w, errors.Join(json.Unmarshal([]byte(names), &w.Names), json.Unmarshal([]byte(labels), &w.Labels))
}

// List are the workers that are known, in the order of their ids.
func (s *Workers) List(ctx context.Context) ([]*Worker, error) {
	now := micros(s.Now())
	if s.Shared() {
		if err := s.Read.QueryRowContext(ctx, workersClock).Scan(&now); err != nil {
			return nil, err
		}
	}
	return engine.List(ctx, s.DB, workerAt(now), selectWorker+" ORDER BY id")
}

// Drain asks the workers with a name, id or host to start no more runs, or to start
// them again, and returns their ids. The error is ErrNotFound if there is none.
func (s *Workers) Drain(ctx context.Context, name string, drain bool) (ids []string, err error) {
	asked := int64(0)
	if drain {
		asked = 1
	}
	err = s.Do(ctx, func(tx *engine.Tx) error {
		ids = nil
		var all []*Worker
		err := tx.Each(selectWorker, nil, func(rows *sql.Rows) (bool, error) {
			w, err := scanWorker(rows, 0) // it is not asked whether they live
			all = append(all, w)
			return true, err
		})
		if err != nil {
			return err
		}
		for _, w := range all {
			if w.ID != name && w.Host != name && !slices.Contains(w.Names, name) {
				continue
			}
			ids = append(ids, w.ID)
			if err := tx.Exec("UPDATE workers SET drain = $1 WHERE id = $2", asked, w.ID); err != nil {
				return err
			}
		}
		if len(ids) == 0 {
			return fmt.Errorf("the worker %q: %w", name, ErrNotFound)
		}
		return nil
	})
	return ids, err
}

// forgetWorkers is the time after which a worker that is gone is forgotten.
const forgetWorkers = 24 * time.Hour

// Forget deletes the workers that were not seen for a long time.
func (s *Workers) Forget(ctx context.Context) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		now, err := s.time(tx)
		if err != nil {
			return err
		}
		return tx.Exec("DELETE FROM workers WHERE seen_at < $1", now-forgetWorkers.Microseconds())
	})
}

// atWorker begins the worker_host of a group whose runs go on in the workspace of a worker,
// which its id follows. No definition can write it.
const atWorker = "\x1f"

// bindRun lets a run of a conversation be claimed by the worker alone that has the workspace: the
// one that executed the conversation's last run. If that worker is lost, any may claim the
// run, which then says that its workspace is gone.
func (s *Workers) bindRun(tx *engine.Tx, id, conversation RunID) error {
	var worker string
	last := RunID(0)
	err := tx.Each(`SELECT id, worker FROM runs WHERE id = $1 AND worker <> ''
		UNION ALL SELECT id, worker FROM runs WHERE conversation_id = $2 AND conversation_id <> 0 AND worker <> ''`, []any{conversation, conversation},
		func(rows *sql.Rows) (bool, error) {
			var r RunID
			var w string
			err := rows.Scan(&r, &w)
			if r >= last {
				last, worker = r, w
			}
			return true, err
		})
	if err != nil || worker == "" {
		return err
	}
	var g group
	err = tx.Row("SELECT "+groupColumns+" FROM run_groups WHERE id = (SELECT group_id FROM runs WHERE id = $1)", []any{id}, g.fields()...)
	if err != nil {
		return err
	}
	if g.workerHost == atWorker+worker {
		return nil
	}
	g.workerHost = atWorker + worker
	to, err := s.store.Runs.groupID(tx, g)
	if err != nil {
		return err
	}
	return tx.Exec("UPDATE runs SET group_id = $1 WHERE id = $2", to, id)
}

// BoundTo is the id of the worker that a queued run waits for because that has its workspace;
// empty: it waits for none.
func (s *Workers) BoundTo(ctx context.Context, id RunID) (string, error) {
	host, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (host string, err error) {
		err = rows.Scan(&host)
		return host, err
	}, "SELECT g.worker_host FROM runs r JOIN run_groups g ON g.id = r.group_id WHERE r.id = $1", id))
	worker, bound := strings.CutPrefix(host, atWorker)
	if err != nil || !bound {
		return "", err
	}
	return worker, nil
}

// carrier decides which groups a claim looks at.
type carrier struct {
	db    *db
	claim *Claim
	live  map[string]bool // workers; nil: not read yet
}

func (c *carrier) carries(tx *engine.Tx, host string) (bool, error) {
	worker, bound := strings.CutPrefix(host, atWorker)
	if !bound {
		return host == "" || slices.Contains(c.claim.Hosts, host), nil
	}
	if worker == c.claim.Worker {
		return true, nil
	}
	if c.live == nil {
		c.live = make(map[string]bool)
		now, err := c.db.store.Workers.time(tx)
		if err != nil {
			return false, err
		}
		err = tx.Each(selectWorker, nil, func(rows *sql.Rows) (bool, error) {
			w, err := scanWorker(rows, now)
			if err == nil {
				c.live[w.ID] = w.Live()
			}
			return true, err
		})
		if err != nil {
			return false, err
		}
	}
	return !c.live[worker], nil
}

// MayClaim tells whether there may be a run that a claim takes, without a turn of the writer.
func (s *Leases) MayClaim(ctx context.Context) (bool, error) {
	if s.claims.some() {
		return true, nil
	}
	var n int
	err := s.Read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = 'QUEUED' LIMIT 1) q)
		+ (SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = 'HELD' AND run_at <= $1 LIMIT 1) h)`, micros(s.Now())).Scan(&n)
	return n > 0, err
}

// Draining tells whether somebody has asked a worker to start no runs.
func (s *Workers) Draining(ctx context.Context, worker string) (bool, error) {
	var n int
	err := s.Read.QueryRowContext(ctx, "SELECT count(*) FROM workers WHERE id = $1 AND drain <> 0", worker).Scan(&n)
	return n > 0, err
}

// StopsAsked are those of the runs that somebody has asked to stop.
func (s *Leases) StopsAsked(ctx context.Context, runs []RunID) (map[RunID]Stop, error) {
	asked := make(map[RunID]Stop)
	if len(runs) == 0 {
		return asked, nil
	}
	w := where{}
	w.add(in(&w, "id", runs))
	w.add("cancel_requested <> 0")
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var id RunID
		var stop Stop
		err = rows.Scan(&id, &stop)
		asked[id] = stop
		return none, err
	}, "SELECT id, cancel_requested FROM runs"+w.sql(), w.args...)
	return asked, err
}

// Held is the lease of a run in progress, as it is in the store.
type Held struct {
	Lease
	Until  int64         // a number that every renewal changes
	Worker string        // id
	Lasts  time.Duration // without a renewal

	Isolation string // of that worker
}

// DefaultLease is how long a run is a worker's without a renewal, unless the worker says
// otherwise.
const DefaultLease = time.Minute

// Held are the leases of all runs in progress.
func (s *Leases) Held(ctx context.Context) ([]Held, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (h Held, err error) {
		err = rows.Scan(&h.RunID, &h.Token, &h.Until, &h.Worker, &h.Lasts, &h.Isolation)
		return h, err
	}, `SELECT r.id, r.lease_token, r.lease_until, r.worker, coalesce(w.lease, $1), coalesce(w.isolation, '') FROM runs r LEFT JOIN workers w ON w.id = r.worker
		WHERE r.state = 'INPROGRESS' AND r.state <> 'QUEUED'`, int64(DefaultLease))
}
