// Package match says which automations want a delivery: one pure function of
// definitions, headers and body. The ingress, replay, the filter tests of a factory and the
// comparison of a proposal with stored deliveries use it. Why an automation does not
// want a delivery is explained by the packages filter and native, which are held to the
// same verdicts.
package match

import (
	"cmp"
	"slices"

	"triphammer/factory/filter"
	"triphammer/factory/native"
)

// Delivery is what a sender sent.
type Delivery struct {
	Headers map[string]string // those that are kept with the delivery, with canonical names
	Body    []byte
	// Answers are what the sender's API answered about the delivery.
	Answers map[native.Question][]string
	Open    map[native.Question]string // why questions have no answer
}

// Trigger is what one trigger of an automation wants of a delivery: that its headers and its
// body hold something, or that it is an event of the sender.
type Trigger struct {
	Headers *filter.Headers // nil: any headers
	Payload *filter.Filter  // nil: any body
	Native  *native.Trigger // of a sender's event; Headers and Payload are then nil
}

// Candidate is an automation that selects a webhook.
type Candidate struct {
	Automation string
	// Triggers are those that select the webhook. Any that accepts the delivery suffices.
	Triggers []Trigger
	Accounts []string // the accounts that the webhook names
}

// Match is a candidate that wants a delivery.
type Match struct {
	Candidate int
	// Event is the sender's event that the candidate wants; nil if it wants the delivery
	// itself.
	Event *native.Event
	// Identity identifies the event at the sender, whichever webhook reports it; empty if the
	// sender gives none.
	Identity string
}

// Index is the candidates of one webhook. It is immutable and safe for
// concurrent use.
type Index struct {
	candidates []Candidate
	set        *filter.Set
	owner      []int // by pair of set: its candidate

	// Of the triggers on a sender's events.
	native   *native.Index // nil: there are none
	triggers []*native.Trigger
	natives  []int // by trigger: its candidate
	sender   *native.Sender
	accounts []string
}

// NewIndex compiles the candidates of a webhook. Their native triggers are all of the
// sender of its deliveries.
func NewIndex(candidates []Candidate) *Index {
	x := &Index{candidates: candidates}
	var pairs []filter.Pair
	for i, c := range candidates {
		for _, t := range c.Triggers {
			if t.Native != nil {
				x.triggers, x.natives = append(x.triggers, t.Native), append(x.natives, i)
				x.sender, x.accounts = t.Native.Event.Sender, c.Accounts
				continue
			}
			pairs = append(pairs, filter.Pair{Headers: t.Headers, Payload: t.Payload})
			x.owner = append(x.owner, i)
		}
	}
	x.set = filter.NewSet(pairs)
	if x.sender != nil {
		x.native = native.NewIndex(x.triggers)
	}
	return x
}

// Match validates the body and appends the candidates that want the delivery to dst,
// ascending, each once. open are the questions whose answers would decide about others. The
// error is a *jsonscan.SyntaxError.
func (x *Index) Match(d Delivery, dst []Match) (matched []Match, open []native.Question, err error) {
	var room [16]int
	accepting, err := x.set.Match(d.Headers, d.Body, room[:0])
	if err != nil {
		return dst, nil, err
	}
	from := len(dst)
	for _, n := range accepting {
		if c := x.owner[n]; len(dst) == from || dst[len(dst)-1].Candidate != c {
			dst = append(dst, Match{Candidate: c})
		}
	}
	if x.native == nil {
		return dst, nil, nil
	}
	p := read(x.sender, d, x.accounts)
	fired, undecided := x.native.Match(p, room[:0])
	for _, n := range fired {
		e := x.triggers[n].Event
		dst = append(dst, Match{x.natives[n], e, e.Identity(p)})
	}
	// The first of a candidate's matches is kept: that of the delivery itself, if there is one.
	slices.SortStableFunc(dst[from:], func(a, b Match) int { return cmp.Compare(a.Candidate, b.Candidate) })
	kept := slices.CompactFunc(dst[from:], func(a, b Match) bool { return a.Candidate == b.Candidate })
	dst = dst[:from+len(kept)]
	for _, o := range undecided {
		decided := func(m Match) bool { return m.Candidate == x.natives[o.Trigger] }
		if slices.ContainsFunc(dst[from:], decided) {
			continue
		}
		for _, q := range o.Questions {
			if !slices.Contains(open, q) {
				open = append(open, q)
			}
		}
	}
	return dst, open, nil
}

// read reads a delivery of a sender.
func read(sender *native.Sender, d Delivery, accounts []string) *native.Payload {
	return sender.Read(native.Delivery{Header: d.Headers, Body: d.Body, Accounts: accounts, Answers: d.Answers, Open: d.Open})
}
