package native

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	gmtext "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// mentionsIn are the names that a Markdown text mentions as @name, in lower case, without
// the @. inner are the marks that a name may have between its letters and digits. A mention
// stands alone: neither a word nor a path goes before it, but marks of emphasis may (SPEC 16.5).
func mentionsIn(markdown, inner string) []string {
	if !strings.Contains(markdown, "@") {
		return nil
	}
	text := newText(markdown)
	var all []string
	before := ' '
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '@' && !isNameRune(before) && before != '@' && before != '/' && before != '.' {
			if name := nameAt(text[i+1:], inner); name != "" {
				all = append(all, strings.ToLower(name))
				i += 1 + len(name)
				before = 'x'
				continue
			}
		}
		if i += size; r != '_' { // _@name_ is emphasis, and the word before a_@name is a
			before = r
		}
	}
	return all
}

// nameAt is the name at the beginning of a text: letters, digits and _, with the inner marks
// between them. A _ at the end belongs to emphasis. If the text goes on as an address, there
// is no name.
func nameAt(text, inner string) string {
	end := 0
	for i, r := range text {
		if isNameRune(r) {
			end = i + utf8.RuneLen(r)
			continue
		}
		if strings.ContainsRune(inner, r) && end == i {
			continue
		}
		break
	}
	if strings.HasPrefix(text[end:], "@") {
		return ""
	}
	return strings.TrimRight(text[:end], "_")
}

func isNameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// Limits of a text that is parsed. A body has up to 256 KB, and for a hostile text the parser's time grows with
// the square of the length, of the depth of lists and quotations, and of the number of brackets.
const (
	maxMarkdown = 64 << 10 // what GitHub takes
	maxNesting  = 32       // of blocks
	maxBrackets = 1000     // that may belong to a link
)

// newText is the text of a Markdown document that its author newly wrote for people to read: no quotation, no
// code, no HTML, no address.
func newText(markdown string) string {
	if len(markdown) > maxMarkdown {
		cut := markdown[:maxMarkdown]
		markdown = cut[:max(0, strings.LastIndexAny(cut, " \n"))] // not within a name
	}
	src := []byte(markdown)
	var out strings.Builder
	_ = ast.Walk(commonMark().Parse(gmtext.NewReader(src)), func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never fails
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(util.UnescapePunctuations(n.Value(src)))
			}
			if !entering && (n.SoftLineBreak() || n.HardLineBreak()) {
				out.WriteByte('\n')
			}
		case *ast.Blockquote, *ast.CodeSpan, *ast.Image:
			out.WriteByte(' ')
			return ast.WalkSkipChildren, nil
		default:
			out.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// commonMark does not parse emphasis: emphasis ends no word, and many marks of it take long to parse.
var commonMark = sync.OnceValue(func() parser.Parser {
	blocks := parser.DefaultBlockParsers()
	for i, b := range blocks {
		if b.Value == parser.NewListParser() || b.Value == parser.NewBlockquoteParser() {
			blocks[i].Value = shallow{b.Value.(parser.BlockParser)}
		}
	}
	return parser.NewParser(parser.WithBlockParsers(blocks...), parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...), parser.WithInlineParsers(
		util.Prioritized(parser.NewCodeSpanParser(), 100),
		util.Prioritized(fewLinks{parser.NewLinkParser()}, 200),
		util.Prioritized(parser.NewAutoLinkParser(), 300),
		util.Prioritized(parser.NewRawHTMLParser(), 400)))
})

// shallow takes blocks that are nested too deeply as plain text.
type shallow struct{ parser.BlockParser }

func (s shallow) Open(parent ast.Node, r gmtext.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for n := parent; n != nil; n = n.Parent() {
		depth++
	}
	if depth > maxNesting {
		return nil, parser.NoChildren
	}
	return s.BlockParser.Open(parent, r, pc)
}

// fewLinks takes brackets as plain text after the first maxBrackets.
type fewLinks struct{ parser.InlineParser }

var brackets = parser.NewContextKey()

func (f fewLinks) Parse(parent ast.Node, r gmtext.Reader, pc parser.Context) ast.Node {
	n, _ := pc.Get(brackets).(int)
	if n >= maxBrackets {
		return nil
	}
	pc.Set(brackets, n+1)
	return f.InlineParser.Parse(parent, r, pc)
}

// CloseBlock implements parser.CloseBlocker.
func (f fewLinks) CloseBlock(parent ast.Node, r gmtext.Reader, pc parser.Context) {
	f.InlineParser.(parser.CloseBlocker).CloseBlock(parent, r, pc)
}

// branch is a branch's name without the prefix of references to branches.
func branch(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }

// mentionName is the compared form of a mentioned name. Definitions may write the name with its @.
func mentionName(name string) string { return strings.ToLower(strings.TrimPrefix(name, "@")) }

// keyword is the compared form of a keyword, and of a text that may contain the keyword.
func keyword(text string) string { return strings.ToLower(strings.TrimSpace(text)) }
