package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// Kinds of an Answer.
const (
	AnswerThread = "thread" // text where the event came from
	AnswerCheck  = "check"  // the state of the commit that the event is about
	AnswerURL    = "url"    // messages to an address that a definition names
	// AnswerQuestion is the question of a run; the thread is told nothing else about it (SPEC 26.3).
	AnswerQuestion = "question"

	// What is told of a delivery without a run (NewDelivery.Told).
	AnswerUnmatched = "unmatched" // that no automation takes it, though the sender waits for an answer
	AnswerIdle      = "idle"      // that there was nothing to stop
)

// States of an Answer.
const (
	AnswerPending   = "pending"
	AnswerDelivered = "delivered"
	AnswerFailed    = "failed" // it was given up, and needs a person
	AnswerNone      = "none"   // there is no place, or no credential, for an answer
)

// What an Answer says next.
const (
	AnswerSign    = "sign"    // the cheap first sign
	AnswerStart   = "start"   // that the run has started, or what it waits for
	AnswerEnd     = "end"     // how the run ended; it waits for that
	AnswerMention = "mention" // the end once more, to the person who asked
)

// signPatience is how long the server that committed a delivery has for the first sign, before
// another server gives it.
const signPatience = 10 * time.Second

// StartPatience is how long a run waits before its answer says what it waits for (SPEC 22.2).
const StartPatience = time.Minute

// pullPatience is how long the end of a run waits for the pull requests that the run asked for.
const pullPatience = 30 * time.Second

// Answer is what is told of a run in one place (SPEC 22), or of a delivery without a run.
type Answer struct {
	RunID      RunID // without a run, the delivery's id: ids of all kinds differ
	DeliveryID DeliveryID
	Factory    string
	Automation string
	NewAnswer
	Ended     bool      // the run has ended
	DueAt     time.Time // of the next attempt; zero: there is none
	Since     time.Time // when Next was due first
	Attempts  int64     // at Next
	Turn      int64     // fences servers that send it
	Uncertain bool      // an attempt at Next began, and its outcome is not known
	Said      string    // the state that was said last
	CreatedAt time.Time
	UpdatedAt time.Time
	Run       RunState // the state of the run; only Answers.Due knows it
}

// OfDelivery tells whether the answer is of a delivery without a run.
func (a *Answer) OfDelivery() bool { return a.RunID == RunID(a.DeliveryID) }

// NewAnswer is an answer to record with its run.
type NewAnswer struct {
	Kind       string
	WebhookUID string
	Provider   string
	Place      string // JSON; empty: there is none
	PlaceKey   string // equal for answers that go to one place
	Brief      bool   // outcome and link alone
	Next       string
	Posted     string // JSON of what stands at the sender; empty: nothing
	Status     string // AnswerPending or AnswerNone
	Detail     string // of the last failure, or why there is no answer
}

// Answers are what is told, or still to be told, of runs where their events came from. They are
// never dropped for their number.
type Answers struct{ *db }

// insert records the answers of a new run.
func (s *Answers) insert(tx *engine.Tx, id RunID, delivery DeliveryID, r *NewRun) error {
	now := s.Now()
	for _, a := range r.Answers {
		due := map[string]time.Time{AnswerSign: now.Add(signPatience), AnswerStart: now.Add(StartPatience)}[a.Next]
		ended := id == RunID(delivery)
		if ended || r.Approval != nil && a.Next == AnswerStart { // a person is waited for
			due = now
		}
		err := tx.Exec(`INSERT INTO answers (run_id, kind, factory, automation, delivery_id, webhook_uid, provider, place, place_key, brief, next, ended, due_at,
			since, attempts, turn, uncertain, posted, said, status, detail, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0, '', '', $15, $16, $14, $14)`,
			int64(id), a.Kind, r.Factory, r.Automation, int64(delivery), a.WebhookUID, a.Provider, a.Place, a.PlaceKey, number(a.Brief), a.Next, number(ended),
			micros(due), micros(now), a.Status, a.Detail)
		if err != nil {
			return err
		}
	}
	return nil
}

// tell records what is told of a delivery without a run.
func (s *Answers) tell(tx *engine.Tx, id DeliveryID, d *NewDelivery) error {
	return s.insert(tx, RunID(id), id, &NewRun{Factory: d.Factory, Answers: d.Told})
}

