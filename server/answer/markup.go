package answer

import (
	"bytes"
	"cmp"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	ghtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	"golang.org/x/text/unicode/norm"
)

// span is a text in one style. A span of the text "\n" alone is a line break; no other text has one.
type span struct {
	text               string
	to                 string // the address of a link; empty: no link
	bold, italic, code bool
	mention            bool // text is Message.Asker
}

// block is a part of a text, one below the other.
type block struct {
	kind  blockKind
	spans []span    // of a paragraph
	text  string    // of code
	lang  string    // of code; empty: not known
	start int       // of a list: its first number; 0: it has no numbers
	items [][]block // of a list; a quotation has one
}

type blockKind uint8

const (
	paragraph blockKind = iota
	codeBlock
	quotation
	list
)

// Limits of an agent's text, which is hostile. A parser's time grows with the square of some marks.
const (
	maxRunes    = 4000     // of the text that people see
	maxMarkdown = 24 << 10 // bytes
	maxBrackets = 400
	maxMarks    = 2000 // of emphasis
	maxDepth    = 4    // of lists and quotations
	maxAddress  = 1000 // bytes
)

// nested finds a line that opens many lists and quotations at once.
var nested = regexp.MustCompile(`(?m)^(?:[ \t]*(?:[-*+>]|\d+[.)])[ \t]*){12}`)

var markdownParser = sync.OnceValue(func() parser.Parser {
	return goldmark.New(goldmark.WithExtensions(
		extension.NewLinkify(extension.WithLinkifyAllowedProtocols([][]byte{[]byte("https:"), []byte("http:")})),
	)).Parser()
})

// parse reads the Markdown of an agent, and makes it harmless (SPEC 22.4): HTML is text, an image is a
// link, and what could mention somebody or close an issue is code.
func parse(markdown string) []block {
	if len(markdown) > maxMarkdown {
		markdown = strings.ToValidUTF8(markdown[:maxMarkdown], "")
	}
	if strings.Count(markdown, "[") > maxBrackets || strings.Count(markdown, "*")+strings.Count(markdown, "_") > maxMarks || nested.MatchString(markdown) {
		var all []block
		for part := range strings.SplitSeq(markdown, "\n\n") {
			all = append(all, plain(part)...)
		}
		return all
	}
	r := reader{[]byte(markdown)}
	return r.blocks(markdownParser().Parse(text.NewReader(r.src)), 0)
}

// plain is a text without marks, as a paragraph.
func plain(said string) []block {
	if said = strings.TrimSpace(said); said == "" {
		return nil
	}
	return []block{{spans: guarded([]span{{text: said}})}}
}

type reader struct{ src []byte }

func (r *reader) blocks(parent ast.Node, depth int) (all []block) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			all = append(all, block{kind: codeBlock, text: code(n.Lines().Value(r.src)), lang: language(string(n.Language(r.src)))})
		case *ast.CodeBlock:
			all = append(all, block{kind: codeBlock, text: code(n.Lines().Value(r.src))})
		case *ast.HTMLBlock:
			lines := n.Lines().Value(r.src)
			if n.HasClosure() {
				lines = append(lines, n.ClosureLine.Value(r.src)...)
			}
			all = append(all, plain(string(lines))...)
		case *ast.Blockquote:
			inner := r.blocks(n, depth+1)
			if depth < maxDepth && len(inner) > 0 {
				inner = []block{{kind: quotation, items: [][]block{inner}}}
			}
			all = append(all, inner...)
		case *ast.List:
			l := block{kind: list}
			if n.IsOrdered() {
				l.start = max(1, min(n.Start, 1_000_000))
			}
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				inner := r.blocks(item, depth+1)
				if depth >= maxDepth {
					all = append(all, inner...)
				} else if len(inner) > 0 {
					l.items = append(l.items, inner)
				}
			}
			if len(l.items) > 0 {
				all = append(all, l)
			}
		case *ast.ThematicBreak, *ast.LinkReferenceDefinition:
		default:
			var spans []span
			r.spans(n, span{bold: n.Kind() == ast.KindHeading}, &spans)
			if spans = guarded(spans); len(spans) > 0 {
				all = append(all, block{spans: spans})
			}
		}
	}
	return all
}

// spans adds the text of a node's children, in a style.
func (r *reader) spans(parent ast.Node, style span, all *[]span) {
	add := func(said string) {
		s := style
		s.text = said
		*all = append(*all, s)
	}
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Text:
			if add(r.resolved(n)); n.SoftLineBreak() || n.HardLineBreak() {
				add("\n")
			}
		case *ast.CodeSpan:
			inner := style
			inner.code = true
			from := len(*all)
			r.spans(n, inner, all)
			for i := range (*all)[from:] {
				if s := &(*all)[from+i]; s.text == "\n" {
					s.text = " "
				}
			}
		case *ast.Emphasis:
			inner := style
			inner.bold, inner.italic = inner.bold || n.Level == 2, inner.italic || n.Level == 1
			r.spans(n, inner, all)
		case *ast.Link:
			r.link(n, string(n.Destination), "", style, all)
		case *ast.Image:
			r.link(n, string(n.Destination), "image: ", style, all)
		case *ast.AutoLink:
			if to := web(string(n.URL(r.src))); to != "" && n.AutoLinkType == ast.AutoLinkURL && style.to == "" {
				*all = append(*all, span{text: to, to: to, bold: style.bold, italic: style.italic})
			} else {
				add(string(n.Label(r.src)))
			}
		case *ast.RawHTML:
			add(string(n.Segments.Value(r.src)))
		default:
			r.spans(n, style, all)
		}
	}
}

