// Package match says which automations a delivery matches: one pure function of
// definitions, headers, body and answers of the sender's API. The ingress, replay, the
// filter tests of a factory and the back-tests of a proposal use it.
//
// [Index.Match] decides in one pass for all automations of a webhook. [Index.Explain]
// says of each automation why a delivery matches or not. Tests hold both to the same
// verdicts.
package match

import (
	"cmp"
	"slices"

	"triphammer/factory/filter"
	"triphammer/factory/native"
)

// Delivery is what a sender sent.
type Delivery struct {
	Headers map[string]string // the kept headers, by canonical name
	Body    []byte
	// Answers are what the sender's API answered about the delivery.
	Answers map[native.Question][]string
	Open    map[native.Question]string // why questions have no answer
	// Answered are the automations that are known to have answered in the thread of the delivery. Only
	// Explain asks for it.
	Answered map[string]bool
}

// Trigger is the condition of one trigger of an automation: filters on the headers and the
// body of a delivery, or an event of the sender.
type Trigger struct {
	Headers *filter.Headers // nil: any headers
	Payload *filter.Filter  // nil: any body
	Native  *native.Trigger // if not nil, the sender's event; Headers and Payload are then nil
}

// Candidate is an automation that selects a webhook.
type Candidate struct {
	Automation string
	// Triggers are the triggers that select the webhook. One that accepts the delivery suffices.
	Triggers []Trigger
	Accounts []string // the accounts that the webhook names
	// Replies accept replies in threads: whether the automation has answered or asked there is for others
	// to find out. With Threads, a Reply of the sender goes on in each thread that the automation has
	// answered (SPEC 21.6); anything else counts as the answer to a question alone (SPEC 26.3).
	Replies []*native.Trigger
	Threads bool
	// Subject is what the automation says its events are about; nil: as the events themselves say.
	Subject *native.Template
	Webhook string // its name
}

// Match is a candidate that a delivery matches.
type Match struct {
	Candidate int
	// Event is the sender's event that fired the trigger; nil if filters on the delivery did. If it
	// is a reply (native.Event.IsReply), no trigger was fired: the delivery starts something only in a
	// thread that the automation has answered.
	Event *native.Event
	// Reply tells that the delivery is a reply that the candidate accepts, whatever else it is, and
	// ToQuestion that it counts as the answer to a question alone.
	Reply, ToQuestion bool
	// Identity identifies the event at the sender, whichever webhook reports it; empty if the
	// sender gives no identity. A reply has one identity, whatever else it is.
	Identity string
	// Subject is what the event is about (SPEC 21.1); empty: nothing says so.
	Subject string
	// Person is whose act the sender's event is (SPEC 24.1), as native.Person.String says it.
	Person string
	// Outsider tells that the automation does not list the person, so that its run waits (SPEC 26.1).
	Outsider bool
}

// Index is the candidates of one webhook. It is immutable and safe for
// concurrent use.
type Index struct {
	candidates []Candidate
	set        *filter.Set
	owner      []int // the candidate of each pair of set

	// These are for the triggers on a sender's events.
	native   *native.Index // nil: there are no such triggers
	triggers []*native.Trigger
	natives  []int // the candidate of each trigger
	sender   *native.Sender
	accounts []string
}

// NewIndex compiles the candidates of a webhook. All their native triggers must be on
// events of the webhook's sender.
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
		for _, t := range c.Replies { // after the triggers of its candidate: see merge
			x.triggers, x.natives = append(x.triggers, t), append(x.natives, i)
			x.sender, x.accounts = t.Event.Sender, c.Accounts
		}
	}
	x.set = filter.NewSet(pairs)
	if x.sender != nil {
		x.native = native.NewIndex(x.triggers)
	}
	return x
}

// Match validates the body and appends the matching candidates to dst, ascending, each
// once. open are the questions whose answers would decide about other candidates. The error
// is a *jsonscan.SyntaxError.
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
		x.name(dst[from:], d.Body)
		return dst, nil, nil
	}
	p := read(x.sender, d, x.accounts)
	fired, undecided := x.native.Match(p, room[:0])
	for _, n := range fired {
		e := x.triggers[n].Event
		dst = append(dst, Match{
			Candidate: x.natives[n], Event: e, Reply: e.IsReply(), ToQuestion: x.candidates[x.natives[n]].ToQuestion(e),
			Identity: e.Identity(p), Subject: e.SubjectOf(p), Person: e.PersonOf(p).String(), Outsider: x.triggers[n].Outsider(p),
		})
	}
	dst = dst[:from+merge(dst[from:])]
	x.name(dst[from:], d.Body)
	for _, o := range undecided {
		// Whether a reply starts something is for its thread to decide, so it decides about no trigger.
		decided := func(m Match) bool { return m.Candidate == x.natives[o.Trigger] && !m.Event.IsReply() }
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

// ToQuestion tells whether an event counts as the answer to a question of the candidate alone.
func (c *Candidate) ToQuestion(e *native.Event) bool {
	return e.IsReply() && (!c.Threads || e != e.Sender.Reply)
}

// merge leaves one match of each candidate, and returns how many there are. It is the first: the match
// by filters on the delivery, if there is one, and a reply is the last.
func merge(all []Match) (n int) {
	slices.SortStableFunc(all, func(a, b Match) int { return cmp.Compare(a.Candidate, b.Candidate) })
	for _, m := range all {
		switch {
		case n == 0 || all[n-1].Candidate != m.Candidate:
			all[n] = m
			n++
		case m.Reply:
			all[n-1].Reply, all[n-1].ToQuestion, all[n-1].Identity = true, m.ToQuestion, m.Identity
		}
	}
	return n
}

// name gives the matches the subjects that their automations say.
func (x *Index) name(matched []Match, body []byte) {
	for i := range matched {
		m := &matched[i]
		if c := x.candidates[m.Candidate]; c.Subject != nil {
			m.Subject, _ = c.Subject.Subject(c.Webhook, body)
		}
	}
}

func read(sender *native.Sender, d Delivery, accounts []string) *native.Payload {
	return sender.Read(native.Delivery{Header: d.Headers, Body: d.Body, Accounts: accounts, Answers: d.Answers, Open: d.Open})
}
