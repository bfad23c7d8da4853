package answer

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files")

// askers are the mentions of one person, as each sender writes them.
var askers = map[string]string{
	"github": "@grace", "gitlab": "@grace", "slack": "<@U0ADA>", "linear": "https://linear.app/acme/profiles/ada",
	"jira": "5b10ac8d82e05b22cc7d4ef5", "teams": "29:1sampleAda Ada Byron", "azure_devops": "54d125f7-0000-4000-8000-000000000001 Ada Byron",
}

const testMarker = "triphammer:run_0123456789abc:0123456789abcdef0123456789abcdef"

func message(state string) Message {
	m := Message{State: state, Automation: "fix-bug", Run: "run_8Fk2", Link: "https://triphammer.example.com/runs/run_8Fk2", Marker: testMarker}
	switch state {
	case Waits:
		m.Why = "all 8 places of the workers are taken"
	case Ended:
		m.Outcome, m.Took, m.CostUSD = "succeeded", 192*time.Second, 0.4234
		m.Text = "## What I found\n\nThe capture runs **twice**, see [retry.go](https://github.com/acme/payments/blob/main/capture/retry.go):\n\n" +
			"```go\nfor range 2 { capture() }\n```\n\n1. Stop after the first `nil`.\n2. Tell @ada, who fixes #402.\n   - and nobody else\n\n> as *she* asked\n"
		m.PullRequests = []string{"https://github.com/acme/payments/pull/419"}
	}
	return m
}

// readable is a text of a sender with its JSON indented.
func readable(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text + "\n"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(value)
	return b.String()
}

func TestTexts(t *testing.T) {
	for _, s := range Senders() {
		for _, state := range []string{Started, Waits, Ended} {
			m := message(state)
			if state == Ended {
				m.Asker = askers[s.Provider]
			}
			golden(t, s.Provider+"."+state, readable(s.Text(m)))
		}
	}
	for _, s := range Senders() {
		m := message(Ended)
		m.Text, m.Asks, m.Asker, m.PullRequests = "Which one, @ada?\n\n1. `a`\n2. #402\n", "Reply here to answer. A reply counts from people with write access, ada.", askers[s.Provider], nil
		golden(t, s.Provider+".asks", readable(s.Text(m)))
	}
	for _, s := range Senders() {
		m := message(Waits)
		m.Undecided, m.Why = true, "for a person to approve it"
		linked := s.Text(m)
		m.Code, m.Decides = "ABCD2345", "people with write access, @ada"
		m.Buttons, m.Mentioned = s.Provider == "slack", s.Provider == "teams"
		golden(t, s.Provider+".approval", readable(s.Text(m))+"\n"+readable(linked))
	}
	golden(t, "preview", preview(message(Ended))+"\n")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%s (go test -update writes it): %v\ngot:\n%s\nwant:\n%s", file, err, got, want)
	}
}

// TestButtons: the buttons of Slack stand below the whole text, which fits into one section, and stand for the replies
// that decide; an edit without them takes them away (SPEC 26.2).
func TestButtons(t *testing.T) {
	m := message(Ended)
	m.Code, m.Decides, m.Text = "ABCD2345", "UADA", strings.Repeat("words & more ", 1000)
	for _, buttons := range []bool{true, false} {
		m.Buttons = buttons
		body, err := slackBody(Place{Container: "C1"}, slackSender.Text(m))
		if err != nil || (body["blocks"] != nil) != buttons {
			t.Fatalf("%v, %v", body, err)
		}
		if text := packedAny(body["blocks"]); buttons && (utf8.RuneCountInString(body["text"].(string)) > 3000 || !strings.Contains(text, packedAny(body["text"])) ||
			strings.Count(text, `"value":"triphammer approve ABCD2345"`) != 1 || strings.Count(text, `"value":"triphammer decline ABCD2345"`) != 1) {
			t.Error(text)
		}
	}
	m.Code, m.Buttons = "", true
	if body, err := slackBody(Place{Container: "C1"}, slackSender.Text(m)); err != nil || body["blocks"] != nil {
		t.Errorf("nothing waits: %v, %v", body, err)
	}
}

// TestCut: of a text that is too long, the link, the marker and whole markup stay.
func TestCut(t *testing.T) {
	for name, said := range map[string]string{
		"words":   strings.Repeat("word **bold** `code` ", 20_000),
		"escapes": strings.Repeat("&<>*_[]", 4000),
		"wide":    strings.Repeat("漢字 ", 9000),
		"code":    "```\n" + strings.Repeat("x <y> & `z`\n", 9000) + "```",
		"links":   strings.Repeat("[a](https://example.com/"+strings.Repeat("x", 900)+") ", 300),
		"nested":  strings.Repeat("> - ", 500) + "deep",
	} {
		for _, s := range Senders() {
			m := message(Ended)
			m.Text, m.Why, m.Automation = said, strings.Repeat("&<", 3000), strings.Repeat("&", 500)
			for range 30 {
				m.PullRequests = append(m.PullRequests, "https://example.com/"+strings.Repeat("p", 900))
			}
			text := s.Text(m)
			if len(text) > s.MaxText || s.Provider == "slack" && utf8.RuneCountInString(text) > 4000 {
				t.Errorf("%s, %s: %d bytes", name, s.Provider, len(text))
			}
			if s.Find != nil && !strings.Contains(text, mark(testMarker)) {
				t.Errorf("%s, %s: the marker is lost", name, s.Provider)
			}
			if !strings.Contains(text, m.Link) {
				t.Errorf("%s, %s: the link is lost", name, s.Provider)
			}
			if !utf8.ValidString(text) {
				t.Errorf("%s, %s: broken characters", name, s.Provider)
			}
		}
	}
}

// TestWeb: what is an address of the web, and how it is written.
func TestWeb(t *testing.T) {
	for address, want := range map[string]string{
		"https://triphammer:8080/runs/run_8fk2": "https://triphammer:8080/runs/run_8fk2", "http://[::1]:8080/a": "http://[::1]:8080/a",
		" HTTPS://Example.com/A?b=c&d#e ": "https://example.com/A?b=c&d#e", "https://example.com/a(b)'c\"<>|@[]": "https://example.com/a%28b%29%27c%22%3C%3E%7C%40%5B%5D",
		"https://example.com/%2e%zz": "", "https://user@example.com/": "", "https://user:x@example.com/": "", "ftp://example.com/": "", "javascript:alert(1)": "", "//example.com": "", "/a": "", "": "",
		"https://": "", "https://exаmple.com/": "", "https://a b/": "", "https://example.com/" + strings.Repeat("x", 1000): "", "https://example.com/#" + testMarker: "",
	} {
		if got := web(address); got != want {
			t.Errorf("%q is %q, want %q", address, got, want)
		}
	}
	for said, lie := range map[string]bool{
		"here": false, "the log of run 7": false, "https://example.com/a": false, "example.com/a": false, "EXAMPLE.com/a/": false,
		"example.com": true, "github.com": true, "www.x": true, "ｇｉｔｈｕｂ．ｃｏｍ": true, "git\u200bhub.com": true, "http://": true, "see github.com now": true,
	} {
		if lies(said, "https://example.com/a") != lie {
			t.Errorf("%q: want %v", said, lie)
		}
	}
}
