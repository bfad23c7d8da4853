package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// The stages of the belt of a run, in order (SPEC 7.1).
const (
	StageQueued  = "queued"
	StageStarted = "started"
	StageAgent   = "agent"
	StageEnded   = "ended"
	// StageAnswered is there if the run is told where its event came from (SPEC 22.5).
	StageAnswered = "answered"
)

// The outcomes of a stage.
const (
	Passed     = terms.Passed
	Active     = terms.Active
	Stopped    = terms.Stopped
	NotReached = terms.NotReached
)

// Stage is one step of the belt of a delivery or of a run.
type Stage struct {
	Stage, Outcome, Detail string
}

// Mark is the outcome as one character.
func (s Stage) Mark() string { return terms.Mark(s.Outcome) }

// Belt says how far the last attempt of a run came, and why it waits or stopped there
// (SPEC 7.1).
func (d *Desk) Belt(ctx context.Context, r *store.Run) ([]Stage, error) {
	spec, err := SpecOf(ctx, d.cfg.Store, r)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return nil, err
	}
	events, err := d.cfg.Store.Transcripts.OfKinds(ctx, r.ID, event.KindStatus, event.KindPhase, event.KindStarted, event.KindPush)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return nil, err
	}
	b := beltOf(r, int64(spec.Retry.Attempts), events)
	if r.State == store.Queued || r.State == store.Blocked {
		why, err := d.waits(ctx, r, &spec)
		if err != nil {
			return nil, err
		}
		b[0].Detail += ": " + why
	}
	if err := d.approvals(ctx, r, b); err != nil {
		return nil, err
	}
	if r.State == store.Succeeded {
		question, err := d.cfg.Store.Outputs.QuestionOf(ctx, r.ID)
		if err != nil {
			return b, err
		}
		b[len(b)-1].Detail += questioned(question)
	}
	answers, err := d.cfg.Store.Answers.Of(ctx, r.ID)
	if err != nil || len(answers) == 0 {
		return b, err
	}
	return append(b, answered(answers)), nil
}

// approvals adds to a belt what waits for a person, and who decided when and why (SPEC 26.1).
func (d *Desk) approvals(ctx context.Context, r *store.Run, b []Stage) error {
	if r.Automation == "" {
		return nil
	}
	all, err := d.cfg.Store.Approvals.Of(ctx, r.ID)
	var waiting, decided []string
	for _, a := range all {
		switch of := fmt.Sprintf("output %d", a.Seq); {
		case a.Seq == 0 && a.Decision == "":
			b[0].Detail += ", until " + at(a.EndsAt)
		case a.Seq == 0:
			b[0].Detail += ", " + a.Said() + " at " + at(a.DecidedAt)
		case a.Decision == "":
			waiting = append(waiting, of)
		default:
			decided = append(decided, of+" "+a.Said())
		}
	}
	if len(waiting) > 0 {
		decided = append(decided, "for a person to approve wait until "+at(all[len(all)-1].EndsAt)+": "+strings.Join(waiting, ", "))
	}
	if len(decided) > 0 {
		last := &b[len(b)-1]
		last.Detail = strings.TrimPrefix(last.Detail+"; "+strings.Join(decided, "; "), "; ")
	}
	return err
}

// WaitsFor says what a queued run waits for.
func (d *Desk) WaitsFor(ctx context.Context, r *store.Run) (string, error) {
	spec, err := SpecOf(ctx, d.cfg.Store, r)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return "", err
	}
	return d.waits(ctx, r, &spec)
}

func (d *Desk) waits(ctx context.Context, r *store.Run, spec *Spec) (string, error) {
	switch {
	case r.RunAt.After(d.cfg.Now()):
		if r.Attempt == 0 {
			return r.StatusMessage + "; it starts at " + at(r.RunAt) + " at the earliest", nil
		}
		return r.StatusMessage + "; the next attempt starts at " + at(r.RunAt) + " at the earliest", nil
	case r.Behind, r.State == store.Blocked:
		return r.StatusMessage, nil
	case d.cfg.Shared:
		if why, err := d.waitsForWorkers(ctx, r, spec); err != nil || why != "" {
			return why, err
		}
		return d.waitsForTurn(ctx, r)
	case !d.cfg.Capabilities.Carries(spec.WorkerHost):
		return store.WaitsFor(spec.WorkerHost) + " (serve --worker-host)", nil
	case !d.works():
		return "no server is running that could start it", nil
	}
	if why := d.local.Blocked(); why != "" {
		return why, nil
	}
	return d.waitsForTurn(ctx, r)
}

