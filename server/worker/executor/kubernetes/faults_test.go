package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/schema/output"
	"triphammer/server/githubapp"
	"triphammer/server/githubapp/githubtest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// TestRestarts: while a run prints, the API server is restarted, watches break and expire. No
// line is lost, and none is read twice.
func TestRestarts(t *testing.T) {
	t.Parallel()
	const lines = 300
	s := newServer(t)
	work, sink := newTask(fmt.Sprintf("for i in $(seq 1 %d); do echo line $i; sleep 0.01; done", lines)), newSink()
	done := make(chan error, 1)
	go func() { _, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink); done <- err }()
	for round := range 6 {
		sink.await(t, fmt.Sprintf("line %d\n", (round+1)*lines/8))
		before := s.Watches()
		switch round % 3 {
		case 0:
			s.Expire()
		case 1:
			s.Stop()
			s.Begin(t)
		case 2:
			s.Stop()
			s.Begin(t)
			s.Expire()
		}
		until(t, "the watches begin again", func() bool { return s.Watches() > before })
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := sink.output(event.Stdout); got != want.String() {
		t.Errorf("it has %d lines, and not %d", strings.Count(got, "\n"), lines)
	}
}

// TestRotatedLog: lines that the node has thrown away are told, and the rest goes on.
func TestRotatedLog(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work, first, second := newTask("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done; while [ ! -e go ]; do sleep 0.01; done; echo last"), newSink(), newSink()
	ctx, leave := context.WithCancelCause(t.Context())
	go func() { first.await(t, "line 6\n"); leave(task.ErrStopped) }()
	if _, err := newExecutor(t, configOf(t, s)).Start(ctx, work, first); !errors.Is(err, task.ErrLeft) {
		t.Fatal(err)
	}
	name := nameOf(work.RunID, 1)
	s.Rotate(name, runContainer, 3, 5)
	letGo(t, name)
	work.Adopted = true
	exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, second)
	if err != nil || exit.Code != 0 || !strings.HasSuffix(second.output(event.Stdout), "last\n") {
		t.Errorf("it ended with %+v, %v, after %q", exit, err, second.output(event.Stdout))
	}
	if !slices.ContainsFunc(second.all(), func(e event.Event) bool {
		status, ok := e.(event.Status)
		return ok && strings.Contains(status.Message, "2 lines of the report of this run are lost")
	}) {
		t.Errorf("nothing is told of the gap: %v", second.all())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestSealedLog: the log of a pod shows nothing of what the agent prints, and lines of another
// hand are no part of the report.
func TestSealedLog(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work, sink := newTask(`echo "$TOKEN"; sleep 60`), newSink()
	work.Secrets = map[string]secret.Value{"TOKEN": secret.New("s3cret-value")}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	e := newExecutor(t, configOf(t, s))
	go func() { defer close(done); _, _ = e.Start(ctx, work, sink) }()
	sink.await(t, "s3cret-value")
	name := nameOf(work.RunID, 1)
	log, job := s.Log(name, runContainer), s.Job(name)
	if strings.Contains(log, "s3cret") || !strings.HasPrefix(log, "triphammer 0 ") {
		t.Errorf("the log is %q", log)
	}
	for _, text := range []string{fmt.Sprint(job), fmt.Sprint(s.PodOf(name))} {
		if strings.Contains(text, "s3cret") {
			t.Error("the value of a secret is in an object")
		}
	}
	if sec := s.Secret(name); sec == nil || len(sec.OwnerReferences) != 1 || sec.OwnerReferences[0].UID != job.UID || sec.Immutable == nil {
		t.Errorf("the secret is %v", sec)
	}
	cancel(task.ErrCancelled)
	<-done

	lines := strings.SplitAfter(log, "\n")
	read := func(key string, lines ...string) (*fakeSink, error) {
		sink := &fakeSink{}
		r := executor.NewPodReport([]byte(key), sink)
		defer r.Close(nil)
		for _, line := range lines {
			if err := r.Line([]byte(strings.TrimSuffix(line, "\n"))); err != nil {
				return sink, err
			}
		}
		return sink, nil
	}
	key := "the key of " + name
	if _, err := read("another", lines[0], lines[1]); err == nil {
		t.Error("another key reads the report")
	}
	if _, err := read(key, lines[0], strings.Replace(lines[1], " 1 ", " 2 ", 1)); err == nil {
		t.Error("a line with another number is read")
	}
	twice, err := read(key, append(slices.Clone(lines[:3]), lines[:3]...)...)
	once, _ := read(key, lines[:3]...)
	if err != nil || twice.n != once.n || once.n == 0 {
		t.Errorf("read again, %d events are %d, %v", once.n, twice.n, err)
	}
	if _, err := read(key, "foreign text", lines[0], "panic: x", lines[1]); err != nil {
		t.Error(err)
	}
}

type fakeSink struct{ n int }

func (s *fakeSink) Add(event.Event) { s.n++ }
func (*fakeSink) Keep(_ event.Artifact, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// FuzzPodReport: whatever is in a log, reading it ends, and only who has the key makes events.
func FuzzPodReport(f *testing.F) {
	f.Add([]byte("triphammer 0 AAAAAAAAAAAAAAAAAAAAAA\ntriphammer 1 AAAA\nx"))
	f.Add([]byte("triphammer 18446744073709551615 AA\ntriphammer 0 \n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		sink := &fakeSink{}
		r := executor.NewPodReport([]byte("key"), sink)
		defer r.Close(nil)
		for _, line := range bytes.Split(log, []byte("\n")) {
			if r.Line(line) != nil {
				break
			}
		}
		if sink.n > 0 || r.Ended() {
			t.Errorf("%q makes events", log)
		}
	})
}

// privateForge is a forge with a repository of one commit, at bare.
func privateForge(t testing.TB) (forge *gittest.Server, bare string) {
	t.Helper()
	root := t.TempDir()
	bare, forge = gittest.Bare(t, root, "example/app.git"), gittest.Serve(t, root)
	forge.Basic("x-access-token", "c4nary-token")
	return forge, bare
}

// TestPrivateRepository: a private repository is cloned and pushed to by the gateway beside the
// run; no container of the run has the credential.
func TestPrivateRepository(t *testing.T) {
	t.Parallel()
	forge, bare := privateForge(t)
	s := newServer(t, "SSL_CERT_FILE="+forge.CAFile)
	for _, network := range []task.Network{{}, {Off: true}} {
		work, sink := newTask(`git log --format=%s; git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m two && git push -q origin HEAD:refs/heads/triphammer/made && echo pushed
			env; cat "$GIT_CONFIG_SYSTEM" .git/config; ls -R /triphammer; true`), newSink()
		work.Network, work.Pushes = network, task.Pushes{Branches: []string{"triphammer/*"}, Max: 1, MaxBytes: 1 << 20}
		work.Repositories = []task.Repository{{URL: forge.URL + "/example/app.git", Secret: "FORGE"}}
		work.Credentials = map[string]secret.Value{"FORGE": secret.New("c4nary-token")}
		exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink)
		got := sink.output(event.Stdout)
		if err != nil || exit.Code != 0 || !strings.HasPrefix(got, "one\npushed\n") {
			t.Errorf("%+v: it ended with %+v, %v, after %q %q", network, exit, err, got, sink.output(event.Stderr))
		}
		if strings.Contains(got, "c4nary") {
			t.Error("the run has the credential")
		}
		told, pushed := 0, 0
		for _, e := range sink.all() {
			if p, ok := e.(event.Push); ok && p.Refused == "" && p.Ref == "refs/heads/triphammer/made" {
				pushed++
			}
			if c, ok := e.(event.Egress); ok && c.Allowed {
				told++
			}
		}
		if told == 0 || pushed != 1 {
			t.Error("the transcript does not have what was contacted, and what was pushed")
		}
		gittest.Git(t, bare, "update-ref", "-d", "refs/heads/triphammer/made")
	}
}

// TestWaitingPush: a push that waits for a person does not reach the forge. Its pack comes to the worker by the log of
// the pod, and has the commit that was pushed (SPEC 23.3).
func TestWaitingPush(t *testing.T) {
	t.Parallel()
	forge, bare := privateForge(t)
	s := newServer(t, "SSL_CERT_FILE="+forge.CAFile)
	work, sink := newTask(`git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m two && git push origin HEAD:refs/heads/triphammer/made && git rev-parse HEAD`), newSink()
	work.Pushes = task.Pushes{Branches: []string{"triphammer/*"}, Max: 1, MaxBytes: 1 << 20, Waits: time.Hour}
	var pack bytes.Buffer
	work.Pushes.Stage = func(_ context.Context, content io.Reader) (output.Pack, error) {
		_, err := io.Copy(&pack, content)
		sum := sha256.Sum256(pack.Bytes())
		return output.Pack{Artifact: "art_1", SHA256: hex.EncodeToString(sum[:]), Bytes: int64(pack.Len())}, err
	}
	work.Repositories = []task.Repository{{URL: forge.URL + "/example/app.git", Secret: "FORGE"}}
	work.Credentials = map[string]secret.Value{"FORGE": secret.New("c4nary-token")}
	exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink)
	made := strings.TrimSpace(sink.output(event.Stdout))
	if err != nil || exit.Code != 0 || !strings.Contains(sink.output(event.Stderr), "waits until a person approves it") {
		t.Fatalf("it ended with %+v, %v, after %q %q", exit, err, made, sink.output(event.Stderr))
	}
	waits := 0
	for _, e := range sink.all() {
		if p, ok := e.(event.Push); ok && p.Refused == "" && p.New == made && strings.Contains(p.Waits, "art_1") {
			waits++
		}
	}
	if waits != 1 || gittest.Git(t, bare, "for-each-ref", "refs/heads/triphammer") != "" {
		t.Errorf("%d pushes wait, and the forge has %s", waits, gittest.Git(t, bare, "for-each-ref"))
	}
	unpack := exec.Command("git", "-C", bare, "unpack-objects", "-q")
	unpack.Stdin = &pack
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if subject := gittest.Git(t, bare, "log", "-1", "--format=%s", made); subject != "two" {
		t.Errorf("the pack has the commit %q", subject)
	}
}

