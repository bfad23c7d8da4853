package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/answer"
	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// The stages of the belt, in order (SPEC 7.1).
const (
	StageReceived      = "received"
	StageAuthenticated = "authenticated"
	StageParsed        = "parsed"
	StageNew           = "new"
	StageMatched       = "matched"
	StageRun           = "run"
)

// Stage is one step of the belt. The belt of a delivery goes on with the belts of its runs.
type Stage = run.Stage

// Trace says which stage a delivery reached, and why it stopped there.
type Trace struct {
	Delivery *store.Delivery
	Commit   string // of the definitions that decided the delivery
	// Webhook is the definition that decided the delivery, with its automations; nil if it
	// is no longer available.
	Webhook *applier.Webhook
	Belt    []Stage
	// Event, Person and Title are as in About.
	Event, Person, Title string
	// Matches has one result for each enabled automation that selects the webhook, with
	// the first path that failed. It is nil if the delivery was not matched.
	Matches []match.Result
	// Asked describes the state of the questions to the sender's API. Waiting tells whether a
	// question is still open (SPEC 16.3).
	Asked   []string
	Waiting bool
	// Disabled has the results that the disabled automations which select the webhook
	// would have had. They start nothing.
	Disabled []match.Result
}

// Show derives the trace of a recorded delivery (SPEC 7.1).
func (s *Service) Show(ctx context.Context, id store.DeliveryID) (*Trace, error) {
	d, err := s.cfg.Store.Deliveries.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	trace := &Trace{Delivery: d}
	hook, why := s.deciding(ctx, d)
	if trace.Webhook = hook; hook != nil {
		trace.Commit = hook.Revision.Commit.Hash
	} else if a, err := s.cfg.Store.Applies.Get(ctx, d.ApplyID); err == nil {
		trace.Commit = a.Commit
	}
	trace.Event, _, _ = happened(nil, match.Delivery{Headers: d.Headers})
	b := &belt{}
	switch {
	case d.Outcome == store.RejectedTooLarge:
		b.stop(StageReceived, join(fmt.Sprintf("%s: over %d bytes", ReasonTooLarge, MaxBody), d.Detail))
	case d.Reason == ReasonIncomplete, d.Reason == ReasonTooSlow, d.Reason == ReasonMalformed:
		b.stop(StageReceived, join(d.Reason, d.Detail, from(d)))
	default:
		b.pass(StageReceived, join(fmt.Sprintf("%d bytes", d.Size), from(d)))
	}
	if d.Outcome == store.RejectedAuth {
		b.stop(StageAuthenticated, join(d.Reason, d.Detail))
	} else {
		b.pass(StageAuthenticated, authentication(hook, d))
	}
	if d.Outcome == store.RejectedInvalidJSON {
		b.stop(StageParsed, join(d.Reason, d.Detail))
	} else {
		b.pass(StageParsed, "JSON")
	}
	identity := d.Identity.Source + " " + d.Identity.Value
	if d.Outcome == store.Duplicate {
		b.stop(StageNew, "repeats "+d.DuplicateOf.String()+": "+identity)
	} else {
		b.pass(StageNew, join(identity, sameBody(d)))
	}
	if d.Outcome == store.Accepted {
		if err := s.explainMatch(ctx, b, trace, hook, why); err != nil {
			return nil, err
		}
	}
	trace.Belt = b.finish()
	return trace, nil
}

// sameBody says that the signed body of an accepted delivery came before; empty: nothing is known of that.
func sameBody(d *store.Delivery) string {
	if d.SameBodyAs == 0 {
		return ""
	}
	return "same signed body as " + d.SameBodyAs.String() + ", under another id, which the sender does not sign"
}

