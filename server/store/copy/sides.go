package copy

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"

	"triphammer/server/store"

	"triphammer/server/store/internal/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fileSide is a file of SQLite.
type fileSide struct {
	db   *sql.DB
	conn *sql.Conn
}

func openFileSide(ctx context.Context, path string, settings map[string]string) (*fileSide, error) {
	f := &fileSide{db: engine.NewDatabase(path, settings)}
	f.db.SetMaxOpenConns(1)
	var err error
	if f.conn, err = f.db.Conn(ctx); err != nil {
		_ = f.db.Close()
		return nil, err
	}
	return f, nil
}

func openFileSource(ctx context.Context, path string) (side, error) {
	if err := engine.Judge(ctx, path); err != nil {
		return nil, err
	}
	f, err := openFileSide(ctx, path, map[string]string{"_query_only": "1"})
	if err == nil {
		err = engine.QuickCheck(ctx, f.conn, path)
		if err == nil {
			return f, nil
		}
		f.close()
	}
	return nil, engine.Damaged(err)
}

func openFileTarget(ctx context.Context, path string, from Place) (side, error) {
	if err := engine.Judge(ctx, path); !errors.Is(err, store.ErrMissing) {
		return nil, cmp.Or(err, ErrNotEmpty)
	}
	err := engine.MakeFile(ctx, path, store.Migrations, from.String())
	if err != nil {
		return nil, err
	}
	f, err := openFileSide(ctx, path, engine.Durable(nil))
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *fileSide) close() {
	_ = f.conn.Close()
	_ = f.db.Close()
}

func (f *fileSide) tables(ctx context.Context) ([]*table, error) {
	rows, err := f.conn.QueryContext(ctx, `SELECT t.name, c.name, c.type, c."notnull", c.pk FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY t.name, c.name`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	return readTables(rows, map[string]string{"INTEGER": "number", "BIGINT": "number", "TEXT": "text", "BLOB": "bytes"})
}

// readTables reads what a database says of its columns: table, column, type, whether it is
// never null, place in the primary key. classes has the types that are known.
func readTables(rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}, classes map[string]string,
) (all []*table, err error) {
	for rows.Next() {
		var name, kind string
		var c column
		var full bool
		if err := rows.Scan(&name, &c.name, &kind, &full, &c.key); err != nil {
			return nil, err
		}
		c.class, c.null = classes[kind], !full
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, &table{name: name})
		}
		t := all[len(all)-1]
		t.columns = append(t.columns, c)
	}
	err = rows.Err()
	for _, t := range all {
		err = errors.Join(err, t.finish())
		for _, c := range t.columns {
			if c.class == "" {
				err = errors.Join(err, fmt.Errorf("the column %s.%s has a type that is not known", t.name, c.name))
			}
		}
	}
	return all, err
}

func (f *fileSide) exec(ctx context.Context, query string, args ...any) error {
	_, err := f.conn.ExecContext(ctx, query, args...)
	return err
}

func (f *fileSide) insert(ctx context.Context, t *table, rows [][]any) error {
	tx, err := f.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	places := strings.TrimSuffix(strings.Repeat("?,", len(t.columns)), ",")
	stmt, err := tx.PrepareContext(ctx, "INSERT INTO "+t.name+" ("+strings.Join(t.names(), ", ")+") VALUES ("+places+")")
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	for _, row := range rows {
		if _, err := stmt.ExecContext(ctx, row...); err != nil {
			return fmt.Errorf("%s: %w", t.show(row), err)
		}
	}
	return tx.Commit()
}

func (f *fileSide) query(ctx context.Context, query string, args ...any) (cursor, error) {
	rows, err := f.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, engine.Damaged(err)
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		_ = rows.Close()
		return nil, err
	}
	c := &fileCursor{rows: rows}
	for _, t := range types {
		c.kinds = append(c.kinds, t.DatabaseTypeName())
	}
	return c, nil
}

type fileCursor struct {
	rows  *sql.Rows
	kinds []string
}

func (c *fileCursor) close() { _ = c.rows.Close() }

// next gives values the type of their column: SQLite has text as bytes, and the other way
// round, as it was written.
func (c *fileCursor) next() ([]any, error) {
	if !c.rows.Next() {
		return nil, engine.Damaged(c.rows.Err())
	}
	row, into := make([]any, len(c.kinds)), make([]any, len(c.kinds))
	for i := range row {
		into[i] = &row[i]
	}
	if err := c.rows.Scan(into...); err != nil {
		return nil, engine.Damaged(err)
	}
	for i, v := range row {
		switch v := v.(type) {
		case []byte:
			if c.kinds[i] == "TEXT" {
				row[i] = string(v)
			}
		case string:
			if c.kinds[i] == "BLOB" {
				row[i] = []byte(v)
			}
		}
	}
	return row, nil
}