// TestModelInPod: a run reaches its model by the gateway beside it, which alone has the key, also past a
// proxy of listed hosts. What the gateway has to tell is in the transcript.
func TestModelInPod(t *testing.T) {
	t.Parallel()
	const key = "c4nary-key"
	model := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != key {
			http.Error(w, "no key", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Retry-After", "3")
		http.Error(w, "slow down, "+r.Header.Get("X-Api-Key"), http.StatusTooManyRequests)
	}))
	t.Cleanup(model.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certificate(model.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "SSL_CERT_FILE="+ca)
	for _, within := range []task.Task{
		{Services: []task.Service{{Name: "app", Token: "t", URL: "http://127.0.0.1:1"}}},
		{Repositories: []task.Repository{{URL: "http://localhost:1/acme/app", Secret: "FORGE"}}},
	} {
		open, sink := newTask("true"), newSink()
		open.Services, open.Repositories = within.Services, within.Repositories
		if _, err := newExecutor(t, configOf(t, s)).Start(t.Context(), open, sink); err == nil || !strings.Contains(err.Error(), "is within the pod") {
			t.Errorf("what is in the pod itself: %v", err)
		}
	}
	for _, network := range []task.Network{{}, {Off: true}, {Hosts: []string{"nothing.example"}}} {
		work, sink := newTask(`curl -sS "$ANTHROPIC_BASE_URL/v1/messages" -H "X-Api-Key: $ANTHROPIC_API_KEY" -d '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}'
			env; cat /proc/self/environ | tr '\0' '\n'; ls -R /triphammer; true`), newSink()
		work.Network = network
		to := task.Service{Name: "anthropic", Token: "t0ken", URL: model.URL, Provider: "anthropic", Header: map[string]secret.Value{"X-Api-Key": secret.New(key)}}
		work.Services = []task.Service{to}
		work.Secrets = map[string]secret.Value{"ANTHROPIC_BASE_URL": secret.New(to.Address()), "ANTHROPIC_API_KEY": secret.New(to.Token)}
		exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink)
		got := sink.output(event.Stdout)
		if err != nil || exit.Code != 0 || !strings.HasPrefix(got, "slow down, [redacted]\n") {
			t.Errorf("%+v: it ended with %+v, %v, after %q %q", network, exit, err, got, sink.output(event.Stderr))
		}
		if strings.Contains(got, key) {
			t.Error("the run has the key")
		}
		if !slices.ContainsFunc(sink.all(), func(e event.Event) bool {
			told, is := e.(event.Status)
			return is && strings.Contains(told.Message, "answers 429 Too Many Requests; it says to wait (Retry-After: 3)")
		}) {
			t.Errorf("%+v: the transcript does not tell of the answer", network)
		}
	}
}

