package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/klauspost/compress/s2"

	"triphammer/server/secret"
)

// Apply is the record of one apply (SPEC 4.3).
type Apply struct {
	ID          ApplyID
	Factory     string
	Repository  string
	Branch      string
	Commit      string
	AuthorName  string
	AuthorEmail string
	Subject     string
	CommitTime  time.Time
	Trigger     string
	Outcome     string // applied, refused, failed
	Error       string
	Plan        json.RawMessage
	Diagnostics json.RawMessage
	StartedAt   time.Time
	FinishedAt  time.Time
	Webhooks    []BoundWebhook // of an applied one; filled in by LastApplied and Applies.Get
	// Fenced refuses to record an applied one with ErrStale, unless Base is still live and the
	// bound secrets still exist.
	Fenced bool
	Base   ApplyID // what was live when it began; 0: nothing was
}

// applied is the outcome of an apply that made its definitions live.
const applied = "applied"

// BoundWebhook is which UID and which generation of its secret a webhook took.
type BoundWebhook struct {
	Name, UID, SecretName string
	Generation            int64
}

// File is a definition file of an applied snapshot.
type File struct {
	Path       string
	Data       []byte
	Executable bool
}

// Applies are the commits of factories that were applied, or refused, and what each made live.
type Applies struct {
	*db
	retreats retreats
}

