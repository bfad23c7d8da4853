package engine

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"
)

// postgres is the engine of a database that several processes share.
//
// One writer at a time writes, of all processes: each transaction of a writer holds an
// advisory lock. So all that is true of the one writer of SQLite stays true. Ids are in the
// order of the commits, a reader that has seen an id has seen all before it, what is read in
// a transaction does not change until its end, and no transaction has to be repeated. The
// price is small, because a writer commits up to maxBatch changes at a time, sends most
// of its statements without waiting for their answers, and gives the lock up before the disk
// confirms (commit).
type postgres struct {
	*DB
	config *pgx.ConnConfig
	name   string // of the database, without what is secret
	node   int64  // what this process is called in last_writer
	ruled  int64  // the rules that this process remembers, as last_writer has them
	sawID  int64  // the newest id of the database that is known to be on its disk

	queue  pgx.Batch // statements of later
	failed time.Time // when the last attempt to connect failed
	// startQueued is how many runs begin found in the queue.
	startQueued int64
	changes     *changes
}

// The advisory locks of a database. The numbers mean nothing.
const (
	LockWriter    = 0x54727048_0001
	lockLeader    = 0x54727048_0002
	lockMigration = 0x54727048_0003
	lockMember    = 0x54727048_0004 // shared by all processes that have the store open
)

const (
	// dialTime is how long a connection may take.
	DialTime = 5 * time.Second
	// commitTime is how long a transaction of the writer may take. It is longer than idleTime:
	// another process that holds the lock and is cut off loses it first.
	commitTime = 20 * time.Second
	// idleTime is how long a transaction may wait for the next statement. Then the database
	// ends it, because the process that began it is gone, or cut off.
	idleTime = 1500 * time.Millisecond
	// silence is how long a peer may leave data unacknowledged before the connection is lost.
	silence = 10 * time.Second
	// reconnectEvery is the time between two attempts of the writer to connect.
	reconnectEvery = 250 * time.Millisecond
)

// minPostgres is the oldest major version that is tested.
const minPostgres = 15

func newPostgres(s *DB) *postgres { return &postgres{DB: s} }

// CheckURL refuses what is no address of a PostgreSQL database. Empty is fine. The error has
// nothing secret.
func CheckURL(address string) error {
	if address == "" {
		return nil
	}
	_, err := PostgresConfig(address)
	return err
}

// NameOf is the address of a database without user, password and options.
func NameOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "postgres"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// isOfPostgres is isOfDatabase for PostgreSQL.
func isOfPostgres(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code[:2] {
		case "22", "23", "42": // data, constraint, statement
			return false
		}
		return true
	}
	var netError net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.As(err, &netError) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, errConnection)
}

// stoodStill tells whether the database ended a transaction because its statements came too late (idleTime):
// nothing of it is committed.
func stoodStill(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "25P03" // idle_in_transaction_session_timeout
}

// Away tells whether a store could not be opened or read because its database cannot be reached
// now: nobody answers, it starts or stops, the connection was lost, or all its connections are
// taken. To try again can help then. That is false for what only a person can mend, such as a
// wrong password.
func Away(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return strings.HasPrefix(refused.Code, "57P") || strings.HasPrefix(refused.Code, "53") // it starts or stops; its means are used up
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}

// errConnection is an error of a connection that is lost.
var errConnection = fmt.Errorf("%w: the connection to the database is lost", ErrUnavailable)

// PostgresConfig reads the address of a database.
func PostgresConfig(address string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil && strings.Contains(err.Error(), "failed to configure TLS") {
		return nil, fmt.Errorf("the certificates for the store (sslrootcert, sslcert and sslkey, or PGSSLROOTCERT, PGSSLCERT and PGSSLKEY): %w", errors.Unwrap(err))
	}
	if scheme, _, _ := strings.Cut(address, ":"); err != nil || scheme != "postgres" && scheme != "postgresql" {
		return nil, errors.New("the store is no address of a PostgreSQL database: postgres://USER@HOST/DATABASE is one") // err may have the password
	}
	config.ConnectTimeout = DialTime
	dialer := &net.Dialer{
		Timeout:         DialTime,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 4},
	}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			if raw, err := tcp.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
				})
			}
		}
		return conn, err
	}
	if config.ValidateConnect == nil { // not if the address has target_session_attrs
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.RuntimeParams["application_name"] = "triphammer" // by which others know it (othersQuery)
	config.RuntimeParams["search_path"] = "public"
	for name, value := range map[string]string{
		"idle_in_transaction_session_timeout": Milliseconds(idleTime),
		"tcp_user_timeout":                    Milliseconds(silence),
		"tcp_keepalives_idle":                 "3",
		"tcp_keepalives_interval":             "1",
		"tcp_keepalives_count":                "4",
		"timezone":                            "UTC",
		// All statements have an index. A plan that was made while a table was small reads all of it,
		// and is kept until the table is analyzed: meanwhile it can have grown to any size.
		"enable_seqscan": "off",
		"jit":            "off", // what cannot use an index then looks worth compiling, which takes longer
	} {
		config.RuntimeParams[name] = cmp.Or(config.RuntimeParams[name], value)
	}
	return config, nil
}

