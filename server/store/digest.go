package store

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// A disk can lose bits silently, and SQLite does not notice damage within a value. So
// data that is served or run again has a digest, which is checked at each read:
// payloads, the files of applies, specs, and transcripts. XXH64 finds such damage at a
// tenth of the cost of SHA-256. It does not protect against somebody who can write the
// file.

// payloadDigest is the digest of a delivery's payload. The sum is computed before the id
// is known. The id is included, so that another delivery's payload does not pass.
func payloadDigest(id DeliveryID, sum uint64) int64 { return int64(sum) + int64(id) }

// DigestOf is the digest of values in this order: int64, string or []byte.
func DigestOf(values ...any) int64 {
	h := xxhash.New()
	number := func(n int64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:]) // which never fails
	}
	for _, v := range values {
		switch v := v.(type) {
		case int64:
			number(v)
		case string: // with its length: where one ends and the next begins counts
			number(int64(len(v)))
			_, _ = h.WriteString(v)
		case []byte:
			number(int64(len(v)))
			_, _ = h.Write(v)
		default:
			panic(fmt.Sprintf("no digest of a %T", v))
		}
	}
	return int64(h.Sum64())
}

func EventDigest(run RunID, seq, at int64, kind, data string) int64 {
	return DigestOf(int64(run), seq, at, kind, data)
}

// metaUndigested says up to which id rows have no digests.
const metaUndigested = "no digests up to"

func (s *db) digestsSince(text string) (err error) {
	if s.undigested, err = strconv.ParseInt(text, 10, 64); err != nil {
		return fmt.Errorf("it does not say from when on it has digests: %w", ErrDamaged)
	}
	return nil
}

// sound tells whether a stored digest matches the data that was read. Rows that are
// older than digests have none and count as sound.
func (s *db) sound(id int64, stored sql.NullInt64, is int64) bool {
	if !stored.Valid {
		return s.trusting || id <= s.undigested
	}
	return s.trusting || stored.Int64 == is
}

// soundHash is sound for data that is stored under its SHA-256.
func (s *db) soundHash(hash, data []byte) bool {
	sum := sha256.Sum256(data)
	return s.trusting || string(hash) == string(sum[:])
}

// damages are what was found damaged since the start.
type damages struct {
	count atomic.Int64
	mu    sync.Mutex
	told  map[string]bool
}

// maxTold is how many damaged rows are logged. The metric counts further ones.
const maxTold = 1000

// damage is the error for data that differs from what was stored. It is logged once.
func (s *db) damage(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	s.damages.count.Add(1)
	s.damages.mu.Lock()
	defer s.damages.mu.Unlock()
	if !s.damages.told[what] && len(s.damages.told) < maxTold {
		if s.damages.told == nil {
			s.damages.told = make(map[string]bool)
		}
		s.damages.told[what] = true
		s.Logger.Error("the store is damaged: what was read is not what was stored, and is not used", "what", what)
	}
	return fmt.Errorf("%s is not what was stored: %w", what, ErrDamaged)
}

// Damages is how many reads found something damaged since the store was opened.
func (s *Store) Damages() int64 { return s.damages.count.Load() }
