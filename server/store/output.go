package store

import (
	"cmp"
	"context"
	"crypto/hmac"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"triphammer/schema/output"
	"triphammer/server/store/internal/engine"
)

// States of an Output.
const (
	OutputPending = "pending"
	OutputDone    = "done"
	OutputFailed  = "failed" // it was given up, and needs a person
	// OutputWaiting is the state of what a person has not approved yet, and OutputDiscarded that of what
	// nobody has approved (SPEC 26.1).
	OutputWaiting   = "waiting"
	OutputDiscarded = "discarded"
	OutputNone      = "none" // there is no place for it, or no credential, or a question took its place
	// OutputAsked is the state of a question that waits for a reply. Its DueAt is when it needs a person no
	// more. It ends as OutputReplied, or as OutputPassed if another run of its subject or conversation came.
	OutputAsked   = "asked"
	OutputReplied = "replied"
	OutputPassed  = "passed"
	// outputPlace is the state of the row that says where the outputs of a run go.
	outputPlace = "place"
)

// OutputPlace is where the outputs of a run go: what its event is about.
type OutputPlace struct {
	WebhookUID string
	Provider   string
	Place      string // JSON; empty: there is none
	Detail     string // why there is none, or why nothing is done there
	// Waits is for how long what the agent asks for waits for a person; 0: it does not.
	Waits time.Duration
}

// Thread is the place of the thread where the event can be answered, as NewAnswer.PlaceKey; empty: there is
// none. nil has none.
func (p *OutputPlace) Thread() string {
	var at struct{ Container, Kind, Thread string }
	if p == nil || json.Unmarshal([]byte(p.Place), &at) != nil || at.Thread == "" {
		return ""
	}
	return PlaceKey(p.WebhookUID, AnswerThread, at.Container, at.Kind, at.Thread)
}

// About is the repository or project of the event, its thread, and what the thread is, as places of answers have
// them; empty: there is no such thing.
func (p *OutputPlace) About() (container, thread, kind string) {
	var at struct{ Container, Thread, Kind string }
	_ = json.Unmarshal([]byte(p.Place), &at) // the server itself wrote it
	return at.Container, at.Thread, at.Kind
}

// Where is the place for people: its page, or else its name; empty: there is none.
func (p *OutputPlace) Where() string { return whereOf(p.Place, false) }

// Starters are those who may answer a question there, as startedBy names them; empty: whoever can write.
func (p *OutputPlace) Starters() []string {
	var at struct{ Starters []string }
	_ = json.Unmarshal([]byte(p.Place), &at) // the server itself wrote it
	return at.Starters
}

// NewOutput is what the agent of a run asked for, and the bounds of its kind, as JSON.
type NewOutput struct {
	Kind, Request, Bounds string
	Wait                  time.Duration // for how long it waits for a person, whatever OutputPlace.Waits says; of a push alone
}

// Output is something that the agent of a run asked the server to do, and what became of that (SPEC 23).
type Output struct {
	RunID RunID
	Seq   int64 // the order in which the agent asked, from 1
	OutputPlace
	NewOutput
	Status     string
	Posted     string    // JSON of what was made at the sender; empty: nothing that has an address
	DueAt      time.Time // of the next attempt; zero: there is none
	Attempts   int64
	Turn       int64
	Uncertain  bool // an attempt began, and its outcome is not known
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Automation string // only Failed knows it
}

// Outputs are what the agents of runs asked for. They are recorded when their run has SUCCEEDED, in
// the same transaction, and performed in order.
type Outputs struct {
	*db
	approval atomic.Int64 // Approve
}

// Approve makes what agents ask for wait for a person for so long, whatever their automations say; 0: it
// does not.
func (s *Outputs) Approve(wait time.Duration) { s.approval.Store(int64(wait)) }

// Approval is for how long what agents ask for waits, as Approve has it.
func (s *Outputs) Approval() time.Duration { return time.Duration(s.approval.Load()) }

