package answer

import (
	"bytes"
	"encoding/json"
	"html"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// htmlText writes the few elements of HTML that Teams and work items of Azure DevOps show alike.
type htmlText struct {
	mention func(asker string) string // the mention, or empty
}

func (d *htmlText) text(blocks []block) string {
	var b strings.Builder
	for _, block := range blocks {
		switch block.kind {
		case paragraph:
			b.WriteString("<p>" + d.inline(block.spans) + "</p>")
		case codeBlock:
			b.WriteString("<pre>" + html.EscapeString(block.text) + "</pre>")
		case quotation:
			b.WriteString("<blockquote>" + d.text(block.items[0]) + "</blockquote>")
		case list:
			tag := "ul"
			if block.start > 0 {
				tag = "ol"
			}
			b.WriteString("<" + tag)
			if block.start > 1 {
				b.WriteString(` start="` + strconv.Itoa(block.start) + `"`)
			}
			b.WriteString(">")
			for _, item := range block.items {
				b.WriteString("<li>" + d.text(item) + "</li>")
			}
			b.WriteString("</" + tag + ">")
		}
	}
	return b.String()
}

func (d *htmlText) inline(spans []span) string {
	var b strings.Builder
	for _, s := range spans {
		if s.text == "\n" {
			b.WriteString("<br>")
			continue
		}
		text := html.EscapeString(s.text)
		if s.mention {
			if text = d.mention(s.text); text == "" {
				text = html.EscapeString(s.text)
			}
		}
		if s.code {
			text = "<code>" + text + "</code>"
		}
		if s.italic {
			text = "<i>" + text + "</i>"
		}
		if s.bold {
			text = "<b>" + text + "</b>"
		}
		if s.to != "" {
			text = `<a href="` + html.EscapeString(s.to) + `">` + text + "</a>"
		}
		b.WriteString(text)
	}
	return b.String()
}

// slackText writes Slack's mrkdwn.
type slackText struct{}

var slackMention = regexp.MustCompile(`^<@[UW][A-Z0-9]+>$`)

func (d slackText) text(blocks []block) string {
	var b strings.Builder
	d.blocks(&b, blocks, "")
	return strings.TrimRight(b.String(), "\n")
}

func (d slackText) blocks(b *strings.Builder, blocks []block, indent string) {
	for i, block := range blocks {
		if i > 0 && indent == "" {
			b.WriteByte('\n')
		}
		switch block.kind {
		case paragraph:
			b.WriteString(indent + strings.ReplaceAll(d.inline(block.spans), "\n", "\n"+indent) + "\n")
		case codeBlock:
			b.WriteString("```\n" + strings.ReplaceAll(slackEscape(block.text), "`", "'") + "\n```\n")
		case quotation:
			d.blocks(b, block.items[0], indent)
		case list:
			for j, item := range block.items {
				bullet := "• "
				if block.start > 0 {
					bullet = strconv.Itoa(block.start+j) + ". "
				}
				var inner strings.Builder
				d.blocks(&inner, item, indent+"    ")
				b.WriteString(indent + bullet + strings.TrimPrefix(inner.String(), indent+"    "))
			}
		}
	}
}

func (d slackText) inline(spans []span) string {
	var b strings.Builder
	for _, s := range spans {
		text := strings.ReplaceAll(slackEscape(s.text), "`", "'")
		switch {
		case s.text == "\n":
			b.WriteByte('\n')
			continue
		case s.mention && slackMention.MatchString(s.text):
			b.WriteString(s.text)
			continue
		case s.to != "":
			b.WriteString("<" + slackEscape(s.to) + "|" + strings.ReplaceAll(text, "|", "¦") + ">")
			continue
		}
		inner := strings.Trim(text, " ")
		if inner == "" {
			b.WriteString(text)
			continue
		}
		before, after, _ := strings.Cut(text, inner)
		switch {
		case s.code:
			inner = "`" + inner + "`"
		case s.bold:
			inner = "*" + inner + "*"
		case s.italic:
			inner = "_" + inner + "_"
		}
		b.WriteString(before + inner + after)
	}
	return b.String()
}

func slackEscape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// adf is a node of the Atlassian Document Format.
type adf struct {
	Type    string         `json:"type"`
	Version int            `json:"version,omitempty"`
	Attrs   map[string]any `json:"attrs,omitempty"`
	Content []adf          `json:"content,omitempty"`
	Text    string         `json:"text,omitempty"`
	Marks   []adf          `json:"marks,omitempty"`
}

// jiraAccount is an account of Jira Cloud.
var jiraAccount = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9:_-]{1,128}$`) })

func adfDocument(blocks []block) adf {
	return adf{Type: "doc", Version: 1, Content: adfBlocks(blocks, false)}
}

// adfBlocks are blocks as nodes. Neither an item of a list nor a quotation takes a quotation.
func adfBlocks(blocks []block, within bool) (all []adf) {
	for _, b := range blocks {
		switch b.kind {
		case paragraph:
			all = append(all, adf{Type: "paragraph", Content: adfInline(b.spans)})
		case codeBlock:
			n := adf{Type: "codeBlock"}
			if b.lang != "" {
				n.Attrs = map[string]any{"language": b.lang}
			}
			if b.text != "" {
				n.Content = []adf{{Type: "text", Text: b.text}}
			}
			all = append(all, n)
		case quotation:
			inner := adfBlocks(b.items[0], true)
			if !within && len(inner) > 0 {
				inner = []adf{{Type: "blockquote", Content: inner}}
			}
			all = append(all, inner...)
		case list:
			l := adf{Type: "bulletList"}
			if b.start > 0 {
				l.Type, l.Attrs = "orderedList", map[string]any{"order": b.start}
			}
			for _, item := range b.items {
				content := adfBlocks(item, true)
				if len(content) > 0 && content[0].Type != "paragraph" && content[0].Type != "codeBlock" {
					content = append([]adf{{Type: "paragraph"}}, content...)
				}
				if len(content) > 0 {
					l.Content = append(l.Content, adf{Type: "listItem", Content: content})
				}
			}
			if len(l.Content) > 0 {
				all = append(all, l)
			}
		}
	}
	return all
}

func adfInline(spans []span) (all []adf) {
	for _, s := range spans {
		n := adf{Type: "text", Text: s.text}
		switch {
		case s.text == "":
			continue
		case s.text == "\n":
			n = adf{Type: "hardBreak"}
		case s.mention && jiraAccount().MatchString(s.text):
			n = adf{Type: "mention", Attrs: map[string]any{"id": s.text}}
		case s.code:
			n.Marks = append(n.Marks, adf{Type: "code"})
		default:
			if s.bold {
				n.Marks = append(n.Marks, adf{Type: "strong"})
			}
			if s.italic {
				n.Marks = append(n.Marks, adf{Type: "em"})
			}
		}
		if s.to != "" && n.Type == "text" {
			n.Marks = append(n.Marks, adf{Type: "link", Attrs: map[string]any{"href": s.to}})
		}
		all = append(all, n)
	}
	return all
}

// packed is a value as JSON, in which HTML stays readable. The values of the rows can be encoded.
func packed(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value)
	return strings.TrimSuffix(b.String(), "\n")
}