// TestAppInPod: the pod has the token of a GitHub App and never its key, and gets another token
// before the first one ends, also from a worker that took the attempt up (SPEC 24.2).
func TestAppInPod(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bare := filepath.Join(root, "acme", "app.git")
	gittest.Git(t, root, "init", "-q", "--bare", "-b", "main", bare)
	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, work, "push", "-q", bare, "main")
	hub := githubtest.Start(t, root)
	hub.Installed["acme/app"] = 5
	hub.Life = githubapp.Early + 2*time.Second // times of GitHub are whole seconds
	apps := githubapp.New(time.Now)
	over := httptest.NewTLSServer(hub)
	t.Cleanup(over.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certificate(over.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "SSL_CERT_FILE="+ca)
	run, sink := newTask(`git log --format=%s; env; cat "$GIT_CONFIG_SYSTEM" .git/config; ls -R /triphammer
		until test -e done; do git fetch -q origin || exit 1; sleep 0.1; done`), newSink()
	run.Repositories = []task.Repository{{URL: over.URL + "/acme/app.git", Secret: "APP", ReadOnly: true}}
	run.Mint = func(ctx context.Context, r task.Repository) (task.Minted, error) {
		token, err := apps.Token(ctx, r.Secret, hub.Secret(t), githubapp.Use{Repository: "acme/app", Permissions: map[string]string{"contents": "read"}})
		return task.Minted{Token: token.Value, Renew: token.Renew}, err
	}
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := newExecutor(t, configOf(t, s)).Start(ctx, run, sink)
		ended <- err
	}()
	name := nameOf(run.RunID, run.Attempt)
	served := func(n int) { // the pod has fetched with the nth token, which its secret has
		t.Helper()
		until(t, fmt.Sprintf("token %d is in the pod", n), func() bool {
			all, secret := hub.Grants(), s.Secret(name)
			return len(all) >= n && secret != nil && bytes.Contains(secret.Data[executor.TokensFile], []byte(all[len(all)-1].Token)) &&
				hub.Used(all[n-1].Token)
		})
	}
	served(2)
	for key, data := range s.Secret(name).Data {
		if bytes.Contains(data, []byte("PRIVATE KEY")) {
			t.Errorf("the key of the App is in %s", key)
		}
	}
	stop(task.ErrStopped)
	if err := <-ended; !errors.Is(err, task.ErrLeft) {
		t.Fatal(err)
	}
	n := len(hub.Grants())
	run.Adopted = true
	ctx, stop = context.WithCancelCause(t.Context())
	go func() {
		_, err := newExecutor(t, configOf(t, s)).Start(ctx, run, sink)
		ended <- err
	}()
	served(n + 1)
	stop(task.ErrCancelled)
	if err := <-ended; err != nil && !errors.Is(err, task.ErrCancelled) { // by SIGINT the agent may end by itself
		t.Error(err)
	}
	if out := sink.output(event.Stdout); !strings.HasPrefix(out, "one\n") || strings.Contains(out, "ghs_") || strings.Contains(out, "PRIVATE") {
		t.Errorf("the run has %q", out)
	}
}

