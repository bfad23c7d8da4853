package copy

import (
	"context"
	"fmt"
)

// verify compares a table, row by row.
func (c *copying) verify(ctx context.Context, t *table) (err error) {
	sum := CopiedTable{Name: t.name}
	total, err := number(ctx, c.from, "SELECT count(*) FROM "+t.name)
	if err != nil {
		return err
	}
	source, err := c.from.query(ctx, t.ordered())
	if err != nil {
		return err
	}
	defer source.close()
	target, err := c.to.query(ctx, t.ordered())
	if err != nil {
		return err
	}
	defer target.close()
	// A row whose key is another one in the copy can be elsewhere in the order.
	moved, extra := make(map[string][]any), make(map[string][]any)
	next := func() (row []any, err error) {
		for {
			if row, err = nextCopied(t, source); row == nil || err != nil || !c.convert(t, row) {
				return row, err
			}
			if moved[t.show(row)] != nil {
				return nil, fmt.Errorf("%w: %s is there twice", ErrDifferent, t.show(row))
			}
			moved[t.show(row)] = row
		}
	}
	nextThere := func() (row []any, err error) { return nextCopied(t, target) }
	a, err := next()
	if err != nil {
		return err
	}
	b, err := nextThere()
	for err == nil && (a != nil || b != nil) {
		order := 1
		if b == nil {
			order = -1
		} else if a != nil {
			order = t.compare(a, b)
		}
		switch {
		case order < 0:
			return fmt.Errorf("%w: %s is missing in it", ErrDifferent, t.show(a))
		case order > 0:
			if extra[t.show(b)] = b; len(extra) > maxElsewhere {
				return fmt.Errorf("%w: it has %s, which the source has not", ErrDifferent, t.show(b))
			}
			b, err = nextThere()
			continue
		}
		if i := differ(a, b); i >= 0 {
			return fmt.Errorf("%w: %s has another %s", ErrDifferent, t.show(a), t.columns[i].name)
		}
		sum.Rows++
		sum.Digest += rowDigest(b)
		if sum.Rows%copyRows == 0 {
			c.told("verifying "+t.name, sum.Rows, total)
		}
		if a, err = next(); err == nil {
			b, err = nextThere()
		}
	}
	if err != nil {
		return err
	}
	if err := sum.elsewhere(t, moved, extra); err != nil {
		return err
	}
	c.report.Tables = append(c.report.Tables, sum)
	return nil
}

// nextCopied is the next row that a copy has from its source.
func nextCopied(t *table, of cursor) (row []any, err error) {
	for {
		row, err = of.next()
		if row == nil || t.name != "meta" || !ofTarget(t, row) {
			return row, err
		}
	}
}

// elsewhere counts the rows whose place in the copy is another one, by their keys: moved are those
// of the source, and extra those of the copy.
func (sum *CopiedTable) elsewhere(t *table, moved, extra map[string][]any) error {
	for key, row := range moved {
		there := extra[key]
		if there == nil {
			return fmt.Errorf("%w: %s is missing in it", ErrDifferent, key)
		}
		if i := differ(row, there); i >= 0 {
			return fmt.Errorf("%w: %s has another %s", ErrDifferent, key, t.columns[i].name)
		}
		delete(extra, key)
		sum.Rows++
		sum.Digest += rowDigest(there)
	}
	for key := range extra {
		return fmt.Errorf("%w: it has %s, which the source has not", ErrDifferent, key)
	}
	return nil
}
