package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// untilApproved is the time until which a run waits for the decision of a person: it is HELD in the
// tables, and Blocked outside.
const untilApproved = math.MaxInt64 - 1

// neverCounts is NewRun.countsAt of a run that a person starts: it does not count for MaxPerHour.
const neverCounts = -1

// MaxWaiting is how many runs of one automation can wait to be approved at a time, and, besides these, how
// many that outsiders have caused (SPEC 26.1).
const MaxWaiting = 100

// outsiderRuns is NewRun.MaxPerPerson of outsiders whose automation has none.
const outsiderRuns = 10

// Decisions of an Approval. As long as it has none, it waits.
const (
	Approved  = "approved"
	Declined  = "declined"
	Expired   = "expired"   // nobody decided in time
	Withdrawn = "withdrawn" // the run was cancelled, or a newer run took its place
)

// Errors of Approvals.Decide, which all are an ErrConflict.
var (
	ErrNothingWaits = fmt.Errorf("nothing of it waits for a decision: %w", ErrConflict)
	ErrChanged      = fmt.Errorf("it changed since it was shown: look at it again, and decide then (%w)", ErrConflict)
)

// DecidedError is what Approvals.Decide returns if a decision came before: an ErrConflict.
type DecidedError struct{ Approval }

func (e *DecidedError) Error() string { return e.Said() + ", at " + e.DecidedAt.Format(time.RFC3339) }

// Unwrap makes it an ErrConflict.
func (e *DecidedError) Unwrap() error { return ErrConflict }

// NewApproval says that a new run waits for a person before it starts.
type NewApproval struct {
	For      time.Duration // then it is cancelled
	Outsider bool          // the person of its event may not start the automation
}

// Approval is something that waits, or waited, for the decision of a person (SPEC 26.1): that a run starts
// (Seq is 0), or that an output of it is performed.
type Approval struct {
	RunID      RunID
	Seq        int64 // of the Output; 0: the start of the run
	Factory    string
	Automation string
	Outsider   bool
	AskedAt    time.Time
	EndsAt     time.Time
	Decision   string // empty: it waits
	By         string // who decided; empty: nobody
	Actor      string // who decided, and through what, as the audit log has it
	Reason     string
	DecidedAt  time.Time
	Hash       string // of exactly what is shown of it, in hexadecimal: what a decision is about

	rules string
}

// Said is the decision in words, such as "approved by ada" or "declined by ada (too risky)".
func (a *Approval) Said() string {
	said := a.Decision
	switch {
	case a.Decision == Expired:
		said = "not approved within " + a.EndsAt.Sub(a.AskedAt).String()
	case a.By != "":
		said += " by " + a.By
	}
	if a.Reason != "" {
		said += " (" + a.Reason + ")"
	}
	return said
}

// Approvals are what waits for the decision of a person, and what was decided.
type Approvals struct{ *db }

// lineRules are what a run needs to take its place in its line when it is approved.
type lineRules struct {
	PerSubject string        `json:"perSubject,omitempty"`
	Keep       time.Duration `json:"keep,omitempty"` // NewRun.EndedAfter is so long before the decision
	GoesOn     RunID         `json:"goesOn,omitempty"`
}

