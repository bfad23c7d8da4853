package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"triphammer/schema/output"
	"triphammer/server/lookup"
	"triphammer/server/store"
)

const (
	atOnce      = 16               // places that are answered at the same time
	perWebhook  = 4                // limit of atOnce for one webhook, so that an API that hangs delays its own answers alone
	poll        = time.Second      // how often the store is read
	signTime    = 10 * time.Second // for a first sign
	attemptTime = time.Minute      // for one attempt
	pushTime    = 5 * time.Minute  // for one attempt of a push, which can be long
	lease       = 2 * time.Minute  // a turn without an outcome ends then, and another server may take it
	settleTime  = 30 * time.Second // before a text is looked for whose attempt has an unknown outcome
	maxSigns    = 256              // first signs that wait in this process
	signers     = 16               // first signs that are given at the same time
)

// pauses are the times between the attempts; the last time repeats.
var pauses = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute}

// Config is what a Worker needs. All fields but Client and Sender are required.
type Config struct {
	Store  *store.Store
	Client *lookup.Client // nil: lookup.NewClient
	// API is the API of a webhook's sender, with the newest value of its secret.
	API func(ctx context.Context, webhookUID string) (lookup.API, error)
	// Waits says what a queued run waits for.
	Waits func(ctx context.Context, r *store.Run) (string, error)
	// Link is the page of a run; empty: nobody but this machine could open it.
	Link   func(id store.RunID) string
	Sender func(provider string) *Sender // nil: ByProvider
	// Tell posts how a run stands to an address, in a message with an id, signed with a managed secret.
	// Status is that of the answer; 0: there was none.
	Tell func(ctx context.Context, address, secretName, id string, r *store.Run) (status int, err error)
	// Push performs a push that a person has approved, once however often it is called (SPEC 23.3).
	Push func(ctx context.Context, p *output.Push) error
	// Ended does what follows from the end of runs that nobody has approved in time.
	Ended func(ctx context.Context, runs []store.RunID)
	// Observe counts what became of a turn of an answer or an output: provider, what was to be said or
	// done, and AnswerDelivered, AnswerPending (it is tried again) or AnswerFailed; nil: nobody counts.
	Observe func(provider, what, outcome string)
	Now     func() time.Time
	Logger  *slog.Logger
}

// Worker sends the answers that the store has (SPEC 22).
//
// It guarantees:
//
//   - A text is sent once, whatever is killed in between. Each turn is recorded before it begins, and
//     fenced. After a turn with an unknown outcome, the text is looked for by its marker before it
//     is sent again.
//   - In one place, the ends of runs are told one after the other.
//   - No answer is dropped for the number of those that wait.
type Worker struct {
	Config
	paces paces
	signs chan store.RunID
}

// New makes a Worker.
func New(cfg Config) *Worker {
	if cfg.Client == nil {
		cfg.Client = lookup.NewClient(cfg.Now)
	}
	if cfg.Sender == nil {
		cfg.Sender = ByProvider
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, string, string) {}
	}
	return &Worker{Config: cfg, signs: make(chan store.RunID, maxSigns)}
}

// Sign asks for the first sign of runs that this server has recorded. It never blocks: if too many
// wait here, the leader gives theirs.
func (w *Worker) Sign(runs []store.RunID) {
	for _, id := range runs {
		select {
		case w.signs <- id:
		default:
			return
		}
	}
}

// RunSigns gives the first signs that Sign asks for, until ctx is done. Each server does.
func (w *Worker) RunSigns(ctx context.Context) error {
	var group sync.WaitGroup
	for range signers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case id := <-w.signs:
					if err := w.signRun(ctx, id); err != nil && ctx.Err() == nil {
						w.Logger.Warn("a first sign could not be recorded", "run", id, "error", err)
					}
				}
			}
		})
	}
	group.Wait()
	return nil
}

func (w *Worker) signRun(ctx context.Context, id store.RunID) error {
	answers, err := w.Store.Answers.Of(ctx, id)
	for _, a := range answers {
		if a.Next == store.AnswerSign && !a.Ended {
			err = errors.Join(err, w.sign(ctx, a))
		}
	}
	return err
}

// sign gives a first sign. It is not tried again: what follows says more.
func (w *Worker) sign(ctx context.Context, a store.Answer) error {
	s, p, err := w.place(&a)
	if err == nil && w.paces.take(s.Paces, a.WebhookUID, p.Container, true, w.Now()) == 0 {
		signing, cancel := context.WithTimeout(ctx, signTime)
		defer cancel()
		var api lookup.API
		if api, err = w.API(signing, a.WebhookUID); err == nil {
			err = s.Sign(signing, w.Client, api, p)
		}
		if ctx.Err() != nil {
			return nil // the leader does
		}
	}
	a.Next, a.DueAt, a.Detail = afterSign(s, &a)
	if a.Next == store.AnswerStart && len(p.Approvers) > 0 {
		if r, failed := w.Store.Runs.Get(ctx, a.RunID); failed == nil && r.State == store.Blocked {
			a.DueAt = w.Now() // a person is waited for
		}
	}
	if err != nil {
		w.rested(a.WebhookUID, err)
		a.Detail = "the first sign was not taken: " + explain(s, err)
	}
	return w.Store.Answers.Signed(ctx, a)
}

