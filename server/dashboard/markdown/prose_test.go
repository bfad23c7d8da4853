package markdown

import (
	"regexp"
	"strings"
	"testing"
)

// TestProse: the Markdown of an agent is shown as what it means, and nothing that it says
// becomes an element, an image or a link with another name than where it leads.
func TestProse(t *testing.T) {
	for said, want := range map[string]string{
		"**Done**, see `a.go`:\nline":            "<p><strong>Done</strong>, see <code>a.go</code>:<br>\nline</p>\n",
		"# Title\n\n- one\n- two":                "<p><b>Title</b></p>\n<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n",
		"```go\nif a < b {\n```":                 "<pre>if a &lt; b {\n</pre>\n",
		"a <script>x</script> <img src=y>":       "<p>a &lt;script&gt;x&lt;/script&gt; &lt;img src=y&gt;</p>\n",
		"<script>\nx\n</script>":                 "<pre>&lt;script&gt;\nx\n&lt;/script&gt;</pre>\n",
		"<div onclick=x>\n\ntext":                "<pre>&lt;div onclick=x&gt;\n</pre>\n<p>text</p>\n",
		"[our bank](https://evil.example/?a&b)":  `<p>our bank (<a href="https://evil.example/?a&amp;b" rel="noopener noreferrer nofollow"><bdi>evil.example/?a&amp;b</bdi></a>)</p>` + "\n",
		"[x](javascript:alert(1))":               "<p>x (<code><bdi>javascript:alert(1)</bdi></code>)</p>\n",
		"[x](//evil.example)":                    "<p>x (<code><bdi>//evil.example</bdi></code>)</p>\n",
		`[x](https://e/"onclick=)`:               `<p>x (<a href="https://e/&#34;onclick=" rel="noopener noreferrer nofollow"><bdi>e/&#34;onclick=</bdi></a>)</p>` + "\n",
		"![a \"b\"](https://evil.example/p.png)": `<p>[image: a &#34;b&#34;] (<a href="https://evil.example/p.png" rel="noopener noreferrer nofollow"><bdi>evil.example/p.png</bdi></a>)</p>` + "\n",
		"<https://a.example/1>":                  `<p><a href="https://a.example/1" rel="noopener noreferrer nofollow"><bdi>a.example/1</bdi></a></p>` + "\n",
		"see https://a.example/1.":               `<p>see <a href="https://a.example/1" rel="noopener noreferrer nofollow"><bdi>a.example/1</bdi></a>.</p>` + "\n",
		"[a.example](https://a.example)":         `<p><a href="https://a.example" rel="noopener noreferrer nofollow"><bdi>a.example</bdi></a></p>` + "\n",
		"[github.com](https://evil.example)":     `<p>github.com (<a href="https://evil.example" rel="noopener noreferrer nofollow"><bdi>evil.example</bdi></a>)</p>` + "\n",
		"<javascript:alert(1)>":                  "<p><code><bdi>javascript:alert(1)</bdi></code></p>\n",
		"":                                       "",
	} {
		if got := string(Prose(said)); got != want {
			t.Errorf("%q becomes\n%s\nwant\n%s", said, got, want)
		}
	}
	table := string(Prose("| a | b |\n|---|---|\n| a long value | <b> |\n"))
	if !strings.Contains(table, "<th>a</th>") || !strings.Contains(table, "<td>&lt;b&gt;</td>") {
		t.Errorf("a table becomes\n%s", table)
	}
}

// TestProseOfStrangers: whatever an agent says becomes small HTML, with no element and no
// attribute that this package did not write.
func TestProseOfStrangers(t *testing.T) {
	const whole = 50_000 // bytes of a text of a page
	allowed := regexp.MustCompile(`</?(p|br|b|bdi|em|strong|code|pre|ul|ol|li|blockquote|hr|table|caption|thead|tbody|tr|th|td|div)( start="\d+")?( class="(lines|scrolls|vh)")?( tabindex="0" role="group" aria-label="Table: in the message")?>` +
		`|<a href="https?://[^"<>]*" rel="noopener noreferrer nofollow">|</a>`)
	for _, part := range []string{
		"> ", "- ", "1. ", "*a* ", "**", "[", "](", "![", "![](", "`", "|", "| a |\n|---|\n", "<", "<a href=x>", "<!--", "&", "&#0;", "\\", "_a_", "#\n", "***\n", "https://a.b/ ", "[a](https://x/\"><script>) ",
		"<https://x/'\"> ", "\x00", "\u202e", "~~~\n", "    ", "\t", "- - - ", "a\n===\n", "[a]: https://x \"y\"\n\n", "[a] ", "[^1]", "<script>", "</li></ol>", "| ",
	} {
		for _, said := range []string{part, strings.Repeat(part, whole/len(part)), strings.Repeat(part, maxProse/len(part)), strings.Repeat(part, maxBrackets/2), "a " + strings.Repeat(part, 40) + "\n\n" + strings.Repeat(part+"\n", 40)} {
			said = said[:min(len(said), whole)]
			made := string(Prose(said))
			if most := max(mostGrowth(said), Weight(said)+30); len(made) > most {
				t.Errorf("%q, repeated to %d bytes, becomes %d bytes", part, len(said), len(made))
			}
			if rest := allowed.ReplaceAllString(made, ""); strings.ContainsAny(rest, "<>") {
				t.Errorf("%q becomes what is not allowed: %.300s", part, rest)
			}
		}
	}
}

// TestProseOfWideTables: a table of an agent makes no cells that its text does not have.
func TestProseOfWideTables(t *testing.T) {
	wide := strings.Repeat("a|", 900) + "a\n" + strings.Repeat("-|", 900) + "-\n" + strings.Repeat("a\n", 900)
	if took := testing.AllocsPerRun(1, func() { Prose(wide) }); took > 10_000 {
		t.Errorf("%d bytes take %.0f allocations", len(wide), took)
	}
	if got := string(Prose(wide)); strings.Contains(got, "<table") {
		t.Errorf("it is a table of %d bytes", len(got))
	}
}
