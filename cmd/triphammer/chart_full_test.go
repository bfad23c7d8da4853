//go:build full

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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

	"triphammer/server/sandbox/kubernetes"
	"triphammer/server/secret"
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

// TestChart renders the chart in the ways that its values allow. Each object is one that
// Kubernetes knows, what refers to another finds it, and the program takes its arguments.
func TestChart(t *testing.T) {
	t.Parallel()
	render := helm(t)
	for name, c := range map[string]struct {
		values       string
		with, absent []string
	}{
		"as it is": {"{}", []string{
			"Deployment triphammer-server", "Deployment triphammer-worker", "Service triphammer", "PodDisruptionBudget triphammer-server",
			"Role triphammer-runs", "RoleBinding triphammer-runs", "NetworkPolicy triphammer-server", "NetworkPolicy triphammer-runs",
		}, []string{"Ingress triphammer", "HorizontalPodAutoscaler triphammer-server", "ConfigMap triphammer-runs"}},
		"everything": {`
image: {repository: registry.example.com/triphammer, tag: "1.2"}
imagePullSecrets: [{name: registry}]
server: {repository: "https://example.com/f.git", repositoryToken: {existingSecret: forge, key: read}, baseURL: "https://hooks.example.com", autoscaling: {enabled: true}, nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], extraArgs: ["--rate-limit=100"],
  env: [{name: T, valueFrom: {secretKeyRef: {name: t, key: t}}}]}
service: {annotations: {a: b}}
ingress: {enabled: true, className: nginx, host: hooks.example.com, tlsSecret: tls, annotations: {a: b}}
workers: {names: [gpu], extraArgs: ["--label=zone=b"], nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], env: [{name: T, value: t}]}
runs: {namespace: agents, image: "registry.example.com/agent:1", network: [api.example.com, "*.example.org:8443"], memory: 2GiB, cpus: 1.5, template: {spec: {nodeSelector: {pool: agents}, containers: []}}}
networkPolicy: {ingressFrom: [{namespaceSelector: {matchLabels: {a: b}}}]}
`, []string{"Ingress triphammer", "HorizontalPodAutoscaler triphammer-server", "ConfigMap triphammer-runs"}, nil},
		"pods by address": {"networkPolicy: {podCIDRs: [10.244.0.0/16, 'fd00:1::/48']}", []string{"NetworkPolicy triphammer-server"}, nil},
		"no policies":     {"networkPolicy: {enabled: false}", nil, []string{"NetworkPolicy triphammer-server", "NetworkPolicy triphammer-runs"}},
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
		"store: {password: x}":                                 "additional",
		"sever: {}":                                            "additional",
		"server: {baseURL: hooks.example.com}":                 "baseURL",
		"workers: {maxRuns: 0}":                                "maxRuns",
		"ingress: {enabled: true}":                             "ingress.host",
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

// TestChartGuide runs the commands of docs/kubernetes.md as far as no cluster is needed: kubectl
// prints what it would create, and Helm what it would install. The servers and workers find in
// the guide's Secrets what they look for there, and nothing is left to be made by somebody.
func TestChartGuide(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	guide := pages(t)["../../docs/kubernetes.md"]
	cmd := shell(t, `set -euo pipefail
kubectl() { command kubectl "$@" --dry-run=client --output=yaml; echo ---; }
helm() { [ "$1" = install ] && [ "$4" = --namespace ] && '`+buildHelm(t)+`' "$3" "$5" "${@:6}" <<< '{}'; }
ln -s '`+root+`/deploy' deploy
`+guideBlocks(t, guide, "helm"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	made := make(map[string]bool) // namespaces, and keys of Secrets
	key := filepath.Join(t.TempDir(), "key")
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
			made[o.Metadata.Name] = true
		case "Secret":
			for name, value := range o.Data {
				made[o.Metadata.Namespace+" "+o.Metadata.Name+" "+name] = true
				if name == "sealing.key" {
					if err := os.WriteFile(key, value, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		default:
			chart.WriteString("---\n" + document)
		}
	}
	if _, err := secret.LoadKey(key); err != nil {
		t.Errorf("the server does not take the guide's key: %v", err)
	}
	all := objects(t, strings.ReplaceAll(chart.String(), "---\n", "\n---\n"))
	if all["Deployment triphammer-server"] == nil || all["Deployment triphammer-worker"] == nil {
		t.Fatalf("the guide installs only %d objects:\n%s", len(all), out)
	}
	checkChart(t, all)
	for name, o := range all {
		if namespace := o.(metav1.Object).GetNamespace(); namespace != "" && !made[namespace] {
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
				if found++; !made["triphammer "+v.Secret.SecretName+" "+item.Key] {
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
	command, rest, err := newRoot().Find(c.Args)
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
