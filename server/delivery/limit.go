package delivery

import (
	"net/netip"
	"sync"
	"time"

	"triphammer/server/store"
)

// window is the time over which both budgets count (SPEC C8, SPEC 5.8).
const window = store.RateWindow

// maxFailureKeys is how many clients are remembered, to limit the memory that senders without a
// credential can take. At the limit, a failure of a new client is answered as if its budget
// were spent.
const maxFailureKeys = 16384

// slidingLog holds the times of the events that were admitted in the last minute. It is
// exact: it admits at most limit events in any 60 s, and an event after the returned wait
// can be admitted.
type slidingLog struct{ times []time.Time }

// admit counts one event at now, or returns the time to wait until an event is admitted.
func (l *slidingLog) admit(now time.Time, limit int) (wait time.Duration, ok bool) {
	l.expire(now)
	if len(l.times) < limit {
		l.times = append(l.times, now)
		return 0, true
	}
	// If the limit was lowered meanwhile, more than one event must expire first.
	return l.times[len(l.times)-limit].Add(window).Sub(now), false
}

func (l *slidingLog) expire(now time.Time) {
	n := 0
	for n < len(l.times) && now.Sub(l.times[n]) >= window {
		n++
	}
	if n > 0 {
		l.times = append(l.times[:0], l.times[n:]...)
	}
}

// retryAfter rounds a wait up to whole seconds (RFC 9110 10.2.3), so that a retry after it
// succeeds (SPEC 5.8).
func retryAfter(wait time.Duration) int {
	return max(1, int((wait+time.Second-1)/time.Second))
}

// rates limits the deliveries of each webhook, or the questions about it.
type rates struct {
	limit   int
	restore func(uid string) []time.Time

	mu   sync.Mutex
	logs map[string]*rateLog
}

type rateLog struct {
	once sync.Once
	mu   sync.Mutex
	log  slidingLog
}

// admit counts one authenticated delivery of the webhook. The first call after a start loads the
// deliveries of the last minute, so that a restart does not reset the limit.
func (r *rates) admit(uid string, now time.Time) (wait time.Duration, ok bool) {
	if r.limit <= 0 {
		return 0, true
	}
	r.mu.Lock()
	entry := r.logs[uid]
	if entry == nil {
		entry = &rateLog{}
		r.logs[uid] = entry
	}
	r.mu.Unlock()

	entry.once.Do(func() {
		for _, t := range r.restore(uid) {
			if !t.After(now) {
				entry.log.times = append(entry.log.times, t)
			}
		}
	})
	entry.mu.Lock()
	defer entry.mu.Unlock()
	return entry.log.admit(now, r.limit)
}

// refund takes back the newest delivery of a webhook, because nothing was recorded of it.
func (r *rates) refund(uid string) {
	r.mu.Lock()
	entry := r.logs[uid]
	r.mu.Unlock()
	if entry == nil {
		return
	}
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if n := len(entry.log.times); n > 0 {
		entry.log.times = entry.log.times[:n-1]
	}
}

// failures limits the failed authentications of each webhook and client.
type failures struct {
	limit int

	mu   sync.Mutex
	logs map[failureKey]*slidingLog
}

type failureKey struct {
	uid     string
	network netip.Prefix
}

// admit counts one failure, or returns the time to wait until a failure is admitted.
func (f *failures) admit(key failureKey, now time.Time) (wait time.Duration, ok bool) {
	if f.limit <= 0 {
		return 0, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.logs[key]
	if log == nil {
		if len(f.logs) >= maxFailureKeys && !f.makeRoom(now) {
			return window, false
		}
		log = &slidingLog{}
		f.logs[key] = log
	}
	return log.admit(now, f.limit)
}

// refund takes back the newest failure of a key, because newer definitions accepted the request.
func (f *failures) refund(key failureKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if log := f.logs[key]; log != nil && len(log.times) > 0 {
		log.times = log.times[:len(log.times)-1]
	}
}

// makeRoom forgets the clients whose failures have all expired. It tells whether there is room
// for another client.
func (f *failures) makeRoom(now time.Time) bool {
	for key, log := range f.logs {
		if log.expire(now); len(log.times) == 0 {
			delete(f.logs, key)
		}
	}
	return len(f.logs) < maxFailureKeys
}
