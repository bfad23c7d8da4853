package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// walked are the pages whose blocks marked sh are all executed by a test, and that test. In
// the README these are the sessions, marked console.
var walked = map[string]string{
	"README": "TestReadme", "connecting": "TestConnecting", "first-webhook": "TestFirstWebhook", "script": "TestScriptGuide", "sentry": "TestSentryGuide",
	"github": "TestSenderGuides", "gitlab": "TestSenderGuides", "jira": "TestSenderGuides", "linear": "TestSenderGuides", "slack": "TestSenderGuides",
	"install": "TestDist", "api": "TestAPIGuide", "backup": "TestCommandGuides", "checking": "TestCommandGuides", "examples": "TestCommandGuides", "mcp": "TestCommandGuides",
	"dashboard": "TestCommandGuides", "hosted": "TestCommandGuides", "repositories": "TestCommandGuides",
	"night": "TestCommandGuides", "public": "TestCommandGuides", "nas": "TestCommandGuides",
	"secrets": "TestCommandGuides", "troubleshooting": "TestCommandGuides", "upgrade": "TestCommandGuides",
}

// Why no test executes a block as it stands. Its commands and flags are looked up all the same.
const (
	choose      = "a list of commands to choose from, with names that a reader fills in"
	unreachable = "it needs a service or a program that tests cannot have"
)

// shellBlocks are the other blocks of commands, each by how it begins: the test that executes
// them, or why none does.
var shellBlocks = map[string]map[string]string{
	"README":        {"make demo": "it leaves pages open; TestReadme runs its parts", "make build": "the tests build the program once for all"},
	"agents":        {"npm install": unreachable, "triphammer secrets set CLAUDE_KEY": choose, "PATH=": unreachable},
	"pushes":        {"triphammer secrets set FORGE_TOKEN": choose, "git push origin HEAD:triphammer/": "TestPrivateRepository", "gateway=": "TestPullGuide"},
	"runs":          {"triphammer runs followup": choose},
	"github":        {"triphammer connect github": "TestConnectGitHub", "triphammer secrets set GITHUB_APP": "TestGitHubApp"},
	"outputs":       {"echo": "TestOutputs"},
	"checking":      {"#!/bin/sh": "TestPushHook"},
	"install":       {"sudo tee /etc/apparmor.d": unreachable},
	"kubernetes":    {"kubectl create": "TestChartGuide", "kubectl -n triphammer exec": "TestFirstDelivery", "triphammer serve": unreachable},
	"commands":      {"triphammer context add": choose},
	"hosted":        {"triphammer serve --hosted": choose, "triphammer serve --data": choose},
	"operating":     {"triphammer serve --repo": choose},
	"repositories":  {"triphammer secrets set": choose},
	"sign-in":       {"triphammer serve …": choose},
	"watching":      {"triphammer keys create": choose},
	"workers":       {"TRIPHAMMER_STORE=": unreachable},
	"reverse-proxy": {"triphammer serve": choose, "curl": unreachable},
	"subjects":      {"triphammer subjects list": choose},
}

var (
	codeBlock = regexp.MustCompile("(?ms)^(`{3,})([^\n]*)\n(.*?)^`{3,}$")
	// a user, a container or a namespace has the name of the program
	otherName = regexp.MustCompile(`(?:-u|exec|-n|namespace) triphammer `)
	typed     = regexp.MustCompile(`(?m)^\$ .*\n`) // in a session
	aCommand  = regexp.MustCompile(`(?m)^(?:[A-Z_]+=|triphammer |make |npm |git |curl |kubectl |helm |podman |sudo |cd |export )`)
)

// TestShellBlocks: each block of commands of a page is executed by a test, or listed with
// the reason why not; and the commands and flags in it are there.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	for name, text := range pages(t) {
		page := strings.TrimSuffix(filepath.Base(name), ".md")
		if filepath.Clean(name) == filepath.Clean("../../docs/README.md") {
			page = "the index"
		}
		used := make(map[string]int)
		for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
			label, body := m[2], m[3]
			kind, _, _ := strings.Cut(label, " ")
			if kind != "sh" && kind != "console" && (kind != "" || !aCommand.MatchString(body)) {
				continue
			}
			execute := kind == "sh"
			if page == "README" {
				execute = kind == "console"
				if execute {
					body = strings.Join(typed.FindAllString(body, -1), "")
				}
			}
			checkCalls(t, page, body)
			if execute && walked[page] != "" && !strings.HasPrefix(body, "#!") { // a whole script is none of the page's commands
				used[""]++
				continue
			}
			begin := ""
			for listed := range shellBlocks[page] {
				if strings.HasPrefix(body, listed) && len(listed) > len(begin) {
					begin = listed
				}
			}
			if used[begin]++; begin == "" {
				first, _, _ := strings.Cut(body, "\n")
				t.Errorf("docs/%s.md: no test executes the block that begins with %q: name the test in shellBlocks, or why none does", page, first)
			}
		}
		if walked[page] != "" && used[""] == 0 {
			t.Errorf("%s has no commands that %s could execute", page, walked[page])
		}
		for begin := range shellBlocks[page] {
			if used[begin] != 1 {
				t.Errorf("%s has %d blocks that begin with %q: shellBlocks has a line for each", page, used[begin], begin)
			}
		}
	}
	for page, name := range walked {
		if !tests[name] {
			t.Errorf("%s: there is no test %s", page, name)
		}
	}
	for page, blocks := range shellBlocks {
		if missing("../../docs/"+page+".md") && page != "README" {
			t.Errorf("there is no page %s", page)
		}
		for begin, by := range blocks {
			if strings.HasPrefix(by, "Test") && !tests[by] {
				t.Errorf("%s, %q: there is no test %s", page, begin, by)
			}
		}
	}
}

// testNames are the names of all tests.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			if d != nil && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkCalls looks up the commands and the flags of a block.
func checkCalls(t *testing.T, page, block string) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		for _, part := range commandEnds.Split(quotedText.ReplaceAllString(line, "X"), -1) {
			_, call, is := strings.Cut(" "+otherName.ReplaceAllString(strings.TrimSpace(part), ""), " triphammer ")
			if !is || strings.HasPrefix(call, "deploy/") { // a release of Helm has the name, too
				continue
			}
			if wrong := wrongCall(strings.Fields(call)); wrong != "" {
				t.Errorf("%s shows %q: %s", page, strings.TrimSpace(line), wrong)
			}
		}
	}
}
