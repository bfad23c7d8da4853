package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// maxBatch is the most jobs that share one transaction.
const maxBatch = 256

// yields is how often the writer yields the processor before it closes a batch. So
// requests that are about to write join the batch, and no timer makes anybody wait.
const yields = 4

// lookAfter is how long after a transaction the writer checks whether to make the
// reserve again, and notes the number of transactions beside the store. While nothing is
// written, nothing wakes the writer.
const lookAfter = time.Second

// Tx is the writer's transaction, while a change is made in it. Whatever runs on the writer alone
// takes a Tx. It must not be used after that.
type Tx struct {
	ctx context.Context
	db  *DB
}

// Exec runs a statement. It may run later, with the next statement whose answer is needed.
func (tx *Tx) Exec(query string, args ...any) error { return tx.db.exec(tx.ctx, query, args...) }

// ExecCount runs a statement and returns how many rows it changed.
func (tx *Tx) ExecCount(query string, args ...any) (int64, error) {
	return tx.db.execCount(tx.ctx, query, args...)
}

// Row reads one row; if there is none, the error is ErrNotFound.
func (tx *Tx) Row(query string, args []any, into ...any) error {
	return tx.db.row(tx.ctx, query, args, into...)
}

// Each walks the rows of a query for as long as visit wants more.
func (tx *Tx) Each(query string, args []any, visit func(rows *sql.Rows) (more bool, err error)) error {
	return tx.db.each(tx.ctx, query, args, visit)
}

// Alone returns ErrOthers if another process has the store open. Until the end of the transaction
// no other one opens it.
func (tx *Tx) Alone() error { return tx.db.dialect.alone(tx.ctx) }

// Raw gives do the connection as the driver has it.
func (tx *Tx) Raw(do func(conn any) error) error { return tx.db.conn.Raw(do) }

// Rules tells that the transaction changes by what others decide, such as an apply or a pause: all
// processes forget what they remember of these things, and nobody sees the change before it is on the disk.
func (tx *Tx) Rules() { tx.db.rules = true }

// NextID makes an id that is larger than all before it.
func (tx *Tx) NextID() int64 { return tx.db.nextID() }

// Meta reads a value of the table meta; empty: there is none.
func (tx *Tx) Meta(name string) (string, error) { return tx.db.meta(tx.ctx, name) }

// SetMeta writes a value of the table meta.
func (tx *Tx) SetMeta(name, value string) error { return tx.db.setMeta(tx.ctx, name, value) }

// job is one change. The writer runs it in a transaction with others.
type job struct {
	ctx  context.Context
	fn   func(tx *Tx) error
	safe bool // an error of it is an error of the database
	// grows tells that it brings something new, which is refused on a full disk:
	// what ends, removes or protects something may use the reserve.
	grows    bool
	identity []byte // of the delivery that it records; nil: none
	done     chan error
	queued   time.Time // of a step: when it began to wait
	alone    bool      // a step without a transaction
}

// Do commits the changes of fn, and returns when they are on the disk. fn runs on the
// writer's goroutine and connection, and nothing else runs at the same time. If fn
// fails, its changes are dropped; other jobs of the transaction are not affected.
func (s *DB) Do(ctx context.Context, fn func(tx *Tx) error) error {
	return s.submit(s.jobs, &job{ctx: ctx, fn: fn, done: make(chan error, 1)})
}

// Grow is Do for changes that add something.
func (s *DB) Grow(ctx context.Context, fn func(tx *Tx) error) error {
	return s.submit(s.jobs, &job{ctx: ctx, fn: fn, grows: true, done: make(chan error, 1)})
}

// Record is Grow for a change that needs no savepoint of its own: if fn fails, its transaction does,
// and the writer makes the other changes of it again. The identity is what Memory.Expect is told of;
// nil: there is none.
func (s *DB) Record(ctx context.Context, identity []byte, fn func(tx *Tx) error) error {
	return s.submit(s.jobs, &job{ctx: ctx, fn: fn, safe: true, grows: true, identity: identity, done: make(chan error, 1)})
}

// submit queues a job and waits for it. If the caller's context ends before the job's
// turn, the job does not run.
func (s *DB) submit(queue chan<- *job, j *job) error {
	select {
	case <-s.closing:
		return ErrClosed
	default:
	}
	if j.grows && s.spent.Load() {
		return ErrFull
	}
	select {
	case queue <- j:
	case <-j.ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(j.ctx))
	case <-s.done:
		return ErrClosed
	}
	select {
	case err := <-j.done:
		return err
	case <-s.done:
		select {
		case err := <-j.done:
			return err
		default:
			return ErrClosed
		}
	}
}

