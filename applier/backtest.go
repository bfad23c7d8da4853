package applier

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/schema"
)

// Proposal is what applying a tree would do (SPEC 3.5, 4.2).
type Proposal struct {
	Diagnostics schema.Diagnostics
	Deferred    []schema.Deferred // references that this server cannot resolve either
	Against     string            // the commit that serves; empty if there is none
	Plan        Plan              // empty if there are errors
	BackTests   []BackTest
}

// BackTest is how many stored deliveries would start an automation, with the live
// definitions and with the proposed definitions.
type BackTest struct {
	Automation string `json:"automation"`
	Deliveries int    `json:"deliveries"` // evaluated deliveries, of all webhooks that the automation selects before or after
	Before     int    `json:"before"`
	After      int    `json:"after"`
	Waits      int    `json:"waits,omitempty"` // of After, the runs that would wait for a person before they start (SPEC 26.1)
	// Assumed says what the numbers of runs leave out, because it depends on how long runs take, or on people of whom
	// the sender was not asked; empty: nothing.
	Assumed string `json:"assumed,omitempty"`
	// Started lists the newest deliveries that start a run only with the proposed
	// definitions. Stopped lists the newest that start a run only with the live
	// definitions. Each has at most maxExamples, taken from each webhook in turn.
	Started []string `json:"started"`
	Stopped []string `json:"stopped"`

	open int // deliveries of which it is not known whether a person who caused them may start it
}

const maxExamples = 5

// Propose checks a tree against the state of the server, and says what an apply of the
// tree would change. Propose itself changes nothing. For each automation that would change,
// it evaluates up to the given number of deliveries of each webhook, the newest first.
func (a *Applier) Propose(ctx context.Context, tree fs.FS, deliveries int) (*Proposal, error) {
	built, err := a.compile(ctx, gitrepo.Commit{}, tree)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Diagnostics: built.Diagnostics, Deferred: built.Deferred, Plan: Diff(nil, nil), BackTests: []BackTest{}}
	live, serves := a.cfg.Live.Revision(a.cfg.Factory)
	if serves {
		p.Against = live.Commit.Hash
	}
	if built.Revision == nil {
		return p, nil
	}
	p.Plan = Diff(live, built.Revision)
	if deliveries > 0 && p.Plan.Pending() {
		p.BackTests, err = a.backTest(ctx, live, built.Revision, p.Plan, deliveries)
	}
	return p, err
}

// backTest evaluates stored deliveries with both revisions. from may be nil.
func (a *Applier) backTest(ctx context.Context, from, to *Revision, plan Plan, newest int) ([]BackTest, error) {
	changes := make(map[string]bool)
	for _, c := range slices.Concat(plan.Create, plan.Update, plan.Delete) {
		if c.Kind == "automation" {
			changes[c.Name] = true
		}
	}
	type versions struct{ was, is *Webhook }
	webhooks := make(map[string]versions)
	for _, w := range from.webhooks() {
		webhooks[w.UID] = versions{was: w}
	}
	for _, w := range to.webhooks() {
		webhooks[w.UID] = versions{webhooks[w.UID].was, w}
	}
	tests := make(map[string][]*BackTest) // by automation: one for each webhook
	for _, uid := range slices.Sorted(maps.Keys(webhooks)) {
		v := webhooks[uid]
		selects, of := make(map[string]bool), make(map[string]*BackTest)
		for _, w := range []*Webhook{v.was, v.is} {
			for _, name := range w.names() {
				selects[name] = true
			}
		}
		if len(selects) == 0 {
			continue
		}
		var sent []sentDelivery
		err := a.cfg.Ledger.Deliveries(ctx, uid, newest, func(id string, at time.Time, d match.Delivery) error {
			s := sentDelivery{id: id, at: at, waits: make(map[string]bool)}
			var err error
			if s.before, _, err = v.was.starts(d, nil); err == nil {
				s.after, s.open, err = v.is.starts(d, s.waits)
			}
			if err != nil {
				return fmt.Errorf("delivery %s: %w", id, err)
			}
			sent = append(sent, s)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("the back-test: %w", err)
		}
		for name := range selects {
			was, is := v.was.automation(name), v.is.automation(name)
			before := settled(was, sent, func(s sentDelivery) (string, bool) { subject, ok := s.before[name]; return subject, ok })
			after := settled(is, sent, func(s sentDelivery) (string, bool) { subject, ok := s.after[name]; return subject, ok })
			for i, s := range sent {
				if of[name] == nil {
					of[name] = &BackTest{Automation: name, Assumed: assumed(was, is)}
				}
				of[name].add(s.id, before[i], after[i])
				switch _, fires := s.after[name]; {
				case after[i] && s.waits[name]:
					of[name].Waits++
				case !fires && s.open && is != nil && is.Approval.Outsiders:
					of[name].open++
				}
			}
		}
		for name, t := range of {
			tests[name] = append(tests[name], t)
		}
	}
	all := []BackTest{}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if t := together(tests[name]); changes[name] || len(t.Started)+len(t.Stopped) > 0 {
			all = append(all, t)
		}
	}
	return all, nil
}