// stop cancels the runs of a factory that are answered in a place and have not ended, the newest first, so
// that none starts because another one ends.
func (s *Answers) stop(tx *engine.Tx, factory, placeKey, why string) (stopped []RunID, err error) {
	err = tx.Each(`SELECT r.id FROM answers a JOIN runs r ON r.id = a.run_id WHERE a.place_key = $1 AND a.factory = $2
		AND r.state IN ('QUEUED', 'HELD', 'INPROGRESS') ORDER BY r.id DESC`, []any{placeKey, factory}, func(rows *sql.Rows) (bool, error) {
		var id RunID
		err := rows.Scan(&id)
		stopped = append(stopped, id)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range stopped {
		if err := s.store.Runs.stop(tx, id, StopCancel, why); err != nil {
			return nil, err
		}
	}
	return stopped, nil
}

// inThreads are the runs of a delivery, with the conversations that replies go on with (SPEC 21.6). What is
// nothing but a reply is taken by the automation that answered in the thread last.
func (s *Answers) inThreads(tx *engine.Tx, d *NewDelivery) ([]NewRun, error) {
	if !slices.ContainsFunc(d.Runs, func(r NewRun) bool { return r.Thread != "" }) {
		return d.Runs, nil
	}
	var all []NewRun
	newest, only := RunID(0), -1
	for _, r := range d.Runs {
		var last, conversation RunID
		var subject string
		err := ErrNotFound
		if r.Thread != "" && r.Asks {
			err = tx.Row(`SELECT r.id, CASE r.conversation_id WHEN 0 THEN r.id ELSE r.conversation_id END, r.subject FROM answers a JOIN runs r ON r.id = a.run_id
				JOIN outputs o ON o.run_id = r.id WHERE o.status = 'asked' AND a.place_key = $1 AND a.factory = $2 AND a.automation = $3 ORDER BY a.run_id DESC LIMIT 1`,
				[]any{r.Thread, r.Factory, r.Automation}, &last, &conversation, &subject)
			if r.answers = last; last != 0 {
				r.PerSubject = ""
			}
		}
		if r.Thread != "" && errors.Is(err, ErrNotFound) && !r.ToQuestion {
			err = tx.Row(`SELECT r.id, CASE r.conversation_id WHEN 0 THEN r.id ELSE r.conversation_id END, r.subject FROM answers a JOIN runs r ON r.id = a.run_id
				WHERE a.place_key = $1 AND a.status <> 'none' AND a.factory = $2 AND a.automation = $3 AND NOT (r.state = 'HELD' AND r.run_at = $4)
				ORDER BY (r.attempt > 0 OR r.state <> 'CANCELLED') DESC, a.run_id DESC LIMIT 1`, // who waits to be approved keeps nobody, and who never began has no conversation
				[]any{r.Thread, r.Factory, r.Automation, int64(untilApproved)}, &last, &conversation, &subject)
		}
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		case last == 0:
		case r.OnlyReply || r.PerSubject == "":
			r.PerSubject, r.Settle, r.goesOn, r.Subject = PerSubjectContinue, 0, conversation, cmp.Or(subject, r.Subject)
		}
		if r.OnlyReply { // one run at most, of the automation that was last
			if last <= newest {
				continue
			}
			if newest = last; only >= 0 {
				all = slices.Delete(all, only, only+1)
			}
			only = len(all)
		}
		all = append(all, r)
	}
	return all, nil
}

// ask makes a question of a run that has ended be told where its event came from, also if nothing else of
// it is.
func (s *Answers) ask(tx *engine.Tx, id RunID, p OutputPlace) error {
	return tx.Exec(`INSERT INTO answers (run_id, kind, factory, automation, delivery_id, webhook_uid, provider, place, place_key, brief, next, ended, due_at,
		since, attempts, turn, uncertain, posted, said, status, detail, created_at, updated_at)
		SELECT id, 'question', factory, automation, delivery_id, $1, $2, $3, $4, 0, 'end', 1, $5, $5, 0, 0, 0, '', '', 'pending', '', $5, $5 FROM runs
		WHERE id = $6 AND NOT EXISTS (SELECT 1 FROM answers WHERE run_id = $6 AND kind = 'thread' AND status <> 'none')`,
		p.WebhookUID, p.Provider, p.Place, p.Thread(), micros(s.Now()), int64(id))
}

// decided makes what was told of a run say who decided, in place of how people decide.
func (s *Answers) decided(tx *engine.Tx, id RunID) error {
	if err := tx.Exec(`UPDATE answers SET due_at = $1 WHERE run_id = $2 AND kind = 'thread' AND status = 'pending' AND next = 'start' AND posted <> ''`, micros(s.Now()), int64(id)); err != nil {
		return err
	}
	return s.retell(tx, id)
}

// retell makes the end that was told of a run say what has changed since. It edits the text that stands there, unless
// that tells of a newer run by now. An end that is on its way is told once more, and a mention that waits follows it.
func (s *Answers) retell(tx *engine.Tx, id RunID) error {
	return tx.Exec(`UPDATE answers SET status = 'pending', said = CASE next WHEN 'mention' THEN '' ELSE said END, next = 'end', due_at = $1, since = $1, attempts = 0,
		turn = turn + 1, updated_at = $1 WHERE run_id = $2 AND kind = 'thread' AND ended = 1 AND posted <> ''
		AND (status = 'delivered' OR status = 'pending' AND (next = 'end' AND uncertain = 1 OR next = 'mention' AND uncertain = 0))
		AND NOT EXISTS (SELECT 1 FROM answers b WHERE b.place_key = answers.place_key AND b.kind = answers.kind AND b.run_id > $2 AND b.posted = answers.posted)`, micros(s.Now()), int64(id))
}

// again makes a run that somebody starts again answer as the first one did. It edits the text of that one.
func (s *Answers) again(tx *engine.Tx, id, first RunID) error {
	return tx.Exec(`INSERT INTO answers (run_id, kind, factory, automation, delivery_id, webhook_uid, provider, place, place_key, brief, next, ended, due_at,
		since, attempts, turn, uncertain, posted, said, status, detail, created_at, updated_at)
		SELECT $1, kind, factory, automation, delivery_id, webhook_uid, provider, place, place_key, brief, 'start', 0, $2,
		$3, 0, 0, 0, posted, '', 'pending', '', $3, $3 FROM answers WHERE run_id = $4 AND status <> 'none' AND kind <> 'question'`,
		int64(id), micros(s.Now().Add(StartPatience)), micros(s.Now()), int64(first))
}

// ofRun notes that a run has ended. What is being sent is sent first.
func (s *Answers) ofRun(tx *engine.Tx, id RunID) error {
	return tx.Exec(`UPDATE answers SET ended = 1, since = $1, next = CASE uncertain WHEN 1 THEN next ELSE 'end' END,
		attempts = CASE uncertain WHEN 1 THEN attempts ELSE 0 END, due_at = CASE uncertain WHEN 1 THEN due_at ELSE $1 END
		WHERE run_id = $2 AND ended = 0 AND status = 'pending'`, micros(s.Now()), int64(id))
}

// superseded leaves out what nobody has been told yet of a run that gives way to another run before
// it began: in a burst, the newest run alone answers.
func (s *Answers) superseded(tx *engine.Tx, id, by RunID) error {
	return tx.Exec(`UPDATE answers SET status = 'none', detail = $1, ended = 1, due_at = 0 WHERE run_id = $2 AND status = 'pending' AND said = '' AND uncertain = 0
		AND EXISTS (SELECT 1 FROM runs WHERE id = $2 AND attempt = 0)`, by.String()+" took its place before it began", int64(id))
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

const answerColumns = `a.run_id, a.kind, a.factory, a.automation, a.delivery_id, a.webhook_uid, a.provider, a.place, a.place_key, a.brief, a.next, a.ended, a.due_at,
	a.since, a.attempts, a.turn, a.uncertain, a.posted, a.said, a.status, a.detail, a.created_at, a.updated_at`

func scanAnswer(rows *sql.Rows) (a Answer, err error) {
	var brief, ended, uncertain, due, since, created, updated int64
	err = rows.Scan(&a.RunID, &a.Kind, &a.Factory, &a.Automation, &a.DeliveryID, &a.WebhookUID, &a.Provider, &a.Place, &a.PlaceKey, &brief, &a.Next, &ended, &due,
		&since, &a.Attempts, &a.Turn, &uncertain, &a.Posted, &a.Said, &a.Status, &a.Detail, &created, &updated, &a.Run)
	a.Brief, a.Ended, a.Uncertain = brief != 0, ended != 0, uncertain != 0
	a.DueAt, a.Since, a.CreatedAt, a.UpdatedAt = timeOf(due), timeOf(since), timeOf(created), timeOf(updated)
	return a, err
}

// Of are the answers of runs, those of the oldest run first.
func (s *Answers) Of(ctx context.Context, runs ...RunID) ([]Answer, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	w := where{}
	w.add(in(&w, "a.run_id", runs))
	return engine.List(ctx, s.DB, scanAnswer, "SELECT "+answerColumns+", '' FROM answers a"+w.sql()+" ORDER BY a.run_id, a.kind", w.args...)
}

// Due are answers that are to be sent now, of each webhook the first ones: ends before all others,
// and those of the oldest runs first. A start is due when its run has started. An answer waits for
// those of older runs in its place that are due. An end waits a moment for pull requests, which it names.
func (s *Answers) Due(ctx context.Context, perWebhook int) ([]Answer, error) {
	return engine.List(ctx, s.DB, scanAnswer, "SELECT "+answerColumns+`, a.state FROM (
		SELECT answers.*, coalesce(r.state, '') AS state, ROW_NUMBER() OVER (PARTITION BY webhook_uid
			ORDER BY CASE WHEN next IN ('end', 'mention') THEN 0 ELSE 1 END, run_id) AS nth
		FROM answers LEFT JOIN runs r ON r.id = run_id
		WHERE due_at <> 0 AND (due_at <= $1 OR next = 'start' AND attempts = 0 AND uncertain = 0 AND said <> 'started' AND r.state NOT IN ('QUEUED', 'HELD'))
		AND NOT EXISTS (SELECT 1 FROM answers b WHERE b.place_key = answers.place_key AND b.run_id < answers.run_id AND b.due_at <> 0
			AND b.next IN ('end', 'mention'))
		AND NOT (next = 'end' AND since > $2 AND EXISTS (SELECT 1 FROM outputs o WHERE o.run_id = answers.run_id AND o.kind = 'createPullRequest' AND o.status = 'pending'))
	) a WHERE nth <= $3 ORDER BY nth, run_id`, micros(s.Now()), micros(s.Now().Add(-pullPatience)), perWebhook)
}

// Begin takes the turn to send an answer, until a time. taken is false if another server has it, or
// if the answer has changed.
func (s *Answers) Begin(ctx context.Context, a *Answer, until time.Time) (taken bool, err error) {
	n := int64(0)
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		n, err = tx.ExecCount(`UPDATE answers SET turn = turn + 1, uncertain = 1, attempts = attempts + 1, due_at = $1, updated_at = $2
			WHERE run_id = $3 AND kind = $4 AND turn = $5 AND next = $6 AND status = 'pending'`,
			micros(until), micros(s.Now()), int64(a.RunID), a.Kind, a.Turn, a.Next)
		return err
	})
	if err == nil && n == 1 {
		a.Turn++
		a.Attempts++
		return true, nil
	}
	return false, err
}

