// Package markdown renders Markdown as HTML: that of guides, which is the project's own, and that of agents,
// which may be an attacker's.
package markdown

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"triphammer/docs"
)

// Section is a part of a guide: the name of its anchor, and its heading.
type Section struct{ ID, Heading string }

// anchors names the sections of one guide.
type anchors map[string]bool

// Generate implements parser.IDs.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	return []byte(docs.Anchor(string(heading), a))
}

// Put implements parser.IDs.
func (a anchors) Put(name []byte) { a[string(name)] = true }

// Guide is the text of a guide below its title, and its sections. base is the path under which the
// server is reached, theme is the person's theme, and asset is the address of a file by its name. A link to a file that the server
// does not have becomes plain text.
func Guide(source, base, theme string, asset func(base, name string) (string, error)) (template.HTML, []Section, error) {
	src := []byte(source)
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone))),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(&guideRenderer{base: base, theme: theme, asset: asset}, 1))),
	)
	doc := markdown.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var sections []Section
	var away []*ast.Link
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok && n.Level == 2 {
				sections = append(sections, Section{string(id.([]byte)), plain(n, src)})
			}
		case *ast.Link:
			if to, ok := guideLink(string(n.Destination), base); ok {
				titled(n, src)
				n.Destination = []byte(to)
			} else {
				away = append(away, n)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", nil, err
	}
	for _, link := range away {
		parent := link.Parent()
		for child := link.FirstChild(); child != nil; {
			next := child.NextSibling()
			parent.InsertBefore(parent, link, child)
			child = next
		}
		parent.RemoveChild(parent, link)
	}
	var b bytes.Buffer
	err = markdown.Renderer().Render(&b, src, doc)
	return template.HTML(b.String()), sections, err
}

// titled replaces the text of a link by the guide's title, if the text is only the name of the
// guide's file.
func titled(link *ast.Link, src []byte) {
	file := string(link.Destination)
	name, isPage := strings.CutSuffix(file, ".md")
	text, found := docs.Text(name)
	if !isPage || !found || plain(link, src) != file {
		return
	}
	title, _ := docs.Title(text)
	link.RemoveChildren(link)
	link.AppendChild(link, ast.NewString([]byte(title)))
}

// guideLink is the address on this server for a link of a guide.
func guideLink(to, base string) (string, bool) {
	file, anchor, _ := strings.Cut(to, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	name, isPage := strings.CutSuffix(file, ".md")
	switch {
	case file == "":
		return anchor, true
	case strings.HasPrefix(to, "https://"):
		return to, true
	case !isPage || strings.Contains(name, "/"):
		return "", false
	}
	return base + Path(name) + anchor, true
}

// Path is the address of a guide, below the base.
func Path(name string) string {
	if name == docs.Index {
		return "/docs"
	}
	return "/docs/" + name
}

// plain is the text of a node without its marks.
func plain(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never fails
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Value(src))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// guideRenderer renders the parts of guides that need more than the plain translation.
type guideRenderer struct {
	base, theme string
	asset       func(base, name string) (string, error)
	heading     string // of the present section
}

// RegisterFuncs implements renderer.NodeRenderer.
func (g *guideRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, g.renderHeading)
	r.Register(ast.KindFencedCodeBlock, g.renderCode)
	r.Register(ast.KindHTMLBlock, g.renderPicture)
	r.Register(ast.KindRawHTML, noHTML)
	r.Register(east.KindTable, g.renderTable)
	r.Register(east.KindTableHeader, g.renderTableHeader)
	r.Register(east.KindTableCell, g.renderTableCell)
}

// renderHeading makes a heading with a link to itself. The page has its title as h1.
func (g *guideRenderer) renderHeading(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Heading)
	level := max(n.Level, 2)
	id, _ := n.AttributeString("id")
	name, _ := id.([]byte)
	if entering {
		g.heading = plain(n, src)
		_, _ = fmt.Fprintf(w, `<h%d id="%s">`, level, util.EscapeHTML(name))
		return ast.WalkContinue, nil
	}
	_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to the section %s">#</a></h%d>`+"\n", util.EscapeHTML(name), template.HTMLEscapeString(g.heading), level)
	return ast.WalkContinue, nil
}

