//go:build full

package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/store/storetest"
	"triphammer/server/worker/executor/kubernetes"
)

// buildHelm makes a program that renders charts with Helm's own library.
func buildHelm(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "helm")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../testdata/helm"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func helm(t *testing.T) func(values string) (string, error) {
	t.Helper()
	program := buildHelm(t)
	return func(values string) (string, error) {
		cmd := exec.Command(program, "../../deploy/helm/triphammer", "triphammer")
		cmd.Stdin = strings.NewReader(values)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%w: %s", err, stderr.String())
		}
		return out.String(), nil
	}
}

// published are the OpenAPI schemas of Kubernetes that client-go has for tests, by group, version
// and kind: those of the core, of apps and of batch. They say what the types do not: which fields
// must be there.
var published = sync.OnceValues(func() (map[string]*openapi3.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "openapi/openapitest/testdata/*_openapi.json"))
	if err != nil {
		return nil, err
	}
	all := make(map[string]*openapi3.Schema)
	for _, file := range files {
		doc, err := openapi3.NewLoader().LoadFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, s := range doc.Components.Schemas {
			kinds, _ := s.Value.Extensions["x-kubernetes-group-version-kind"].([]any)
			for _, one := range kinds {
				k := one.(map[string]any)
				all[fmt.Sprint(schema.GroupVersionKind{Group: k["group"].(string), Version: k["version"].(string), Kind: k["kind"].(string)})] = s.Value
			}
		}
	}
	return all, nil
})

// incomplete is why the object is not as the schema of its kind says, if there is one.
func incomplete(t *testing.T, kind schema.GroupVersionKind, value any) error {
	t.Helper()
	all, err := published()
	if err != nil {
		t.Fatal(err)
	}
	s := all[fmt.Sprint(kind)]
	if s == nil {
		return nil
	}
	return s.VisitJSON(value, openapi3.MultiErrors())
}

// objects decodes what Helm renders, strictly by Kubernetes' own types, and holds it to their
// schemas: an unknown, a double, a wrong or a missing field is an error.
func objects(t *testing.T, text string) map[string]runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, netv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	all := make(map[string]runtime.Object)
	for document := range strings.SplitSeq(text, "\n---\n") {
		if !strings.Contains(document, "apiVersion:") {
			continue
		}
		if strings.Contains(document, "kind: PodMonitor") {
			m := &podMonitor{}
			if err := yaml.UnmarshalStrict([]byte(document), m); err != nil {
				t.Errorf("%v:\n%s", err, document)
			}
			all["PodMonitor "+m.Name] = m
			continue
		}
		o, kind, err := decoder.Decode([]byte(strings.TrimPrefix(document, "---\n")), nil, nil)
		if err != nil {
			t.Errorf("%v:\n%s", err, document)
			continue
		}
		var value any
		if err := errors.Join(yaml.Unmarshal([]byte(document), &value), incomplete(t, *kind, value)); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
		m := o.(metav1.Object)
		name := kind.Kind + " " + m.GetName()
		if all[name] != nil || m.GetName() == "" || len(m.GetLabels()) == 0 {
			t.Errorf("%s is there twice, or has no name or labels", name)
		}
		all[name] = o
	}
	return all
}

// podMonitor is what of the resource of Prometheus' operator the chart uses
// (monitoring.coreos.com/v1, PodMonitor).
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port          string `json:"port"`
			Interval      string `json:"interval"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (m *podMonitor) DeepCopyObject() runtime.Object { return m }

// TestChart renders the chart in the ways that its values allow. Each object is one that
// Kubernetes knows, what refers to another finds it, and the program takes its arguments.
func TestChart(t *testing.T) {
	t.Parallel()
	render := helm(t)
	for name, c := range map[string]struct {
		values       string
		with, absent []string
	}{
		"as it is": {`image: {tag: "1"}`, []string{
			"Deployment triphammer-server", "Deployment triphammer-worker", "Service triphammer", "PodDisruptionBudget triphammer-server",
			"Role triphammer-runs", "RoleBinding triphammer-runs", "NetworkPolicy triphammer-server", "NetworkPolicy triphammer-runs",
		}, []string{"Ingress triphammer", "HorizontalPodAutoscaler triphammer-server", "ConfigMap triphammer-runs", "PodMonitor triphammer-server", "PodMonitor triphammer-worker"}},
		"everything": {`
