package factory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/schema"
)

// strangerTrees are trees within the caps of the validate endpoint (256 files, 2
// MiB) that cost much if they are let.
func strangerTrees() map[string]map[string]string {
	long := func(i int) string {
		return strings.Repeat("abcdefgh", 7) + fmt.Sprintf("%08x", uint32(i)*2654435761)
	}
	var listed, expect strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&listed, "%s,", long(i)[:56]+fmt.Sprint(1_000_000+i)+"x")
		fmt.Fprintf(&expect, "%s,", long(i))
	}
	fill := func(folder, name, text string, n int) map[string]string {
		files := map[string]string{"factory.yaml": "schemaVersion: v1alpha1\nname: X\n"}
		for i := range min(n, 250) {
			files[folder+"/"+fmt.Sprintf(name, i)] = text
		}
		return files
	}
	trees := map[string]map[string]string{
		"unknown keys": fill("webhooks", "w%d.yaml", "secretName: S\n"+unknownKeys(900), 200),
		"wrong words":  fill("runners", "r%d.yaml", "setupCommands: ["+strings.Repeat("1,", 4_000)+"]\n", 200),
		"secrets":      fill("environments", "e%d.yaml", "secrets: ["+expect.String()+"]\n", 8),
	}
	// Names that are almost those of the tree's webhooks and agents.
	near := fill("automations", "a%d.md", "---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: ["+listed.String()+"]}}]\n---\n", 9)
	for i := range 200 {
		near["webhooks/"+long(i)+".yaml"] = "secretName: S\n"
	}
	trees["28,000 names that are near"] = near
	agents := fill("scorers", "s%d/scorer.md", "---\nagents: ["+listed.String()+"]\nlabels: [{value: a, score: 1}]\npassingScore: 1\nmodel: m\n---\nx", 9)
	for i := range 200 {
		agents["agents/"+long(i)+"/agent.md"] = "---\n---\n"
	}
	trees["28,000 agents that are near"] = agents
	return trees
}

// TestStrangerTrees: what anybody may have checked costs little and says little,
// whatever is in it.
func TestStrangerTrees(t *testing.T) {
	const (
		findings    = 1000
		strangerCPU = 3 * time.Second // of a loaded machine, where names that are near took 19 s of it
	)
	for name, files := range strangerTrees() {
		size := 0
		for _, text := range files {
			size += len(text)
		}
		before := cpuTime(t)
		_, report := load(t, tree(files), Options{MaxFindings: findings})
		cpu := cpuTime(t) - before
		t.Logf("%s: %d files, %d KB: %v CPU, %d findings, %d deferred", name, len(files), size>>10, cpu.Round(time.Millisecond), len(report.Diagnostics), len(report.Deferred))
		if all := report.Diagnostics; len(all) > findings {
			rest := slices.IndexFunc(all, func(d schema.Diagnostic) bool {
				return d.Code == schema.TooMany && d.Path == "factory.yaml" && strings.Contains(d.Message, "more of the factory's findings are left out")
			})
			if len(all) != findings+1 || rest < 0 {
				t.Errorf("%s: %d findings, and where it says how many more is %d", name, len(all), rest)
			}
		}
		if cpu > slowdown*strangerCPU {
			t.Errorf("%s: %v of CPU time, at most %v is expected", name, cpu, slowdown*strangerCPU)
		}
	}
}
