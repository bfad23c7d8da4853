package native

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"triphammer/factory/filter"
)

// Trigger is a trigger of an automation, compiled. It is immutable and safe for concurrent
// use.
type Trigger struct {
	Event   *Event
	Filters []Filter // all must hold
	// StartedBy are those who may start it, if all filters hold; nil: whoever can.
	StartedBy *Starters
}

// Filter is one filter key of a trigger with its values, in canonical form.
type Filter struct {
	Key   *Key
	Named bool // the values are names where the key takes identifiers
	In    []string
	NotIn []string
}

// values are the event's values of the key, in canonical form. If the sender's API must be
// asked for the values, and has not answered, open is the question.
func (f *Filter) values(p *Payload) (values []string, open *Question) {
	from, ask := f.Key.From, f.Key.Ask
	if f.Named {
		from, ask = f.Key.Names.From, f.Key.Names.Ask
	}
	if ask == nil || len(ask.Unless.values(p)) > 0 {
		values = from.values(p)
	} else {
		q := ask.question(p)
		if q.Args == "" {
			return nil, nil // there is nothing to ask about
		}
		answer, ok := p.Answers[q]
		if !ok {
			return nil, &q
		}
		values = answer
	}
	if len(values) == 0 || f.Key.Fold == nil && !f.Named {
		return values, nil
	}
	folded := make([]string, len(values))
	for i, v := range values {
		folded[i] = f.Key.Canonical(v, f.Named)
	}
	return folded, nil
}

// asks tells whether the filter's values may need an answer of the sender's API.
func (f *Filter) asks() bool {
	if f.Named {
		return f.Key.Names.Ask != nil
	}
	return f.Key.Ask != nil
}

// maxArgs is the length in bytes of the longest arguments of a question. Genuine arguments
// are far shorter, and longer arguments do not fit into the key of a table on PostgreSQL.
const maxArgs = 2000

// question is the Ask about one delivery. It has no arguments if one argument has no value, or
// if they are too long.
func (a *Ask) question(p *Payload) Question {
	q := Question{Provider: p.Sender.Provider, Name: a.Name}
	var args []string
	for _, s := range a.Of {
		values := s.values(p)
		if len(values) == 0 {
			return q
		}
		args = append(args, strings.Join(values, ","))
	}
	if all := strings.Join(args, " "); len(all) <= maxArgs {
		q.Args = all
	}
	return q
}

// meets tells whether a wanted value is met by a value of the event.
func (k *Key) meets(wanted, value string) bool {
	switch k.Kind {
	case Word:
		return strings.Contains(value, wanted)
	case Glob:
		return doublestar.MatchUnvalidated(wanted, value)
	}
	return wanted == value
}

func (k *Key) meetsAny(wanted, values []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return k.meets(w, v) })
	})
}

// holds evaluates the filter on the event's values.
func (f *Filter) holds(values []string) bool {
	switch {
	case f.Key.Both && len(values) == 0:
		return false
	case len(f.In) > 0 && !f.Key.meetsAny(f.In, values):
		return false
	}
	return !f.Key.meetsAny(f.NotIn, values)
}

// Verdict tells whether a delivery fires a trigger, and why.
type Verdict struct {
	filter.Verdict
	// Open are the questions whose answers decide, if all other conditions hold.
	Open []Question
}

// Explain evaluates every filter of the trigger on a delivery of its sender.
func (t *Trigger) Explain(p *Payload) Verdict {
	v := Verdict{Verdict: filter.Verdict{Matched: true}}
	note := func(c filter.Condition) {
		v.Conditions = append(v.Conditions, c)
		if !c.OK && v.Matched {
			v.Matched, v.Path, v.Want, v.Got = false, c.Path, c.Want, c.Got
		}
	}
	if note(filter.Condition{Path: "event", Want: t.Event.Name, Got: p.describe(), OK: t.Event.in(p)}); !v.Matched {
		return v
	}
	refused := false
	for i := range t.Filters {
		f := &t.Filters[i]
		values, open := f.values(p)
		if open != nil {
			v.Open = append(v.Open, *open)
			note(filter.Condition{Path: f.Key.Name, Want: f.want(), Got: p.why(*open)})
			continue
		}
		c := filter.Condition{Path: f.Key.Name, Want: f.want(), Got: show(values), OK: f.holds(values)}
		refused = refused || !c.OK
		note(c)
	}
	if t.StartedBy != nil {
		c, open := t.StartedBy.explain(t.Event, p)
		v.Open = append(v.Open, open...)
		refused = refused || !c.OK && len(open) == 0
		note(c)
	}
	if refused {
		v.Open = nil // no answer changes the verdict
	}
	return v
}

// why says why a question has no answer.
func (p *Payload) why(q Question) string {
	return cmp.Or(p.Open[q], p.Open[Question{}], "not in the payload: needs apiSecretName")
}

func (p *Payload) describe() string {
	var names []string
	for _, e := range p.Events() {
		names = append(names, e.Name)
	}
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "no event that triggers know"
}

// want is the filter in words.
func (f *Filter) want() string {
	var parts []string
	if len(f.In) > 0 {
		parts = append(parts, "one of "+show(f.In))
	}
	if len(f.NotIn) > 0 {
		parts = append(parts, "none of "+show(f.NotIn))
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " and ")
}

func show(values []string) string {
	const most, longest = 5, 120
	if len(values) == 0 {
		return "nothing"
	}
	shown := make([]string, 0, most+1)
	for i, v := range values {
		if i == most {
			shown = append(shown, fmt.Sprintf("… %d in all", len(values)))
			break
		}
		if len(v) > longest {
			v = strings.ToValidUTF8(v[:longest], "") + "…"
		}
		shown = append(shown, strconv.Quote(v))
	}
	return strings.Join(shown, ", ")
}
