package schema

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"triphammer/schema/frontmatter"
)

// ErrLayout is the error of Edit for a file whose layout Edit cannot change without losing
// something. A person can edit the file.
var ErrLayout = errors.New("the file is written in a way that only a person can change: edit it by hand")

// Edit changes the text of a YAML file so that its mapping equals want. All other bytes stay:
// comments, order, blank lines, quotes, line ends. New keys go to the end of their mapping.
// Parse must read the file without a finding.
//
// Edit reads its result again, and returns it only if it equals want.
func Edit(data []byte, want *Node) ([]byte, error) {
	t := newSource(data)
	return t.edit(0, len(t.text), 0, want, func(out []byte) bool {
		c := &Collector{}
		doc := Parse(c, out, Mapping)
		return doc != nil && len(c.Found) == 0 && Same(doc.Root, want)
	})
}

// EditMarkdown is Edit for the front matter of a Markdown file. If body is not nil, it
// replaces the text below the front matter.
func EditMarkdown(data []byte, want *Node, body *string) ([]byte, error) {
	t := newSource(data)
	front, rest, ok := frontmatter.Cut(t.text)
	if !ok {
		return nil, ErrLayout
	}
	first, _ := frontmatter.CutLine(t.text)
	text, before := string(rest), ""
	if body != nil {
		text = strings.ReplaceAll(strings.ReplaceAll(*body, "\r\n", "\n"), "\r", "\n")
		if text != "" {
			text += "\n"
		}
		if len(rest) == 0 && t.text[len(t.text)-1] != '\n' {
			before = "\n"
		}
		if text != string(rest) {
			t.splices = append(t.splices, splice{len(t.text) - len(rest), len(t.text), before + text})
		}
	}
	return t.edit(len(first), len(first)+len(front), 1, want, func(out []byte) bool {
		c := &Collector{}
		doc := ParseMarkdown(c, out)
		return doc != nil && len(c.Found) == 0 && Same(doc.Root, want) && doc.Body == strings.TrimSuffix(text, "\n")
	})
}

// Same tells whether two nodes have the same value, whatever the order of their keys.
func Same(a, b *Node) bool {
	if a.Kind == Null && b.Kind == Null {
		return true
	}
	scalar := a.Kind != List && a.Kind != Mapping
	if a.Kind != b.Kind || scalar && a.Text != b.Text || len(a.Items) != len(b.Items) || len(a.Fields) != len(b.Fields) {
		return false
	}
	for i := range a.Items {
		if !Same(a.Items[i], b.Items[i]) {
			return false
		}
	}
	other := b.byKey()
	for _, f := range a.Fields {
		if v := other[f.Key]; v == nil || !Same(f.Value, v) {
			return false
		}
	}
	return true
}

func (n *Node) byKey() map[string]*Node {
	all := make(map[string]*Node, len(n.Fields))
	for _, f := range n.Fields {
		all[f.Key] = f.Value
	}
	return all
}

// splice replaces the bytes from..to of a text.
type splice struct {
	from, to int
	text     string
}

// source is a file in the form that the library reads, without a byte order mark and with LF
// line ends, and the way back to its own bytes.
type source struct {
	data    []byte
	text    []byte
	mark    int    // bytes of the byte order mark
	dropped []int  // offsets in text of the line ends that have a CR before them in data
	lineEnd string // of the first line
	splices []splice
}

func newSource(data []byte) *source {
	t := &source{data: data, lineEnd: "\n"}
	t.mark = len(data) - len(bytes.TrimPrefix(data, bom))
	t.text = frontmatter.LineFeeds(data[t.mark:])
	at := 0
	for line := range bytes.Lines(data[t.mark:]) {
		at += len(line)
		if bytes.HasSuffix(line, []byte("\r\n")) {
			t.dropped = append(t.dropped, at-2-len(t.dropped))
		}
	}
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 && data[i] == '\r' {
		t.lineEnd = string(data[i : i+1])
		if bytes.HasPrefix(data[i:], []byte("\r\n")) {
			t.lineEnd = "\r\n"
		}
	}
	return t
}

// original is the offset in the file for an offset in text.
func (t *source) original(at int) int {
	before, _ := slices.BinarySearch(t.dropped, at)
	return t.mark + at + before
}

