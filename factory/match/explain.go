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

// Explain evaluates every candidate on the delivery, in order.
func (x *Index) Explain(d Delivery) []Result {
	results := make([]Result, 0, len(x.candidates))
	for _, c := range x.candidates {
		results = append(results, c.Explain(d))
	}
	return results
}

// Explain evaluates one candidate on the delivery. Without a trigger that is asked, it
// does not match.
func (c Candidate) Explain(d Delivery) Result {
	best, held := filter.Verdict{}, -1
	for _, t := range c.Triggers {
		v := t.Explain(d)
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

// Explain evaluates every condition of the trigger on the delivery.
func (t Trigger) Explain(d Delivery) filter.Verdict {
	return t.Headers.Explain(d.Headers).And(t.Payload.Explain(d.Body))
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