func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (p *postgres) open(ctx context.Context, cfg Options) (err error) {
	if p.config, err = PostgresConfig(cfg.URL); err != nil {
		return err
	}
	p.name = NameOf(cfg.URL)
	p.writer = openPool(p.config)
	p.writer.SetMaxOpenConns(1)
	if p.conn, err = p.writer.Conn(ctx); err != nil {
		return err
	}
	if err := p.suitable(ctx); err != nil {
		return err
	}
	if err := p.join(ctx); err != nil {
		return err
	}
	if err := p.make(ctx, cfg); err != nil {
		return err
	}
	if err := p.admit(ctx); err != nil {
		return err
	}
	if p.lastID, err = p.memory.Opened(&Tx{ctx, p.DB}); err != nil {
		return err
	}
	if err := p.conn.QueryRowContext(ctx, "SELECT nextval('nodes') % $1", int64(maxNodes)).Scan(&p.node); err != nil {
		return err
	}
	if err := p.startClock(ctx); err != nil {
		return err
	}
	read := p.config.Copy()
	read.RuntimeParams["default_transaction_read_only"] = "on"
	read.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	p.Read = openPool(read)
	p.Read.SetMaxOpenConns(readers)
	p.Read.SetMaxIdleConns(readers)
	p.changes = p.follow()
	return nil
}

// join tells others that this process has the store open, for as long as it is connected.
func (p *postgres) join(ctx context.Context) error {
	_, err := p.conn.ExecContext(ctx, "SELECT pg_advisory_lock_shared($1)", int64(lockMember))
	return err
}

// alone returns ErrOthers if another process has the store open. Until the end of the transaction
// none opens it. It runs on the writer.
func (p *postgres) alone(ctx context.Context) error {
	var alone bool
	err := p.row(ctx, "SELECT pg_try_advisory_xact_lock($1)", []any{int64(lockMember)}, &alone)
	if err == nil && !alone {
		err = fmt.Errorf("%w: stop all servers and workers first", ErrOthers)
	}
	return err
}