image: {repository: registry.example.com/triphammer, tag: "1.2"}
imagePullSecrets: [{name: registry}]
store: {ca: {existingSecret: ca, key: root.pem}}
secrets: {existingSecret: managed}
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: 7}
extraVolumes: [{name: more, secret: {secretName: more}}]
extraVolumeMounts: [{name: more, mountPath: /etc/more, readOnly: true}]
server: {repository: "https://example.com/f.git", repositoryToken: {existingSecret: forge, key: read}, baseURL: "https://hooks.example.com", autoscaling: {enabled: true}, nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], extraArgs: ["--rate-limit=100"],
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: host, labelSelector: {matchLabels: {a: b}}}}]}},
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], priorityClassName: high, podAnnotations: {a: b}, podLabels: {team: x, "on": "true"}, shutdownDelaySeconds: 30,
  env: [{name: T, valueFrom: {secretKeyRef: {name: t, key: t}}}]}
service: {annotations: {a: b}}
ingress: {enabled: true, className: nginx, host: hooks.example.com, tlsSecret: tls, annotations: {a: b}}
podMonitor: {enabled: true, labels: {release: prometheus}, serverKey: {existingSecret: scraper}}
workers: {affinity: {nodeAffinity: {}}, priorityClassName: low, podAnnotations: {c: d}, podLabels: {team: w},
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: host, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {own: "1"}}}], names: [gpu], extraArgs: ["--label=zone=b"], nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], env: [{name: T, value: t}]}
runs: {namespace: agents, image: "registry.example.com/agent:1", network: [api.example.com, "*.example.org:8443"], memory: 2GiB, cpus: 1.5, template: {spec: {nodeSelector: {pool: agents}, containers: []}}}
networkPolicy: {ingressFrom: [{namespaceSelector: {matchLabels: {a: b}}}]}
`, []string{"Ingress triphammer", "HorizontalPodAutoscaler triphammer-server", "ConfigMap triphammer-runs", "PodMonitor triphammer-server", "PodMonitor triphammer-worker"}, nil},
		"pods by address": {"image: {tag: a}\nnetworkPolicy: {podCIDRs: [10.244.0.0/16, 'fd00:1::/48']}", []string{"NetworkPolicy triphammer-server"}, nil},
		"no policies":     {"image: {tag: a}\nnetworkPolicy: {enabled: false}", nil, []string{"NetworkPolicy triphammer-server", "NetworkPolicy triphammer-runs"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(c.values)
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, text)
			for _, want := range c.with {
				if all[want] == nil {
					t.Errorf("there is no %s", want)
				}
			}
			for _, not := range c.absent {
				if all[not] != nil {
					t.Errorf("there is a %s", not)
				}
			}
			checkChart(t, all)
			if name == "everything" {
				checkPlacing(t, all)
			}
			if name == "pods by address" {
				var except []string
				for _, from := range all["NetworkPolicy triphammer-server"].(*netv1.NetworkPolicy).Spec.Ingress[0].From {
					if from.IPBlock != nil {
						except = append(except, from.IPBlock.CIDR+" but "+strings.Join(from.IPBlock.Except, ","))
					}
				}
				if !slices.Equal(except, []string{"0.0.0.0/0 but 10.244.0.0/16", "::/0 but fd00:1::/48"}) {
					t.Errorf("the servers are reached from %v", except)
				}
			}
		})
	}
	for _, kind := range []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service")} {
		if err := incomplete(t, kind, map[string]any{"spec": map[string]any{"selector": 1.0}}); err == nil {
			t.Errorf("its schema takes any %s", kind.Kind)
		}
	}
	for values, want := range map[string]string{
		"server: {replicas: 1}":                                "image.tag",
		"image: {tag: a}\npodMonitor: {enabled: true}":         "podMonitor.serverKey",
		"store: {password: x}":                                 "additional",
		"sever: {}":                                            "additional",
		"server: {baseURL: hooks.example.com}":                 "baseURL",
		"workers: {maxRuns: 0}":                                "maxRuns",
		"image: {tag: a}\ningress: {enabled: true}":            "ingress.host",
		`store: {existingSecret: "", key: url}`:                "existingSecret",
		"server: {autoscaling: {enabled: maybe}}":              "enabled",
		"image: {repository: x, pullPolicy: Sometimes}":        "pullPolicy",
		"networkPolicy: {enabled: true, egress: [everywhere]}": "additional",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v", values, err)
		}
	}
}

// chartInstalled runs the commands of docs/kubernetes.md that install, as far as no cluster is needed. It
// returns the namespaces and, by namespace, name and key, what is in the Secrets; and the objects of
// the chart.
func chartInstalled(t *testing.T) (made map[string][]byte, all map[string]runtime.Object) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := shell(t, `set -euo pipefail
kubectl() { command kubectl "$@" --dry-run=client --output=yaml; echo ---; }
helm() { [ "$1" = install ] && [ "$4" = --namespace ] && '`+buildHelm(t)+`' "$3" "$5" "${@:6}" <<< '{}'; }
ln -s '`+root+`/deploy' deploy
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -out ca.crt -subj /CN=authority -days 1 2>/dev/null
`+guideBlocks(t, pages(t)["../../docs/kubernetes.md"], "helm"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	made = make(map[string][]byte)
	var chart strings.Builder
	for document := range strings.SplitSeq(string(out), "---\n") {
		var o struct {
			Kind     string
			Metadata metav1.ObjectMeta
			Data     map[string][]byte // which is base64 in YAML
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		switch o.Kind {
		case "Namespace":
			made[o.Metadata.Name] = []byte{}
		case "Secret":
			for name, value := range o.Data {
				made[o.Metadata.Namespace+" "+o.Metadata.Name+" "+name] = value
			}
		default:
			chart.WriteString("---\n" + document)
		}
	}
	all = objects(t, strings.ReplaceAll(chart.String(), "---\n", "\n---\n"))
	if all["Deployment triphammer-server"] == nil || all["Deployment triphammer-worker"] == nil {
		t.Fatalf("the guide installs only %d objects:\n%s", len(all), out)
	}
	return made, all
}

// TestChartGuide runs the commands of docs/kubernetes.md as far as no cluster is needed: kubectl
// prints what it would create, and Helm what it would install. The servers and workers find in
// the guide's Secrets what they look for there, and nothing is left to be made by somebody.
func TestChartGuide(t *testing.T) {
	t.Parallel()
	made, all := chartInstalled(t)
	checkChart(t, all)
	for name, o := range all {
		if namespace := o.(metav1.Object).GetNamespace(); namespace != "" && made[namespace] == nil {
			t.Errorf("%s is in the namespace %q, which the guide does not make", name, namespace)
		}
		d, is := o.(*appsv1.Deployment)
		if !is {
			continue
		}
		found := 0
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			for _, item := range v.Secret.Items {
				if found++; made["triphammer "+v.Secret.SecretName+" "+item.Key] == nil {
					t.Errorf("%s needs the key %s of the Secret %s, which the guide does not make", name, item.Key, v.Secret.SecretName)
				}
			}
		}
		if found < 2 {
			t.Errorf("%s has only %d Secrets: %v", name, found, d.Spec.Template.Spec.Volumes)
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Image != "registry.example.com/triphammer:1.0" {
				t.Errorf("%s has the image %s", name, c.Image)
			}
		}
	}
}

// TestFirstDelivery follows docs/kubernetes.md to its end: a server with the settings and the Secrets
// of the chart, on an empty database, becomes ready by itself (helm install --wait), and the commands
// of the guide print the URL of the webhook and a link to sign in. A delivery that is signed with the
// guide's secret is accepted there.
func TestFirstDelivery(t *testing.T) {
	made, all := chartInstalled(t)
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	w.write(map[string]string{
		"factory.yaml": factoryYAML, "webhooks/github.yaml": "secretName: GITHUB_SECRET\nauthMode: signature\nsignatureScheme: github\n",
	})
	w.git("init", "-q", "--initial-branch=main")
	w.push()
	w.cleanUp()
	p := all["Deployment triphammer-server"].(*appsv1.Deployment).Spec.Template.Spec
	c := p.Containers[0]
	at := func(path string) string { return filepath.Join(w.dir, "pod", path) }
	for _, v := range p.Volumes {
		mount := c.VolumeMounts[slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })]
		if err := os.MkdirAll(at(mount.MountPath), 0o700); err != nil {
			t.Fatal(err)
		}
		if v.Secret == nil {
			continue
		}
		files := make(map[string][]byte)
		for name, value := range made {
			if key, of := strings.CutPrefix(name, "triphammer "+v.Secret.SecretName+" "); of {
				files[key] = value
			}
		}
		if len(v.Secret.Items) > 0 {
			item := v.Secret.Items[0]
			files = map[string][]byte{item.Path: files[item.Key]}
		}
		if v.Name == "store" {
			files["url"] = []byte(storetest.Postgres(t))
		}
		for name, value := range files {
			if err := os.WriteFile(filepath.Join(at(mount.MountPath), name), value, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, v := range c.Env {
		if strings.HasPrefix(v.Value, "/") {
			v.Value = at(v.Value)
		}
		w.env = append(w.env, v.Name+"="+v.Value)
	}
	var args []string
	for _, arg := range c.Args[1:] {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--listen": // the test has no port 8787
		case "--repo":
			args = append(args, "--repo=repo")
		default:
			args = append(args, arg)
		}
	}
	w.cmd = w.command(append([]string{"serve"}, args...)...)
	w.logs = newLogFile(t, w.dir)
	w.cmd.Stderr, w.end = w.logs.file, make(chan struct{})
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, end chan struct{}) {
		_ = cmd.Wait() // cleanUp ends it
		close(end)
	}(w.cmd, w.end)
	eventually(t, "the server is ready", 30*time.Second, func() bool { return w.ready() == http.StatusOK })

	cmd := shell(t, `set -euo pipefail
