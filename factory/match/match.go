// Package match says which automations want a delivery: one pure function of
// definitions, headers and body. The ingress, replay, the filter tests of a factory and the
// comparison of a proposal with stored deliveries use it. Why an automation does not
// want a delivery is explained by package filter, which is held to the same verdicts.
package match

import "triphammer/factory/filter"

// Delivery is what a sender sent.
type Delivery struct {
	Headers map[string]string // those that are kept with the delivery, with canonical names
	Body    []byte
}

// Trigger is what one trigger of an automation wants of a delivery. All that it has must
// accept the delivery.
type Trigger struct {
	Headers *filter.Headers // nil: any headers
	Payload *filter.Filter  // nil: any body
}

// Candidate is an automation that selects a webhook.
type Candidate struct {
	Automation string
	// Triggers are those that select the webhook. Any that accepts the delivery suffices.
	Triggers []Trigger
}

// Index is the candidates of one webhook. It is immutable and safe for
// concurrent use.
type Index struct {
	candidates []Candidate
	set        *filter.Set
	owner      []int // by pair of set: its candidate
}

// NewIndex compiles the candidates of a webhook.
func NewIndex(candidates []Candidate) *Index {
	x := &Index{candidates: candidates}
	var pairs []filter.Pair
	for i, c := range candidates {
		for _, t := range c.Triggers {
			pairs = append(pairs, filter.Pair(t))
			x.owner = append(x.owner, i)
		}
	}
	x.set = filter.NewSet(pairs)
	return x
}

// Match validates the body and appends to dst the numbers of the candidates
// that want the delivery, ascending, each once. The error is a *jsonscan.SyntaxError.
func (x *Index) Match(d Delivery, dst []int) ([]int, error) {
	from := len(dst)
	dst, err := x.set.Match(d.Headers, d.Body, dst)
	if err != nil {
		return dst, err
	}
	kept := dst[:from]
	for _, n := range dst[from:] {
		if c := x.owner[n]; len(kept) == from || kept[len(kept)-1] != c {
			kept = append(kept, c)
		}
	}
	return kept, nil
}
