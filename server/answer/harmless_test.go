package answer

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	gmtext "github.com/yuin/goldmark/text"
	"golang.org/x/net/html"
)

// hostile are texts of an agent that wants more than to be read.
var hostile = []string{
	"@ada @acme/team please", "\\@ada &#64;ada &commat;ada @**ada** **@**ada @\u200bada", "mail ada@example.com", "@<54d125f7-0000-4000-8000-000000000001>",
	"<@U0ADA> <!channel> <!here> <!subteam^S1> @channel @here", "[~accountid:712020:x] <at>Ada</at>",
	"/close\n\n/label ~bug\n/merge", "- /close\n1. /approve\n> /lgtm", "bors r+\n\nretest this please\n.deploy\n!merge", "```\n/close\n@ada\n```", "    /close", "&#47;close", "a  \n/close", "a\\\n/close",
	"@dependabot merge", "fixes #12, closes acme/app#12 and resolves PAY-77", "fix**es** #**12**",
	"![x](https://evil.example.com/x.png)", "<img src=https://evil.example.com/x.png>", "[![x](https://evil.example.com/a.png)](https://evil.example.com/)", "![x][y]\n\n[y]: https://evil.example.com/x.png",
	"[https://github.com/acme](https://evil.example.com)", "[github.com](https://evil.example.com)", "[git**hub.com**](https://evil.example.com)", "[github。com/acme](https://evil.example.com)", "[x](https://github.com@evil.example.com)", "[x](javascript:alert(1))", "[x](//evil.example.com)", "[x](https://еvil.example.com)",
	"<script>alert(1)</script>", "<!-- " + testMarker + " -->", "text <!-- hidden -->", "<details><summary>@ada</summary>/close</details>",
	"a\u202eb\u2066c\u200d\u00add\ufeff\U000e0041", "```mermaid\ngraph\n```", "```suggestion\nx\n```", "~~~plantuml\nx\n~~~",
	"````\n```\n@ada\n````", "`` `@ada ``", "`a``b`", "`0`@``", "!http://example.com/x.png", "```\nunclosed", "\\", "\\`", "*a**b*", "***", "| a | b |\n|---|---|\n| @ada | /close |", "# @ada", "a\n===", "a\n---", "[^1]: @ada\n\nx[^1]", "[ ] task", "$x$ ~~x~~",
	"https://example.com/@ada https://linear.app/acme/profiles/ada", "[Ada](https://linear.app/acme/profiles/ada)", "www.example.com", "<https://example.com/a|b>", "https://example.com/" + testMarker, "https://example.com/#" + testMarker,
	strings.Repeat("[", 3000), strings.Repeat("> ", 3000) + "x", strings.Repeat("- ", 500) + "x", strings.Repeat("![](", 3000), strings.Repeat("*a_", 5000), strings.Repeat("`", 5000), "a\x00b\xff\xfe",
}

func saying(said string) Message {
	m := message(Ended)
	m.Text, m.Why = said, said
	m.PullRequests = []string{said}
	return m
}

func fuzz(f *testing.F, check func(*testing.T, string)) {
	for _, said := range hostile {
		f.Add(said)
	}
	f.Fuzz(check)
}

func FuzzMarkdown(f *testing.F) { fuzz(f, markdownIsHarmless) }
func FuzzHTML(f *testing.F)     { fuzz(f, htmlIsHarmless) }
func FuzzSlack(f *testing.F)    { fuzz(f, slackIsHarmless) }
func FuzzADF(f *testing.F)      { fuzz(f, adfIsHarmless) }

// rendered is a sender's text, after what holds for each.
func rendered(t *testing.T, s *Sender, said string) string {
	t.Helper()
	text := s.Text(saying(said))
	if len(text) > s.MaxText {
		t.Errorf("%s of %q: %d bytes", s.Provider, said, len(text))
	}
	if !utf8.ValidString(text) {
		t.Errorf("%s of %q is broken: %q", s.Provider, said, text)
	}
	for _, r := range text {
		if r != '\n' && (unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)) {
			t.Errorf("%s of %q has the invisible %U: %q", s.Provider, said, r, text)
		}
	}
	return text
}

