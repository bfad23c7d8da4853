package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"triphammer/server/terms"
)

// Outcome of a delivery (SPEC C2.3).
type Outcome = terms.Outcome

// The outcomes.
const (
	Accepted            = terms.Accepted
	Duplicate           = terms.Duplicate
	RejectedAuth        = terms.RejectedAuth
	RejectedInvalidJSON = terms.RejectedInvalidJSON
	RejectedTooLarge    = terms.RejectedTooLarge
)

// Sources of an Identity (SPEC C6.2).
const (
	IdentityHeader   = "header"   // the webhook's deliveryIdHeader
	IdentityProvider = "provider" // the provider's own delivery header
	IdentitySender   = "sender"   // X-Service-Delivery-Id
	IdentityBody     = "body"     // hash of the body
	IdentityReplay   = "replay"   // made up for a replay
)

// Identity identifies a delivery: two deliveries with equal identities are duplicates.
type Identity struct{ Source, Value string }

// hash scopes the identity to the webhook and to its source (SPEC 5.6). It has
// 128 bits: that, and not the text, is what the unique index holds.
func (i Identity) hash(webhookUID string) []byte {
	sum := sha256.Sum256([]byte(webhookUID + "\x00" + i.Source + "\x00" + i.Value))
	return sum[:16]
}

// Delivery is an entry of the delivery log.
type Delivery struct {
	ID               DeliveryID
	Factory          string
	Webhook          string
	WebhookUID       string
	Outcome          Outcome
	Reason, Detail   string // of a rejected one
	Size             int64  // bytes of the body
	ReceivedAt       time.Time
	Identity         Identity
	DuplicateOf      DeliveryID
	ReplayOf         DeliveryID
	ClientAddr       string
	TestBy           string // who let this server send it, as a test; empty: it is none
	Headers          map[string]string
	ApplyID          ApplyID // the apply whose definitions decided it
	SecretGeneration int64
	// SameBodyAs is the delivery that brought the same signed body before under another identity (SPEC 5.13),
	// filled in when it is read; 0: none is known. Of an accepted one it is known some time after it was recorded.
	SameBodyAs DeliveryID
	// Started is how many runs an accepted delivery started, filled in when it is read;
	// -1 if it was recorded before this number was kept. Runs are those that still exist.
	Started int
	Runs    []RunRef // filled in when read
	// Subjects are what it is about, filled in when it is read. They are known some time after it was recorded.
	Subjects []string
	// Paused are the automations that matched but were paused, so that they started nothing.
	Paused []string
	// Repeats are the automations that matched an event which another webhook had reported
	// before, so that this delivery did not start them.
	Repeats []Repeat
	// Limited are the automations that matched but have started enough for the person of the event, with
	// the reason in words (SPEC 24.1).
	Limited map[string]string
	// AnswerOf is the run whose answer the delivery is about, so that it started nothing
	// (SPEC 22.4); 0: it is about no answer of this server.
	AnswerOf RunID
	// Stopped are the runs that the delivery stopped (SPEC 21.6).
	Stopped []RunID
	// Decided says what the delivery, a reply, has decided, or why it decided nothing (SPEC 26.2); empty: it
	// is no such reply.
	Decided string
	// Skips are the automations that matched while a run about the same subject was queued or at
	// work, so that this delivery did not start them.
	Skips []Skip
}

// withheld is why automations that matched started nothing, as it is stored.
type withheld struct {
	Paused  []string          `json:"paused,omitempty"`
	Repeats map[string]int64  `json:"repeats,omitempty"` // by automation: the delivery that started it
	Limited map[string]string `json:"limited,omitempty"`
	Answer  int64             `json:"answer,omitempty"`  // the run whose answer the delivery is about
	Skips   map[string]int64  `json:"skips,omitempty"`   // by automation: the run that was queued or at work
	Stopped []int64           `json:"stopped,omitempty"` // runs
	Decided string            `json:"decided,omitempty"`
}

