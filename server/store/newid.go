package store

import (
	"math"
	"math/rand/v2"
	"time"
)

// epoch is when ids begin, 2024-01-01: 41 bits of milliseconds last 69 years.
const epoch = 1_704_067_200_000

const randomBits = 22

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
func (s *DB) nextID() int64 {
	s.lastID = max(s.lastID+1, idAt(s.now())|rand.Int64N(1<<randomBits))
	return s.lastID
}