// suitable refuses a database that cannot keep a store.
func (p *postgres) suitable(ctx context.Context) error {
	var version int
	var encoding, synchronous, fsync string
	err := p.conn.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		current_setting('synchronous_commit'), current_setting('fsync')`).Scan(&version, &encoding, &synchronous, &fsync)
	switch {
	case err != nil:
		return err
	case version/10000 < minPostgres:
		return fmt.Errorf("PostgreSQL %d is too old: %d or newer is needed", version/10000, minPostgres)
	case encoding != "UTF8":
		return fmt.Errorf("the database has the encoding %s where UTF8 is needed", encoding)
	case synchronous == "off" || fsync == "off":
		return fmt.Errorf("the database has synchronous_commit=%s and fsync=%s, and would lose acknowledged deliveries: both must be on", synchronous, fsync)
	}
	return nil
}

// make makes the tables, or migrates them. One process at a time does.
func (p *postgres) make(ctx context.Context, cfg Options) error {
	if _, err := p.conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(lockMigration)); err != nil {
		return err
	}
	defer func() {
		_, _ = p.conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(lockMigration))
	}()
	var meta sql.NullString
	if err := p.conn.QueryRowContext(ctx, "SELECT to_regclass('public.meta')::text").Scan(&meta); err != nil {
		return err
	}
	if !meta.Valid {
		if cfg.Existing {
			return ErrMissing
		}
		var tables int
		if err := p.conn.QueryRowContext(ctx, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil {
			return err
		}
		if tables > 0 {
			return fmt.Errorf("the database has tables of another program: %w", ErrForeign)
		}
	}
	all, err := MigrationsOf(cfg.Migrations, "migrations/postgres")
	if err != nil {
		return err
	}
	return p.migrate(ctx, all, !meta.Valid)
}

func (p *postgres) close() error {
	if p.changes != nil {
		p.changes.close()
	}
	return nil
}

// raw is the writer's connection as the driver has it.
func (p *postgres) raw(do func(conn *pgx.Conn) error) error {
	if p.conn == nil {
		return errConnection
	}
	var result error
	err := p.conn.Raw(func(conn any) error {
		result = do(conn.(*stdlib.Conn).Conn())
		return nil
	})
	return errors.Join(err, result)
}

// connected makes a new connection if the writer has lost its own.
func (p *postgres) connected(ctx context.Context) error {
	lost := true
	_ = p.raw(func(conn *pgx.Conn) error {
		lost = conn.IsClosed()
		return nil
	})
	if !lost {
		return nil
	}
	if time.Since(p.failed) < reconnectEvery {
		return errConnection
	}
	clear(p.statements) // they went with the connection
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
	conn, err := p.writer.Conn(ctx)
	if err != nil {
		p.failed = time.Now()
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p.conn = conn
	for _, check := range []func(context.Context) error{p.suitable, p.join, p.checkLasting, p.admit} { // all of it may have changed
		if err = check(ctx); err != nil {
			break
		}
	}
	if err != nil {
		p.conn = nil
		p.failed = time.Now()
		return errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), conn.Close())
	}
	// What was read of other processes before may not have been on the disk (commit).
	p.memory.Forget()
	p.memory.ForgetOthers()
	p.memory.ForgetRules()
	p.Logger.Info("the store is connected to its database again", "store", p.name)
	return nil
}

func (p *postgres) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, commitTime)
}

// maxNodes bounds the numbers of processes. The sequence last_writer has the number of the process that
// wrote last, and above it the rules: a number that is new after each change of them (Tx.Rules). A program of
// before writes the number of its process alone. Then it is not known what it changed.
const maxNodes = 1 << 20

// begin takes the lock, and asks at once all that each transaction has to know: other processes wait for
// as long as the answer is on its way.
func (p *postgres) begin(ctx context.Context, batch []*job) error {
	if err := p.connected(ctx); err != nil {
		return err
	}
	p.queue = pgx.Batch{}
	var identities [][]byte
	for _, j := range batch {
		if j.identity != nil {
			identities = append(identities, j.identity)
		}
	}
	query, found := p.memory.Expect(identities)
	var newest, last, queued int64
	err := p.raw(func(conn *pgx.Conn) error {
		var b pgx.Batch
		b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE") // what is read after the lock has what was committed before it
		b.Queue("SELECT pg_advisory_xact_lock($1)", int64(LockWriter))
		b.Queue("SELECT (SELECT last_value FROM newest_id), (SELECT last_value FROM last_writer), (SELECT last_value FROM queued_runs), (SELECT last_value FROM leaders)").
			QueryRow(func(row pgx.Row) error { return row.Scan(&newest, &last, &queued, &p.leaders) })
		if query != "" {
			b.Queue(query, identities).Query(func(rows pgx.Rows) error {
				var identity []byte
				var id int64
				_, err := pgx.ForEachRow(rows, []any{&identity, &id}, func() error {
					found(identity, id)
					return nil
				})
				return err
			})
		}
		return conn.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		p.rollback(ctx)
		return p.lost(err)
	}
	if newest < p.sawID {
		p.memory.WentBack(newest, p.sawID)
		p.sawID = newest
	}
	p.lastID = max(p.lastID, newest)
	p.Queued.Store(queued)
	p.startQueued = queued
	if last%maxNodes != p.node {
		p.memory.ForgetOthers()
	}
	if rules := last / maxNodes; rules == 0 || rules != p.ruled {
		p.memory.ForgetRules()
		p.ruled = rules
	}
	return nil
}

// commit commits in two steps. After the first one, other processes see what was written, and the next
// writer has the lock, but it may not be on the disk yet. The second one is a transaction that only
// waits until the log is on the disk up to its own place in it. The log has what was
// committed before in that order: so what is acknowledged is on the disk, with all that it builds on, and
// nobody waits for the disk while holding the lock. If the database crashes in between, it loses what
// nobody was told of, and each process its connection, and with it what it remembered. Rules take one step:
// processes remember those that they have read, and take no delivery if they are gone (Memory.WentBack).
func (p *postgres) commit(ctx context.Context) error {
	ruled := p.ruled
	if p.rules || ruled == 0 {
		ruled = max(ruled+1, p.lastID>>RandomBits)
	}
	if !p.rules {
		p.queue.Queue("SET LOCAL synchronous_commit TO off")
	}
	p.queue.Queue("SELECT setval('newest_id', $1), setval('last_writer', $2), nextval('commits')", p.lastID, ruled*maxNodes+p.node)
	if queued := p.Queued.Load(); queued != p.startQueued {
		p.queue.Queue("SELECT setval('queued_runs', $1)", queued)
	}
	p.queue.Queue("SELECT pg_notify('triphammer', $1)", strconv.FormatInt(p.node, 10))
	var done pgconn.CommandTag
	p.queue.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		done = tag
		return nil
	})
	if !p.rules {
		p.queue.Queue("SELECT pg_logical_emit_message(true, 'triphammer', '')")
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	if done.String() != "COMMIT" {
		return fmt.Errorf("%w: the database rolled a transaction back", ErrUnavailable)
	}
	p.sawID, p.ruled = p.lastID, ruled
	return nil
}

func (p *postgres) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DialTime)
	defer cancel()
	p.queue = pgx.Batch{}
	_ = p.raw(func(conn *pgx.Conn) error {
		if conn.IsClosed() {
			return nil
		}
		_, err := conn.Exec(ctx, "ROLLBACK")
		if err != nil {
			_ = conn.Close(ctx)
		}
		return err
	})
}

// lost marks the error of a connection that is gone.
func (p *postgres) lost(err error) error {
	gone := false
	_ = p.raw(func(conn *pgx.Conn) error {
		gone = conn.IsClosed()
		return nil
	})
	if gone && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w (%w)", errConnection, err)
	}
	return err
}

func (p *postgres) exec(ctx context.Context, query string, args []driver.NamedValue) (n int64, err error) {
	if err := CheckPlaceholders(query); err != nil {
		return 0, err
	}
	p.queue.Queue(query, valuesOf(args)...).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	err = p.flush(ctx)
	return n, err
}

func (p *postgres) later(_ context.Context, query string, args []driver.NamedValue) error {
	if err := CheckPlaceholders(query); err != nil {
		return err
	}
	p.queue.Queue(query, valuesOf(args)...)
	return nil
}

func (p *postgres) flush(ctx context.Context) error {
	if p.queue.Len() == 0 {
		return nil
	}
	batch := p.queue
	p.queue = pgx.Batch{}
	return p.lost(p.raw(func(conn *pgx.Conn) error { return conn.SendBatch(ctx, &batch).Close() }))
}

func valuesOf(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	return plainValues(values)
}

// plainValues replaces texts by plainText.
func plainValues(values []any) []any {
	for i, v := range values {
		if text, ok := v.(string); ok {
			if plain := plainText(text); plain != text {
				values = slices.Clone(values) // it is the caller's
				values[i] = plain
			}
		}
	}
	return values
}

// openPool opens connections that take a bool as a number, as SQLite does.
func openPool(config *pgx.ConnConfig) *sql.DB {
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "int8", OID: pgtype.Int8OID, Codec: numberCodec{}})
		return nil
	}))
}

// plainText is text without what PostgreSQL's cannot have: NUL, and what is not UTF-8.
func plainText(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// numberCodec takes a bool as 0 or 1.
type numberCodec struct{ pgtype.Int8Codec }

// PlanEncode implements pgtype.Codec.
func (c numberCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	plan := c.Int8Codec.PlanEncode(m, oid, format, int64(0))
	if _, ok := value.(bool); ok && plan != nil {
		return boolAsNumber{plan}
	}
	return c.Int8Codec.PlanEncode(m, oid, format, value)
}

type boolAsNumber struct{ number pgtype.EncodePlan }

// Encode implements pgtype.EncodePlan.
func (b boolAsNumber) Encode(value any, buf []byte) ([]byte, error) {
	n := int64(0)
	if value.(bool) {
		n = 1
	}
	return b.number.Encode(n, buf)
}

func (p *postgres) committed(context.Context) {}

// idle notes how late it is.
func (p *postgres) idle(ctx context.Context) {
	if p.seen.Sub(p.noted) < noteAfter {
		return
	}
	seen := p.seen
	_ = p.transaction(ctx, nil, func(ctx context.Context) error { return p.noteTime(ctx, seen) })
}

// integrity finds nothing: PostgreSQL has pg_amcheck and checksums of its own.
func (p *postgres) integrity(context.Context) ([]string, error) { return nil, nil }

// shrink does nothing: PostgreSQL uses free space again by itself.
func (p *postgres) shrink(context.Context) error { return nil }