// TestLimitedNetwork: a run whose network is limited reaches nothing but its way out, whatever
// it tries, by the kernel alone (SPEC 14.5). The policy closes the ports of the way out.
func TestLimitedNetwork(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	api := strings.TrimPrefix(s.URL, "http://")
	host, port, _ := strings.Cut(api, ":")
	try := fmt.Sprintf(`probe() { timeout 5 bash -c "$1" 2>/dev/null && echo "$2 reached" || echo "$2 refused"; }
		probe 'exec 3<>/dev/tcp/%s/%s' tcp
		probe 'exec 3<>/dev/udp/%s/%s; echo x >&3' udp
		echo "${HTTPS_PROXY:-none}"`, host, port, host, port)
	for _, c := range []struct {
		network task.Network
		want    string
		ports   []int
	}{
		{task.Network{On: true}, "tcp reached\nudp reached\nnone\n", nil},
		{task.Network{Off: true}, "tcp refused\nudp refused\nnone\n", []int{}},
		{task.Network{Hosts: []string{"api.example.com", "db.example.com:3128"}}, "tcp refused\nudp refused\nhttp://127.", []int{53, 53, 443, 3128}},
	} {
		work, sink := newTask(try), newSink()
		work.Network = c.network
		exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink)
		if got := sink.output(event.Stdout); err != nil || exit.Code != 0 || !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: it ended with %+v, %v, after %q %q", c.network, exit, err, got, sink.output(event.Stderr))
		}
		policy := s.Policy(nameOf(work.RunID, 1))
		if (policy == nil) != (c.ports == nil) {
			t.Errorf("%+v: the policy is %v", c.network, policy)
		}
		if policy == nil {
			continue
		}
		ports := []int{}
		for _, rule := range policy.Spec.Egress {
			for _, p := range rule.Ports {
				ports = append(ports, p.Port.IntValue())
			}
		}
		if !slices.Equal(ports, c.ports) || len(policy.Spec.PolicyTypes) != 2 {
			t.Errorf("%+v: the policy allows %v", c.network, ports)
		}
		if strings.Contains(sink.output(event.Stdout), ":3128") {
			t.Error("the proxy has a port that the policy leaves open")
		}
	}
}

