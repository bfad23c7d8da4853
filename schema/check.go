package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Shape is what a value must look like. The table of each kind of file, in the file named
// after the kind, consists of Shapes.
type Shape struct {
	Type     Type
	Nullable bool     // null is allowed, and means what the key's rules say
	NonEmpty bool     // a blank string or an empty list counts as absent
	Enum     []string // the allowed strings
	EnumCode string   // code of the finding for a value outside Enum; InvalidValue if empty
	Unique   bool     // the list's items, trimmed, are all different
	Single   *Shape   // of a List: the shape of one value that may stand in its place
	Elem     *Shape   // shape of a List's items or a MapOf's values
	Keys     []Key    // keys of a Map; of a List: of a mapping that may stand in its place
	Whole    bool     // a Map that is one value, because to have it means something without any key
	Code     string   // code of every finding about the value; if empty, it depends on the finding
}

// Key is one key of a Map.
type Key struct {
	Name     string
	Required bool
	Ruled    bool   // a rule of package factory reports its absence, because what to add depends on other keys
	Own      bool   // the format does not have the key: a Strict Collector refuses it (SPEC 2.1)
	Default  string // the default as JSON text, if there is one
	Shape    Shape
}

// Type is the type of a Shape.
type Type int

// The types of a Shape.
const (
	Any        Type = iota
	TypeString      // numbers and dates must be quoted
	TypeBool
	TypeInt
	TypeNumber
	TypeList
	TypeMap   // with the keys of the table
	TypeMapOf // with any keys
)

var typeNames = [...]string{"anything", "a string", "true or false", "an integer", "a number", "a list", "a mapping", "a mapping"}

// Check reports every difference between n and the shape. Messages call n by the name,
// such as "repositories[0].owner".
func Check(c *Collector, n *Node, shape *Shape, name string) {
	if n.broken || n.Kind == Null && shape.Nullable {
		return
	}
	switch {
	case shape.Type == TypeList && len(shape.Keys) > 0 && n.Kind == Mapping:
		checkMap(c, n, shape, name)
		return
	case shape.Single != nil && n.Kind != List:
		shape = shape.Single
	}
	if !shape.accepts(n.Kind) {
		mismatch(c, n, shape, name)
		return
	}
	switch shape.Type {
	case TypeString:
		checkString(c, n, shape, name)
	case TypeList:
		checkList(c, n, shape, name)
	case TypeMap:
		checkMap(c, n, shape, name)
	case TypeMapOf:
		for _, f := range n.Fields {
			Check(c, f.Value, shape.Elem, join(name, f.Key))
		}
	}
}

func (s *Shape) accepts(k Kind) bool {
	switch s.Type {
	case TypeString:
		return k == String
	case TypeBool:
		return k == Bool
	case TypeInt:
		return k == Int
	case TypeNumber:
		return k == Int || k == Float
	case TypeList:
		return k == List
	case TypeMap, TypeMapOf:
		return k == Mapping
	}
	return true
}

func mismatch(c *Collector, n *Node, shape *Shape, name string) {
	if n.Kind == Null {
		c.Error(n.At, cmp.Or(shape.Code, MissingRequired), shape.fill(), name+" has no value; "+typeNames[shape.Type]+" is expected")
		return
	}
	if c.Full() {
		c.Error(n.At, TypeMismatch, "", "")
		return
	}
	scalar := n.Kind != List && n.Kind != Mapping
	hint := "write " + shape.example()
	switch {
	case shape.Type == TypeString && len(shape.Enum) > 0 && !slices.Contains(shape.Enum, n.Text):
		hint = c.OneOf(n.Text, shape.Enum)
	case shape.Type == TypeString && !scalar:
		hint = "write one text"
	case shape.Type == TypeString:
		hint = fmt.Sprintf("quote it: %q", n.Text)
	case shape.Type == TypeList && scalar && shape.Elem.Type == TypeString:
		hint = "write [" + n.Text + "]"
	case (shape.Type == TypeInt || shape.Type == TypeNumber) && n.Kind == String:
		hint = "write a number, without quotes"
	}
	c.Error(n.At, cmp.Or(shape.Code, TypeMismatch), hint, fmt.Sprintf("%s is %s where %s is expected", name, n.Kind, typeNames[shape.Type]))
}

func (s *Shape) fill() string {
	if s.Nullable {
		return "give it a value, or take it out"
	}
	return "give it a value"
}

// example is how a value of the shape is written, for hints.
func (s *Shape) example() string {
	switch s.Type {
	case TypeString:
		if len(s.Enum) > 0 {
			return strings.Join(s.Enum, "|")
		}
		return "TEXT"
	case TypeBool:
		return "true or false"
	case TypeInt, TypeNumber:
		return "a number"
	case TypeList:
		return "[" + s.Elem.example() + "]"
	case TypeMap:
		var keys []string
		for i := range s.Keys {
			if s.Keys[i].Required {
				keys = append(keys, s.Keys[i].Name+": "+s.Keys[i].Shape.example())
			}
		}
		return "{" + cmp.Or(strings.Join(keys, ", "), "…") + "}"
	}
	return "{…}"
}

