package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// waitingFor is a pod whose container of the run waits.
func waitingFor(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: runContainer, Image: "registry.test/agent:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

// endedBy is a pod whose container has ended.
func endedBy(container, reason string, code int32) corev1.PodStatus {
	s := []corev1.ContainerStatus{{
		Name: container, Image: "registry.test/agent:1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Message: "said"}},
	}}
	if container == placeContainer {
		return corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: s}
	}
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: s}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodStatus {
	phase := corev1.PodPending
	if kind == corev1.DisruptionTarget {
		phase = corev1.PodFailed
	}
	return corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: "the cluster\nsays why"}}}
}

// endings are what the states of pods mean.
var endings = []struct {
	name   string
	pod    corev1.PodStatus
	events []string
	want   Ending
	final  bool
	says   string
}{
	{name: "wrong name of an image", pod: waitingFor("InvalidImageName", "couldn't parse"), want: EndImage, final: true, says: "couldn't parse"},
	{name: "image is never pulled", pod: waitingFor("ErrImageNeverPull", ""), want: EndImage, final: true},
	{name: "image is not there", pod: waitingFor("ImagePullBackOff", "back-off"), events: []string{"Failed Failed to pull image: not found"}, want: EndImage, says: "not found"},
	{name: "registry does not answer", pod: waitingFor("ErrImagePull", "i/o timeout"), want: EndImage, says: "i/o timeout"},
	{name: "no node", pod: condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable), want: EndUnschedulable, says: "the cluster says why"},
	{name: "node had no room", pod: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", Message: "m"}, want: EndUnschedulable},
	{name: "a ConfigMap is missing", pod: waitingFor("CreateContainerConfigError", `configmap "x" not found`), want: EndConfig, final: true, says: `configmap "x" not found`},
	{name: "a volume is missing", pod: waitingFor("ContainerCreating", ""), events: []string{`FailedMount secret "y" not found`}, want: EndConfig, says: `secret "y" not found`},
	{name: "wrong C library", pod: endedBy(runContainer, "StartError", 128), want: EndCannotRun, final: true, says: "glibc"},
	{name: "a container cannot be made", pod: waitingFor("CreateContainerError", "no"), want: EndCannotRun, final: true},
	{name: "wrong image of Triphammer", pod: endedBy(placeContainer, "Error", 127), want: EndCannotRun, says: "--kube-program-image"},
	{name: "nothing happens", pod: waitingFor("ContainerCreating", ""), want: EndCannotRun},
	{name: "out of memory", pod: endedBy(runContainer, "OOMKilled", 137), want: EndMemory, says: "more memory"},
	{name: "the way out is out of memory", pod: endedBy(egressContainer, "OOMKilled", 137), want: EndMemory, says: "egress"},
	{name: "evicted for its disk", pod: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage."}, want: EndEvicted, says: "ephemeral-storage"},
	{name: "drained", pod: condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI"), want: EndEvicted, says: "drained"},
	{name: "preempted", pod: condition(corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonPreemptionByScheduler), want: EndPreempted},
	{name: "preempted by the node", pod: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Preempting"}, want: EndPreempted},
	{name: "node is unreachable", pod: condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager"), want: EndNodeLost, says: "gone"},
	{name: "node was removed", pod: condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByPodGC"), want: EndNodeLost},
	{name: "node was shut down", pod: condition(corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet), want: EndNodeLost, says: "shut down"},
	{name: "node is lost, as older clusters say", pod: corev1.PodStatus{Phase: corev1.PodUnknown, Reason: "NodeLost"}, want: EndNodeLost},
	{name: "deadline of the pod", pod: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}, want: EndDeadline},
	{name: "supervisor crashed", pod: endedBy(runContainer, "Error", 2), want: EndCrashed, says: "status 2"},
	{name: "report is lost", pod: endedBy(runContainer, "Completed", 0), want: EndCrashed, says: "thrown it away"},
	{name: "pod failed", pod: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Strange"}, want: EndCrashed, says: "Strange"},
}

// TestEndings: each state in which a cluster ends an attempt, or keeps it from beginning, has
// its ending (SPEC 17.5).
func TestEndings(t *testing.T) {
	covered := make(map[Ending]bool)
	for _, c := range endings {
		s := &seen{job: &batchv1.Job{}, pod: &corev1.Pod{Status: c.pod}, waiting: time.Hour, pending: time.Minute}
		for _, e := range c.events {
			reason, message, _ := strings.Cut(e, " ")
			s.events = append(s.events, corev1.Event{Reason: reason, Message: message})
		}
		got := s.ended()
		if got == nil || got.Ending != c.want || got.Final != c.final || !strings.Contains(got.Message, c.says) || strings.Contains(got.Message, "\n") {
			t.Errorf("%s: got %+v, want %s, final %t, %q", c.name, got, c.want, c.final, c.says)
		}
		covered[c.want] = true
		if c.pod.Phase != corev1.PodPending {
			continue
		}
		s.waiting = 0 // it may pass
		if got := s.ended(); got != nil && !c.final {
			t.Errorf("%s: it is given up at once: %+v", c.name, got)
		}
	}
	deadline := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}}}
	ended := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded}}}}
	failed := func(message string) []corev1.Event {
		return []corev1.Event{{Reason: "FailedCreate", Message: message}}
	}
	for name, c := range map[string]struct {
		s    seen
		want Ending
	}{
		"deadline of the Job":              {seen{job: deadline, podGone: true, pod: &corev1.Pod{}}, EndDeadline},
		"deadline, by which the pod ended": {seen{job: deadline, pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}}, EndDeadline},
		"Job deleted":                      {seen{jobGone: true}, EndDeleted},
		"Job deleted, and the pod stays":   {seen{jobGone: true, pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}}, EndDeleted},
		"pod deleted":                      {seen{job: &batchv1.Job{}, pod: &corev1.Pod{}, podGone: true}, EndDeleted},
		"quota":                            {seen{job: &batchv1.Job{}, waiting: time.Hour, events: failed(`pods "x" is forbidden: exceeded quota: small`)}, EndQuota},
		"Pod Security":                     {seen{job: &batchv1.Job{}, waiting: time.Minute, pending: time.Hour, events: failed(`pods "x" is forbidden: violates PodSecurity "restricted:latest"`)}, EndRefused},
		"webhook":                          {seen{job: &batchv1.Job{}, waiting: time.Minute, pending: time.Hour, events: failed("admission webhook \"w\" denied the request")}, EndRefused},
		"pod deleted before it was seen":   {seen{job: ended}, EndDeleted},
		"no pod":                           {seen{job: &batchv1.Job{}, waiting: time.Hour}, EndRefused},
	} {
		if got := c.s.ended(); got == nil || got.Ending != c.want {
			t.Errorf("%s: got %+v, want %s", name, got, c.want)
		}
		covered[c.want] = true
	}
	covered[EndForbidden], covered[EndUnreachable] = true, true // TestErrors
	text, err := os.ReadFile("../../../../docs/kubernetes-runs.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	_, table, _ := strings.Cut(string(text), "## How a cluster ends a run")
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	for e := range covered {
		if !slices.Contains(documented, string(e)) {
			t.Errorf("docs/kubernetes-runs.md does not have %s", e)
		}
	}
	if len(documented) != len(covered) {
		t.Errorf("docs/kubernetes-runs.md has %v", documented)
	}
}