// afterSign is what follows the first sign, and when.
func afterSign(s *Sender, a *store.Answer) (next string, due time.Time, detail string) {
	if s == nil || s.Edit == nil {
		return store.AnswerEnd, time.Time{}, ""
	}
	return store.AnswerStart, a.CreatedAt.Add(store.StartPatience), ""
}

// place is the sender and the place of an answer.
func (w *Worker) place(a *store.Answer) (s *Sender, p Place, err error) {
	if s = w.Sender(a.Provider); a.Kind == store.AnswerURL {
		s = hook
	}
	if s == nil {
		return nil, p, lookup.Fail("this server knows no way to answer "+a.Provider, true)
	}
	if err := json.Unmarshal([]byte(a.Place), &p); err != nil {
		return nil, p, lookup.Fail("its place cannot be read", true)
	}
	return s, p, nil
}

// Run sends answers until ctx is done. One server at a time does.
func (w *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	busy, used := make(map[string]string), make(map[string]int) // the webhooks of places that are answered; their number by webhook
	done := make(chan string)
	for ctx.Err() == nil {
		for _, t := range w.turns(ctx) {
			if _, is := busy[t.key]; is || len(busy) >= atOnce || used[t.webhook] >= perWebhook {
				continue
			}
			busy[t.key] = t.webhook
			used[t.webhook]++
			group.Go(func() {
				if err := t.take(); err != nil && ctx.Err() == nil {
					w.Logger.Error("an answer or an output could not be recorded", "run", t.run, "error", err)
				}
				select {
				case <-ctx.Done():
				case done <- t.key:
				}
			})
		}
		timer := time.NewTimer(poll)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case key := <-done:
			if used[busy[key]]--; used[busy[key]] <= 0 {
				delete(used, busy[key])
			}
			delete(busy, key)
		}
		timer.Stop()
	}
	return nil
}

// turn is an answer or an output that is due. Those with the same key are taken one after the other.
type turn struct {
	key, webhook string
	run          store.RunID
	take         func() error
}

// turns ends what nobody has approved in time. They are what is due: answers first, because people wait for them.
func (w *Worker) turns(ctx context.Context) (all []turn) {
	ended, late := w.Store.Approvals.Expire(ctx)
	if len(ended) > 0 {
		w.Ended(ctx, ended)
	}
	answers, err := w.Store.Answers.Due(ctx, 2*perWebhook)
	for _, a := range answers {
		all = append(all, turn{a.PlaceKey, a.WebhookUID, a.RunID, func() error { return w.send(ctx, a) }})
	}
	outputs, failed := w.Store.Outputs.Due(ctx, 2*perWebhook)
	for _, o := range outputs {
		all = append(all, turn{o.RunID.String(), o.WebhookUID, o.RunID, func() error { return w.perform(ctx, o) }})
	}
	if err = errors.Join(late, err, failed); err != nil && ctx.Err() == nil {
		w.Logger.Error("the answers and outputs for senders could not be read", "error", err)
	}
	return all
}

// send makes one turn of an answer.
func (w *Worker) send(ctx context.Context, a store.Answer) error {
	s, p, err := w.place(&a)
	if err == nil && a.Next == store.AnswerSign {
		return w.sign(ctx, a)
	}
	minor := a.Next == store.AnswerStart
	var m Message
	if err == nil {
		r := &store.Run{}
		if m = w.alone(&a); m.State == "" {
			if r, err = w.Store.Runs.Get(ctx, a.RunID); err != nil {
				return err
			}
			if m, err = w.message(ctx, &a, r); err != nil {
				return err
			}
		}
		if minor && r.State.Terminal() {
			a.Next, a.DueAt = store.AnswerEnd, w.Now()
			return w.Store.Answers.Save(ctx, a)
		}
		if m.State == Waits && (a.Said == said(m) || a.Kind == store.AnswerURL) {
			a.DueAt = w.Now().Add(store.StartPatience)
			return w.Store.Answers.Save(ctx, a)
		}
		minor = minor && !m.Undecided
		if wait := w.paces.take(s.Paces, a.WebhookUID, p.Container, minor, w.Now()); wait > 0 {
			if a.DueAt = w.Now().Add(wait); minor { // it is left out
				a.Next, a.DueAt = store.AnswerEnd, time.Time{}
			}
			return w.Store.Answers.Save(ctx, a)
		}
	}
	if a.Kind == store.AnswerThread && a.Posted == "" && p.Kind == pull {
		if a.Posted, err = w.Store.Answers.Earlier(ctx, &a); err != nil {
			return err
		}
	}
	unsure := a.Uncertain
	if taken, lost := w.Store.Answers.Begin(ctx, &a, w.Now().Add(lease)); lost != nil || !taken {
		return lost
	}
	edited := false
	if err == nil {
		trying, cancel := context.WithTimeout(ctx, attemptTime)
		defer cancel()
		a.Uncertain = unsure
		edited, err = w.say(trying, s, &a, p, m)
	}
	if ctx.Err() != nil {
		return nil // what has become of the turn is found out later
	}
	step := a.Next
	w.tried(s, &a, p, m, edited, err)
	if lost := w.Store.Answers.Save(ctx, a); lost != nil {
		return lost
	}
	w.observe(a.Provider, step, err, a.Status == store.AnswerFailed)
	return nil
}