// explainMatch matches the stored payload again, with the definitions that decided the
// delivery. The runs that it shows are the recorded ones, whatever matches now.
func (s *Service) explainMatch(ctx context.Context, b *belt, trace *Trace, hook *applier.Webhook, why string) error {
	d := trace.Delivery
	if hook != nil {
		body, err := s.cfg.Store.Deliveries.Payload(ctx, d.ID)
		switch {
		case errors.Is(err, store.ErrDamaged): // the trace shows the other recorded data
			b.stages[0].Detail = join(b.stages[0].Detail, "the stored payload is damaged")
			hook, why = nil, "the stored payload is damaged"
		case err != nil:
			return fmt.Errorf("payload of %s: %w", d.ID, err)
		default:
			lookups, err := s.cfg.Store.Lookups.Of(ctx, d.ID)
			if err != nil {
				return err
			}
			sent := match.Delivery{Headers: d.Headers, Body: body}
			sent.Answers, sent.Open = Answers(lookups)
			sent.Answered = make(map[string]bool)
			for _, r := range d.Runs {
				sent.Answered[r.Automation] = true
			}
			for _, l := range lookups {
				trace.Asked = append(trace.Asked, askedFor(l))
				trace.Waiting = trace.Waiting || l.State == store.LookupWaiting
			}
			trace.Event, trace.Person, trace.Title = happened(hook, sent)
			b.tell(StageParsed, eventsOf(hook.Def, sent))
			trace.Matches = hook.Index.Explain(sent)
			for _, c := range hook.Revision.Definition.Disabled(hook.Def, hook.UID) {
				trace.Disabled = append(trace.Disabled, c.Explain(sent))
			}
		}
	}
	switch {
	case started(trace) > 0:
		b.pass(StageMatched, join(terms.Counted(started(trace), "automation"), ownSubjects(trace), alone(trace), strings.Join(trace.Asked, ", ")))
		var runs []string
		for _, r := range d.Runs {
			by := r.Automation
			if r.RetryOf != 0 {
				by += ", again"
			}
			runs = append(runs, r.ID.String()+" ("+by+")")
		}
		if gone := started(trace) - firstRuns(d); gone > 0 {
			runs = append(runs, terms.Counted(gone, "run")+" no longer kept")
		}
		b.pass(StageRun, join(strings.Join(runs, ", "), s.startedNothing(d)))
	case d.Decided != "":
		b.stop(StageMatched, d.Decided)
	case len(d.Stopped) > 0:
		b.stop(StageMatched, "it stops what is at work in its thread: "+runsOf(d.Stopped))
	case trace.Waiting:
		b.stop(StageMatched, strings.Join(trace.Asked, "; "))
	case d.AnswerOf != 0:
		b.stop(StageMatched, "it is about an answer of "+d.AnswerOf.String()+", and an answer starts nothing")
	case len(d.Paused)+len(d.Repeats)+len(d.Limited)+len(d.Skips) > 0:
		b.pass(StageMatched, join(terms.Counted(len(d.Paused)+len(d.Repeats)+len(d.Limited)+len(d.Skips), "automation"), ownSubjects(trace)))
		b.stop(StageRun, s.startedNothing(d))
	case hook == nil:
		b.stop(StageMatched, "no automation wanted it; the reason is not known: "+why)
	case len(trace.Matches) == 0 && len(trace.Disabled) == 0:
		b.stop(StageMatched, "no automation selects this webhook")
	case len(trace.Matches) == 0 && len(trace.Disabled) == 1:
		b.stop(StageMatched, "the one automation that selects this webhook is disabled: "+trace.Disabled[0].Automation)
	case len(trace.Matches) == 0:
		b.stop(StageMatched, fmt.Sprintf("selected by %d automations, all disabled: %s", len(trace.Disabled), automationsOf(trace.Disabled)))
	default:
		detail := fmt.Sprintf("none of the %d automations on this webhook wanted it", len(trace.Matches))
		if len(trace.Matches) == 1 {
			detail = "the one enabled automation on this webhook did not want it"
		}
		who := mayNot(trace.Matches) // has what was asked of the person
		asked := slices.DeleteFunc(slices.Clone(trace.Asked), func(text string) bool { return strings.Contains(who, text) })
		detail = join(detail+elsewhere(trace.Matches), who, strings.Join(asked, ", "))
		if len(trace.Disabled) > 0 {
			detail += "; disabled: " + automationsOf(trace.Disabled)
		}
		b.stop(StageMatched, detail)
	}
	return s.tellTold(ctx, b, trace)
}