// has tells whether an automation started nothing.
func (w *withheld) has(automation string) bool {
	return slices.Contains(w.Paused, automation) || w.Repeats[automation] != 0 || w.Limited[automation] != "" || w.Skips[automation] != 0
}

// RunRef names a run that a delivery started.
type RunRef struct {
	ID         RunID
	Automation string
	RetryOf    RunID // the run that a person started again with this one, or none
	State      RunState
	StartedAt  time.Time // zero: not yet
	FinishedAt time.Time
}

// NewDelivery is what Deliveries.Record records.
type NewDelivery struct {
	Delivery
	Payload []byte   // kept of accepted ones
	Runs    []NewRun // enqueued with accepted ones
	Waiting []Lookup // questions about an accepted one; their provider, name and args
	// Stop is the place (NewAnswer.PlaceKey) whose runs an accepted one stops, or empty; StopReason
	// says why.
	Stop, StopReason string
	// Reply is what an accepted one decides, once its Waiting questions are answered; nil: nothing.
	Reply *Reply
	// Told is what is told of an accepted one that neither starts nor stops a run.
	Told []NewAnswer
	// RateLimit is how many deliveries the webhook takes in any RateWindow; 0: they are not
	// counted here.
	RateLimit int
	// ReplayWindow is for how long the signed body of an accepted one, or of one before, is refused under
	// another identity; 0: the body is not compared here.
	ReplayWindow time.Duration
}

// ErrNoPayload is an ErrNotFound: the delivery is in the log, but its body was
// never kept (SPEC C2.3).
var ErrNoPayload = fmt.Errorf("its body is not kept: %w", ErrNotFound)

// Recorded is the outcome of Deliveries.Record.
type Recorded struct {
	ID          DeliveryID
	Duplicate   bool
	DuplicateOf DeliveryID
	RunIDs      []RunID
	Decided     string  // what its Reply has decided, or why nothing; empty: nothing yet
	Stopped     []RunID // runs about the same subjects that were cancelled or asked to stop
}

// minCompressed is the size from which compressing pays.
const minCompressed = 256

// Deliveries are the requests that the ingress accepted, and what was decided on each.
type Deliveries struct{ *db }

// Record commits the delivery and its runs, and returns when they are on the
// disk. An accepted delivery whose identity is known becomes a duplicate, and starts
// nothing. The error wraps ErrUnavailable if nothing was kept, ErrPaused if the webhook is
// paused, and ErrStale if another apply than d.ApplyID is live. It is a *RateError if there
// are too many, and a *ReplayError if d.ReplayWindow refuses it. Record does not use the payload after it returns.
func (s *Deliveries) Record(ctx context.Context, d *NewDelivery) (Recorded, error) {
	room := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	row := encodeDelivery(d, room)
	var out Recorded
	paused, stale, fast, again := false, false, (*RateError)(nil), (*ReplayError)(nil) // which are no errors of the transaction
	err := s.DB.Record(ctx, row.identity, func(tx *engine.Tx) error {
		var err error
		if stale, err = s.store.Applies.isStale(tx, d.Factory, d.ApplyID); err != nil || stale {
			return err
		}
		if paused, err = s.store.Pauses.isPaused(tx, Pausable{KindWebhook, d.Factory, d.Webhook}); err != nil || paused {
			return err
		}
		if again, err = s.replayed(tx, d, &row); err != nil || again != nil {
			return err
		}
		if fast, err = s.countRate(tx, d); err != nil || fast != nil {
			return err
		}
		if out, err = s.record(tx, d, row); err != nil || out.Duplicate {
			return err
		}
		return keepBody(tx, out.ID, d, row)
	})
	if err == nil && stale {
		err = fmt.Errorf("%s does not serve any more: %w", d.ApplyID, ErrStale)
	}
	if err == nil && fast != nil {
		err = fast
	}
	if err == nil && again != nil {
		err = again
	}
	if err == nil && paused {
		err = fmt.Errorf("the webhook %s takes no delivery: %w", d.Webhook, ErrPaused)
	}
	return out, err
}