// Save records how a turn went, unless another server has the turn meanwhile. If the run has
// ended during the turn, its end is due.
func (s *Answers) Save(ctx context.Context, a Answer) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		n, err := tx.ExecCount(`UPDATE answers SET next = $1, due_at = $2, attempts = $3, uncertain = $4, posted = $5, said = $6, status = $7, detail = $8, updated_at = $9,
			since = CASE next WHEN $1 THEN since ELSE $9 END WHERE run_id = $10 AND kind = $11 AND turn = $12`,
			a.Next, micros(a.DueAt), a.Attempts, number(a.Uncertain), a.Posted, a.Said, a.Status, a.Detail, micros(s.Now()), int64(a.RunID), a.Kind, a.Turn)
		if err != nil || n == 0 {
			return err
		}
		return s.overtake(tx, a.RunID)
	})
}

// overtake makes the end of a run due that ended while something else was sent.
func (s *Answers) overtake(tx *engine.Tx, id RunID) error {
	return tx.Exec(`UPDATE answers SET next = 'end', due_at = $1, attempts = 0, since = $1 WHERE run_id = $2 AND ended = 1 AND status = 'pending' AND uncertain = 0
		AND (next IN ('sign', 'start') OR next = 'end' AND due_at = 0)`, micros(s.Now()), int64(id))
}