// place records where the outputs of a new run go, and the run to whose question it is the reply.
func (s *Outputs) place(tx *engine.Tx, id RunID, p *OutputPlace, answers RunID) error {
	if p == nil {
		return nil
	}
	var o NewOutput
	if answers != 0 {
		o.Request = answers.String()
	}
	if err := s.insert(tx, id, 0, *p, o, outputPlace, 0); err != nil || p.Waits == 0 {
		return err
	}
	return tx.Exec("UPDATE outputs SET waits = $1 WHERE run_id = $2 AND seq = 0", p.Waits.Microseconds(), int64(id))
}

func (s *Outputs) insert(tx *engine.Tx, id RunID, seq int64, p OutputPlace, o NewOutput, status string, due int64) error {
	return tx.Exec(`INSERT INTO outputs (run_id, seq, kind, request, bounds, webhook_uid, provider, place, status, detail, posted, due_at, attempts, turn, uncertain, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', $11, 0, 0, 0, $12, $12)`,
		int64(id), seq, o.Kind, o.Request, o.Bounds, p.WebhookUID, p.Provider, p.Place, status, p.Detail, due, micros(s.Now()))
}

// noPlace is why nothing is done of what an agent asks for, if its run has no place for that.
const noPlace = "the run is about no event of a sender"

// wait makes what the agent of a new run asks for, and what it pushes, wait for a person, if this server was told
// so: the worker of the run may be another process.
func (s *Outputs) wait(tx *engine.Tx, id RunID) error {
	wait := s.Approval()
	if wait == 0 {
		return nil
	}
	n, err := tx.ExecCount("UPDATE outputs SET waits = CASE WHEN waits = 0 THEN $1 ELSE waits END WHERE run_id = $2 AND seq = 0", wait.Microseconds(), int64(id))
	if err == nil && n == 0 {
		err = s.place(tx, id, &OutputPlace{Detail: noPlace, Waits: wait}, 0)
	}
	return err
}

// again makes the outputs of a run that somebody starts again go where those of the first one went.
func (s *Outputs) again(tx *engine.Tx, id, first RunID) error {
	return tx.Exec(`INSERT INTO outputs (run_id, seq, kind, request, bounds, webhook_uid, provider, place, status, detail, posted, due_at, attempts, turn, uncertain, created_at, updated_at, waits)
		SELECT $1, 0, '', request, '', webhook_uid, provider, place, status, detail, '', 0, 0, 0, 0, $2, $2, waits FROM outputs WHERE run_id = $3 AND seq = 0`,
		int64(id), micros(s.Now()), int64(first))
}

// ofRun records what the agent of a run asked for that has SUCCEEDED.
func (s *Outputs) ofRun(tx *engine.Tx, id RunID, all []NewOutput) error {
	if len(all) == 0 {
		return nil
	}
	p := OutputPlace{Detail: noPlace}
	var waits int64
	err := tx.Row("SELECT webhook_uid, provider, place, detail, waits FROM outputs WHERE run_id = $1 AND seq = 0", []any{int64(id)}, &p.WebhookUID, &p.Provider, &p.Place, &p.Detail, &waits)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	asks := p.Thread() != "" && slices.ContainsFunc(all, func(o NewOutput) bool { return o.Kind == output.Ask })
	status, due := OutputPending, micros(s.Now())
	wait := cmp.Or(time.Duration(waits)*time.Microsecond, s.Approval())
	switch {
	case asks:
		status, due, wait, p.Detail = OutputNone, 0, 0, "discarded: the run asked a question instead"
		if err := s.store.Answers.ask(tx, id, p); err != nil {
			return err
		}
	case p.Detail != "":
		status, due, wait = OutputNone, 0, 0
	case wait > 0:
		status, due = OutputWaiting, 0
	}
	a := Approval{RunID: id}
	if pushes := slices.ContainsFunc(all, func(o NewOutput) bool { return o.Kind == output.PushKind }); wait > 0 || pushes {
		if err := tx.Row("SELECT factory, automation FROM runs WHERE id = $1", []any{int64(id)}, &a.Factory, &a.Automation); err != nil {
			return err
		}
	}
	for i, o := range all {
		p, status, due, wait := p, status, due, wait
		switch {
		case asks && o.Kind == output.Ask:
			p.Detail, status, due = "", OutputAsked, micros(s.Now().Add(askedTime))
		case !asks && o.Kind == output.PushKind: // it needs no event, and never goes without an approval
			p, status, due, wait = pushPlace(o), OutputWaiting, 0, o.Wait
		}
		if err := s.insert(tx, id, int64(i+1), p, o, status, due); err != nil {
			return err
		}
		if a.Seq = int64(i + 1); wait > 0 {
			if err := s.store.Approvals.insert(tx, a, wait); err != nil {
				return err
			}
		}
	}
	return nil
}