// rooms are where payloads are compressed.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// deliveryRow is what is prepared before the writer's turn.
type deliveryRow struct {
	headers  string
	identity []byte // nil unless accepted
	payload  []byte
	codec    int64
	sum      uint64     // of the payload as it came
	signed   []byte     // signedHash of the payload, if it is compared; nil: it is not
	earlier  DeliveryID // that brought it before, as the writer finds; 0: none
}

// encodeDelivery may leave the payload in room, which it makes as large as needed.
func encodeDelivery(d *NewDelivery, room *[]byte) deliveryRow {
	row := deliveryRow{headers: headersText(d.Headers)}
	if d.Outcome != Accepted {
		return row
	}
	row.identity = d.Identity.hash(d.WebhookUID)
	row.payload, row.sum = d.Payload, xxhash.Sum64(d.Payload)
	if d.ReplayWindow > 0 {
		row.signed = signedHash(d.WebhookUID, d.Payload)
	}
	if len(d.Payload) >= minCompressed {
		if n := s2.MaxEncodedLen(len(d.Payload)); cap(*room) < n {
			*room = make([]byte, n)
		}
		if packed := s2.Encode(*room, d.Payload); len(packed) < len(d.Payload)*9/10 {
			row.payload, row.codec = packed, 1
		}
	}
	return row
}

// headersText is the headers as a JSON object, as encoding/json would write it.
// Most of them need no escapes, and then not its cost.
func headersText(headers map[string]string) string {
	out := make([]byte, 0, 256)
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendText(append(appendText(out, name), ':'), headers[name])
	}
	return "{" + string(out) + "}"
}