// Signed records that the first sign was given, or why not, and what is said then.
func (s *Answers) Signed(ctx context.Context, a Answer) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		err := tx.Exec("UPDATE answers SET next = $1, due_at = $2, since = $3, detail = $4, updated_at = $3 WHERE run_id = $5 AND kind = $6 AND next = 'sign' AND ended = 0",
			a.Next, micros(a.DueAt), micros(s.Now()), a.Detail, int64(a.RunID), a.Kind)
		return err
	})
}

// Where is the place of the answer for people: its page, or else its name; empty: there is none.
func (a *Answer) Where() string {
	return whereOf(a.Place, a.Kind == AnswerCheck)
}

func whereOf(place string, check bool) string {
	var at struct{ Link, Container, Thread, Commit string }
	switch err := json.Unmarshal([]byte(place), &at); {
	case err != nil:
		return ""
	case check && at.Commit != "":
		return at.Container + "@" + at.Commit
	case at.Link != "":
		return at.Link
	}
	return strings.TrimSpace(at.Container + " " + at.Thread)
}

// Again makes the answers of a run that were given up due once more. It is ErrConflict if there are none. What
// may stand at the sender is looked for first.
func (s *Answers) Again(ctx context.Context, id RunID) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		n, err := tx.ExecCount(`UPDATE answers SET status = 'pending', next = CASE next WHEN 'mention' THEN next ELSE 'end' END, due_at = $1, since = $1, attempts = 0, turn = turn + 1, updated_at = $1
			WHERE run_id = $2 AND status = 'failed' AND ended = 1`, micros(s.Now()), int64(id))
		if err == nil && n == 0 {
			return fmt.Errorf("no answer of %s was given up: %w", id, ErrConflict)
		}
		return err
	})
}

