package copy

import (
	"context"
	"os"

	"triphammer/server/store"

	"triphammer/server/store/internal/engine"
)

// Backup is DB.Backup of a store.
func Backup(ctx context.Context, s *store.Store) (*os.File, error) { return s.DB.Backup(ctx, copyInto) }

// copyInto copies a database of PostgreSQL, as it is at one moment, into a new file of SQLite. Contents
// of artifacts stay rows: a store of one server can read them there, too.
func copyInto(ctx context.Context, address, path string) (err error) {
	from, err := openPostgresSource(ctx, address, false)
	if err != nil {
		return err
	}
	defer from.close()
	if err := engine.FillFile(ctx, path, store.Migrations); err != nil {
		return err
	}
	to, err := openFileSide(ctx, path, map[string]string{"_journal_mode": "OFF", "_synchronous": "OFF"})
	if err != nil {
		return err
	}
	defer to.close()
	c := &copying{from: from, to: to, fromPlace: Place{URL: address}, toPlace: Place{Path: path}, told: func(string, int64, int64) {}}
	if err := sameSchema(ctx, from); err != nil {
		return err
	}
	if err := c.plan(ctx); err != nil {
		return err
	}
	return c.run(ctx)
}