// TestErrors: what the API server answers has its ending too, and what may pass is tried again.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, verb, resource string
		times, code          int
		reason               metav1.StatusReason
		message              string
		after                bool
		want                 Ending // empty: the run goes through
		final                bool
	}{
		{name: "no right", verb: "create", resource: "jobs", times: 1, code: 403, reason: metav1.StatusReasonForbidden, message: "User cannot create", want: EndForbidden, final: true},
		{name: "no right for secrets", verb: "create", resource: "secrets", times: 1, code: 403, reason: metav1.StatusReasonForbidden, message: "User cannot create", want: EndForbidden, final: true},
		{name: "no right to watch", verb: "watch", resource: "pods", times: 1, code: 403, reason: metav1.StatusReasonForbidden, message: "User cannot watch", want: EndForbidden, final: true},
		{name: "no right to the log", verb: "get", resource: "pods/log", times: 1, code: 403, reason: metav1.StatusReasonForbidden, message: "User cannot get", want: EndForbidden, final: true},
		{name: "token has expired", verb: "create", resource: "jobs", times: 1, code: 401, reason: metav1.StatusReasonUnauthorized, want: EndForbidden},
		{name: "quota of Jobs", verb: "create", resource: "jobs", times: 1, code: 403, reason: metav1.StatusReasonForbidden, message: "exceeded quota: small", want: EndQuota},
		{name: "admission", verb: "create", resource: "jobs", times: 1, code: 400, reason: metav1.StatusReasonBadRequest, message: "denied", want: EndRefused, final: true},
		{name: "invalid", verb: "create", resource: "jobs", times: 1, code: 422, reason: metav1.StatusReasonInvalid, message: "spec", want: EndRefused, final: true},
		{name: "busy", verb: "create", resource: "jobs", times: 3, code: 429, reason: metav1.StatusReasonTooManyRequests},
		{name: "no leader", verb: "create", resource: "jobs", times: 2, code: 500, reason: metav1.StatusReasonInternalError, message: "etcdserver: leader changed"},
		{name: "timeout", verb: "create", resource: "jobs", times: 2, code: 504, reason: metav1.StatusReasonTimeout},
		{name: "conflict", verb: "patch", resource: "jobs", times: 2, code: 409, reason: metav1.StatusReasonConflict},
		{name: "answer lost", verb: "create", resource: "jobs", times: 1, after: true},
		{name: "answer of the secret lost", verb: "create", resource: "secrets", times: 1, after: true},
		{name: "answer of the beginning lost", verb: "patch", resource: "jobs", times: 1, after: true},
		{name: "watch ends with an error", verb: "watch", resource: "jobs", times: 2, code: 500, reason: metav1.StatusReasonInternalError},
		{name: "list and watch fail", verb: "list", resource: "pods", times: 2, code: 503, reason: metav1.StatusReasonServiceUnavailable},
		{name: "log cannot be had at first", verb: "get", resource: "pods/log", times: 3, code: 500, reason: metav1.StatusReasonInternalError},
		{name: "never", verb: "create", resource: "jobs", times: 1 << 30, code: http.StatusServiceUnavailable, reason: metav1.StatusReasonServiceUnavailable, want: EndUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			cfg := configOf(t, s)
			if c.want == EndUnreachable {
				cfg.Patience = 200 * time.Millisecond
			}
			s.Fail(c.verb, c.resource, c.times, c.code, c.reason, c.message, c.after)
			work, sink := newTask("echo done"), newSink()
			exit, err := newExecutor(t, cfg).Start(t.Context(), work, sink)
			o, final := (*outcome)(nil), (*task.FinalError)(nil)
			switch {
			case c.want == "" && (err != nil || exit.Code != 0 || sink.output(event.Stdout) != "done\n"):
				t.Errorf("it ended with %+v, %v, after %q", exit, err, sink.output(event.Stdout))
			case c.want != "" && (!errors.As(err, &o) || o.Ending != c.want || errors.As(err, &final) != c.final):
				t.Errorf("it ended with %v, want %s, final %t", err, c.want, c.final)
			}
			if n := len(s.Names("pods")); n > 1 {
				t.Errorf("there are %d pods", n)
			}
		})
	}
}

