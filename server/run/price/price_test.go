package price

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/task"
)

var day = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// TestStandard: each provider says where and when its prices stood, and no price is lower than
// what it stands for.
func TestStandard(t *testing.T) {
	var l list
	if err := json.Unmarshal(own, &l); err != nil {
		t.Fatal(err)
	}
	for _, of := range l {
		if _, err := time.Parse(time.DateOnly, of.Date); err != nil || !strings.HasPrefix(of.Source, "https://") {
			t.Errorf("%s: %s %s", of.Provider, of.Date, of.Source)
		}
		for name, p := range of.Models {
			if p.Input <= 0 || p.Output < p.Input || p.Answer <= 0 || p.Prompt < p.Answer || or(p.CacheRead, 0) > p.Input || p.Long != nil && p.Long.Output < p.Output {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
	Standard()
}

func TestCost(t *testing.T) {
	table := Standard()
	const m = 1_000_000
	for _, tt := range []struct {
		model  string
		tokens task.Tokens
		at     time.Time
		want   float64
	}{
		{"claude-opus-5-5", task.Tokens{Input: m, Output: m}, day, 24},
		{"claude-opus-5-5-20260922", task.Tokens{CacheRead: m, CacheWrite: 2 * m, CacheHour: m}, day, 0.2 + 5 + 8},
		{"claude-opus-5-5[1m]", task.Tokens{Output: m}, day, 20},
		{"claude-haiku-5-5", task.Tokens{Input: 100_000, Output: m}, day, 0.01 + 0.5},
		{"claude-haiku-5-5", task.Tokens{Input: 100_000, CacheRead: 1, Output: m}, day, 0.05 + 0.05e-6 + 2.5},
		{"gpt-6-sol-2026-09-22", task.Tokens{Input: 272_001}, day, 272_001 * 4e-6},
		{"gpt-5.3-codex", task.Tokens{CacheWrite: m}, day, 1.75}, // as input
		{"gemini-3.8-flash", task.Tokens{Output: m}, day, 3.75},
		{"gemini-3.8-flash", task.Tokens{Output: m}, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 7.5},
	} {
		p := table.Of(tt.model)
		if p == nil {
			t.Fatalf("%s has no price", tt.model)
		}
		if got := p.Cost(tt.tokens, tt.at); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s %+v costs %v, want %v", tt.model, tt.tokens, got, tt.want)
		}
		if most := p.Most(tt.tokens.Prompt(), tt.tokens.Output, tt.at); most < tt.want-1e-9 {
			t.Errorf("%s %+v costs at most %v", tt.model, tt.tokens, most)
		}
	}
	for _, model := range []string{"", "opus", "openrouter/claude-opus-5-5", "claude-opus-5-5-fast", "codex-auto-review"} {
		if table.Of(model) != nil {
			t.Errorf("%q has a price", model)
		}
	}
	p := table.Of("claude-opus-5-5")
	if n := p.Affords(1, 50_000, day); n != 30_000 { // 0.4 at 8 dollars, and 0.6 at 20
		t.Errorf("1 dollar buys %d tokens", n)
	}
	if n := p.Affords(0.1, 50_000, day); n >= 0 {
		t.Errorf("10 cents buy %d tokens", n)
	}
}

// TestFile: an operator's file sets prices and takes them away, and says what is wrong with it.
func TestFile(t *testing.T) {
	table, err := Standard().With([]byte(`[{"models": {"mine": {"input": 0, "output": 0, "answer": 100}, "gpt-5": null, "gpt-5.1": {"input": 1, "output": 2}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if table.Of("mine") == nil || table.Of("gpt-5") != nil || table.Of("gpt-5.1").Input != 1 || table.Of("gpt-5.2") == nil || Standard().Of("gpt-5") == nil {
		t.Error("the file does not count")
	}
	if len(table.Models()) != len(Standard().Models()) {
		t.Errorf("%d models", len(table.Models()))
	}
	for file, want := range map[string]string{
		`{}`:                             "no JSON list",
		`[{"models":{}}]`:                "has no models",
		`[] []`:                          "text follows",
		`[{"models":{"m":{"inptu":1}}}]`: "unknown field",
		`[{"models":{"m":{"input":-1,"output":1}}}]`:                                        "input is no price",
		`[{"models":{"m":{}}}]`:                                                             "has no price",
		`[{"models":{"m":{"input":1,"output":1,"then":{"from":"x"}}}]`:                      "no JSON list",
		`[{"models":{"m":{"input":1,"output":1,"then":{"from":"x"}}}}]`:                     "no day such as",
		`[{"models":{"m":{"input":1,"output":1,"long":{"input":2,"output":2}}}}]`:           "above",
		`[{"models":{"m":{"input":1,"output":1}}},{"models":{"m":{"input":1,"output":1}}}]`: "stands twice",
	} {
		if _, err := Standard().With([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestGuide: the file of the guide is one that the server takes.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(guide), "```json\n")
	file, _, _ = strings.Cut(file, "```")
	table, err := Standard().With([]byte(file))
	if err != nil || table.Of("our-model") == nil || table.Of("gpt-6-astra") != nil || table.Of("claude-opus-5-5").Input != 3.6 {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(own)
	f.Fuzz(func(t *testing.T, file []byte) {
		table, err := Standard().With(file)
		if err != nil {
			return
		}
		for _, name := range table.Models() {
			if cost := table.Of(name).Most(1000, 1000, day); !(cost >= 0) || math.IsInf(cost, 0) {
				t.Fatalf("%s costs %v", name, cost)
			}
		}
	})
}
