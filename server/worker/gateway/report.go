package gateway

import (
	"sync"

	"triphammer/server/run/event"
)

// mostReported is how many different allowed contacts of a run are reported one by one, and how
// many refused. So an agent that asks for ever new names cannot fill the transcript.
const mostReported = 256

// reports turns contacts into events. The first contact of a kind is an event at once. The
// number of further contacts of the kind is a second event, at the end.
type reports struct {
	tell func(event.Egress)

	mu    sync.Mutex
	more  map[event.Egress]int64 // contacts after the first, by the event of the first
	order []event.Egress
	kinds map[bool]int // of contacts, by whether they were allowed
	ended bool
}

func newReports(tell func(event.Egress)) *reports {
	return &reports{tell: tell, more: make(map[event.Egress]int64), kinds: make(map[bool]int)}
}

func (r *reports) add(e event.Egress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return // net/http goes on connecting after it has given up a request
	}
	if _, known := r.more[e]; known {
		r.more[e]++
		return
	}
	if r.kinds[e.Allowed]++; r.kinds[e.Allowed] > mostReported {
		rest := event.Egress{Host: "*", Allowed: e.Allowed, Reason: "there are more hosts than are listed one by one"}
		r.more[rest]++
		if r.more[rest] == 1 {
			r.order = append(r.order, rest)
		}
		return
	}
	r.more[e] = 0
	r.order = append(r.order, e)
	r.tell(e)
}

// close reports the contacts that are left. Later contacts are not reported.
func (r *reports) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.order {
		if e.Count = r.more[e]; e.Count > 0 {
			r.tell(e)
		}
	}
	r.ended, r.order = true, nil
}
