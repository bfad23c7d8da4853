//go:build !race

// The race detector makes pools forget.

package signature

import (
	"strings"
	"testing"
)

// TestAllocations: verifying a row's HMAC allocates nothing but what is read out
// of the body.
func TestAllocations(t *testing.T) {
	body := `{"a":"` + strings.Repeat("x", 1000) + `"}`
	for _, s := range All() {
		if s.code != nil || s.JWT != nil || s.asymmetric() || s.Algorithm == Basic || strings.Contains(s.Template, fieldVariable) {
			continue
		}
		most := 0.0
		if s.TimeField != "" || s.Forms[0].Field != "" {
			most = 2
		}
		v, r := signed(t, s, body)
		if got := testing.AllocsPerRun(100, func() { _ = v.Verify(r) }); got > most {
			t.Errorf("%s: %v allocations", s.Name, got)
		}
	}
}
