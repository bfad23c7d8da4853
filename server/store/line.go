package store

import (
	"cmp"
	"database/sql"
	"errors"

	"triphammer/server/store/internal/engine"
)

// What an event does while a run of its automation for the same subject is queued or at work
// (SPEC 21.3): values of NewRun.PerSubject. Anything else is parallel: it starts a run.
const (
	PerSubjectQueue    = "queue"    // its run waits for those before it
	PerSubjectReplace  = "replace"  // its run starts when the older ones, which are cancelled, have ended
	PerSubjectSkip     = "skip"     // it starts nothing
	PerSubjectContinue = "continue" // its run goes on with the conversation of the older one
)

// maxSettle is how many times NewRun.Settle an event can wait for newer ones.
const maxSettle = 10

// Skip is an automation that a delivery did not start, because a run about the same subject was
// queued or at work (SPEC 21.3).
type Skip struct {
	Automation string
	Of         RunID
}

// Lines are the runs of automations with rules about subjects, in the order of their deliveries,
// until they end.
type Lines struct{ *db }

// inLine tells whether a run keeps to a line: the runs of one automation about one subject, in the
// order of their deliveries. A run that a person starts does not.
func (r *NewRun) inLine() bool {
	return r.Subject != "" && r.RetryOf == 0 && (r.PerSubject != "" || r.Settle > 0)
}

// lined is a run of a line that has not ended.
type lined struct {
	id                 RunID
	delivery           DeliveryID
	firstAt, settlesAt int64
	state              RunState
	runAt, attempt     int64
	conversation       RunID
	counts             int64  // when it counts for MaxPerHour
	person             string // as personKey has it
}

const selectLined = `SELECT l.run_id, l.delivery_id, l.first_at, l.settles_at, r.state, r.run_at, r.attempt, CASE r.conversation_id WHEN 0 THEN r.id ELSE r.conversation_id END,
	CASE r.counts_at WHEN 0 THEN r.created_at ELSE r.counts_at END, r.person FROM lines l JOIN runs r ON r.id = l.run_id WHERE l.factory = $1 AND l.automation = $2 AND l.subject = $3 `

// waits tells whether it waits for another run.
func (l *lined) waits() bool { return l.state == held && l.runAt == untilReleased }

// unstarted tells whether no attempt of it has begun.
func (l *lined) unstarted() bool { return l.state != InProgress && l.attempt == 0 }

func listLined(tx *engine.Tx, rest string, args ...any) (all []lined, err error) {
	err = tx.Each(selectLined+rest, args, func(rows *sql.Rows) (bool, error) {
		var l lined
		err := rows.Scan(&l.id, &l.delivery, &l.firstAt, &l.settlesAt, &l.state, &l.runAt, &l.attempt, &l.conversation, &l.counts, &l.person)
		l.person = personKey(l.person)
		all = append(all, l)
		return true, err
	})
	return all, err
}

// place is what the rules of an automation make of a new run.
type place struct {
	skippedFor RunID   // the run because of which it is not started, or none
	older      []lined // that are cancelled in favour of it
	newer      RunID   // in favour of which it is cancelled itself, or none
	before     RunID   // for which it waits, or none
	goesOn     RunID   // the conversation of a live run, which it goes on with, or none
	firstAt    int64
	settlesAt  int64
}

// freed are the times at which runs for a person (empty: for all) counted that never start now.
func (p *place) freed(person string) (times []int64) {
	for _, l := range p.older {
		if l.unstarted() && (person == "" || l.person == personKey(person)) {
			times = append(times, l.counts)
		}
	}
	return times
}