// waits makes a new run wait for a person. It takes no place in its line, so it keeps no other run
// from anything; but where events replace each other, it replaces what the same person waits for.
func (s *Approvals) waits(tx *engine.Tx, id RunID, r *NewRun) (stopped []RunID, err error) {
	rules := lineRules{PerSubject: r.PerSubject, GoesOn: r.goesOn}
	if !r.EndedAfter.IsZero() {
		rules.Keep = s.Now().Sub(r.EndedAfter)
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return nil, err
	}
	if r.Subject != "" && (r.PerSubject == PerSubjectReplace || r.Settle > 0) {
		var older []RunID
		err := tx.Each(`SELECT a.run_id, r.person FROM approvals a JOIN runs r ON r.id = a.run_id WHERE a.decision = '' AND a.seq = 0
			AND a.factory = $1 AND a.automation = $2 AND r.subject = $3`, []any{r.Factory, r.Automation, r.Subject}, func(rows *sql.Rows) (bool, error) {
			var run RunID
			var person string
			err := rows.Scan(&run, &person)
			if personKey(person) == personKey(r.Person) {
				older = append(older, run)
			}
			return true, err
		})
		if err != nil {
			return nil, err
		}
		for _, run := range older {
			if err := s.store.Lines.replace(tx, run, id); err != nil {
				return nil, err
			}
		}
		stopped = older
	}
	a := Approval{RunID: id, Factory: r.Factory, Automation: r.Automation, Outsider: r.Approval.Outsider, rules: string(text)}
	if err := s.insert(tx, a, r.Approval.For); err != nil {
		return nil, err
	}
	s.Queued.Add(-1) // Runs.insert has counted it
	why := "waits for a person to approve it"
	if r.Approval.Outsider {
		why += ": " + WhoOf(r.Person) + " may not start it"
	}
	return stopped, tx.Exec("UPDATE runs SET state = 'HELD', run_at = $1, counts_at = $2, status_message = $3 WHERE id = $4", int64(untilApproved), int64(neverCounts), why, id)
}

func (s *Approvals) insert(tx *engine.Tx, a Approval, wait time.Duration) error {
	now := s.Now()
	return tx.Exec(`INSERT INTO approvals (run_id, seq, factory, automation, outsider, rules, asked_at, ends_at, decision, hash, decided_by, actor, reason, decided_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', '', '', '', 0)`,
		int64(a.RunID), a.Seq, a.Factory, a.Automation, number(a.Outsider), a.rules, micros(now), micros(now.Add(wait)))
}

// full tells why no further run of an automation can wait; empty: one can.
func (s *Approvals) full(tx *engine.Tx, r *NewRun) (why string, err error) {
	if r.Approval == nil {
		return "", nil
	}
	var n int64
	err = tx.Row("SELECT count(*) FROM approvals WHERE decision = '' AND factory = $1 AND automation = $2 AND outsider = $3 AND seq = 0",
		[]any{r.Factory, r.Automation, number(r.Approval.Outsider)}, &n)
	if err == nil && n >= MaxWaiting {
		why = fmt.Sprintf("%s of it wait for a person to approve them already, which is the most", terms.Counted(n, "run"))
	}
	return why, err
}

// selectApprovals has, after the columns of an Approval, what its hash is of.
const selectApprovals = `SELECT a.run_id, a.seq, a.factory, a.automation, a.outsider, a.asked_at, a.ends_at, a.decision, a.decided_by, a.actor, a.reason, a.decided_at, a.hash, a.rules,
	r.title, r.source, r.delivery_id, r.subject, r.person, r.spec_hash, coalesce(o.kind, ''), coalesce(o.request, ''), coalesce(o.bounds, ''), coalesce(o.webhook_uid, ''),
	coalesce(o.provider, ''), coalesce(o.place, '') FROM approvals a JOIN runs r ON r.id = a.run_id LEFT JOIN outputs o ON o.run_id = a.run_id AND o.seq = a.seq AND a.seq > 0 `

func scanApproval(rows *sql.Rows) (a Approval, err error) {
	var outsider, asked, ends, decided int64
	// of is what is shown: of a start the run, of an output what is to be done.
	var of struct {
		Run, Seq                                        int64
		Factory, Automation, Title, Source              string
		Delivery                                        int64
		Subject, Person                                 string
		Spec                                            []byte
		Kind, Request, Bounds, Webhook, Provider, Place string
	}
	err = rows.Scan(&a.RunID, &a.Seq, &a.Factory, &a.Automation, &outsider, &asked, &ends, &a.Decision, &a.By, &a.Actor, &a.Reason, &decided, &a.Hash, &a.rules,
		&of.Title, &of.Source, &of.Delivery, &of.Subject, &of.Person, &of.Spec, &of.Kind, &of.Request, &of.Bounds, &of.Webhook, &of.Provider, &of.Place)
	a.Outsider, a.AskedAt, a.EndsAt, a.DecidedAt = outsider != 0, timeOf(asked), timeOf(ends), timeOf(decided)
	of.Run, of.Seq, of.Factory, of.Automation = int64(a.RunID), a.Seq, a.Factory, a.Automation
	if err == nil && a.Hash == "" {
		text, _ := json.Marshal(of) // texts, bytes and numbers always encode
		sum := sha256.Sum256(text)
		a.Hash = hex.EncodeToString(sum[:])
	}
	return a, err
}