// waitsForTurn says why a run waits although its worker could take another run.
func (d *Desk) waitsForTurn(ctx context.Context, r *store.Run) (string, error) {
	switch running, full, err := d.cfg.Store.Leases.AutomationFull(ctx, store.Claim{PerAutomation: d.cfg.MaxPerAutomation}, r); {
	case err != nil:
		return "", err
	case full:
		return fmt.Sprintf("%d of %d runs of its automation are in progress (--max-runs-per-automation)", running, d.cfg.MaxPerAutomation), nil
	}
	return "it is about to start", nil
}

// answered is the last stage of a run that is told where its event came from (SPEC 22.5).
func answered(answers []store.Answer) Stage {
	s := Stage{StageAnswered, NotReached, ""}
	var parts []string
	rank := map[string]int{NotReached: 0, Passed: 1, Active: 2, Stopped: 3}
	for _, a := range answers {
		outcome, text := Told(a)
		if parts = append(parts, a.Kind+": "+text); rank[outcome] > rank[s.Outcome] {
			s.Outcome = outcome
		}
	}
	s.Detail = strings.Join(parts, "; ")
	return s
}

// questioned says how a question of a run stands; empty: it asked nothing.
func questioned(o *store.Output) string {
	switch {
	case o == nil:
		return ""
	case o.Status == store.OutputAsked:
		return ", with a question that waits for a reply at " + o.Where()
	case o.Status == store.OutputReplied:
		return ", with a question: " + o.Detail + " goes on with the reply"
	}
	return ", with a question that nobody answered before " + o.Detail
}

// Told says in words what an answer has told, what it waits for, or why nothing is told. outcome is
// that of its part of the stage.
func Told(a store.Answer) (outcome, text string) {
	switch {
	case a.Status == store.AnswerNone && strings.HasPrefix(a.Detail, "needs "):
		return NotReached, a.Detail
	case a.Status == store.AnswerNone:
		return NotReached, "nothing is told, because " + a.Detail
	case a.Status == store.AnswerFailed:
		return Stopped, "it could not be told, and needs a person: " + a.Detail
	case a.Status == store.AnswerDelivered:
		text = strings.TrimSpace("told "+a.Link()) + ", at " + at(a.UpdatedAt)
		if a.Detail != "" {
			text += "; " + a.Detail
		}
		return Passed, text
	case a.Detail != "":
		if text = a.Detail; !a.DueAt.IsZero() {
			text += "; it is tried again at " + at(a.DueAt)
		}
		return Active, text
	case a.Ended:
		return Active, "the end is about to be told"
	case a.Posted != "":
		return Active, "told " + strings.TrimSpace(a.Said+" "+a.Link())
	}
	return NotReached, "waits for the run"
}

// beltOf is the belt without the reason why the run waits.
func beltOf(r *store.Run, attempts int64, events []store.Event) []Stage {
	p := progressOf(r, events)
	queued := Stage{StageQueued, Active, "since " + at(p.queued)}
	started, agent, ended := Stage{StageStarted, NotReached, ""}, Stage{StageAgent, NotReached, ""}, Stage{StageEnded, NotReached, ""}
	switch {
	case r.State == store.Queued, r.State == store.Blocked:
		return []Stage{queued, started, agent, ended}
	case r.StartedAt.IsZero():
		queued.Outcome = Stopped
		queued.Detail += ", never started"
	default:
		queued.Outcome = Passed
		queued.Detail += ", for " + event.Took(r.StartedAt.Sub(p.queued).Milliseconds())
		started.Outcome = Passed
		started.Detail = "at " + at(r.StartedAt)
		if attempts > 1 {
			started.Detail += fmt.Sprintf(", attempt %d of %d", r.Attempt, attempts)
		}
		if p.status.Worker != "" {
			started.Detail += ", worker " + p.status.Worker
		}
		if p.status.Isolation != "" {
			started.Detail += ", isolation " + p.status.Isolation
		}
		if p.status.ModelKey != "" {
			started.Detail += ", model key " + p.status.ModelKey
		}
		if p.status.Head != "" {
			started.Detail += ", " + p.status.Head
		}
		agent.Detail = p.phases()
	}
	if pushes := p.pushes(); pushes != "" {
		agent.Detail = strings.TrimPrefix(agent.Detail+"; "+pushes, "; ")
	}
	switch {
	case r.State == store.InProgress:
		agent.Outcome = Active
	case r.State == store.Succeeded:
		agent.Outcome = Passed
	case p.status.State != "":
		agent.Outcome = Stopped
	case started.Outcome == Passed:
		started.Outcome, agent.Detail = Stopped, p.pushes()
	}
	if r.State.Terminal() {
		ended.Outcome = Stopped
		if r.State == store.Succeeded {
			ended.Outcome = Passed
		}
		ended.Detail = endOf(r)
	}
	return []Stage{queued, started, agent, ended}
}