// resolved is the text of a node without escapes and entities, except in code.
func (r *reader) resolved(n *ast.Text) string {
	raw := n.Value(r.src)
	if n.IsRaw() || n.Parent() != nil && n.Parent().Kind() == ast.KindCodeSpan {
		return string(raw)
	}
	var b bytes.Buffer
	w := bufWriter{&b}
	ghtml.DefaultWriter.Write(w, raw)
	return html.UnescapeString(b.String())
}

type bufWriter struct{ *bytes.Buffer }

func (bufWriter) Available() int { return 0 }
func (bufWriter) Buffered() int  { return 0 }
func (bufWriter) Flush() error   { return nil }

var _ util.BufWriter = bufWriter{}

// link adds a link. If its text looks like an address that it does not lead to, the text becomes
// the true address. What is no address of the web is shown as code.
func (r *reader) link(n ast.Node, address, label string, style span, all *[]span) {
	address = html.UnescapeString(string(util.UnescapePunctuations([]byte(address))))
	to := web(address)
	inner := style
	inner.to = cmp.Or(inner.to, to)
	from := len(*all)
	r.spans(n, inner, all)
	said := ""
	for _, s := range (*all)[from:] {
		said += s.text
	}
	switch {
	case style.to != "": // an image in a link
	case to == "":
		*all = append(*all, span{text: " ("}, span{text: address, code: true}, span{text: ")"})
	case strings.TrimSpace(clean(said)) == "" || lies(said, to):
		*all = append((*all)[:from], span{text: to, to: to, bold: style.bold, italic: style.italic})
	}
	if label != "" {
		*all = slices.Insert(*all, from, span{text: label})
	}
}

var (
	host = regexp.MustCompile(`^(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d+)?$`)
	// looksLikeAddress finds what people take for an address.
	looksLikeAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://|www\.|[\p{L}\p{N}_-]\.\p{L}[\p{L}\p{N}-]`) })
)

// web is an address of the web, in a form that is the same in every markup, or empty.
func web(address string) string {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || !host.MatchString(strings.ToLower(u.Host)) {
		return ""
	}
	u.Host = strings.ToLower(u.Host)
	var b strings.Builder
	for _, c := range []byte(u.String()) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-._~:/?#&=+,;%!$", c) >= 0 || c == '[' || c == ']' {
			if c == '[' || c == ']' {
				if b.Len() > len(u.Scheme)+len("://")+len(u.Host) {
					b.WriteString(map[byte]string{'[': "%5B", ']': "%5D"}[c])
					continue
				}
			}
			b.WriteByte(c)
		} else {
			const hex = "0123456789ABCDEF"
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	if to := b.String(); len(to) <= maxAddress && !strings.Contains(to, markerWord) {
		return to
	}
	return ""
}

// lies tells whether a text looks like an address, and is not the one it leads to.
func lies(said, to string) bool {
	seen := strings.ToLower(strings.TrimSpace(norm.NFKC.String(clean(said))))
	seen = strings.NewReplacer("。", ".", "\u2215", "/", "\u2044", "/").Replace(seen)
	bare := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(to), "https://"), "http://")
	seen = strings.TrimPrefix(strings.TrimPrefix(seen, "https://"), "http://")
	return strings.TrimSuffix(seen, "/") != strings.TrimSuffix(bare, "/") && looksLikeAddress().MatchString(said+" "+seen)
}

// markerWord begins the marker of a text of ours.
const markerWord = "triphammer:run_"

// mark is a marker as it stands in a text. Only characters that no markup changes are in it.
func mark(marker string) string {
	return markerWord + strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == ':') {
			return r
		}
		return '_'
	}, strings.TrimPrefix(marker, markerWord))
}

// clean takes away what people do not see, such as control characters and marks of direction, and
// what could be taken for a marker of ours.
func clean(said string) string {
	said = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t' || unicode.Is(unicode.Zs, r):
			return ' '
		case r == '\u2028', r == '\u2029', r == '\u0085', r == '\v', r == '\f':
			return '\n'
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point),
			unicode.Is(unicode.Variation_Selector, r) && r != '\ufe0f', r == '\u2800', r == unicode.ReplacementChar, r == '\u034f':
			return -1
		}
		return r
	}, said)
	return strings.ReplaceAll(said, markerWord, "triphammer: run_")
}

// code is the text of a block of code.
func code(lines []byte) string {
	said := clean(strings.ReplaceAll(string(lines), "\t", "    "))
	return strings.TrimRight(strings.ReplaceAll(said, "@<", "@ <"), "\n ")
}

