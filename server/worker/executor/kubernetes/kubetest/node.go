package kubetest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// control is the controller of Jobs and the collector of objects without an owner.
func (s *Server) control() {
	for {
		s.mu.Lock()
		for _, o := range s.objects["jobs"] {
			s.controlJob(o.(*batchv1.Job))
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-s.closed:
			return
		case <-changed:
		case <-time.After(20 * time.Millisecond): // deadlines
		}
	}
}

func (s *Server) controlJob(j *batchv1.Job) {
	p := s.podOf(j.Name)
	if j.DeletionTimestamp != nil {
		// As in a real cluster, objects that do not block the deletion are not waited for.
		for _, resource := range []string{"secrets", "networkpolicies"} {
			for _, o := range s.objects[resource] {
				if owners := o.GetOwnerReferences(); len(owners) == 1 && owners[0].UID == j.UID {
					s.store(resource, "DELETED", o.DeepCopyObject().(object))
				}
			}
		}
		if p != nil {
			s.remove("pods", p, false)
			return
		}
		s.store("jobs", "DELETED", j.DeepCopy())
		return
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend || finished(j) {
		return
	}
	fail := func(reason, message string) {
		j = j.DeepCopy()
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: message})
		s.store("jobs", "MODIFIED", j)
		if p != nil {
			s.remove("pods", p, false)
		}
	}
	if d := j.Spec.ActiveDeadlineSeconds; d != nil && j.Status.StartTime != nil && time.Since(j.Status.StartTime.Time) > time.Duration(*d)*time.Second {
		fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
		return
	}
	switch {
	case p == nil && s.made[j.UID]: // somebody has deleted it: with backoffLimit 0, that is the end
		fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case p == nil && s.refuse != "":
		if len(s.objects["events"]) == 0 || s.objects["events"]["refused-"+j.Name] == nil {
			s.event("refused-"+j.Name, j, "FailedCreate", s.refuse)
		}
	case p == nil:
		s.made[j.UID] = true
		started := j.DeepCopy()
		started.Status.StartTime = &metav1.Time{Time: time.Now()}
		s.store("jobs", "MODIFIED", started)
		made := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: *j.Spec.Template.Spec.DeepCopy()}
		made.Name = j.Name + "-abcde"
		made.Labels[batchv1.JobNameLabel] = j.Name
		made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: j.Name, UID: j.UID}}
		made.Status.Phase = corev1.PodPending
		s.create("pods", made)
		p := &pod{server: s, name: made.Name, ended: make(chan struct{}), logs: make(map[string]*log), processes: make(map[string]*process)}
		s.pods[made.UID] = p
		s.nodes.Go(func() { p.live(made.DeepCopy()) })
	case p.Status.Phase == corev1.PodSucceeded && p.DeletionTimestamp == nil:
		j = j.DeepCopy()
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
		s.store("jobs", "MODIFIED", j)
	case p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil:
		j = j.DeepCopy()
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded})
		s.store("jobs", "MODIFIED", j)
	}
}

func finished(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (s *Server) event(name string, about object, reason, message string) {
	s.create("events", &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Reason: reason, Message: message, LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{UID: about.GetUID(), Name: about.GetName()},
	})
}

// pod is a pod on the node.
type pod struct {
	server *Server
	name   string
	ending sync.Once
	ended  chan struct{} // closed when the pod must end

	mu        sync.Mutex
	logs      map[string]*log // by container
	processes map[string]*process
}

func (p *pod) end() { p.ending.Do(func() { close(p.ended) }) }

func (p *pod) set(change func(*corev1.Pod)) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	o, _ := p.server.objects["pods"][p.name].(*corev1.Pod)
	if o == nil {
		return
	}
	o = o.DeepCopy()
	change(o)
	p.server.store("pods", "MODIFIED", o)
}

func (p *pod) container(name string, state corev1.ContainerState) {
	p.set(func(o *corev1.Pod) {
		set := func(all []corev1.Container, statuses *[]corev1.ContainerStatus) {
			for _, c := range all {
				if c.Name != name {
					continue
				}
				for i := range *statuses {
					if (*statuses)[i].Name == name {
						(*statuses)[i].State = state
						return
					}
				}
				*statuses = append(*statuses, corev1.ContainerStatus{Name: name, Image: c.Image, State: state})
			}
		}
		set(o.Spec.InitContainers, &o.Status.InitContainerStatuses)
		set(o.Spec.Containers, &o.Status.ContainerStatuses)
	})
}

