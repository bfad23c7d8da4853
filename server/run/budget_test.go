package run_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
)

// spender is a claude that uses 1000 tokens and goes on.
const spender = `#!/bin/sh
trap 'exit 130' INT
echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"hm"}],"usage":{"input_tokens":600,"output_tokens":400}}}'
while [ -z "$FREE" ]; do sleep 0.01; done
echo '{"type":"result","subtype":"success","session_id":"s1","usage":{"input_tokens":600,"output_tokens":400}}'
`

// TestBudgets: a run that exceeds a budget is stopped, is not tried again, and says which
// one it was; where a day's budget is used up, no run starts (SPEC 15.4).
func TestBudgets(t *testing.T) {
	for _, tt := range []struct {
		name         string
		budget       factory.Budget // of the spec
		server       factory.Budget
		want, second string // what the first and the second run say
	}{
		{
			"run",
			factory.Budget{Tokens: 999},
			factory.Budget{},
			"the run used up its budget: 1000 of 999 tokens", "the run used up its budget: 1000 of 999 tokens",
		},
		{
			"automation",
			factory.Budget{TokensPerDay: 999},
			factory.Budget{},
			"the automation used up its budget of this day: 1000 of 999 tokens since 00:00 UTC", "the automation used up its budget of this day: 1000 of 999 tokens",
		},
		{
			"server",
			factory.Budget{},
			factory.Budget{TokensPerDay: 999},
			"the server used up its budget of this day: 1000 of 999 tokens since 00:00 UTC (--budget-usd-per-day, --budget-tokens-per-day)",
			"the server used up its budget of this day: 1000 of 999 tokens",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(spender), 0o700); err != nil {
				t.Fatal(err)
			}
			w.start(run.Config{MaxRuns: 1, Budget: tt.server}, bin+":"+os.Getenv("PATH"))
			s := run.Spec{Automation: "a", Prompt: "Spend.", Budget: tt.budget, Retry: run.Retry{Attempts: 3}}
			s.Harness.Type = "claude"
			for _, want := range []string{tt.want, tt.second} {
				r := w.finished(w.enqueue(s))
				w.wants(r, store.FailedRun, want)
				if r.Attempt != 1 {
					t.Errorf("attempt %d", r.Attempt)
				}
			}
			until, err := w.manager.CheckBudget(t.Context())
			if over := errors.Is(err, run.ErrBudget); over != (tt.name == "server") || over && time.Until(until) > 24*time.Hour {
				t.Errorf("%v until %v", err, until)
			}
		})
	}
}

// TestWithinBudget: a run that stays below its budget, or ends by itself, is not stopped.
func TestWithinBudget(t *testing.T) {
	w := newWorld(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\nFREE=1\n"+spender[len("#!/bin/sh\n"):]), 0o700); err != nil {
		t.Fatal(err)
	}
	w.start(run.Config{MaxRuns: 1, Budget: factory.Budget{USDPerDay: 1, TokensPerDay: 1000}}, bin+":"+os.Getenv("PATH"))
	s := run.Spec{Automation: "a", Prompt: "Spend.", Budget: factory.Budget{Tokens: 1000, TokensPerDay: 1000}}
	s.Harness.Type = "claude"
	r := w.finished(w.enqueue(s))
	w.wants(r, store.Succeeded, "")
	if r.Tokens != 1000 {
		t.Errorf("the run used %d tokens", r.Tokens)
	}
}
