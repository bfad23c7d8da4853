//go:build full

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
)

// TestCompletion asks for the completion of every argument that names something, and of every flag
// that does, on a server that has one of each.
func TestCompletion(t *testing.T) {
	t.Parallel()
	w := completionWorld(t)
	w.run("", "webhooks", "test", "ci", "--payload", `{"service": "billing"}`)
	w.run("", "automations", "run", "triage", "--payload", "{}")
	w.run("", "schedules", "create", "--name", "tidy", "--cron", "0 6 * * *", "--prompt", "Tidy.")
	w.run("", "keys", "create", "ada")
	w.run("a-key", "context", "add", "prod", "--server", "http://127.0.0.1:1", "--unchecked")
	err := client.WaitFor(t.Context(), 30*time.Second, "no subject is found", func() (bool, error) {
		return strings.Contains(w.run("", "subjects", "list"), "ci:billing"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range client.Completions {
		w.run("", "api", "GET", one.List) // it is a route
	}
	few := []string{"sessions", "confirm", "dismiss", "inbox"} // there is none, and the route is asked for above
	everyCommand(commandTree(), func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		if len(path) == 0 || path[0] == "help" || path[0] == "completion" || c.Hidden {
			return
		}
		for i, word := range client.ArgumentsOf(c) {
			if c.Name() == "create" || c.Name() == "add" || otherArguments[word] != "" || client.NamesFile.MatchString(word) ||
				slices.ContainsFunc(append(path, c.Parent().Name()), func(name string) bool { return slices.Contains(few, name) }) {
				continue
			}
			asked := slices.Concat(path, slices.Repeat([]string{"github"}, i), []string{""}) // a word that samples know
			if offered := w.completed(asked...); len(offered) == 0 {
				t.Errorf("%q offers nothing for %s", asked, word)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			asks := client.CompletionFlags[f.Name] != ""
			if !asks && client.CompletionWords[f.Name] == nil || asks && !client.ReachesServer(c) {
				return
			}
			if offered := w.completed(append(path, "--"+f.Name, "")...); len(offered) == 0 {
				t.Errorf("%s --%s offers nothing", c.CommandPath(), f.Name)
			}
		})
	})
	for asked, want := range map[string]string{
		"webhooks show ":                "ci",
		"send ":                         "ci",
		"automations pause ":            "triage",
		"agents edit ":                  "fixer",
		"environments edit ":            "env",
		"automations create x --agent ": "fixer",
		"keys revoke ":                  "ada",
		"context rename ":               "prod",
		"context rename prod ":          "",
		"webhooks create ":              "",
		"runs list ":                    "",
		"runs list --state ":            "BLOCKED QUEUED INPROGRESS SUCCEEDED FAILED CANCELLED",
		"auth login --role ":            "viewer operator manager",
		"api ":                          "GET POST PUT PATCH DELETE",
		"open ci ":                      "",
	} {
		if got := strings.Join(w.completed(strings.Split(asked, " ")...), " "); got != want {
			t.Errorf("%q: offered %q, not %q", asked, got, want)
		}
	}
	// The name of the worker comes last.
	const pages = "overview inbox deliveries runs subjects schedules costs webhooks automations environments agents definition secrets people audit system docs fixer triage env default ada S ci "
	if got := strings.Join(w.completed("open", ""), " "); !strings.HasPrefix(got, pages) {
		t.Errorf("open: offered %q", got)
	}
}