// write is the writer goroutine: Open starts it, Close ends it.
func (s *DB) write() {
	defer close(s.done)
	ctx := context.Background() // the context of one caller must not roll back the others
	batch := make([]*job, 0, maxBatch)
	s.look, s.looks = time.NewTimer(lookAfter), true
	defer s.look.Stop()
	defer s.alarm.Stop()
	changed := s.Changed()
	for {
		select {
		case j := <-s.jobs:
			s.turn(ctx, s.gather(append(batch[:0], j)))
		case j := <-s.steps:
			for time.Since(j.queued) < s.patience {
				if batch = s.gather(batch[:0]); len(batch) == 0 {
					break
				}
				s.turn(ctx, batch)
			}
			s.turn(ctx, append(batch[:0], j))
		case <-s.rest:
			if _, err := s.logLength(ctx, "PASSIVE"); err != nil {
				if isUnsynced(err) {
					s.unsynced.Store(true)
				}
				s.Logger.Warn("the end of the write-ahead log could not be copied into the database", "error", err)
			}
		case <-changed:
			s.memory.MayDiffer()
		case <-s.alarm.C:
			waking, cancel := s.dialect.bounded(ctx)
			s.memory.Wake(waking, func(fn func(*Tx) error) error {
				j := &job{ctx: ctx, fn: fn, done: make(chan error, 1)}
				s.turn(ctx, []*job{j})
				return <-j.done
			})
			cancel()
		case <-s.look.C:
			s.dialect.idle(ctx)
			if s.looks = s.reserve.path != "" && !s.reserve.held; s.looks {
				s.look.Reset(lookAfter)
			}
		case <-s.closing:
			select {
			case j := <-s.jobs: // what waits is still committed
				s.turn(ctx, s.gather(append(batch[:0], j)))
			default:
				s.dialect.idle(ctx)
				return
			}
		}
	}
}

// turn commits a batch, and looks now and then how long the log is.
func (s *DB) turn(ctx context.Context, batch []*job) {
	if batch[0].alone {
		batch[0].done <- unavailable(batch[0].fn(&Tx{batch[0].ctx, s}))
		clear(batch)
		return
	}
	s.commit(ctx, batch)
	clear(batch)
	if !s.looks {
		s.looks = true
		s.look.Reset(lookAfter)
	}
	s.dialect.committed(ctx)
}

func (s *DB) gather(batch []*job) []*job {
	for quiet := 0; len(batch) < maxBatch && quiet < yields; {
		select {
		case j := <-s.jobs:
			batch = append(batch, j)
		default:
			quiet++
			runtime.Gosched()
		}
	}
	return batch
}

// commit runs the jobs in one transaction and returns the outcome to each. A job whose
// failure must not affect the others has a savepoint. If the database itself fails, all
// jobs fail at once, because their callers are waiting.
func (s *DB) commit(ctx context.Context, batch []*job) {
	results := make([]error, len(batch))
	culprit := false // a job failed, not the transaction
	commit := func(ctx context.Context) error {
		for i, j := range batch {
			var err error
			if results[i], err = s.perform(ctx, j); err != nil {
				culprit = ctx.Err() == nil
				return err
			}
		}
		err := s.dialect.flush(ctx)
		culprit = err != nil && !errors.Is(err, errConnection)
		return err
	}
	err := s.transaction(ctx, batch, commit)
	if err != nil && stoodStill(errors.Join(append(results, err)...)) {
		s.Logger.Warn("the database ended a transaction of this server, which stood still for too long; it is made again")
		clear(results)
		culprit = false
		err = s.transaction(ctx, batch, commit)
	}
	if err != nil && culprit && len(batch) > 1 {
		// Perhaps only that job is at fault: try the others again.
		for _, j := range batch {
			s.commit(ctx, []*job{j})
		}
		return
	}
	if err == nil {
		s.commits.Add(1)
		s.seen = s.clock.seen()
		if err := s.remember(ctx); err != nil {
			s.Logger.Error("a commit went well, but what it changed is not shown yet", "error", err)
		}
	}
	if isUnsynced(err) {
		s.unsynced.Store(true)
	}
	var again []*job // what may use the reserve
	for i, j := range batch {
		result := results[i]
		refused := culprit && !errors.Is(err, ErrUnavailable) && !isOfDatabase(err) // by the job itself, which may
		if err != nil && result == nil {
			result = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if !j.grows && isFull(result) && (len(again) > 0 || s.spend(result)) {
			again = append(again, j)
			continue
		}
		s.answer(j, unavailable(result), refused)
	}
	if len(again) > 0 {
		s.commit(ctx, again)
	}
}

// answer tells who waits for a job what became of it, and Ping whether the database works.
func (s *DB) answer(j *job, result error, refused bool) {
	lost := errors.Is(result, ErrUnavailable) && !refused && j.ctx.Err() == nil
	if lost || j.grows && result == nil {
		s.lastWrite.Store(&outcome{s.Now(), result})
	}
	j.done <- result
}

// perform does a job within the transaction. The result is that of the job alone; err ends the
// transaction.
func (s *DB) perform(ctx context.Context, j *job) (result, err error) {
	if j.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(j.ctx)), nil
	}
	if led, ok := j.ctx.Value(leading{}).(int64); ok && led != s.leaders {
		return ErrNotLeader, nil
	}
	if j.safe {
		return nil, j.fn(&Tx{ctx, s})
	}
	return s.inSavepoint(ctx, j.fn)
}