kubectl() {
	case "$3 $4" in
	'exec deploy/triphammer-server') [ "$5 $6" = '-- triphammer' ] && "$PROGRAM" "${@:7}" ;;
	'port-forward svc/triphammer') [ "$5" = 8787:80 ] ;;
	*) false ;;
	esac
}
`+guideBlocks(t, pages(t)["../../docs/kubernetes.md"], "cluster"))
	cmd.Env = append(append(cmd.Env, w.env...), "PROGRAM="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	public := "https://hooks.example.com"
	hook := regexp.MustCompile(public + `(/webhooks/w/\S+)`).FindSubmatch(out)
	link := regexp.MustCompile(public + `(/\S*login\S*)`).FindSubmatch(out)
	if hook == nil || link == nil {
		t.Fatalf("the guide does not show a URL and a link:\n%s", out)
	}
	mac := hmac.New(sha256.New, made["triphammer triphammer-secrets GITHUB_SECRET"])
	mac.Write([]byte("{}"))
	a := post(t, http.MethodPost, "http://"+w.addr+string(hook[1]), strings.NewReader("{}"), http.Header{
		"Content-Type": {"application/json"}, "X-Github-Event": {"ping"}, "X-Github-Delivery": {"first"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
	})
	if a.status != http.StatusAccepted {
		t.Errorf("the first delivery: %d %s", a.status, a.body)
	}
	if a := post(t, http.MethodGet, "http://"+w.addr+string(link[1]), nil, nil); a.status != http.StatusOK {
		t.Errorf("the link to sign in: %d %s", a.status, a.body)
	}
}

// checkPlacing looks for what the values "everything" say of pods.
func checkPlacing(t *testing.T, all map[string]runtime.Object) {
	t.Helper()
	for name, want := range map[string]string{
		"server": `high map[a:b] map[app.kubernetes.io/component:server app.kubernetes.io/instance:triphammer app.kubernetes.io/name:triphammer on:true team:x] 90 ` +
			`zone map[app.kubernetes.io/component:server app.kubernetes.io/instance:triphammer app.kubernetes.io/name:triphammer]`,
		"worker": `low map[c:d] map[app.kubernetes.io/component:worker app.kubernetes.io/instance:triphammer app.kubernetes.io/name:triphammer team:w] 60 host map[own:1]`,
	} {
		d := all["Deployment triphammer-"+name].(*appsv1.Deployment).Spec.Template
		spread := d.Spec.TopologySpreadConstraints[0]
		delete(d.Annotations, "checksum/template")
		got := fmt.Sprint(d.Spec.PriorityClassName, " ", d.Annotations, " ", d.Labels, " ", *d.Spec.TerminationGracePeriodSeconds, " ", spread.TopologyKey, " ", spread.LabelSelector.MatchLabels)
		if got != want || d.Spec.Affinity == nil {
			t.Errorf("the pods of %s are\n%s and not\n%s; affinity %v", name, got, want, d.Spec.Affinity)
		}
		if c := d.Spec.SecurityContext; c.RunAsUser != nil || c.RunAsGroup != nil || *c.FSGroup != 7 {
			t.Errorf("the user of %s is not that of the values: %+v", name, c)
		}
		var secrets []string
		for _, v := range d.Spec.Volumes {
			if v.Secret != nil {
				secrets = append(secrets, v.Secret.SecretName)
			}
		}
		for _, secret := range []string{"ca", "managed", "more"} {
			if !slices.Contains(secrets, secret) {
				t.Errorf("%s does not have the Secret %s", name, secret)
			}
		}
		for _, want := range []corev1.EnvVar{{Name: "PGSSLROOTCERT", Value: "/etc/triphammer/store-ca/ca.crt"}, {Name: "TRIPHAMMER_SECRETS_DIR", Value: "/etc/triphammer/secrets"}} {
			if !slices.Contains(d.Spec.Containers[0].Env, want) {
				t.Errorf("%s lacks %v", name, want)
			}
		}
		m := all["PodMonitor triphammer-"+name].(*podMonitor)
		selects, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
		endpoint := m.Spec.PodMetricsEndpoints[0]
		if err != nil || !selects.Matches(labels.Set(d.Labels)) || endpoint.Port != d.Spec.Containers[0].Ports[0].Name || m.Labels["release"] != "prometheus" {
			t.Errorf("the monitor of %s is %+v: %v", name, m, err)
		}
		if key := endpoint.Authorization.Credentials; (key.Name == "scraper" && key.Key == "key") != (name == "server") {
			t.Errorf("the monitor of %s shows the key %+v", name, key)
		}
	}
}

// checkChart looks at what the types do not say.
func checkChart(t *testing.T, all map[string]runtime.Object) {
	t.Helper()
	for name, o := range all {
		switch o := o.(type) {
		case *appsv1.Deployment:
			checkDeployment(t, name, o, all)
		case *corev1.Service:
			target := all["Deployment triphammer-server"].(*appsv1.Deployment).Spec.Template
			if !labels.SelectorFromSet(o.Spec.Selector).Matches(labels.Set(target.Labels)) || o.Spec.Ports[0].TargetPort.String() != target.Spec.Containers[0].Ports[0].Name {
				t.Errorf("%s does not lead to the servers", name)
			}
		case *policyv1.PodDisruptionBudget:
			if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil || o.Spec.MinAvailable == nil || s.Empty() {
				t.Errorf("%s: %v", name, err)
			}
		case *netv1.Ingress:
			for _, p := range o.Spec.Rules[0].HTTP.Paths {
				if p.Path != "/webhooks/w/" || p.Backend.Service.Name != "triphammer" || p.PathType == nil {
					t.Errorf("%s publishes %s", name, p.Path)
				}
			}
		case *rbacv1.Role:
			var want []rbacv1.PolicyRule
			for _, n := range kubernetes.Needed {
				resource := n.Resource
				if n.Subresource != "" {
					resource += "/" + n.Subresource
				}
				want = append(want, rbacv1.PolicyRule{Verbs: n.Verbs, APIGroups: []string{n.Group}, Resources: []string{resource}})
			}
			if fmt.Sprint(o.Rules) != fmt.Sprint(want) {
				t.Errorf("%s has %v, and not %v", name, o.Rules, want)
			}
			if binding := all["RoleBinding "+o.Name].(*rbacv1.RoleBinding); binding.Namespace != o.Namespace || binding.RoleRef.Name != o.Name || all["ServiceAccount "+binding.Subjects[0].Name] == nil {
				t.Errorf("the binding is %+v", binding)
			}
		case *autoscalingv2.HorizontalPodAutoscaler:
			if d := all["Deployment "+o.Spec.ScaleTargetRef.Name].(*appsv1.Deployment); d == nil || d.Spec.Replicas != nil {
				t.Errorf("%s and the Deployment both say how many", name)
			}
		case *corev1.Secret:
			t.Errorf("%s: the chart makes no secrets", name)
		}
	}
}

func checkDeployment(t *testing.T, name string, d *appsv1.Deployment, all map[string]runtime.Object) {
	t.Helper()
	p := d.Spec.Template.Spec
	s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || !s.Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("%s does not select its own pods: %v", name, err)
	}
	if all["ServiceAccount "+p.ServiceAccountName] == nil {
		t.Errorf("%s: there is no account %s", name, p.ServiceAccountName)
	}
	if (d.Name == "triphammer-worker") != *p.AutomountServiceAccountToken {
		t.Errorf("%s: whether it has a token of the cluster is wrong", name)
	}
	if !*p.SecurityContext.RunAsNonRoot || p.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: %+v", name, p.SecurityContext)
	}
	volumes := make(map[string]bool)
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	c := p.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: there is no volume %s", name, m.Name)
		}
		// What is mounted belongs to root and is open to others: no server takes that as its data directory.
		if slices.Contains(c.Env, corev1.EnvVar{Name: "TRIPHAMMER_DATA", Value: m.MountPath}) {
			t.Errorf("%s: %s is a volume, and no folder that the program makes itself", name, m.MountPath)
		}
	}
	for _, argument := range c.Args {
		if _, file, is := strings.Cut(argument, "-file="); is && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
			t.Errorf("%s: no volume has the file of %s", name, argument)
		}
	}
	if *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || c.LivenessProbe == nil || c.ReadinessProbe == nil || c.StartupProbe == nil {
		t.Errorf("%s: the container is %+v", name, c)
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == probe.HTTPGet.Port.String() }) {
			t.Errorf("%s: a probe asks at %s", name, probe.HTTPGet.Port.String())
		}
	}
	command, rest, err := client.NewRoot(thisHost).Find(c.Args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil {
		t.Errorf("%s: the program does not take %v: %v", name, c.Args, err)
		return
	}
	for _, v := range c.Env {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(v.Name, "TRIPHAMMER_"), "_", "-"))
		known := []string{"store-file", "key-file"}
		switch f := command.Flags().Lookup(flag); {
		case !strings.HasPrefix(v.Name, "TRIPHAMMER_") || slices.Contains(known, flag):
		case f == nil:
			t.Errorf("%s: there is no setting for %s", name, v.Name)
		default:
			if err := f.Value.Set(v.Value); err != nil {
				t.Errorf("%s: %s: %v", name, v.Name, err)
			}
		}
	}
}
