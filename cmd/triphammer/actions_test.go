package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"triphammer/server/api"
	"triphammer/server/dashboard"
)

// actions are the routes of the API that are not GET, as openapi.yaml has them: a test of
// package server compares it with the routes.
func actions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../server/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pathLine, methodLine := regexp.MustCompile(`^  (/\S*):`), regexp.MustCompile(`^    (post|put|patch|delete):`)
	path := ""
	for line := range strings.Lines(string(text)) {
		if m := pathLine.FindStringSubmatch(line); m != nil {
			path = m[1]
		}
		below, found := strings.CutPrefix(path, api.Base)
		if m := methodLine.FindStringSubmatch(line); m != nil && found {
			all = append(all, strings.ToUpper(m[1])+" "+below)
		}
		if found && strings.Contains(line, "This server has no counterpart: it answers 422") && len(all) > 0 && strings.HasSuffix(all[len(all)-1], " "+below) {
			all = all[:len(all)-1] // nothing can be done by it
		}
	}
	if len(all) < 20 {
		t.Fatalf("openapi.yaml has %d actions", len(all))
	}
	return all
}

// isAction tells whether a request is that action, whose parameters are in braces. Of what
// the pages declare, those of the request begin with a colon.
func isAction(request, action string) bool {
	request, _, _ = strings.Cut(request, "?")
	return slices.EqualFunc(strings.Split(request, "/"), strings.Split(action, "/"), func(is, want string) bool {
		return is == want || strings.HasPrefix(want, "{") && is != ""
	})
}

// recorder keeps the requests that the commands of the test scripts send.
type recorder struct {
	file    string
	scripts atomic.Int64 // that have begun
}

// check compares, when all scripts of the folder have run, what can be done by the API with
// what can be done by a page and by a command. The page on the API says why for the rest. So
// a command counts only if a script shows that it does the action.
func (r *recorder) check(t *testing.T, dir string) {
	scripts, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || int(r.scripts.Load()) < len(scripts) || t.Failed() {
		return // some were not asked for: what they do is not known
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	byCommand := strings.Split(string(text), "\n")
	var byPage []string
	for _, route := range dashboard.Routes {
		byPage = append(byPage, route.Sends...)
	}
	compareActions(t, actions(t), byPage, byCommand)
}

func compareActions(t *testing.T, all, byPage, byCommand []string) {
	t.Helper()
	_, section, found := strings.Cut(pages(t)["../../docs/api.md"], "## Actions that have no page or no command\n")
	section, _, _ = strings.Cut(section, "\n## ")
	excused := make(map[string][2]string) // by action: why no page, why no command
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.HasPrefix(cells[1], " `") {
			excused[strings.Trim(cells[1], " `")] = [2]string{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	if !found || len(excused) == 0 {
		t.Error("docs/api.md has no list of actions that have no page or no command")
	}
	for _, action := range all {
		is := func(request string) bool { return isAction(request, action) }
		why := excused[action]
		for i, by := range []struct {
			name string
			can  bool
		}{{"page declares", slices.ContainsFunc(byPage, is)}, {"command of a test script does", slices.ContainsFunc(byCommand, is)}} {
			switch {
			case !by.can && why[i] == "":
				t.Errorf("no %s %s, and docs/api.md does not say why", by.name, action)
			case by.can && why[i] != "":
				t.Errorf("a %s %s, and docs/api.md says why none does", by.name, action)
			}
		}
		delete(excused, action)
	}
	for action := range excused {
		t.Errorf("docs/api.md excuses %s, which is no action", action)
	}
	for _, request := range byPage {
		if !slices.ContainsFunc(all, func(action string) bool { return isAction(request, action) }) {
			t.Errorf("a page declares %s, which is no action", request)
		}
	}
}
