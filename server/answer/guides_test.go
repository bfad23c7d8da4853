package answer

import (
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestGuides: each sender's guide shows how an answer ends, and how the reply mentions whoever
// asked, as people see them in the sender's own markup.
func TestGuides(t *testing.T) {
	for _, s := range Senders() {
		guide := map[string]string{"azure_devops": "microsoft", "teams": "microsoft"}[s.Provider]
		if guide == "" {
			guide = s.Provider
		}
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", guide+".md"))
		if err != nil {
			t.Fatal(err)
		}
		m := Message{State: Ended, Outcome: "succeeded", Run: "run_8fk2", Link: "https://triphammer.example.com/runs/run_8fk2", Took: 192 * time.Second, CostUSD: 0.42, Marker: testMarker}
		said := map[string][2]string{
			"azure_devops": {"azure-review", "The second try has no test."},
			"github":       {"fix-bug", "The capture runs twice. I made it stop after the first success."},
			"gitlab":       {"review", "The second try has no test. I added one."},
			"jira":         {"fix-bug", "The capture runs twice. I made it stop after the first success."},
			"linear":       {"triage", "It is the same fault as PAY-70."},
			"slack":        {"fix-deploy", "The deploy failed because the migration was locked. I started it again."},
			"teams":        {"deploy", "The deploy is through. The first one had the wrong key."},
		}[s.Provider]
		if m.Automation, m.Text = said[0], said[1]; s.Provider == "github" {
			m.PullRequests = []string{"https://github.com/acme/payments/pull/419"}
		}
		mention := Message{State: Ended, Automation: m.Automation, Run: m.Run, Link: m.Link, Outcome: m.Outcome, Asker: askers[s.Provider], Marker: testMarker}
		for _, shown := range []Message{m, mention} {
			if want := "```text\n" + seen(t, s.Text(shown)) + "\n```\n"; !strings.Contains(string(text), want) {
				t.Errorf("docs/%s.md does not show what people see of %s:\n%s", guide, s.Provider, want)
			}
		}
	}
}

var (
	hidden     = regexp.MustCompile(`<!--.*?-->`)
	labels     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	slackLabel = regexp.MustCompile(`<[^|>@]*\|([^>]*)>`)
	escapes    = regexp.MustCompile(`\\([[:punct:]])`)
	emphasis   = regexp.MustCompile(`\*{1,2}([^*]+)\*{1,2}`)
	tags       = regexp.MustCompile(`<[^>]*>`)
	// people are the mentions of askers as they are seen.
	people = strings.NewReplacer("<@U0ADA>", "@Ada", "https://linear.app/acme/profiles/ada", "@ada", "@<54d125f7-0000-4000-8000-000000000001>", "@Ada Byron", "<at>Ada Byron</at>", "@Ada Byron")
)

// seen is the text of a sender as people see it, without bold and colours.
func seen(t *testing.T, text string) string {
	t.Helper()
	var packed struct {
		Text, Markdown, TextFormat string
		Body                       json.RawMessage
	}
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &packed); err != nil {
			t.Fatal(err)
		}
		text = packed.Text + packed.Markdown
		if len(packed.Body) > 0 && json.Unmarshal(packed.Body, &text) != nil {
			var root node
			if err := json.Unmarshal(packed.Body, &root); err != nil {
				t.Fatal(err)
			}
			return root.seen()
		}
	}
	text = people.Replace(text)
	if packed.TextFormat == "xml" {
		text = strings.NewReplacer("<blockquote><p>", "> ", "</p>", "\n\n").Replace(text)
		return strings.TrimSpace(html.UnescapeString(tags.ReplaceAllString(text, "")))
	}
	for _, markup := range []*regexp.Regexp{labels, slackLabel, emphasis, escapes} {
		text = markup.ReplaceAllString(text, "$1")
	}
	return strings.TrimSpace(hidden.ReplaceAllString(text, ""))
}

// node is a node of Atlassian's document format.
type node struct {
	Type, Text string
	Content    []node
	Attrs      struct{ ID string }
}

func (n node) seen() string {
	var parts []string
	for _, child := range n.Content {
		parts = append(parts, child.seen())
	}
	switch n.Type {
	case "text":
		return n.Text
	case "mention":
		return "@Ada Byron"
	case "blockquote":
		return "> " + strings.Join(parts, "\n>\n> ")
	case "paragraph":
		return strings.Join(parts, "")
	}
	return strings.Join(parts, "\n\n")
}