func checkString(c *Collector, n *Node, shape *Shape, name string) {
	if shape.NonEmpty && strings.TrimSpace(n.Text) == "" {
		c.Error(n.At, cmp.Or(shape.Code, MissingRequired), shape.fill(), name+" is empty")
		return
	}
	if len(shape.Enum) > 0 && !slices.Contains(shape.Enum, n.Text) {
		c.Error(n.At, cmp.Or(shape.EnumCode, shape.Code, InvalidValue), c.OneOf(n.Text, shape.Enum), fmt.Sprintf("%s cannot be %q", name, n.Text))
	}
}

func checkList(c *Collector, n *Node, shape *Shape, name string) {
	if shape.NonEmpty && len(n.Items) == 0 {
		c.Error(n.At, cmp.Or(shape.Code, MissingRequired), "write "+shape.example(), name+" is empty")
		return
	}
	seen := make(map[string]bool)
	for i, item := range n.Items {
		where := fmt.Sprintf("%s[%d]", name, i)
		Check(c, item, shape.Elem, where)
		if !shape.Unique || item.Kind != String {
			continue
		}
		text := strings.TrimSpace(item.Text)
		if seen[text] {
			c.Error(item.At, DuplicateKey, "take one of them out", fmt.Sprintf("%s lists %q twice", name, text))
		}
		seen[text] = true
	}
}

func checkMap(c *Collector, n *Node, shape *Shape, name string) {
	for _, f := range n.Fields {
		key := shape.key(f.Key)
		if key != nil && !(key.Own && c.Strict) {
			Check(c, f.Value, &key.Shape, join(name, f.Key))
			continue
		}
		if key != nil {
			c.Error(f.At, cmp.Or(shape.Code, UnknownField), "take it out: only this server knows it", fmt.Sprintf("unknown key %q", join(name, f.Key)))
			continue
		}
		var names []string
		for _, key := range shape.Keys {
			if !(key.Own && c.Strict) {
				names = append(names, key.Name)
			}
		}
		c.Error(f.At, cmp.Or(shape.Code, UnknownField), Newer(c.OneOf(f.Key, names)), fmt.Sprintf("unknown key %q", join(name, f.Key)))
	}
	for _, key := range shape.Keys {
		if key.Required && !key.Ruled && n.Get(key.Name) == nil {
			c.Error(n.At, cmp.Or(shape.Code, MissingRequired), "add "+key.Name+": "+key.Shape.example(), fmt.Sprintf("key %q is missing", join(name, key.Name)))
		}
	}
}

func (s *Shape) key(name string) *Key {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

func join(name, key string) string {
	if name == "" {
		return key
	}
	return name + "." + key
}

// OneOf is the hint for a word that is not allowed: the allowed word that was likely
// meant, the allowed words that begin with it, or all allowed words if they are few.
func OneOf(word string, allowed []string) string {
	pairs := maxPairs
	return oneOf(word, allowed, &pairs)
}

func oneOf(word string, allowed []string, pairs *int) string {
	if near := nearest(word, allowed, pairs); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	longer := slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return !strings.HasPrefix(a, strings.ToLower(word)+"_") })
	if len(longer) > 0 {
		allowed = longer
	}
	if len(allowed) == 0 || len(allowed) > 24 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(allowed))
	return "it can be " + strings.Join(sorted, ", ")
}

// Newer is the hint for an unknown word that is likely not a typing error.
func Newer(hint string) string {
	const newer = "it may be newer than this program"
	switch {
	case strings.HasPrefix(hint, "did you mean"):
		return hint
	case hint == "":
		return newer
	}
	return hint + "; or " + newer
}

// Nearest is the candidate that was likely meant by word, or empty.
func Nearest(word string, candidates []string) string {
	pairs := maxPairs
	return nearest(word, candidates, &pairs)
}

// nearest compares at most a number of pairs of characters, and subtracts the pairs that it used.
func nearest(word string, candidates []string, pairs *int) string {
	const look = 50 // what a candidate costs beside its length without a comparison
	best, least := "", 1+max(1, len(word)/3)
	folded := fold(word)
	for _, candidate := range candidates {
		if *pairs -= look + len(candidate); *pairs < 0 {
			return ""
		}
		if fold(candidate) == folded {
			return candidate
		}
		if apart := utf8.RuneCountInString(word) - utf8.RuneCountInString(candidate); max(apart, -apart) >= least {
			continue
		}
		*pairs -= min(len(word), longest) * min(len(candidate), longest)
		if d := distance(word, candidate, least); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// fold makes camelCase, snake_case, kebab-case and plural spellings alike.
func fold(s string) string {
	return strings.TrimSuffix(strings.ToLower(separators.Replace(s)), "s")
}

var separators = strings.NewReplacer("_", "", "-", "")

// longest is the length, in characters, of the longest word that distance takes.
const longest = 64

// Distance is the number of edits between two words, a swap of neighbours counting
// as one; 65 if a word has more than 64 characters.
func Distance(a, b string) int { return distance(a, b, longest+1) }

// distance is Distance (optimal string alignment), but at most enough.
func distance(a, b string, enough int) int {
	x, y := []rune(a), []rune(b)
	if len(x) > longest || len(y) > longest {
		return enough
	}
	var rows [3][longest + 1]int
	before, above, row := &rows[0], &rows[1], &rows[2]
	for j := range len(y) + 1 {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, above, row = above, row, before
		row[0] = i
		least := i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > enough {
			return enough
		}
	}
	return row[len(y)]
}
