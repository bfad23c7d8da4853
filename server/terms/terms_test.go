package terms

import "testing"

// TestCounted: one thing is not "1 things".
func TestCounted(t *testing.T) {
	for got, want := range map[string]string{
		Counted(0, "run"): "0 runs", Counted(1, "run"): "1 run", Counted(int64(2), "delivery"): "2 deliveries", Counted(3, "key"): "3 keys",
		Accepted.Came(1): "1 run", Accepted.Came(2): "2 runs", Accepted.Came(0): "nothing matched", Duplicate.Came(1): "",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
