package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/factory"
	"triphammer/schema/output"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker/harness"
)

// attempt is one execution of one claimed run.
type attempt struct {
	manager *Manager
	lease   store.Lease
	renew   func(context.Context) (asked store.Stop, err error) // renews the lease
	beat    time.Duration                                       // between two renewals
	until   func() time.Time                                    // for task.Task.Lease
	cancel  context.CancelCauseFunc
	adopted bool      // another worker has begun it
	began   time.Time // if adopted, when the attempt began
	number  int64     // 0: not known
	logger  *slog.Logger
	session store.Session // the recorded session

	transcript *transcript

	budget              factory.Budget
	factory, automation string         // the automation that started the run, for its budget of a day; empty: none did
	earlier             store.Spending // of the attempts before
	charged             event.Usage    // the recorded usage of this attempt
	meter               *meter         // of the requests that the run's gateway carries
}

// ready is prepare, which waits for a store that is away.
func (a *attempt) ready(ctx context.Context) (p prepared, err error) {
	err = a.patiently(ctx, func() (err error) {
		p, err = a.prepare(ctx)
		return err
	})
	return p, err
}

// patiently reads again while the store is away: a run must not fail for that before its agent works.
func (a *attempt) patiently(ctx context.Context, read func() error) error {
	for {
		err := read()
		if !store.Away(err) || ctx.Err() != nil {
			return err
		}
		a.logger.Warn("the store is away, so the run cannot begin; the next try follows", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
	}
}

// run executes the run. ctx ends the agent; always does not end.
func (a *attempt) run(ctx, always context.Context) (v verdict) {
	p, err := a.ready(ctx)
	row, work, spec := p.row, p.task, &p.spec
	var values []secret.Value
	var agent harness.Start
	a.meter = newMeter(a)
	if work != nil {
		work.Lease, work.Meter, work.Grants = a.until, a.meter, a.meter
		agent, values = spec.Start(work, p.session.ID), secretsOf(work)
	}
	attempt := int64(1)
	if row != nil {
		attempt, a.number, a.meter.began = row.Attempt, row.Attempt, row.StartedAt
		a.factory, a.automation = row.Factory, row.Automation
		a.budget, a.earlier = spec.Budget, store.Spending{Tokens: row.Tokens, CostUSD: row.CostUSD}
	}
	started := beginning(attempt, spec)
	var before *replayed
	begun := attempt
	if a.adopted {
		begun++ // it has events
	}
	if a.adopted && work != nil {
		work.Adopted, a.began = true, row.StartedAt
		var older []secret.Value
		if before, older, err = a.takeOver(ctx, spec, started); err != nil {
			err = fmt.Errorf("what the worker before this one has left could not be read: %w", err)
		} else if values = append(values, older...); before.begun {
			started = "taken up by another worker; the attempt goes on"
		}
	}
	t := newTranscript(transcriptConfig{
		save:  a.save,
		after: a.lastEvent(ctx, begun), again: before,
		lost:  func() { a.cancel(task.ErrLost) },
		done:  func() { a.cancel(errFinished) },
		give:  func(try int, err error) bool { return giveUp(ctx, try, err) },
		now:   a.manager.cfg.Now,
		hide:  secret.NewRedactor(values...),
		parse: agent.Parse, err: agent.Trouble,
		limit: a.manager.cfg.TranscriptLimit, may: spec.Outputs, logger: a.logger,
	})
	a.transcript = t.under(work, before)
	done := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { t.run(always, done) })
	defer func() {
		if p := recover(); p != nil {
			a.logger.Error("executing a run", "panic", p, "stack", string(debug.Stack()))
			v = again("an internal error ended this run; the server's log has it")
		}
		if v.left || errors.Is(context.Cause(ctx), task.ErrLost) { // an end in the transcript would end the run for the worker that has it now
			close(done)
			helpers.Wait()
			a.keepSession(always, t.conversation())
			return
		}
		v = a.conclude(always, v, spec, attempt)
		// The transcript is stored before the state, so that a finished run has all of it.
		close(done)
		helpers.Wait()
		_ = a.charge(always, t.usage(), false) // the run's own end counts more than a budget
		a.keepSession(always, t.conversation())
	}()
	if decided := a.already(ctx, row, spec, err); decided != nil {
		return *decided
	}
	if err := a.charge(always, a.charged, !a.adopted); err != nil {
		return failed("%v", err)
	}
	a.logger.Info("run started", "automation", row.Automation, "delivery", row.DeliveryID, "attempt", row.Attempt)
	if row.Attempt == 1 && !a.adopted {
		a.manager.cfg.Observe(run.Observation{Factory: row.Factory, Automation: row.Automation, Waited: max(1, row.StartedAt.Sub(row.CreatedAt))})
	}
	place, refused := a.manager.cfg.Executor.Preflight(work)
	t.add(event.Status{State: string(store.InProgress), Message: started, Worker: a.manager.shown, Isolation: place.Isolation, ModelKey: agent.ModelKey, Head: run.HeadOf(work)})
	t.note(agent.Notes, p.warnings, agent.Warnings, place.Warnings)
	timeout, idle := spec.Times()
	work.Timeout = timeout
	left := timeout
	if a.adopted {
		left = max(reportTime, timeout-a.manager.cfg.Now().Sub(row.StartedAt))
	}
	stop := make(chan struct{})
	helpers.Go(func() { a.watch(always, t, left, idle, stop) })
	defer close(stop)
	if refused != nil {
		return failed("%v", refused)
	}
	exit, err := a.manager.cfg.Executor.Start(ctx, work, sink{t, a.keeper(always, t, work)})
	if errors.Is(err, task.ErrLeft) {
		return verdict{left: true}
	}
	v = judge(context.Cause(ctx), exit, err, timeout, idle, t.lastSaid(&agent))
	if v.state == store.Cancelled && errors.Is(context.Cause(ctx), task.ErrInterrupted) {
		v.message = a.interrupted(row, spec, p.session.ID != "" || t.conversation().ID != "")
	}
	return a.meter.judged(v)
}

