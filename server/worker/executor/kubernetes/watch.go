package kubernetes

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watchTime is how long one watch lasts at most. The next watch goes on where it ended.
const watchTime = 5 * time.Minute

func (a *attempt) jobOptions() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", a.name).String()}
}

func (a *attempt) listJobs(ctx context.Context) (version string, err error) {
	jobs, err := a.cluster.jobs.List(ctx, a.jobOptions())
	if err != nil {
		return "", err
	}
	a.update(func(s *seen) {
		if len(jobs.Items) == 0 {
			s.jobGone = true
		}
		for i := range jobs.Items {
			a.sawJob(s, &jobs.Items[i])
		}
	})
	return jobs.ResourceVersion, nil
}

func (a *attempt) watchJob(ctx context.Context, away chan<- error) {
	a.observe(ctx, away, a.listJobs, a.jobOptions(), a.cluster.jobs.Watch, func(object runtime.Object, deleted bool) string {
		job, ok := object.(*batchv1.Job)
		if !ok {
			return ""
		}
		a.update(func(s *seen) {
			if deleted {
				s.jobGone = s.jobGone || s.job == nil || job.UID == s.job.UID
			} else {
				a.sawJob(s, job)
			}
		})
		return job.ResourceVersion
	})
}

// sawJob takes the newest state of the Job. It ignores another Job of the same name that somebody
// made later.
func (a *attempt) sawJob(s *seen, job *batchv1.Job) {
	if s.job != nil && s.job.UID != job.UID {
		s.jobGone = true
		return
	}
	s.job = job
}

func (a *attempt) podOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.SelectorFromSet(a.labels(a.task)).String()}
}

func (a *attempt) listPods(ctx context.Context) (version string, err error) {
	pods, err := a.cluster.pods.List(ctx, a.podOptions())
	if err != nil {
		return "", err
	}
	a.update(func(s *seen) {
		if len(pods.Items) == 0 && s.pod != nil {
			s.podGone = true
		}
		for i := range pods.Items {
			a.sawPod(s, &pods.Items[i])
		}
	})
	return pods.ResourceVersion, nil
}

// lookAgain asks for the present states, because a watch may be late with them.
func (a *attempt) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, againTime)
	defer cancel()
	for _, list := range []func(context.Context) (string, error){a.listJobs, a.listPods} {
		if _, err := list(ctx); err != nil {
			a.logger.Debug("looking at an attempt again", "run", a.task.RunID, "error", err)
		}
	}
}

// againTime is how long lookAgain waits for answers.
const againTime = 10 * time.Second

func (a *attempt) watchPods(ctx context.Context, away chan<- error) {
	a.observe(ctx, away, a.listPods, a.podOptions(), a.cluster.pods.Watch, func(object runtime.Object, deleted bool) string {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return ""
		}
		a.update(func(s *seen) {
			a.sawPod(s, pod)
			if deleted && s.pod.UID == pod.UID {
				s.podGone = true
			}
		})
		return pod.ResourceVersion
	})
}

// sawPod takes the newest state of the first pod. It ignores a second pod, which only a stranger
// can make.
func (a *attempt) sawPod(s *seen, pod *corev1.Pod) {
	if s.pod == nil || s.pod.UID == pod.UID {
		s.pod = pod
	}
}

// observe lists the objects, and then watches for changes after the list. It lists again when
// the server no longer has the changes (410 Gone), and goes on from the last change when a watch
// breaks. It gives up when the server has not answered for too long.
func (a *attempt) observe(
	ctx context.Context, away chan<- error, list func(context.Context) (version string, _ error), o metav1.ListOptions,
	begin func(context.Context, metav1.ListOptions) (watch.Interface, error), saw func(_ runtime.Object, deleted bool) (version string),
) {
	version, answered := "", time.Now()
	for pause := a.cfg.retry; ctx.Err() == nil; {
		var err error
		if version == "" {
			version, err = list(ctx)
		}
		if err == nil {
			began := time.Now()
			var next string
			next, err = watchOnce(ctx, o, version, begin, saw)
			if version = next; err == nil || time.Since(began) > pause {
				answered = time.Now()
			}
		}
		if err == nil {
			pause = a.cfg.retry
			if !wait(ctx, a.cfg.retry/10) { // in case a server ends each watch at once
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		outcome := classify(err)
		if outcome.Ending != EndUnreachable || time.Since(answered) > a.cfg.Patience {
			away <- outcome
			return
		}
		a.logger.Debug("watching an attempt", "run", a.task.RunID, "error", err)
		if !wait(ctx, max(pause, retryAfter(err))) {
			return
		}
		pause = min(2*pause, 10*time.Second)
	}
}

// watchOnce watches until the watch ends. It returns the version from which the next watch goes
// on; empty: a new list is needed.
func watchOnce(
	ctx context.Context, o metav1.ListOptions, version string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
	saw func(_ runtime.Object, deleted bool) string,
) (string, error) {
	seconds := int64(watchTime.Seconds())
	o.ResourceVersion, o.AllowWatchBookmarks, o.TimeoutSeconds = version, true, &seconds
	w, err := begin(ctx, o)
	if expired(err) {
		return "", nil
	}
	if err != nil {
		return version, err
	}
	defer w.Stop()
	for {
		var e watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return version, nil
		case e, ok = <-w.ResultChan():
		}
		switch {
		case !ok:
			return version, nil
		case e.Type == watch.Error:
			if err := apierrors.FromObject(e.Object); !expired(err) {
				return version, err
			}
			return "", nil
		case e.Type == watch.Bookmark:
			if m, ok := e.Object.(metav1.Object); ok && m.GetResourceVersion() != "" {
				version = m.GetResourceVersion()
			}
		default:
			if next := saw(e.Object, e.Type == watch.Deleted); next != "" {
				version = next
			}
		}
	}
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
