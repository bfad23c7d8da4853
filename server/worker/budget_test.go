package worker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
	"triphammer/server/worker"
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
			w.start(worker.Config{Config: run.Config{MaxRuns: 1, Budget: tt.server}}, bin+":"+os.Getenv("PATH"))
			s := run.Spec{Automation: "a", Prompt: "Spend.", Budget: tt.budget, Retry: run.Retry{Attempts: 3}}
			s.Harness.Type = "claude"
			for _, want := range []string{tt.want, tt.second} {
				r := w.finished(w.enqueue(s))
				w.wants(r, store.FailedRun, want)
				if r.Attempt != 1 {
					t.Errorf("attempt %d", r.Attempt)
				}
			}
			until, err := w.manager.Desk().CheckBudget(t.Context())
			if over := errors.Is(err, task.ErrBudget); over != (tt.name == "server") || over && time.Until(until) > 24*time.Hour {
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
	w.start(worker.Config{Config: run.Config{MaxRuns: 1, Budget: factory.Budget{USDPerDay: 1, TokensPerDay: 1000}}}, bin+":"+os.Getenv("PATH"))
	s := run.Spec{Automation: "a", Prompt: "Spend.", Budget: factory.Budget{Tokens: 1000, TokensPerDay: 1000}}
	s.Harness.Type = "claude"
	r := w.finished(w.enqueue(s))
	w.wants(r, store.Succeeded, "")
	if r.Tokens != 1000 {
		t.Errorf("the run used %d tokens", r.Tokens)
	}
}

// TestBudgetInTheMiddle: what an answer uses while it streams counts at once, in tokens and in
// US dollars, and a run that is stopped leaves it to the budget of the day (SPEC 15.4).
func TestBudgetInTheMiddle(t *testing.T) {
	const talker = `#!/bin/sh
trap 'exit 130' INT
echo '{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1","model":"claude-opus-4-8","usage":{"input_tokens":10,"output_tokens":1}}}}'
word=$(printf '%04000d' 0)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
	echo '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"'$word'"}}}'
done
while :; do sleep 0.01; done
`
	for name, budget := range map[string]factory.Budget{
		"tokens": {Tokens: 10_000, USDPerDay: 0.1},
		"usd":    {USD: 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, agentNamed(t, "claude", talker)+":"+os.Getenv("PATH"))
			s := run.Spec{Automation: "a", Prompt: "Talk.", Budget: budget}
			s.Harness.Type = "claude"
			r := w.finished(w.enqueue(s))
			w.wants(r, store.FailedRun, " used up its budget")
			// Each delta is 1,000 tokens, at 25 dollars a million.
			if r.Tokens < 4000 || r.CostUSD < float64(r.Tokens-100)*25e-6 {
				t.Errorf("%d tokens, %v USD", r.Tokens, r.CostUSD)
			}
			if budget.USDPerDay > 0 {
				w.wants(w.finished(w.enqueue(s)), store.FailedRun, "the automation used up its budget of this day: ")
			}
		})
	}
}

// agentNamed makes a folder with a program of that name.
func agentNamed(t *testing.T, name, script string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestModelTrouble: an agent that tries again for ever does not keep its run, and the run says
// what the API of its model said last (SPEC 15.3).
func TestModelTrouble(t *testing.T) {
	const forever = "while :; do sleep 0.01; done\n"
	retry := func(status string) string {
		return `echo '{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error_status":` + status + `,"error":"said"}'` + "\n"
	}
	for _, tt := range []struct {
		name, agent, script string
		timeout             time.Duration
		want                string
		gone                string // in no case
	}{
		{"refused key", "claude", retry("401") + forever, time.Minute, "claude has no credential that its provider accepts", "timeout"},
		{"overloaded", "claude", retry("529") + forever, time.Second, "timeout of 1s, and was stopped (timeoutMinutes of its environment); until then it did not reach its model: the provider's limit", ""},
		{
			"recovered", "claude",
			retry("529") + `echo '{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hm"}]}}'` + "\n" + forever,
			time.Second, "timeout of 1s", "reach its model",
		},
		{
			"standard error", "gemini",
			"echo 'Attempt 2 failed with status 500. Retrying with backoff...' >&2; echo '}' >&2\n" + forever,
			time.Second, "until then it did not reach its model: Attempt 2 failed with status 500", "",
		},
		{
			"empty answers", "opencode",
			`while :; do echo '{"type":"step_finish","part":{"reason":"unknown","tokens":{"output":0}}}'; done` + "\n",
			time.Minute, "the answers of the model's API are empty", "timeout",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, agentNamed(t, tt.agent, "#!/bin/sh\ntrap 'exit 130' INT\n"+tt.script)+":"+os.Getenv("PATH"))
			s := run.Spec{Prompt: "Go.", Environment: &run.Environment{Timeout: tt.timeout, Idle: time.Minute}}
			s.Harness.Type = tt.agent
			r := w.finished(w.enqueue(s))
			w.wants(r, store.FailedRun, tt.want)
			if tt.gone != "" && strings.Contains(r.StatusMessage, tt.gone) {
				t.Error(r.StatusMessage)
			}
		})
	}
}