// note tells notes and warnings about a run before it begins.
func (t *transcript) note(notes []string, warnings ...[]string) {
	for _, warning := range slices.Concat(warnings...) {
		t.add(event.Status{Message: "warning: " + warning})
	}
	for _, note := range notes {
		t.add(event.Status{Message: note})
	}
}

func (t *transcript) lastSaid(agent *harness.Start) lastSaid {
	said := lastSaid{words: t.lastWords(), printed: t.lastPrinted(), result: t.verdict(), expected: agent.Parse != nil, trouble: t.troubled()}
	if t.conversation().ID == "" { // a program that names no session may not be the harness's program
		said.tested = agent.Tested()
	}
	if said.meaning, said.final = agent.Explain(said.words); said.meaning == "" {
		said.meaning, _ = agent.Explain(said.printed) // never final: the text may be about the work
	}
	return said
}

// secretsOf are the values of a task that its transcript must not show.
func secretsOf(work *task.Task) []secret.Value {
	values := slices.Concat(slices.Collect(maps.Values(work.Secrets)), tokens(slices.Collect(maps.Values(work.Credentials))))
	for _, s := range work.Services {
		values = append(values, secret.New(s.Token))
	}
	for _, r := range work.Repositories {
		values = append(values, inAddress(r.URL)...)
	}
	return values
}

// already is the verdict of an attempt that ends before it begins, because err says why it could
// not be prepared, or because somebody has asked for its end. nil: the attempt begins.
func (a *attempt) already(ctx context.Context, row *store.Run, spec *run.Spec, err error) *verdict {
	var v verdict
	switch cause := context.Cause(ctx); {
	case err != nil && a.adopted && task.Leaves(cause):
		v = verdict{left: true}
	case err != nil && cause != nil: // the cause is the reason for err
		v = unbegun(cause)
	case err != nil:
		v = failed("%v", err)
	case row.StopRequested == store.StopCancel && a.adopted:
		v = stopped(task.ErrCancelled, 0, 0)
	case row.StopRequested == store.StopInterrupt && a.adopted:
		v = verdict{state: store.Cancelled, message: a.interrupted(row, spec, false)}
	case row.StopRequested != store.NoStop:
		v = unbegun(causeOf(row.StopRequested))
	default:
		return nil
	}
	return &v
}

