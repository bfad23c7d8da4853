package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Ending is a way in which a cluster ends an attempt, or keeps it from beginning. The list is
// complete, and docs/kubernetes.md has the same list; a test compares the two.
type Ending string

// Endings.
const (
	EndImage         Ending = "image"         // the image cannot be pulled
	EndUnschedulable Ending = "unschedulable" // no node takes the pod
	EndQuota         Ending = "quota"         // the namespace has no room for the pod
	EndRefused       Ending = "refused"       // the cluster does not accept the Job or its pod
	EndForbidden     Ending = "forbidden"     // the worker lacks a right
	EndConfig        Ending = "config"        // a secret or a volume of the pod is missing
	EndCannotRun     Ending = "cannot-run"    // a container cannot be started
	EndMemory        Ending = "memory"        // the kernel ended the run, which used too much memory
	EndEvicted       Ending = "evicted"       // the node ran out of a resource, or was drained
	EndPreempted     Ending = "preempted"     // a more important pod took the place
	EndNodeLost      Ending = "node-lost"     // the node is gone, or was shut down
	EndDeadline      Ending = "deadline"      // the Job took longer than it may, and no worker was there
	EndDeleted       Ending = "deleted"       // somebody deleted the Job or its pod
	EndCrashed       Ending = "crashed"       // the supervisor ended without a report
	EndUnreachable   Ending = "unreachable"   // the API server does not answer
)

// outcome is how the cluster has ended an attempt.
type outcome struct {
	Ending  Ending
	Message string
	Final   bool // every further attempt fails alike until somebody changes something
}

func (o *outcome) Error() string { return o.Message }

// seen is what this worker knows of an attempt in the cluster.
type seen struct {
	job     *batchv1.Job // nil: not seen yet
	jobGone bool
	pod     *corev1.Pod // the last state; nil: not seen yet
	podGone bool
	events  []corev1.Event // about the Job and the pod; only read if the beginning takes long
	waiting time.Duration  // how long the attempt has waited to begin
	pending time.Duration  // how long it may wait
}

// soon is the time after which a reason counts that may pass by itself.
const soon = 20 * time.Second

// ended says how the cluster has ended the attempt without a report of its supervisor; nil: the
// attempt may go on.
func (s *seen) ended() *outcome {
	var byPod *outcome
	if s.pod != nil {
		byPod = podEnded(s.pod)
	}
	if (byPod == nil || byPod.Ending == EndCrashed) && s.overdue() { // the cluster has ended the pod, which then looks like a crash
		return &outcome{EndDeadline, "the Job of this run took longer than its deadline, and the cluster ended it: no worker was there that could", false}
	}
	if byPod != nil {
		return byPod
	}
	if s.jobGone || s.job != nil && s.job.DeletionTimestamp != nil && (s.pod == nil || s.podGone) {
		return &outcome{EndDeleted, "the Job of this run was deleted, and not by Triphammer", false}
	}
	if s.podGone || s.pod == nil && s.over() {
		return &outcome{EndDeleted, "the pod of this run was deleted, and not by Triphammer", false}
	}
	return s.stuck()
}

func (s *seen) over() bool {
	return s.job != nil && slices.ContainsFunc(s.job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue
	})
}

// overdue tells whether the cluster ends the Job because it took too long.
func (s *seen) overdue() bool {
	return s.job != nil && slices.ContainsFunc(s.job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue && c.Reason == batchv1.JobReasonDeadlineExceeded
	})
}

