package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"

	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// TestFake goes through an attempt with client-go's own fake clientset, which keeps the objects
// as an API server does, and executes nothing.
func TestFake(t *testing.T) {
	client := fake.NewClientset()
	cfg := configOf(t, nil)
	core, namespace := client.CoreV1(), kubetest.Namespace
	cfg.cluster = &cluster{
		namespace: namespace, jobs: client.BatchV1().Jobs(namespace), pods: core.Pods(namespace), secrets: core.Secrets(namespace), events: core.Events(namespace),
		quotas: core.ResourceQuotas(namespace), policies: client.NetworkingV1().NetworkPolicies(namespace), reviews: client.AuthorizationV1().SelfSubjectAccessReviews(),
		logs: func(context.Context, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("")), nil
		},
		version: func(context.Context) (*version.Info, error) { return &version.Info{Major: "1", Minor: "33"}, nil },
	}
	e := newExecutor(t, cfg)
	work := newTask("true")
	work.Network = task.Network{Off: true}
	name := nameOf(work.RunID, 1)
	done := make(chan error, 1)
	go func() { _, err := e.Start(t.Context(), work, newSink()); done <- err }()
	var job *batchv1.Job
	until(t, "the Job begins", func() bool {
		var err error
		job, err = client.BatchV1().Jobs(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && !*job.Spec.Suspend
	})
	for what, err := range map[string]error{
		"secret": failed(core.Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})),
		"policy": failed(client.NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), name, metav1.GetOptions{})),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-x", Labels: maps.Clone(job.Spec.Template.Labels)}, Status: endedBy(runContainer, "OOMKilled", 137)}
	if _, err := core.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, err := (*outcome)(nil), <-done; !errors.As(err, &o) || o.Ending != EndMemory {
		t.Errorf("it ended with %v", err)
	}
	if err := e.Ended(t.Context(), work.RunID, 1); err != nil {
		t.Error(err)
	}
}

// TestPod holds the pod of a run to what the Pod Security Standard "restricted" asks for, and
// to more: a template changes none of it.
func TestPod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "template.yaml")
	text := "metadata: {labels: {team: a}}\nspec:\n  nodeSelector: {pool: agents}\n  hostNetwork: true\n  automountServiceAccountToken: true\n  restartPolicy: Always\n" +
		"  securityContext: {runAsUser: 1000}\n  containers: []\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := configOf(t, nil)
	cfg.cluster, cfg.Template = &cluster{namespace: "runs"}, file
	e := newExecutor(t, cfg)
	work := newTask("true")
	work.Limits = task.Limits{Memory: 1 << 30, CPUs: 1.5, Disk: 10 << 30}
	j := e.job(work, true)
	p := j.Spec.Template.Spec
	if j.Spec.Template.Labels["team"] != "a" || p.NodeSelector["pool"] != "agents" || *p.SecurityContext.RunAsUser != 1000 {
		t.Error("the template does not act")
	}
	if p.HostNetwork || *p.AutomountServiceAccountToken || p.RestartPolicy != corev1.RestartPolicyNever || *p.EnableServiceLinks ||
		!*p.SecurityContext.RunAsNonRoot || p.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod is %+v", p)
	}
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		s := c.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Env) > 0 {
			t.Errorf("the container %s is %+v", c.Name, c)
		}
		for _, m := range c.VolumeMounts {
			if (m.Name == jobKey) != (c.Name == runContainer && m.MountPath == jobFolder) && m.Name == jobKey || m.Name == egressKey && c.Name != egressContainer {
				t.Errorf("the container %s has %s", c.Name, m.Name)
			}
		}
	}
	r := p.Containers[0].Resources
	if r.Limits.Memory().Value() != 1<<30+executor.PodMemory || r.Requests.Cpu().MilliValue() != 1500 || r.Limits.StorageEphemeral().Value() != 10<<30 {
		t.Errorf("the resources are %+v", r)
	}
	if *j.Spec.BackoffLimit != 0 || !*j.Spec.Suspend || *j.Spec.ActiveDeadlineSeconds <= 3600 || *j.Spec.TTLSecondsAfterFinished <= 0 {
		t.Errorf("the Job is %+v", j.Spec)
	}
}