// runsOf names runs.
func runsOf(ids []store.RunID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return strings.Join(names, ", ")
}

// tellTold adds what was told of a delivery that neither starts nor stops a run (SPEC 21.6, 22.2).
func (s *Service) tellTold(ctx context.Context, b *belt, trace *Trace) error {
	d := trace.Delivery
	if started(trace)+len(d.Stopped) > 0 {
		return nil
	}
	told, err := s.cfg.Store.Answers.Of(ctx, store.RunID(d.ID))
	for i := range told {
		b.tell(StageMatched, answer.Told(&told[i]))
	}
	return err
}

// elsewhere says where a reply would go on; empty: the delivery is none.
func elsewhere(results []match.Result) string {
	i := slices.IndexFunc(results, func(m match.Result) bool { return m.Reply && m.Path == "thread" })
	if i < 0 {
		return ""
	}
	return ": it is a reply, and goes on in " + results[i].Want
}

// mayNot says which automations the person of the event may not start (SPEC 24.1).
func mayNot(results []match.Result) string {
	var parts []string
	for _, r := range results {
		if r.Path == native.StartedBy {
			parts = append(parts, fmt.Sprintf("%s may be started by %s, and came from %s", r.Automation, r.Want, r.Got))
		}
	}
	return strings.Join(parts, ", ")
}