// TestNextAttempt: before a further attempt begins, the Job of the one before is gone.
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work, sink := newTask("echo started; sleep 60"), newSink()
	ctx, leave := context.WithCancelCause(t.Context())
	go func() { sink.await(t, "started"); leave(task.ErrStopped) }()
	if _, err := newExecutor(t, configOf(t, s)).Start(ctx, work, sink); !errors.Is(err, task.ErrLeft) {
		t.Fatal(err)
	}
	next := *work
	next.Attempt, next.Command = 2, []string{"/bin/sh", "-c", "echo again"}
	first := nameOf(work.RunID, 1)
	begun := make(chan bool, 1)
	s.Decide(func(*corev1.Pod) *kubetest.Fate { begun <- true; return nil })
	again := newSink()
	if exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), &next, again); err != nil || exit.Code != 0 || again.output(event.Stdout) != "again\n" {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
	if slices.Contains(s.Names("jobs"), first) || len(begun) != 1 {
		t.Errorf("there are %v", s.Names("jobs"))
	}
}

// TestOnce: however many workers make an attempt at the same time, it is executed once.
func TestOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work := newTask("echo done")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			sink := newSink()
			if exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, sink); err != nil || exit.Code != 0 || sink.output(event.Stdout) != "done\n" {
				t.Errorf("one ended with %+v, %v, %q", exit, err, sink.output(event.Stdout))
			}
		})
	}
	all.Wait()
	if n := len(s.Names("pods")); n != 1 {
		t.Errorf("there are %d pods", n)
	}
}

// leaving is a sink whose first artifact lets the worker stop.
type leaving struct {
	*sink
	leave func()
	busy  atomic.Int64
	errs  chan error
}

func (s *leaving) Keep(_ event.Artifact, content io.Reader) error {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	s.leave()
	var err error
	for part := make([]byte, 1); err == nil; { // a million turns: the worker stops before
		_, err = content.Read(part)
	}
	s.errs <- err
	return err
}

// TestLeaveArtifact: a worker that stops while it reads an artifact lets go of that too, and
// reads nothing more.
func TestLeaveArtifact(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work := newTask(`for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero >"$TRIPHAMMER_ARTIFACTS/$i"; done`)
	ctx, leave := context.WithCancelCause(t.Context())
	one := &leaving{sink: newSink(), leave: func() { leave(task.ErrStopped) }, errs: make(chan error, 100)}
	if _, err := newExecutor(t, configOf(t, s)).Start(ctx, work, one); !errors.Is(err, task.ErrLeft) {
		t.Fatal(err)
	}
	if one.busy.Load() != 0 {
		t.Error("an artifact is still being read")
	}
	if err := <-one.errs; !errors.Is(err, task.ErrLeft) {
		t.Errorf("the artifact ended with %v", err)
	}
	work.Adopted = true
	second := newSink()
	if exit, err := newExecutor(t, configOf(t, s)).Start(t.Context(), work, second); err != nil || exit.Code != 0 || len(second.artifacts["1"]) != 1000000 || len(second.artifacts) < 8 {
		t.Errorf("it ended with %+v, %v and %d artifacts", exit, err, len(second.artifacts))
	}
}

