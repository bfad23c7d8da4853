package store

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// Subjects says which deliveries and runs are about one thing (SPEC 21.2). The leader writes it
// with Index, some time after they were recorded, so that the ingress pays nothing for it. Index
// writes signed bodies too.
type Subjects struct {
	*db
	upTo int64 // of Index alone: up to this id, everything is in it
}

// Subject is a thing in a factory that events are about, and what came of them as far as it is kept.
type Subject struct {
	Factory, Name string
	Newest        int64     // id of the newest delivery or run
	At            time.Time // of Newest
	Deliveries    int64
	Runs, Active  int64 // Active ones have not ended
	Tokens        int64
	CostUSD       float64
}

// SubjectQuery selects subjects; zero fields select all.
type SubjectQuery struct {
	Factory, Name string
	Text          string // part of the name, in any case
	Since         time.Time
	After         SubjectCursor // the last one of the previous page
	Limit         int
}

// SubjectCursor is the position of a subject in a list.
type SubjectCursor struct {
	ID   int64
	Name string
}

// metaSubjects says up to which id deliveries and runs are in the table subjects. An index that was
// written under the name "subjects up to" lacks runs without a subject of their own, so everything
// that is kept is read once more.
const metaSubjects = "subjects to"

const (
	subjectsPage  = 100   // deliveries whose payloads are read at once
	subjectsRest  = 9     // times as long as it worked, the index rests if it is behind
	subjectsWait  = 99    // the same while much else is written
	subjectsBusy  = 100   // transactions a second that are much
	subjectsWrite = 5_000 // deliveries without a subject that are read again after a restart, at most
)

// Index adds the deliveries and runs that are not in the index yet. The subjects of a delivery are
// those of its runs and those that of tells, which gets the delivery and its body, and also tells what
// became of a pull request. A run without a
// subject has those of its delivery, or of the first run of its conversation. One process at a
// time may call it: the leader. Data that comes meanwhile is left for the next call.
func (s *Subjects) Index(ctx context.Context, of Tells) error {
	mark, err := s.store.Mark(ctx) // first: everything up to it is committed
	if err != nil {
		return err
	}
	to := max(int64(mark.Delivery), int64(mark.Run))
	if s.upTo == 0 || s.upTo > to { // nobody has asked yet, or the database went back
		text, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT value FROM meta WHERE name = $1", metaSubjects)
		if err != nil {
			return err
		}
		if s.upTo, err = strconv.ParseInt(strings.Join(append(text, "0")[:1], ""), 10, 64); err != nil {
			return err
		}
	}
	rest := time.Duration(subjectsWait)
	for read := 0; s.upTo < to; {
		began, commits := time.Now(), s.Commits()
		next, entries, n, err := s.read(ctx, s.upTo, to, of)
		if err != nil {
			return err
		}
		if read += n; len(entries) > 0 || read >= subjectsWrite {
			if err := s.write(ctx, entries, next); err != nil {
				return err
			}
			read = 0
		}
		if s.upTo = next; s.upTo < to {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(rest * time.Since(began)):
			}
			if rest = subjectsRest; float64(s.Commits()-commits) > subjectsBusy*time.Since(began).Seconds() {
				rest = subjectsWait
			}
		}
	}
	return nil
}

// Forget makes the next Index ask the store how far the index is, because another process may have
// written it.
func (s *Subjects) Forget() { s.upTo = 0 }

// Tells is what a delivery says: what it is about, and what became of a pull request; empty: nothing. signed
// tells whether its body is signed and its identity is not (SPEC 5.13).
type Tells func(d *Delivery, body []byte) (subjects []string, pull PullState, signed bool)

// subjectEntry is a row of the index. Table is where the row with its id is. Without a subject, it is
// a signed body or what became of a pull request.
type subjectEntry struct {
	subject, factory string
	id               int64
	table            string
	pull             PullState
	signed           []byte // signedHash
}