// conclude decides whether another attempt follows the attempt with the number, and writes the
// end into the transcript.
func (a *attempt) conclude(ctx context.Context, v verdict, spec *run.Spec, attempt int64) verdict {
	v.message = a.transcript.hidden(a.stoppedBy(ctx, v))
	more := attempt < int64(spec.Retry.Attempts)
	if v.state == store.FailedRun && !v.again && more {
		v.message += notAgain
	}
	last := event.Status{State: string(v.state), Message: v.message}
	if v.again = v.again && more; v.again {
		last = event.Status{State: string(store.Queued), Message: fmt.Sprintf("attempt %d of %d failed: %s", attempt, spec.Retry.Attempts, v.message)}
	}
	a.transcript.close(last)
	return v
}

// stoppedBy is the message of a verdict. For a run that was stopped, it names who asked.
func (a *attempt) stoppedBy(ctx context.Context, v verdict) string {
	if v.state != store.Cancelled {
		return v.message
	}
	row, err := a.manager.cfg.Store.Runs.Get(ctx, a.lease.RunID)
	if err != nil || row.StopRequested == store.NoStop {
		return v.message
	}
	asked, _, _ := strings.Cut(row.StatusMessage, " ")
	if rest, is := strings.CutPrefix(v.message, asked); is {
		return row.StatusMessage + rest
	}
	return v.message
}

// beginning is the message with which an attempt begins in the transcript.
func beginning(attempt int64, spec *run.Spec) string {
	if attempt <= 1 {
		return "started"
	}
	return fmt.Sprintf("started, attempt %d of %d", attempt, spec.Retry.Attempts)
}

// reportTime is the least time for an attempt that is taken up, whatever its timeout: the agent
// may have ended in time, and its report has to be read.
const reportTime = time.Minute

// unbegun is the verdict about an attempt that is stopped before its agent starts.
func unbegun(cause error) verdict {
	v := stopped(cause, 0, 0)
	switch {
	case errors.Is(cause, task.ErrCancelled):
		v.message = "cancelled before its agent started"
	case errors.Is(cause, task.ErrInterrupted):
		v.message = "interrupted before its agent started"
	}
	return v
}

// tokens are the credentials of repositories, and the tokens in them.
func tokens(credentials []secret.Value) (values []secret.Value) {
	for _, v := range credentials {
		_, token, _ := strings.Cut(v.Reveal(), ":") // of USER:TOKEN
		values = append(values, v, secret.New(token))
	}
	return values
}

// leastToken is the length from which the user in an address over http is taken for a token.
const leastToken = 20

// inAddress are the possible credentials in the address of a repository. Definitions should
// keep credentials in secrets, but if an address has one, git prints it.
func inAddress(address string) (values []secret.Value) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User == nil {
		return nil
	}
	userText, passwordText, _ := strings.Cut(u.User.String(), ":") // as they stand in the address
	if password, has := u.User.Password(); has {
		values = append(values, secret.New(password), secret.New(passwordText))
	}
	if user := u.User.Username(); len(user) >= leastToken {
		values = append(values, secret.New(user), secret.New(userText))
	}
	return values
}

// interrupted says how to go on with a run that was interrupted.
func (a *attempt) interrupted(row *store.Run, spec *run.Spec, session bool) string {
	_, outlives := a.manager.outliving()
	switch {
	case outlives:
		return fmt.Sprintf("interrupted; its workspace went with it: `triphammer runs retry %s` starts it again", row.ID)
	case !spec.Sessions():
		return fmt.Sprintf("interrupted; its agent keeps no session: `triphammer runs retry %s` starts it again", row.ID)
	case !session:
		return fmt.Sprintf("interrupted before its agent had begun a session: `triphammer runs retry %s` starts it again", row.ID)
	}
	return fmt.Sprintf("interrupted; `triphammer runs followup %s --message TEXT` goes on", row.ID)
}