// endOf tells how a run ended, and what it used.
func endOf(r *store.Run) string {
	text := string(r.State) + " at " + at(r.FinishedAt)
	if r.StatusMessage != "" {
		text += ": " + r.StatusMessage
	}
	if exit := "exit status "; r.ExitCode != nil && !strings.Contains(r.StatusMessage, exit) {
		text += fmt.Sprintf(", %s%d", exit, *r.ExitCode)
	}
	if r.Tokens > 0 {
		text += ", " + event.Tokens(r.Tokens)
	}
	if r.CostUSD > 0 {
		text += ", " + event.USD(r.CostUSD)
	}
	return text
}

// progress is what the transcript tells of the last attempt.
type progress struct {
	queued time.Time    // when the wait began
	status event.Status // the status event of the start
	done   []event.Phase
	agent  time.Time // when the agent started
	goesOn bool
	pushed []event.Push // of all attempts
}

func progressOf(r *store.Run, events []store.Event) progress {
	p := progress{queued: r.CreatedAt}
	for _, e := range events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			continue // of a newer server
		}
		switch d := decoded.(type) {
		case event.Status:
			switch d.State {
			case string(store.Queued):
				p = progress{queued: e.At, pushed: p.pushed}
			case string(store.InProgress):
				p = progress{queued: p.queued, status: d, pushed: p.pushed}
			}
		case event.Phase:
			p.done = append(p.done, d)
		case event.AgentStarted:
			p.agent = e.At
		case event.Push:
			p.pushed = append(p.pushed, d)
		}
	}
	p.goesOn = r.State == store.InProgress
	return p
}

// shownPushes is how many branches and tags a belt names.
const shownPushes = 5

// pushes tells what was pushed where, each branch once, and how many pushes were refused.
func (p progress) pushes() string {
	var places, shown []string
	refused, waits := 0, 0
	for _, e := range p.pushed {
		switch place := e.Place(); {
		case e.Refused != "":
			refused++
		case e.Waits != "":
			waits++
		case !slices.Contains(places, place):
			places = append(places, place)
		}
	}
	if more := len(places) - shownPushes; more > 0 {
		places = append(places[:shownPushes], fmt.Sprintf("%d more", more))
	}
	if len(places) > 0 {
		shown = append(shown, "pushed "+strings.Join(places, ", "))
	}
	if waits > 0 {
		shown = append(shown, fmt.Sprintf("pushes that wait for a person: %d", waits))
	}
	if refused > 0 {
		shown = append(shown, fmt.Sprintf("pushes refused: %d", refused))
	}
	return strings.Join(shown, "; ")
}

// phases tells how long the phases took, and which phase is not done.
func (p progress) phases() string {
	var parts []string
	agent := false
	for _, one := range p.done {
		parts = append(parts, one.Name+" "+event.Took(one.DurationMS))
		agent = agent || one.Name == event.PhaseAgent
	}
	switch {
	case p.agent.IsZero() && p.goesOn:
		parts = append(parts, "its workspace is prepared")
	case p.agent.IsZero():
		parts = append(parts, "the agent was not started")
	case !agent:
		parts = append(parts, event.PhaseAgent+" since "+at(p.agent))
	}
	return strings.Join(parts, ", ")
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
