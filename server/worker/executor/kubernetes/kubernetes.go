// Package kubernetes executes runs in a cluster: each attempt is a Job (SPEC 17.5).
//
// The Job is named after the attempt. So it is made only once, and another worker finds it. The
// Job outlives the worker that has made it. It has a pod of up to three containers:
//
//   - place copies this program into the pod, because the image of a run does not have it.
//   - egress is the proxy and the gateway to repositories. It exists if the network of the run
//     is limited or a repository is private. Only egress has the credentials of repositories.
//   - run is the supervisor, in the image of the run. It clones, runs the setup and the agent,
//     and reports by its log, sealed (server/worker/executor/podlog.go).
//
// object.go makes these objects, start.go and follow.go follow an attempt to its end, and
// ending.go lists the ways in which a cluster ends an attempt. access.go lists the rights that
// this package needs in a cluster, from which the Helm chart makes its role.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"triphammer/server/inside"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
)

// Isolation is the name of the walls that a cluster puts around runs.
const Isolation = task.Cluster

// Config is what New needs.
type Config struct {
	Kubeconfig string // file; empty: the usual places, or the cluster in which this program runs
	Context    string // context of Kubeconfig; empty: the current context
	Namespace  string // of the runs; empty: the namespace of the context, or of this program

	Image   string // for runs whose definitions name no image
	Program string // image that has this program
	// Template is a file with a PodTemplateSpec for the pods of the runs: nodes, tolerations,
	// pull secrets, a runtime class and the like. Empty: none.
	Template string

	Installation string                   // labels the objects of this installation in the namespace
	Key          func(name string) []byte // key for the reports of the attempt with the name; the same in all workers

	Limits  task.Limits  // for runs without limits of their own; a zero field means no limit
	Network task.Network // for runs whose definitions say nothing about the network
	Grace   time.Duration

	Pending  time.Duration // how long a pod may wait for a node, its image and its volumes; 0 means DefaultPending
	Patience time.Duration // how long the API server may be away; 0 means DefaultPatience

	// Live asks the store whether an attempt is in progress; nil: nothing is swept.
	Live   func(ctx context.Context, runID string, attempt int64) (bool, error)
	Logger *slog.Logger // nil means slog.Default

	cluster *cluster // for tests
	retry   time.Duration
}

// Defaults of a Config.
const (
	DefaultPending  = 10 * time.Minute
	DefaultPatience = 2 * time.Minute
	DefaultOutput   = 256 << 20 // bytes that a run may print
	defaultRetry    = time.Second
)

// Executor executes runs as Jobs.
type Executor struct {
	cfg      Config
	cluster  *cluster
	template corev1.PodTemplateSpec
	logger   *slog.Logger

	mu     sync.Mutex
	active map[string]int64 // attempts in progress, by the ids of their runs
}

var _ task.Outliving = (*Executor)(nil)

// New makes the executor. It sends no request to the cluster.
func New(cfg Config) (*Executor, error) {
	cfg.Pending = cmp.Or(cfg.Pending, DefaultPending)
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	cfg.retry = cmp.Or(cfg.retry, defaultRetry)
	cfg.Grace = cmp.Or(cfg.Grace, executor.DefaultGrace)
	e := &Executor{cfg: cfg, cluster: cfg.cluster, logger: cmp.Or(cfg.Logger, slog.Default()), active: make(map[string]int64)}
	if e.cluster == nil {
		c, err := connect(cfg.Kubeconfig, cfg.Context, cfg.Namespace)
		if err != nil {
			return nil, err
		}
		e.cluster = c
	}
	if cfg.Template != "" {
		text, err := os.ReadFile(cfg.Template)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &e.template)
		}
		if err != nil {
			return nil, fmt.Errorf("the template of the pods %s is no PodTemplateSpec: %w", cfg.Template, err)
		}
	}
	return e, nil
}