// observe counts a turn that ended with an error, after which everything is given up or not.
func (w *Worker) observe(provider, what string, err error, failed bool) {
	outcome := store.AnswerDelivered
	switch {
	case failed:
		outcome = store.AnswerFailed
	case err != nil:
		outcome = store.AnswerPending
	}
	w.Observe(provider, what, outcome)
}

// said is what an answer has said, as it is kept.
func said(m Message) string {
	if m.State == Waits {
		return Waits + ": " + m.Why
	}
	return m.State
}

// errUnsure is the error of say if a text may stand at the sender, and cannot be looked for.
var errUnsure = lookup.Fail("nobody knows whether it arrived, and the sender cannot be asked: look there", true)

// say sends a message. edited tells that the text stood there before. a.Uncertain tells, before and
// after, whether the outcome of an earlier turn is unknown.
func (w *Worker) say(ctx context.Context, s *Sender, a *store.Answer, p Place, m Message) (edited bool, err error) {
	if a.Kind == store.AnswerURL {
		return false, w.tell(ctx, a, p)
	}
	api, err := w.API(ctx, a.WebhookUID)
	if err != nil {
		return false, err
	}
	var at Posted
	if a.Posted != "" {
		if err := json.Unmarshal([]byte(a.Posted), &at); err != nil {
			return false, lookup.Fail("what stands at the sender cannot be read", true)
		}
	}
	if a.Kind == store.AnswerCheck {
		at, err = s.Check(ctx, w.Client, api, p, m)
		return false, posted(a, at, err)
	}
	if a.Next == store.AnswerMention {
		at = Posted{}
	}
	text, key := s.Text(phrased(s, a, p, m, at.ID != "")), m.Marker
	if at.ID != "" && s.Edit != nil {
		err := s.Edit(ctx, w.Client, api, p, at, text)
		if f := failed(err); f == nil || !f.Final() && !denied(f) || a.Next != store.AnswerEnd || !s.edits(p) {
			return true, err
		}
		// Somebody has deleted the text, or it cannot be changed any more. The end is worth a new text.
		text, key = s.Text(phrased(s, a, p, m, false)), m.Marker+" anew"
	}
	if a.Uncertain {
		if s.Find == nil {
			return false, errUnsure
		}
		there, found, err := s.Find(ctx, w.Client, api, p, m.Marker)
		if err != nil {
			return false, fmt.Errorf("it could not be looked for: %w", err)
		}
		a.Uncertain = false
		if found && a.Next != store.AnswerMention {
			_ = posted(a, there, nil)
			if s.Edit != nil {
				return m.Asks == "", s.Edit(ctx, w.Client, api, p, there, text)
			}
		}
		if found {
			return false, nil
		}
	}
	at, err = s.Post(ctx, w.Client, api, p, text, key)
	if a.Next == store.AnswerMention {
		return false, err
	}
	return false, posted(a, at, err)
}

// phrased is a message as a turn says it: a mention repeats the outcome alone, or has the question. edited
// tells that a text stands.
func phrased(s *Sender, a *store.Answer, p Place, m Message, edited bool) Message {
	switch {
	case a.Next == store.AnswerMention && m.Asks == "":
		return Message{State: Ended, Automation: m.Automation, Run: m.Run, Link: m.Link, Outcome: m.Outcome, Asker: p.Asker, Marker: m.Marker}
	case a.Next == store.AnswerMention:
		m.Asker = p.Asker
	case a.Next == store.AnswerEnd && apart(s, a, p, m, edited):
		m.Text = ""
	case a.Next == store.AnswerEnd && m.Asks != "" && s.edits(p):
		m.Asker = p.Asker
	}
	return m
}

