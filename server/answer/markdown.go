package answer

import (
	"regexp"
	"strconv"
	"strings"
)

// markdown writes CommonMark. What an agent said stands in a quotation, so that none of its lines
// begins a line of the whole: bots and forges take commands from there.
type markdown struct {
	mention *regexp.Regexp // what may stand unescaped as a mention; nil: nothing
	// mentions tells of an address whose mere link mentions somebody; nil: there is none.
	mentions func(to string) bool
}

// comment is a marker that renderers of Markdown drop.
func comment(m Message) string {
	if m.Marker == "" {
		return ""
	}
	return "\n\n<!-- " + mark(m.Marker) + " -->"
}

func (d *markdown) text(blocks []block) string {
	var b strings.Builder
	d.blocks(&b, blocks, "", "")
	return strings.TrimRight(b.String(), "\n")
}

// blocks writes blocks. The first line begins with first, and all others with rest.
func (d *markdown) blocks(b *strings.Builder, blocks []block, first, rest string) {
	line := func(text string) {
		b.WriteString(strings.TrimRight(first+text, " "))
		if strings.HasSuffix(text, hardBreak) {
			b.WriteString(hardBreak)
		}
		b.WriteByte('\n')
		first = rest
	}
	for i, block := range blocks {
		if i > 0 {
			line("")
		}
		switch block.kind {
		case paragraph:
			for l := range strings.SplitSeq(d.inline(block.spans), "\n") {
				line(l)
			}
		case codeBlock:
			fence := strings.Repeat("`", max(3, longest(block.text, '`')+1))
			line(fence + block.lang)
			for l := range strings.SplitSeq(block.text, "\n") {
				line(l)
			}
			line(fence)
		case quotation:
			d.blocks(b, block.items[0], first+"> ", rest+"> ")
			first = rest
		case list:
			for j, item := range block.items {
				bullet := "- "
				if block.start > 0 {
					bullet = strconv.Itoa(block.start+j) + ". "
				}
				d.blocks(b, item, first+bullet, rest+strings.Repeat(" ", len(bullet)))
				first = rest
			}
		}
	}
}

// hardBreak at the end of a line keeps the next line apart.
const hardBreak = "  "

// longest is the length of the longest run of c.
func longest(text string, c byte) (most int) {
	n := 0
	for i := range len(text) {
		if n++; text[i] != c {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

func (d *markdown) inline(spans []span) string {
	var b strings.Builder
	start := true
	for _, s := range spans {
		if s.text == "\n" {
			b.WriteString(hardBreak + "\n")
			start = true
			continue
		}
		if start {
			s.text = strings.TrimLeft(s.text, " ")
		}
		if s.text == "" {
			continue
		}
		text := d.span(s, start)
		if strings.HasPrefix(text, "`") && strings.HasSuffix(b.String(), "`") {
			b.WriteByte(' ') // two marks of code side by side would become one
		}
		b.WriteString(text)
		start = false
	}
	return b.String()
}

func (d *markdown) span(s span, start bool) string {
	if s.mention && d.mention != nil && d.mention.MatchString(s.text) {
		return s.text
	}
	if s.to != "" && d.mentions != nil && d.mentions(s.to) {
		return codeSpan(s.to)
	}
	text := ""
	switch {
	case s.code || s.mention:
		text = codeSpan(s.text)
	default:
		text = escapeMarkdown(s.text, start && s.to == "")
	}
	if s.to != "" {
		return "[" + strings.TrimSpace(text) + "](" + s.to + ")"
	}
	inner := strings.Trim(text, " ")
	if inner == "" || s.code || s.mention {
		return text
	}
	before, after, _ := strings.Cut(text, inner)
	if s.italic {
		inner = "*" + inner + "*"
	}
	if s.bold {
		inner = "**" + inner + "**"
	}
	return before + inner + after
}

// codeSpan is a text as code. Neither the text nor what is around it ends the code early.
func codeSpan(text string) string {
	fence := strings.Repeat("`", longest(text, '`')+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.HasPrefix(text, " ") && strings.HasSuffix(text, " ") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// number begins a line that would be an item of a list.
var number = regexp.MustCompile(`^\d{1,9}[.)]`)

// escapeMarkdown writes a text so that all of it is text. start tells that it begins a line.
func escapeMarkdown(text string, start bool) string {
	var b strings.Builder
	dot := -1
	if start {
		dot = len(number.FindString(text)) - 1
	}
	for i, r := range text {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r < 0x80 && strings.ContainsRune("\\`*_[]&|~$>!", r),
			i == 0 && start && r < 0x80 && strings.ContainsRune("#+-=/.:%?^(){}'\",;", r), i == dot && dot > 0:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