// read finds the subjects of deliveries and runs after an id, up to the id next.
func (s *Subjects) read(ctx context.Context, from, to int64, of Tells) (next int64, entries []subjectEntry, n int, err error) {
	next = to
	deliveries, err := engine.List(ctx, s.DB, scanDelivery, "SELECT "+deliveryColumns+" FROM deliveries WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3", from, to, subjectsPage)
	if err != nil {
		return 0, nil, 0, err
	}
	if len(deliveries) == subjectsPage {
		next = int64(deliveries[subjectsPage-1].ID)
	}
	runs, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (r subjectRun, err error) {
		return r, rows.Scan(&r.id, &r.delivery, &r.conversation, &r.factory, &r.subject)
	}, "SELECT id, delivery_id, conversation_id, factory, subject FROM runs WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3", from, next, subjectsPage)
	if err != nil {
		return 0, nil, 0, err
	}
	if len(runs) == subjectsPage {
		next = runs[subjectsPage-1].id
	}
	deliveries = slices.DeleteFunc(deliveries, func(d *Delivery) bool { return int64(d.ID) > next })
	bodies, err := s.store.Deliveries.Payloads(ctx, deliveries)
	if err != nil {
		return 0, nil, 0, err
	}
	known := make(map[int64][]string) // the subjects of each id
	add := func(e subjectEntry) {
		if !slices.Contains(known[e.id], e.subject) {
			known[e.id] = append(known[e.id], e.subject)
			entries = append(entries, e)
		}
	}
	for _, d := range deliveries {
		if body, kept := bodies[d.ID]; kept {
			subjects, pull, signed := of(d, body)
			for _, subject := range subjects {
				add(subjectEntry{subject: subject, factory: d.Factory, id: int64(d.ID), table: "deliveries"})
			}
			if pull.URL != "" {
				entries = append(entries, subjectEntry{factory: d.Factory, pull: pull})
			}
			if signed {
				entries = append(entries, subjectEntry{factory: d.Factory, id: int64(d.ID), signed: signedHash(d.WebhookUID, body)})
			}
		}
	}
	var before []int64 // ids of earlier pages whose subjects runs take over
	for _, r := range runs {
		switch origin := r.origin(); {
		case r.subject != "":
			add(subjectEntry{subject: r.subject, factory: r.factory, id: r.id, table: "runs"})
			if r.delivery != 0 {
				add(subjectEntry{subject: r.subject, factory: r.factory, id: r.delivery, table: "deliveries"})
			}
		case origin != 0 && origin <= from:
			before = append(before, origin)
		}
	}
	indexed, err := subjectsOf(ctx, s, before)
	if err != nil {
		return 0, nil, 0, err
	}
	for _, r := range runs {
		if origin := r.origin(); r.subject == "" && origin != 0 {
			for _, subject := range append(slices.Clip(known[origin]), indexed[origin]...) {
				add(subjectEntry{subject: subject, factory: r.factory, id: r.id, table: "runs"})
			}
		}
	}
	return next, entries, len(deliveries), nil
}

// subjectRun is what the index reads of a run.
type subjectRun struct {
	id, delivery, conversation int64
	factory, subject           string
}

// origin is the delivery or the run whose subjects a run without one has; 0: there is none.
func (r subjectRun) origin() int64 {
	return cmp.Or(r.delivery, r.conversation)
}

// write adds entries, and notes how far the index is.
func (s *Subjects) write(ctx context.Context, entries []subjectEntry, upTo int64) error {
	return s.InSteps(ctx, engine.Task{Run: func(tx *engine.Tx, _ *engine.Step) (more bool, err error) {
		for _, e := range entries {
			if err := s.add(tx, e); err != nil {
				return false, err
			}
		}
		return false, tx.SetMeta(metaSubjects, strconv.FormatInt(upTo, 10))
	}})
}

const newestOf = "SELECT coalesce(max(id), 0) FROM subjects WHERE subject = $1 AND factory = $2"

func (s *Subjects) add(tx *engine.Tx, e subjectEntry) error {
	if e.signed != nil {
		return indexBody(tx, e)
	}
	if e.subject == "" {
		return s.store.Artifacts.became(tx, e.factory, e.pull)
	}
	var newest int64
	if err := tx.Row(newestOf, []any{e.subject, e.factory}, &newest); err != nil {
		return err
	}
	is := int64(0)
	if e.id > newest {
		is = 1
	}
	// What was deleted meanwhile is not added.
	n, err := tx.ExecCount("INSERT INTO subjects (subject, factory, id, newest) SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM "+e.table+
		" WHERE id = $3) ON CONFLICT (subject, factory, id) DO NOTHING", e.subject, e.factory, e.id, is)
	if err != nil || n == 0 || is == 0 || newest == 0 {
		return err
	}
	return tx.Exec("UPDATE subjects SET newest = 0 WHERE subject = $1 AND factory = $2 AND id = $3", e.subject, e.factory, newest)
}

// drop forgets a delivery or a run that is deleted.
func (s *Subjects) drop(tx *engine.Tx, id int64) error {
	var last []subjectEntry // those of which it was the newest
	found := false
	err := tx.Each("SELECT subject, factory, newest FROM subjects WHERE id = $1", []any{id}, func(rows *sql.Rows) (bool, error) {
		var e subjectEntry
		var newest int64
		err := rows.Scan(&e.subject, &e.factory, &newest)
		if found = true; newest == 1 {
			last = append(last, e)
		}
		return true, err
	})
	if err != nil || !found {
		return err
	}
	if err := tx.Exec("DELETE FROM subjects WHERE id = $1", id); err != nil {
		return err
	}
	for _, e := range last {
		if err := tx.Exec("UPDATE subjects SET newest = 1 WHERE subject = $1 AND factory = $2 AND id = ("+newestOf+")", e.subject, e.factory); err != nil {
			return err
		}
	}
	return nil
}

