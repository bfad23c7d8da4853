package factory

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"triphammer/schema"
)

// TestRuleTrees runs the trees of testdata/rules: each rule of the format by
// small trees that keep or break it, with the exact findings of both modes
// (SPEC 2 and 3). testdata/rules/README.md
// says how a tree is written. With -update the positions are filled in; a code,
// path, severity or count that differs fails all the same.
func TestRuleTrees(t *testing.T) {
	archives, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	kept, broken := 0, 0
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, c := range ruleCases(t, name, archive) {
			t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+c.name, func(t *testing.T) {
				if seen[c.name] || c.rule == "" {
					t.Error("two trees of this name, or no rule")
				}
				seen[c.name] = true
				for _, strict := range []bool{true, false} {
					c.check(t, strict)
				}
				if c.verdict(true) {
					kept++
				} else {
					broken++
				}
				if c.verdict(true) && !c.verdict(false) && !c.extension {
					t.Error("refused without Strict alone (SPEC 2.1)")
				}
			})
		}
		if *update {
			if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kept < 60 || broken < 60 {
		t.Errorf("%d trees that are valid under Strict and %d that are not", kept, broken)
	}
}

// ruleCase is one tree, with what is expected of it.
type ruleCase struct {
	name, rule string
	file       *txtar.File // which says so
	want       map[bool][]string
	extension  bool // of files that are strays under Strict
	files      fstest.MapFS
}

// ruleBase is the tree that a case adds to.
var ruleBase = map[string]string{
	"factory.yaml":         "schemaVersion: v1alpha1\nname: Rules\nrepositories: [{owner: acme, name: app}]\nagentDefaults: {model: large}\n",
	"agents/lead/agent.md": "---\nagentType: FOREMAN\n---\nLead.\n",
}

// allRuleCases are the cases of all archives, by name.
func allRuleCases(t *testing.T) map[string]*ruleCase {
	t.Helper()
	archives, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	all := make(map[string]*ruleCase)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ruleCases(t, name, archive) {
			all[filepath.Base(name)+" "+c.name] = c
		}
	}
	return all
}

func ruleCases(t *testing.T, archive string, a *txtar.Archive) []*ruleCase {
	t.Helper()
	var all []*ruleCase
	edit := func(data []byte) []byte { return data }
	for i := range a.Files {
		file := &a.Files[i]
		if name, is := strings.CutPrefix(file.Name, "case: "); is {
			c := &ruleCase{name: name, file: file, want: make(map[bool][]string), files: fstest.MapFS{}}
			for path, text := range ruleBase {
				c.files[path] = &fstest.MapFile{Data: []byte(text)}
			}
			edit = func(data []byte) []byte { return data }
			for line := range strings.Lines(string(file.Data)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				switch key {
				case "rule":
					c.rule = value
				case "note", "":
				case "strict", "default", "both":
					for mode, in := range map[bool]bool{true: key != "default", false: key != "strict"} {
						if in {
							c.want[mode] = append(c.want[mode], value)
						}
					}
				case "without":
					delete(c.files, value)
				case "extension":
					c.extension = true
				case "bytes":
					edit = ruleBytes(t, value)
				default:
					t.Fatalf("%s: %s: unknown line %q", archive, name, line)
				}
			}
			all = append(all, c)
			continue
		}
		if len(all) == 0 {
			t.Fatalf("%s: %s is before the first case", archive, file.Name)
		}
		path, more := strings.CutSuffix(file.Name, " +")
		data := file.Data
		if more {
			data = append(slices.Clone(all[len(all)-1].files[path].Data), data...)
		}
		all[len(all)-1].files[path] = &fstest.MapFile{Data: edit(data)}
	}
	return all
}