// save stores events of the transcript, and the session that they name.
func (a *attempt) save(ctx context.Context, events []store.Event, last bool) (err error) {
	defer a.manager.desk.Feed().Notify(a.lease.RunID)
	if last {
		err = a.manager.cfg.Store.Transcripts.AppendLast(ctx, a.lease, events)
	} else {
		err = a.manager.cfg.Store.Transcripts.Append(ctx, a.lease, events)
	}
	if err == nil && slices.ContainsFunc(events, func(e store.Event) bool { return e.Kind == event.KindSession }) {
		// Record the session at once, so that the conversation can go on if the server dies. The
		// event itself may be redacted.
		a.keepSession(ctx, a.transcript.conversation())
	}
	return err
}

// keepSession records the session with which the conversation goes on.
func (a *attempt) keepSession(ctx context.Context, told event.Session) {
	session := store.Session{Harness: told.Harness, ID: told.ID}
	if session.ID == "" || session == a.session {
		return
	}
	if err := a.manager.cfg.Store.Conversations.SetSession(ctx, a.lease, session); err != nil {
		a.logger.Warn("recording the session of a run", "error", err)
		return
	}
	a.session = session
}

// lastEvent is the number of the last event of the earlier attempts. It tries until the store
// answers, because an event with a number that is taken could not be stored.
func (a *attempt) lastEvent(ctx context.Context, attempt int64) int64 {
	if attempt <= 1 {
		return 0
	}
	for try := 1; ; try++ {
		last, err := a.manager.cfg.Store.Transcripts.Last(context.WithoutCancel(ctx), a.lease.RunID)
		if err == nil || giveUp(ctx, try, err) {
			return last
		}
		a.logger.Error("reading how long a transcript is; the next attempt follows", "error", err)
		time.Sleep(retryTime)
	}
}

// sink takes what the executor produces.
type sink struct {
	transcript *transcript
	keep       *keeper
}

// Add implements task.Sink. A pull request that the gateway opened is a link that the run leaves.
func (s sink) Add(e event.Event) {
	s.transcript.add(e)
	if r, is := e.(event.Request); is && strings.HasPrefix(r.Done, "http") {
		asked, _ := output.Parse([]byte(r.Request))
		_ = s.Keep(event.Artifact{Name: asked.Title, URL: r.Done}, nil) // the transcript says if it is not kept
	}
}

// cutShort is added to the message of a run whose agent had ended before its server or worker
// stopped.
const cutShort = "its agent had ended when the server or worker of the run stopped: files that it left may be missing"

// notAgain is added to the reason why a run failed that has attempts left.
const notAgain = "; it is not tried again, because it would fail in the same way"

// configExit is EX_CONFIG of sysexits.h: the program's configuration is wrong, so starting it
// again is of no use.
const configExit = 78

// lastSaid has the last words of an agent.
type lastSaid struct {
	words    string        // the last line on standard error
	printed  string        // the last line on standard output that is no event
	tested   string        // the tested version of the harness; empty: not known, or the program is surely the harness's
	meaning  string        // meaning of the last line, and what to do; empty: not known
	final    bool          // by the meaning, every further attempt would fail alike
	result   *event.Result // the harness's report of its end; nil: there is none
	expected bool          // the harness should have reported its end
	trouble  string        // why the agent did not reach its model in the end
}

