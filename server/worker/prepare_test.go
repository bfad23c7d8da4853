package worker

import (
	"testing"

	"triphammer/factory"
	"triphammer/server/run"
)

// TestWorkerSecrets: the operator's variables go only to runs that ask for them.
func TestWorkerSecrets(t *testing.T) {
	t.Setenv("TH_TEST_KEY", "value")
	can := run.Capabilities{AgentEnv: []string{"TH_TEST_KEY", "TH_TEST_UNSET"}}
	if got := workerSecrets(&can, &run.Spec{Harness: factory.Harness{AuthWorker: true}}); len(got) != 1 || got["TH_TEST_KEY"].Reveal() != "value" {
		t.Errorf("%v", got)
	}
	if got := workerSecrets(&can, &run.Spec{}); len(got) > 0 {
		t.Errorf("a run that does not ask gets %v", got)
	}
}
