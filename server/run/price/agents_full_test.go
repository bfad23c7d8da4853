//go:build full

package price

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// unpriced are the models of the agents' lists that have no price, and why.
var unpriced = map[string]string{
	"claude-opus-4-0": "retired", "claude-sonnet-4-0": "retired", "claude-opus-4": "retired", "claude-sonnet-4": "retired", "claude-haiku-4": "no model",
	"claude-haiku-3-5": "retired", "claude-sonnet-3-7": "retired",
	"gemini-3-flash": "not in the provider's list of prices under this name", "gemini-embedding-001": "gives no answers",
	"claude-mythos-preview": "not for sale",
	"codex-auto-review":     "for subscriptions alone",
}

// TestAgents: each model that the tested versions of the agents offer has a price, or stands in unpriced.
func TestAgents(t *testing.T) {
	modules := filepath.Join("..", "..", "..", "testdata", "npm", "agents", "node_modules")
	for name, agent := range map[string]struct {
		files string // a pattern
		begin string // of where a model is named
		model *regexp.Regexp
		least int
	}{
		"claude":   {"@anthropic-ai/claude-code-linux-x64/claude", `"claude-`, regexp.MustCompile(`^"(claude-(?:opus|sonnet|haiku|fable|mythos)-[0-9][0-9-]{0,14})"`), 10},
		"codex":    {"@openai/codex-linux-x64/vendor/*/bin/codex", `"slug": "`, regexp.MustCompile(`^"slug": "([a-z0-9.-]{1,60})"`), 10},
		"gemini":   {"@google/gemini-cli/bundle/*.js", `_MODEL = "gemini-`, regexp.MustCompile(`^_MODEL = "(gemini-[a-z0-9.-]{1,60})"`), 4},
		"opencode": {"opencode-linux-x64-baseline/bin/opencode", `:{id:"claude-`, regexp.MustCompile(`^:\{id:"(claude-(?:opus|sonnet|haiku|fable)-[0-9][0-9-]{0,14})",name:`), 10},
	} {
		files, err := filepath.Glob(filepath.Join(modules, agent.files))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no %s in %s: %v", name, agent.files, modules, err)
		}
		var found []string
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for at := bytes.Index(data, []byte(agent.begin)); at >= 0; {
				if m := agent.model.FindSubmatch(data[at:min(len(data), at+100)]); m != nil {
					found = append(found, string(m[1]))
				}
				next := bytes.Index(data[at+1:], []byte(agent.begin))
				if next < 0 {
					break
				}
				at += 1 + next
			}
		}
		slices.Sort(found)
		if found = slices.Compact(found); len(found) < agent.least {
			t.Errorf("%s: only %v", name, found)
		}
		table := Standard()
		for _, model := range found {
			if priced, without := table.Of(model) != nil, unpriced[variant.ReplaceAllString(model, "")] != ""; priced == without {
				t.Errorf("%s: the model %s has a price: %v, and stands in unpriced: %v", name, model, priced, without)
			}
		}
	}
}
