package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/term/termtest"

	"github.com/spf13/cobra"
)

// TestListsCutProseAlone: on terminals of any width, no list shows a part of a name, an id or a state.
func TestListsCutProseAlone(t *testing.T) {
	t.Parallel()
	long := func(name string) string { return name + strings.Repeat("-and-more", 4) }
	hook, env, automation := long("hook"), long("environment"), long("automation")
	w := newWorld(t, map[string]string{
		"factory.yaml":                                 factoryYAML,
		"webhooks/" + hook + ".yaml":                   "secretName: S\n",
		"environments/" + env + ".yaml":                "description: The application, with all that belongs to it\ncommand: ['true']\n",
		"agents/" + long("agent") + "/agent.md":        "---\nagentType: FOREMAN\n---\nRepair it.\n",
		"automations/" + automation + "/automation.md": strings.Replace(automationFile(hook, ""), "environmentId: env", "environmentId: "+env, 1),
	})
	w.start()
	w.run("", "webhooks", "test", hook, "--payload", "{}")
	w.run("", "schedules", "create", long("schedule"), "--cron", "0 6 * * *", "--prompt", "Tidy.", "--environment", env)
	w.run("", "keys", "create", long("ada"))
	w.run("a-key", "context", "add", long("prod"), "--server", "http://127.0.0.1:1", "--unchecked")
	lists := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		if c.Name() != "list" || len(client.ArgumentsOf(c)) > 0 {
			return
		}
		lists++
		for _, width := range []uint16{60, 80, 120} {
			shown := termtest.Shown(t, width, func(program *os.File) error {
				cmd := w.command(append(strings.Fields(c.CommandPath())[1:], "--color", "never")...)
				cmd.Stdout = program
				return cmd.Run()
			})
			lines := strings.Split(shown, "\n")
			header := []rune(lines[0])
			for at := 0; at < len(header); {
				name, _, _ := strings.Cut(string(header[at:]), "  ")
				end := at + len([]rune(name))
				for end < len(header) && header[end] == ' ' {
					end++
				}
				if at == 0 || slices.Contains([]string{"ID", "STATE", "OUTCOME", "ENABLED", "WEBHOOK", "ENVIRONMENT", "FACTORY", "RUNS"}, name) {
					for _, line := range lines[1:] {
						if text := []rune(line); at < len(text) && slices.Contains(text[at:min(end, len(text))], '…') {
							t.Errorf("%s, %d columns: %s is cut:\n%s", c.CommandPath(), width, name, shown)
						}
					}
				}
				at = end
			}
		}
	})
	if lists < 12 {
		t.Errorf("only %d lists", lists)
	}
}

// TestListsTakeOutput: every command that lists or shows takes -o.
func TestListsTakeOutput(t *testing.T) {
	found := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		if name := c.Name(); name != "list" && name != "show" {
			return
		}
		found++
		if f := c.Flags().Lookup("output"); f == nil || f.Shorthand != "o" {
			t.Errorf("%s takes no -o", c.CommandPath())
		}
	})
	if found < 20 {
		t.Errorf("only %d commands list or show", found)
	}
}

// TestGrammar: commands are NOUN VERB NAME, with one verb for one thing: what can be changed or deleted
// can be listed and shown, and no noun has its own word for that.
func TestGrammar(t *testing.T) {
	others := map[string]string{"get": "show", "describe": "show", "ls": "list", "new": "create", "update": "edit", "change": "edit", "rm": "delete", "stop": "pause", "start": "resume"}
	nouns := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		if own := others[c.Name()]; own != "" {
			t.Errorf("%s: the others say %s", c.CommandPath(), own)
		}
		verbs := make(map[string]*cobra.Command)
		for _, verb := range c.Commands() {
			verbs[verb.Name()] = verb
		}
		if verbs["delete"] == nil && verbs["create"] == nil {
			return
		}
		needs := []string{"list", "show"}
		if c.Name() == "keys" { // whose list has all there is
			needs = needs[:1]
		}
		nouns++
		for _, verb := range needs {
			if verbs[verb] == nil {
				t.Errorf("%s has no %s", c.CommandPath(), verb)
			}
		}
		for _, verb := range []string{"show", "edit", "delete", "pause", "resume", "enable", "disable"} {
			if of := verbs[verb]; of != nil && !(len(client.ArgumentsOf(of)) == 1 && slices.ContainsFunc([]string{"NAME", "[NAME", "ID"}, func(word string) bool { return strings.HasPrefix(client.ArgumentsOf(of)[0], word) })) {
				t.Errorf("%s takes no NAME: %s", of.CommandPath(), of.Use)
			}
		}
	})
	if nouns < 8 {
		t.Errorf("only %d nouns make things", nouns)
	}
}
