package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"
)

// Reply is a reply in a thread that decides what waits of a run which is answered there (SPEC 26.2).
type Reply struct {
	Thread  string // NewAnswer.PlaceKey
	Code    string
	Approve bool
	Reason  string
	Person  string   // who replies, as Run.Person is kept
	May     []string // the automations about which the person may decide
	// Message is the text below which a button was pressed, and Team its workspace: of a run that this text is about
	// alone, it decides. Empty: it is a text of the person.
	Message, Team string
}

// DecidesNothing is in what is said of a Reply that decides nothing, before the reason.
const DecidesNothing = " that decides nothing: "

const (
	wrongTime  = time.Hour // in which wrong codes of a thread are counted
	mostWrong  = 5         // wrong codes in a thread, after which no reply there decides
	mostThread = 50        // runs of a thread that are looked at, the newest first
	wrongCode  = "run.wrong_code"
)

// reply decides by a reply, and says in words what was decided, or why not. A wrong code is in the audit log.
func (s *Approvals) reply(tx *engine.Tx, delivery DeliveryID, factory string, r *Reply) (said string, stopped []RunID, err error) {
	who, nothing := WhoOf(r.Person), "a reply"+DecidesNothing
	if r.Message != "" {
		nothing = "a click" + DecidesNothing
	}
	if len(r.May) == 0 {
		return nothing + who + " may not approve here", nil, nil
	}
	object := strings.ReplaceAll(r.Thread, "\x1f", " ")
	wrong := 0
	if err := tx.Row("SELECT count(*) FROM audit WHERE id >= $1 AND action = $2 AND object = $3", []any{engine.IDAt(s.Now().Add(-wrongTime)), wrongCode, object}, &wrong); err != nil {
		return "", nil, err
	}
	if wrong >= mostWrong {
		return fmt.Sprintf("%s%d wrong codes came in this thread within an hour: decide on the page", nothing, wrong), nil, nil
	}
	run, person, account, err := s.coded(tx, factory, r)
	switch {
	case err != nil:
		return "", nil, err
	case run == 0:
		err := s.store.Audit.add(tx, AuditEntry{Actor: "reply " + who, Action: wrongCode, Object: object, Factory: factory, Origin: delivery.String()})
		return nothing + "nothing that waited in this thread has the code " + r.Code, nil, err
	case person != "" && personKey(person) == personKey(r.Person):
		return nothing + who + " has caused the event of " + run.String() + ", and nobody approves that for themselves", nil, nil
	case account:
		return nothing + who + " is the account with which this server answers", nil, nil
	}
	stopped, err = s.decideAll(tx, Decision{Run: run, Approve: r.Approve, Shown: r.Code, By: who, Actor: "reply " + who, Origin: delivery.String(), Reason: r.Reason})
	switch decided := (*DecidedError)(nil); {
	case errors.As(err, &decided):
		return nothing + run.String() + " was " + decided.Error(), nil, nil
	case errors.Is(err, ErrConflict):
		return nothing + err.Error(), nil, nil
	case err != nil:
		return "", nil, err
	case r.Approve:
		return run.String() + " is approved by " + who, stopped, nil
	}
	return run.String() + " is declined by " + who, stopped, nil
}

// coded finds the run of a thread that a code is of, also if somebody has decided it, and the person of its
// event. account tells that the replier is whose credential has answered there.
func (s *Approvals) coded(tx *engine.Tx, factory string, r *Reply) (run RunID, person string, account bool, err error) {
	type answered struct {
		id                                RunID
		automation, person, posted, place string
	}
	var all []answered
	err = tx.Each(`SELECT r.id, r.automation, r.person, x.posted, x.place FROM answers x JOIN runs r ON r.id = x.run_id WHERE x.place_key = $1 AND x.kind = 'thread' AND x.factory = $2
		AND EXISTS (SELECT 1 FROM approvals a WHERE a.run_id = r.id) ORDER BY x.run_id DESC LIMIT $3`, []any{r.Thread, factory, mostThread}, func(rows *sql.Rows) (bool, error) {
		var one answered
		err := rows.Scan(&one.id, &one.automation, &one.person, &one.posted, &one.place)
		all = append(all, one)
		return true, err
	})
	if err != nil {
		return 0, "", false, err
	}
	provider, _, _ := strings.Cut(r.Person, ":")
	all = slices.DeleteFunc(all, func(one answered) bool {
		var at struct{ ID, Author, Team string }
		_, _ = json.Unmarshal([]byte(one.place), &at), json.Unmarshal([]byte(one.posted), &at) // nothing was posted yet
		account = account || at.Author != "" && personKey(r.Person) == provider+":"+at.Author
		return r.Message != "" && (at.ID != r.Message || at.Team != r.Team)
	})
	for _, one := range all {
		if !slices.Contains(r.May, one.automation) {
			continue
		}
		fits, err := s.fits(tx, one.id, r.Code)
		if err != nil || fits {
			return one.id, one.person, account, err
		}
	}
	return 0, "", account, nil
}

// fits tells whether a code is of what waits, or waited, of a run.
func (s *Approvals) fits(tx *engine.Tx, id RunID, code string) (bool, error) {
	var waiting, start, outputs []Approval
	err := tx.Each(selectApprovals+"WHERE a.run_id = $1 ORDER BY a.seq", []any{int64(id)}, func(rows *sql.Rows) (bool, error) {
		a, err := scanApproval(rows)
		if a.Decision == "" {
			waiting = append(waiting, a)
		}
		if a.Seq == 0 {
			start = append(start, a)
		} else {
			outputs = append(outputs, a)
		}
		return true, err
	})
	for _, group := range [][]Approval{waiting, start, outputs} {
		if len(group) > 0 && s.Code(id, ShownOf(group...)) == code {
			return true, err
		}
	}
	return false, err
}
