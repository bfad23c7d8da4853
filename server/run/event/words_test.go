package event

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSummary(t *testing.T) {
	long := strings.Repeat("word ", 60)
	for _, c := range []struct {
		input, line string
		more        []Fact
	}{
		{``, ``, nil},
		{`{}`, `{}`, nil},
		{`{"file_path":"/work/a.go","limit":2000}`, `/work/a.go`, []Fact{{"limit", "2000"}}},
		{`{"description":"Run tests","command":"go test\n./..."}`, `go test ./...`, []Fact{{"description", "Run tests"}, {"command", "go test\n./..."}}},
		{`{"command":["bash","-c","ls"]}`, `bash -c ls`, nil},
		{`{"pattern":"x","path":"src","head":3}`, `x in src`, []Fact{{"head", "3"}}},
		{`{"url":"https://example.com","prompt":"What?"}`, `https://example.com`, []Fact{{"prompt", "What?"}}},
		{`{"limit": 5, "deep": {"a": 1}}`, `limit=5 deep={"a":1}`, nil},
		{`{"path":"` + long + `"}`, strings.TrimSpace(long[:120]) + `…`, []Fact{{"path", long}}},
		{`{"file_path":"a","content":"cut off`, `a`, nil},
		{`[{"path":"a","kind":"add"}]`, `[{"path":"a","kind":"add"}]`, nil},
		{"not\nJSON", `not JSON`, []Fact{{"input", "not\nJSON"}}},
	} {
		line, more := Tool{Input: c.input}.Summary()
		if line != c.line || !slices.Equal(more, c.more) {
			t.Errorf("%.60s: %q %q, want %q %q", c.input, line, more, c.line, c.more)
		}
	}
}

// FuzzSummary: the input of a tool comes from outside. Its summary is one short line, and
// nothing of the object is lost.
func FuzzSummary(f *testing.F) {
	f.Add(`{"command":"x","a":[1,{}],"command":2}`)
	f.Add(`{"pattern":"a","path":"b"}`)
	f.Add(`[[[`)
	f.Fuzz(func(t *testing.T, input string) {
		line, more := Tool{Input: input}.Summary()
		if strings.ContainsAny(line, "\n\r") || utf8.RuneCountInString(line) > 2*maxSummary+8 {
			t.Errorf("%q: %q", input, line)
		}
		for _, fact := range factsOf(input) {
			if fact.Value != "" && !strings.Contains(line, fact.Value) && !slices.Contains(more, fact) {
				t.Errorf("%q: %q is neither in %q nor in %q", input, fact, line, more)
			}
		}
	})
}

func TestWords(t *testing.T) {
	one := 1
	for got, want := range map[string]string{
		Took(0):          "0 ms",
		Took(999):        "999 ms",
		Took(3204):       "3.2 s",
		Took(59_949):     "59.9 s",
		Took(59_960):     "1 min",
		Took(108_400):    "1 min 48 s",
		Took(7_500_000):  "2 h 5 min",
		Took(-5):         "0 ms",
		Bytes(999):       "999 bytes",
		Bytes(1204):      "1.2 kB",
		Bytes(16 << 20):  "16.8 MB",
		USD(0.42):        "$0.42",
		USD(0.0021):      "$0.0021",
		USD(0.0351):      "$0.035",
		USD(0.05):        "$0.05",
		USD(0.00012345):  "$0.00012",
		USD(0.0996):      "$0.10",
		USD(0.999):       "$1.00",
		USD(1234.567):    "$1234.57",
		USD(0):           "$0.00",
		Usage{}.String(): "",
		Usage{InputTokens: 148_220, CachedTokens: 131_904, OutputTokens: 6_418, CostUSD: 0.42, Turns: 9}.String(): "9 turns, 148,220 tokens in, 131,904 from the cache, 6,418 out, $0.42",
		Usage{OutputTokens: 7, Turns: 1}.String():                         "1 turn, 7 tokens out",
		Command{Started: true}.Outcome():                                  "started",
		Command{ExitCode: &one, DurationMS: 2000, Failed: true}.Outcome(): "exit status 1, 2 s",
		Command{Signal: "SIGKILL"}.Outcome():                              "SIGKILL",
		Command{}.Outcome():                                               "ended",
		Tool{Failed: true}.Outcome():                                      "failed",
		Line("  a\n\tb  ", 9):                                             "a b",
		Line("abcdef", 3):                                                 "abc…",
		Line("ab cdef", 3):                                                "ab…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTotals(t *testing.T) {
	var sum Totals
	if sum.String() != "" {
		t.Error(sum.String())
	}
	for _, e := range []Event{
		Phase{PhaseClone, 3204},
		Usage{InputTokens: 1200, OutputTokens: 30, CostUSD: 0.01},
		Usage{InputTokens: 800, OutputTokens: 20, CostUSD: 0.02},
		File{Diff: "--- a\n+++ a\n@@ -1 +1,2 @@\n--- x\n+++ y\n+z\n"},
		Egress{Count: 3},
		Egress{Allowed: true},
	} {
		sum.Add(e)
	}
	if got, want := sum.String(), "clone 3.2 s; 2,000 tokens in, 50 out, $0.03; 1 changed file (+2 -1); 3 refused connections"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
