package factory

import (
	"fmt"
	"slices"
	"strings"

	"triphammer/schema"
)

// noEffect is a key that the server checks but does not act on, or, if the key is empty,
// a kind of file. The table withoutEffect makes the warnings and docs/reference.md.
// Delete a row when the server acts on its key.
type noEffect struct {
	kind, key string
	instead   string   // what the server does instead
	values    []string // the values without effect; nil: all
}

const noEffectHint = "leave it if another server reads this file"

var withoutEffect = []noEffect{
	{kind: "factory", key: "alias", instead: "no label is derived from it"},
	{kind: "factory", key: "credentialStrategy", instead: ownSecrets},
	{kind: "factory", key: "cloudProviders", instead: ownSecrets},
	{kind: "factory", key: "providers", instead: ownSecrets},
	{kind: "factory", key: "selfImprovement", instead: "no agent is improved"},
	{kind: "factory", key: "scorerDefaults", instead: "no run is scored"},
	{kind: "factory", key: "scoring", instead: "no run is scored"},
	{
		kind: "agent", key: "agentType", instead: "an agent of any type but the foreman is like the others",
		values: []string{"TRIAGE", "SPEC", "IMPLEMENT", "REVIEW", "VERIFY"},
	},
	{kind: "agent", key: "credentialStrategy", instead: ownSecrets},
	{kind: "runner", key: "platform.mac.version", instead: "a run waits for a worker named macos, whatever its version"},
	{kind: "runner", key: "platform.linux.registryCredentialSecretName", instead: "images are fetched with the login of the server's machine"},
	{kind: "scorer", key: "", instead: "no run is scored"},
	{kind: "benchmark suite", key: "", instead: "no benchmark is run"},
	{kind: "benchmark task", key: "", instead: "no benchmark is run"},
}

const ownSecrets = "a run has the secrets that it is granted"

// warnOfNoEffect warns of each key without effect that is set.
func (l *loader) warnOfNoEffect() {
	for _, d := range l.docs {
		for _, row := range withoutEffect {
			if row.kind != d.kind.id {
				continue
			}
			at, n, what := schema.At{}, d.Root, "this file"
			if row.key != "" {
				what = row.key
				for step := range strings.SplitSeq(row.key, ".") {
					if n != nil {
						at = n.KeyAt(step)
					}
					n = n.Get(step)
				}
			}
			if says(n) && (row.values == nil || slices.Contains(row.values, textOf(n))) {
				d.Warn(at, schema.NoEffect, noEffectHint, fmt.Sprintf("%s has no effect on this server: %s", what, row.instead))
			}
		}
	}
}

// says tells whether a value is neither null nor empty.
func says(n *schema.Node) bool {
	return isSet(n) && (n.Kind != schema.List || len(n.Items) > 0) && (n.Kind != schema.Mapping || len(n.Fields) > 0)
}
