package answer

import (
	"slices"
	"sync"
	"time"
)

// paces keep what was sent to senders, so that no more is sent than they take (SPEC 22.3). Signs and
// starts use at most half of it, and what is left is for ends.
type paces struct {
	mu    sync.Mutex
	sent  map[paceKey][]time.Time // ascending
	quiet map[string]time.Time    // by webhook: the sender wants nothing before
}

type paceKey struct {
	webhook, container string
	pace               int
}

// take counts a request, and returns 0; or it returns how long the request has to wait.
func (p *paces) take(all []Pace, webhook, container string, minor bool, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait = p.quiet[webhook].Sub(now); wait > 0 {
		return wait
	}
	keys := make([]paceKey, len(all))
	for i, pace := range all {
		keys[i] = paceKey{webhook: webhook, pace: i}
		if pace.Place {
			keys[i].container = container
		}
		sent := slices.DeleteFunc(p.sent[keys[i]], func(at time.Time) bool { return now.Sub(at) >= pace.Per })
		if len(sent) == 0 {
			delete(p.sent, keys[i])
		}
		most := pace.Writes
		if minor {
			most = (most + 1) / 2
		}
		if len(sent) >= most {
			wait = max(wait, pace.Per-now.Sub(sent[len(sent)-most]))
		}
	}
	if wait > 0 {
		return wait
	}
	for _, key := range keys {
		if p.sent == nil {
			p.sent = make(map[paceKey][]time.Time)
		}
		p.sent[key] = append(p.sent[key], now)
	}
	return 0
}

// rest makes all requests of a webhook wait.
func (p *paces) rest(webhook string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet == nil {
		p.quiet = make(map[string]time.Time)
	}
	p.quiet[webhook] = until
}
