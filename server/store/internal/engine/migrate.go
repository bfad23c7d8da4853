package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Migrations are numbered. That of SQLite and that of PostgreSQL with a number make the same
// tables and columns (TestSchemas).
//
// Servers of two versions use one store while they are replaced one after the other (SPEC
// 17.6). So a program opens a store with a newer schema, if the migrations in between only add
// what it need not know: tables, indexes, and columns with a default. The first line of a
// migration that does anything else says so:
//
//	-- breaks: WHY
//
// Then the store demands a program that knows it, and the migration is refused while programs
// of before are connected.
const breaksMark = "-- breaks:"

// firstLasting is the newest schema whose programs open no newer one: they do not know what
// metaNeeds means.
const firstLasting = 25

// MetaNeeds is the schema that a program must know at least.
const MetaNeeds = "oldest program"

// ErrOthers refuses a migration that breaks programs which use the store now.
var ErrOthers = errors.New("other programs use the store")

// migration is a step from one schema to the next.
type Migration struct {
	number int
	Name   string
	Text   string
	breaks bool
}

// MigrationsOf are the migrations in a folder, in order.
func MigrationsOf(files fs.FS, folder string) (all []Migration, err error) {
	names, err := fs.Glob(files, folder+"/*.sql")
	slices.Sort(names)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		m := Migration{Name: path.Base(name), Text: string(text), breaks: strings.HasPrefix(string(text), breaksMark)}
		if _, err := fmt.Sscanf(m.Name, "%04d_", &m.number); err != nil {
			return nil, fmt.Errorf("migration %s has no number", name)
		}
		if n := len(all); n > 0 && m.number != all[n-1].number+1 {
			return nil, fmt.Errorf("migration %s is not number %d", name, all[n-1].number+1)
		}
		all = append(all, m)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("there are no migrations in %s", folder)
	}
	return all, err
}

func Newest(all []Migration) int { return all[len(all)-1].number }

// needs is the schema that a program must know for a store that all migrations made.
func needs(all []Migration) int {
	oldest := min(firstLasting, Newest(all))
	for _, m := range all {
		if m.breaks && m.number > oldest {
			oldest = m.number
		}
	}
	return oldest
}

// MayOpen refuses a schema that this program cannot use. needed is what the store says of the
// programs that can.
func MayOpen(have int, needed string, known int) error {
	if have <= known {
		return nil
	}
	if n, err := strconv.Atoi(needed); err != nil || n > known {
		return fmt.Errorf("%w: it has schema %d, this one knows up to %d", ErrNewerSchema, have, known)
	}
	return nil
}

// migrate applies the migrations that are missing, each in its own transaction.
func (s *DB) migrate(ctx context.Context, all []Migration) error {
	have, err := s.schemaVersion(ctx)
	if err != nil {
		return err
	}
	needed, err := s.meta(ctx, MetaNeeds)
	if err != nil {
		return err
	}
	s.known = Newest(all)
	if err := MayOpen(have, needed, s.known); err != nil {
		return err
	}
	for _, m := range all {
		if m.number <= have {
			continue
		}
		err := s.transaction(ctx, nil, func(ctx context.Context) error {
			if _, err := s.conn.ExecContext(ctx, m.Text); err != nil {
				return err
			}
			if err := s.setMeta(ctx, "schema", strconv.Itoa(m.number)); err != nil {
				return err
			}
			return s.setMeta(ctx, MetaNeeds, strconv.Itoa(needs(all[:m.number-all[0].number+1])))
		})
		if err != nil {
			return fmt.Errorf("migration %s: %w", m.Name, err)
		}
	}
	return nil
}

// migrate applies the migrations that are missing, in one transaction: PostgreSQL can roll
// back all of them.
func (p *postgres) migrate(ctx context.Context, all []Migration, fresh bool) (err error) {
	have, needed := 0, ""
	if !fresh {
		if have, err = p.schemaVersion(ctx); err != nil {
			return err
		}
		if needed, err = p.meta(ctx, MetaNeeds); err != nil {
			return err
		}
	}
	p.known = Newest(all)
	if have >= p.known {
		return MayOpen(have, needed, p.known)
	}
	breaking := slices.IndexFunc(all, func(m Migration) bool { return m.number > have && m.breaks && !fresh })
	refused := func(m Migration, err error) error {
		return fmt.Errorf("migration %s: %w\nStop all servers and workers of this store, start one of this version, and then the others", m.Name, err)
	}
	if breaking >= 0 {
		err := OthersGone(ctx, func(query string, into ...any) error { return p.conn.QueryRowContext(ctx, query).Scan(into...) })
		if err != nil {
			return refused(all[breaking], err)
		}
	}
	tx, err := p.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if fresh {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE meta (name TEXT COLLATE "C" NOT NULL PRIMARY KEY, value TEXT COLLATE "C" NOT NULL)`); err != nil {
			return err
		}
	} else if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(LockWriter)); err != nil { // no writer is in the middle
		return err
	}
	for _, m := range all {
		if m.number <= have {
			continue
		}
		if m.breaks && !fresh { // once more: one may have come meanwhile
			if err := othersOf(func(query string, into ...any) error { return tx.QueryRowContext(ctx, query).Scan(into...) }); err != nil {
				return refused(m, err)
			}
		}
		if _, err := tx.ExecContext(ctx, m.Text, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %s: %w", m.Name, err)
		}
	}
	for name, value := range map[string]int{"schema": p.known, MetaNeeds: needs(all)} {
		_, err = tx.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, strconv.Itoa(value))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// LockTime is how long to wait for the connections of a program that has just ended.
const LockTime = 5 * time.Second

// OthersGone returns ErrOthers if other programs are connected, and stay. It does not run in a
// transaction, which would see the same connections each time.
func OthersGone(ctx context.Context, scan func(query string, into ...any) error) error {
	for end := time.Now().Add(LockTime); ; {
		if err := othersOf(scan); !errors.Is(err, ErrOthers) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnectEvery):
		}
	}
}

// othersQuery counts the connections that other programs of ours have to the same database, and
// says from where.
const othersQuery = `SELECT count(*), coalesce(string_agg(DISTINCT coalesce(host(client_addr), 'this machine'), ', '), '') FROM pg_stat_activity
	WHERE datname = current_database() AND application_name = 'triphammer' AND pid <> pg_backend_pid()`

func othersOf(scan func(query string, into ...any) error) error {
	var n int
	var from string
	if err := scan(othersQuery, &n, &from); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%w: %d connections from %s", ErrOthers, n, from)
	}
	return nil
}

// checkLasting refuses a database that was migrated beyond this program while it was not
// connected.
func (p *postgres) checkLasting(ctx context.Context) error {
	have, err := p.schemaVersion(ctx)
	if err != nil || have <= p.known {
		return err
	}
	needed, err := p.meta(ctx, MetaNeeds)
	if err == nil {
		err = MayOpen(have, needed, p.known)
	}
	return err
}