// cluster is what the executor needs of a cluster. The clients of client-go have these
// methods, and so has its fake clientset.
type cluster struct {
	namespace string
	server    string // its address, for people
	jobs      interface {
		Create(context.Context, *batchv1.Job, metav1.CreateOptions) (*batchv1.Job, error)
		Get(context.Context, string, metav1.GetOptions) (*batchv1.Job, error)
		List(context.Context, metav1.ListOptions) (*batchv1.JobList, error)
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*batchv1.Job, error)
		Delete(context.Context, string, metav1.DeleteOptions) error
	}
	pods interface {
		List(context.Context, metav1.ListOptions) (*corev1.PodList, error)
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}
	secrets interface {
		Create(context.Context, *corev1.Secret, metav1.CreateOptions) (*corev1.Secret, error)
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Secret, error)
	}
	policies interface {
		Create(context.Context, *netv1.NetworkPolicy, metav1.CreateOptions) (*netv1.NetworkPolicy, error)
	}
	events interface {
		List(context.Context, metav1.ListOptions) (*corev1.EventList, error)
	}
	quotas interface {
		List(context.Context, metav1.ListOptions) (*corev1.ResourceQuotaList, error)
	}
	reviews interface {
		Create(context.Context, *authv1.SelfSubjectAccessReview, metav1.CreateOptions) (*authv1.SelfSubjectAccessReview, error)
	}
	logs    func(ctx context.Context, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)
	version func(ctx context.Context) (*version.Info, error)
}

// connect makes the clients, only for the groups of the API that are used, so that the program
// does not grow by the others.
func connect(kubeconfig, kubeContext, namespace string) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster was found: %w; give --kubeconfig FILE, or start this program in a cluster", err)
	}
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("the namespace of the runs: %w", err)
		}
	}
	cfg.UserAgent = "triphammer"
	cfg.QPS, cfg.Burst = 50, 100 // generous, because the API server limits its callers itself
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("the settings of the cluster: %w", err)
	}
	return newCluster(cfg, client, namespace)
}

func newCluster(cfg *rest.Config, client *http.Client, namespace string) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{authv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, netv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	codecs, parameters := serializer.NewCodecFactory(scheme).WithoutConversion(), runtime.NewParameterCodec(scheme)
	var errs []error
	group := func(gv schema.GroupVersion) *rest.RESTClient {
		own := rest.CopyConfig(cfg)
		own.GroupVersion, own.NegotiatedSerializer, own.APIPath = &gv, codecs, "/apis"
		if gv.Group == "" {
			own.APIPath = "/api"
		}
		c, err := rest.RESTClientForConfigAndClient(own, client)
		errs = append(errs, err)
		return c
	}
	core, batch, network, auth := group(corev1.SchemeGroupVersion), group(batchv1.SchemeGroupVersion), group(netv1.SchemeGroupVersion), group(authv1.SchemeGroupVersion)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("the settings of the cluster: %w", err)
	}
	return &cluster{
		namespace: namespace, server: cfg.Host,
		jobs:     &objects[batchv1.Job, batchv1.JobList]{batch, "jobs", namespace, parameters},
		pods:     &objects[corev1.Pod, corev1.PodList]{core, "pods", namespace, parameters},
		events:   &objects[corev1.Event, corev1.EventList]{core, "events", namespace, parameters},
		quotas:   &objects[corev1.ResourceQuota, corev1.ResourceQuotaList]{core, "resourcequotas", namespace, parameters},
		secrets:  &objects[corev1.Secret, corev1.SecretList]{core, "secrets", namespace, parameters},
		policies: &objects[netv1.NetworkPolicy, netv1.NetworkPolicyList]{network, "networkpolicies", namespace, parameters},
		reviews:  &objects[authv1.SelfSubjectAccessReview, metav1.Status]{auth, "selfsubjectaccessreviews", "", parameters},
		logs: func(ctx context.Context, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			return core.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").VersionedParams(o, parameters).Stream(ctx)
		},
		version: func(ctx context.Context) (*version.Info, error) {
			text, err := core.Get().AbsPath("/version").Do(ctx).Raw()
			if err != nil {
				return nil, err
			}
			info := &version.Info{}
			return info, yaml.Unmarshal(text, info)
		},
	}, nil
}

// Isolation implements task.Executor.
func (e *Executor) Isolation() (name string, lacking []error) { return Isolation, nil }

// Outlives implements task.Outliving.
func (e *Executor) Outlives() bool { return true }

// Preflight implements task.Executor.
func (e *Executor) Preflight(t *task.Task) (task.Place, error) {
	image := cmp.Or(t.DockerImage, e.cfg.Image)
	switch {
	case image == "":
		return task.Place{}, errors.New("nothing names the image of this run: set dockerImage in its environment, or --kube-image of the server")
	case len(t.Command) == 0:
		return task.Place{}, errors.New("nothing says how to start the agent: give the environment a command, or set a harness")
	case t.Resume:
		return task.Place{}, task.ErrNoWorkspace
	case executor.Weaker(Isolation, t.Isolation):
		return task.Place{}, fmt.Errorf("the environment accepts no less isolation than %s, and this server has %s: change its isolation, or use a server that has more", t.Isolation, Isolation)
	}
	lacks := func(programs []string) ([]string, bool) { return inside.Unmovable(programs), false } // the image is not on this machine
	place := task.Place{Isolation: Isolation, Elsewhere: true, Image: image, Lacks: lacks}
	if t.Cache != nil {
		place.Warnings = []string{"nothing is kept for later runs (cache): each pod begins with what its image has"}
	}
	return place, executor.CheckImage(image)
}