// TestStoppedNetwork: while a run with a limited network is stopped, it reaches no more than
// before, although the cluster deletes its own policy before its pod has ended.
func TestStoppedNetwork(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	work, sink := newTask(`trap '' INT TERM; echo started; while :; do sleep 0.1; done`), newSink()
	work.Network = task.Network{Off: true}
	name := nameOf(work.RunID, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	e := newExecutor(t, configOf(t, s))
	go func() { _, err := e.Start(ctx, work, sink); done <- err }()
	sink.await(t, "started")
	cancel(task.ErrCancelled)
	until(t, "the policy of the run is gone", func() bool { return s.Policy(name) == nil })
	pod := s.PodOf(name)
	if pod == nil {
		t.Fatal("the pod is gone before its policy: this proves nothing")
	}
	closed := false
	for _, each := range s.Names("networkpolicies") {
		p := s.Policy(each)
		selects, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if !selects.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if len(p.Spec.Egress) > 0 {
			t.Errorf("%s lets it reach %v", each, p.Spec.Egress)
		}
		closed = closed || slices.Contains(p.Spec.PolicyTypes, netv1.PolicyTypeEgress)
	}
	if !closed {
		t.Error("no policy is about what it reaches")
	}
	<-done
}

// TestUnreadableLog: that the log of a run cannot be read is told, and no more of it is lost than
// time.
func TestUnreadableLog(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cfg := configOf(t, s)
	cfg.Patience = 100 * time.Millisecond
	work, sink := newTask("echo started; while [ ! -e go ]; do sleep 0.01; done; echo last"), newSink()
	s.Fail("get", "pods/log", 30, 500, metav1.StatusReasonInternalError, "the kubelet does not answer", false)
	done := make(chan error, 1)
	go func() { _, err := newExecutor(t, cfg).Start(t.Context(), work, sink); done <- err }()
	sink.await(t, "started")
	letGo(t, nameOf(work.RunID, 1))
	if err := <-done; err != nil || sink.output(event.Stdout) != "started\nlast\n" {
		t.Errorf("it ended with %v, after %q", err, sink.output(event.Stdout))
	}
	if n := len(slices.DeleteFunc(sink.all(), func(e event.Event) bool {
		status, ok := e.(event.Status)
		return !ok || !strings.Contains(status.Message, "the kubelet does not answer")
	})); n != 1 {
		t.Errorf("it is told %d times", n)
	}
}

// letGo makes a file go in the workspace of a Job.
func letGo(t *testing.T, job string) {
	t.Helper()
	for _, dir := range must(filepath.Glob(filepath.Join(os.TempDir(), "*", "*", job+"-abcde", "work", "workspace"))) {
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweep: Jobs that belong to no attempt in progress are deleted, and no others.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cfg := configOf(t, s)
	cfg.Live = func(_ context.Context, runID string, attempt int64) (bool, error) {
		return runID == "run_live" && attempt == 2, nil
	}
	e := newExecutor(t, cfg)
	for _, one := range []*task.Task{{RunID: "run_live", Attempt: 1}, {RunID: "run_live", Attempt: 2}, {RunID: "run_dead", Attempt: 1}} {
		if _, err := e.cluster.jobs.Create(t.Context(), e.job(one, false), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Installation = "another"
	other := newExecutor(t, cfg)
	if _, err := other.cluster.jobs.Create(t.Context(), other.job(&task.Task{RunID: "run_other", Attempt: 1}, false), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the dead ones are gone", func() bool { return slices.Equal(s.Names("jobs"), []string{"run-live-2", "run-other-1"}) })
}

func failed[T any](_ T, err error) error { return err }

func resources(name, quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(quantity)}
}

func certificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