// place finds the place of a new run in its line, and changes nothing. Newer is what a delivery
// with a higher id started: the run of a lookup can come after the run of a newer delivery.
func (s *Lines) place(tx *engine.Tx, r *NewRun, delivery DeliveryID) (place, error) {
	most := " LIMIT 2" // no rule but replace needs all
	if r.PerSubject == PerSubjectReplace {
		most = ""
	}
	live, err := listLined(tx, "ORDER BY l.delivery_id DESC, l.run_id DESC"+most, r.Factory, r.Automation, r.Subject)
	if err != nil {
		return place{}, err
	}
	now := micros(s.Now())
	p := place{firstAt: now}
	var rest []lined
	for _, l := range live {
		switch {
		case r.Settle <= 0 || l.settlesAt <= now || !l.unstarted():
			rest = append(rest, l)
		case l.delivery > delivery:
			p.newer = l.id
		default:
			p.older = append(p.older, l)
			p.firstAt = min(p.firstAt, l.firstAt)
		}
	}
	if r.Settle > 0 {
		p.settlesAt = min(now+r.Settle.Microseconds(), p.firstAt+maxSettle*r.Settle.Microseconds())
	}
	if len(rest) == 0 || p.newer != 0 {
		return p, nil
	}
	switch r.PerSubject {
	case PerSubjectQueue:
		p.before = rest[0].id
	case PerSubjectSkip:
		p.skippedFor = rest[len(rest)-1].id
	case PerSubjectContinue:
		p.goesOn = rest[0].conversation
	case PerSubjectReplace:
		if rest[0].delivery > delivery {
			p.newer = rest[0].id
			break
		}
		for _, l := range rest {
			if l.state == InProgress {
				p.before = l.id
			}
		}
		p.older = append(p.older, rest...)
	}
	return p, nil
}

// take puts a new run into its line, and cancels what its rules replace. It returns the runs
// that were cancelled or asked to stop.
func (s *Lines) take(tx *engine.Tx, id RunID, r *NewRun, delivery DeliveryID, p *place) (stopped []RunID, err error) {
	if p.newer != 0 {
		return []RunID{id}, s.replace(tx, id, p.newer)
	}
	for _, l := range p.older { // before it is in the line itself, where it would count as at work
		if err := s.replace(tx, l.id, id); err != nil {
			return nil, err
		}
		stopped = append(stopped, l.id)
	}
	err = tx.Exec("INSERT INTO lines (factory, automation, subject, delivery_id, run_id, first_at, settles_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
		r.Factory, r.Automation, r.Subject, int64(delivery), int64(id), p.firstAt, p.settlesAt)
	if err != nil {
		return nil, err
	}
	if p.before != 0 {
		err := tx.Exec("UPDATE runs SET state = 'HELD', run_at = $1, status_message = $2 WHERE id = $3", int64(untilReleased), waitsForTurn(p.before, r.Subject), id)
		return stopped, err
	}
	if r.PerSubject == PerSubjectContinue {
		behind, err := s.goOn(tx, id, r, cmp.Or(r.goesOn, p.goesOn))
		if err != nil || behind {
			return stopped, err
		}
	}
	if p.settlesAt <= micros(s.Now()) {
		return stopped, nil
	}
	return stopped, s.holdUntil(tx, id, p.settlesAt, "waits for further events of "+r.Subject)
}

// waitsForTurn is the message of a run that waits for the run before it in its line.
func waitsForTurn(before RunID, subject string) string {
	return "waits for " + before.String() + ", which is about " + subject + " too"
}

// holdUntil makes a queued run wait for a time, unless it waits for a later one.
func (s *Lines) holdUntil(tx *engine.Tx, id RunID, until int64, why string) error {
	return tx.Exec("UPDATE runs SET state = 'HELD', run_at = $1, status_message = $2 WHERE id = $3 AND run_at < $1", until, why, id)
}

// replace cancels a run in favour of a newer run.
func (s *Lines) replace(tx *engine.Tx, id, by RunID) error {
	if err := tx.Exec("UPDATE runs SET replaced_by = $1 WHERE id = $2", by, id); err != nil {
		return err
	}
	if err := s.store.Answers.superseded(tx, id, by); err != nil {
		return err
	}
	return s.store.Runs.stop(tx, id, StopCancel, "cancelled in favour of "+by.String())
}