// edit changes the YAML document in text[from:to] so that it equals want.
func (t *source) edit(from, to, above int, want *Node, good func([]byte) bool) ([]byte, error) {
	document := t.text[from:to]
	have, raw := &Node{Kind: Mapping}, (*yaml.Node)(nil)
	if above == 0 || !blank(document) {
		c := &Collector{}
		if have, raw, _ = parseRaw(c, document, above, Mapping); have == nil || len(c.Found) > 0 {
			return nil, ErrLayout
		}
	}
	// The second try writes each changed value in one line, which suits every place.
	for _, oneLine := range []bool{false, true} {
		e := &editor{text: document, oneLine: oneLine, columns: make(map[int][]int)}
		if e.starts = []int{0}; len(document) > 0 {
			ends := lineEnds(document)
			e.starts = append(e.starts, ends[:len(ends)-1]...)
		}
		e.root(raw, have, want)
		all := slices.Clone(t.splices)
		for _, s := range e.splices {
			all = append(all, splice{s.from + from, s.to + from, s.text})
		}
		if out, ok := t.apply(all); ok && !e.lost && good(out) {
			return out, nil
		}
	}
	return nil, ErrLayout
}

// apply makes the changes in the file itself. It is false if they overlap.
func (t *source) apply(all []splice) ([]byte, bool) {
	slices.SortStableFunc(all, func(a, b splice) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out []byte
	at := 0
	for _, s := range all {
		from, to := t.original(s.from), t.original(s.to)
		if from < at || to < from {
			return nil, false
		}
		out = append(out, t.data[at:from]...)
		out = append(out, strings.ReplaceAll(s.text, "\n", t.lineEnd)...)
		at = to
	}
	return append(out, t.data[at:]...), true
}

// editor finds the changes to a document. It is lost if it cannot tell where a value is.
type editor struct {
	text    []byte
	starts  []int         // of the lines, as the library counts them
	columns map[int][]int // offsets of the characters of lines that are not ASCII
	oneLine bool          // write each changed value in one line
	splices []splice
	lost    bool
}

func (e *editor) splice(from, to int, text string) {
	e.splices = append(e.splices, splice{from, to, text})
}

// place is where a value is, or would be.
type place struct {
	flow   bool // within [] or {}
	item   bool // of a list
	after  int  // offset after the colon or dash
	outer  int  // column, from 0, of the block collection that holds it
	indent int  // columns before the lines of a block that is written at the place
}

func (e *editor) root(raw *yaml.Node, have, want *Node) {
	switch {
	case raw == nil || len(raw.Content) == 0:
		if len(want.Fields) == 0 {
			return
		}
		if raw != nil { // {}
			at := e.offset(raw)
			e.splice(at, e.end(raw, place{outer: -1}), blockText(want, 0))
			return
		}
		text := blockText(want, 0) + "\n"
		if len(e.text) > 0 && e.text[len(e.text)-1] != '\n' {
			text = "\n" + text
		}
		e.splice(len(e.text), len(e.text), text)
	case len(want.Fields) == 0:
		e.splice(e.offset(raw), e.end(raw, place{outer: -1}), "{}")
	case !e.mapping(raw, have, want, place{outer: -1}):
		e.splice(e.offset(raw), e.end(raw, place{outer: -1}), blockText(want, raw.Column-1))
	}
}

// value changes a value in place. raw and have are the present value.
func (e *editor) value(raw *yaml.Node, have, want *Node, p place) {
	switch {
	case e.lost || Same(have, want):
	case have.Kind == Mapping && want.Kind == Mapping && e.mapping(raw, have, want, p):
	case have.Kind == List && want.Kind == List && e.list(raw, have, want, p):
	default:
		e.replace(raw, want, p)
	}
}

// entry is a key with its value, or an item of a list.
type entry struct {
	from, to int // includes the key or dash, but not the rest of the last line
	place
}

// mapping changes single keys. It returns false if the whole mapping must be written anew.
func (e *editor) mapping(raw *yaml.Node, have, want *Node, p place) bool {
	wanted := want.byKey()
	keep := func(f Field) bool { return wanted[f.Key] != nil }
	if len(raw.Content) != 2*len(have.Fields) || !slices.ContainsFunc(have.Fields, keep) {
		return false
	}
	p.flow = p.flow || raw.Style&yaml.FlowStyle != 0
	entries := make([]entry, len(have.Fields))
	for i := range entries {
		entries[i] = e.field(raw, i, p)
	}
	var kept []bool
	for i, f := range have.Fields {
		kept = append(kept, keep(f))
		if kept[i] {
			e.value(raw.Content[2*i+1], f.Value, wanted[f.Key], entries[i].place)
		}
	}
	var added []string
	mine := have.byKey()
	for _, f := range want.Fields {
		switch {
		case mine[f.Key] != nil:
		case p.flow || e.oneLine:
			added = append(added, keyText(f.Key)+": "+flowText(f.Value))
		default:
			added = append(added, keyText(f.Key)+":"+afterColon(f.Value, raw.Column-1))
		}
	}
	last := len(kept) - 1
	for !kept[last] {
		last--
	}
	e.rewrite(entries, kept, added, last, raw.Column-1, p.flow)
	return true
}

// list changes single items. It returns false if the whole list must be written anew.
func (e *editor) list(raw *yaml.Node, have, want *Node, p place) bool {
	if len(have.Items) == 0 || len(want.Items) == 0 || len(raw.Content) != len(have.Items) {
		return false
	}
	p.flow = p.flow || raw.Style&yaml.FlowStyle != 0
	entries, ok := e.items(raw, p)
	if !ok {
		return false
	}
	before, after := 0, 0
	for before < min(len(have.Items), len(want.Items)) && Same(have.Items[before], want.Items[before]) {
		before++
	}
	fromEnd := func(n *Node) *Node { return n.Items[len(n.Items)-1-after] }
	for after < min(len(have.Items), len(want.Items))-before && Same(fromEnd(have), fromEnd(want)) {
		after++
	}
	mine, others := len(have.Items)-before-after, len(want.Items)-before-after
	both := before + min(mine, others)
	if both == 0 && (others > 0 || after == 0) {
		return false // a new item comes before the first, or no item stays
	}
	kept := make([]bool, len(have.Items))
	for i := range kept {
		kept[i] = i < both || i >= before+mine
		if i >= before && i < both {
			e.value(raw.Content[i], have.Items[i], want.Items[i], entries[i].place)
		}
	}
	var added []string
	for _, item := range want.Items[both : before+others] {
		if p.flow || e.oneLine {
			text := flowText(item)
			if !p.flow {
				text = "- " + text
			}
			added = append(added, text)
		} else {
			added = append(added, "- "+afterDash(item, raw.Column+1))
		}
	}
	e.rewrite(entries, kept, added, both-1, raw.Column-1, p.flow)
	return true
}

// rewrite takes out the entries that are not kept, and adds new entries after the kept entry
// at an index. At least one entry is kept.
func (e *editor) rewrite(entries []entry, kept []bool, added []string, after, column int, flow bool) {
	first := slices.Index(kept, true)
	begin := 0
	if inside := len(bytes.Trim(e.text[e.lineStartAt(entries[0].from):entries[0].from], " ")) > 0; flow || inside {
		// The first entry in brackets, or behind a dash, gives its place to the next entry.
		if begin = first; flow || !e.hasComment(entries[:first+1]) {
			e.splice(entries[0].from, entries[first].from, "")
		} else {
			for _, one := range entries[:first] {
				e.splice(one.from, one.to, "")
			}
		}
	}
	for i := begin; i < len(entries); i++ {
		switch {
		case kept[i]:
		case flow:
			e.splice(entries[i-1].to, entries[i].to, "")
		case i < first:
			e.splice(e.lineStartAt(entries[i].from), e.lineEndAt(entries[i].to)+1, "")
		default:
			e.splice(max(e.lineStartAt(entries[i].from)-1, 0), e.lineEndAt(entries[i].to), "")
		}
	}
	for _, text := range added {
		if flow {
			e.splice(entries[after].to, entries[after].to, ", "+text)
		} else {
			at := e.lineEndAt(entries[after].to)
			e.splice(at, at, "\n"+strings.Repeat(" ", column)+text)
		}
	}
}

// hasComment tells whether there is a comment between the entries.
func (e *editor) hasComment(entries []entry) bool {
	for i := range len(entries) - 1 {
		if len(bytes.TrimSpace(e.text[entries[i].to:entries[i+1].from])) > 0 {
			return true
		}
	}
	return false
}

func (e *editor) replace(raw *yaml.Node, want *Node, p place) {
	nothing := isEmpty(raw)
	block := (raw.Kind == yaml.MappingNode || raw.Kind == yaml.SequenceNode) && raw.Style&yaml.FlowStyle == 0
	from, to := p.after, p.after
	if !nothing {
		from, to = e.offset(raw), e.end(raw, p)
	}
	if p.flow || e.oneLine || isInline(want) {
		text := scalarText(want, raw.Style, p.flow)
		if nothing || block {
			e.splice(p.after, to, " "+text)
		} else {
			e.splice(from, to, text)
		}
		return
	}
	if want.Kind == String {
		text := literalText(want.Text, p.indent)
		switch {
		case len(bytes.TrimSpace(e.text[to:e.lineEndAt(to)])) > 0: // a comment would become part of it
			text = doubleQuoted(want.Text)
			fallthrough
		case !nothing && !block:
			e.splice(from, to, text)
		default:
			e.splice(p.after, to, " "+text)
		}
		return
	}
	switch {
	case p.item && nothing:
		e.splice(from, to, " "+blockText(want, p.indent))
	case p.item && e.lineStartAt(from) == e.lineStartAt(p.after):
		e.splice(from, to, blockText(want, raw.Column-1))
	case block && len(bytes.Trim(e.text[e.lineStartAt(from):from], " ")) == 0:
		e.splice(from, to, blockText(want, raw.Column-1))
	default:
		e.splice(p.after, to, "\n"+strings.Repeat(" ", p.indent)+blockText(want, p.indent))
	}
}