// live is the life of a pod on the node.
func (p *pod) live(spec *corev1.Pod) {
	defer func() {
		select {
		case <-p.ended:
		case <-p.server.closed:
			return
		}
		p.server.mu.Lock()
		defer p.server.mu.Unlock()
		if o := p.server.objects["pods"][p.name]; o != nil {
			p.server.store("pods", "DELETED", o.DeepCopyObject().(object))
		}
	}()
	p.server.mu.Lock()
	decide := p.server.fate
	p.server.mu.Unlock()
	if decide != nil {
		if fate := decide(spec); fate != nil {
			p.set(func(o *corev1.Pod) { o.Status = fate.Status })
			p.server.mu.Lock()
			for i, text := range fate.Events {
				reason, message, _ := strings.Cut(text, " ")
				p.server.event(fmt.Sprintf("%s-%d", p.name, i), spec, reason, message)
			}
			if fate.Delete {
				p.server.remove("pods", p.server.objects["pods"][p.name], false)
			}
			p.server.mu.Unlock()
			if !fate.Execute {
				return
			}
		}
	}
	p.set(func(o *corev1.Pod) { o.Spec.NodeName = "node-1" })
	paths, ok := p.mount(spec)
	if !ok {
		return
	}
	var beside []*process
	phase := corev1.PodSucceeded
	for _, c := range spec.Spec.InitContainers {
		one := p.start(c, paths)
		if c.RestartPolicy != nil {
			beside = append(beside, one)
			continue
		}
		if code := one.wait(p.ended, spec); code != 0 {
			phase = corev1.PodFailed
			break
		}
	}
	if phase == corev1.PodSucceeded && !isClosed(p.ended) {
		var all []*process
		for _, c := range spec.Spec.Containers {
			all = append(all, p.start(c, paths))
		}
		for _, one := range all {
			if one.wait(p.ended, spec) != 0 {
				phase = corev1.PodFailed
			}
		}
	}
	stop := make(chan struct{})
	close(stop)
	for _, one := range beside {
		one.wait(stop, spec)
	}
	p.set(func(o *corev1.Pod) { o.Status.Phase = phase })
}

// mount makes the volumes. paths are where the mount paths are on this machine.
func (p *pod) mount(spec *corev1.Pod) (paths map[string]string, ok bool) {
	dir := filepath.Join(p.server.dir, p.name)
	volumes := make(map[string]string)
	for _, v := range spec.Spec.Volumes {
		volumes[v.Name] = filepath.Join(dir, v.Name)
		if err := os.MkdirAll(volumes[v.Name], 0o755); err != nil {
			panic(err)
		}
		if v.Secret == nil {
			continue
		}
		var secret *corev1.Secret
		for secret == nil {
			p.server.mu.Lock()
			secret, _ = p.server.objects["secrets"][v.Secret.SecretName].(*corev1.Secret)
			p.server.mu.Unlock()
			if secret != nil {
				break
			}
			select {
			case <-p.ended:
				return nil, false
			case <-p.server.closed:
				return nil, false
			case <-time.After(10 * time.Millisecond):
			}
		}
		write(volumes[v.Name], v.Secret.Items, secret)
		if secret.Immutable == nil || !*secret.Immutable {
			p.refresh(volumes[v.Name], v.Secret, secret)
		}
	}
	paths = make(map[string]string)
	for _, c := range append(append([]corev1.Container(nil), spec.Spec.InitContainers...), spec.Spec.Containers...) {
		for _, m := range c.VolumeMounts {
			paths[m.MountPath] = volumes[m.Name]
		}
	}
	return paths, true
}

// write writes the content of a volume. A reader sees the old file or the new one.
func write(folder string, items []corev1.KeyToPath, secret *corev1.Secret) {
	for _, item := range items {
		name := filepath.Join(folder, item.Path)
		err := os.WriteFile(name+".new", secret.Data[item.Key], 0o600)
		if err == nil {
			err = os.Rename(name+".new", name)
		}
		if err != nil {
			panic(err)
		}
	}
}

// refresh writes a volume again when its secret has changed, until the pod has ended.
func (p *pod) refresh(folder string, v *corev1.SecretVolumeSource, has *corev1.Secret) {
	p.server.nodes.Go(func() {
		for {
			select {
			case <-p.ended:
				return
			case <-p.server.closed:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if now := p.server.Secret(v.SecretName); now != nil && now.ResourceVersion != has.ResourceVersion {
				write(folder, v.Items, now)
				has = now
			}
		}
	})
}

// process is a container.
type process struct {
	pod  *pod
	name string
	cmd  *exec.Cmd
	log  *log
	done chan struct{}

	killed string // why the node killed the process
}

// start starts a container. Paths of mounts in its command become paths of this machine.
func (p *pod) start(c corev1.Container, paths map[string]string) *process {
	one := &process{pod: p, name: c.Name, log: &log{changed: make(chan struct{})}, done: make(chan struct{})}
	p.mu.Lock()
	p.logs[c.Name], p.processes[c.Name] = one.log, one
	p.mu.Unlock()
	var argv []string
	for _, arg := range c.Command {
		for at, is := range paths {
			if arg == at || strings.HasPrefix(arg, at+"/") {
				arg = is + strings.TrimPrefix(arg, at)
				break
			}
		}
		argv = append(argv, arg)
	}
	if argv[0] == "triphammer" {
		argv[0] = p.server.program
	}
	one.cmd = exec.Command(argv[0], argv[1:]...)
	one.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, p.server.env...)
	if c.WorkingDir != "" {
		one.cmd.Dir = paths[c.WorkingDir]
	}
	one.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w := io.Pipe()
	one.cmd.Stdout, one.cmd.Stderr = w, w
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				one.log.add(line)
			}
			if err != nil {
				return
			}
		}
	}()
	if err := one.cmd.Start(); err != nil {
		_ = w.Close()
		one.log.close()
		close(one.done)
		p.container(c.Name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: err.Error()}})
		return one
	}
	p.container(c.Name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	go func() {
		_ = one.cmd.Wait()
		_ = w.Close()
		<-read
		one.log.close()
		close(one.done)
	}()
	return one
}

