package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// The prefixes of ids as they are shown.
const (
	prefixDelivery = "dlv"
	prefixRun      = "run"
	prefixApply    = "apl"
	prefixKey      = "key"
	prefixAudit    = "aud"
	prefixSchedule = "sch"
	prefixPending  = "psc"
)

// crockford is base 32 without letters that look like digits.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

const idDigits = 13 // 65 bits

// epoch is when ids begin, 2024-01-01: 41 bits of milliseconds last 69 years.
const epoch = 1_704_067_200_000

const randomBits = 22

// formatID is an id as it is shown: `dlv_` and 13 characters that sort like the
// number. 0 is no id.
func formatID(prefix string, id int64) string {
	if id == 0 {
		return ""
	}
	var out [idDigits]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[id&31]
		id >>= 5
	}
	return prefix + "_" + string(out[:])
}

// parseID reads what formatID wrote; anything else is ErrNotFound.
func parseID(prefix, s string) (int64, error) {
	digits, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(digits) != idDigits {
		return 0, fmt.Errorf("%q: %w", s, ErrNotFound)
	}
	var id int64
	for i := range len(digits) {
		d := strings.IndexByte(crockford, digits[i])
		if d < 0 || i == 0 && d > 7 {
			return 0, fmt.Errorf("%q: %w", s, ErrNotFound)
		}
		id = id<<5 | int64(d)
	}
	if id == 0 {
		return 0, fmt.Errorf("%q: %w", s, ErrNotFound)
	}
	return id, nil
}

// optionalID is parseID for an id that may be absent.
func optionalID(prefix, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	return parseID(prefix, s)
}

// idAt is the smallest id of a time.
func idAt(t time.Time) int64 {
	const last = math.MaxInt64 >> randomBits // in 2093
	return min(max(0, t.UnixMilli()-epoch), last) << randomBits
}

// timeOfID is when an id was made.
func timeOfID(id int64) time.Time { return time.UnixMilli(id>>randomBits + epoch).UTC() }

// nextID makes an id that is larger than all before it: time, then random bits,
// so that ids sort by age, insert at the end of their index, and cannot be
// guessed from one another. Only the writer calls it.
func (s *Store) nextID() int64 {
	s.lastID = max(s.lastID+1, idAt(s.now())|rand.Int64N(1<<randomBits))
	return s.lastID
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
