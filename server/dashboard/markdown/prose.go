package markdown

import (
	"bytes"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Prose renders the Markdown of an agent. An attacker may control the agent, so HTML stays text,
// an image is not loaded but named, and a link shows where it leads. A text whose marks would make
// it much longer is shown unchanged, so that a page stays small (SPEC 18.5).
func Prose(said string) template.HTML {
	plain := func() template.HTML {
		return template.HTML(`<p class="lines">` + template.HTMLEscapeString(said) + `</p>`)
	}
	if len(said) > maxProse || strings.Count(said, "[") > maxBrackets || cells(said) > maxCells || nested.MatchString(said) {
		return plain()
	}
	markdown := goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)),
			extension.NewLinkify(extension.WithLinkifyAllowedProtocols([][]byte{[]byte("https:"), []byte("http:")})),
		),
		goldmark.WithRendererOptions(
			html.WithHardWraps(),
			renderer.WithNodeRenderers(util.Prioritized(&proseRenderer{guideRenderer{heading: "in the message"}}, 1)),
		),
	)
	src := []byte(said)
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, src, markdown.Parser().Parse(text.NewReader(src))); err != nil || b.Len() > mostGrowth(said) {
		return plain()
	}
	return template.HTML(b.String()) //nolint:gosec // each text and address is escaped
}

// goldmark takes seconds for 50,000 bytes of "![](" or of nested lists, and gigabytes for a wide
// table: its work grows with the square of such marks. Within these bounds it takes a fraction of
// a second.
const (
	maxProse    = 32 << 10 // bytes
	maxBrackets = 1000
	maxCells    = 20_000
	maxHTML     = 60_000 // bytes
)

// cells is at least the number of cells of the tables in the text. It counts full rows, because
// goldmark fills up each row of a table to the width of its head.
func cells(said string) int {
	lines, widest := 0, 0
	for line := range strings.Lines(said) {
		lines, widest = lines+1, max(widest, strings.Count(line, "|"))
	}
	return lines * widest
}

// nested finds a line that opens 16 lists and quotations at once.
var nested = regexp.MustCompile(`(?m)^(?:[ \t]*(?:[-*+>]|\d+[.)])[ \t]*){16}`)

// mostGrowth is how many bytes of HTML a message may become.
func mostGrowth(said string) int { return min(2*Weight(said)+400, maxHTML) }

// proseRenderer renders the parts of Markdown that strangers may put on a page.
type proseRenderer struct{ guide guideRenderer }

// RegisterFuncs implements renderer.NodeRenderer.
func (p *proseRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, p.renderHeading)
	r.Register(ast.KindCodeBlock, p.renderLines)
	r.Register(ast.KindFencedCodeBlock, p.renderLines)
	r.Register(ast.KindHTMLBlock, p.renderLines)
	r.Register(ast.KindRawHTML, noHTML)
	r.Register(ast.KindLink, p.renderLink)
	r.Register(ast.KindAutoLink, p.renderAutoLink)
	r.Register(ast.KindImage, p.renderImage)
	r.Register(east.KindTable, p.guide.renderTable)
	r.Register(east.KindTableHeader, p.guide.renderTableHeader)
	r.Register(east.KindTableCell, p.guide.renderTableCell)
}

// renderHeading makes a paragraph, because only the page itself makes headings.
func (p *proseRenderer) renderHeading(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	tag := "</b></p>\n"
	if entering {
		tag = "<p><b>"
	}
	_, err := w.WriteString(tag)
	return ast.WalkContinue, err
}

// renderLines makes a block of code, even of text that looks like HTML.
func (p *proseRenderer) renderLines(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	lines := node.Lines().Value(src)
	if block, is := node.(*ast.HTMLBlock); is && block.HasClosure() {
		lines = append(lines, block.ClosureLine.Value(src)...)
	}
	_, err := w.WriteString(`<pre>` + template.HTMLEscapeString(string(lines)) + "</pre>\n")
	return ast.WalkSkipChildren, err
}

// renderLink makes the text of a link, and behind it the address.
func (p *proseRenderer) renderLink(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	to := string(node.(*ast.Link).Destination)
	said := plain(node, src)
	switch alone := said == "" || said == to || said == Bare(to); {
	case !entering && alone || entering && !alone:
		return ast.WalkContinue, nil
	case entering:
		_, err := w.WriteString(target(to))
		return ast.WalkSkipChildren, err
	}
	_, err := w.WriteString(" (" + target(to) + ")")
	return ast.WalkContinue, err
}

func (p *proseRenderer) renderAutoLink(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, err := w.WriteString(target(string(node.(*ast.AutoLink).URL(src))))
	return ast.WalkContinue, err
}

func (p *proseRenderer) renderImage(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, err := w.WriteString("[image: " + template.HTMLEscapeString(plain(node, src)) + "] (" + target(string(node.(*ast.Image).Destination)) + ")")
	return ast.WalkSkipChildren, err
}

// target shows a stranger's address. If it leads to the web, it is a link.
func target(address string) string {
	to := Web(address)
	if to == "" {
		return "<code><bdi>" + template.HTMLEscapeString(address) + "</bdi></code>"
	}
	return `<a href="` + template.HTMLEscapeString(to) + `" rel="noopener noreferrer nofollow"><bdi>` + template.HTMLEscapeString(Bare(to)) + "</bdi></a>"
}

// Bare is a web address without its scheme, for people.
func Bare(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	return rest
}

// Web is the address if a link may have it, even if a stranger wrote it; else empty.
func Web(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return address
}

// Weight estimates the bytes that a text takes on a page.
func Weight(text string) (n int) {
	for i := range len(text) {
		switch c := text[i]; {
		case c == '<' || c == '>':
			n += 4
		case c == '&' || c == '"' || c == '\'' || c == '+':
			n += 5
		case c < ' ' && c != '\n' && c != '\t' || c == 0x7f:
			n += 6
		case c >= 0x80:
			n += 2
		default:
			n++
		}
	}
	return n
}