// Record keeps the apply, its snapshot, its webhooks' bindings and its run
// specs, in one transaction. From then on it is the live one of its factory, if it was
// applied: no delivery that an earlier one decided is recorded any more (SPEC 17.2).
func (s *Applies) Record(ctx context.Context, a *Apply, files []File, specs map[[32]byte][]byte) (id ApplyID, err error) {
	type blob struct {
		path       string
		hash       [32]byte
		data       []byte
		executable bool
	}
	blobs := make([]blob, len(files))
	var names []fileHash
	for i, f := range files {
		blobs[i] = blob{f.Path, sha256.Sum256(f.Data), s2.Encode(nil, f.Data), f.Executable}
		names = append(names, fileHash{f.Path, blobs[i].hash[:], f.Executable})
	}
	err = s.Grow(ctx, func(tx *engine.Tx) error {
		if err := s.checkFence(tx, a); err != nil {
			return err
		}
		id = ApplyID(tx.NextID())
		err := tx.Exec(`INSERT INTO applies (id, factory, repository, branch, commit_hash, author_name, author_email, subject, commit_time, triggered_by,
			outcome, error, plan, diagnostics, started_at, finished_at, digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
			id, a.Factory, a.Repository, a.Branch, a.Commit, a.AuthorName, a.AuthorEmail, a.Subject, micros(a.CommitTime), a.Trigger,
			a.Outcome, a.Error, string(a.Plan), string(a.Diagnostics), micros(a.StartedAt), micros(a.FinishedAt),
			applyDigest(id, a.Commit, names, a.Webhooks))
		if err != nil {
			return err
		}
		for _, b := range blobs {
			err := errors.Join(
				tx.Exec(`INSERT INTO blobs (hash, data) VALUES ($1, $2)
					ON CONFLICT (hash) DO UPDATE SET data = excluded.data WHERE blobs.data <> excluded.data`, b.hash[:], b.data),
				tx.Exec("INSERT INTO apply_files (apply_id, path, hash, executable) VALUES ($1, $2, $3, $4)", id, b.path, b.hash[:], b.executable))
			if err != nil {
				return err
			}
		}
		for _, w := range a.Webhooks {
			err := tx.Exec("INSERT INTO apply_webhooks (apply_id, name, uid, secret_name, generation) VALUES ($1, $2, $3, $4, $5)", id, w.Name, w.UID, w.SecretName, w.Generation)
			if err != nil {
				return err
			}
			if err := s.bind(tx, a.Factory, w); err != nil {
				return err
			}
		}
		for hash, spec := range specs {
			if err := s.store.Specs.put(tx, hash, spec); err != nil {
				return err
			}
		}
		if a.Outcome == applied {
			s.setLive(a.Factory, id) // every later delivery of this transaction sees it
			tx.Rules()
		}
		return nil
	})
	if err == nil && a.Outcome == applied {
		s.Saw(a.Factory, id, a.Webhooks)
	}
	return id, err
}

// bind binds a UID to the webhook permanently. It is ErrConflict if the webhook has
// another UID, or another webhook has this one.
func (s *Applies) bind(tx *engine.Tx, factory string, w BoundWebhook) error {
	err := tx.Exec("INSERT INTO webhook_uids (factory, name, uid) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", factory, w.Name, w.UID)
	if err != nil {
		return err
	}
	err = tx.Row("SELECT name FROM webhook_uids WHERE factory = $1 AND name = $2 AND uid = $3", []any{factory, w.Name, w.UID}, new(string))
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("webhook %s cannot be bound to %s, for one of them is bound already: %w", w.Name, w.UID, ErrConflict)
	}
	return err
}

// WebhookUIDs returns the UID bound to each webhook of a factory, or a fresh one
// that Record makes durable. A binding outlives its file, so that a file
// that returns has its URL back (SPEC 4.6).
func (s *Applies) WebhookUIDs(ctx context.Context, factory string, names []string) (map[string]string, error) {
	uids := make(map[string]string, len(names))
	bound, err := engine.List(ctx, s.DB, func(rows *sql.Rows) ([2]string, error) {
		var b [2]string
		err := rows.Scan(&b[0], &b[1])
		return b, err
	}, "SELECT name, uid FROM webhook_uids WHERE factory = $1", factory)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(bound))
	for _, b := range bound {
		all[b[0]] = b[1]
	}
	for _, name := range names {
		if uids[name] = all[name]; uids[name] == "" {
			uids[name] = "whk_" + secret.RandomText(22)
		}
	}
	return uids, nil
}

const applyColumns = `id, factory, repository, branch, commit_hash, author_name, author_email, subject, commit_time, triggered_by, outcome, error, plan,
	diagnostics, started_at, finished_at`

func scanApply(rows *sql.Rows) (*Apply, error) {
	a := &Apply{}
	var committed, started, finished int64
	var plan, diagnostics string
	err := rows.Scan(&a.ID, &a.Factory, &a.Repository, &a.Branch, &a.Commit, &a.AuthorName, &a.AuthorEmail, &a.Subject, &committed, &a.Trigger, &a.Outcome,
		&a.Error, &plan, &diagnostics, &started, &finished)
	a.CommitTime, a.StartedAt, a.FinishedAt = timeOf(committed), timeOf(started), timeOf(finished)
	a.Plan, a.Diagnostics = json.RawMessage(plan), json.RawMessage(diagnostics)
	return a, err
}

// ApplyQuery selects applies; zero fields select all.
type ApplyQuery struct {
	Factory      string
	Since, Until time.Time // when they ended
	Before       ApplyID   // the one after which to go on, towards older ones
	Limit        int
}

// List lists applies, newest first.
func (s *Applies) List(ctx context.Context, q ApplyQuery) ([]*Apply, error) {
	w := where{}
	w.text("factory", q.Factory)
	if !q.Since.IsZero() {
		w.add("finished_at >= ?", micros(q.Since))
	}
	if !q.Until.IsZero() {
		w.add("finished_at < ?", micros(q.Until))
	}
	before(&w, "id", q.Before)
	return engine.List(ctx, s.DB, scanApply, "SELECT "+applyColumns+" FROM applies"+w.sql()+" ORDER BY id DESC"+w.limit(q.Limit), w.args...)
}

// Get reads one apply with its webhooks' bindings.
func (s *Applies) Get(ctx context.Context, id ApplyID) (*Apply, error) {
	a, err := engine.First(engine.List(ctx, s.DB, scanApply, "SELECT "+applyColumns+" FROM applies WHERE id = $1", id))
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	a.Webhooks, err = s.bindings(ctx, id)
	return a, err
}

// Factories are the names of those that were ever applied, sorted.
func (s *Applies) Factories(ctx context.Context) ([]string, error) {
	return engine.List(ctx, s.DB, engine.ScanText, "SELECT DISTINCT factory FROM applies ORDER BY factory")
}

// Last is the newest apply of a factory, with that outcome if one is given.
func (s *Applies) Last(ctx context.Context, factory, outcome string) (*Apply, error) {
	w := where{}
	w.text("factory", factory)
	w.text("outcome", outcome)
	a, err := engine.First(engine.List(ctx, s.DB, scanApply, "SELECT "+applyColumns+" FROM applies"+w.sql()+" ORDER BY id DESC LIMIT 1", w.args...))
	if err != nil {
		return nil, err
	}
	a.Webhooks, err = s.bindings(ctx, a.ID)
	return a, err
}

func (s *Applies) bindings(ctx context.Context, id ApplyID) ([]BoundWebhook, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (BoundWebhook, error) {
		var b BoundWebhook
		err := rows.Scan(&b.Name, &b.UID, &b.SecretName, &b.Generation)
		return b, err
	}, "SELECT name, uid, secret_name, generation FROM apply_webhooks WHERE apply_id = $1 ORDER BY name", id)
}

// fileHash is a file of a snapshot by its SHA-256.
type fileHash struct {
	path       string
	hash       []byte
	executable bool
}

// applyDigest is that of what an apply made live.
func applyDigest(id ApplyID, commit string, files []fileHash, webhooks []BoundWebhook) int64 {
	files, webhooks = slices.Clone(files), slices.Clone(webhooks)
	slices.SortFunc(files, func(a, b fileHash) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(webhooks, func(a, b BoundWebhook) int { return strings.Compare(a.Name, b.Name) })
	values := []any{int64(id), commit}
	for _, f := range files {
		values = append(values, f.path, f.hash)
		if f.executable { // the digests of before have only the others
			values = append(values, "executable")
		}
	}
	for _, w := range webhooks {
		values = append(values, w.Name, w.UID, w.SecretName, w.Generation)
	}
	return DigestOf(values...)
}

// Files reads the snapshot of an apply. The error wraps ErrDamaged if it is
// not what was applied, or is not bound to the webhooks that it was bound to.
func (s *Applies) Files(ctx context.Context, id ApplyID) ([]File, error) {
	a, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var names []fileHash
	files, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (File, error) {
		var f File
		var hash, packed []byte
		if err := rows.Scan(&f.Path, &hash, &f.Executable, &packed); err != nil {
			return f, err
		}
		names = append(names, fileHash{f.Path, hash, f.Executable})
		data, err := s2.Decode(nil, packed)
		if err != nil || !s.soundHash(hash, data) {
			err = s.damage("the file %s of %s", f.Path, id)
		}
		f.Data = data
		return f, err
	}, "SELECT f.path, f.hash, f.executable, b.data FROM apply_files f JOIN blobs b ON b.hash = f.hash WHERE f.apply_id = $1 ORDER BY f.path", id)
	if err != nil {
		return nil, err
	}
	digest, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (digest sql.NullInt64, err error) {
		err = rows.Scan(&digest)
		return digest, err
	}, "SELECT digest FROM applies WHERE id = $1", id))
	if err != nil {
		return nil, err
	}
	if !s.sound(int64(id), digest, applyDigest(id, a.Commit, names, a.Webhooks)) {
		return nil, s.damage("the snapshot of %s", id)
	}
	return files, nil
}

// File reads a file of an applied snapshot by its SHA-256. The error wraps ErrDamaged
// if it is not what was applied.
func (s *Applies) File(ctx context.Context, hash []byte) ([]byte, error) {
	packed, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (packed []byte, err error) {
		err = rows.Scan(&packed)
		return packed, err
	}, "SELECT data FROM blobs WHERE hash = $1", hash))
	if err != nil {
		return nil, err
	}
	data, err := s2.Decode(nil, packed)
	if err != nil || !s.soundHash(hash, data) {
		return nil, s.damage("the file %x", hash[:min(8, len(hash))])
	}
	return data, nil
}

// Commit is the newest apply that made a commit live. The commit may be
// shortened to a prefix of its hash; ErrConflict if there are several such.
func (s *Applies) Commit(ctx context.Context, factory, prefix string) (*Apply, error) {
	if !isHex(prefix) {
		return nil, fmt.Errorf("a commit that begins with %.40q: %w", prefix, ErrNotFound)
	}
	w := where{}
	w.text("factory", factory)
	w.add("outcome = ?", "applied")
	w.add("commit_hash LIKE ?", prefix+"%")
	all, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT DISTINCT commit_hash FROM applies"+w.sql()+" LIMIT 2", w.args...)
	if err != nil {
		return nil, err
	}
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("a commit that begins with %s and was applied: %w", prefix, ErrNotFound)
	case 2:
		return nil, fmt.Errorf("several commits that were applied begin with %s: %w", prefix, ErrConflict)
	}
	return engine.First(engine.List(ctx, s.DB, scanApply, "SELECT "+applyColumns+" FROM applies"+w.sql()+" ORDER BY id DESC LIMIT 1", w.args...))
}

// First is when the first apply of a commit began, of any outcome, or without a
// commit that of the factory; ErrNotFound if there is none.
func (s *Applies) First(ctx context.Context, factory, commit string) (time.Time, error) {
	w := where{}
	w.add("factory = ?", factory)
	w.text("commit_hash", commit)
	return engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (time.Time, error) {
		var at int64
		err := rows.Scan(&at)
		return timeOf(at), err
	}, "SELECT started_at FROM applies"+w.sql()+" ORDER BY id LIMIT 1", w.args...))
}

func isHex(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Pin keeps a commit live, whatever the branch says.
type Pin struct {
	Commit, Reason, By string
	At, Until          time.Time // Until zero: for good
}

// Pins are the commits that operators keep factories at.
type Pins struct{ *db }

// Set pins a factory to a commit, in place of what it was pinned to.
func (s *Pins) Set(ctx context.Context, factory string, p Pin) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec(`INSERT INTO pins (factory, commit_hash, reason, pinned_by, pinned_at, until) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (factory) DO UPDATE SET commit_hash = excluded.commit_hash, reason = excluded.reason, pinned_by = excluded.pinned_by,
			pinned_at = excluded.pinned_at, until = excluded.until`, factory, p.Commit, p.Reason, p.By, micros(p.At), micros(p.Until))
	})
}

// Delete makes a factory follow its branch again.
func (s *Pins) Delete(ctx context.Context, factory string) error {
	return s.Do(ctx, func(tx *engine.Tx) error { return tx.Exec("DELETE FROM pins WHERE factory = $1", factory) })
}

// End removes the pin of a factory if it has expired, and records that in the audit
// log.
func (s *Pins) End(ctx context.Context, factory string) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		var commit, reason string
		var until int64
		err := tx.Row("DELETE FROM pins WHERE factory = $1 AND until > 0 AND until <= $2 RETURNING commit_hash, reason, until",
			[]any{factory, micros(s.Now())}, &commit, &reason, &until)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.store.Audit.add(tx, AuditEntry{
			Actor: "server", Action: "definition.unpin", Object: factory, Factory: factory, Origin: "local",
			Details: fmt.Sprintf("%s: the pin ran out at %s: %s", commit, timeOf(until).UTC().Format(time.RFC3339), reason),
		})
	})
}

// Of is what a factory is pinned to now; ErrNotFound if it is not.
func (s *Pins) Of(ctx context.Context, factory string) (Pin, error) {
	p, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (Pin, error) {
		var p Pin
		var at, until int64
		err := rows.Scan(&p.Commit, &p.Reason, &p.By, &at, &until)
		p.At, p.Until = timeOf(at), timeOf(until)
		return p, err
	}, "SELECT commit_hash, reason, pinned_by, pinned_at, until FROM pins WHERE factory = $1", factory))
	if err == nil && !p.Until.IsZero() && !s.Now().Before(p.Until) {
		err = ErrNotFound
	}
	if err != nil {
		return Pin{}, fmt.Errorf("a pin of %s: %w", factory, err)
	}
	return p, nil
}