func unpack(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func markdownIsHarmless(t *testing.T, said string) {
	var linear linearPayload
	unpack(t, rendered(t, linearSender, said), &linear)
	var azure azurePayload
	unpack(t, rendered(t, azureSender, said), &azure)
	for name, text := range map[string]string{"github": rendered(t, githubSender, said), "gitlab": rendered(t, gitlabSender, said), "linear": linear.Body, "azure": azure.Markdown, "preview": preview(saying(said))} {
		body := text
		switch name {
		case "linear":
			if strings.Count(text, mark(testMarker)) != 1 || !strings.Contains(text, "(https://triphammer.example.com/runs/run_8Fk2#"+mark(testMarker)+")") {
				t.Errorf("%s of %q: the marker is not in the link: %q", name, said, text)
			}
		case "preview":
		default:
			var found bool
			if body, found = strings.CutSuffix(text, comment(message(Ended))); !found || strings.Contains(body, mark(testMarker)) {
				t.Errorf("%s of %q: the marker is not at the end alone: %q", name, said, text)
			}
		}
		commonMarkIsHarmless(t, name, said, body)
	}
}

var (
	ownLine  = regexp.MustCompile(`^(\*\*fix-bug\*\* succeeded|Pull request: |\[Run run|>|$)`)
	looksWeb = regexp.MustCompile(`(?i)https?://|www\.`)
)

func commonMarkIsHarmless(t *testing.T, name, said, body string) {
	t.Helper()
	for line := range strings.SplitSeq(body, "\n") {
		if !ownLine.MatchString(line) {
			t.Errorf("%s of %q has a line of the agent's own: %q", name, said, line)
		}
	}
	src := []byte(body)
	// Senders take fewer characters before the @ of a mail than goldmark does.
	linkify := extension.NewLinkify(extension.WithLinkifyEmailRegexp(regexp.MustCompile(`^[a-zA-Z0-9._+-]+@[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)+`)))
	doc := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList, extension.Footnote, linkify)).Parser().Parse(gmtext.NewReader(src))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.CodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.FencedCodeBlock:
			if l := string(n.Language(src)); l != "" && !slices.Contains(languages, l) {
				t.Errorf("%s of %q has code of %q", name, said, l)
			}
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			text := ""
			_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
				if t, is := n.(*ast.Text); is && entering {
					text += string(t.Value(src))
				}
				return ast.WalkContinue, nil
			})
			to := strings.TrimSuffix(string(n.Destination), "#"+mark(testMarker))
			if web(to) != to || name == "linear" && strings.Contains(to, "linear.app") && strings.Contains(to, "/profiles/") || looksWeb.MatchString(text) && strings.NewReplacer("\\", "", "&lt;", "<").Replace(text) != to {
				t.Errorf("%s of %q has the link %q to %q", name, said, text, to)
			}
			return ast.WalkSkipChildren, nil
		case *ast.Image, *ast.HTMLBlock, *ast.RawHTML, *ast.LinkReferenceDefinition:
			t.Errorf("%s of %q has %s: %q", name, said, n.Kind(), body)
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkEmail || name == "linear" && strings.Contains(string(n.URL(src)), "/profiles/") {
				t.Errorf("%s of %q mentions somebody: %q", name, said, body)
			}
		case *ast.Text:
			if strings.Contains(string(n.Value(src)), "@") {
				t.Errorf("%s of %q mentions somebody: %q", name, said, body)
			}
		}
		return ast.WalkContinue, nil
	})
}

func htmlIsHarmless(t *testing.T, said string) {
	var azure azurePayload
	unpack(t, rendered(t, azureSender, said), &azure)
	var teams teamsActivity
	unpack(t, rendered(t, teamsSender, said), &teams)
	if len(teams.Entities) > 0 {
		t.Errorf("teams of %q mentions %v", said, teams.Entities)
	}
	end := "<!-- " + mark(testMarker) + " -->"
	if !strings.HasSuffix(azure.HTML, end) || strings.Count(azure.HTML, mark(testMarker)) != 2 {
		t.Errorf("azure of %q: the marker is lost, or there twice: %q", said, azure.HTML)
	}
	for _, text := range []string{strings.TrimSuffix(azure.HTML, end), teams.Text} {
		var open []string
		tokens := html.NewTokenizer(strings.NewReader(text))
		for tokens.Next() != html.ErrorToken {
			token := tokens.Token()
			switch token.Type {
			case html.StartTagToken:
				if !slices.Contains([]string{"p", "b", "i", "a", "br", "pre", "code", "ul", "ol", "li", "blockquote"}, token.Data) {
					t.Errorf("%q has <%s>: %q", said, token.Data, text)
				}
				if token.Data != "br" {
					open = append(open, token.Data)
				}
				for _, a := range token.Attr {
					if !(a.Key == "href" && token.Data == "a" && web(a.Val) != "" || strings.HasSuffix(a.Val, "#"+mark(testMarker)) || a.Key == "start" && token.Data == "ol") {
						t.Errorf("%q has %s=%q: %q", said, a.Key, a.Val, text)
					}
				}
			case html.EndTagToken:
				if len(open) == 0 || open[len(open)-1] != token.Data {
					t.Fatalf("%q closes <%s> in %v: %q", said, token.Data, open, text)
				}
				open = open[:len(open)-1]
			case html.CommentToken, html.SelfClosingTagToken, html.DoctypeToken:
				t.Errorf("%q has %s: %q", said, token, text)
			}
		}
		if len(open) > 0 {
			t.Errorf("%q leaves %v open: %q", said, open, text)
		}
	}
}

