package match

import (
	"slices"

	"triphammer/factory/filter"
	"triphammer/factory/jsonscan"
	"triphammer/factory/native"
)

// Result tells whether a delivery matches one automation, and if not, why.
type Result struct {
	Automation string
	Matched    bool
	// Open are the questions to the sender's API that decide, if all other conditions of a
	// trigger hold.
	Open []native.Question
	// Path, Want and Got belong to the first condition that failed.
	Path, Want, Got string
	// Conditions belong to the trigger that matched, or else to the trigger that came
	// furthest.
	Conditions []filter.Condition
	// Reply tells that the delivery is a reply that the automation accepts. It matches in a thread that
	// the automation has answered (Delivery.Answered).
	Reply bool
	// Subject is what the event is about for a delivery that matches (SPEC 21.1). Lacks is the path
	// of the automation's own subject that has no value in the payload; then there is no subject.
	Subject, Lacks string
}

// Explain evaluates every candidate on the delivery, in order.
func (x *Index) Explain(d Delivery) []Result {
	results, p := make([]Result, 0, len(x.candidates)), reader{delivery: d}
	for _, c := range x.candidates {
		results = append(results, c.explain(&p))
	}
	return results
}

// Explain evaluates one candidate on the delivery. A candidate without triggers does not
// match.
func (c Candidate) Explain(d Delivery) Result { return c.explain(&reader{delivery: d}) }

// reader reads a delivery once for all triggers on the events of its sender.
type reader struct {
	delivery Delivery
	payload  *native.Payload
}

func (r *reader) of(sender *native.Sender, accounts []string) *native.Payload {
	if r.payload == nil || r.payload.Sender != sender {
		r.payload = read(sender, r.delivery, accounts)
	}
	return r.payload
}

func (c Candidate) explain(r *reader) Result {
	best, held := native.Verdict{}, -1
	verdicts := make([]native.Verdict, 0, len(c.Triggers)+len(c.Replies))
	for _, t := range c.Triggers {
		verdicts = append(verdicts, t.explain(r, c.Accounts))
	}
	reply := false
	for _, t := range c.Replies {
		v := Trigger{Native: t}.explain(r, c.Accounts)
		if v.Matched {
			reply = true
			v = c.answered(v, t.Event, r.delivery.Answered[c.Automation])
		}
		verdicts = append(verdicts, v)
	}
	for _, v := range verdicts {
		if v.Matched {
			best = v
			break
		}
		// A trigger that an answer decides came further than every refused trigger.
		n, open, opened := holding(v), len(v.Open) > 0, len(best.Open) > 0
		if open && !opened || open == opened && n > held {
			best, held = v, n
		}
	}
	result := Result{
		Automation: c.Automation, Matched: best.Matched, Open: best.Open, Reply: reply,
		Path: best.Path, Want: best.Want, Got: best.Got, Conditions: best.Conditions,
	}
	if best.Matched {
		result.Subject, result.Lacks = c.subject(r)
	}
	return result
}

// answered adds to the verdict on a reply whether the automation has answered in its thread, or asked.
func (c Candidate) answered(v native.Verdict, e *native.Event, is bool) native.Verdict {
	last := filter.Condition{Path: "thread", Want: "a thread that " + c.Automation + " has answered", Got: "a reply in another thread", OK: is}
	if c.ToQuestion(e) {
		last.Want, last.Got = "a thread in which a question of "+c.Automation+" is open", "a text in another thread, or after the question was answered"
	}
	if is {
		last.Got = "a reply there"
	} else {
		v.Matched, v.Path, v.Want, v.Got = false, last.Path, last.Want, last.Got
	}
	v.Conditions = append(v.Conditions, last)
	return v
}

// subject is what a delivery that matches is about. As in Index.Match, filters on the delivery count
// before the sender's events.
func (c Candidate) subject(r *reader) (subject, lacks string) {
	if c.Subject != nil {
		return c.Subject.Subject(c.Webhook, r.delivery.Body)
	}
	var event *native.Event
	for _, t := range c.Triggers {
		switch {
		case !t.explain(r, c.Accounts).Matched:
		case t.Native == nil:
			return "", ""
		case event == nil:
			event = t.Native.Event
		}
	}
	if event == nil {
		i := slices.IndexFunc(c.Replies, func(t *native.Trigger) bool { return Trigger{Native: t}.explain(r, c.Accounts).Matched })
		event = c.Replies[max(i, 0)].Event
	}
	return event.SubjectOf(r.of(event.Sender, c.Accounts)), ""
}

// explain evaluates every condition of the trigger on the delivery.
func (t Trigger) explain(r *reader, accounts []string) native.Verdict {
	if t.Native == nil {
		return native.Verdict{Verdict: t.Headers.Explain(r.delivery.Headers).And(t.Payload.Explain(r.delivery.Body))}
	}
	if err := jsonscan.Check(r.delivery.Body); err != nil {
		return native.Verdict{Verdict: filter.Verdict{Path: "payload", Want: "valid JSON", Got: err.Error()}}
	}
	return t.Native.Explain(r.of(t.Native.Event.Sender, accounts))
}

func holding(v native.Verdict) int {
	n := 0
	for _, c := range v.Conditions {
		if c.OK {
			n++
		}
	}
	return n
}
