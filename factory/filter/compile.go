package filter

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of a filter (docs/filters.md).
const (
	MaxDepth  = 10 // levels of nested objects
	MaxLeaves = 64 // fields with a condition
	MaxValues = 32 // values of one set
)

// Problem says what is wrong with a filter, and where.
type Problem struct {
	Path         string // such as payload.build.status
	Line, Column int    // of the offending key or value, 0 if unknown
	Message      string
	Hint         string
}

func (p Problem) String() string {
	s := p.Path + ": " + p.Message
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Filter is a compiled payload filter. A nil Filter matches every body. It is
// immutable and safe for concurrent use.
type Filter struct{ root *pattern }

// pattern matches an object whose fields satisfy all rules.
type pattern struct{ fields []rule }

// rule is the condition on one field. All operators of a rule must hold.
type rule struct {
	key    string
	path   string
	in     []scalar
	notIn  []scalar
	exists existence
	nested *pattern
}

type existence int8

const (
	anyExistence existence = iota
	mustExist
	mustNotExist
)

// scalar is a value to compare with. Two scalars of any types are equal if and only if
// their keys are.
type scalar struct{ key, show string }

// The first byte of a scalar's key is its type.
const (
	tagString = 's'
	tagNumber = 'n'
	keyTrue   = "t"
	keyFalse  = "f"
	keyNull   = "z"
)

// Compile turns a pattern into a Filter, or returns everything that is wrong with it.
// It returns a Filter if and only if there is no problem.
func Compile(v Value) (*Filter, []Problem) {
	c := compiler{}
	if v.Kind != Object {
		c.problem("payload", v.Line, v.Column, "write {KEY: [VALUE]}", "a payload filter is an object that mirrors the body, not %s", v.Kind)
		return nil, c.problems
	}
	if ops, fields := split(v); len(ops) > 0 {
		c.problem("payload", ops[0].Line, ops[0].Column, operatorFieldHint, "%s applies to a field, not to the whole body", quoteKeys(ops))
		v.Fields = fields
	}
	root := c.object(v, "payload", 1)
	if c.leaves > MaxLeaves {
		c.problem("payload", v.Line, v.Column, "leave out the fields that follow from the others", "%d fields with a condition; a filter has at most %d", c.leaves, MaxLeaves)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return &Filter{root: root}, nil
}

type compiler struct {
	problems []Problem
	leaves   int
}

func (c *compiler) problem(path string, line, column int, hint, format string, args ...any) {
	c.problems = append(c.problems, Problem{
		Path: path, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (c *compiler) object(v Value, path string, depth int) *pattern {
	p := &pattern{}
	if depth > MaxDepth && len(v.Fields) > 0 {
		c.problem(path, v.Line, v.Column, "filter on a field further up", "nested deeper than %d levels", MaxDepth)
		return p
	}
	for _, f := range v.Fields {
		p.fields = append(p.fields, c.field(f, path, depth))
	}
	return p
}

func (c *compiler) field(f Field, path string, depth int) rule {
	cond := rule{key: f.Key, path: path + "." + pathKey(f.Key)}
	v := f.Value
	switch {
	case v.Kind == Array:
		c.leaves++
		cond.in = c.set(v, cond.path)
	case v.Kind != Object:
		c.leaves++
		c.problem(cond.path, v.Line, v.Column, "write ["+source(v)+"]", "%s where an array of allowed values is expected", v.Kind)
	case isOperators(v):
		c.leaves++
		c.operators(&cond, v.Fields)
	case len(v.Fields) == 0:
		c.leaves++
		cond.nested = &pattern{}
	default:
		if ops, others := split(v); len(ops) > 0 {
			c.mixed(v, ops, others, &cond, depth)
		} else {
			cond.nested = c.object(v, cond.path, depth+1)
		}
	}
	return cond
}

func (c *compiler) set(v Value, path string) []scalar {
	if len(v.Items) == 0 {
		c.problem(path, v.Line, v.Column, "leave the key out to accept anything; use {exists: true} for any value", "an empty array matches nothing")
		return nil
	}
	if len(v.Items) > MaxValues {
		c.problem(path, v.Line, v.Column, "share them between two triggers: either starts the automation", "%d values; a set has at most %d", len(v.Items), MaxValues)
	}
	set := make([]scalar, 0, len(v.Items))
	for _, item := range v.Items {
		s := scalar{show: source(item)}
		switch item.Kind {
		case String:
			s.key = string(tagString) + item.Text
		case Number:
			if !isNumber(item.Text) {
				c.problem(path, item.Line, item.Column, "", "%q is not a number as JSON writes it", shorten(item.Text))
				continue
			}
			key, ok := appendDecimal([]byte{tagNumber}, []byte(item.Text))
			if !ok {
				c.problem(path, item.Line, item.Column, "", "the exponent of %s is out of range", shorten(item.Text))
				continue
			}
			s.key = string(key)
		case Bool:
			s.key = keyFalse
			if item.Bool {
				s.key = keyTrue
			}
		case Null:
			s.key = keyNull
		default:
			c.problem(path, item.Line, item.Column, "list the values themselves; a field of an object is filtered by nesting", "%s in a set of values; only strings, numbers, booleans and null compare", item.Kind)
			continue
		}
		set = append(set, s)
	}
	return set
}

// source is a scalar as it would be written in JSON, shortened.
func source(v Value) string {
	switch v.Kind {
	case String:
		return strconv.Quote(shorten(v.Text))
	case Number:
		return shorten(v.Text)
	case Bool:
		return strconv.FormatBool(v.Bool)
	case Null:
		return "null"
	}
	return v.Kind.String()
}

// pathKey is a key in a path: quoted where a dot or a blank would confuse.
func pathKey(key string) string {
	if key == "" || strings.ContainsAny(key, ". \t\n\"[]") {
		return strconv.Quote(key)
	}
	return key
}