// ruleBytes changes what an archive of text cannot hold.
func ruleBytes(t *testing.T, how string) func([]byte) []byte {
	t.Helper()
	switch how {
	case "CRLF":
		return func(data []byte) []byte { return []byte(strings.ReplaceAll(string(data), "\n", "\r\n")) }
	case "CR":
		return func(data []byte) []byte { return []byte(strings.ReplaceAll(string(data), "\n", "\r")) }
	case "BOM":
		return func(data []byte) []byte { return append([]byte("\ufeff"), data...) }
	case "unterminated":
		return func(data []byte) []byte { return []byte(strings.TrimSuffix(string(data), "\n")) }
	case "escaped": // \x.., \u.... and the like, as in Go
		return func(data []byte) []byte {
			text, err := strconv.Unquote(`"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(string(data)) + `"`)
			if err != nil {
				t.Fatal(err)
			}
			return []byte(text)
		}
	}
	t.Fatalf("unknown bytes %q", how)
	return nil
}

func (c *ruleCase) verdict(strict bool) bool {
	return !slices.ContainsFunc(c.want[strict], func(s string) bool { return s != "ok" && !strings.HasPrefix(s, "warning ") })
}

func (c *ruleCase) check(t *testing.T, strict bool) {
	t.Helper()
	_, report := load(t, c.files, Options{Strict: strict})
	printed(t, c.files, report)
	want := c.want[strict]
	if len(want) == 0 {
		t.Errorf("nothing is expected (strict: %v)", strict)
	}
	if slices.Equal(want, []string{"ok"}) {
		want = nil
	}
	var got []string
	found := report.Diagnostics
	if !strings.HasPrefix(c.rule, "SPEC 24.1") {
		found = restricted(found)
	}
	for i, d := range found {
		line := describe(d)
		if d.Hint == "" {
			t.Errorf("%s says what is wrong and not what to do: %s", line, d.Message)
		}
		if i < len(want) {
			if strings.Contains(want[i], " | ") {
				line += " | " + d.Hint
			}
			if *update && placeless(want[i]) == placeless(line) && want[i] != line {
				c.file.Data = []byte(strings.Replace(string(c.file.Data), ": "+want[i]+"\n", ": "+line+"\n", 1))
				want[i] = line
			}
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("strict: %v\ngot\n\t%s\nwant\n\t%s\nin full\n%s", strict, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"), printed(t, c.files, report))
	}
}

// describe is a finding as the trees spell it: the code, then path, line and
// column of what it is about.
func describe(d schema.Diagnostic) string {
	line := d.Code + " " + d.Path
	if d.Line > 0 {
		line += fmt.Sprintf(":%d:%d", d.Line, d.Column)
	}
	if d.Severity == schema.Warning {
		line = "warning " + line
	}
	return line
}

// placeless leaves line and column out.
func placeless(line string) string {
	line, hint, _ := strings.Cut(line, " | ")
	return lineAndColumn.ReplaceAllString(line, "") + " | " + hint
}

var lineAndColumn = regexp.MustCompile(`:\d+:\d+$`)

// TestCatalogue holds the events and their filter keys to the format's
// table (factory/testdata/rules 4.1), written here a second time: every key that
// any event of the provider has, on every event.
func TestCatalogue(t *testing.T) {
	const (
		pull   = "repos base_branches pr_numbers paths assignees authors labels"
		linear = "team_ids project_ids labels state_ids assignee_ids mentioned_user_ids creator_ids"
		posted = "channel_ids user_ids keywords"
	)
	table := map[string]map[string]string{
		"github": {
			"push": "repos branches paths", "issue_created": "repos labels assignees authors", "issue_labeled": "repos labels assignees authors",
			"pull_request_opened": pull, "pull_request_ready": pull, "pull_request_closed": pull, "pull_request_merged": pull,
			"pull_request_labeled": pull, "pull_request_synchronized": pull, "pull_request_reopened": pull,
			"issue_mentioned": "repos mentioned labels", "pull_request_mentioned": "repos mentioned labels",
			"issue_assigned": "repos assignees labels", "pull_request_assigned": "repos assignees labels",
			"pull_request_review_requested": "repos reviewers reviewer_teams",
			"pull_request_review_submitted": "repos mentioned labels review_states",
			"check_suite_completed":         "repos conclusions branches labels authors",
			"workflow_run_completed":        "repos conclusions branches labels authors workflows",
			"check_run_rerequested":         "repos", "check_suite_rerequested": "repos",
		},
		"gitlab": {"merge_request": "repos actions base_branches", "bot_mentioned": "repos mentioned"},
		"linear": {
			"issue_created": linear, "issue_labeled": linear, "issue_state_changed": linear, "issue_assigned": linear,
			"comment_created":       "team_ids project_ids labels state_ids issue_ids mentioned_user_ids creator_ids",
			"agent_session_created": "team_ids creator_ids keywords",
		},
		"jira": {
			"issue_created": "project_keys labels", "issue_labeled": "project_keys labels",
			"status_changed": "project_keys status_ids", "agent_session_created": "project_keys labels keywords",
		},
		"slack": {
			"app_mention": posted, "message_posted": posted, "message_dm": posted, "message_im": posted, "message_mpim": posted,
			"reaction_added": "channel_ids user_ids emojis keywords item_user_ids", "member_joined_channel": "channel_ids user_ids",
		},
		"teams":    {"app_mention": "team_ids channel_ids keywords user_ids", "message_posted": "team_ids channel_ids keywords user_ids"},
		"schedule": {"cron_fired": "schedule_ids"},
		"factory":  {"work_item_stage_changed": "stages"},
		"webhook":  {"received": "webhook_ids payload"},
	}
	values := map[string]string{"pr_numbers": "[7]", "payload": "{a: [1]}", "conclusions": "[failure]"}
	alias := map[string][]string{ // another spelling of a key, 4.2
		"github base_branches": {"baseBranches"}, "github pr_numbers": {"prNumbers"},
		"linear team_ids": {"teams"}, "linear project_ids": {"projects"}, "linear state_ids": {"states"}, "linear issue_ids": {"issues"},
		"slack channel_ids": {"channels"}, "slack user_ids": {"users"}, "slack item_user_ids": {"itemUsers"},
	}
	trees := 0
	try := func(provider, event, filter string, want ...string) {
		t.Helper()
		extra := ""
		if provider == "schedule" && !strings.Contains(filter, "schedule_ids") {
			extra = ", schedule: {cron: '@daily'}"
		}
		if provider == "webhook" && !strings.Contains(filter, "webhook_ids") {
			filter = "webhook_ids: [whk_1], " + filter
		}
		files := tree(map[string]string{"automations/a/automation.md": fmt.Sprintf("---\ntriggers:\n- {provider: %s, event: %s%s, filter: {%s}}\n---\nGo.\n", provider, event, extra, filter)})
		for path, text := range ruleBase {
			files[path] = &fstest.MapFile{Data: []byte(text)}
		}
		for _, strict := range []bool{true, false} {
			trees++
			_, report := load(t, files, Options{Strict: strict})
			want := want
			switch {
			case strict && guessed(provider):
				want = []string{schema.InvalidEvent}
			case strict && event == "bot_mentioned" && strings.HasPrefix(filter, "mentioned:"): // which is ours
				want = []string{schema.InvalidFilter}
			}
			if got := codes(restricted(report.Diagnostics)); !slices.Equal(got, want) {
				t.Errorf("%s %s {%s} (strict: %v): %+v, want %v", provider, event, filter, strict, report.Diagnostics, want)
			}
		}
	}
	for provider, events := range table {
		keys := make(map[string]bool)
		for _, list := range events {
			for _, key := range strings.Fields(list) {
				keys[key] = true
			}
		}
		for event, list := range events {
			for key := range keys {
				value := values[key]
				if value == "" {
					value = "[x]"
				}
				var want []string
				if !slices.Contains(strings.Fields(list), key) {
					want = []string{schema.InvalidFilter}
				}
				try(provider, event, key+": "+value, want...)
				for _, other := range alias[provider+" "+key] {
					try(provider, event, other+": "+value, want...)
					if want == nil {
						try(provider, event, other+": "+value+", "+key+": "+value, schema.InvalidFilter)
					}
				}
			}
			try(provider, event, "nothing_of_the_kind: [x]", schema.InvalidFilter)
			try(provider, event+"_too", "", schema.InvalidEvent)
		}
		for other := range table {
			for event := range table[other] {
				if _, has := events[event]; !has && provider+" "+event != "gitlab push" { // 1.6-automations.txtar
					try(provider, event, "", schema.InvalidEvent)
				}
			}
		}
	}
	if t.Logf("%d trees", trees); len(providers(true)) != len(table) {
		t.Errorf("providers %v, want %d", providers(true), len(table))
	}
	for provider, events := range catalogue() {
		for event := range events {
			if guessed(provider) { // of the sender's events, by names of ours
				try(provider, event, "")
			} else if _, has := table[provider][event]; !has && provider+" "+event != "gitlab push" {
				t.Errorf("%s %s is not in the table", provider, event)
			}
		}
	}
}
