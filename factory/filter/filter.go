// Package filter implements payload filters: it compiles a filter once, matches it many
// times, and explains its verdicts.
//
// A filter is an object with the shape of the body (SPEC C6.3, 8). A key names a
// field, an array lists allowed values, an object of operators holds in, not_in and
// exists, and objects nest. All keys must match.
//
// There are two ways to evaluate. [Filter.Explain] evaluates one filter and tells
// which field failed. A [Set] evaluates any number of filters and
// validates the body in a single pass over its bytes; deliveries use it. Tests and a
// fuzz target hold both ways to the same verdicts.
//
// Neither way decodes the body into Go values. Compiling finds every error of a filter, so
// a compiled filter never fails.
package filter

import "triphammer/factory/jsonscan"

// Condition is the outcome of one condition of a filter.
type Condition struct {
	Path string // such as payload.build.status
	Want string // in words
	Got  string // in words, shortened
	OK   bool
}

// Verdict says whether a filter accepts a body, and why.
type Verdict struct {
	Matched bool
	// Path, Want and Got belong to the first condition that failed.
	Path, Want, Got string
	// Conditions has all conditions, in the filter's order.
	Conditions []Condition
}

// Explain evaluates every condition of the filter. A nil filter accepts every body; any
// other accepts only valid JSON whose top level is an object.
func (f *Filter) Explain(body []byte) Verdict {
	if f == nil {
		return Verdict{Matched: true}
	}
	e := evaluator{Scanner: jsonscan.Scanner{Data: body}, collect: true}
	var matched bool
	if err := jsonscan.Check(body); err != nil {
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