// unavailable marks errors of the database itself, so that a caller knows that it can
// try again later.
func unavailable(err error) error {
	if err == nil { // mostly: to look into it costs allocations
		return nil
	}
	if isFull(err) && !errors.Is(err, ErrFull) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	if isOfDatabase(err) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

func (s *DB) inSavepoint(ctx context.Context, fn func(*Tx) error) (result, fatal error) {
	if err := s.exec(ctx, "SAVEPOINT job"); err != nil {
		return nil, err
	}
	queued := s.Queued.Load()
	if result = fn(&Tx{ctx, s}); result == nil {
		result = s.dialect.flush(ctx)
	}
	if result != nil {
		s.memory.Forget()
		s.Queued.Store(queued)
		return result, errors.Join(s.exec(ctx, "ROLLBACK TO job"), s.exec(ctx, "RELEASE job"), s.dialect.flush(ctx))
	}
	return nil, s.exec(ctx, "RELEASE job")
}

// transaction runs fn, which does the jobs of the batch, in a transaction of the writer's connection.
func (s *DB) transaction(ctx context.Context, batch []*job, fn func(ctx context.Context) error) error {
	ctx, cancel := s.dialect.bounded(ctx)
	defer cancel()
	s.rules = false
	if err := s.dialect.begin(ctx, batch); err != nil {
		return err
	}
	queued := s.Queued.Load()
	err := fn(ctx)
	if err == nil {
		err = s.dialect.commit(ctx)
	}
	if err != nil {
		s.memory.Forget()
		s.Queued.Store(queued)
		s.dialect.rollback(ctx)
	}
	return err
}

// stmt prepares a query once.
func (s *DB) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := s.statements[query]; st != nil {
		return st, nil
	}
	if err := CheckPlaceholders(query); err != nil {
		return nil, err
	}
	st, err := s.conn.PrepareContext(ctx, query)
	if err == nil {
		s.statements[query] = st
	}
	return st, err
}

// exec runs a statement on the writer's connection.
func (s *DB) exec(ctx context.Context, query string, args ...any) error {
	if err := s.values(query, args); err != nil {
		return err
	}
	err := s.dialect.later(ctx, query, s.args)
	clear(s.args)
	return err
}

// execCount is exec with the number of rows that it changed.
func (s *DB) execCount(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := s.values(query, args); err != nil {
		return 0, err
	}
	n, err = s.dialect.exec(ctx, query, s.args)
	clear(s.args)
	return n, err
}

// values converts the values of a statement into s.args.
func (s *DB) values(query string, args []any) error {
	s.args = s.args[:0]
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return fmt.Errorf("$%d of %s: %w", i+1, query, err)
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return nil
}

// plain are values that the database takes.
func (s *DB) Plain(values []any) []any {
	if s.Shared() {
		return plainValues(values)
	}
	return values
}

// row queries one row on the writer's connection; absent is ErrNotFound.
func (s *DB) row(ctx context.Context, query string, args []any, into ...any) error {
	if err := s.dialect.flush(ctx); err != nil {
		return err
	}
	st, err := s.stmt(ctx, query)
	if err != nil {
		return err
	}
	err = st.QueryRowContext(ctx, s.Plain(args)...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// each walks the rows of a query on the writer's connection for as long as visit
// wants more.
func (s *DB) each(ctx context.Context, query string, args []any, visit func(rows *sql.Rows) (more bool, err error)) error {
	if err := s.dialect.flush(ctx); err != nil {
		return err
	}
	st, err := s.stmt(ctx, query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, s.Plain(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if more, err := visit(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// List reads rows from the read pool.
func List[T any](ctx context.Context, s *DB, scan func(rows *sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	if err := CheckPlaceholders(query); err != nil {
		return nil, err
	}
	rows, err := s.Read.QueryContext(ctx, query, s.Plain(args)...)
	if err != nil {
		return nil, Damaged(err)
	}
	return ScanAll(rows, scan)
}

// ScanAll reads the rows of a query.
func ScanAll[T any](rows *sql.Rows, scan func(rows *sql.Rows) (T, error)) ([]T, error) {
	defer func() { _ = rows.Close() }()
	all := []T{}
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, Damaged(rows.Err())
}

// first is the one row that a query finds, or ErrNotFound.
func First[T any](all []T, err error) (T, error) {
	var none T
	switch {
	case err != nil:
		return none, err
	case len(all) == 0:
		return none, ErrNotFound
	}
	return all[0], nil
}

// CheckPlaceholders refuses a statement whose $1, $2 … do not first appear in ascending
// order: go-sqlite3 numbers them by appearance and would mix up the values.
func CheckPlaceholders(query string) error {
	last := 0
	for i := 0; i < len(query); i++ {
		if query[i] != '$' {
			continue
		}
		n := 0
		for i++; i < len(query) && query[i] >= '0' && query[i] <= '9'; i++ {
			n = n*10 + int(query[i]-'0')
		}
		if n > last+1 {
			return fmt.Errorf("$%d comes before $%d in: %s", n, last+1, query)
		}
		last = max(last, n)
	}
	return nil
}

// ScanText reads a row of one text.
func ScanText(rows *sql.Rows) (string, error) {
	var text string
	err := rows.Scan(&text)
	return text, err
}
