package engine

import (
	"math"
	"math/rand/v2"
	"time"
)

// Epoch is when ids begin, 2024-01-01: 41 bits of milliseconds last 69 years.
const Epoch = 1_704_067_200_000

const RandomBits = 22

// IDAt is the smallest id of a time.
func IDAt(t time.Time) int64 {
	const last = math.MaxInt64 >> RandomBits // in 2093
	return min(max(0, t.UnixMilli()-Epoch), last) << RandomBits
}

// TimeOfID is when an id was made.
func TimeOfID(id int64) time.Time { return time.UnixMilli(id>>RandomBits + Epoch).UTC() }

// nextID makes an id that is larger than all before it: time, then random bits,
// so that ids sort by age, insert at the end of their index, and cannot be
// guessed from one another. Only the writer calls it.
func (s *DB) nextID() int64 {
	s.lastID = max(s.lastID+1, IDAt(s.Now())|rand.Int64N(1<<RandomBits))
	return s.lastID
}
