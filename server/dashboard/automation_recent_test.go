package dashboard

import (
	"encoding/json"
	"testing"
)

// TestValueInWords: keys of a definition are shown as words, and not as JSON.
func TestValueInWords(t *testing.T) {
	for _, c := range []struct{ key, raw, want string }{
		{"agent", `"fixer"`, "fixer"},
		{"maxRunsPerHour", `5`, "5"},
		{"secrets", `["A","B"]`, "A, B"},
		{"budget", `{"usd":2,"turns":1,"usdPerDay":20.5,"tokensPerDay":1000000}`, "$2.00 a run, 1 turn a run, $20.50 a day, 1,000,000 tokens a day"},
		{"budget", `{"usd":0.005}`, "$0.005 a run"},
		{"budget", `"much"`, "much"},
		{"budget", `{"usd":"much"}`, ""},
		{"retry", `{"attempts":3,"delaySeconds":1.5}`, "attempts: 3, delaySeconds: 1.5"},
		{"mcpServers", `{"a":{"url":"https://x"}}`, "a: url: https://x"},
		{"x", `null`, ""},
	} {
		if got := valueInWords(c.key, json.RawMessage(c.raw)); got != c.want {
			t.Errorf("%s %s: %q, not %q", c.key, c.raw, got, c.want)
		}
	}
}
