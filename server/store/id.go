package store

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"triphammer/server/terms"
)

// ID is the id of a row: of a Run, a Delivery and so on, so that an id of another
// kind does not compile. Zero is none. It is a number in the database and shown as
// text, such as run_01hx…, everywhere else.
type ID[Row any] int64

// The ids of the rows that have one that is shown.
type (
	DeliveryID    = ID[Delivery]
	RunID         = ID[Run]
	ApplyID       = ID[Apply]
	KeyID         = ID[Key]
	AuditID       = ID[AuditEntry]
	ScheduleID    = ID[Schedule]
	PendingID     = ID[PendingSecret]
	ArtifactID    = ID[Artifact]
	PageSessionID = ID[PageSession]
)

// Prefix is what ids of this kind are shown with.
func (id ID[Row]) Prefix() string {
	switch any((*Row)(nil)).(type) {
	case *Delivery:
		return terms.DeliveryPrefix
	case *Run:
		return terms.RunPrefix
	case *Apply:
		return terms.ApplyPrefix
	case *Key:
		return terms.KeyPrefix
	case *AuditEntry:
		return terms.AuditPrefix
	case *Schedule:
		return terms.SchedulePrefix
	case *PendingSecret:
		return terms.PendingSecretPrefix
	case *Artifact:
		return terms.ArtifactPrefix
	case *PageSession:
		return terms.SessionPrefix
	}
	panic(fmt.Sprintf("%T has no prefix", id))
}

// crockford is base 32 without letters that look like digits.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

const idDigits = 13 // 65 bits

// String is the id as it is shown: its prefix and 13 characters that sort like the
// number. None is empty.
func (id ID[Row]) String() string {
	if id == 0 {
		return ""
	}
	var out [idDigits]byte
	for i, rest := len(out)-1, id; i >= 0; i-- {
		out[i] = crockford[rest&31]
		rest >>= 5
	}
	return id.Prefix() + string(out[:])
}

// MarshalText is String, so that logs and JSON show no bare number.
func (id ID[Row]) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Scan reads the column of an id.
func (id *ID[Row]) Scan(column any) error {
	n, ok := column.(int64)
	if !ok {
		return fmt.Errorf("%v is no id", column)
	}
	*id = ID[Row](n)
	return nil
}

// Value is the number that a column holds.
func (id ID[Row]) Value() (driver.Value, error) { return int64(id), nil }

// ParseID reads what String wrote, so an empty text is none. The error wraps
// ErrNotFound: no other text is the id of anything.
func ParseID[Row any](text string) (ID[Row], error) {
	if text == "" {
		return 0, nil
	}
	var id ID[Row]
	digits, ok := strings.CutPrefix(text, id.Prefix())
	ok = ok && len(digits) == idDigits && digits[0] <= '7' // 63 bits
	for i := 0; ok && i < idDigits; i++ {
		d := strings.IndexByte(crockford, digits[i])
		ok = d >= 0
		id = id<<5 | ID[Row](d)
	}
	if !ok || id == 0 {
		return 0, fmt.Errorf("%q: %w", text, ErrNotFound)
	}
	return id, nil
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
