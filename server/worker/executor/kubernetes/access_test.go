package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the rules of the chart's role")

// rulesFile is the part of the Helm chart that has the rules of the role.
const rulesFile = "../../../../deploy/helm/triphammer/files/executor-rules.yaml"

// TestRules holds the role of the Helm chart to the table of what the executor does.
func TestRules(t *testing.T) {
	if *update {
		if err := os.WriteFile(rulesFile, []byte(rulesText()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(rulesFile)
	if err != nil || string(got) != rulesText() {
		t.Errorf("%s is not that of access.go (go test ./server/worker/executor/kubernetes -run Rules -update): %v", rulesFile, err)
	}
}

// rulesText is the rules of the role, as YAML.
func rulesText() string {
	var b strings.Builder
	b.WriteString("# Written by `go test ./server/worker/executor/kubernetes -run Rules -update` of access.go.\n")
	for _, a := range Needed {
		verbs := slices.Clone(a.Verbs)
		for i, v := range verbs {
			verbs[i] = fmt.Sprintf("%q", v)
		}
		fmt.Fprintf(&b, "# %s\n- apiGroups: [%q]\n  resources: [%q]\n  verbs: [%s]\n", a.Why, a.Group, a.resource(), strings.Join(verbs, ", "))
	}
	return b.String()
}

// role is the role of the chart, as a cluster reads it.
func role(t testing.TB) (rules []rbacv1.PolicyRule) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rules
}
