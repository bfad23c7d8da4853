package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Encode writes a mapping as a new YAML file, its keys in their order.
func Encode(n *Node) []byte {
	if len(n.Fields) == 0 {
		return []byte("{}\n")
	}
	return []byte(blockText(n, 0) + "\n")
}

// EncodeMarkdown writes a new Markdown file with the mapping as its front matter.
func EncodeMarkdown(n *Node, body string) []byte {
	text := "---\n"
	if len(n.Fields) > 0 {
		text += blockText(n, 0) + "\n"
	}
	text += "---\n"
	if body != "" {
		text += body + "\n"
	}
	return []byte(text)
}

// Lengths, in bytes, up to which a value is written in one line.
const (
	shortList    = 90
	shortMapping = 60
)

// isInline tells whether a value is best written in one line.
func isInline(n *Node) bool {
	switch n.Kind {
	case List:
		nested := slices.ContainsFunc(n.Items, func(item *Node) bool { return item.Kind == List || item.Kind == Mapping })
		return len(n.Items) == 0 || !nested && len(flowText(n)) <= shortList
	case Mapping:
		nested := slices.ContainsFunc(n.Fields, func(f Field) bool { return f.Value.Kind == Mapping || !isInline(f.Value) })
		return len(n.Fields) == 0 || !nested && len(flowText(n)) <= shortMapping
	}
	return n.Kind != String || !isLiteral(n.Text)
}

// blockText writes a list or mapping that is not empty, on lines that begin at a column. The
// first line has its indentation already.
func blockText(n *Node, column int) string {
	lines := make([]string, 0, len(n.Items)+len(n.Fields))
	for _, item := range n.Items {
		lines = append(lines, "- "+afterDash(item, column+2))
	}
	for _, f := range n.Fields {
		lines = append(lines, keyText(f.Key)+":"+afterColon(f.Value, column))
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", column))
}

// afterDash writes an item of a list, whose further lines begin at the column.
func afterDash(n *Node, column int) string {
	switch {
	case n.Kind == Mapping && len(n.Fields) > 0 || n.Kind == List && !isInline(n):
		return blockText(n, column)
	case n.Kind == String && isLiteral(n.Text):
		return literalText(n.Text, column)
	}
	return scalarText(n, 0, false)
}

// afterColon writes the value of a key that begins at the column.
func afterColon(n *Node, column int) string {
	switch {
	case isInline(n):
		return " " + scalarText(n, 0, false)
	case n.Kind == String:
		return " " + literalText(n.Text, column+2)
	}
	return "\n" + strings.Repeat(" ", column+2) + blockText(n, column+2)
}

// flowText writes a value in one line, as it can stand within [] and {}.
func flowText(n *Node) string {
	var parts []string
	switch n.Kind {
	case List:
		for _, item := range n.Items {
			parts = append(parts, flowText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Mapping:
		for _, f := range n.Fields {
			parts = append(parts, keyText(f.Key)+": "+flowText(f.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return scalarText(n, 0, true)
}

// scalarText writes a value in one line, a string in the quotes of style.
func scalarText(n *Node, style yaml.Style, inFlow bool) string {
	switch {
	case n.Kind == List || n.Kind == Mapping:
		return flowText(n)
	case n.Kind == Null:
		return "null"
	case n.Kind != String:
		return n.Text
	case style&yaml.DoubleQuotedStyle == 0 && style&yaml.SingleQuotedStyle == 0 && isPlain(n.Text, inFlow):
		return n.Text
	case style&yaml.DoubleQuotedStyle == 0 && isPrintable(n.Text) && !strings.Contains(n.Text, "\n"):
		return "'" + strings.ReplaceAll(n.Text, "'", "''") + "'"
	}
	return doubleQuoted(n.Text)
}

func keyText(key string) string { return scalarText(&Node{Kind: String, Text: key}, 0, true) }

var plainForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\pL_/$.0-9](?:[\pL_/$.0-9+=@~%()*-]| +[\pL_/$.0-9+=@~%()*-]|:+[\pL_/$.0-9+=@~%()*-])*$`)
})

// words that other readers of YAML take for true, false or nothing.
var ambiguous = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"}

// isPlain tells whether a text needs no quotes.
func isPlain(text string, inFlow bool) bool {
	if !plainForm().MatchString(text) || inFlow && strings.Contains(text, ":") || slices.Contains(ambiguous, strings.ToLower(text)) {
		return false
	}
	doc, _, err := readYAML([]byte(text))
	if err != nil || doc == nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.ScalarNode {
		return false
	}
	b, n := builder{c: &Collector{}}, &Node{}
	b.scalar(n, doc.Content[0])
	return n.Kind == String && n.Text == text
}

// isPrintable tells whether a text can be written without escapes.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && isEscaped(r) })
}

func isEscaped(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff
}

// isLiteral tells whether a text is best written after |, line by line.
func isLiteral(text string) bool {
	return strings.Contains(text, "\n") && isPrintable(strings.ReplaceAll(text, "\t", " ")) &&
		!strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\t") && !strings.HasPrefix(text, "\n") && !strings.HasSuffix(text, "\n\n")
}

func literalText(text string, column int) string {
	header := "|-\n"
	if rest, ok := strings.CutSuffix(text, "\n"); ok {
		header, text = "|\n", rest
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = strings.Repeat(" ", column) + line
		}
	}
	return header + strings.Join(lines, "\n")
}

func doubleQuoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case isEscaped(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02X`, r)
		case isEscaped(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
