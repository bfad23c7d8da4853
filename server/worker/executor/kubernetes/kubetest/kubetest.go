// Package kubetest is a small API server of Kubernetes for tests, with the part of a cluster
// that executes Jobs: a controller, a scheduler and a node. The containers of a pod are
// processes of this machine, so that runs really execute.
//
// It implements everything that clients rely on: resource versions, watches with bookmarks that
// break and expire, conflicts, owners, finalizers, dry runs, roles, and following logs.
package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Namespace is the namespace of the runs.
const Namespace = "runs"

// object is an object that the server keeps.
type object interface {
	metav1.Object
	runtime.Object
}

// kind is a kind of objects.
type kind struct {
	gvk schema.GroupVersionKind
	new func() object
}

var kinds = map[string]kind{
	"jobs":            {batchv1.SchemeGroupVersion.WithKind("Job"), func() object { return &batchv1.Job{} }},
	"pods":            {corev1.SchemeGroupVersion.WithKind("Pod"), func() object { return &corev1.Pod{} }},
	"secrets":         {corev1.SchemeGroupVersion.WithKind("Secret"), func() object { return &corev1.Secret{} }},
	"events":          {corev1.SchemeGroupVersion.WithKind("Event"), func() object { return &corev1.Event{} }},
	"resourcequotas":  {corev1.SchemeGroupVersion.WithKind("ResourceQuota"), func() object { return &corev1.ResourceQuota{} }},
	"networkpolicies": {netv1.SchemeGroupVersion.WithKind("NetworkPolicy"), func() object { return &netv1.NetworkPolicy{} }},
}

// Call is a call of a client.
type Call struct{ Verb, Group, Resource string } // Resource may be RESOURCE/SUBRESOURCE

// Fate says what happens to a pod that is not simply executed.
type Fate struct {
	Status  corev1.PodStatus // the status that the pod gets and keeps
	Execute bool             // the pod is executed all the same, from this status on
	Delete  bool             // the pod is deleted after it has got the status
	Events  []string         // events about the pod: REASON MESSAGE
}

// Server is an API server.
type Server struct {
	URL     string
	program string   // containers get it as the command triphammer
	env     []string // of containers
	dir     string

	mu       sync.Mutex
	server   *http.Server
	address  string
	version  int
	objects  map[string]map[string]object // by resource and name
	history  []change
	oldest   int // the first version with changes in history
	changed  chan struct{}
	calls    map[Call]int
	rules    []rbacv1.PolicyRule // nil: everything is allowed
	failures []failure
	fate     func(*corev1.Pod) *Fate
	refuse   string // why pods are not made: a message of the quota
	made     map[types.UID]bool
	pods     map[types.UID]*pod
	nodes    sync.WaitGroup
	closed   chan struct{}
	watches  int
}

// change is a change for watches.
type change struct {
	version  int
	resource string
	kind     string
	object   object
}

// failure is an answer to the next calls that match.
type failure struct {
	verb, resource string
	code           int
	reason         metav1.StatusReason
	message        string
	after          bool // the call is done, and only its answer is lost
	left           int
}

// New starts a server. Containers get program as the command triphammer, and the variables env.
func New(t testing.TB, program string, env ...string) *Server {
	t.Helper()
	s := &Server{
		program: program, env: env, dir: t.TempDir(), objects: make(map[string]map[string]object), changed: make(chan struct{}),
		calls: make(map[Call]int), made: make(map[types.UID]bool), pods: make(map[types.UID]*pod), closed: make(chan struct{}), address: "127.0.0.1:0",
	}
	for resource := range kinds {
		s.objects[resource] = make(map[string]object)
	}
	s.Begin(t)
	s.nodes.Go(s.control)
	t.Cleanup(func() {
		close(s.closed)
		s.Stop()
		s.nodes.Wait()
	})
	return s
}

// Begin begins to serve, or goes on after Stop.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", s.address); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	s.server, s.address, s.URL = server, l.Addr().String(), "http://"+l.Addr().String()
	s.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// Stop breaks all connections, and answers no requests. The pods of the cluster go on.