// List lists subjects, those with the newest deliveries and runs first.
func (s *Subjects) List(ctx context.Context, q SubjectQuery) ([]Subject, error) {
	w := where{}
	w.add("newest = 1")
	w.text("factory", q.Factory)
	w.text("subject", q.Name)
	if q.Text != "" {
		w.add("instr(lower(subject), ?) > 0", lowered(q.Text))
	}
	if !q.Since.IsZero() {
		w.add("id >= ?", engine.IDAt(q.Since))
	}
	if q.After.ID != 0 {
		w.add("(id, subject) < (?, ?)", q.After.ID, q.After.Name)
	}
	all, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (f Subject, err error) {
		err = rows.Scan(&f.Name, &f.Factory, &f.Newest)
		f.At = engine.TimeOfID(f.Newest)
		return f, err
	}, "SELECT subject, factory, id FROM subjects"+w.sql()+" ORDER BY id DESC, subject DESC"+w.limit(q.Limit), w.args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all, s.sum(ctx, all)
}

// sum fills in what came of subjects.
func (s *Subjects) sum(ctx context.Context, all []Subject) error {
	w := where{}
	of := make(map[[2]string]*Subject, len(all))
	names := make([]string, len(all))
	for i := range all {
		of[[2]string{all[i].Name, all[i].Factory}], names[i] = &all[i], all[i].Name
	}
	slices.Sort(names)
	w.add(in(&w, "e.subject", slices.Compact(names)))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var name, factory string
		var n Subject
		var cost int64
		if err := rows.Scan(&name, &factory, &n.Deliveries, &n.Runs, &n.Active, &n.Tokens, &cost); err != nil {
			return none, err
		}
		if f := of[[2]string{name, factory}]; f != nil {
			f.Deliveries, f.Runs, f.Active, f.Tokens, f.CostUSD = n.Deliveries, n.Runs, n.Active, n.Tokens, float64(cost)/1e6
		}
		return none, nil
	}, `SELECT e.subject, e.factory, count(*) - count(r.id), count(r.id), coalesce(sum(CASE WHEN r.state IN ('QUEUED', 'HELD', 'INPROGRESS') THEN 1 ELSE 0 END), 0),
		coalesce(sum(r.tokens), 0), coalesce(sum(r.cost_micros), 0) FROM subjects e LEFT JOIN runs r ON r.id = e.id`+w.sql()+" GROUP BY e.subject, e.factory", w.args...)
	return err
}

// Of are the subjects of runs, sorted. A run that is not in the index yet has none.
func (s *Subjects) Of(ctx context.Context, runs ...RunID) (map[RunID][]string, error) {
	return subjectsOf(ctx, s, runs)
}

// subjectsOf are the subjects of deliveries and runs that are in the index, sorted.
func subjectsOf[T ~int64](ctx context.Context, s *Subjects, ids []T) (map[T][]string, error) {
	all := make(map[T][]string)
	if len(ids) == 0 {
		return all, nil
	}
	w := where{}
	w.add(in(&w, "id", ids))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var id T
		var subject string
		err = rows.Scan(&id, &subject)
		all[id] = append(all[id], subject)
		return none, err
	}, "SELECT id, subject FROM subjects"+w.sql()+" ORDER BY id, subject", w.args...)
	return all, err
}

// begins is a condition for the entries whose subject, or its name without who names it, begins
// with a text, in any case but that of who names it.
func (w *where) begins(text string) (whole, name string) {
	const after = "\U0010FFFF"
	whole = w.bind("subject >= ? AND subject < ?", text, text+after)
	text = lowered(text)
	return whole, w.bind("lower(substr(subject, instr(subject, ':') + 1)) >= ? AND lower(substr(subject, instr(subject, ':') + 1)) < ?", text, text+after)
}

// Known tells whether a subject, or its name without who names it, begins with a text.
func (s *Subjects) Known(ctx context.Context, text string) (known bool, err error) {
	w := where{}
	whole, name := w.begins(text)
	err = s.Read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM subjects WHERE "+whole+") OR EXISTS (SELECT 1 FROM subjects WHERE "+name+")", w.args...).Scan(&known)
	return known, engine.Damaged(err)
}

// PullRequests are the links to pull requests that runs about a subject left, the newest first;
// empty factory: of any.
func (s *Subjects) PullRequests(ctx context.Context, factory, subject string, limit int) ([]*Artifact, error) {
	w := where{}
	w.add("subject = ?", subject)
	w.text("factory", factory)
	from := "SELECT id FROM subjects" + w.sql()
	w.terms = nil
	w.add("run_id IN (" + from + ") AND type = 'PULL_REQUEST'")
	return engine.List(ctx, s.DB, scanArtifact, artifactColumns+w.sql()+" ORDER BY id DESC"+w.limit(limit), w.args...)
}