// TestPodsThatEnd goes through endings in a cluster: the events, the log and the states come
// in any order.
func TestPodsThatEnd(t *testing.T) {
	for name, c := range map[string]struct {
		fate   func(*corev1.Pod) *kubetest.Fate
		meet   func(t *testing.T, s *kubetest.Server, job string) // once the agent works
		want   Ending
		before string // what the quota says
	}{
		"no image": {fate: func(*corev1.Pod) *kubetest.Fate { return &kubetest.Fate{Status: waitingFor("InvalidImageName", "x")} }, want: EndImage},
		"no node": {fate: func(*corev1.Pod) *kubetest.Fate {
			return &kubetest.Fate{Status: condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable")}
		}, want: EndUnschedulable},
		"no quota":    {before: "exceeded quota: small", want: EndQuota},
		"memory":      {meet: func(_ *testing.T, s *kubetest.Server, job string) { s.Kill(job, runContainer, "OOMKilled") }, want: EndMemory},
		"crash":       {meet: func(_ *testing.T, s *kubetest.Server, job string) { s.Kill(job, runContainer, "Error") }, want: EndCrashed},
		"Job deleted": {meet: func(_ *testing.T, s *kubetest.Server, job string) { s.Delete("jobs", job) }, want: EndDeleted},
		"pod deleted": {meet: func(_ *testing.T, s *kubetest.Server, job string) { s.Delete("pods", s.PodOf(job).Name) }, want: EndDeleted},
		"deadline": {meet: func(_ *testing.T, s *kubetest.Server, job string) {
			s.Update("jobs", job, func(o any) { o.(*batchv1.Job).Spec.ActiveDeadlineSeconds = of(int64(0)) })
		}, want: EndDeadline},
		"drained": {meet: func(_ *testing.T, s *kubetest.Server, job string) {
			pod := s.PodOf(job).Name
			s.Update("pods", pod, func(o any) {
				p := o.(*corev1.Pod)
				p.Status.Conditions = condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI").Conditions
			})
			s.Delete("pods", pod)
		}, want: EndEvicted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.Decide(c.fate)
			s.RefusePods(c.before)
			work, sink := newTask("echo started; sleep 60"), newSink()
			job := nameOf(work.RunID, 1)
			done := make(chan error, 1)
			cfg := configOf(t, s)
			if c.meet == nil { // its end is that it does not begin
				cfg.Pending = time.Second
			}
			go func() { _, err := newExecutor(t, cfg).Start(t.Context(), work, sink); done <- err }()
			if c.meet != nil {
				sink.await(t, "started")
				c.meet(t, s, job)
			}
			select {
			case err := <-done:
				if o := (*outcome)(nil); !errors.As(err, &o) || o.Ending != c.want {
					t.Errorf("it ended with %v, want %s", err, c.want)
				}
			case <-time.After(time.Minute):
				t.Fatal("it has not ended")
			}
			if err := newExecutor(t, cfg).Reap(context.Background(), work.RunID); err != nil {
				t.Error(err)
			}
		})
	}
}
