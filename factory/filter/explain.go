package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"triphammer/factory/jsonscan"
)

// evaluator evaluates one filter on a body that Check has passed, so that the
// errors of its scanner cannot happen. It recurses over the filter, never over
// the body.
type evaluator struct {
	jsonscan.Scanner
	collect    bool // evaluate all conditions and describe them; else stop at the first failed condition
	conditions []Condition
}

// span is where a value stands in the body; the zero span is an absent one.
type span struct{ start, end int }

func (s span) absent() bool { return s.end == 0 }

func (e *evaluator) note(path, want, got string, ok bool) {
	e.conditions = append(e.conditions, Condition{Path: path, Want: want, Got: got, OK: ok})
}

func (e *evaluator) root(f *Filter) bool {
	e.Space()
	at := e.value()
	if e.Data[at.start] != '{' {
		if e.collect {
			e.note("payload", "an object", e.show(at), false)
		}
		return false
	}
	return e.pattern(f.root, at)
}

// value is the span of the value at Pos, which it steps over.
func (e *evaluator) value() span {
	start := e.Pos
	_ = e.Skip() // Check has passed the body
	return span{start, e.Pos}
}

func (e *evaluator) pattern(p *pattern, at span) bool {
	values := e.fields(p, at)
	matched := true
	for i := range p.fields {
		if !e.rule(&p.fields[i], values[i]) {
			matched = false
			if !e.collect {
				return false
			}
		}
	}
	return matched
}

// fields finds the values of a pattern's keys. The last of duplicate keys counts
// (SPEC 8.2).
func (e *evaluator) fields(p *pattern, at span) []span {
	values := make([]span, len(p.fields))
	e.Pos = at.start
	for e.Enter(); e.More(); {
		key := e.Name()
		v := e.value()
		for i := range p.fields {
			if p.fields[i].key == string(key) {
				values[i] = v
			}
		}
	}
	return values
}

func (e *evaluator) rule(c *rule, at span) bool {
	if c.nested != nil {
		return e.nested(c, at)
	}
	ok := true
	switch c.exists {
	case mustExist:
		ok = !at.absent()
	case mustNotExist:
		ok = at.absent()
	}
	if len(c.in) > 0 {
		ok = ok && e.overlaps(c.in, at)
	}
	if len(c.notIn) > 0 {
		ok = ok && !e.overlaps(c.notIn, at)
	}
	if e.collect {
		e.note(c.path, c.want(), e.show(at), ok)
	}
	return ok
}

// overlaps tells whether the value is in the set, or, if it is an array, one of its
// elements.
func (e *evaluator) overlaps(set []scalar, at span) bool {
	if at.absent() {
		return false
	}
	if e.Data[at.start] != '[' {
		return e.contains(set, at)
	}
	return slices.ContainsFunc(e.elements(at), func(element span) bool { return e.contains(set, element) })
}

func (e *evaluator) contains(set []scalar, at span) bool {
	key, ok := e.scalarKey(at)
	if !ok {
		return false
	}
	return slices.ContainsFunc(set, func(s scalar) bool { return s.key == key })
}

func (e *evaluator) scalarKey(at span) (key string, ok bool) {
	switch e.Data[at.start] {
	case '{', '[':
		return "", false
	case '"':
		e.Pos = at.start
		return string(tagString) + string(e.Unquote()), true
	case 't':
		return keyTrue, true
	case 'f':
		return keyFalse, true
	case 'n':
		return keyNull, true
	}
	b, ok := appendDecimal([]byte{tagNumber}, e.Data[at.start:at.end])
	return string(b), ok
}

func (e *evaluator) elements(at span) []span {
	var all []span
	e.Pos = at.start
	for e.Enter(); e.More(); {
		all = append(all, e.value())
	}
	return all
}

// nested evaluates an object pattern on a field. If the field is an array, one object
// in it must match.
func (e *evaluator) nested(c *rule, at span) bool {
	if !at.absent() && e.Data[at.start] == '{' {
		if e.collect && len(c.nested.fields) == 0 {
			e.note(c.path, "an object", e.show(at), true)
		}
		return e.pattern(c.nested, at)
	}
	var objects []span
	if !at.absent() && e.Data[at.start] == '[' {
		for _, element := range e.elements(at) {
			if e.Data[element.start] == '{' {
				objects = append(objects, element)
			}
		}
	}
	if len(objects) == 1 {
		return e.pattern(c.nested, objects[0])
	}
	quiet := evaluator{Scanner: jsonscan.Scanner{Data: e.Data}}
	for _, object := range objects {
		if quiet.pattern(c.nested, object) {
			if e.collect {
				e.note(c.path, "an element that matches", fmt.Sprintf("one of %d does", len(objects)), true)
			}
			return true
		}
	}
	if e.collect {
		if len(objects) > 0 {
			e.note(c.path, "an element that matches", fmt.Sprintf("none of %d does", len(objects)), false)
		} else {
			e.note(c.path, "an object", e.show(at), false)
		}
	}
	return false
}

// want is the condition in words.
func (c *rule) want() string {
	var parts []string
	switch c.exists {
	case mustExist:
		parts = append(parts, "to exist")
	case mustNotExist:
		parts = append(parts, "to be absent")
	}
	if len(c.in) > 0 {
		parts = append(parts, list("one of ", c.in))
	}
	if len(c.notIn) > 0 {
		parts = append(parts, list("none of ", c.notIn))
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " and ")
}

func list(prefix string, set []scalar) string {
	shown := make([]string, len(set))
	for i, s := range set {
		shown[i] = s.show
	}
	if len(shown) == 1 && prefix == "one of " {
		return shown[0]
	}
	return shorten(prefix + strings.Join(shown, ", "))
}

// show is a value of the body in words.
func (e *evaluator) show(at span) string {
	if at.absent() {
		return "nothing"
	}
	switch e.Data[at.start] {
	case '{':
		return "an object"
	case '[':
		elements := e.elements(at)
		shown := make([]string, 0, 4)
		for i, element := range elements {
			if i == 3 && len(elements) > 4 {
				shown = append(shown, fmt.Sprintf("… %d in all", len(elements)))
				break
			}
			if c := e.Data[element.start]; c == '[' {
				shown = append(shown, "an array")
			} else {
				shown = append(shown, e.show(element))
			}
		}
		return "[" + strings.Join(shown, ", ") + "]"
	case '"':
		e.Pos = at.start
		return strconv.Quote(shorten(string(e.Unquote())))
	}
	return shorten(string(e.Data[at.start:at.end]))
}