// apart tells whether a question is a text of its own, after the end that only says so: an edited text
// notifies nobody, and on a pull request the next run edits what stands there. edited tells that a text stands.
func apart(s *Sender, a *store.Answer, p Place, m Message, edited bool) bool {
	return m.Asks != "" && a.Kind == store.AnswerThread && s.edits(p) && (edited || p.Kind == pull)
}

// posted notes what stands at the sender.
func posted(a *store.Answer, at Posted, err error) error {
	if err == nil {
		text, _ := json.Marshal(at) // texts always encode
		a.Posted = string(text)
	}
	return err
}

// tried decides what follows a turn. edited tells that the text stood there before.
func (w *Worker) tried(s *Sender, a *store.Answer, p Place, m Message, edited bool, err error) {
	said := a.Next
	if err == nil {
		w.told(s, a, p, m, edited)
		return
	}
	w.rested(a.WebhookUID, err)
	w.refused(s, a, m, edited, err)
	level := slog.LevelWarn
	if a.Status == store.AnswerFailed {
		level = slog.LevelError
	}
	w.Logger.Log(context.Background(), level, "a sender did not take an answer", "run", a.RunID, "provider", a.Provider, "kind", a.Kind, "said", said,
		"error", a.Detail, "attempts", a.Attempts, "status", a.Status)
}

// told decides what follows what was told.
func (w *Worker) told(s *Sender, a *store.Answer, p Place, m Message, edited bool) {
	now, thread := w.Now(), a.Kind == store.AnswerThread
	next, again := a.Next, a.Said == Ended // the end was told before what waited was approved
	a.Attempts, a.Uncertain, a.Detail, a.Said, a.DueAt = 0, false, "", said(m), time.Time{}
	switch {
	case next == store.AnswerStart && m.State == Waits:
		a.DueAt = now.Add(store.StartPatience)
	case next == store.AnswerStart && s.Every > 0 && thread:
		a.DueAt = now.Add(s.Every)
	case next == store.AnswerStart:
		a.Next = store.AnswerEnd
	case next == store.AnswerEnd && (edited && p.Asker != "" && thread && !again || apart(s, a, p, m, edited)):
		a.Next, a.DueAt = store.AnswerMention, now
	default:
		a.Next, a.Status = "", store.AnswerDelivered
	}
}

// refused decides what follows a turn that failed.
func (w *Worker) refused(s *Sender, a *store.Answer, m Message, edited bool, err error) {
	now, f := w.Now(), failed(err)
	final, after := false, time.Duration(0)
	if a.Detail = explain(s, err); f != nil {
		after = f.After()
		final, a.Uncertain = f.Final() || denied(f), a.Uncertain || f.Uncertain()
	}
	if a.Uncertain && !edited && s != nil && s.Find == nil && (a.Kind == store.AnswerThread || a.Kind == store.AnswerQuestion) {
		final, a.Detail = true, a.Detail+"; "+errUnsure.Error()
	}
	pause := max(pauses[min(int(a.Attempts), len(pauses))-1], after)
	if a.Uncertain {
		pause = max(pause, settleTime)
	}
	a.DueAt = now.Add(pause)
	late := now.Sub(a.Since) > giveUp
	if !late && !final {
		return
	}
	if !final {
		a.Detail = fmt.Sprintf("given up after %v: %s", giveUp, a.Detail)
	}
	unsure := a.Uncertain && s != nil && s.Find != nil // a person who sends it again does not send it twice
	a.DueAt, a.Uncertain = time.Time{}, false
	switch {
	case a.Next == store.AnswerStart: // perhaps the end is taken
		a.Next, a.Attempts = store.AnswerEnd, 0
	case a.Next == store.AnswerMention && m.Asks == "":
		a.Next, a.Status, a.Detail = "", store.AnswerDelivered, "whoever asked was not mentioned: "+a.Detail
	default:
		a.Status, a.Uncertain = store.AnswerFailed, unsure
	}
}

// denied tells that a credential lacks a permission.
func denied(f *lookup.Failure) bool {
	return (f.Status() == http.StatusUnauthorized || f.Status() == http.StatusForbidden) && f.After() == 0
}

// rested makes a webhook's answers wait if its sender wants no requests for a while.
func (w *Worker) rested(webhook string, err error) {
	if f := failed(err); f != nil && f.After() > 0 {
		w.paces.rest(webhook, w.Now().Add(f.After()))
	}
}

// explain is an error in words, with the permission that a credential lacks.
func explain(s *Sender, err error) string {
	text := err.Error()
	if f := failed(err); f != nil && s != nil && s.Needs != "" && denied(f) && !strings.Contains(text, s.Needs) {
		text += "; the credential needs " + s.Needs
	}
	return text
}
