package filter

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// MaxHeader is how many bytes of a header's value are kept with a delivery. A filter
// cannot ask for a longer value.
const MaxHeader = 255

// Headers is a compiled filter on the headers of a delivery. All named headers must satisfy
// their conditions. Names are compared without regard to case, values exactly. A nil
// Headers accepts every delivery. It is immutable and safe for concurrent use.
type Headers struct{ root *pattern }

// CompileHeaders turns a value such as {X-GitHub-Event: [issues]} into a Headers, or
// returns everything that is wrong with it. It returns a Headers if and only if there is
// no problem.
func CompileHeaders(v Value) (*Headers, []Problem) {
	c := compiler{}
	if v.Kind != Object || len(v.Fields) == 0 {
		c.problem("headers", v.Line, v.Column, "write {X-Event-Type: [VALUE]}", "a header filter is an object with a key per header, not %s", orEmpty(v))
		return nil, c.problems
	}
	root, spelled := &pattern{}, make(map[string]string)
	for _, f := range v.Fields {
		r := rule{key: http.CanonicalHeaderKey(f.Key), path: "headers." + pathKey(f.Key)}
		if other, twice := spelled[r.key]; twice {
			c.problem(r.path, f.Line, f.Column, "keep one of them", "it is the same header as %s", other)
			continue
		}
		spelled[r.key] = f.Key
		c.header(f.Value, &r)
		root.fields = append(root.fields, r)
	}
	if len(root.fields) > MaxLeaves {
		c.problem("headers", v.Line, v.Column, "leave out the headers that follow from the others", "%d headers with a condition; a filter has at most %d", len(root.fields), MaxLeaves)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return &Headers{root}, nil
}

func orEmpty(v Value) string {
	if v.Kind == Object {
		return "an empty one"
	}
	return v.Kind.String()
}

// header compiles the conditions on one header.
func (c *compiler) header(v Value, r *rule) {
	before := len(c.problems)
	c.texts(v, r.path)
	for _, f := range v.Fields {
		if f.Key == "in" || f.Key == "not_in" {
			c.texts(f.Value, r.path+"."+f.Key)
		}
	}
	if len(c.problems) > before {
		return // the same again, in the words of bodies
	}
	switch {
	case v.Kind == Array:
		r.in = c.set(v, r.path)
	case isOperators(v):
		c.operators(r, v.Fields)
	case v.Kind == Object:
		hint := "in, not_in and exists are the operators"
		for _, f := range v.Fields {
			if op := nearOperator(f.Key); op != "" {
				hint = "did you mean " + strconv.Quote(op) + "?"
			}
		}
		c.problem(r.path, v.Line, v.Column, hint, "a header takes an array of values, or an object of operators")
	default:
		c.problem(r.path, v.Line, v.Column, "write ["+strconv.Quote(shorten(v.Text))+"]", "%s where an array of allowed values is expected", v.Kind)
	}
}

// texts reports the values of an array that are not texts: a header holds only text.
func (c *compiler) texts(v Value, path string) {
	seen := make(map[string]bool)
	for _, item := range v.Items {
		switch {
		case item.Kind != String:
			c.problem(path, item.Line, item.Column, "quote it, or take it out", "%s in a set of values; a header holds text", item.Kind)
		case seen[item.Text]:
			c.problem(path, item.Line, item.Column, "keep one of them", "it holds %s twice", source(item))
		case !isHeaderValue(item.Text):
			c.problem(path, item.Line, item.Column, "copy it from a delivery", "%s cannot be the value of a header: that is 1 to %d characters of ASCII that can be seen, and spaces between them", source(item), MaxHeader)
		}
		seen[item.Text] = true
	}
}

func isHeaderValue(s string) bool {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	return s != "" && len(s) <= MaxHeader && strings.TrimFunc(s, printable) == "" && strings.TrimSpace(s) == s
}

func (r *rule) accepts(headers map[string]string) bool {
	value, there := headers[r.key]
	is := func(s scalar) bool { return there && s.key[1:] == value }
	switch {
	case r.exists == mustExist && !there, r.exists == mustNotExist && there:
		return false
	case len(r.in) > 0 && !slices.ContainsFunc(r.in, is):
		return false
	}
	return !slices.ContainsFunc(r.notIn, is)
}

// Explain evaluates every condition of the filter.
func (h *Headers) Explain(headers map[string]string) Verdict {
	v := Verdict{Matched: true}
	if h == nil {
		return v
	}
	for i := range h.root.fields {
		r := &h.root.fields[i]
		c := Condition{Path: r.path, Want: r.want(), Got: "nothing", OK: r.accepts(headers)}
		if value, there := headers[r.key]; there {
			c.Got = strconv.Quote(shorten(value))
		}
		v = v.And(Verdict{Matched: c.OK, Path: c.Path, Want: c.Want, Got: c.Got, Conditions: []Condition{c}})
	}
	return v
}

// And is the verdict on a delivery that must satisfy both filters.
func (v Verdict) And(other Verdict) Verdict {
	if v.Matched {
		v.Matched, v.Path, v.Want, v.Got = other.Matched, other.Path, other.Want, other.Got
		if v.Matched {
			v.Path, v.Want, v.Got = "", "", ""
		}
	}
	v.Conditions = append(v.Conditions, other.Conditions...)
	return v
}

// String returns the filter as canonical JSON: two filters have the same text if and only
// if they are equal. It is empty for a nil filter.
func (h *Headers) String() string {
	if h == nil {
		return ""
	}
	return h.root.text()
}

// Values are the values that the filter allows, as in [Filter.Values], for each header with
// a condition (such as headers.X-Github-Event, in canonical spelling).
func (h *Headers) Values() map[string][]string {
	all := make(map[string][]string)
	if h != nil {
		for i := range h.root.fields {
			all["headers."+h.root.fields[i].key] = h.root.fields[i].allowed()
		}
	}
	return all
}
