package delivery

import (
	"net/netip"
	"sync"
	"time"
)

// window is the span of both budgets (SPEC C8, SPEC 5.8).
const window = time.Minute

// maxFailureKeys bounds the memory that senders without a credential can take:
// beyond it, failures of addresses not seen before are answered as if their
// budget were spent.
const maxFailureKeys = 16384

// slidingLog holds the times of the admitted events of the last minute. It is
// exact: at most limit events in any 60 s, and the wait that it names is true.
type slidingLog struct{ times []time.Time }

// admit takes one of limit places at now, or names the time to wait for one.
func (l *slidingLog) admit(now time.Time, limit int) (wait time.Duration, ok bool) {
	l.expire(now)
	if len(l.times) < limit {
		l.times = append(l.times, now)
		return 0, true
	}
	// With a limit lowered since the log was filled, more than one must leave.
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

// retryAfter rounds a wait up to whole seconds (RFC 9110 10.2.3), so that
// waiting that long succeeds (SPEC 5.8).
func retryAfter(wait time.Duration) int {
	return max(1, int((wait+time.Second-1)/time.Second))
}

// rates is the delivery rate of each webhook.
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

// admit counts one authenticated delivery of the webhook. The first one after
// a start loads what the last minute held, so that a restart opens no window.
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

// failures is the budget of failed authentication, per webhook and address.
type failures struct {
	limit int

	mu   sync.Mutex
	logs map[failureKey]*slidingLog
}

type failureKey struct {
	uid     string
	network netip.Prefix
}

// admit spends one failure, or names the time until one may be spent again.
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

// makeRoom forgets the addresses whose failures have all expired.
func (f *failures) makeRoom(now time.Time) bool {
	for key, log := range f.logs {
		if log.expire(now); len(log.times) == 0 {
			delete(f.logs, key)
		}
	}
	return len(f.logs) < maxFailureKeys
}
