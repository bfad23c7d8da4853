package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// inCluster makes a cluster, and returns the settings of a server whose runs it executes. Its
// containers have the variables.
func inCluster(t *testing.T, env ...string) (*kubetest.Server, []string) {
	t.Helper()
	s := kubetest.New(t, raced, env...)
	return s, []string{
		"--executor", "kubernetes", "--isolation", "auto", "--kubeconfig", s.Kubeconfig(t), "--kube-image", "registry.test/agent:1", "--kube-program-image", "registry.test/triphammer:1",
	}
}

// TestKubernetesKill kills the server again and again while a run is in progress in a
// cluster, and breaks the API server too. The run goes on: each server takes it up by its
// name, and its transcript has each line once (SPEC 17.5).
func TestKubernetesKill(t *testing.T) {
	t.Parallel()
	const lines = 400
	cluster, settings := inCluster(t)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "automations/all.md": automationFile("hook", ""),
		"environments/env.yaml": fmt.Sprintf("command: [sh, -c, 'for i in $(seq 1 %d); do echo \"line $i\"; echo \"word $i\" >&2; sleep 0.02; done; echo done > made; echo kept > \"$TRIPHAMMER_ARTIFACTS/kept.txt\"']\n", lines),
	})
	w.start(settings...)
	id := strings.Fields(w.run("", "runs", "create", "--prompt", "x", "--environment", "env"))[0]
	name := "run-" + strings.TrimPrefix(id, "run_") + "-1"
	transcript := func() []api.Event {
		var all api.Transcript
		w.list(&all, "runs", "logs", id)
		return all.Events
	}
	await := func(what string, is func() bool) {
		t.Helper()
		if err := client.WaitFor(t.Context(), 2*time.Minute, what, func() (bool, error) { return is(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	output := func(stream string) string {
		var b strings.Builder
		for _, e := range transcript() {
			var o event.Output
			if e.Kind == event.KindOutput && json.Unmarshal(e.Data, &o) == nil && o.Stream == stream {
				b.WriteString(o.Text)
			}
		}
		return b.String()
	}
	for round := range 4 {
		want := fmt.Sprintf("line %d\n", (round+1)*lines/8)
		await("the server has stored "+want, func() bool { return strings.Contains(output(event.Stdout), want) })
		w.kill()
		if round == 2 {
			cluster.Stop()
			cluster.Begin(t)
			cluster.Expire()
		}
		w.start(settings...)
	}
	var run api.Run
	await("the run has ended", func() bool {
		w.list(&run, "runs", "show", id)
		return run.FinishedAt != nil
	})
	if run.State != "SUCCEEDED" || run.Attempt != 1 {
		t.Errorf("it ended as %s at attempt %d: %s", run.State, run.Attempt, run.StatusMessage)
	}
	for stream, word := range map[string]string{event.Stdout: "line", event.Stderr: "word"} {
		var want strings.Builder
		for i := range lines {
			fmt.Fprintf(&want, "%s %d\n", word, i+1)
		}
		if got := output(stream); got != want.String() {
			t.Errorf("%s has %d lines, and not %d: %q", stream, strings.Count(got, "\n"), lines, got)
		}
	}
	counts := make(map[string]int)
	for _, e := range transcript() {
		counts[e.Kind]++
	}
	for _, kind := range []string{event.KindStarted, event.KindExit, event.KindFile} {
		if counts[kind] != 1 {
			t.Errorf("there are %d events of the kind %s", counts[kind], kind)
		}
	}
	if counts[event.KindArtifact] != 2 { // the file, and the patch
		t.Errorf("there are %d artifacts", counts[event.KindArtifact])
	}
	await("nothing of the run is left in the cluster", func() bool {
		return !slices.Contains(cluster.Names("jobs"), name) && len(cluster.Names("secrets")) == 0
	})
}

// TestKubernetesPreflight: the command tells of each right that is missing, and starts a run.
func TestKubernetesPreflight(t *testing.T) {
	t.Parallel()
	cluster, _ := inCluster(t)
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	args := []string{"executor", "kubernetes", "preflight", "--kubeconfig", cluster.Kubeconfig(t), "--kube-program-image", "registry.test/triphammer:1"}
	began := time.Now()
	out := w.run("", args...)
	for _, want := range []string{"version", "pods/log in runs: get", "quota", "the cluster would accept the Job of a run", "a run that does nothing took"} {
		if !strings.Contains(out, want) {
			t.Errorf("after %v: it does not say %q: %s", time.Since(began), want, out)
		}
	}
	// The cluster deletes what the Job owns a moment after it.
	gone := client.WaitFor(t.Context(), 20*time.Second, "it has left secrets", func() (bool, error) { return len(cluster.Names("secrets")) == 0, nil })
	if gone != nil {
		t.Fatal(gone, cluster.Names("secrets"))
	}
}
