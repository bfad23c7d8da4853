package kubernetes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
)

// attempt is one attempt that this worker follows.
type attempt struct {
	*Executor
	task *task.Task
	sink task.Sink
	name string
	way  bool // the pod has a way out

	grants chan task.Grant // for the pod; it holds at most the newest
	tokens []byte          // that the pod has now, by this worker; nil: it was given none, or by another worker

	mu      sync.Mutex
	seen    seen
	began   bool // the container of the run has begun
	changed chan struct{}
}

// Start implements task.Executor.
func (e *Executor) Start(ctx context.Context, t *task.Task, sink task.Sink) (task.Exit, error) {
	if !e.mark(t.RunID, t.Attempt) {
		return task.Exit{}, fmt.Errorf("the run %s is in progress already", t.RunID)
	}
	defer e.unmark(t.RunID)
	a := &attempt{
		Executor: e, task: t, sink: sink, name: nameOf(t.RunID, t.Attempt), changed: make(chan struct{}, 1), grants: make(chan task.Grant, 1),
		seen: seen{pending: e.cfg.Pending},
	}
	exit, err := a.execute(ctx)
	if o := (*outcome)(nil); errors.As(err, &o) {
		e.logger.Warn("the cluster ended an attempt", "run", t.RunID, "attempt", t.Attempt, "job", a.name, "ending", o.Ending, "message", o.Message)
		if o.Final {
			err = &task.FinalError{Err: err}
		}
	}
	return exit, err
}

func (a *attempt) execute(ctx context.Context) (task.Exit, error) {
	job, err := a.make(ctx)
	switch {
	case ctx.Err() != nil && task.Leaves(context.Cause(ctx)):
		return task.Exit{}, task.ErrLeft
	case ctx.Err() != nil:
		return task.Exit{}, errors.Join(context.Cause(ctx), a.remove(context.WithoutCancel(ctx), a.name, ""))
	case err != nil:
		return task.Exit{}, err
	}
	return a.follow(ctx, job)
}