// pushPlace is where a push goes.
func pushPlace(o NewOutput) OutputPlace {
	r, err := output.Parse([]byte(o.Request))
	if err != nil || r.Push == nil {
		return OutputPlace{Provider: "git"}
	}
	place, _ := json.Marshal(map[string]string{"link": r.Push.Repository}) // texts always encode
	return OutputPlace{Provider: "git", Place: string(place)}
}

// Pushed are the newest pushes of runs of an automation that waited for a person, and were made.
func (s *Outputs) Pushed(ctx context.Context, factory, automation string, since time.Time, limit int) (all []*output.Push, err error) {
	requests, err := engine.List(ctx, s.DB, engine.ScanText, `SELECT o.request FROM outputs o JOIN runs r ON r.id = o.run_id
		WHERE o.kind = 'push' AND o.status = 'done' AND o.run_id >= $1 AND r.factory = $2 AND r.automation = $3 ORDER BY o.run_id DESC LIMIT $4`, engine.IDAt(since), factory, automation, limit)
	for _, text := range requests {
		if r, err := output.Parse([]byte(text)); err == nil && r.Push != nil {
			all = append(all, r.Push)
		}
	}
	return all, err
}

// askedTime is how long a question needs a person (SPEC 26.3).
const askedTime = 7 * 24 * time.Hour

// ends ends the open questions after which a run comes: those of its conversation, and those of its
// automation about its subject. It has replied to the question of the run answers, if that is not 0.
func (s *Outputs) ends(tx *engine.Tx, id RunID, r *NewRun) error {
	if !r.Asks && r.Conversation == 0 && r.RetryOf == 0 {
		return nil
	}
	return tx.Exec(`UPDATE outputs SET status = CASE run_id WHEN $1 THEN 'replied' ELSE 'passed' END, detail = $2, due_at = 0, updated_at = $3
		WHERE due_at <> 0 AND status = 'asked' AND EXISTS (SELECT 1 FROM runs q WHERE q.id = outputs.run_id AND q.factory = $4 AND q.automation = $5
			AND (q.subject = $6 AND q.subject <> '' OR q.id = $1 OR q.id = $7 OR q.conversation_id = $8 AND q.conversation_id <> 0 OR q.id = $8))`,
		int64(r.answers), id.String(), micros(s.Now()), r.Factory, r.Automation, r.Subject, int64(r.RetryOf), int64(r.Conversation))
}

// Question is what a run replies to; nil: nothing.
func (s *Outputs) Question(ctx context.Context, reply RunID) (*Output, error) {
	asker, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT request FROM outputs WHERE run_id = $1 AND seq = 0 AND request <> ''", int64(reply))
	if err != nil || len(asker) == 0 {
		return nil, err
	}
	id, err := ParseID[Run](asker[0])
	if err != nil {
		return nil, err
	}
	return s.QuestionOf(ctx, id)
}

// QuestionOf is what a run asked a person; nil: nothing.
func (s *Outputs) QuestionOf(ctx context.Context, id RunID) (*Output, error) {
	all, err := s.Of(ctx, id)
	i := slices.IndexFunc(all, func(o Output) bool { return o.Kind == output.Ask && o.Status != OutputNone })
	if err != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}

