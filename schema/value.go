package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Value is one value of a definition in canonical form. Two files with the same meaning have
// the same values, whatever their comments and the order of their keys.
type Value struct {
	Key  string // such as "platform.linux.dockerImage"
	JSON string // keys of mappings are sorted; empty for a null that removes an inherited value
}

// Values lists the values of a valid definition by the table of its kind, sorted by key: a
// value for each key that is there or has a default. A list is one value, and so is a
// mapping with free keys. A root that is a list has the key root.
func Values(n *Node, shape *Shape, root string) []Value {
	var all []Value
	if shape.Type == TypeList {
		return []Value{{root, string(appendCanonical(nil, n, shape))}}
	}
	all = appendValues(all, n, shape, "")
	slices.SortFunc(all, func(a, b Value) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

func appendValues(all []Value, n *Node, shape *Shape, name string) []Value {
	for i := range shape.Keys {
		key := &shape.Keys[i]
		at, value := join(name, key.Name), n.Get(key.Name)
		if value != nil && value.Kind == Null && key.Shape.Type != Any {
			if key.Shape.clears() {
				all = append(all, Value{Key: at})
			}
			value = nil
		}
		switch {
		case key.Shape.Type == TypeMap && !key.Shape.Nullable && !key.Shape.Whole:
			all = appendValues(all, value, &key.Shape, at)
		case value != nil:
			all = append(all, Value{at, string(appendCanonical(nil, value, &key.Shape))})
		case key.Default != "":
			all = append(all, Value{at, key.Default})
		}
	}
	return all
}

// clears tells whether null has a meaning of its own, different from leaving the key
// out.
func (s *Shape) clears() bool { return s.Nullable && !s.NonEmpty }

// appendCanonical appends the value as JSON with sorted keys. It leaves out a null that
// means the same as no key. shape is nil where no table describes the value.
func appendCanonical(dst []byte, n *Node, shape *Shape) []byte {
	switch n.Kind {
	case Null:
		return append(dst, "null"...)
	case Bool, Int, Float:
		return append(dst, n.Text...)
	case List:
		dst = append(dst, '[')
		for i, item := range n.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, item, shape.Below(""))
		}
		return append(dst, ']')
	case Mapping:
		fields := slices.Clone(n.Fields)
		slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
		dst = append(dst, '{')
		for _, f := range fields {
			of := shape.Below(f.Key)
			if f.Value.Kind == Null && of != nil && of.Type != Any {
				continue
			}
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(AppendText(dst, f.Key), ':')
			dst = appendCanonical(dst, f.Value, of)
		}
		return append(dst, '}')
	}
	return AppendText(dst, n.Text)
}

// Below is the shape of a list's items or of a mapping's key; nil if any value
// may stand there.
func (s *Shape) Below(key string) *Shape {
	if s == nil {
		return nil
	}
	if k := s.key(key); k != nil {
		return &k.Shape
	}
	if s.Type == TypeMap {
		return nil
	}
	return s.Elem
}

// AppendText appends a string as JSON for people: it does not escape <, > and &.
func AppendText(dst []byte, text string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