// nameOf is the name of all objects of an attempt. It replaces the prefix of the run's id, which
// has a character that names in Kubernetes cannot have.
func nameOf(runID string, attempt int64) string {
	return fmt.Sprintf("run-%s-%d", strings.ToLower(strings.TrimPrefix(runID, "run_")), attempt)
}

// Labels of the objects of an attempt.
const (
	labelManaged      = "app.kubernetes.io/managed-by"
	labelInstallation = "triphammer/installation"
	labelRun          = "triphammer/run"
	labelAttempt      = "triphammer/attempt"
	labelNetwork      = "triphammer/network" // of pods
	limitedNetwork    = "limited"
)

// selects is the label selector of this installation's objects, or, with a run's id, of the
// objects of that run.
func (e *Executor) selects(runID string) string {
	s := labelInstallation + "=" + e.cfg.Installation
	if runID != "" {
		s += "," + labelRun + "=" + runID
	}
	return s
}

// remove deletes a Job with all its objects. The pods get their grace.
func (e *Executor) remove(ctx context.Context, name string, uid types.UID) error {
	foreground := metav1.DeletePropagationForeground
	o := metav1.DeleteOptions{PropagationPolicy: &foreground}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := e.cluster.jobs.Delete(ctx, name, o)
	if apierrors.IsNotFound(err) || uid != "" && apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting the Job %s: %w", name, err)
	}
	return nil
}

// Ended implements task.Outliving.
func (e *Executor) Ended(ctx context.Context, runID string, attempt int64) error {
	return e.remove(ctx, nameOf(runID, attempt), "")
}

// Reap implements task.Executor.
func (e *Executor) Reap(ctx context.Context, runID string) error {
	jobs, err := e.cluster.jobs.List(ctx, metav1.ListOptions{LabelSelector: e.selects(runID)})
	if err != nil {
		return fmt.Errorf("listing the Jobs of the run %s: %w", runID, err)
	}
	var errs []error
	for _, j := range jobs.Items {
		errs = append(errs, e.remove(ctx, j.Name, j.UID))
	}
	return errors.Join(errs...)
}

// Sweep implements task.Executor. There are no workspaces: it deletes the Jobs of attempts
// that are not in progress.
func (e *Executor) Sweep(ctx context.Context, _ func(workspace string, ended time.Time) bool) error {
	if e.cfg.Live == nil {
		return nil
	}
	jobs, err := e.cluster.jobs.List(ctx, metav1.ListOptions{LabelSelector: e.selects("")})
	if err != nil {
		return fmt.Errorf("listing the Jobs of the runs: %w", err)
	}
	var errs []error
	for _, j := range jobs.Items {
		var attempt int64
		_, err := fmt.Sscan(j.Labels[labelAttempt], &attempt)
		runID := j.Labels[labelRun]
		if err != nil || j.DeletionTimestamp != nil || e.busy(runID) {
			continue
		}
		live, err := e.cfg.Live(ctx, runID, attempt)
		if err == nil && !live {
			e.logger.Info("a Job that belongs to no run in progress is deleted", "job", j.Name)
			err = e.remove(ctx, j.Name, j.UID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Workspace implements task.Executor. A workspace goes with its pod.
func (e *Executor) Workspace(string) (path string, ok bool) { return "", false }

// Reclaim implements task.Executor.
func (e *Executor) Reclaim(context.Context, func() bool, func(string) bool) (int, error) {
	return 0, nil
}

// Size implements task.Executor. Runs use no disk of this machine.
func (e *Executor) Size(context.Context, string) (bytes, files int64) { return 0, 0 }

func (e *Executor) mark(runID string, attempt int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, busy := e.active[runID]; busy {
		return false
	}
	e.active[runID] = attempt
	return true
}

func (e *Executor) unmark(runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.active, runID)
}

func (e *Executor) busy(runID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, busy := e.active[runID]
	return busy
}
