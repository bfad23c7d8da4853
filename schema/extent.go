package schema

import (
	"bytes"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// The library says where a node begins. The functions of this file find where it ends.

// isEmpty tells whether a value is not written at all, as after `key:`.
func isEmpty(n *yaml.Node) bool {
	const styles = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style&styles == 0
}

// offset is where a node begins.
func (e *editor) offset(n *yaml.Node) int {
	line := n.Line - 1
	if line < 0 || line >= len(e.starts) {
		e.lost = true
		return 0
	}
	offsets, known := e.columns[line]
	if !known {
		to := len(e.text)
		if line+1 < len(e.starts) {
			to = e.starts[line+1]
		}
		if text := e.text[e.starts[line]:to]; utf8.RuneCount(text) < len(text) {
			for i := range string(text) {
				offsets = append(offsets, e.starts[line]+i)
			}
		}
		e.columns[line] = offsets
	}
	at := e.starts[line] + n.Column - 1
	if offsets != nil && n.Column-1 < len(offsets) {
		at = offsets[n.Column-1]
	}
	if at > len(e.text) {
		e.lost = true
		return 0
	}
	return at
}

func (e *editor) lineStartAt(at int) int { return bytes.LastIndexByte(e.text[:at], '\n') + 1 }

func (e *editor) lineEndAt(at int) int {
	if i := bytes.IndexByte(e.text[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(e.text)
}

// end is where a node ends. The node must not be empty.
func (e *editor) end(n *yaml.Node, p place) int {
	at := e.offset(n)
	if e.lost {
		return at
	}
	switch n.Kind {
	case yaml.ScalarNode:
		switch {
		case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
			return e.quotedEnd(at)
		case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
			return e.literalEnd(at, p.outer)
		}
		return e.plainEnd(at, n.Value, p.flow)
	case yaml.MappingNode, yaml.SequenceNode:
		if n.Style&yaml.FlowStyle != 0 {
			return e.bracketEnd(at)
		}
		if n.Kind == yaml.MappingNode {
			return e.field(n, len(n.Content)/2-1, p).to
		}
		if all, ok := e.items(n, p); ok {
			return all[len(all)-1].to
		}
	}
	e.lost = true
	return at
}

// field is the i-th key of a mapping, with its value.
func (e *editor) field(n *yaml.Node, i int, p place) entry {
	if i < 0 || len(n.Content) < 2*i+2 || p.flow && e.byte(e.offset(n)) != '{' {
		e.lost = true
		return entry{}
	}
	key, value := n.Content[2*i], n.Content[2*i+1]
	in := entry{from: e.offset(key), place: place{flow: p.flow, outer: n.Column - 1, indent: n.Column + 1}}
	if in.flow {
		in.outer = p.outer
	}
	if e.lost {
		return in
	}
	at := in.from
	if !isEmpty(key) {
		at = e.end(key, place{flow: true, outer: in.outer})
	}
	for e.byte(at) == ' ' || e.byte(at) == '\t' {
		at++
	}
	if e.byte(at) != ':' {
		e.lost = true
		return in
	}
	in.after = at + 1
	if in.to = in.after; !isEmpty(value) {
		in.to = e.end(value, in.place)
	}
	return in
}

// items are the items of a list. ok is false if the dashes are not found.
func (e *editor) items(n *yaml.Node, p place) (all []entry, ok bool) {
	at := e.offset(n)
	for _, item := range n.Content {
		in := entry{place: place{flow: p.flow || n.Style&yaml.FlowStyle != 0, item: true, outer: n.Column - 1, indent: n.Column + 1}}
		if in.flow {
			in.outer = p.outer
			if isEmpty(item) || item.Kind == yaml.MappingNode && e.byte(e.offset(item)) != '{' { // [a: b]
				e.lost = true
			}
			in.from, in.after = e.offset(item), e.offset(item)
		} else {
			// Between items there are only comments and empty lines.
			for len(all) > 0 {
				if at = e.lineEndAt(at) + 1; at > len(e.text) {
					e.lost = true
					break
				}
				line := e.text[at:e.lineEndAt(at)]
				if dash := len(line) - len(bytes.TrimLeft(line, " ")); dash == n.Column-1 && dash < len(line) && line[dash] == '-' {
					at += dash
					break
				}
			}
			in.from, in.after = at, at+1
			if !e.lost && e.byte(at) != '-' {
				e.lost = true
			}
		}
		if e.lost {
			return nil, false
		}
		if in.to = in.after; !isEmpty(item) {
			in.to = e.end(item, in.place)
		}
		at = in.to
		all = append(all, in)
	}
	return all, len(all) > 0
}

func (e *editor) byte(at int) byte {
	if at < len(e.text) {
		return e.text[at]
	}
	return 0
}

func (e *editor) quotedEnd(at int) int {
	quote := e.byte(at)
	for i := at + 1; i < len(e.text); i++ {
		switch {
		case e.text[i] == '\\' && quote == '"':
			i++
		case e.text[i] != quote:
		case quote == '\'' && e.byte(i+1) == quote:
			i++
		default:
			return i + 1
		}
	}
	e.lost = true
	return at
}

// bracketEnd is the end of a list in [] or of a mapping in {}.
func (e *editor) bracketEnd(at int) int {
	depth := 0
	for i := at; i < len(e.text) && !e.lost; i++ {
		before := e.byte(max(i-1, 0))
		starts := i == at || bytes.IndexByte([]byte(" \t\n,[]{}:"), before) >= 0 // of a scalar
		switch c := e.text[i]; {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case (c == '"' || c == '\'') && starts:
			i = e.quotedEnd(i) - 1
		case c == '#' && (before == ' ' || before == '\t' || before == '\n'):
			i = e.lineEndAt(i)
		}
	}
	e.lost = true
	return at
}

// plainEnd is the end of a scalar without quotes. Its value tells on which line it ends.
func (e *editor) plainEnd(at int, value string, flow bool) int {
	folded, breaks, end := make([]byte, 0, len(value)), 0, at
	for i := at; i < len(e.text) && len(folded) <= len(value); {
		line := e.text[i:e.lineEndAt(i)]
		word := line[:plainLength(line, flow)]
		word = bytes.TrimRight(word, " \t")
		switch {
		case len(word) == 0:
		case breaks == 1:
			folded = append(folded, ' ')
		case breaks > 1:
			folded = append(folded, bytes.Repeat([]byte{'\n'}, breaks-1)...)
		}
		if len(word) > 0 {
			folded, breaks, end = append(folded, word...), 0, i+len(word)
		}
		if string(folded) == value {
			return end
		}
		breaks++
		for i = e.lineEndAt(i) + 1; e.byte(i) == ' ' || e.byte(i) == '\t'; i++ {
		}
	}
	e.lost = true
	return at
}

// plainLength is how much of a line can belong to a scalar without quotes.
func plainLength(line []byte, flow bool) int {
	for i, c := range line {
		last := i+1 == len(line)
		switch {
		case c == ':' && (last || line[i+1] == ' ' || line[i+1] == '\t' || flow && bytes.IndexByte([]byte(",[]{}"), line[i+1]) >= 0):
			return i
		case c == '#' && i > 0 && (line[i-1] == ' ' || line[i-1] == '\t'):
			return i
		case flow && bytes.IndexByte([]byte(",[]{}"), c) >= 0:
			return i
		}
	}
	return len(line)
}

// literalEnd is the end of a scalar after | or >. outer is the column of the block that holds
// it. Empty lines at its end belong to it only after a plus.
func (e *editor) literalEnd(at, outer int) int {
	header := e.text[at:e.lineEndAt(at)]
	indent, keep := -1, false
	for _, c := range header[1:min(len(header), 3)] {
		if c >= '1' && c <= '9' {
			indent = max(outer, 0) + int(c-'0')
		}
		keep = keep || c == '+'
	}
	comment := bytes.IndexByte(header, '#')
	end := at + len(header)
	if comment >= 0 {
		end = at + len(bytes.TrimRight(header[:comment], " \t"))
	}
	for i := e.lineEndAt(at) + 1; i < len(e.text); {
		to := e.lineEndAt(i)
		line := e.text[i:to]
		deep := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case deep == len(line):
			if keep {
				end = to
			}
		case indent < 0 && deep > outer:
			indent = deep
			fallthrough
		case indent >= 0 && deep >= indent:
			end = to
		default:
			return end
		}
		i = to + 1
	}
	return end
}