// Of are the approvals of runs, in the order of the runs and of what their agents asked for.
func (s *Approvals) Of(ctx context.Context, runs ...RunID) ([]Approval, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	w := where{}
	w.add(in(&w, "a.run_id", runs))
	return engine.List(ctx, s.DB, scanApproval, selectApprovals+w.sql()+" ORDER BY a.run_id, a.seq", w.args...)
}

// Waiting are the approvals of a factory that wait, those that end first before the others.
func (s *Approvals) Waiting(ctx context.Context, factory string, limit int) ([]Approval, error) {
	return engine.List(ctx, s.DB, scanApproval, selectApprovals+"WHERE a.decision = '' AND a.factory = $1 ORDER BY a.ends_at, a.run_id, a.seq LIMIT $2", factory, limit)
}

// Counts is how many starts and outputs wait for a person.
func (s *Approvals) Counts(ctx context.Context) (starts, outputs int64, err error) {
	err = s.Read.QueryRowContext(ctx, "SELECT coalesce(sum(CASE seq WHEN 0 THEN 1 ELSE 0 END), 0), coalesce(sum(CASE seq WHEN 0 THEN 0 ELSE 1 END), 0) FROM approvals WHERE decision = ''").
		Scan(&starts, &outputs)
	return starts, outputs, err
}

