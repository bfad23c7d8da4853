package engine

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// pollEvery is how often a store asks whether another process has written, if the database
// does not say so.
const pollEvery = time.Second

// changes tells those who wait when another process has written.
type changes struct {
	store  *postgres
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	waiting []chan struct{}
}

// Shared tells whether several processes may use the store at the same time.
func (s *DB) Shared() bool {
	_, shared := s.dialect.(*postgres)
	return shared
}

// Changed returns a new channel, which gets a value after another process has written. It is
// never closed. Of a store that is not shared it is nil.
func (s *DB) Changed() <-chan struct{} {
	p, shared := s.dialect.(*postgres)
	if !shared {
		return nil
	}
	ch := make(chan struct{}, 1)
	p.changes.mu.Lock()
	defer p.changes.mu.Unlock()
	p.changes.waiting = append(p.changes.waiting, ch)
	return ch
}

// follow begins to listen.
func (p *postgres) follow() *changes {
	ctx, cancel := context.WithCancel(context.Background())
	c := &changes{store: p, cancel: cancel, done: make(chan struct{})}
	go c.listen(ctx)
	return c
}

func (c *changes) close() {
	c.cancel()
	<-c.done
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.waiting {
		select {
		case ch <- struct{}{}:
		default: // it has not looked since the last time
		}
	}
}

// listen waits for notifications on a connection of its own, and makes a new one when it is
// lost. Each second it looks, too: a notification can be lost with its connection.
func (c *changes) listen(ctx context.Context) {
	defer close(c.done)
	self := strconv.FormatInt(c.store.node, 10)
	var conn *pgx.Conn
	drop := func() {
		if conn != nil {
			closing, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = conn.Close(closing)
			cancel()
			conn = nil
		}
	}
	defer drop()
	seen := int64(-1)
	for ctx.Err() == nil {
		if conn == nil {
			var err error
			if conn, err = pgx.ConnectConfig(ctx, c.store.config); err == nil {
				_, err = conn.Exec(ctx, "LISTEN triphammer")
			}
			if err != nil {
				drop()
				select {
				case <-ctx.Done():
				case <-time.After(pollEvery):
				}
				continue
			}
		}
		waiting, cancel := context.WithTimeout(ctx, pollEvery)
		n, err := conn.WaitForNotification(waiting)
		late := errors.Is(waiting.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil && n.Payload != self:
			c.tell()
		case err == nil:
		case late && !conn.IsClosed():
			asking, cancel := context.WithTimeout(ctx, DialTime)
			var commits int64
			if err := conn.QueryRow(asking, "SELECT last_value FROM commits").Scan(&commits); err != nil {
				drop()
			} else if commits != seen {
				seen = commits
				c.tell()
			}
			cancel()
		default:
			drop()
		}
	}
}

// leading is the key of the number of a leadership in a context.
type leading struct{}

// ErrNotLeader refuses a write of a process that was the leader, and is not any more.
var ErrNotLeader = errors.New("another server leads now")

const (
	// leadEvery is how often it is looked whether this process can lead, or still leads.
	leadEvery = time.Second
	// leadTime is how long such a look may take. Together they are shorter than silence, after
	// which the database gives the lock to another process.
	leadTime = 3 * time.Second
)

// Lead runs lead when this process is the leader: of all processes that share the store, one
// at a time. The context of lead ends when another may lead, and so does each write with that
// context: it returns ErrNotLeader. Lead tries again until ctx is done, and returns after
// lead has returned. In a store that is not shared, the only process leads.
func (s *DB) Lead(ctx context.Context, lead func(ctx context.Context)) {
	p, shared := s.dialect.(*postgres)
	if !shared {
		lead(ctx)
		return
	}
	db := stdlib.OpenDB(*p.config)
	defer func() { _ = db.Close() }()
	for ctx.Err() == nil {
		if conn, number := p.elect(ctx, db); conn != nil {
			p.Logger.Info("this server leads: it applies definitions, fires schedules and deletes what is old")
			p.term(context.WithValue(ctx, leading{}, number), conn, lead)
			if ctx.Err() == nil {
				p.Logger.Warn("this server does not lead any more")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(leadEvery):
		}
	}
}

// elect takes the lock of the leader, if it is free. The number is of this leadership.
func (p *postgres) elect(ctx context.Context, db *sql.DB) (conn *sql.Conn, number int64) {
	ctx, cancel := context.WithTimeout(ctx, leadTime)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, 0
	}
	var leads bool
	// A process that stands still while its machine answers for it loses the lock, too.
	_, err = conn.ExecContext(ctx, "SET idle_session_timeout = '"+Milliseconds(silence)+"'")
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(lockLeader)).Scan(&leads)
	}
	if err == nil && leads {
		err = conn.QueryRowContext(ctx, "SELECT nextval('leaders')").Scan(&number)
	}
	if err != nil || !leads {
		_ = conn.Close()
		return nil, 0
	}
	return conn, number
}

// term runs lead for as long as the connection has the lock.
func (p *postgres) term(ctx context.Context, conn *sql.Conn, lead func(ctx context.Context)) {
	leads, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lead(leads)
	}()
	look := time.NewTicker(leadEvery)
	defer look.Stop()
	for {
		select {
		case <-ended:
			p.resign(conn)
			return
		case <-look.C:
		}
		if ctx.Err() != nil {
			continue // lead is about to return, and nobody else leads until then
		}
		asking, cancel := context.WithTimeout(ctx, leadTime)
		_, err := conn.ExecContext(asking, "SELECT 1")
		cancel()
		if err != nil && ctx.Err() == nil {
			stop(ErrNotLeader)
			<-ended
			p.resign(conn)
			return
		}
	}
}

// resign closes the connection that had the lock, and with it gives up the lock.
func (p *postgres) resign(conn *sql.Conn) {
	_ = conn.Raw(func(conn any) error {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return conn.(*stdlib.Conn).Conn().Close(closing)
	})
	_ = conn.Close()
}