// appendText appends s as a JSON string.
func appendText(out []byte, s string) []byte {
	plain := func(r rune) bool {
		return ' ' <= r && r <= '~' && r != '"' && r != '\\' && r != '<' && r != '>' && r != '&'
	}
	for _, r := range s {
		if !plain(r) {
			text, _ := json.Marshal(s) // which fails for no string
			return append(out, text...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

const insertDelivery = `INSERT INTO deliveries (id, factory, webhook, webhook_uid, outcome, reason, detail, size, received_at,
	identity_source, identity_value, identity_hash, duplicate_of, replay_of, client_addr, headers, apply_id, secret_generation, payload, codec, digest,
	test_by)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
	ON CONFLICT (identity_hash) DO NOTHING`

func (s *Deliveries) record(tx *engine.Tx, d *NewDelivery, row deliveryRow) (Recorded, error) {
	id := DeliveryID(tx.NextID())
	insert := func(outcome Outcome, row deliveryRow, duplicateOf DeliveryID, run func(query string, args ...any) error) error {
		reason := d.Reason
		if outcome == Accepted {
			// Nothing was wrong with it. Its runs may go before it does. Until they are started,
			// it is not known whether all may.
			reason = strconv.Itoa(len(d.Runs))
		}
		// Ids as int64: the driver would allocate to ask them for their value.
		return run(insertDelivery, int64(id), d.Factory, d.Webhook, d.WebhookUID, string(outcome), reason, d.Detail, d.Size, micros(d.ReceivedAt),
			d.Identity.Source, d.Identity.Value, row.identity, int64(duplicateOf), int64(d.ReplayOf), d.ClientAddr, row.headers, int64(d.ApplyID), d.SecretGeneration,
			row.payload, row.codec, payloadDigest(id, row.sum), d.TestBy)
	}
	out := Recorded{ID: id}
	of, looked := s.identities[string(row.identity)]
	var err error
	switch {
	case row.identity == nil:
		err = insert(d.Outcome, row, 0, tx.Exec)
	case !looked:
		n := int64(0)
		err = insert(d.Outcome, row, 0, func(query string, args ...any) (err error) {
			n, err = tx.ExecCount(query, args...)
			return err
		})
		if err == nil && n == 0 {
			err = tx.Row("SELECT id FROM deliveries WHERE identity_hash = $1", []any{row.identity}, &of)
		}
	case of == 0:
		err = insert(d.Outcome, row, 0, tx.Exec)
		s.identities[string(row.identity)] = id
	}
	if err != nil {
		return Recorded{}, err
	}
	if of != 0 {
		row.identity, row.payload, row.codec = nil, nil, 0
		out.Duplicate, out.DuplicateOf = true, of
		return out, insert(Duplicate, row, of, tx.Exec)
	}
	if d.Outcome != Accepted {
		return out, nil
	}
	not := withheld{Answer: int64(d.AnswerOf)}
	if out.RunIDs, out.Stopped, err = s.start(tx, id, d, &not); err != nil {
		return Recorded{}, err
	}
	if err := s.store.Lookups.ask(tx, id, d.Waiting); err != nil {
		return Recorded{}, err
	}
	if d.Reply != nil && len(d.Waiting) == 0 {
		said, stopped, err := s.store.Approvals.reply(tx, id, d.Factory, d.Reply)
		if err != nil {
			return Recorded{}, err
		}
		not.Decided, out.Decided, out.Stopped = said, said, append(out.Stopped, stopped...)
	}
	if d.Stop != "" {
		stopped, err := s.store.Answers.stop(tx, d.Factory, d.Stop, d.StopReason)
		if err != nil {
			return Recorded{}, err
		}
		for _, run := range stopped {
			not.Stopped = append(not.Stopped, int64(run))
		}
		out.Stopped = append(out.Stopped, stopped...)
	}
	if len(d.Told) > 0 && len(out.RunIDs)+len(out.Stopped) == 0 {
		if err := s.store.Answers.tell(tx, id, d); err != nil {
			return Recorded{}, err
		}
	}
	if not.none() && len(out.RunIDs) == len(d.Runs) {
		return out, nil
	}
	why, err := not.text()
	if err != nil {
		return Recorded{}, err
	}
	return out, tx.Exec("UPDATE deliveries SET reason = $1, detail = $2 WHERE id = $3", strconv.Itoa(len(out.RunIDs)), why, id)
}

func (w *withheld) none() bool {
	return len(w.Paused)+len(w.Repeats)+len(w.Limited)+len(w.Skips)+len(w.Stopped) == 0 && w.Answer == 0 && w.Decided == ""
}

// text is how it is stored.
func (w *withheld) text() (string, error) {
	if w.none() {
		return "", nil
	}
	text, err := json.Marshal(w)
	return string(text), err
}

// withheldOf reads what text wrote, now or in an older version.
func withheldOf(text string) (w withheld, err error) {
	into := any(&w)
	if strings.HasPrefix(text, "[") { // as older versions wrote it
		into = &w.Paused
	}
	if text != "" {
		err = json.Unmarshal([]byte(text), into)
	}
	return w, err
}

// start enqueues the runs of a delivery, and notes which of its automations start nothing. stopped
// are the runs that were cancelled or asked to stop in favour of the new ones.
func (s *Deliveries) start(tx *engine.Tx, id DeliveryID, d *NewDelivery, not *withheld) (started, stopped []RunID, err error) {
	runs, err := s.store.Answers.inThreads(tx, d)
	if err != nil {
		return nil, nil, err
	}
	for i := range runs {
		r := &runs[i]
		of, err := s.startedBy(tx, r, d)
		if err != nil {
			return nil, nil, err
		}
		if of != 0 {
			if not.Repeats == nil {
				not.Repeats = make(map[string]int64)
			}
			not.Repeats[r.Automation] = int64(of)
			continue
		}
		if d.ReplayOf != 0 { // it is parallel, also once somebody has approved it
			r.PerSubject, r.Settle, r.goesOn = "", 0, 0
		}
		var p place
		inLine := r.inLine() && r.Approval == nil
		if inLine {
			if p, err = s.store.Lines.place(tx, r, id); err != nil {
				return nil, nil, err
			}
		}
		if starts, err := s.starts(tx, r, &p, not); err != nil {
			return nil, nil, err
		} else if !starts {
			continue
		}
		run, err := s.store.Runs.insert(tx, r, id)
		if err != nil {
			return nil, nil, err
		}
		if r.Approval != nil {
			cancelled, err := s.store.Approvals.waits(tx, run, r)
			if err != nil {
				return nil, nil, err
			}
			stopped = append(stopped, cancelled...)
		}
		if inLine {
			cancelled, err := s.store.Lines.take(tx, run, r, id, &p)
			if err != nil {
				return nil, nil, err
			}
			stopped = append(stopped, cancelled...)
		}
		if err := s.rememberEvent(tx, r, d.WebhookUID, id); err != nil {
			return nil, nil, err
		}
		started = append(started, run)
	}
	return started, stopped, nil
}

// starts tells whether a run with a place in its line may start, and counts it. Else it notes why not.
func (s *Deliveries) starts(tx *engine.Tx, r *NewRun, p *place, not *withheld) (bool, error) {
	if p.skippedFor != 0 && r.LoopOf == 0 {
		if not.Skips == nil {
			not.Skips = make(map[string]int64)
		}
		not.Skips[r.Automation] = int64(p.skippedFor)
		return false, nil
	}
	if p.newer != 0 { // it is cancelled at once, and does not count
		paused, err := s.store.Pauses.isPaused(tx, Pausable{KindAutomation, r.Factory, r.Automation})
		if paused {
			not.Paused = append(not.Paused, r.Automation)
		}
		return !paused, err
	}
	freed := p.freed(r.Person)
	person, full, err := s.store.Runs.personal(tx, r, freed...)
	if err == nil && full == "" {
		full, err = s.store.Approvals.full(tx, r)
	}
	if err != nil {
		return false, err
	}
	if full != "" {
		if not.Limited == nil {
			not.Limited = make(map[string]string)
		}
		not.Limited[r.Automation] = full
		return false, nil
	}
	starts, err := s.store.Runs.guarded(tx, r, p.freed("")...)
	if err != nil {
		return false, err
	}
	if !starts {
		not.Paused = append(not.Paused, r.Automation)
		return false, nil
	}
	if person != nil {
		person.count(cmp.Or(r.countsAt, micros(s.Now())), freed)
	}
	for _, l := range p.older { // those of other people never start either
		g := s.groups.guards[startsOf{Pausable{KindAutomation, r.Factory, r.Automation}, l.person}]
		if g != nil && l.person != "" && l.person != personKey(r.Person) && l.unstarted() {
			g.starts = g.without([]int64{l.counts})
		}
	}
	return true, nil
}

const deliveryColumns = `id, factory, webhook, webhook_uid, outcome, reason, detail, size, received_at, identity_source, identity_value,
	duplicate_of, replay_of, client_addr, headers, apply_id, secret_generation, test_by`

func scanDelivery(rows *sql.Rows) (*Delivery, error) {
	d := &Delivery{}
	var received int64
	var headers string
	err := rows.Scan(&d.ID, &d.Factory, &d.Webhook, &d.WebhookUID, &d.Outcome, &d.Reason, &d.Detail, &d.Size, &received,
		&d.Identity.Source, &d.Identity.Value, &d.DuplicateOf, &d.ReplayOf, &d.ClientAddr, &headers, &d.ApplyID, &d.SecretGeneration, &d.TestBy)
	if err != nil {
		return nil, err
	}
	if d.Outcome == Accepted {
		if d.Started, err = strconv.Atoi(d.Reason); err != nil {
			d.Started = -1
		}
		d.Reason = ""
		if d.Detail != "" {
			not, err := withheldOf(d.Detail)
			if err != nil {
				return nil, err
			}
			d.Paused, d.Limited, d.Detail, d.AnswerOf, d.Decided = not.Paused, not.Limited, "", RunID(not.Answer), not.Decided
			for _, id := range not.Stopped {
				d.Stopped = append(d.Stopped, RunID(id))
			}
			for _, name := range slices.Sorted(maps.Keys(not.Repeats)) {
				d.Repeats = append(d.Repeats, Repeat{name, DeliveryID(not.Repeats[name])})
			}
			for _, name := range slices.Sorted(maps.Keys(not.Skips)) {
				d.Skips = append(d.Skips, Skip{name, RunID(not.Skips[name])})
			}
		}
	}
	d.ReceivedAt = timeOf(received)
	return d, json.Unmarshal([]byte(headers), &d.Headers)
}

// Get reads one entry of the log.
func (s *Deliveries) Get(ctx context.Context, id DeliveryID) (*Delivery, error) {
	d, err := engine.First(engine.List(ctx, s.DB, scanDelivery, "SELECT "+deliveryColumns+" FROM deliveries WHERE id = $1", id))
	if err != nil {
		return nil, fmt.Errorf("delivery %s: %w", id, err)
	}
	return d, s.complete(ctx, []*Delivery{d})
}

// Payload is the body of an accepted delivery, byte for byte. The error wraps
// ErrNoPayload for another delivery of the log, and ErrDamaged for a body that is
// not what came.
func (s *Deliveries) Payload(ctx context.Context, id DeliveryID) ([]byte, error) {
	var payload []byte
	var codec int64
	var digest sql.NullInt64
	err := engine.Damaged(s.Read.QueryRowContext(ctx, "SELECT payload, codec, digest FROM deliveries WHERE id = $1", id).Scan(&payload, &codec, &digest))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("delivery %s: %w", id, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("payload of %s: %w", id, err)
	case payload == nil:
		return nil, fmt.Errorf("delivery %s: %w", id, ErrNoPayload)
	case codec != 0:
		payload, err = s2.Decode(nil, payload)
	}
	if err != nil || !s.sound(int64(id), digest, payloadDigest(id, xxhash.Sum64(payload))) {
		return nil, s.damage("the payload of %s", id)
	}
	return payload, nil
}

// HasPayload tells whether the body of a delivery is kept.
func (s *Deliveries) HasPayload(ctx context.Context, id DeliveryID) (kept bool, err error) {
	err = s.Read.QueryRowContext(ctx, "SELECT payload IS NOT NULL FROM deliveries WHERE id = $1", id).Scan(&kept)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return kept, err
}

// complete fills in which runs the deliveries started, what they are about, and whose body they repeat.
func (s *Deliveries) complete(ctx context.Context, deliveries []*Delivery) error {
	if err := s.sameBodies(ctx, deliveries); err != nil {
		return err
	}
	byID := make(map[DeliveryID]*Delivery)
	var ids []DeliveryID
	for _, d := range deliveries {
		if d.Outcome != Accepted {
			continue
		}
		byID[d.ID] = d
		ids = append(ids, d.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	w := where{}
	w.add(in(&w, "delivery_id", ids))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var r RunRef
		var delivery DeliveryID
		var started, finished, at int64
		if err := rows.Scan(&r.ID, &r.Automation, &delivery, &r.RetryOf, &r.State, &started, &finished, &at); err != nil {
			return none, err
		}
		if r.State == held {
			if r.State = Queued; at == untilApproved {
				r.State = Blocked
			}
		}
		r.StartedAt, r.FinishedAt = timeOf(started), timeOf(finished)
		byID[delivery].Runs = append(byID[delivery].Runs, r)
		return none, nil
	}, "SELECT id, automation, delivery_id, retry_of, state, started_at, finished_at, run_at FROM runs"+w.sql()+" ORDER BY id", w.args...)
	if err != nil {
		return err
	}
	subjects, err := subjectsOf(ctx, s.store.Subjects, ids)
	for id, names := range subjects {
		byID[id].Subjects = names
	}
	return err
}

// RecentTimes are the times of the authenticated deliveries of a webhook since then,
// ascending. They restore the rate limit after a restart (SPEC 5.8). Bodies that did not
// arrive completely have another reason, and do not count.
func (s *Deliveries) RecentTimes(ctx context.Context, webhookUID string, since time.Time) ([]time.Time, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (time.Time, error) {
		var at int64
		err := rows.Scan(&at)
		return timeOf(at), err
	}, `SELECT received_at FROM deliveries WHERE webhook_uid = $1 AND id >= $2 AND received_at > $3
		AND `+countsForRate+`
		ORDER BY received_at`,
		webhookUID, engine.IDAt(since.Add(-time.Minute)), micros(since))
}
