// Package match says which automations want a delivery: one pure function of
// definitions and body. The ingress, replay, the filter tests of a factory and the
// comparison of a proposal with stored deliveries use it. Why an automation does not
// want a delivery is explained by package filter, which is held to the same verdicts.
package match

import "triphammer/factory/filter"

// Candidate is an automation that selects a webhook.
type Candidate struct {
	Automation string
	// Filters has one element per trigger that selects the webhook, nil for a
	// trigger without a payload filter. Any that accepts the body suffices.
	Filters []*filter.Filter
}

// Index is the candidates of one webhook. It is immutable and safe for
// concurrent use.
type Index struct {
	candidates []Candidate
	set        *filter.Set
	owner      []int // by filter of set: its candidate
}

// NewIndex compiles the candidates of a webhook.
func NewIndex(candidates []Candidate) *Index {
	x := &Index{candidates: candidates}
	var filters []*filter.Filter
	for i, c := range candidates {
		for _, f := range c.Filters {
			filters = append(filters, f)
			x.owner = append(x.owner, i)
		}
	}
	x.set = filter.NewSet(filters)
	return x
}

// Match validates the body and appends to dst the numbers of the candidates
// that want it, ascending, each once. The error is a *jsonscan.SyntaxError.
func (x *Index) Match(body []byte, dst []int) ([]int, error) {
	from := len(dst)
	dst, err := x.set.Match(body, dst)
	if err != nil {
		return dst, err
	}
	kept := dst[:from]
	for _, f := range dst[from:] {
		if c := x.owner[f]; len(kept) == from || kept[len(kept)-1] != c {
			kept = append(kept, c)
		}
	}
	return kept, nil
}