// sentDelivery is a stored delivery, with the subjects of the automations that it would start.
type sentDelivery struct {
	id            string
	at            time.Time
	before, after map[string]string
	waits         map[string]bool // of after: those whose runs would wait for a person
	open          bool            // it depends on what nobody has asked the sender whether it starts others, too
}

// settled tells which of the deliveries, the newest first, start a run of an automation that a
// newer event of their subject does not supersede (SPEC 21.4). a may be nil.
func settled(a *factory.Automation, sent []sentDelivery, matched func(sentDelivery) (subject string, ok bool)) []bool {
	starts := make([]bool, len(sent))
	type waiting struct {
		delivery     int
		first, until time.Time
	}
	last := make(map[string]waiting)
	for i, s := range slices.Backward(sent) {
		subject, ok := matched(s)
		if starts[i] = ok; !ok || a == nil || a.Settle == 0 || subject == "" {
			continue
		}
		now := waiting{i, s.at, time.Time{}}
		if w, waits := last[subject]; waits && s.at.Before(w.until) {
			starts[w.delivery] = false
			now.first = w.first
		}
		now.until = s.at.Add(a.Settle)
		if latest := now.first.Add(factory.MaxSettle * a.Settle); latest.Before(now.until) {
			now.until = latest
		}
		last[subject] = now
	}
	return starts
}

// assumed says which rules the numbers of a back-test do not know. Both may be nil.
func assumed(was, is *factory.Automation) string {
	var parts []string
	for _, a := range []*factory.Automation{was, is} {
		if a == nil {
			continue
		}
		text := ""
		switch a.PerSubject {
		case "skip":
			text = "events that perSubject: skip leaves out are counted"
		case "replace":
			text = "runs that perSubject: replace cancels are counted"
		}
		if text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", and ") + ", because how long runs take is not known"
}

// together adds up the back-tests of an automation's webhooks. It takes examples from
// each webhook in turn.
func together(tests []*BackTest) BackTest {
	sum := BackTest{Automation: tests[0].Automation, Assumed: tests[0].Assumed, Started: []string{}, Stopped: []string{}}
	for _, t := range tests {
		sum.Deliveries, sum.Before, sum.After = sum.Deliveries+t.Deliveries, sum.Before+t.Before, sum.After+t.After
		sum.Waits, sum.open = sum.Waits+t.Waits, sum.open+t.open
	}
	if sum.open > 0 {
		if sum.Assumed != "" {
			sum.Assumed += "; "
		}
		sum.Assumed += fmt.Sprintf("of up to %d more, the sender was not asked whether their people may start it: those runs would start, or wait for a person", sum.open)
	}
	for i := range maxExamples {
		for _, t := range tests {
			if i < len(t.Started) && len(sum.Started) < maxExamples {
				sum.Started = append(sum.Started, t.Started[i])
			}
			if i < len(t.Stopped) && len(sum.Stopped) < maxExamples {
				sum.Stopped = append(sum.Stopped, t.Stopped[i])
			}
		}
	}
	return sum
}

func (t *BackTest) add(id string, before, after bool) {
	t.Deliveries++
	if before {
		t.Before++
	}
	if after {
		t.After++
	}
	switch {
	case after && !before && len(t.Started) < maxExamples:
		t.Started = append(t.Started, id)
	case before && !after && len(t.Stopped) < maxExamples:
		t.Stopped = append(t.Stopped, id)
	}
}

func (r *Revision) webhooks() []*Webhook {
	if r == nil {
		return nil
	}
	return r.Webhooks
}

// names are the automations that select the webhook, which may be nil.
func (w *Webhook) names() []string {
	if w == nil {
		return nil
	}
	names := make([]string, len(w.Automations))
	for i, a := range w.Automations {
		names[i] = a.Def.Name
	}
	return names
}

// automation is one that selects the webhook, which may be nil; nil: none of the name does.
func (w *Webhook) automation(name string) *factory.Automation {
	if w == nil {
		return nil
	}
	for _, a := range w.Automations {
		if a.Def.Name == name {
			return a.Def
		}
	}
	return nil
}

// starts are the automations that the delivery would start, with its subject for each. It notes in waits,
// unless that is nil, those whose runs would wait for a person. open tells that it depends on open questions
// whether others start. A webhook that is nil or disabled starts no automation.
func (w *Webhook) starts(d match.Delivery, waits map[string]bool) (subjects map[string]string, open bool, err error) {
	if w == nil || !w.Def.Enabled {
		return nil, false, nil
	}
	matched, questions, err := w.Index.Match(d, nil)
	if err != nil {
		return nil, false, err
	}
	subjects = make(map[string]string, len(matched))
	for _, m := range matched {
		if m.Event.IsReply() { // whether the thread was answered is not known
			continue
		}
		def := w.Automations[m.Candidate].Def
		waiting := def.Approval.Start || m.Outsider
		if subjects[def.Name] = m.Subject; waiting && m.Subject != "" { // it gives way to the same person alone
			subjects[def.Name] += "\x00" + m.Person
		}
		if waits != nil {
			waits[def.Name] = waiting
		}
	}
	return subjects, len(questions) > 0, nil
}
