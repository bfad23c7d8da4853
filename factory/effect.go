package factory

import (
	"fmt"
	"slices"
	"strings"

	"triphammer/schema"
)

// noEffect is a key that is checked but not acted on; with an empty key, a kind of
// file. The warnings and docs/reference.md are made of this table. Delete a row when
// the server acts on its key.
type noEffect struct {
	kind, key string
	instead   string   // what the server does instead
	values    []string // the values without effect; nil: all
	except    string   // the harness type, in the same mapping, with which the key has an effect; a missing type may be this one
}

const (
	noEffectHint = "leave it if another server reads this file"
	ownMachine   = "a run starts on the server's machine"
)

var withoutEffect = slices.Concat([]noEffect{
	{kind: "factory", key: "alias", instead: "no label is derived from it"},
	{kind: "factory", key: "credentialStrategy", instead: "a run has the secrets that it is granted"},
	{kind: "factory", key: "repositories", instead: "a workspace holds the repositories of its environment"},
	{kind: "factory", key: "codeForges", instead: "no code forge is connected"},
	{kind: "factory", key: "mcpServers", instead: "agents are given no MCP servers"},
	{kind: "factory", key: "cloudProviders", instead: "a run has the secrets that it is granted"},
	{kind: "factory", key: "providers", instead: "a run has the secrets that it is granted"},
	{kind: "factory", key: "integrations", instead: "none is attached"},
	{
		kind: "agent", key: "agentType", instead: "an agent of any type but the foreman is like the others",
		values: []string{"TRIAGE", "SPEC", "IMPLEMENT", "REVIEW", "VERIFY"},
	},
	{kind: "agent", key: "credentialStrategy", instead: "a run has the secrets that it is granted"},
	{kind: "runner", key: "", instead: ownMachine},
	{kind: "environment", key: "dockerImage", instead: "the agent is a process of the server's machine"},
	{kind: "environment", key: "budget", instead: "nothing is counted, and no run is stopped"},
	{kind: "scorer", key: "", instead: "no run is scored"},
	{kind: "benchmark suite", key: "", instead: "no benchmark is run"},
	{kind: "benchmark task", key: "", instead: "no benchmark is run"},
}, inheritedWithoutEffect("factory", "agentDefaults."), inheritedWithoutEffect("agent", ""), inheritedWithoutEffect("automation", ""))

func inheritedWithoutEffect(kind, prefix string) []noEffect {
	return []noEffect{
		{kind: kind, key: prefix + "runner", instead: ownMachine},
		{kind: kind, key: prefix + "workerHost", instead: ownMachine},
		{kind: kind, key: prefix + "mcpServers", instead: "agents are given no MCP servers"},
		{kind: kind, key: prefix + "harness.reasoningLevel", instead: "codex alone is told", except: "codex"},
		{
			kind: kind, key: prefix + "harness.auth.source", instead: "the agent has no variables of a worker",
			values: []string{"workerEnvironment"},
		},
	}
}

// warnOfNoEffect warns of each key without effect that is set.
func (l *loader) warnOfNoEffect() {
	for _, d := range l.docs {
		for _, row := range withoutEffect {
			if row.kind != d.kind.id {
				continue
			}
			at, n, in, what := schema.At{}, d.Root, (*schema.Node)(nil), "this file"
			if row.key != "" {
				what = row.key
				for step := range strings.SplitSeq(row.key, ".") {
					if n != nil {
						at = n.KeyAt(step)
					}
					in, n = n, n.Get(step)
				}
			}
			if harness := textOf(in.Get("type")); row.except != "" && (harness == "" || harness == row.except) {
				continue
			}
			if says(n) && (row.values == nil || slices.Contains(row.values, textOf(n))) {
				d.Warn(at, schema.NoEffect, noEffectHint, fmt.Sprintf("%s has no effect on this server: %s", what, row.instead))
			}
		}
	}
	if info, err := l.lstat("skills"); err == nil && info.IsDir() {
		c := l.collector("skills")
		c.Warn(schema.At{}, schema.NoEffect, noEffectHint, "this folder has no effect on this server: agents are given no skills")
		l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
	}
}

// says tells whether a value is neither null nor empty.
func says(n *schema.Node) bool {
	return isSet(n) && (n.Kind != schema.List || len(n.Items) > 0) && (n.Kind != schema.Mapping || len(n.Fields) > 0)
}
