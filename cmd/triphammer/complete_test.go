package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/terms"
)

// otherArguments are words of usage lines that name nothing that is there, and why.
var otherArguments = map[string]string{
	"NEW":  "it is a new name",
	"PATH": "the server has more paths than a shell can show", // of api; other paths are files
}

// completionWorld has one of each thing that commands name.
func completionWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, map[string]string{
		"factory.yaml":                     factoryYAML,
		"webhooks/ci.yaml":                 "secretName: S\n",
		"environments/env.yaml":            "description: The app\ncommand: ['true']\n",
		"agents/fixer/agent.md":            "---\nagentType: FOREMAN\n---\nRepair it.\n",
		"automations/triage/automation.md": strings.Replace(automationFile("ci", ""), "---\n", "---\nsubject: '{service}'\n", 1),
	})
	w.start()
	return w
}

// completed is what a shell is offered for the last of the words.
func (w *world) completed(words ...string) (offered []string) {
	w.t.Helper()
	for line := range strings.Lines(w.run("", append([]string{"__complete"}, words...)...)) {
		name, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !strings.HasPrefix(name, ":") {
			offered = append(offered, name)
		}
	}
	return offered
}

// TestCompletionOfIDs: a command that takes ids of all kinds offers those of the one whose prefix
// is written.
func TestCompletionOfIDs(t *testing.T) {
	w := completionWorld(t)
	w.run("", "automations", "run", "triage", "--payload", "{}")
	w.run("", "automations", "run", "triage", "--payload", "{}")
	for word, want := range map[string]int{terms.RunPrefix: 2, terms.ApplyPrefix: 1, terms.DeliveryPrefix: 0} {
		ids := slices.DeleteFunc(w.completed("open", word), func(one string) bool { return !strings.Contains(one, "_") })
		if len(ids) != want || slices.ContainsFunc(ids, func(id string) bool { return !strings.HasPrefix(id, word) }) {
			t.Errorf("open %s: %v", word, ids)
		}
	}
}

// TestCompletionNouns checks that each table of completion is used.
func TestCompletionNouns(t *testing.T) {
	used := make(map[string]bool)
	everyCommand(commandTree(), func(c *cobra.Command) {
		used[c.Name()] = true
		c.Flags().VisitAll(func(f *pflag.Flag) { used["--"+f.Name] = true })
	})
	names := slices.Collect(maps.Keys(client.Completions))
	for _, table := range [][]string{slices.Collect(maps.Keys(client.CompletionFlags)), slices.Collect(maps.Keys(client.CompletionWords))} {
		for _, name := range table {
			names = append(names, "--"+name)
		}
	}
	for _, name := range names {
		if !used[name] {
			t.Errorf("no command has %s", name)
		}
	}
}

// TestCompletionOfSilentServer: a server that does not answer holds a shell up for a moment alone,
// also if it listens.
func TestCompletionOfSilentServer(t *testing.T) {
	w := completionWorld(t)
	w.signal(syscall.SIGSTOP)
	before := time.Now()
	if words := w.completed("webhooks", "show", ""); len(words) > 0 {
		t.Errorf("a server that is stopped offered %v", words)
	}
	if took := time.Since(before); took >= 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