// Asked are the newest questions of a factory's runs that are open and need a person, with their automations.
func (s *Outputs) Asked(ctx context.Context, factory string, limit int) ([]Output, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (o Output, err error) {
		var updated int64
		err = rows.Scan(&o.RunID, &o.Request, &o.Place, &o.Provider, &updated, &o.Automation)
		o.Kind, o.Status, o.UpdatedAt = output.Ask, OutputAsked, timeOf(updated)
		return o, err
	}, `SELECT o.run_id, o.request, o.place, o.provider, o.updated_at, r.automation FROM outputs o JOIN runs r ON r.id = o.run_id
		WHERE o.due_at <> 0 AND o.due_at > $1 AND o.status = 'asked' AND r.factory = $2 ORDER BY o.run_id DESC LIMIT $3`, micros(s.Now()), factory, limit)
}

const outputColumns = `run_id, seq, kind, request, bounds, webhook_uid, provider, place, status, detail, posted, due_at, attempts, turn, uncertain, created_at, updated_at, waits`

func scanOutput(rows *sql.Rows) (o Output, err error) {
	var due, uncertain, created, updated, waits int64
	err = rows.Scan(&o.RunID, &o.Seq, &o.Kind, &o.Request, &o.Bounds, &o.WebhookUID, &o.Provider, &o.Place, &o.Status, &o.Detail, &o.Posted, &due, &o.Attempts, &o.Turn, &uncertain, &created, &updated, &waits)
	o.Waits = time.Duration(waits) * time.Microsecond
	o.Uncertain, o.DueAt, o.CreatedAt, o.UpdatedAt = uncertain != 0, timeOf(due), timeOf(created), timeOf(updated)
	return o, err
}

// Place is where the outputs of a run go; nil: nothing says so.
func (s *Outputs) Place(ctx context.Context, id RunID) (*OutputPlace, error) {
	all, err := engine.List(ctx, s.DB, scanOutput, "SELECT "+outputColumns+" FROM outputs WHERE run_id = $1 AND seq = 0", int64(id))
	if len(all) == 0 {
		return nil, err
	}
	return &all[0].OutputPlace, nil
}

// Of are the outputs of runs, in the order in which they were asked for.
func (s *Outputs) Of(ctx context.Context, runs ...RunID) ([]Output, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	w := where{}
	w.add(in(&w, "run_id", runs))
	w.add("seq > 0")
	return engine.List(ctx, s.DB, scanOutput, "SELECT "+outputColumns+" FROM outputs"+w.sql()+" ORDER BY run_id, seq", w.args...)
}

// Due are outputs that are to be performed now, of each webhook the first ones. An output waits for
// those of its run that come before it, and a pull request also for pushes about which nobody has decided.
func (s *Outputs) Due(ctx context.Context, perWebhook int) ([]Output, error) {
	return engine.List(ctx, s.DB, scanOutput, "SELECT "+outputColumns+` FROM (
		SELECT outputs.*, ROW_NUMBER() OVER (PARTITION BY webhook_uid ORDER BY run_id, seq) AS nth FROM outputs WHERE due_at <> 0 AND due_at <= $1 AND status = 'pending'
		AND NOT EXISTS (SELECT 1 FROM outputs b WHERE b.run_id = outputs.run_id AND b.seq < outputs.seq
			AND (b.status = 'pending' OR b.status = 'waiting' AND b.kind = 'push' AND outputs.kind = 'createPullRequest'))
	) o WHERE nth <= $2 ORDER BY nth, run_id, seq`, micros(s.Now()), perWebhook)
}