// languages are those whose code a sender only colours: the code of others becomes a picture or
// a change that somebody applies with a click.
var languages = []string{"bash", "c", "cpp", "css", "diff", "go", "html", "java", "javascript", "js", "json", "python", "ruby", "rust", "sh", "sql", "toml", "ts", "typescript", "xml", "yaml"}

func language(name string) string {
	if name = strings.ToLower(name); slices.Contains(languages, name) {
		return name
	}
	return ""
}

var (
	mention  = regexp.MustCompile(`[\p{L}\p{N}._+-]*@[^\s,;!?()\[\]"']*`)
	bareLink = regexp.MustCompile(`(?i)https?://[^\s<>"'` + "`" + `]*[^\s<>"'` + "`" + `.,;:!?)\]*_]`)
	// closing finds words with which senders close issues, and issue what they close.
	closing = regexp.MustCompile(`(?i)(?:clos|fix|resolv|implement|complet|finish)`)
	issue   = regexp.MustCompile(`[\w./-]*[#!]\d+|\b(?:[gG][hH]|[A-Z][A-Z0-9_]+)-\d+`)
)

// guarded are spans without line breaks in them, in which what could mention somebody, or close
// an issue, is code. Spans of one style become one before, so that none of it is missed.
func guarded(spans []span) []span {
	var merged []span
	var whole strings.Builder
	for _, s := range spans {
		if s.text = clean(s.text); s.text == "" {
			continue
		}
		whole.WriteString(s.text)
		if n := len(merged) - 1; n >= 0 {
			last := merged[n]
			last.text = s.text
			if last == s {
				merged[n].text += s.text
				continue
			}
		}
		merged = append(merged, s)
	}
	closes := closing.MatchString(whole.String())
	var all []span
	for _, s := range merged {
		if s.mention {
			all = append(all, s)
			continue
		}
		for i, line := range strings.Split(s.text, "\n") {
			if i > 0 {
				all = append(all, span{text: "\n"})
			}
			s.text = line
			if s.to != "" && s.text == s.to {
				all = append(all, s)
				continue
			}
			all = append(all, split(s, closes)...)
		}
	}
	for len(all) > 0 && strings.TrimSpace(all[len(all)-1].text) == "" {
		all = all[:len(all)-1]
	}
	for len(all) > 0 && strings.TrimSpace(all[0].text) == "" {
		all = all[1:]
	}
	return all
}

// split makes links of the addresses in a text, and code of its dangerous parts.
func split(s span, closes bool) (all []span) {
	if s.code {
		s.text = strings.ReplaceAll(s.text, "@<", "@ <")
		if strings.TrimSpace(s.text) == "" {
			s.code = false
		}
		return append(all, s)
	}
	var links [][]int
	if s.to == "" {
		links = bareLink.FindAllStringIndex(s.text, -1)
	}
	found := append(links, mention.FindAllStringIndex(s.text, -1)...)
	if closes {
		found = append(found, issue.FindAllStringIndex(s.text, -1)...)
	}
	slices.SortStableFunc(found, func(a, b []int) int { return a[0] - b[0] })
	at := 0
	add := func(to int, code bool) {
		if to > at {
			part := s
			part.text, part.code = s.text[at:to], code
			if code {
				part.text = strings.ReplaceAll(part.text, "@<", "@ <")
				if link := web(part.text); s.to == "" && link != "" {
					part.text, part.to, part.code = link, link, false
				}
			}
			all, at = append(all, part), to
		}
	}
	for _, f := range found {
		if f[1] > at {
			add(max(at, f[0]), false)
			add(f[1], true)
		}
	}
	add(len(s.text), false)
	return all
}

// shortened keeps the first characters of a text. left is how many; it is less than 0 after a cut.
func shortened(blocks []block, left *int) (kept []block) {
	for _, b := range blocks {
		if *left <= 0 {
			if *left == 0 {
				kept, *left = append(kept, block{spans: []span{{text: "…"}}}), -1
			}
			return kept
		}
		switch b.kind {
		case paragraph:
			var spans []span
			for _, s := range b.spans {
				if *left <= 0 {
					break
				}
				s.text = shortText(s.text, left)
				spans = append(spans, s)
			}
			if *left == 0 && len(spans) < len(b.spans) {
				spans, *left = append(spans, span{text: "…"}), -1
			}
			b.spans = spans
		case codeBlock:
			b.text = shortText(b.text, left)
		default:
			var items [][]block
			for _, item := range b.items {
				if *left < 0 {
					break
				}
				if item = shortened(item, left); len(item) > 0 {
					items = append(items, item)
				}
			}
			b.items = items
		}
		kept = append(kept, b)
	}
	return kept
}

func shortText(said string, left *int) string {
	runes := []rune(said)
	if len(runes) <= *left {
		*left -= len(runes)
		return said
	}
	said = strings.TrimRight(string(runes[:*left]), " ") + "…"
	*left = -1
	return said
}