// judge decides the state of the run. If the agent ended by itself before it was
// stopped, its own result counts. The harness's report of its end counts more than its exit
// status (SPEC 15.3).
func judge(cause error, exit task.Exit, err error, timeout, idle time.Duration, said lastSaid) verdict {
	finished := errors.Is(cause, errFinished) && said.result != nil
	if cause != nil && !finished && (err != nil || exit.Stopped) {
		v := stopped(cause, timeout, idle)
		if said.trouble != "" && (errors.Is(cause, task.ErrTimeout) || errors.Is(cause, task.ErrIdle)) {
			v.message += "; until then it did not reach its model: " + said.trouble
		}
		return v
	}
	if err != nil && !finished {
		final := (*task.FinalError)(nil)
		if errors.Is(err, task.ErrNoWorkspace) || errors.As(err, &final) {
			return failed("%v", err)
		}
		return again("%v", err)
	}
	v := verdict{state: store.Succeeded}
	if said.result != nil && said.result.Failed {
		v = again("%s", said.result.Message)
		v.again = !said.result.Final
	} else if !finished { // a finished agent whose process did not end had to be stopped
		v = ended(exit, said)
	}
	if code := int64(exit.Code); exit.Signal == "" && !finished {
		v.exit = &code
	}
	return v
}

// stopped is the verdict about an agent that the worker has stopped.
func stopped(cause error, timeout, idle time.Duration) verdict {
	switch {
	case errors.Is(cause, task.ErrCancelled):
		return verdict{state: store.Cancelled, message: "cancelled while it was in progress"}
	case errors.Is(cause, task.ErrInterrupted):
		return verdict{state: store.Cancelled}
	case errors.Is(cause, task.ErrTimeout):
		return again("the run took longer than its timeout of %v, and was stopped (timeoutMinutes of its environment)", timeout)
	case errors.Is(cause, task.ErrIdle):
		return again("the agent was silent for %v, and was stopped (idleMinutes of its environment)", idle)
	}
	v := failed("%v", cause)
	v.again = errors.Is(cause, task.ErrStopped)
	return v
}

// ended is the verdict about an agent without a report of its end, by its exit status and its
// last words.
func ended(exit task.Exit, said lastSaid) verdict {
	var v verdict
	switch {
	case exit.Signal != "":
		v = again("the agent was ended by %s", exit.Signal)
	case exit.Code != 0:
		v = again("the agent ended with exit status %d", exit.Code)
		v.again = exit.Code != configExit
	case said.result == nil && said.expected:
		v = again("the agent ended with exit status 0, but did not say that it had finished")
	default:
		return verdict{state: store.Succeeded}
	}
	if said.meaning != "" {
		v.message = said.meaning
		v.again = v.again && !said.final
		return v
	}
	if said.words == "" && said.expected {
		said.words = event.Line(said.printed, maxWords)
	}
	if said.words != "" {
		v.message += ": " + said.words
	}
	if said.result == nil && exit.Signal == "" && said.tested != "" {
		v.message += "; `triphammer doctor` says which version is installed, and " + said.tested + " is tested"
	}
	return v
}

// watch renews the lease. It ends a run that takes too long, is silent for too long, is
// cancelled, or exceeds a budget.
func (a *attempt) watch(ctx context.Context, t *transcript, timeout, idle time.Duration, stop <-chan struct{}) {
	beat := time.NewTicker(a.beat)
	late, silent := time.NewTimer(timeout), time.NewTimer(idle)
	defer beat.Stop()
	defer late.Stop()
	defer silent.Stop()
	for {
		select {
		case <-stop:
			return
		case <-late.C:
			a.cancel(task.ErrTimeout)
		case <-silent.C:
			if left := idle - t.silence(); left > 0 {
				silent.Reset(left)
			} else {
				a.cancel(task.ErrIdle)
			}
		case <-t.spent:
			if err := a.charge(ctx, t.usage(), false); err != nil && t.verdict() == nil { // a reported end counts more
				a.logger.Warn("a run exceeds a budget: its agent is stopped", "reason", err)
				a.cancel(err)
			}
		case <-beat.C:
			asked, err := a.renew(ctx)
			switch {
			case errors.Is(err, store.ErrFenced):
				a.cancel(task.ErrLost)
			case err != nil:
				a.logger.Warn("renewing the lease of a run", "error", err)
			case asked != store.NoStop:
				a.cancel(causeOf(asked))
			}
		}
	}
}

// errFinished ends the process of an agent that has reported its result.
var errFinished = errors.New("the agent had finished, but its process did not end")
