package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
)

// Containers of a pod.
const (
	placeContainer  = "place"
	egressContainer = "egress"
	runContainer    = "run"
)

// Paths in the containers. No image has them.
const (
	programFolder = "/triphammer/bin"
	jobFolder     = "/triphammer/job"
	egressFolder  = "/triphammer/egress"
	runFolder     = "/triphammer/run"
	programFile   = programFolder + "/triphammer"
	countsFolder  = "/triphammer/counts"
	jobKey        = "job"
	egressKey     = "egress"
)

const (
	// runUser is the user and the group of all containers, unless the template names others.
	runUser = 65532
	// endTime is how long a supervisor has after the grace of the agent, to find and report
	// what the agent left.
	endTime = 30 * time.Second
	// orphanTime is how long after its timeout a Job without any worker ends by itself.
	orphanTime = 10 * time.Minute
	// keepTime is how long an ended Job stays for a worker that has not read its end.
	keepTime = 30 * time.Minute
	// maxSecret is the size of the largest secret that a cluster keeps, in bytes.
	maxSecret = 1 << 20
)

func of[T any](v T) *T { return &v }

// meta is the metadata of an object of the attempt.
func (e *Executor) meta(t *task.Task, owner *batchv1.Job) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: nameOf(t.RunID, t.Attempt), Namespace: e.cluster.namespace, Labels: e.labels(t),
	}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: owner.Name, UID: owner.UID, Controller: of(true), BlockOwnerDeletion: of(false),
		}}
	}
	return m
}

func (e *Executor) labels(t *task.Task) map[string]string {
	return map[string]string{
		labelManaged: "triphammer", labelInstallation: e.cfg.Installation, labelRun: t.RunID, labelAttempt: strconv.FormatInt(t.Attempt, 10),
	}
}

// loopback is the address in the pod on which its way out serves. Each attempt has its own, in
// case pods share the loopback of a machine.
func loopback(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("127.%d.%d.%d", sum[0], sum[1], 1+int(sum[2])%254)
}

// job makes the Job of an attempt. The Job is suspended, because its secrets belong to it and can
// only be made after it. way tells that the pod has a way out.
func (e *Executor) job(t *task.Task, way bool) *batchv1.Job {
	template := e.template.DeepCopy()
	template.Labels = joined(template.Labels, e.labels(t))
	if t.Network.Or(e.cfg.Network).Limited() {
		template.Labels[labelNetwork] = limitedNetwork
	}
	p := &template.Spec
	p.RestartPolicy = corev1.RestartPolicyNever
	p.AutomountServiceAccountToken = of(false)
	p.EnableServiceLinks = of(false)
	p.HostNetwork, p.HostPID, p.HostIPC, p.ShareProcessNamespace = false, false, false, nil
	p.TerminationGracePeriodSeconds = of(int64((e.cfg.Grace + endTime).Seconds()))
	if p.SecurityContext == nil {
		p.SecurityContext = &corev1.PodSecurityContext{}
	}
	s := p.SecurityContext
	s.RunAsNonRoot = of(true)
	s.RunAsUser = cmp.Or(s.RunAsUser, of(int64(runUser)))
	s.RunAsGroup = cmp.Or(s.RunAsGroup, of(int64(runUser)))
	s.FSGroup = cmp.Or(s.FSGroup, s.RunAsGroup)
	s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}

	limits := executor.Bounded(t.Limits, e.cfg.Limits)
	scratch := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	}
	work := scratch("work")
	if limits.Disk > 0 {
		work.EmptyDir.SizeLimit = resource.NewQuantity(limits.Disk, resource.BinarySI)
	}
	secret := func(name string, keys ...string) corev1.Volume {
		source := &corev1.SecretVolumeSource{SecretName: nameOf(t.RunID, t.Attempt), DefaultMode: of(int32(0o440))}
		for _, key := range keys {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}}
	}
	p.Volumes = append(p.Volumes, scratch("program"), scratch("tmp"), work, secret(jobKey, jobKey))
	program := corev1.VolumeMount{Name: "program", MountPath: programFolder, ReadOnly: true}
	tmp := corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"}
	inits := []corev1.Container{{
		Name: placeContainer, Image: e.cfg.Program, Command: append([]string{"triphammer"}, executor.PlaceCommand(programFile, t.Program)...),
		VolumeMounts: []corev1.VolumeMount{{Name: "program", MountPath: programFolder}},
		Resources:    small(), SecurityContext: closed(),
	}}
	if way {
		keys := []string{egressKey}
		if slices.ContainsFunc(t.Repositories, t.Mints) {
			keys = append(keys, executor.TokensFile)
		}
		if executor.Counts(t) {
			keys = append(keys, executor.GrantFile)
		}
		p.Volumes = append(p.Volumes, secret(egressKey, keys...), scratch("counts"))
		inits = append(inits, corev1.Container{
			Name: egressContainer, Image: e.cfg.Program, Command: append([]string{"triphammer"}, executor.EgressCommand(path.Join(egressFolder, egressKey), path.Join(countsFolder, "models"))...),
			RestartPolicy: of(corev1.ContainerRestartPolicyAlways), // makes the container run beside the run, not before it
			VolumeMounts:  []corev1.VolumeMount{{Name: egressKey, MountPath: egressFolder, ReadOnly: true}, {Name: "counts", MountPath: countsFolder}},
			Resources:     small(), SecurityContext: closed(),
		})
	}
	p.InitContainers = append(inits, p.InitContainers...)
	p.Containers = append([]corev1.Container{{
		Name: runContainer, Image: cmp.Or(t.DockerImage, e.cfg.Image), Command: append([]string{programFile}, executor.PodCommand(path.Join(jobFolder, jobKey), runFolder)...),
		WorkingDir: runFolder,
		VolumeMounts: []corev1.VolumeMount{
			program, tmp,
			{Name: "work", MountPath: runFolder},
			{Name: jobKey, MountPath: jobFolder, ReadOnly: true},
		},
		Resources: bounded(limits), SecurityContext: closed(),
	}}, p.Containers...)

	j := &batchv1.Job{ObjectMeta: e.meta(t, nil), Spec: batchv1.JobSpec{
		Suspend: of(true), BackoffLimit: of(int32(0)), Parallelism: of(int32(1)), Completions: of(int32(1)),
		TTLSecondsAfterFinished: of(int32(keepTime.Seconds())),
		// No other pod may take the place of a pod that is being ended and may still run.
		PodReplacementPolicy: of(batchv1.Failed),
		Template:             *template,
	}}
	if t.Timeout > 0 {
		j.Spec.ActiveDeadlineSeconds = of(int64((t.Timeout + e.cfg.Grace + orphanTime).Seconds()))
	}
	return j
}

