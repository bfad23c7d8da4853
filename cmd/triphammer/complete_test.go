package main

import (
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/server/dashboard"
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
		"automations/triage/automation.md": automationFile("ci", ""),
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

// TestPagesOfNouns holds what open opens to the routes of the pages, in both directions.
func TestPagesOfNouns(t *testing.T) {
	routes := make(map[string]bool) // true: something leads there
	for _, r := range dashboard.Routes {
		if r.Method == http.MethodGet {
			routes[r.Path] = false
		}
	}
	leads := func(what, path string, alternatives ...string) {
		t.Helper()
		for _, path := range append(alternatives, path) {
			if _, is := routes[path]; is {
				routes[path] = true
				return
			}
		}
		t.Errorf("%s leads to %s, which is no page", what, path)
	}
	for _, s := range sections() {
		leads(s.Name, s.Path)
	}
	for noun, of := range completions {
		switch path, _, _ := strings.Cut(of.page, "?"); {
		case strings.HasSuffix(of.page, "/"):
			leads(noun, of.page+":id", of.page+":name")
		case path != "":
			leads(noun, path)
		}
	}
	elsewhere := []string{"/artifacts/:id"} // a download, which the page of its run has
	for path, found := range routes {
		if !found && (strings.HasSuffix(path, "/:id") || strings.HasSuffix(path, "/:name")) && !slices.Contains(elsewhere, path) {
			t.Errorf("open does not know what has the page %s", path)
		}
	}
}

// TestBrowser: what $BROWSER names is taken, with the address in its place.
func TestBrowser(t *testing.T) {
	const address = "https://hammer.example.com/runs?a=b&c=%73"
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	for browser, want := range map[string]string{
		"true": "true " + address, "nowhere:true -n": "true -n " + address, "::true --url=%s -n": "true --url=" + address + " -n",
		"": "no display", "nowhere": `$BROWSER names "nowhere"`, "nowhere true": `$BROWSER names "nowhere true"`, ":": `$BROWSER names ":"`,
	} {
		t.Setenv("BROWSER", browser)
		show, err := findBrowser()
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", browser, err)
			}
			continue
		}
		cmd := show(address)
		if got := strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " "); got != want {
			t.Errorf("%q: %s", browser, got)
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
	names := slices.Collect(maps.Keys(completions))
	for _, table := range [][]string{slices.Collect(maps.Keys(completionFlags)), slices.Collect(maps.Keys(completionWords))} {
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
	c := newRoot(thisHost)
	show, _, err := c.Find([]string{"webhooks", "show"})
	if err != nil {
		t.Fatal(err)
	}
	if err := show.Flags().Set("data", filepath.Join(w.dir, "data")); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if words, _ := completeNoun("webhooks")(show, nil, ""); len(words) > 0 {
		t.Errorf("a server that is stopped offered %v", words)
	}
	if took := time.Since(before); took >= lockPatience {
		t.Errorf("it took %v", took)
	}
}
