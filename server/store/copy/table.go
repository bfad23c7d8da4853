package copy

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"triphammer/server/store"
)

// side is one end of a copy: a connection to a store, which no server uses.
type side interface {
	tables(ctx context.Context) ([]*table, error)
	query(ctx context.Context, query string, args ...any) (cursor, error)
	exec(ctx context.Context, query string, args ...any) error
	insert(ctx context.Context, t *table, rows [][]any) error // in one transaction
	close()
}

// cursor walks over rows whose values are nil, int64, string or []byte.
type cursor interface {
	next() ([]any, error) // nil: there is no further one
	close()
}

// table is a table as its database describes it. The columns are in the order of their names.
type table struct {
	name    string
	columns []column
	key     []int // where the columns of the primary key are
}

type column struct {
	name, class string // number, text, bytes
	null        bool
	key         int // place in the primary key, from 1; 0: it is not in it
}

func (t *table) finish() error {
	slices.SortFunc(t.columns, func(a, b column) int { return cmp.Compare(a.name, b.name) })
	for i, c := range t.columns {
		if c.key > 0 {
			t.key = append(t.key, i)
			t.columns[i].null = false
		}
	}
	slices.SortFunc(t.key, func(a, b int) int { return t.columns[a].key - t.columns[b].key })
	if len(t.key) == 0 {
		return fmt.Errorf("the table %s has no primary key", t.name)
	}
	return nil
}

func (t *table) names() (all []string) {
	for _, c := range t.columns {
		all = append(all, c.name)
	}
	return all
}

func (t *table) at(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// ordered selects all rows in the order of the primary key.
func (t *table) ordered() string {
	var key []string
	for _, i := range t.key {
		key = append(key, t.columns[i].name)
	}
	return "SELECT " + strings.Join(t.names(), ", ") + " FROM " + t.name + " ORDER BY " + strings.Join(key, ", ")
}

// show describes a row for people by its key.
func (t *table) show(row []any) string {
	var all []string
	for _, i := range t.key {
		text := fmt.Sprint(row[i])
		switch v := row[i].(type) {
		case string:
			text = strconv.Quote(v)
		case []byte:
			text = fmt.Sprintf("%x", v)
		}
		all = append(all, t.columns[i].name+" = "+text)
	}
	return "the row of " + t.name + " with " + strings.Join(all, ", ")
}

func (t *table) compare(a, b []any) int {
	for _, i := range t.key {
		n := 0
		switch v := a[i].(type) {
		case int64:
			n = cmp.Compare(v, b[i].(int64))
		case string:
			n = strings.Compare(v, b[i].(string))
		case []byte:
			n = bytes.Compare(v, b[i].([]byte))
		}
		if n != 0 {
			return n
		}
	}
	return 0
}

// differ is where two rows differ, or -1.
func differ(a, b []any) int {
	for i := range a {
		switch v := a[i].(type) {
		case []byte:
			if w, ok := b[i].([]byte); !ok || !bytes.Equal(v, w) {
				return i
			}
		default:
			if _, other := b[i].([]byte); other || v != b[i] {
				return i
			}
		}
	}
	return -1
}

func rowDigest(row []any) uint64 {
	values := make([]any, 0, 2*len(row))
	for i, v := range row {
		if v != nil {
			values = append(values, int64(i), v)
		}
	}
	return uint64(store.DigestOf(values...))
}

func rowSize(row []any) (n int) {
	for _, v := range row {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
		n += 8
	}
	return n
}

// differences are what two databases have that is not the same in both.
func differences(a, b []*table) (all []string) {
	of := func(tables []*table) map[string]bool {
		found := make(map[string]bool)
		for _, t := range tables {
			for _, c := range t.columns {
				found[fmt.Sprintf("%s.%s %s null=%t key=%d", t.name, c.name, c.class, c.null, c.key)] = true
			}
		}
		return found
	}
	one, two := of(a), of(b)
	for _, c := range slices.Sorted(maps.Keys(one)) {
		if !two[c] {
			all = append(all, "only the first: "+c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(two)) {
		if !one[c] {
			all = append(all, "only the second: "+c)
		}
	}
	return all
}

func text(ctx context.Context, s side, query string, args ...any) (string, error) {
	rows, err := s.query(ctx, query, args...)
	if err != nil {
		return "", err
	}
	defer rows.close()
	row, err := rows.next()
	if err != nil || row == nil {
		return "", err
	}
	found, _ := row[0].(string)
	return found, nil
}

func number(ctx context.Context, s side, query string, args ...any) (int64, error) {
	rows, err := s.query(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.close()
	row, err := rows.next()
	if err != nil || row == nil {
		return 0, err
	}
	return row[0].(int64), nil
}