// podEnded is what ended says, from only the pod.
func podEnded(p *corev1.Pod) *outcome {
	for _, c := range p.Status.Conditions {
		if o := disrupted(p, c); o != nil {
			return o
		}
	}
	if o := endedByNode(p); o != nil {
		return o
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if o := containerEnded(c); o != nil {
			return o
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return &outcome{EndCrashed, fmt.Sprintf("the pod of this run failed%s", colon(strings.TrimSpace(p.Status.Reason+" "+p.Status.Message))), false}
	}
	return nil
}

// colon is a cluster's text with a colon before it, to add to a message; empty: the text is empty.
func colon(text string) string { return strings.TrimSuffix(": "+oneLine(text), ": ") }

// disrupted says, from a condition of the pod, why the cluster ended it; nil: the condition does
// not tell.
func disrupted(p *corev1.Pod, c corev1.PodCondition) *outcome {
	if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
		return nil
	}
	switch c.Reason {
	case corev1.PodReasonPreemptionByScheduler:
		return &outcome{EndPreempted, "the run had to make room for a more important pod" + colon(c.Message), false}
	case "DeletionByTaintManager", "DeletionByPodGC":
		return &outcome{EndNodeLost, fmt.Sprintf("the node %s of this run is gone, or must not be used any more%s", p.Spec.NodeName, colon(c.Message)), false}
	case "EvictionByEvictionAPI":
		return &outcome{EndEvicted, "the run was moved off its node, which is being drained" + colon(c.Message), false}
	case corev1.PodReasonTerminationByKubelet:
		switch p.Status.Reason {
		case "Preempting", "Evicted": // endedByNode handles these
		default:
			return &outcome{EndNodeLost, "the node of this run was shut down" + colon(cmp.Or(p.Status.Message, c.Message)), false}
		}
	}
	return nil
}

// endedByNode says, from the reason of the pod, why its node or the Job ended it; nil: the reason
// does not tell.
func endedByNode(p *corev1.Pod) *outcome {
	switch p.Status.Reason {
	case "Evicted":
		return &outcome{EndEvicted, "the node of this run needed what it used" + colon(p.Status.Message), false}
	case "Preempting":
		return &outcome{EndPreempted, "the run had to make room for a pod that its node needs" + colon(p.Status.Message), false}
	case "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity":
		return &outcome{EndNodeLost, fmt.Sprintf("the node %s of this run is gone, or was shut down%s", p.Spec.NodeName, colon(p.Status.Message)), false}
	case "DeadlineExceeded":
		return &outcome{EndDeadline, "the Job of this run took longer than its deadline, and the cluster ended it: no worker was there that could", false}
	case "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "UnexpectedAdmissionError":
		return &outcome{EndUnschedulable, "the node that was to take the run had no room" + colon(p.Status.Message), false}
	}
	return nil
}

// containerEnded says, from a container, how the attempt ended; nil: the container does not tell.
func containerEnded(c corev1.ContainerStatus) *outcome {
	t := c.State.Terminated
	if t == nil || c.Name == egressContainer && c.State.Running == nil && t.ExitCode == 0 {
		return nil
	}
	switch {
	case t.Reason == "OOMKilled" && c.Name == runContainer:
		return &outcome{EndMemory, "the run used more memory than it may, and the kernel ended it (runner, environment, --run-memory)", false}
	case t.Reason == "OOMKilled":
		return &outcome{EndMemory, "the container " + c.Name + " beside the run used more memory than it may", false}
	case t.Reason == "ContainerCannotRun" || t.Reason == "StartError" || t.Reason == "RunContainerError":
		return &outcome{EndCannotRun, fmt.Sprintf("the container %s of the image %s cannot be started%s%s", c.Name, c.Image, colon(t.Message), advice(c.Name)), true}
	case c.Name == placeContainer && t.ExitCode != 0:
		return &outcome{EndCannotRun, fmt.Sprintf("the image %s of Triphammer could not be used in the pod: exit status %d%s (--kube-program-image)", c.Image, t.ExitCode, colon(t.Message)), false}
	case c.Name == runContainer && t.ExitCode != 0:
		return &outcome{EndCrashed, fmt.Sprintf("the supervisor of the run ended with status %d and without a report%s", t.ExitCode, colon(t.Message)), false}
	case c.Name == runContainer:
		return &outcome{EndCrashed, "the supervisor of the run has ended, and the log of the pod does not say how: the node had thrown it away", false}
	}
	return nil
}

func advice(container string) string {
	if container == runContainer {
		return ": an image needs the GNU C library (glibc) 2.34 or newer, as those of Debian 12 and Ubuntu 22.04 have it, and a user other than root"
	}
	return ""
}

