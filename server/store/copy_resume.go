package store

import (
	"context"
	"fmt"
	"strconv"
)

// copyTable copies what the target does not have yet. What an interrupted copy left there must
// be how the table begins; else it is copied anew.
func (c *copying) copyTable(ctx context.Context, t *table) error {
	total, err := number(ctx, c.from, "SELECT count(*) FROM "+t.name)
	if err != nil {
		return err
	}
	have, err := number(ctx, c.to, "SELECT count(*) FROM "+t.name)
	if err != nil {
		return err
	}
	rows, err := c.from.query(ctx, t.ordered())
	if err != nil {
		return err
	}
	defer func() { rows.close() }()
	if have > 0 {
		same, err := c.begins(ctx, t, rows)
		if err != nil {
			return err
		}
		if !same {
			rows.close()
			have = 0
			if err := c.to.exec(ctx, "DELETE FROM "+t.name); err != nil {
				return err
			}
			if rows, err = c.from.query(ctx, t.ordered()); err != nil {
				return err
			}
		}
	}
	var batch [][]any
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := c.to.insert(ctx, t, batch); err != nil {
			return err
		}
		have += int64(len(batch))
		batch, size = batch[:0], 0
		c.told(t.name, have, total)
		return nil
	}
	for {
		row, err := rows.next()
		if err != nil {
			return err
		}
		if row == nil {
			return flush()
		}
		c.convert(t, row)
		batch = append(batch, row)
		if size += rowSize(row); len(batch) >= copyRows || size >= copyBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// begins tells whether the source begins with the rows that the target has.
func (c *copying) begins(ctx context.Context, t *table, rows cursor) (same bool, err error) {
	there, err := c.to.query(ctx, t.ordered())
	if err != nil {
		return false, err
	}
	defer there.close()
	for {
		has, err := there.next()
		if err != nil || has == nil {
			return err == nil, err
		}
		row, err := rows.next()
		if err != nil || row == nil {
			return false, err
		}
		if c.convert(t, row) || differ(row, has) >= 0 {
			return false, nil
		}
	}
}

// sameSchema refuses a store that this program's migrations did not make exactly.
func sameSchema(ctx context.Context, s side) error {
	have, err := text(ctx, s, "SELECT value FROM meta WHERE name = 'schema'")
	if err != nil {
		return err
	}
	all, err := migrationsOf(migrations, "migrations")
	if err != nil {
		return err
	}
	switch version, _ := strconv.Atoi(have); {
	case version > newest(all):
		return fmt.Errorf("%w: it has schema %s, this one knows up to %d. Copy it with the newer version", ErrNewerSchema, have, newest(all))
	case version < newest(all):
		return fmt.Errorf("it has schema %s, and this program needs %d: start a server of this version on it once, which migrates it, and stop it again", have, newest(all))
	}
	return nil
}

func openSource(ctx context.Context, p Place) (s side, err error) {
	if p.URL != "" {
		s, err = openPostgresSource(ctx, p.URL, true)
	} else {
		s, err = openFileSource(ctx, p.Path)
	}
	if err != nil {
		return nil, err
	}
	err = sameSchema(ctx, s)
	if err == nil {
		var other string
		if other, err = text(ctx, s, "SELECT value FROM meta WHERE name = $1", metaCopying); err == nil && other != "" {
			err = fmt.Errorf("it is no whole store: the copy of %s into it was not finished", other)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// openTarget opens a store that is empty, or an unfinished copy of the same source.
func openTarget(ctx context.Context, p, from Place) (s side, err error) {
	if p.URL != "" {
		s, err = openPostgresTarget(ctx, p.URL)
	} else {
		s, err = openFileTarget(ctx, p.Path, from)
	}
	if err != nil {
		return nil, err
	}
	if err = claimTarget(ctx, s, from); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func claimTarget(ctx context.Context, s side, from Place) error {
	other, err := text(ctx, s, "SELECT value FROM meta WHERE name = $1", metaCopying)
	switch {
	case err != nil:
		return err
	case other == from.String():
		return nil
	case other != "":
		return fmt.Errorf("it holds an unfinished copy of %s: %w. Remove it first, or give another target", other, ErrNotEmpty)
	}
	all, err := s.tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.name == "meta" {
			continue
		}
		if n, err := number(ctx, s, "SELECT count(*) FROM "+t.name); err != nil {
			return err
		} else if n > 0 {
			return fmt.Errorf("%w: %d in the table %s. Give an empty database, or a folder without a store", ErrNotEmpty, n, t.name)
		}
	}
	return s.exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2)", metaCopying, from.String())
}