// goOn makes a new run go on with the conversation of its subject, if one is kept, and tells
// whether it waits for a run of the conversation. live is the conversation of a run that has not
// ended or that is answered in the thread of a reply, or none.
func (s *Lines) goOn(tx *engine.Tx, id RunID, r *NewRun, live RunID) (behind bool, err error) {
	conversation := live
	if live == 0 {
		err := tx.Row("SELECT conversation_id FROM subject_conversations WHERE factory = $1 AND automation = $2 AND subject = $3",
			[]any{r.Factory, r.Automation, r.Subject}, &conversation)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	if conversation != 0 {
		err := s.store.Conversations.join(tx, id, conversation, r.EndedAfter)
		switch {
		case errors.Is(err, ErrNoSession), errors.Is(err, ErrExpired), errors.Is(err, ErrNotFound):
			conversation = 0 // it begins anew
		case err != nil:
			return false, err
		}
	}
	conversation = cmp.Or(conversation, id)
	err = tx.Exec(`INSERT INTO subject_conversations (factory, automation, subject, conversation_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (factory, automation, subject) DO UPDATE SET conversation_id = excluded.conversation_id`, r.Factory, r.Automation, r.Subject, int64(conversation))
	if err != nil || conversation == id {
		return false, err
	}
	var at int64
	err = tx.Row("SELECT run_at FROM runs WHERE id = $1", []any{id}, &at)
	return at == untilReleased, err
}

// leave does what follows in its line from the end of a run: the first one that waits may start, if no
// run is at work that was there before it.
func (s *Lines) leave(tx *engine.Tx, id RunID) error {
	var line struct{ factory, automation, subject string }
	var delivery DeliveryID
	err := tx.Row("DELETE FROM lines WHERE run_id = $1 RETURNING factory, automation, subject, delivery_id", []any{id},
		&line.factory, &line.automation, &line.subject, &delivery)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	first, err := listLined(tx, "ORDER BY l.delivery_id, l.run_id LIMIT 2", line.factory, line.automation, line.subject)
	if err != nil || len(first) == 0 {
		return err
	}
	if f := first[0]; f.waits() {
		// What an older delivery started late, or what was approved late, is the first, and yet waits for the run at work.
		atWork, err := listLined(tx, "AND r.run_at <> $4 LIMIT 1", line.factory, line.automation, line.subject, int64(untilReleased))
		if err != nil || len(atWork) > 0 {
			return err
		}
		if f.conversation != f.id { // the first run of its conversation may wait for its turn itself
			head, err := listLined(tx, "AND l.run_id = $4", line.factory, line.automation, line.subject, f.conversation)
			if err != nil {
				return err
			}
			if len(head) == 0 {
				return s.store.Conversations.releaseNext(tx, f.conversation)
			}
			f = head[0]
		}
		if err := s.store.Conversations.release(tx, f.id, f.id); err != nil {
			return err
		}
		return s.behind(tx, first[1:], f.id, line.subject) // it may have come between
	}
	// Whoever waited for this run waits for the one before it now.
	next, err := listLined(tx, "AND (l.delivery_id, l.run_id) > ($4, $5) ORDER BY l.delivery_id, l.run_id LIMIT 1", line.factory, line.automation, line.subject, delivery, id)
	if err != nil || len(next) == 0 {
		return err
	}
	before, err := listLined(tx, "AND (l.delivery_id, l.run_id) < ($4, $5) ORDER BY l.delivery_id DESC, l.run_id DESC LIMIT 1", line.factory, line.automation, line.subject, delivery, id)
	if err != nil || len(before) == 0 {
		return err
	}
	return s.behind(tx, next, before[0].id, line.subject)
}

// behind makes the first of some runs say for which run it waits, if it waits for its turn.
func (s *Lines) behind(tx *engine.Tx, next []lined, before RunID, subject string) error {
	if len(next) == 0 || !next[0].waits() || next[0].conversation != next[0].id {
		return nil
	}
	return tx.Exec("UPDATE runs SET status_message = $1 WHERE id = $2", waitsForTurn(before, subject), next[0].id)
}

// ready is the time before which a run that waits for no other one must not start, and whether the
// run is in a line.
func (s *Lines) ready(tx *engine.Tx, id RunID) (at int64, message string, inLine bool, err error) {
	var counts, settles, line int64
	var subject string
	err = tx.Row("SELECT r.counts_at, coalesce(l.settles_at, 0), coalesce(l.run_id, 0), r.subject FROM runs r LEFT JOIN lines l ON l.run_id = r.id WHERE r.id = $1",
		[]any{id}, &counts, &settles, &line, &subject)
	now := micros(s.Now())
	switch {
	case settles > max(now, counts):
		message = "waits for further events of " + subject
	case counts > now:
		message = waitsForRoom
	}
	return max(settles, counts), message, line != 0, err
}

// waitsForRoom is the message of a run that is more than its automation may start in an hour.
const waitsForRoom = "its automation has started as many runs in an hour as it may (maxRunsPerHour)"