func joined(all, own map[string]string) map[string]string {
	all = maps.Clone(all)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, own)
	return all
}

// closed is the security context of all containers.
func closed() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: of(false), ReadOnlyRootFilesystem: of(true), Privileged: of(false), RunAsNonRoot: of(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// small are the resources of the containers beside the run.
func small() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// bounded are the resources of a run. They are reserved for it, because an agent that gets less
// than it expects fails late and without a reason.
func bounded(l task.Limits) corev1.ResourceRequirements {
	all := corev1.ResourceList{}
	if l.Memory > 0 {
		all[corev1.ResourceMemory] = *resource.NewQuantity(l.Memory+executor.PodMemory, resource.BinarySI)
	}
	if l.CPUs > 0 {
		all[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(l.CPUs*1000), resource.DecimalSI)
	}
	if l.Disk > 0 {
		all[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(l.Disk, resource.BinarySI)
	}
	if len(all) == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Requests: all, Limits: all.DeepCopy()}
}

// secret makes the secret of an attempt, which is deleted with the Job.
func (e *Executor) secret(t *task.Task, owner *batchv1.Job, pod *executor.Pod, tokens, grant []byte) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: e.meta(t, owner), Immutable: of(tokens == nil && grant == nil), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{jobKey: pod.Job}}
	if pod.Egress != nil {
		s.Data[egressKey] = pod.Egress
	}
	if tokens != nil {
		s.Data[executor.TokensFile] = tokens
	}
	if grant != nil {
		s.Data[executor.GrantFile] = grant
	}
	if n := len(pod.Job) + len(pod.Egress); n > maxSecret-4<<10 {
		return nil, &task.FinalError{Err: fmt.Errorf("what the run is given (prompt, payload, skills, files and secrets) has %d bytes compressed, "+
			"and a cluster takes 1 MiB: have the environment's setup fetch what is large", n)}
	}
	return s, nil
}

// floor is the network policy of all runs with a limited network. It allows nothing, and the
// policies of the runs add to it. It belongs to no Job, because a cluster deletes the objects of
// a Job while the pod may still run.
func (e *Executor) floor() *netv1.NetworkPolicy {
	return &netv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "triphammer-limited", Namespace: e.cluster.namespace, Labels: map[string]string{labelManaged: "triphammer"}},
		Spec: netv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelNetwork: limitedNetwork}},
			PolicyTypes: []netv1.PolicyType{netv1.PolicyTypeIngress, netv1.PolicyTypeEgress},
		},
	}
}

// policy is the network policy of a run with a limited network. The kernel of the node lets the
// run reach only the ports of the way out (SPEC 14.5). The policy keeps the pod from reaching
// other hosts by these ports.
func (e *Executor) policy(t *task.Task, owner *batchv1.Job, n task.Network) *netv1.NetworkPolicy {
	port := func(protocol corev1.Protocol, number int) netv1.NetworkPolicyPort {
		return netv1.NetworkPolicyPort{Protocol: &protocol, Port: of(intstr.FromInt(number))}
	}
	ports := executor.PodPorts(t, n)
	p := &netv1.NetworkPolicy{ObjectMeta: e.meta(t, owner), Spec: netv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: e.labels(t)},
		PolicyTypes: []netv1.PolicyType{netv1.PolicyTypeIngress, netv1.PolicyTypeEgress},
	}}
	if len(ports) > 0 {
		rule := netv1.NetworkPolicyEgressRule{Ports: []netv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53)}}
		for _, number := range ports {
			rule.Ports = append(rule.Ports, port(corev1.ProtocolTCP, int(number)))
		}
		p.Spec.Egress = []netv1.NetworkPolicyEgressRule{rule}
	}
	return p
}