// TestPreflightFindings: preflight names each right that is missing, and a quota that is used
// up.
func TestPreflightFindings(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	e := newExecutor(t, configOf(t, s))
	check := func() (bad []string, ok bool) {
		ok = e.Check(t.Context(), true, func(f Finding) {
			if !f.OK {
				bad = append(bad, f.What+": "+f.Detail)
			}
		})
		return bad, ok
	}
	if bad, ok := check(); !ok {
		t.Errorf("it finds %v", bad)
	}
	s.Put("resourcequotas", &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "no-balancers"}, Status: corev1.ResourceQuotaStatus{
		Hard: resources("services.loadbalancers", "0"), Used: resources("services.loadbalancers", "0"),
	}})
	if bad, ok := check(); !ok {
		t.Errorf("of a quota for what no run uses, it finds %v", bad)
	}
	s.Put("resourcequotas", &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Status: corev1.ResourceQuotaStatus{
		Hard: resources("pods", "2"), Used: resources("pods", "2"),
	}})
	if bad, ok := check(); ok || len(bad) != 1 || !strings.Contains(bad[0], "pods 2 of 2 used") {
		t.Errorf("it finds %v", bad)
	}
	s.Allow(role(t)[1:])
	if bad, ok := check(); ok || len(bad) != 1 || !strings.Contains(bad[0], "jobs in runs: may not create, get, list, watch, patch, delete") {
		t.Errorf("it finds %v", bad)
	}
	s.Stop()
	if bad, ok := check(); ok || len(bad) != 1 || !strings.Contains(bad[0], "server: ") {
		t.Errorf("it finds %v", bad)
	}
	s.Begin(t)
}

// TestRole proves the role of the chart: a cluster that allows nothing else is enough for all
// that the executor does, and each right of it was used.
func TestRole(t *testing.T) {
	s := newServer(t)
	e := newExecutor(t, configOf(t, s))
	e.cfg.Live = func(context.Context, string, int64) (bool, error) { return false, nil }
	work := newTask("true")
	work.Network = task.Network{Off: true}
	if _, err := e.Start(t.Context(), work, newSink()); err != nil {
		t.Error(err)
	}
	adopted := *work
	adopted.Adopted = true
	if _, err := e.Start(t.Context(), &adopted, newSink()); err != nil {
		t.Error(err)
	}
	minted := 0
	renewed := *work // its token is replaced
	renewed.Attempt, renewed.Repositories = 3, []task.Repository{{URL: "https://127.0.0.1:1/acme/app.git", Secret: "APP"}}
	renewed.Mint = func(context.Context, task.Repository) (task.Minted, error) {
		minted++
		return task.Minted{Token: secret.New(fmt.Sprint("token-", minted))}, nil
	}
	if _, err := e.Start(t.Context(), &renewed, newSink()); err == nil {
		t.Error("it clones from nowhere")
	}
	s.RefusePods("exceeded quota: small") // so that the events are read
	e.cfg.Pending = time.Second
	stuck := *work
	stuck.Attempt = 2
	if o, err := (*outcome)(nil), failed(e.Start(t.Context(), &stuck, newSink())); !errors.As(err, &o) || o.Ending != EndQuota {
		t.Error(err)
	}
	s.RefusePods("")
	e.cfg.Pending = 30 * time.Second
	if !e.Check(t.Context(), true, func(f Finding) {
		if !f.OK {
			t.Error(f)
		}
	}) {
		t.Error("preflight fails")
	}
	if err := errors.Join(e.Sweep(t.Context(), nil), e.Reap(t.Context(), work.RunID)); err != nil {
		t.Error(err)
	}
	used := s.Calls()
	for _, rule := range role(t) {
		for _, verb := range rule.Verbs {
			if used[kubetest.Call{Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0]}] == 0 {
				t.Errorf("the role allows to %s %s, which nothing does", verb, rule.Resources[0])
			}
		}
	}
	// What is not in the role is refused: else the proof would be none.
	if _, err := e.cluster.jobs.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	s.Allow(slices.DeleteFunc(role(t), func(r rbacv1.PolicyRule) bool { return r.Resources[0] == "jobs" }))
	if o, err := (*outcome)(nil), failed(e.Start(t.Context(), newTask("true"), newSink())); !errors.As(err, &o) || o.Ending != EndForbidden {
		t.Errorf("without a right, it ends with %v", err)
	}
}
