// Package filter is the payload filter: compile once, match many, explain.
//
// A filter is an object that mirrors the body (SPEC C6.3, 8): a key
// names a field, an array lists allowed values, an operator object holds in,
// not_in and exists, and objects nest. All keys must match.
//
// There are two ways to ask. [Filter.Match] and [Filter.Explain] evaluate one
// filter and can tell which field failed. [Set] evaluates any number of filters
// and validates the body in the same single pass over its bytes; it is what a
// delivery meets. Neither decodes the body.
package filter

// Match reports whether the filter accepts the body. A nil filter accepts every
// body; any other accepts only valid JSON whose top level is an object.
func (f *Filter) Match(body []byte) bool {
	if f == nil {
		return true
	}
	if Check(body) != nil {
		return false
	}
	e := evaluator{scanner: scanner{data: body}}
	return e.root(f)
}

// Condition is the outcome of one condition of a filter.
type Condition struct {
	Path string // such as payload.build.status
	Want string // in words
	Got  string // in words, shortened
	OK   bool
}

// Verdict is why a filter accepts a body or does not.
type Verdict struct {
	Matched bool
	// Path, Want and Got are those of the first condition that failed.
	Path, Want, Got string
	// Conditions has all of them, in the filter's order.
	Conditions []Condition
}

// Explain evaluates every condition of the filter.
func (f *Filter) Explain(body []byte) Verdict {
	if f == nil {
		return Verdict{Matched: true}
	}
	e := evaluator{scanner: scanner{data: body}, collect: true}
	var matched bool
	if err := Check(body); err != nil {
		e.note("payload", "valid JSON", err.Error(), false)
	} else {
		matched = e.root(f)
	}
	v := Verdict{Matched: matched, Conditions: e.conditions}
	if !matched {
		for _, c := range e.conditions {
			if !c.OK {
				v.Path, v.Want, v.Got = c.Path, c.Want, c.Got
				break
			}
		}
	}
	return v
}