// postgresSide is a database of PostgreSQL.
type postgresSide struct{ conn *pgx.Conn }

// openPostgresSide connects for a copy: it may wait for the other side.
func openPostgresSide(ctx context.Context, address string) (*postgresSide, error) {
	config, err := engine.PostgresConfig(address)
	if err != nil {
		return nil, err
	}
	config.DialFunc = (&net.Dialer{Timeout: engine.DialTime}).DialContext
	for name, value := range map[string]string{
		"application_name": "triphammer-copy", "idle_in_transaction_session_timeout": "0", "tcp_user_timeout": "0",
		"statement_timeout": "0",
	} {
		config.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &postgresSide{conn}, nil
}

// lock keeps all writers of the database away until the connection ends.
func (p *postgresSide) lock(ctx context.Context) error {
	err := engine.OthersGone(ctx, func(query string, into ...any) error { return p.conn.QueryRow(ctx, query).Scan(into...) })
	if errors.Is(err, store.ErrOthers) {
		return fmt.Errorf("%w. Stop all servers and workers first", err)
	}
	if err != nil {
		return err
	}
	if err := p.exec(ctx, "SET lock_timeout = "+engine.Milliseconds(engine.LockTime)); err != nil {
		return err
	}
	err = p.exec(ctx, "SELECT pg_advisory_lock($1)", int64(engine.LockWriter))
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "55P03" { // lock_not_available
		return fmt.Errorf("%w: a server that writes, or another copy", store.ErrOthers)
	}
	if err != nil {
		return err
	}
	return p.exec(ctx, "SET lock_timeout = 0")
}

// openPostgresSource opens a database as it is at one moment. With alone, nothing else uses it.
func openPostgresSource(ctx context.Context, address string, alone bool) (side, error) {
	p, err := openPostgresSide(ctx, address)
	if err != nil {
		return nil, err
	}
	var meta *string
	err = p.conn.QueryRow(ctx, "SELECT to_regclass('public.meta')::text").Scan(&meta)
	if err == nil && meta == nil {
		err = store.ErrMissing
	}
	if err == nil && alone {
		err = p.lock(ctx)
	}
	if err == nil {
		err = p.exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func openPostgresTarget(ctx context.Context, address string, from Place) (side, error) {
	if err := engine.MakePostgres(ctx, address, store.Migrations); err != nil {
		return nil, err
	}
	p, err := openPostgresSide(ctx, address)
	if err != nil {
		return nil, err
	}
	if err = p.lock(ctx); err == nil {
		err = claimTarget(ctx, p, from)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *postgresSide) close() {
	ctx, cancel := context.WithTimeout(context.Background(), engine.DialTime)
	defer cancel()
	_ = p.conn.Close(ctx)
}

func (p *postgresSide) tables(ctx context.Context) ([]*table, error) {
	rows, err := p.conn.Query(ctx, `SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
		coalesce((SELECT k.place FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) WHERE k.attnum = a.attnum), 0)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary WHERE n.nspname = 'public' AND c.relkind = 'r'
		ORDER BY c.relname::text COLLATE "C", a.attname::text COLLATE "C"`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return readTables(rows, map[string]string{"bigint": "number", "text": "text", "bytea": "bytes"})
}

func (p *postgresSide) exec(ctx context.Context, query string, args ...any) error {
	_, err := p.conn.Exec(ctx, query, args...)
	return err
}

func (p *postgresSide) insert(ctx context.Context, t *table, rows [][]any) error {
	_, err := p.conn.CopyFrom(ctx, pgx.Identifier{"public", t.name}, t.names(), pgx.CopyFromRows(rows))
	return err
}

func (p *postgresSide) query(ctx context.Context, query string, args ...any) (cursor, error) {
	rows, err := p.conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &postgresCursor{rows}, nil
}

type postgresCursor struct{ rows pgx.Rows }

func (c *postgresCursor) close() { c.rows.Close() }

func (c *postgresCursor) next() ([]any, error) {
	if !c.rows.Next() {
		return nil, c.rows.Err()
	}
	return c.rows.Values()
}