func (s *Server) Stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	_ = server.Close()
}

// Kubeconfig writes a file of settings for clients.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters: [{name: test, cluster: {server: %q}}]\n"+
		"users: [{name: test, user: {}}]\ncontexts: [{name: test, context: {cluster: test, user: test, namespace: %s}}]\n", s.URL, Namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Calls counts the calls so far.
func (s *Server) Calls() map[Call]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}

// Allow makes the server refuse every call that the rules do not allow.
func (s *Server) Allow(rules []rbacv1.PolicyRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
}

// Fail answers the next n calls with an error. after tells that the call is done first, and
// only its answer is lost.
func (s *Server) Fail(verb, resource string, n, code int, reason metav1.StatusReason, message string, after bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, failure{verb, resource, code, reason, message, after, n})
}

// Decide sets the fate of the pods that are made from now on; nil: they are simply executed.
func (s *Server) Decide(fate func(*corev1.Pod) *Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = fate
}

// RefusePods makes the cluster refuse new pods, with the message of an event; empty: pods are made
// again.
func (s *Server) RefusePods(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = message
}

// Expire forgets the changes so far and breaks the watches. A request for these changes gets 410
// Gone.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	s.history, s.oldest = nil, s.version
	s.wake()
}

// Put stores an object, as another client would.
func (s *Server) Put(resource string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.create(resource, o)
}

// Update changes an object, as another client would; false: there is no such object.
func (s *Server) Update(resource, name string, change func(object any)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[resource][name]
	if o == nil {
		return false
	}
	o = o.DeepCopyObject().(object)
	change(o)
	s.store(resource, "MODIFIED", o)
	return true
}

// Delete deletes an object, as another client would; false: there is no such object.
func (s *Server) Delete(resource, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[resource][name]
	if o == nil {
		return false
	}
	s.remove(resource, o, true)
	return true
}

// Names are the names of the objects.
func (s *Server) Names(resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects[resource]))
}

// Job is a Job; nil: there is none of that name.
func (s *Server) Job(name string) *batchv1.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, _ := s.objects["jobs"][name].(*batchv1.Job)
	return j
}

// PodOf is the pod of a Job; nil: there is none.
func (s *Server) PodOf(job string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podOf(job)
}

func (s *Server) podOf(job string) *corev1.Pod {
	for _, o := range s.objects["pods"] {
		if o.GetLabels()[batchv1.JobNameLabel] == job {
			return o.(*corev1.Pod)
		}
	}
	return nil
}

// Secret is a secret; nil: there is none of that name.
func (s *Server) Secret(name string) *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := s.objects["secrets"][name].(*corev1.Secret)
	return o
}

// Policy is a network policy; nil: there is none of that name.
func (s *Server) Policy(name string) *netv1.NetworkPolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := s.objects["networkpolicies"][name].(*netv1.NetworkPolicy)
	return o
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// store keeps an object in a new version, and tells the watches.
func (s *Server) store(resource, what string, o object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.GetObjectKind().SetGroupVersionKind(kinds[resource].gvk)
	if what == "DELETED" {
		delete(s.objects[resource], o.GetName())
	} else {
		s.objects[resource][o.GetName()] = o
	}
	s.history = append(s.history, change{s.version, resource, what, o})
	s.wake()
}

func (s *Server) create(resource string, o object) {
	o.SetNamespace(Namespace)
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.Now())
	s.store(resource, "ADDED", o)
}

// remove begins to delete an object, or deletes it.
func (s *Server) remove(resource string, o object, foreground bool) {
	o = o.DeepCopyObject().(object)
	if o.GetDeletionTimestamp() != nil {
		return
	}
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	if resource == "jobs" && foreground {
		o.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
	}
	if resource == "jobs" || resource == "pods" {
		s.store(resource, "MODIFIED", o)
		if p := s.pods[o.GetUID()]; p != nil {
			p.end()
		}
		return
	}
	s.store(resource, "DELETED", o)
}

