package match

import "triphammer/factory/filter"

// Result is whether one automation wants a delivery, and why not.
type Result struct {
	Automation string
	Matched    bool
	// Path, Want and Got are those of the first condition that failed.
	Path, Want, Got string
	// Conditions are those of the trigger that matched, or else of the one that
	// came furthest.
	Conditions []filter.Condition
}

// Explain evaluates every candidate on the body, in order.
func (x *Index) Explain(body []byte) []Result {
	results := make([]Result, 0, len(x.candidates))
	for _, c := range x.candidates {
		results = append(results, c.Explain(body))
	}
	return results
}

// Explain evaluates one candidate on the body. Without a filter that is asked, it
// does not match.
func (c Candidate) Explain(body []byte) Result {
	best, held := filter.Verdict{}, -1
	for _, f := range c.Filters {
		v := f.Explain(body)
		if v.Matched {
			best = v
			break
		}
		if n := holding(v); n > held {
			best, held = v, n
		}
	}
	return Result{
		Automation: c.Automation, Matched: best.Matched,
		Path: best.Path, Want: best.Want, Got: best.Got, Conditions: best.Conditions,
	}
}

func holding(v filter.Verdict) int {
	n := 0
	for _, c := range v.Conditions {
		if c.OK {
			n++
		}
	}
	return n
}
