package schema

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"triphammer/schema/frontmatter"
)

// Limits of one file.
const (
	MaxFile  = 256 << 10 // bytes
	maxDepth = 32        // levels of nesting
	maxNodes = 20000     // keys and values
)

var tooDeep = fmt.Sprintf("nested deeper than %d levels", maxDepth)

const tooDeepHint = "a definition needs only a few"

// Kind is the type of a Node.
type Kind int

// The kinds of a Node.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	Timestamp // an unquoted date, which YAML does not read as a string
	List
	Mapping
)

var kindNames = [...]string{"null", "a boolean", "an integer", "a number", "a string", "a date", "a list", "a mapping"}

func (k Kind) String() string { return kindNames[k] }

// Node is a positioned value of a definition file.
type Node struct {
	At
	Kind Kind
	// Text is the value of a String, the JSON literal of an Int or Float, and
	// the source of any other scalar.
	Text   string
	Items  []*Node // List
	Fields []Field // Mapping, in file order

	broken bool // reported already, and not checked further
}

// Field is one key of a Mapping, with the key's position.
type Field struct {
	At
	Key   string
	Value *Node
}

// Get returns the value of a key, or nil if the key is absent, the node is nil or the node
// is no Mapping.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Fields {
		if n.Fields[i].Key == key {
			return n.Fields[i].Value
		}
	}
	return nil
}

// KeyAt is the position of a key, or of the node itself if the key is absent.
func (n *Node) KeyAt(key string) At {
	for i := range n.Fields {
		if n.Fields[i].Key == key {
			return n.Fields[i].At
		}
	}
	return n.At
}

// Document is a parsed file.
type Document struct {
	Root *Node
	Body string // the text of a Markdown file, with LF line ends and without the last LF
	// Nodes is the number of keys and values. Memory use is proportional to it.
	Nodes int
}

// Parse reads a YAML file whose root must be of the kind, Mapping or List. It returns
// nil if the file has no tree to check; the collector then has the reason.
func Parse(c *Collector, data []byte, kind Kind) *Document {
	root, nodes := parse(c, data, 0, kind)
	if root == nil {
		return nil
	}
	return &Document{Root: root, Nodes: nodes}
}

// ParseMarkdown reads a Markdown file with YAML front matter between lines of
// `---`.
func ParseMarkdown(c *Collector, data []byte) *Document {
	data = frontmatter.LineFeeds(data)
	front, body, ok := frontmatter.Cut(data)
	if !ok && bytes.HasPrefix(data, largeFile) {
		_, _ = parse(c, data, 0, Mapping) // reports the problem
		return nil
	}
	if !ok {
		c.Error(At{1, 1}, MalformedFrontmatter, "start the file with a line ---, the keys, and another line ---", "no front matter between two lines of ---")
		return nil
	}
	doc := &Document{Root: &Node{Kind: Mapping, At: At{1, 1}}}
	doc.Body = strings.TrimSuffix(string(body), "\n")
	if blank(front) {
		return doc
	}
	if doc.Root, doc.Nodes = parse(c, front, 1, Mapping); doc.Root == nil {
		return nil
	}
	return doc
}

const emptyHint = "write its keys, or delete it"

var bom = []byte(frontmatter.ByteOrderMark)

// blank tells whether there are only comments and white space.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// parse reads one YAML document whose root is of the kind; above is the number of
// lines of the file before it.
func parse(c *Collector, data []byte, above int, kind Kind) (root *Node, nodes int) {
	root, _, nodes = parseRaw(c, data, above, kind)
	return root, nodes
}

// parseRaw is parse with YAML's own node of the root.
func parseRaw(c *Collector, data []byte, above int, kind Kind) (root *Node, raw *yaml.Node, nodes int) {
	start := At{1 + above, 1}
	data = frontmatter.LineFeeds(bytes.TrimPrefix(data, bom))
	if at, message, hint := unreadable(data, above); message != "" {
		c.Error(at, InvalidYAML, hint, message)
		return nil, nil, 0
	}
	if blank(data) {
		c.Error(start, InvalidDocument, emptyHint, "the file is empty")
		return nil, nil, 0
	}
	lines := lineMap(data)
	doc, second, err := readYAML(data)
	if err != nil {
		if strings.Contains(err.Error(), "exceeded max depth") {
			c.Error(start, TooDeep, tooDeepHint, tooDeep)
			return nil, nil, 0
		}
		n := yamlErrorLine(data, err)
		c.Error(At{lines.at(n, 1).Line + above, 1}, InvalidYAML, yamlHint(data, n, err), "not YAML: "+yamlMessage(err))
		return nil, nil, 0
	}
	b := builder{c: c, above: above, lines: lines}
	if second != nil {
		c.Error(b.at(second), InvalidDocument, "keep one document per file", "a second YAML document")
		return nil, nil, 0
	}
	if doc == nil || len(doc.Content) == 0 {
		c.Error(start, InvalidDocument, emptyHint, "the file is empty")
		return nil, nil, 0
	}
	root = b.build(doc.Content[0], 1)
	if b.failed || root == nil {
		return nil, nil, 0
	}
	if root.Kind != kind {
		hint := "write KEY: VALUE on each line"
		if kind == List {
			hint = "write a list, each item after a dash"
		}
		c.Error(root.At, InvalidDocument, hint, "the file holds "+root.Kind.String()+" where "+kind.String()+" is expected")
		return nil, nil, 0
	}
	return root, doc.Content[0], b.nodes
}