// status is an answer that is an error.
func status(w http.ResponseWriter, code int, reason metav1.StatusReason, format string, args ...any) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// request is a parsed request.
type request struct {
	group, resource, name, sub string
	verb                       string
}

func parse(r *http.Request) (q request, ok bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		q.group, parts = parts[1], parts[3:]
	default:
		return q, false
	}
	if len(parts) >= 2 && parts[0] == "namespaces" {
		if parts[1] != Namespace {
			return q, false
		}
		parts = parts[2:]
	}
	if len(parts) == 0 || len(parts) > 3 {
		return q, false
	}
	parts = append(parts, "", "")
	q.resource, q.name, q.sub = parts[0], parts[1], parts[2]
	switch {
	case r.Method == http.MethodGet && q.name == "" && r.URL.Query().Get("watch") != "":
		q.verb = "watch"
	case r.Method == http.MethodGet && q.name == "":
		q.verb = "list"
	default:
		q.verb = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPut: "update"}[r.Method]
	}
	return q, true
}

func (q *request) full() string {
	if q.sub != "" {
		return q.resource + "/" + q.sub
	}
	return q.resource
}

// allowed asks the role.
func (s *Server) allowed(verb, group, resource string) bool {
	if s.rules == nil {
		return true
	}
	return slices.ContainsFunc(s.rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		answer(w, http.StatusOK, map[string]string{"major": "1", "minor": "33", "gitVersion": "v1.33.0-kubetest"})
		return
	}
	q, ok := parse(r)
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.resource == "selfsubjectaccessreviews" {
		var review authv1.SelfSubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		a := review.Spec.ResourceAttributes
		asked := request{resource: a.Resource, sub: a.Subresource}
		review.Status.Allowed = s.allowed(a.Verb, a.Group, asked.full())
		answer(w, http.StatusCreated, &review)
		return
	}
	s.calls[Call{q.verb, q.group, q.full()}]++
	if !s.allowed(q.verb, q.group, q.full()) {
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "%s is forbidden: User \"test\" cannot %s resource %q", q.full(), q.verb, q.full())
		return
	}
	lost := false
	for i := range s.failures {
		f := &s.failures[i]
		if f.left > 0 && f.verb == q.verb && f.resource == q.full() {
			f.left--
			if !f.after {
				status(w, f.code, f.reason, "%s", f.message)
				return
			}
			lost = true
		}
	}
	k, known := kinds[q.resource]
	if !known || k.gvk.Group != q.group {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	if lost {
		s.dispatch(httptest.NewRecorder(), r, q, k) // where nobody reads it
		panic(http.ErrAbortHandler)
	}
	s.dispatch(w, r, q, k)
}

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, q request, k kind) {
	o := s.objects[q.resource][q.name]
	if q.name != "" && o == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "%s %q not found", q.resource, q.name)
		return
	}
	switch {
	case q.sub == "log":
		s.log(w, r, o.(*corev1.Pod))
	case q.verb == "get":
		answer(w, http.StatusOK, o)
	case q.verb == "list":
		s.list(w, r, q, k)
	case q.verb == "watch":
		s.watch(w, r, q)
	case q.verb == "create":
		made := k.new()
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(made); err != nil {
			status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
			return
		}
		if err := check(made); err != nil {
			status(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "%s %q is invalid: %v", k.gvk.Kind, made.GetName(), err)
			return
		}
		if s.objects[q.resource][made.GetName()] != nil {
			status(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "%s %q already exists", q.resource, made.GetName())
			return
		}
		if r.URL.Query().Get("dryRun") == "" {
			s.create(q.resource, made)
		}
		answer(w, http.StatusCreated, made)
	case q.verb == "patch":
		patched := o.DeepCopyObject().(object)
		if r.Header.Get("Content-Type") != string(types.MergePatchType) {
			status(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "only merge patches are known here")
			return
		}
		if err := json.NewDecoder(r.Body).Decode(patched); err != nil { // a merge patch of fields that are not lists
			status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
			return
		}
		s.store(q.resource, "MODIFIED", patched)
		answer(w, http.StatusOK, patched)
	case q.verb == "delete":
		var options metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&options)
		if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != o.GetUID() {
			status(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition (%s) does not match the UID in record (%s)", *p.UID, o.GetUID())
			return
		}
		s.remove(q.resource, o, options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationForeground)
		answer(w, http.StatusOK, o)
	default:
		status(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s is not possible here", q.verb)
	}
}