// stuck says why an attempt will not begin; nil: it may begin yet.
func (s *seen) stuck() *outcome {
	if s.pod == nil {
		return s.withoutPod()
	}
	for _, c := range slices.Concat(s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses) {
		if o := s.notStarting(c); o != nil {
			return o
		}
	}
	if !s.late() {
		return nil
	}
	for _, c := range s.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &outcome{EndUnschedulable, fmt.Sprintf("no node took this run in %v: %s", s.pending, cmp.Or(oneLine(c.Message), c.Reason)), false}
		}
	}
	for _, e := range s.events {
		if e.Reason == "FailedMount" || e.Reason == "FailedAttachVolume" {
			return &outcome{EndConfig, "a volume of the pod of this run cannot be had: " + oneLine(e.Message), false}
		}
	}
	if s.pod.Status.Phase == corev1.PodPending || s.pod.Status.Phase == "" {
		return &outcome{EndCannotRun, fmt.Sprintf("the pod of this run has not begun in %v, and the cluster does not say why", s.pending), false}
	}
	return nil
}

// late tells whether the attempt has waited as long as it may.
func (s *seen) late() bool { return s.waiting >= s.pending }

// withoutPod says why the Job gets no pod; nil: it may get one yet.
func (s *seen) withoutPod() *outcome {
	for _, e := range s.events {
		text := oneLine(e.Message)
		switch {
		case e.Reason != "FailedCreate":
		case strings.Contains(text, "exceeded quota") && s.late():
			return &outcome{EndQuota, "the namespace has no room for this run: " + text, false}
		case strings.Contains(text, "exceeded quota"):
		case (strings.Contains(text, "forbidden") || strings.Contains(text, "denied") || strings.Contains(text, "invalid")) && s.waiting >= soon:
			return &outcome{EndRefused, "the cluster does not accept the pod of this run: " + text, true}
		case s.late():
			return &outcome{EndRefused, "the cluster could not make the pod of this run: " + text, false}
		}
	}
	if s.late() {
		return &outcome{EndRefused, fmt.Sprintf("the cluster has made no pod for the Job of this run in %v, and does not say why", s.pending), false}
	}
	return nil
}

// notStarting says why a container does not start; nil: it runs or may start yet.
func (s *seen) notStarting(c corev1.ContainerStatus) *outcome {
	w := c.State.Waiting
	if w == nil {
		return nil
	}
	text := colon(w.Message)
	switch w.Reason {
	case "InvalidImageName", "ErrImageNeverPull":
		return &outcome{EndImage, fmt.Sprintf("the image %s cannot be pulled%s", c.Image, text), true}
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError":
		if w.Reason == "ImagePullBackOff" && s.waiting >= soon || s.late() {
			return &outcome{EndImage, fmt.Sprintf("the image %s cannot be pulled%s", c.Image, pullReason(s.events, text)), false}
		}
	case "CreateContainerConfigError":
		if s.waiting >= soon {
			return &outcome{EndConfig, fmt.Sprintf("the container %s cannot be made%s", c.Name, text), true}
		}
	case "CreateContainerError", "RunContainerError", "PostStartHookError":
		if s.waiting >= soon {
			return &outcome{EndCannotRun, fmt.Sprintf("the container %s of the image %s cannot be started%s%s", c.Name, c.Image, text, advice(c.Name)), true}
		}
	}
	return nil
}

// pullReason says why the image could not be pulled. The events tell it, because the state of the
// container has it only at times.
func pullReason(events []corev1.Event, text string) string {
	for _, e := range events {
		if e.Reason == "Failed" && strings.HasPrefix(e.Message, "Failed to pull image") {
			return ": " + oneLine(e.Message)
		}
	}
	return text
}

// waitsFor says, for the transcript, what an attempt waits for before it begins; empty: nothing in
// particular.
func (s *seen) waitsFor() string {
	if s.pod == nil {
		for _, e := range s.events {
			if e.Reason == "FailedCreate" {
				return "waits for the cluster: " + oneLine(e.Message)
			}
		}
		return ""
	}
	for _, c := range s.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "waits for a node: " + cmp.Or(oneLine(c.Message), c.Reason)
		}
	}
	for _, c := range slices.Concat(s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
			return fmt.Sprintf("waits for the image %s: %s", c.Image, oneLine(w.Message))
		}
	}
	return ""
}

// maxSaid bounds the text of a cluster that a status message quotes, in characters.
const maxSaid = 500

func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if r := []rune(text); len(r) > maxSaid {
		text = string(r[:maxSaid]) + "…"
	}
	return text
}