// wait waits until the container has ended, and ends it when stop is closed.
func (one *process) wait(stop <-chan struct{}, spec *corev1.Pod) int {
	if one.cmd.Process == nil {
		return 128
	}
	select {
	case <-one.done:
	case <-one.pod.server.closed:
		_ = syscall.Kill(-one.cmd.Process.Pid, syscall.SIGKILL)
		<-one.done
	case <-stop:
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-one.done:
		case <-one.pod.server.closed:
		case <-time.After(time.Duration(*spec.Spec.TerminationGracePeriodSeconds) * time.Second):
		}
		_ = syscall.Kill(-one.cmd.Process.Pid, syscall.SIGKILL)
		<-one.done
	}
	code, reason := one.cmd.ProcessState.ExitCode(), "Completed"
	if ws := one.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	one.pod.mu.Lock()
	killed := one.killed
	one.pod.mu.Unlock()
	if code != 0 {
		reason = cmp.Or(killed, "Error")
	}
	one.pod.container(one.name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason}})
	return code
}

// log is the log of a container.
type log struct {
	mu      sync.Mutex
	lines   []logLine
	ended   bool
	changed chan struct{}
}

type logLine struct {
	at   time.Time
	text string
}

func (l *log) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, logLine{time.Now(), text})
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
	l.changed = make(chan struct{})
}

// logOf is the log of a container of a Job's pod.
func (s *Server) logOf(job, container string) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.podOf(job)
	if o == nil || s.pods[o.UID] == nil {
		return nil
	}
	p := s.pods[o.UID]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs[container]
}

// Log is the output of a container of a Job's pod.
func (s *Server) Log(job, container string) string {
	l := s.logOf(job, container)
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, line := range l.lines {
		b.WriteString(line.text)
	}
	return b.String()
}

// Rotate deletes the lines from one number to another, as a node does with a log that has grown.
func (s *Server) Rotate(job, container string, from, to int) {
	l := s.logOf(job, container)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines[:from:from], l.lines[to:]...)
}

// Kill kills a container of a Job's pod. reason is the reason that the node then gives.
func (s *Server) Kill(job, container, reason string) bool {
	o := s.PodOf(job)
	if o == nil {
		return false
	}
	s.mu.Lock()
	p := s.pods[o.UID]
	s.mu.Unlock()
	p.mu.Lock()
	one := p.processes[container]
	if one != nil {
		one.killed = reason
	}
	p.mu.Unlock()
	if one == nil || one.cmd.Process == nil {
		return false
	}
	_ = one.cmd.Process.Kill()
	return true
}

// log writes the log of a container, and follows it.
func (s *Server) log(w http.ResponseWriter, r *http.Request, o *corev1.Pod) {
	p := s.pods[o.UID]
	p.mu.Lock()
	l := p.logs[r.URL.Query().Get("container")]
	p.mu.Unlock()
	if l == nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "container %q in pod %q is waiting to start: PodInitializing", r.URL.Query().Get("container"), o.Name)
		return
	}
	follow, _ := strconv.ParseBool(r.URL.Query().Get("follow"))
	since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
	s.mu.Unlock()
	defer s.mu.Lock()
	w.Header().Set("Content-Type", "text/plain")
	_ = http.NewResponseController(w).Flush()
	for sent := 0; ; {
		l.mu.Lock()
		sent = min(sent, len(l.lines))
		lines, ended, changed := l.lines[sent:], l.ended, l.changed
		sent = len(l.lines)
		l.mu.Unlock()
		for _, line := range lines {
			if line.at.Before(since) {
				continue
			}
			if _, err := io.WriteString(w, line.at.UTC().Format(time.RFC3339Nano)+" "+line.text); err != nil {
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
		if ended || !follow {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}
