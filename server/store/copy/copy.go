package copy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"triphammer/server/store"

	"triphammer/server/store/internal/engine"
)

// Place is where a store is: a database of PostgreSQL, or a file and a folder of artifacts.
type Place struct {
	URL             string
	Path, Artifacts string
}

func (p Place) String() string {
	if p.URL != "" {
		return store.NameOf(p.URL)
	}
	return p.Path
}

// Errors of Copy.
var (
	ErrNotEmpty  = errors.New("it has a store already, or a part of one, and nothing is written over. Empty it, or give an empty database, or a folder without a store")
	ErrDifferent = errors.New("the copy differs from its source")
)

// A batch of rows is a transaction.
const (
	copyRows  = 1000
	copyBytes = 4 << 20
)

// maxElsewhere is how many rows of a table may be elsewhere in the order of the copy.
const maxElsewhere = 100_000

// Copied is what Copy did.
type Copied struct {
	Tables []CopiedTable
	// Texts is how many values have another text in the copy, because PostgreSQL's cannot
	// have NUL and what is not UTF-8: each such character is U+FFFD there.
	Texts int64
	Files int64 // of artifacts
	// Damaged are the artifacts whose content is missing or damaged in the source.
	Damaged []string
	KeyID   string
}

// CopiedTable is a table that is the same on both sides.
type CopiedTable struct {
	Name   string
	Rows   int64
	Digest uint64 // of all columns of all rows, in any order
}

// copying is a copy from one side to the other.
type copying struct {
	from, to           side
	fromPlace, toPlace Place
	tables             []*table
	// artifacts: the contents of artifacts change between files and rows
	convertFiles bool
	told         func(what string, done, of int64)
	report       Copied
}

// Copy copies a whole store, and compares the copy with it. No server uses either of them; the
// caller has locked the folders. If it is interrupted, the target is of no use: no program opens
// it, and a copy begins in an empty one. told is told how far it is.
func Copy(ctx context.Context, from, to Place, told func(what string, done, of int64)) (*Copied, error) {
	c := &copying{fromPlace: from, toPlace: to, convertFiles: true, told: told}
	if told == nil {
		c.told = func(string, int64, int64) {}
	}
	err := c.open(ctx)
	if err == nil {
		err = c.run(ctx)
	}
	for _, s := range []side{c.from, c.to} {
		if s != nil {
			s.close()
		}
	}
	return &c.report, err
}

// open opens both sides and looks whether they belong together.
func (c *copying) open(ctx context.Context) (err error) {
	if c.from, err = openSource(ctx, c.fromPlace); err != nil {
		return fmt.Errorf("the source %s: %w", c.fromPlace, err)
	}
	if c.toPlace.URL != "" {
		c.to, err = openPostgresTarget(ctx, c.toPlace.URL, c.fromPlace)
	} else {
		c.to, err = openFileTarget(ctx, c.toPlace.Path, c.fromPlace)
	}
	if err != nil {
		return fmt.Errorf("the target %s: %w", c.toPlace, err)
	}
	return c.plan(ctx)
}

