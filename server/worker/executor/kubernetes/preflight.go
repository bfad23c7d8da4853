package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// leastMinor is the least minor version of Kubernetes 1 for the pods of runs: the first version
// that enables containers beside others (native sidecars) by default.
const leastMinor = 29

// Finding is a line of Check.
type Finding struct {
	OK     bool
	What   string
	Detail string
}

// Check tells whether the cluster can execute runs, and calls say with each Finding. It changes
// nothing. With try, it also executes a run that does nothing.
func (e *Executor) Check(ctx context.Context, try bool, say func(Finding)) (ok bool) {
	ok = true
	tell := func(good bool, what, format string, args ...any) {
		ok = ok && good
		say(Finding{good, what, oneLine(fmt.Sprintf(format, args...))})
	}
	v, err := e.cluster.version(ctx)
	if err != nil {
		tell(false, "server", "%s: %v", e.cluster.server, err)
		return false
	}
	minor, _ := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	tell(true, "server", "%s answers", e.cluster.server)
	if old := v.Major == "1" && minor < leastMinor; old {
		tell(false, "version", "%s: runs need Kubernetes 1.%d or newer", v.GitVersion, leastMinor)
	} else {
		tell(true, "version", "%s", v.GitVersion)
	}
	allowed := true
	for _, a := range Needed {
		var lacking []string
		for _, verb := range a.Verbs {
			r, err := e.cluster.reviews.Create(ctx, &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authv1.ResourceAttributes{Namespace: e.cluster.namespace, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Verb: verb},
			}}, metav1.CreateOptions{})
			if err != nil {
				tell(false, "access", "what this account may do cannot be asked: %v", err)
				return false
			}
			if !r.Status.Allowed {
				lacking = append(lacking, verb)
			}
		}
		if allowed = allowed && len(lacking) == 0; len(lacking) > 0 {
			tell(false, "access", "%s in %s: may not %s (%s)", a.resource(), e.cluster.namespace, strings.Join(lacking, ", "), a.Why)
		} else {
			tell(true, "access", "%s in %s: %s", a.resource(), e.cluster.namespace, strings.Join(a.Verbs, ", "))
		}
	}
	if !allowed {
		return ok
	}
	e.checkQuota(ctx, tell)
	image := cmp.Or(e.cfg.Image, e.cfg.Program)
	if e.cfg.Program == "" {
		tell(false, "image", "no image of Triphammer is named, from which pods get this program (--kube-program-image)")
		return ok
	}
	if e.cfg.Image == "" {
		tell(true, "image", "no image is named for runs whose definitions name none (--kube-image)")
	}
	t := &task.Task{
		RunID: "run_preflight" + strconv.FormatInt(time.Now().UnixNano(), 36), Attempt: 1, DockerImage: image, Timeout: time.Hour,
		Command: []string{task.ThisProgram, "version"},
	}
	if _, err = e.cluster.jobs.Create(ctx, e.job(t, true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		tell(false, "job", "the cluster would not accept the Job of a run: %v", err)
	} else {
		tell(true, "job", "the cluster would accept the Job of a run")
	}
	policy := e.policy(t, nil, task.Network{Off: true})
	if _, err = e.cluster.policies.Create(ctx, policy, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		tell(false, "network", "the cluster would not accept the network policy of a run: %v", err)
	} else {
		tell(true, "network", "the cluster would accept the network policy of a run; whether it acts depends on the network plugin of the cluster")
	}
	if !try || !ok {
		return ok
	}
	e.try(ctx, t, tell)
	return ok
}

// checkQuota tells what the quotas of the namespace leave for runs to use.
func (e *Executor) checkQuota(ctx context.Context, tell func(bool, string, string, ...any)) {
	quotas, err := e.cluster.quotas.List(ctx, metav1.ListOptions{})
	switch {
	case err != nil:
		tell(false, "quota", "%v", err)
	case len(quotas.Items) == 0:
		tell(true, "quota", "the namespace has none")
	}
	if err != nil {
		return
	}
	for _, q := range quotas.Items {
		var names []string
		for name := range q.Status.Hard {
			names = append(names, string(name))
		}
		slices.Sort(names)
		good := true
		var left []string
		for _, name := range names {
			hard, used := q.Status.Hard[corev1.ResourceName(name)], q.Status.Used[corev1.ResourceName(name)]
			left = append(left, fmt.Sprintf("%s %s of %s", name, used.String(), hard.String()))
			good = good && (used.Cmp(hard) < 0 || !takes(name))
		}
		tell(good, "quota", "%s: %s used", q.Name, strings.Join(left, ", "))
	}
}

// takes tells whether a run takes something of a resource that a quota limits.
func takes(name string) bool {
	for _, prefix := range []string{"count/", "requests.", "limits."} {
		name = strings.TrimPrefix(name, prefix)
	}
	return slices.Contains([]string{"jobs.batch", "pods", "secrets", "cpu", "memory", "ephemeral-storage"}, name)
}

func (e *Executor) try(ctx context.Context, t *task.Task, tell func(bool, string, string, ...any)) {
	began := time.Now()
	exit, err := e.Start(ctx, t, nowhere{})
	removeErr := e.Ended(context.WithoutCancel(ctx), t.RunID, t.Attempt)
	switch {
	case err != nil:
		tell(false, "run", "a run that does nothing failed: %v", err)
	case exit.Code != 0:
		tell(false, "run", "a run that does nothing ended with status %d %s", exit.Code, exit.Signal)
	default:
		tell(true, "run", "a run that does nothing took %v; the images were pulled", time.Since(began).Round(time.Millisecond))
	}
	if removeErr != nil && !apierrors.IsNotFound(removeErr) {
		tell(false, "run", "%v", removeErr)
	}
}

// nowhere is a sink that keeps nothing.
type nowhere struct{}

// Add implements task.Sink.
func (nowhere) Add(event.Event) {}

// Keep implements task.Sink.
func (nowhere) Keep(event.Artifact, io.Reader) error { return nil }