// renderCode makes a block of code, under the name of its file.
func (g *guideRenderer) renderCode(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.FencedCodeBlock)
	info := ""
	if n.Info != nil {
		info = string(n.Info.Value(src))
	}
	label := "Code"
	if _, file, _ := strings.Cut(info, " "); path.Ext(file) != "" {
		label = file
		_, _ = fmt.Fprintf(w, `<p class="filename"><code>%s</code></p>`+"\n", template.HTMLEscapeString(file))
	}
	_, _ = fmt.Fprintf(w, `<pre class="scroll" tabindex="0" role="group" aria-label="%s">`, template.HTMLEscapeString(label))
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		_, _ = w.Write(util.EscapeHTML(line.Value(src))) // into memory
	}
	_, _ = w.WriteString("</pre>\n")
	return ast.WalkSkipChildren, nil
}

var picture = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^<picture>\s*<source [^>]*srcset="screenshots/([\w.-]+)">\s*<img src="screenshots/([\w.-]+)" alt="([^"]*)">\s*</picture>\s*$`)
})

// renderPicture makes a picture, in the theme that the person wants. There is no other HTML.
func (g *guideRenderer) renderPicture(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.HTMLBlock)
	html := string(n.Lines().Value(src))
	if n.HasClosure() {
		html += string(n.ClosureLine.Value(src))
	}
	if strings.HasPrefix(html, "<!--") { // comments are for the authors of the file
		return ast.WalkSkipChildren, nil
	}
	m := picture().FindStringSubmatch(html)
	if m == nil {
		return ast.WalkStop, fmt.Errorf("a guide has HTML that is no picture: %s", html)
	}
	dark, err := g.asset(g.base, m[1])
	if err != nil {
		return ast.WalkStop, err
	}
	light, err := g.asset(g.base, m[2])
	if err != nil {
		return ast.WalkStop, err
	}
	image := func(address string) string {
		return fmt.Sprintf(`<img src="%s" alt="%s" loading="lazy">`, template.HTMLEscapeString(address), m[3])
	}
	made := fmt.Sprintf(`<picture><source media="(prefers-color-scheme: dark)" srcset="%s">%s</picture>`, template.HTMLEscapeString(dark), image(light))
	switch g.theme {
	case "light":
		made = image(light)
	case "dark":
		made = image(dark)
	}
	_, err = fmt.Fprintf(w, "<figure>%s</figure>\n", made)
	return ast.WalkSkipChildren, err
}

// noHTML shows text that looks like HTML, such as <name>, unchanged.
func noHTML(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, err := w.Write(util.EscapeHTML(node.(*ast.RawHTML).Segments.Value(src)))
	return ast.WalkSkipChildren, err
}

// renderTable makes a table that scrolls by itself, with a name for people who do not see it.
func (g *guideRenderer) renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		name := template.HTMLEscapeString(g.heading)
		_, _ = fmt.Fprintf(w, `<div class="scrolls" tabindex="0" role="group" aria-label="Table: %s"><table><caption class="vh">%s</caption>`+"\n", name, name)
		return ast.WalkContinue, nil
	}
	_, err := w.WriteString("</table></div>\n")
	return ast.WalkContinue, err
}

// renderTableHeader leaves out a row of empty headings, because a screen reader would read it.
func (g *guideRenderer) renderTableHeader(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if strings.TrimSpace(plain(node, src)) == "" {
		if entering && node.NextSibling() != nil {
			_, _ = w.WriteString("<tbody>\n")
		}
		return ast.WalkSkipChildren, nil
	}
	if entering {
		_, _ = w.WriteString("<thead><tr>")
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("</tr></thead>\n")
	if node.NextSibling() != nil {
		_, _ = w.WriteString("<tbody>\n")
	}
	return ast.WalkContinue, nil
}

// renderTableCell makes a cell. A cell without text is no heading.
func (g *guideRenderer) renderTableCell(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	tag := "td"
	if node.Parent().Kind() == east.KindTableHeader && node.HasChildren() {
		tag = "th"
	}
	if entering {
		_, _ = fmt.Fprintf(w, "<%s>", tag)
	} else {
		_, _ = fmt.Fprintf(w, "</%s>", tag)
	}
	return ast.WalkContinue, nil
}