// ShownOf is the hash of approvals that are shown together, and decided by one decision: what a
// Decision names. They are those of one run that wait, in order, or one of them.
func ShownOf(all ...Approval) string {
	h := sha256.New()
	for _, a := range all {
		_, _ = h.Write([]byte(a.Hash)) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// letters are those of codes: no two of them look alike.
var letters = base32.NewEncoding("23456789ABCDEFGHJKLMNPQRSTUVWXYZ").WithPadding(base32.NoPadding)

// Code is the short form of a hash of ShownOf, which a person can type: 8 characters of 2–9 and A–Z
// without I and O, so that no two look alike; upper and lower case are one. It is an HMAC over the run
// and the hash: whoever has not seen the code cannot make it, and it fits no other run, and this run only
// as long as exactly what was shown still waits.
func (s *Approvals) Code(run RunID, shown string) string {
	mac := hmac.New(sha256.New, s.key.Derive("codes of approvals"))
	_, _ = mac.Write([]byte(run.String() + "\x00" + shown)) // never fails
	return letters.EncodeToString(mac.Sum(nil)[:5])
}

// Decision is what a person decides about what waits of a run.
type Decision struct {
	Run    RunID
	Output int64 // the Approval.Seq; 0: everything of the run that waits
	// Approve performs it: the run starts, or the outputs leave. Else it is declined: the run is
	// cancelled, or the outputs are discarded.
	Approve bool
	// Shown is what was shown to the person: ShownOf, or its Code. Without it nothing is approved; a
	// decline may leave it empty.
	Shown  string
	By     string // who, such as ada or github:ada
	Actor  string // who, and through what, as the audit log has it, such as "page ada" or "reply github:ada"
	Origin string // for the audit log: an address, or "local"
	Reason string // at most MaxReason bytes, one line
}

// MaxReason is the most bytes of Decision.Reason.
const MaxReason = 500

// Decide records the decision of a person about what waits of a run, together with its effect and its
// entry in the audit log, in one transaction (SPEC 26.1). It is the one way to decide: the API, the
// command line, the pages, MCP and replies in threads all call it, and have checked before that the
// person may.
//
// Of several decisions about one thing, the first counts. The errors, beside those of the store: ErrNotFound
// if there is no such run; ErrNothingWaits if nothing waits, or waited; a *DecidedError, which says who
// decided, if a decision came before or the time is over; ErrChanged if Shown is not of exactly what
// waits now. All but the first are an ErrConflict, and change nothing.
//
// stopped are runs that were cancelled by it, or asked to stop: the run itself if its start was declined,
// and those whose place it takes. The caller wakes the workers, and does what follows from these ends
// (run.Desk).
func (s *Approvals) Decide(ctx context.Context, d Decision) (run *Run, stopped []RunID, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		stopped, err = s.decideAll(tx, d)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	run, err = s.store.Runs.Get(ctx, d.Run)
	return run, stopped, err
}

// decideAll is Decide within a transaction.
func (s *Approvals) decideAll(tx *engine.Tx, d Decision) (stopped []RunID, err error) {
	waiting, err := s.decidable(tx, d)
	if err != nil {
		return nil, err
	}
	shown := ShownOf(waiting...)
	typed := strings.ToUpper(strings.TrimSpace(d.Shown))
	is := subtle.ConstantTimeCompare([]byte(typed), []byte(strings.ToUpper(shown))) == 1 || hmac.Equal([]byte(typed), []byte(s.Code(d.Run, shown)))
	if !is && (d.Approve || d.Shown != "") {
		return nil, ErrChanged
	}
	decision := Declined
	if d.Approve {
		decision = Approved
	}
	for i := range waiting {
		a := &waiting[i]
		a.Decision, a.By, a.Actor, a.Reason = decision, d.By, d.Actor, d.Reason
		ended, err := s.decide(tx, a)
		if err != nil {
			return nil, err
		}
		stopped = append(stopped, ended...)
	}
	return stopped, s.audit(tx, waiting, shown, d.Origin)
}

// decidable are the approvals that a decision is about, if they all wait.
func (s *Approvals) decidable(tx *engine.Tx, d Decision) (waiting []Approval, err error) {
	query, args, last := selectApprovals+"WHERE a.run_id = $1", []any{int64(d.Run)}, (*Approval)(nil)
	if d.Output != 0 {
		query, args = query+" AND a.seq = $2", append(args, d.Output)
	}
	err = tx.Each(query+" ORDER BY a.seq", args, func(rows *sql.Rows) (bool, error) {
		a, err := scanApproval(rows)
		if err == nil && a.Decision == "" && !a.EndsAt.After(s.Now()) { // Expire does so soon
			a.Decision, a.DecidedAt = Expired, a.EndsAt
		}
		switch {
		case a.Decision == "":
			waiting = append(waiting, a)
		case last == nil || a.DecidedAt.After(last.DecidedAt):
			last = &a
		}
		return true, err
	})
	switch {
	case err != nil || len(waiting) > 0:
		return waiting, err
	case last != nil:
		return nil, &DecidedError{*last}
	}
	if err := tx.Row("SELECT id FROM runs WHERE id = $1", []any{int64(d.Run)}, new(int64)); err != nil {
		return nil, fmt.Errorf("run %s: %w", d.Run, err)
	}
	return nil, ErrNothingWaits
}

// decide records a decision and does what follows from it.
func (s *Approvals) decide(tx *engine.Tx, a *Approval) (stopped []RunID, err error) {
	err = tx.Exec("UPDATE approvals SET decision = $1, hash = $2, decided_by = $3, actor = $4, reason = $5, decided_at = $6 WHERE run_id = $7 AND seq = $8 AND decision = ''",
		a.Decision, a.Hash, a.By, a.Actor, a.Reason, micros(s.Now()), int64(a.RunID), a.Seq)
	if err == nil {
		err = s.store.Answers.decided(tx, a.RunID)
	}
	if err != nil {
		return nil, err
	}
	now := micros(s.Now())
	switch {
	case a.Seq > 0 && a.Decision == Approved:
		return nil, tx.Exec("UPDATE outputs SET status = 'pending', due_at = $1, created_at = $1, updated_at = $1 WHERE run_id = $2 AND seq = $3 AND status = 'waiting'", now, int64(a.RunID), a.Seq)
	case a.Seq > 0:
		return nil, tx.Exec("UPDATE outputs SET status = 'discarded', detail = $1, updated_at = $2 WHERE run_id = $3 AND seq = $4 AND status = 'waiting'", a.Said(), now, int64(a.RunID), a.Seq)
	case a.Decision == Approved:
		return s.start(tx, a)
	}
	return []RunID{a.RunID}, s.store.Runs.stop(tx, a.RunID, StopCancel, a.Said())
}

// withdraw records that a run which waited does not any more, because it was cancelled otherwise.
func (s *Approvals) withdraw(tx *engine.Tx, id RunID, said string) error {
	return tx.Exec("UPDATE approvals SET decision = $1, reason = $2, decided_at = $3 WHERE run_id = $4 AND decision = ''", Withdrawn, said, micros(s.Now()), int64(id))
}

// start puts an approved run into the queue, at its place in its line. What would skip it does not: a
// person has asked for it.
func (s *Approvals) start(tx *engine.Tx, a *Approval) (stopped []RunID, err error) {
	var rules lineRules
	if err := json.Unmarshal([]byte(a.rules), &rules); err != nil {
		return nil, err
	}
	r := &NewRun{Factory: a.Factory, Automation: a.Automation, PerSubject: rules.PerSubject, goesOn: rules.GoesOn, EndedAfter: s.Now().Add(-rules.Keep)}
	var delivery DeliveryID
	if err := tx.Row("SELECT delivery_id, subject FROM runs WHERE id = $1", []any{int64(a.RunID)}, &delivery, &r.Subject); err != nil {
		return nil, err
	}
	s.Queued.Add(1)
	err = tx.Exec("UPDATE runs SET run_at = $1, status_message = '', updated_at = $2 WHERE id = $3", micros(s.Now()), s.stamp(tx), int64(a.RunID))
	if err != nil || !r.inLine() {
		return nil, err
	}
	p, err := s.store.Lines.place(tx, r, delivery)
	if err != nil {
		return nil, err
	}
	return s.store.Lines.take(tx, a.RunID, r, delivery, &p)
}

// audit records a decision in the audit log, with the hash of what was decided.
func (s *Approvals) audit(tx *engine.Tx, decided []Approval, shown, origin string) error {
	var of []string
	for _, a := range decided {
		if a.Seq > 0 {
			of = append(of, fmt.Sprintf("output %d", a.Seq))
		}
	}
	a := decided[0]
	details := "sha256:" + shown
	if len(of) > 0 {
		details = strings.Join(of, ", ") + ": " + details
	}
	if a.Reason != "" {
		details += "; " + a.Reason
	}
	action := map[string]string{Approved: "run.approve", Declined: "run.decline", Expired: "run.expire"}[a.Decision]
	return s.store.Audit.add(tx, AuditEntry{Actor: a.Actor, Action: action, Object: a.RunID.String(), Factory: a.Factory, Details: details, Origin: origin})
}

// Expire ends what nobody has decided in time: runs are cancelled, outputs are discarded. It returns the
// runs that were cancelled. It ends at most 100 at a time.
func (s *Approvals) Expire(ctx context.Context) (cancelled []RunID, err error) {
	late, err := engine.List(ctx, s.DB, scanApproval, selectApprovals+"WHERE a.decision = '' AND a.ends_at <= $1 ORDER BY a.ends_at LIMIT 100", micros(s.Now()))
	if err != nil || len(late) == 0 {
		return nil, err
	}
	err = s.Do(ctx, func(tx *engine.Tx) error {
		cancelled = nil
		for _, a := range late {
			err := tx.Row("SELECT seq FROM approvals WHERE run_id = $1 AND seq = $2 AND decision = ''", []any{int64(a.RunID), a.Seq}, new(int64))
			if errors.Is(err, ErrNotFound) {
				continue // somebody has decided meanwhile
			}
			if err != nil {
				return err
			}
			a.Decision, a.Actor = Expired, "triphammer"
			ended, err := s.decide(tx, &a)
			if err := errors.Join(err, s.audit(tx, []Approval{a}, ShownOf(a), "local")); err != nil {
				return err
			}
			cancelled = append(cancelled, ended...)
		}
		return nil
	})
	return cancelled, err
}

// WhoOf is the name of a person as Run.Person has it; "somebody" for nobody.
func WhoOf(person string) string {
	name, _, _ := strings.Cut(person, " ")
	if name == "" {
		return "somebody"
	}
	return name
}