// Link is the page of what stands at the sender, or empty.
func (a *Answer) Link() string {
	var at struct{ Link string }
	if json.Unmarshal([]byte(a.Posted), &at) != nil {
		return ""
	}
	return at.Link
}

// Earlier is what stands in the place of an answer from an earlier run of its automation, as JSON;
// empty: nothing. What only insiders see and what all see are texts of their own.
func (s *Answers) Earlier(ctx context.Context, a *Answer) (posted string, err error) {
	all, err := engine.List(ctx, s.DB, engine.ScanText, `SELECT posted FROM answers WHERE place_key = $1 AND run_id < $2 AND factory = $3 AND automation = $4 AND kind = $5
		AND posted <> '' AND (place LIKE $6) = (CAST($7 AS TEXT) LIKE $6) ORDER BY run_id DESC LIMIT 1`, a.PlaceKey, int64(a.RunID), a.Factory, a.Automation, a.Kind, `%"internal":true%`, a.Place)
	if len(all) > 0 {
		posted = all[0]
	}
	return posted, err
}

// Failed are the newest answers of a factory that were given up.
func (s *Answers) Failed(ctx context.Context, factory string, since time.Time, limit int) ([]Answer, error) {
	return engine.List(ctx, s.DB, scanAnswer, "SELECT "+answerColumns+`, '' FROM answers a WHERE a.status = 'failed' AND a.run_id >= $1 AND a.factory = $2
		ORDER BY a.run_id DESC LIMIT $3`, engine.IDAt(since), factory, limit)
}

// PlaceKey is the NewAnswer.PlaceKey of a place: what is about, in a container, or empty.
func PlaceKey(webhookUID, kind, container, placeKind, about string) string {
	return strings.Join([]string{webhookUID, kind, container, placeKind, about}, "\x1f")
}

// HasMarker tells whether a marker is of a text of an answer.
func (s *Answers) HasMarker(a *Answer, marker string) bool {
	return a.Place != "" && (hmac.Equal([]byte(marker), []byte(s.Marker(a.RunID, a.PlaceKey, "text"))) || hmac.Equal([]byte(marker), []byte(s.Marker(a.RunID, a.PlaceKey, "mention"))))
}

// markerPrefix begins all markers.
const markerPrefix = "triphammer:run_"

// HasMarker tells whether bytes may have a marker of an answer.
func HasMarker(data []byte) bool { return bytes.Contains(data, []byte(markerPrefix)) }

// Marker is the text that tells an answer of this server from other texts. what tells apart what is
// said in one place.
func (s *Answers) Marker(run RunID, placeKey, what string) string {
	mac := hmac.New(sha256.New, s.key.Derive("markers of answers"))
	_, _ = mac.Write([]byte(run.String() + "\x00" + placeKey + "\x00" + what)) // never fails
	return "triphammer:" + run.String() + ":" + hex.EncodeToString(mac.Sum(nil)[:16])
}