// builder turns YAML's nodes into ours, checking structure on the way.
type builder struct {
	c      *Collector
	above  int
	lines  lineShifts
	nodes  int
	failed bool // too deep or too many: the tree is cut
}

func (b *builder) at(n *yaml.Node) At {
	at := b.lines.at(n.Line, n.Column)
	at.Line += b.above
	return at
}

func (b *builder) build(n *yaml.Node, depth int) *Node {
	if b.failed {
		return nil
	}
	if b.nodes++; depth > maxDepth || b.nodes > maxNodes {
		b.failed = true
		if depth > maxDepth {
			b.c.Error(b.at(n), TooDeep, tooDeepHint, tooDeep)
		} else {
			b.c.Error(b.at(n), TooMany, "split the file, or take out what is not needed", fmt.Sprintf("more than %d keys and values in one file", maxNodes))
		}
		return nil
	}
	if n.Anchor != "" {
		b.c.Error(b.at(n), Anchor, "write the value out where it is needed", "anchor &"+n.Anchor+" is not allowed")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		b.c.Error(b.at(n), Tag, "quote the value to make it a string", "tag "+n.Tag+" is not allowed")
	}
	out := &Node{At: b.at(n)}
	switch n.Kind {
	case yaml.AliasNode:
		b.c.Error(b.at(n), Alias, "write the value out", "alias *"+n.Value+" is not allowed")
		out.Kind, out.broken = Null, true
	case yaml.SequenceNode:
		out.Kind = List
		for _, item := range n.Content {
			if v := b.build(item, depth+1); v != nil {
				out.Items = append(out.Items, v)
			}
		}
	case yaml.MappingNode:
		out.Kind = Mapping
		b.fields(out, n, depth)
	default:
		b.scalar(out, n)
	}
	return out
}

func (b *builder) fields(out *Node, n *yaml.Node, depth int) {
	seen := make(map[string]At, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := b.at(key)
		switch {
		case key.Kind == yaml.AliasNode:
			b.c.Error(at, Alias, "write the key out", "alias *"+key.Value+" is not allowed")
			continue
		case key.Kind != yaml.ScalarNode:
			b.c.Error(at, InvalidYAML, "write KEY: VALUE", "a key must be a plain word or a string")
			continue
		case key.Tag == "!!merge":
			b.c.Error(at, Alias, "write the keys out", "merge key << is not allowed")
			continue
		}
		if key.Anchor != "" {
			b.c.Error(at, Anchor, "take it out", "anchor &"+key.Anchor+" is not allowed")
		}
		if key.Style&yaml.TaggedStyle != 0 {
			b.c.Error(at, Tag, "take it out", "tag "+key.Tag+" is not allowed")
		}
		v := b.build(value, depth+1)
		if v == nil {
			return
		}
		if first, twice := seen[key.Value]; twice {
			b.c.Error(at, DuplicateKey, fmt.Sprintf("it is first on line %d", first.Line), fmt.Sprintf("key %q is there twice", key.Value))
			continue
		}
		seen[key.Value] = at
		out.Fields = append(out.Fields, Field{At: at, Key: key.Value, Value: v})
	}
}

func (b *builder) scalar(out *Node, n *yaml.Node) {
	out.Text = n.Value
	switch n.ShortTag() {
	case "!!null":
		out.Kind = Null
	case "!!bool":
		out.Kind = Bool
		out.Text = strings.ToLower(n.Value)
	case "!!int":
		out.Kind = Int
		if i, ok := new(big.Int).SetString(strings.ReplaceAll(strings.TrimPrefix(n.Value, "+"), "_", ""), 0); ok {
			out.Text = i.String()
		} else {
			b.c.Error(b.at(n), InvalidValue, "write its digits alone", n.Value+" is not a number")
			out.Kind, out.broken = Null, true
		}
	case "!!float":
		out.Kind = Float
		text, ok := jsonNumber(n.Value)
		if !ok {
			b.c.Error(b.at(n), InvalidValue, "quote it if it is meant as a text", n.Value+" is not a finite number")
			out.Kind, out.broken = Null, true
		}
		out.Text = text
	case "!!timestamp":
		out.Kind = Timestamp
	default:
		out.Kind = String
		// A number that YAML's own type cannot hold, such as 1e400, is a number here.
		if text, ok := jsonNumber(n.Value); ok && n.Style == 0 {
			out.Kind, out.Text = Float, text
		}
	}
}

var numberForm = regexp.MustCompile(`^(-?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?$`)

// jsonNumber respells a YAML number as JSON would, with the same decimal value.
func jsonNumber(text string) (string, bool) {
	m := numberForm.FindStringSubmatch(strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", ""))
	if m == nil || m[2] == "" && m[3] == "" {
		return "0", false
	}
	whole := strings.TrimLeft(m[2], "0")
	whole = cmp.Or(whole, "0")
	out := m[1] + whole
	if m[3] != "" {
		out += "." + m[3]
	}
	if m[4] != "" {
		out += "e" + m[4]
	}
	return out, true
}