// make makes the Job and its objects, or finds them.
func (a *attempt) make(ctx context.Context) (job *batchv1.Job, err error) {
	n := a.task.Network.Or(a.cfg.Network)
	pod, err := executor.NewPod(executor.PodConfig{Task: a.task, Image: cmp.Or(a.task.DockerImage, a.cfg.Image), Network: n, Key: a.cfg.Key(a.name), Loopback: loopback(a.name), Grace: a.cfg.Grace})
	if err != nil {
		return nil, err
	}
	a.way = pod.Egress != nil
	err = a.insist(ctx, func() error {
		if a.task.Adopted {
			job, err = a.cluster.jobs.Get(ctx, a.name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return &outcome{EndDeleted, "the Job of this run is gone: it was deleted while no worker was there, or none had been made", false}
			}
			return err
		}
		if err := a.removeEarlier(ctx); err != nil {
			return err
		}
		job, err = a.cluster.jobs.Create(ctx, a.job(a.task, a.way), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // an earlier call succeeded, but its answer was lost
			job, err = a.cluster.jobs.Get(ctx, a.name, metav1.GetOptions{})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if job.Labels[labelInstallation] != a.cfg.Installation || job.Labels[labelRun] != a.task.RunID {
		return nil, &outcome{EndRefused, fmt.Sprintf("the Job %s in the namespace %s is not of this installation", a.name, a.cluster.namespace), true}
	}
	if job.Spec.Suspend == nil || !*job.Spec.Suspend {
		return job, nil
	}
	tokens, _, err := executor.PodTokens(ctx, a.task)
	if err != nil {
		return nil, errors.Join(err, a.remove(context.WithoutCancel(ctx), a.name, job.UID))
	}
	a.tokens = tokens
	var grant []byte
	if executor.Counts(a.task) {
		g, err := a.task.Grants.Count(ctx, task.Counted{})
		if err == nil {
			grant, err = json.Marshal(g)
		}
		if err != nil {
			return nil, errors.Join(err, a.remove(context.WithoutCancel(ctx), a.name, job.UID))
		}
	}
	secret, err := a.secret(a.task, job, pod, tokens, grant)
	if err != nil {
		return nil, errors.Join(err, a.remove(ctx, a.name, job.UID))
	}
	var policies []*netv1.NetworkPolicy
	if n.Limited() {
		policies = []*netv1.NetworkPolicy{a.floor(), a.policy(a.task, job, n)}
	}
	err = a.insist(ctx, func() error {
		_, err := a.cluster.secrets.Create(ctx, secret, metav1.CreateOptions{})
		for _, p := range policies {
			if err == nil || apierrors.IsAlreadyExists(err) {
				_, err = a.cluster.policies.Create(ctx, p, metav1.CreateOptions{})
			}
		}
		if err == nil || apierrors.IsAlreadyExists(err) {
			var begun *batchv1.Job
			if begun, err = a.cluster.jobs.Patch(ctx, a.name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err == nil {
				job = begun
			}
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.remove(context.WithoutCancel(ctx), a.name, job.UID))
	}
	return job, nil
}

// renewTokens gives the pod new tokens of GitHub Apps before the old ones end, until ctx ends. The
// pod reads them from its secret. It has no key of an App (SPEC 24.2).
func (a *attempt) renewTokens(ctx context.Context) {
	if !slices.ContainsFunc(a.task.Repositories, a.task.Mints) {
		return
	}
	for {
		tokens, renew, err := executor.PodTokens(ctx, a.task)
		if err == nil && !bytes.Equal(tokens, a.tokens) {
			err = a.change(ctx, executor.TokensFile, tokens)
		}
		pause := time.Until(renew)
		if err == nil {
			a.tokens = tokens
		} else if pause = renewRetry * a.cfg.retry; ctx.Err() == nil {
			a.logger.Warn("the tokens of a GitHub App in a run's pod cannot be renewed; it is tried again", "run", a.task.RunID, "error", err)
		}
		if !wait(ctx, max(pause, a.cfg.retry)) {
			return
		}
	}
}

// change changes a file of the pod's secret.
func (a *attempt) change(ctx context.Context, file string, content []byte) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{file: content}})
	if err == nil {
		_, err = a.cluster.secrets.Patch(ctx, a.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// counted tells the meter what the pod has counted, and answers what the pod asks.
func (a *attempt) counted(ctx context.Context, c task.Counted) {
	if a.task.Grants == nil {
		return
	}
	g, err := a.task.Grants.Count(ctx, c)
	if err != nil || c.Ask == nil {
		return // another worker reads it again, and what was granted counts
	}
	select {
	case <-a.grants:
	default:
	}
	a.grants <- g
}

// passGrants gives the pod what it is granted, until ctx ends.
func (a *attempt) passGrants(ctx context.Context) {
	for {
		var g task.Grant
		select {
		case <-ctx.Done():
			return
		case g = <-a.grants:
		}
		data, err := json.Marshal(g)
		if err == nil {
			err = a.insist(ctx, func() error { return a.change(ctx, executor.GrantFile, data) })
		}
		if err != nil && ctx.Err() == nil {
			a.logger.Warn("the pod of a run cannot be told how much more it may use", "run", a.task.RunID, "error", err)
		}
	}
}

// renewRetry is after how many pauses of a failed call the renewal of tokens is tried again.
const renewRetry = 10

// removeEarlier makes sure that no earlier attempt of the run is in progress (SPEC 17.5).
func (a *attempt) removeEarlier(ctx context.Context) error {
	if a.task.Attempt <= 1 {
		return nil
	}
	for {
		jobs, err := a.cluster.jobs.List(ctx, metav1.ListOptions{LabelSelector: a.selects(a.task.RunID)})
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return j.Name == a.name })
		if len(left) == 0 {
			return nil
		}
		for _, j := range left {
			if err := a.remove(ctx, j.Name, j.UID); err != nil {
				return err
			}
		}
		if !wait(ctx, a.cfg.retry) {
			return context.Cause(ctx)
		}
	}
}

// insist calls f until f succeeds, or fails for a reason that does not pass by itself.
func (a *attempt) insist(ctx context.Context, f func() error) error {
	for deadline, pause := time.Now().Add(a.cfg.Patience), a.cfg.retry; ; pause = min(2*pause, 10*time.Second) {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		o := classify(err)
		if o == nil || o.Ending != EndUnreachable {
			return cmp.Or[error](asError(o), err)
		}
		if time.Now().After(deadline) {
			return o
		}
		if !wait(ctx, max(pause, retryAfter(err))) {
			return context.Cause(ctx)
		}
	}
}

func asError(o *outcome) error {
	if o == nil {
		return nil
	}
	return o
}

// classify says what an error of the API server means for the attempt. EndUnreachable may pass
// by itself.
func classify(err error) *outcome {
	own, network := (*outcome)(nil), net.Error(nil)
	switch {
	case errors.As(err, &own):
		return own
	case apierrors.IsForbidden(err) && bytes.Contains([]byte(err.Error()), []byte("exceeded quota")):
		return &outcome{EndQuota, "the namespace has no room for this run: " + oneLine(err.Error()), false}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &outcome{EndForbidden, "the worker may not do what runs in this cluster need: " + oneLine(err.Error()) +
			"; `triphammer executor kubernetes preflight` says what is missing", apierrors.IsForbidden(err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return &outcome{EndRefused, "the cluster does not accept the Job of this run: " + oneLine(err.Error()), true}
	case apierrors.IsNotFound(err):
		return &outcome{EndDeleted, "the Job of this run was deleted, or its namespace is not there: " + oneLine(err.Error()), false}
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), apierrors.IsConflict(err), apierrors.IsUnexpectedServerError(err),
		errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &outcome{EndUnreachable, "the API server of the cluster does not answer: " + oneLine(err.Error()), false}
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < 500 {
		return &outcome{EndRefused, "the cluster does not accept the Job of this run: " + oneLine(err.Error()), false}
	}
	return &outcome{EndUnreachable, "the API server of the cluster does not answer: " + oneLine(err.Error()), false}
}

// retryAfter is how long the API server wants its callers to wait.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// wait tells whether the time passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// update changes a.seen, and wakes the follower.
func (a *attempt) update(change func(*seen)) {
	a.mu.Lock()
	change(&a.seen)
	if a.seen.pod != nil {
		for _, c := range a.seen.pod.Status.ContainerStatuses {
			a.began = a.began || c.Name == runContainer && (c.State.Running != nil || c.State.Terminated != nil)
		}
	}
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// look is what this worker knows now. waited is how long the attempt has waited, if it has not
// begun.
func (a *attempt) look(waited time.Duration) (s seen, began bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = a.seen
	if a.began {
		waited = 0
	}
	s.waiting = waited
	return s, a.began
}

func (a *attempt) removing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen.jobGone || a.seen.job != nil && a.seen.job.DeletionTimestamp != nil
}

// readEvents reads the events about the Job and its pod.
func (a *attempt) readEvents(ctx context.Context) {
	now, _ := a.look(0)
	var about []types.UID
	if now.job != nil {
		about = append(about, now.job.UID)
	}
	if now.pod != nil {
		about = append(about, now.pod.UID)
	}
	var all []corev1.Event
	for _, uid := range about {
		events, err := a.cluster.events.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(uid)).String(), Limit: maxEvents})
		if err != nil {
			a.logger.Debug("reading the events of a run", "run", a.task.RunID, "error", err)
			return
		}
		all = append(all, events.Items...)
	}
	slices.SortFunc(all, func(x, y corev1.Event) int { return y.LastTimestamp.Compare(x.LastTimestamp.Time) })
	a.update(func(s *seen) { s.events = all })
}

// maxEvents is how many events about one object are read.
const maxEvents = 100

// readLog reads the log of a container to its end, again after each break of the connection.
func (a *attempt) readLog(ctx context.Context, container string, report *executor.PodReport) error {
	var since *metav1.Time
	var failing time.Time // when the failing began
	told := false
	for {
		pod, state := a.container(container)
		if pod == "" {
			if !wait(ctx, a.cfg.retry/4) {
				return nil
			}
			continue
		}
		stream, err := a.cluster.logs(ctx, pod, &corev1.PodLogOptions{Container: container, Follow: true, Timestamps: true, SinceTime: since})
		if err == nil {
			failing = time.Time{}
			err = a.readLines(stream, report, &since)
			_ = stream.Close()
		}
		switch {
		case ctx.Err() != nil, report.Ended():
			return nil
		case errors.Is(err, errReport):
			return err
		case err == nil && state == stateEnded: // the container ended before the log was read
			return nil
		case err != nil && state == stateGone:
			return nil
		case apierrors.IsForbidden(err):
			return classify(err)
		case err != nil && failing.IsZero():
			failing, told = time.Now(), false
		case err == nil || time.Since(failing) <= a.cfg.Patience:
		case state == stateEnded:
			return fmt.Errorf("the log of the pod cannot be read: %w", err)
		case !told:
			told = true
			a.sink.Add(event.Status{Message: "warning: what the agent does cannot be read, because the log of its pod cannot be had; it is tried again: " + oneLine(err.Error())})
		}
		if !wait(ctx, a.cfg.retry/4) {
			return nil
		}
	}
}

// errReport is the error of a report that cannot be read.
var errReport = errors.New("the report of the run cannot be read")

// maxLine is longer than any line of a report.
const maxLine = 64 << 10

// readLines reads until the stream ends or breaks. since becomes the time of the last line.
func (a *attempt) readLines(from io.Reader, report *executor.PodReport, since **metav1.Time) error {
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) { // no line of a report is so long
				_, err = lines.ReadSlice('\n')
			}
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil // a line without an end is not complete
		}
		if err != nil {
			return err
		}
		stamp, text, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		at, err := time.Parse(time.RFC3339Nano, string(stamp))
		if err != nil {
			continue
		}
		*since = &metav1.Time{Time: at}
		if err := report.Line(text); err != nil {
			return fmt.Errorf("%w: %w", errReport, err)
		}
	}
}

// States of a container.
const (
	stateWaiting = iota
	stateRunning
	stateEnded
	stateGone
)

// container is the state of a container, with its pod once it has a log.
func (a *attempt) container(name string) (pod string, state int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.seen.pod
	if p == nil {
		return "", stateWaiting
	}
	state = stateWaiting
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case c.Name != name:
		case c.State.Running != nil:
			state = stateRunning
		case c.State.Terminated != nil:
			state = stateEnded
		}
	}
	if a.seen.podGone {
		return p.Name, stateGone
	}
	if state == stateWaiting {
		return "", state
	}
	return p.Name, state
}