// alone names the automations with a rule about subjects for which the delivery has no subject.
func alone(trace *Trace) string {
	var names []string
	for _, m := range trace.Matches {
		a := trace.Webhook.Revision.Definition.Automation(m.Automation)
		if m.Matched && m.Subject == "" && a != nil && (a.PerSubject != "" || a.Settle > 0) {
			names = append(names, m.Automation)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "without a subject, a run starts as with perSubject: parallel (" + strings.Join(names, ", ") + ")"
}

// eventsOf names the events of the sender that a delivery has, the page of the thing that they
// happened to, and their subject.
func eventsOf(def *factory.Webhook, sent match.Delivery) string {
	sender := def.Sender()
	if sender == nil {
		return ""
	}
	p := sender.Read(native.Delivery{Header: sent.Headers, Body: sent.Body, Accounts: def.Accounts})
	var names []string
	link, subject := "", ""
	for _, e := range p.Events() {
		names, link, subject = append(names, e.Name), cmp.Or(link, e.LinkOf(p)), cmp.Or(subject, e.SubjectOf(p))
	}
	if len(names) == 0 {
		return "no event of " + sender.Title + " that triggers know"
	}
	text := strings.Join(names, " and ")
	if link != "" {
		text += " of " + link
	}
	return join(text, about(subject))
}

// ownSubjects says what the delivery is about as its automations say it, or what they lack in the
// payload.
func ownSubjects(trace *Trace) string {
	var parts []string
	for _, m := range trace.Matches {
		a := trace.Webhook.Revision.Definition.Automation(m.Automation)
		if a == nil || a.Subject == nil {
			continue
		}
		part := about(m.Subject)
		if m.Lacks != "" {
			part = fmt.Sprintf("%s has no subject: the payload lacks %s", m.Automation, m.Lacks)
		}
		if part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// about says what something is about; an empty subject is nothing.
func about(subject string) string {
	if subject == "" {
		return ""
	}
	return "about " + subject
}

// startedNothing says which automations started nothing because they were paused, because
// another delivery reported the same event, or because a run about the same subject was at work.
// It adds the reason of a pause that still lasts.
func (s *Service) startedNothing(d *store.Delivery) string {
	var parts []string
	for _, name := range d.Paused {
		text := name + " was paused"
		if p, still := s.cfg.Store.Pauses.Of(store.Pausable{Kind: store.KindAutomation, Factory: d.Factory, Name: name}); still {
			until := ""
			if !p.Until.IsZero() {
				until = " until " + p.Until.UTC().Format(time.RFC3339)
			}
			text = fmt.Sprintf("%s is paused since %s%s by %s: %s (triphammer automations resume %s)", name, p.At.Format(time.RFC3339), until, p.By, p.Reason, name)
		}
		parts = append(parts, text)
	}
	for _, r := range d.Repeats {
		parts = append(parts, fmt.Sprintf("another delivery reported the same event: %s started %s", r.Of, r.Automation))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Limited)) {
		parts = append(parts, name+" started nothing: "+d.Limited[name])
	}
	for _, r := range d.Skips {
		parts = append(parts, fmt.Sprintf("%s was skipped: %s is about the same subject, and had not ended (perSubject: skip)", r.Automation, r.Of))
	}
	return strings.Join(parts, ", ")
}

// started is how many runs the delivery started. An old delivery has no recorded number,
// so its matches are counted.
func started(trace *Trace) int {
	n := max(trace.Delivery.Started, firstRuns(trace.Delivery))
	if trace.Delivery.Started < 0 {
		matched := 0
		for _, m := range trace.Matches {
			if m.Matched {
				matched++
			}
		}
		n = max(n, matched)
	}
	return n
}

// firstRuns is the number of runs that the delivery started itself, without their retries.
func firstRuns(d *store.Delivery) (n int) {
	for _, r := range d.Runs {
		if r.RetryOf == 0 {
			n++
		}
	}
	return n
}

// automationsOf names the first few automations.
func automationsOf(results []match.Result) string {
	const shown = 5
	names := terms.Each(results[:min(len(results), shown)], func(r match.Result) string { return r.Automation })
	if more := len(results) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// deciding finds the webhook as it was when the delivery arrived, or says why it is not
// available.
func (s *Service) deciding(ctx context.Context, d *store.Delivery) (hook *applier.Webhook, why string) {
	if live, ok := s.cfg.Live.Webhook(d.WebhookUID); ok && live.Revision.ApplyID == d.ApplyID.String() {
		return live, ""
	}
	if s.cfg.Load == nil {
		return nil, "older definitions are not kept here"
	}
	revision, err := s.cfg.Load(ctx, d.ApplyID)
	if err != nil {
		return nil, "the definitions of that time are not available: " + err.Error()
	}
	for _, w := range revision.Webhooks {
		if w.UID == d.WebhookUID {
			return w, ""
		}
	}
	return nil, "that revision has no such webhook"
}

func authentication(hook *applier.Webhook, d *store.Delivery) string {
	if d.ReplayOf != 0 {
		return "replay of " + d.ReplayOf.String()
	}
	if hook == nil {
		return ""
	}
	if d.SecretGeneration == 0 && hook.Def.AppTokenName != "" {
		return "over the connection that " + hook.Def.AppTokenName + " opens"
	}
	mode := string(hook.Def.AuthMode)
	if hook.Def.Scheme != nil {
		mode += " " + hook.Def.Scheme.Name
	}
	return fmt.Sprintf("%s, %s generation %d", mode, hook.Def.SecretName, d.SecretGeneration)
}

func from(d *store.Delivery) string {
	switch {
	case d.TestBy != "":
		return "a test by " + d.TestBy
	case d.ClientAddr != "":
		return "from " + d.ClientAddr
	}
	return ""
}

func join(parts ...string) string {
	kept := parts[:0:0]
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ", ")
}

// belt collects the stages, up to the stage at which the delivery stopped.
type belt struct {
	stages  []Stage
	stopped bool
}

func (b *belt) pass(stage, detail string) { b.add(stage, run.Passed, detail) }
func (b *belt) stop(stage, detail string) { b.add(stage, run.Stopped, detail); b.stopped = true }

// tell adds text to the detail of a passed stage.
func (b *belt) tell(stage, detail string) {
	for i := range b.stages {
		if b.stages[i].Stage == stage {
			b.stages[i].Detail = join(b.stages[i].Detail, detail)
		}
	}
}

func (b *belt) add(stage, outcome, detail string) {
	if !b.stopped {
		b.stages = append(b.stages, Stage{Stage: stage, Outcome: outcome, Detail: detail})
	}
}

func (b *belt) finish() []Stage {
	all := []string{StageReceived, StageAuthenticated, StageParsed, StageNew, StageMatched, StageRun}
	for _, stage := range all[len(b.stages):] {
		b.stages = append(b.stages, Stage{Stage: stage, Outcome: run.NotReached})
	}
	return b.stages
}
