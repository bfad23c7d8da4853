package filter

import (
	"strings"
	"unicode/utf8"

	"triphammer/factory/jsonscan"
)

// Kind is the JSON type of a Value.
type Kind int

// The kinds of a Value.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// Value is a positioned value of a definition file.
type Value struct {
	Kind   Kind
	Bool   bool
	Text   string  // String: the value; Number: its JSON literal
	Items  []Value // Array
	Fields []Field // Object, in file order
	Line   int     // 1-based, 0 if unknown
	Column int     // 1-based, in characters
}

// Field is one key of an object.
type Field struct {
	Key          string
	Value        Value
	Line, Column int
}

// maxParseDepth bounds ParseJSON, which recurses; a filter is at most 10 deep.
const maxParseDepth = 100

// ParseJSON reads a filter that is given as JSON, with positions. It is as
// strict as Check, and refuses duplicate keys and a depth above 100.
func ParseJSON(data []byte) (Value, error) {
	if err := jsonscan.Check(data); err != nil {
		return Value{}, err
	}
	p := parser{Scanner: jsonscan.Scanner{Data: data}, line: 1, column: 1}
	p.Space()
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// parser decodes what Check has passed: syntax is not looked at again.
type parser struct {
	jsonscan.Scanner
	counted, line, column int // position of the byte at counted
}

func (p *parser) position() (line, column int) {
	for ; p.counted < p.Pos; p.counted++ {
		if c := p.Data[p.counted]; c == '\n' {
			p.line++
			p.column = 1
		} else if utf8.RuneStart(c) {
			p.column++
		}
	}
	return p.line, p.column
}

func (p *parser) value(depth int) (v Value, err *jsonscan.SyntaxError) {
	if depth > maxParseDepth {
		return v, p.Fail(p.Pos, "nested deeper than %d levels", maxParseDepth)
	}
	v.Line, v.Column = p.position()
	start := p.Pos
	switch p.Peek() {
	case '{':
		v.Kind = Object
		err = p.object(&v, depth)
		return v, err
	case '[':
		v.Kind = Array
		for p.Enter(); p.More(); {
			item, err := p.value(depth + 1)
			if err != nil {
				return v, err
			}
			v.Items = append(v.Items, item)
		}
		return v, nil
	case '"':
		v.Kind, v.Text = String, string(p.Unquote())
		return v, nil
	}
	err = p.Skip()
	switch p.Data[start] {
	case 't', 'f':
		v.Kind, v.Bool = Bool, p.Data[start] == 't'
	case 'n':
		v.Kind = Null
	default:
		v.Kind, v.Text = Number, string(p.Data[start:p.Pos])
	}
	return v, err
}

func (p *parser) object(v *Value, depth int) *jsonscan.SyntaxError {
	seen := make(map[string]bool)
	for p.Enter(); p.More(); {
		f := Field{}
		f.Line, f.Column = p.position()
		at := p.Pos
		if f.Key = string(p.Name()); seen[f.Key] {
			return p.Fail(at, "the key %q is there twice", f.Key)
		}
		seen[f.Key] = true
		var err *jsonscan.SyntaxError
		if f.Value, err = p.value(depth + 1); err != nil {
			return err
		}
		v.Fields = append(v.Fields, f)
	}
	return nil
}

// shorten cuts a value for a message. The result is not for comparing.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