// Begin takes the turn to perform an output, until a time. taken is false if another server has it.
func (s *Outputs) Begin(ctx context.Context, o *Output, until time.Time) (taken bool, err error) {
	n := int64(0)
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		n, err = tx.ExecCount(`UPDATE outputs SET turn = turn + 1, uncertain = 1, attempts = attempts + 1, due_at = $1, updated_at = $2
			WHERE run_id = $3 AND seq = $4 AND turn = $5 AND status = 'pending'`, micros(until), micros(s.Now()), int64(o.RunID), o.Seq, o.Turn)
		return err
	})
	if err == nil && n == 1 {
		o.Turn++
		o.Attempts++
		return true, nil
	}
	return false, err
}

// Save records how a turn went, unless another server has the turn meanwhile.
func (s *Outputs) Save(ctx context.Context, o Output) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		n, err := tx.ExecCount("UPDATE outputs SET due_at = $1, attempts = $2, uncertain = $3, posted = $4, status = $5, detail = $6, updated_at = $7 WHERE run_id = $8 AND seq = $9 AND turn = $10",
			micros(o.DueAt), o.Attempts, number(o.Uncertain), o.Posted, o.Status, o.Detail, micros(s.Now()), int64(o.RunID), o.Seq, o.Turn)
		if err != nil || n == 0 || o.Kind != output.Pull || o.Status != OutputDone || o.Link() == "" {
			return err
		}
		title := ""
		if r, err := output.Parse([]byte(o.Request)); err == nil {
			title = r.Title
		}
		err = s.store.Artifacts.insert(tx, &Artifact{RunID: o.RunID, Type: "PULL_REQUEST", Name: title, URL: o.Link(), CreatedAt: s.Now()})
		if err == nil {
			err = s.store.Answers.retell(tx, o.RunID) // it names the pull requests
		}
		return err
	})
}

// Again makes the outputs of a run that were given up due once more. It is ErrConflict if there are none.
// Where an earlier attempt may have done something, that is looked for first.
func (s *Outputs) Again(ctx context.Context, id RunID) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		n, err := tx.ExecCount(`UPDATE outputs SET status = 'pending', due_at = $1, created_at = $1, updated_at = $1, attempts = 0, turn = turn + 1
			WHERE run_id = $2 AND status = 'failed'`, micros(s.Now()), int64(id))
		if err == nil && n == 0 {
			return fmt.Errorf("no output of %s was given up: %w", id, ErrConflict)
		}
		return err
	})
}

// HasMarker tells whether a marker is of what an output has made.
func (s *Outputs) HasMarker(o *Output, marker string) bool {
	return hmac.Equal([]byte(marker), []byte(s.Marker(o)))
}

// Marker is the text that tells what an output has made from other texts.
func (s *Outputs) Marker(o *Output) string {
	return s.store.Answers.Marker(o.RunID, "output "+strconv.FormatInt(o.Seq, 10), o.Kind)
}

// Failed are the newest outputs of a factory's runs that were given up, with their automations.
func (s *Outputs) Failed(ctx context.Context, factory string, since time.Time, limit int) ([]Output, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (o Output, err error) {
		var updated int64
		err = rows.Scan(&o.RunID, &o.Seq, &o.Kind, &o.Provider, &o.Detail, &updated, &o.Automation)
		o.Status, o.UpdatedAt = OutputFailed, timeOf(updated)
		return o, err
	}, `SELECT o.run_id, o.seq, o.kind, o.provider, o.detail, o.updated_at, r.automation FROM outputs o JOIN runs r ON r.id = o.run_id
		WHERE o.status = 'failed' AND o.run_id >= $1 AND r.factory = $2 ORDER BY o.run_id DESC, o.seq LIMIT $3`, engine.IDAt(since), factory, limit)
}

// Where is where it is done, for people: its page, or else its name; empty: there is none.
func (o *Output) Where() string { return (&Answer{NewAnswer: NewAnswer{Place: o.Place}}).Where() }

// Link is the page of what was made at the sender, or empty.
func (o *Output) Link() string {
	var at struct{ Link string }
	if json.Unmarshal([]byte(o.Posted), &at) != nil {
		return ""
	}
	return at.Link
}