// check refuses what a real API server would refuse of what these tests make.
func check(o object) error {
	if errs := validation.IsDNS1123Label(o.GetName()); len(errs) > 0 {
		return fmt.Errorf("metadata.name: Invalid value: %q: %s", o.GetName(), strings.Join(errs, ", "))
	}
	j, ok := o.(*batchv1.Job)
	if !ok {
		return nil
	}
	if p := j.Spec.Template.Spec.RestartPolicy; p != corev1.RestartPolicyNever && p != corev1.RestartPolicyOnFailure {
		return fmt.Errorf("spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"")
	}
	volumes := make(map[string]bool)
	for _, v := range j.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range slices.Concat(j.Spec.Template.Spec.InitContainers, j.Spec.Template.Spec.Containers) {
		if c.Image == "" {
			return fmt.Errorf("spec.template.spec.containers[%s].image: Required value", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("spec.template.spec.containers[%s].volumeMounts: Not found: %q", c.Name, m.Name)
			}
		}
	}
	return nil
}

// selection tells which objects a request is about.
func selection(r *http.Request) (func(object) bool, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	return func(o object) bool {
		set := fields.Set{"metadata.name": o.GetName()}
		if e, ok := o.(*corev1.Event); ok {
			set["involvedObject.uid"] = string(e.InvolvedObject.UID)
		}
		return byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(set)
	}, nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, q request, k kind) {
	wanted, err := selection(r)
	if err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
		return
	}
	items := []object{}
	for _, o := range s.objects[q.resource] {
		if wanted(o) {
			items = append(items, o)
		}
	}
	apiVersion, name := k.gvk.ToAPIVersionAndKind()
	answer(w, http.StatusOK, map[string]any{
		"kind": name + "List", "apiVersion": apiVersion, "metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
	})
}

// bookmarkEvery is how often a watch sends a bookmark.
const bookmarkEvery = 50 * time.Millisecond

func (s *Server) watch(w http.ResponseWriter, r *http.Request, q request) {
	wanted, err := selection(r)
	at, versionErr := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil || versionErr != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", errors.Join(err, versionErr))
		return
	}
	if at < s.oldest {
		status(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version: %d (%d)", at, s.oldest)
		return
	}
	s.watches++
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	tell := func(kind string, o any) bool {
		return out.Encode(map[string]any{"type": kind, "object": o}) == nil && http.NewResponseController(w).Flush() == nil
	}
	_ = http.NewResponseController(w).Flush()
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	for {
		if at < s.oldest {
			tell("ERROR", &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
			})
			return
		}
		for _, c := range s.history {
			if c.version <= at {
				continue
			}
			at = c.version
			if c.resource == q.resource && wanted(c.object) && !tell(c.kind, c.object) {
				return
			}
		}
		changed := s.changed
		s.mu.Unlock()
		marked := false
		select {
		case <-changed:
		case <-r.Context().Done():
		case <-s.closed:
		case <-bookmark.C:
			marked = true
		}
		s.mu.Lock()
		if r.Context().Err() != nil || isClosed(s.closed) {
			return
		}
		if marked && r.URL.Query().Get("allowWatchBookmarks") == "true" {
			mark := kinds[q.resource].new()
			mark.GetObjectKind().SetGroupVersionKind(kinds[q.resource].gvk)
			mark.SetResourceVersion(strconv.Itoa(max(at, s.oldest)))
			if !tell("BOOKMARK", mark) {
				return
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Watches is how many watches have begun.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}