var (
	slackLink  = regexp.MustCompile(`<(https?://[^<>|\s]+)\|([^<>|\n]+)>`)
	slackFence = regexp.MustCompile("(?m)^(?: *(?:•|[0-9]+\\.) )*```$")
)

func slackIsHarmless(t *testing.T, said string) {
	var message slackPayload
	unpack(t, rendered(t, slackSender, said), &message)
	if utf8.RuneCountInString(message.Text) > 4000 || message.Metadata.Payload["marker"] != mark(testMarker) || strings.Contains(message.Text, mark(testMarker)) {
		t.Errorf("slack of %q: %d characters, marker %v: %q", said, len(message.Text), message.Metadata, message.Text)
	}
	for _, link := range slackLink.FindAllStringSubmatch(message.Text, -1) {
		if looksWeb.MatchString(link[2]) && link[1] != link[2] {
			t.Errorf("slack of %q has a link that lies: %q", said, link)
		}
	}
	rest := slackLink.ReplaceAllString(message.Text, "")
	if strings.ContainsAny(rest, "<>") {
		t.Errorf("slack of %q has markup of the agent's: %q", said, rest)
	}
	if strings.Count(rest, "```") != len(slackFence.FindAllString(rest, -1)) || strings.Count(rest, "```")%2 != 0 {
		t.Errorf("slack of %q breaks out of code: %q", said, rest)
	}
}

func adfIsHarmless(t *testing.T, said string) {
	var c jiraComment
	text := rendered(t, jiraSender, said)
	unpack(t, text, &c)
	if strings.Count(text, mark(testMarker)) != 2 {
		t.Errorf("jira of %q: the marker is lost, or there twice: %q", said, text)
	}
	inner := map[string][]string{
		"doc": {"paragraph", "codeBlock", "blockquote", "bulletList", "orderedList"}, "paragraph": {"text", "hardBreak"}, "codeBlock": {"text"}, "text": nil, "hardBreak": nil,
		"blockquote": {"paragraph", "codeBlock", "bulletList", "orderedList"}, "bulletList": {"listItem"}, "orderedList": {"listItem"}, "listItem": {"paragraph", "codeBlock", "bulletList", "orderedList"},
	}
	var walk func(n adf)
	walk = func(n adf) {
		if n.Type == "text" && n.Text == "" || n.Type == "listItem" && len(n.Content) == 0 || strings.HasSuffix(n.Type, "List") && len(n.Content) == 0 {
			t.Errorf("jira of %q has an empty %s: %s", said, n.Type, text)
		}
		for _, mark := range n.Marks {
			if to, _ := mark.Attrs["href"].(string); mark.Type == "link" && web(to) == "" && !strings.Contains(to, "#"+markerWord) || mark.Type == "code" && len(n.Marks) > 1 && n.Marks[1].Type != "link" {
				t.Errorf("jira of %q has the marks %v", said, n.Marks)
			}
			if to, _ := mark.Attrs["href"].(string); mark.Type == "link" && looksWeb.MatchString(n.Text) && n.Text != to {
				t.Errorf("jira of %q has a link that lies: %v", said, n)
			}
		}
		for _, child := range n.Content {
			if !slices.Contains(inner[n.Type], child.Type) {
				t.Errorf("jira of %q has %s in %s: %s", said, child.Type, n.Type, text)
			}
			walk(child)
		}
	}
	walk(c.Body)
}