// sameSchema refuses a store that this program's migrations did not make exactly.
func sameSchema(ctx context.Context, s side) error {
	have, err := text(ctx, s, "SELECT value FROM meta WHERE name = 'schema'")
	if err != nil {
		return err
	}
	all, err := engine.MigrationsOf(store.Migrations, "migrations")
	if err != nil {
		return err
	}
	switch version, _ := strconv.Atoi(have); {
	case version > engine.Newest(all):
		return fmt.Errorf("%w: it has schema %s, this one knows up to %d. Copy it with the newer version", store.ErrNewerSchema, have, engine.Newest(all))
	case version < engine.Newest(all):
		return fmt.Errorf("it has schema %s, and this program needs %d: start a server of this version on it once, which migrates it, and stop it again", have, engine.Newest(all))
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
		if other, err = text(ctx, s, "SELECT value FROM meta WHERE name = $1", engine.MetaCopying); err == nil && other != "" {
			err = fmt.Errorf("it is no whole store: the copy of %s into it was not finished", other)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// claimTarget marks an empty database as the target of a copy.
func claimTarget(ctx context.Context, s side, from Place) error {
	all, err := s.tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		where := ""
		if t.name == "meta" {
			where = " WHERE name = '" + engine.MetaCopying + "'"
		}
		if n, err := number(ctx, s, "SELECT count(*) FROM (SELECT 1 FROM "+t.name+where+" LIMIT 1) r"); err != nil || n > 0 {
			return cmp.Or(err, ErrNotEmpty)
		}
	}
	return s.exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2)", engine.MetaCopying, from.String())
}

// plan reads which tables there are.
func (c *copying) plan(ctx context.Context) (err error) {
	if c.tables, err = c.from.tables(ctx); err != nil {
		return err
	}
	target, err := c.to.tables(ctx)
	if err != nil {
		return err
	}
	if d := differences(c.tables, target); len(d) > 0 {
		return fmt.Errorf("the source and the target have other tables, so that they cannot be copied: %s", strings.Join(d[:min(len(d), 3)], "; "))
	}
	c.report.KeyID, err = text(ctx, c.from, "SELECT value FROM meta WHERE name = 'sealing key'")
	return err
}

// skips tells whether a table is not copied row by row.
func (c *copying) skips(t *table) bool {
	return t.name == "meta" || t.name == "artifact_parts" && c.convertFiles
}

func (c *copying) run(ctx context.Context) error {
	for _, t := range c.tables {
		if !c.skips(t) {
			if err := c.copyTable(ctx, t); err != nil {
				return fmt.Errorf("copying the table %s: %w", t.name, err)
			}
		}
	}
	if err := c.copyMeta(ctx); err != nil {
		return fmt.Errorf("copying the table meta: %w", err)
	}
	if c.convertFiles {
		if err := c.copyContents(ctx); err != nil {
			return err
		}
	}
	c.report.Texts = 0
	for _, t := range c.tables {
		if t.name == "artifact_parts" && c.convertFiles {
			continue
		}
		if err := c.verify(ctx, t); err != nil {
			return err
		}
	}
	if c.convertFiles {
		if err := c.verifyContents(ctx); err != nil {
			return err
		}
	}
	return c.finish(ctx)
}

func (c *copying) copyTable(ctx context.Context, t *table) error {
	total, err := number(ctx, c.from, "SELECT count(*) FROM "+t.name)
	if err != nil {
		return err
	}
	rows, err := c.from.query(ctx, t.ordered())
	if err != nil {
		return err
	}
	defer rows.close()
	var batch [][]any
	have, size := int64(0), 0
	for {
		row, err := rows.next()
		if err != nil {
			return err
		}
		if row != nil {
			c.convert(t, row)
			batch = append(batch, row)
			size += rowSize(row)
		}
		if len(batch) >= copyRows || size >= copyBytes || row == nil && len(batch) > 0 {
			if err := c.to.insert(ctx, t, batch); err != nil {
				return err
			}
			have += int64(len(batch))
			batch, size = batch[:0], 0
			c.told(t.name, have, total)
		}
		if row == nil {
			return nil
		}
	}
}

// convert makes a row what the target has of it, and tells whether its key changed.
func (c *copying) convert(t *table, row []any) (changedKey bool) {
	if c.toPlace.URL != "" {
		changed := false
		for i, v := range row {
			s, is := v.(string)
			if !is || utf8.ValidString(s) && !strings.Contains(s, "\x00") {
				continue
			}
			if t.name == "run_events" && !changed {
				redigest(t, row)
			}
			row[i], changed = storable(s), true
			c.report.Texts++
			changedKey = changedKey || t.columns[i].key > 0
		}
	}
	if i := t.at("file"); c.convertFiles && t.name == "artifacts" && row[i] != "" {
		row[i] = store.InDatabase
		if c.toPlace.URL == "" {
			row[i] = store.ArtifactID(row[t.at("id")].(int64)).String()
		}
	}
	return changedKey
}

// storable is a text as PostgreSQL can have it.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// redigest gives an event whose text changes a digest of the new text, if the old one was right.
func redigest(t *table, row []any) {
	number := func(name string) int64 { return row[t.at(name)].(int64) }
	kind, data := row[t.at("kind")].(string), row[t.at("data")].(string)
	was, has := row[t.at("digest")].(int64)
	if has && was == store.EventDigest(store.RunID(number("run_id")), number("seq"), number("at"), kind, data) {
		row[t.at("digest")] = store.EventDigest(store.RunID(number("run_id")), number("seq"), number("at"), storable(kind), storable(data))
	}
}

func (c *copying) copyMeta(ctx context.Context) error {
	t := c.tables[slices.IndexFunc(c.tables, func(t *table) bool { return t.name == "meta" })]
	rows, err := c.from.query(ctx, t.ordered())
	if err != nil {
		return err
	}
	defer rows.close()
	var all [][]any
	for {
		row, err := rows.next()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		if !ofTarget(t, row) {
			c.convert(t, row)
			all = append(all, row)
		}
	}
	if err := c.to.exec(ctx, "DELETE FROM meta WHERE name NOT IN ('schema', $1, $2)", engine.MetaCopying, engine.MetaNeeds); err != nil {
		return err
	}
	return c.to.insert(ctx, t, all)
}

// ofTarget tells whether a row of meta is about the database, and not about what it holds.
func ofTarget(t *table, row []any) bool {
	name := row[t.at("name")]
	return name == "schema" || name == engine.MetaCopying || name == engine.MetaNeeds
}

// finish makes the copy a store that programs open.
func (c *copying) finish(ctx context.Context) error {
	if c.toPlace.URL != "" && c.convertFiles {
		var ids []string
		for _, t := range c.tables {
			if i := t.at("id"); i >= 0 && t.columns[i].class == "number" {
				ids = append(ids, "SELECT coalesce(max(id), 0) AS id FROM "+t.name)
			}
		}
		err := c.to.exec(ctx, "SELECT setval('newest_id', (SELECT max(id) FROM ("+strings.Join(ids, " UNION ALL ")+") m)), nextval('commits'), "+
			"setval('queued_runs', (SELECT count(*) FROM runs WHERE state IN ('QUEUED', 'HELD') AND run_at <> 9223372036854775806))")
		if err != nil {
			return err
		}
	}
	return c.to.exec(ctx, "DELETE FROM meta WHERE name = $1", engine.MetaCopying)
}

// KeyOf is the id of the sealing key of a store that can be copied; empty: none is noted.
func KeyOf(ctx context.Context, p Place) (string, error) {
	s, err := openSource(ctx, p)
	if err != nil {
		return "", fmt.Errorf("the source %s: %w", p, err)
	}
	defer s.close()
	return text(ctx, s, "SELECT value FROM meta WHERE name = 'sealing key'")
}
