package schema

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// node is a node for JSON in a test.
func node(t testing.TB, text string) *Node {
	t.Helper()
	n, err := NodeOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// with sets a key of a copy of a mapping, or takes it out.
func with(n *Node, key string, value *Node) *Node {
	out := &Node{Kind: Mapping}
	done := value == nil
	for _, f := range n.Fields {
		switch {
		case f.Key != key:
			out.Fields = append(out.Fields, f)
		case value != nil:
			out.Fields = append(out.Fields, Field{Key: key, Value: value})
			done = true
		}
	}
	if !done {
		out.Fields = append(out.Fields, Field{Key: key, Value: value})
	}
	return out
}

func TestEdit(t *testing.T) {
	for _, one := range []struct{ name, from, key, value, to string }{
		{"a scalar", "a: 1 # one\nb: 2\n", "a", `3`, "a: 3 # one\nb: 2\n"},
		{"quotes stay", "a: \"x\"\n", "a", `"y"`, "a: \"y\"\n"},
		{"a new key", "# head\na: 1\n\n# foot\n", "b", `true`, "# head\na: 1\nb: true\n\n# foot\n"},
		{"no line end", "a: 1", "b", `true`, "a: 1\nb: true"},
		{"line ends of Windows", "a: 1\r\nb: 2\r\n", "c", `"x\ny"`, "a: 1\r\nb: 2\r\nc: |-\r\n  x\r\n  y\r\n"},
		{"a byte order mark", "\xef\xbb\xbfa: 1\n", "a", `2`, "\xef\xbb\xbfa: 2\n"},
		{"taken out", "a: 1\n# of b\nb: 2 # two\nc: 3\n", "b", ``, "a: 1\n# of b\nc: 3\n"},
		{"the last one taken out", "a: 1\nb:\n  - x\n  - y # z", "b", ``, "a: 1"},
		{"the only one taken out", "a: 1 # x\n", "a", ``, "{} # x\n"},
		{"a text of several lines", "a: |+\n  x\n\n\nb: 2\n", "a", `"v"`, "a: v\nb: 2\n"},
		{"folded over lines", "a: x y\n  z\n  # c\nb: 2\n", "a", `"w"`, "a: w\n  # c\nb: 2\n"},
		{"an item", "a:\n# the first\n- x\n# the second\n- y\n", "a", `["x","z"]`, "a:\n# the first\n- x\n# the second\n- z\n"},
		{"an item more", "a:\n  - x # 1\n  # end\nb: 2\n", "a", `["x","v"]`, "a:\n  - x # 1\n  - v\n  # end\nb: 2\n"},
		{"an item less", "a:\n  - x # 1\n  - y # 2\n  - z # 3\n", "a", `["x","z"]`, "a:\n  - x # 1\n  - z # 3\n"},
		{"in brackets", "a: [x, 'y',\n  z]\n", "a", `["x","y"]`, "a: [x, 'y']\n"},
		{"in brackets, more", "a: [x, y] # z\n", "a", `["x","y","a: b"]`, "a: [x, y, 'a: b'] # z\n"},
		{"in brackets, the first less", "a: [x, y, z]\n", "a", `["z"]`, "a: [z]\n"},
		{"in braces", "a: {b: 1, c: 2, d: [3]}\n", "a", `{"b":1,"d":[3,4],"e":"x"}`, "a: {b: 1, d: [3, 4], e: x}\n"},
		{"deep", "a:\n  b: # of b\n    c: 1\n    # of d\n    d: 2\n", "a", `{"b":{"c":1,"d":5,"e":{}}}`, "a:\n  b: # of b\n    c: 1\n    # of d\n    d: 5\n    e: {}\n"},
		{"nothing to a list", "a:\nb: 1\n", "a", `[{"x":1,"v":"l\nm\n"}]`, "a:\n  - x: 1\n    v: |\n      l\n      m\nb: 1\n"},
		{"nothing to a text", "a: # c\nb: 1\n", "a", `"x"`, "a: x # c\nb: 1\n"},
		{"behind a dash", "a:\n  - x: 1\n    y: 2\n  -   x: 3\n      y: 4\n", "a", `[{"y":2},{"x":3}]`, "a:\n  - y: 2\n  -   x: 3\n"},
		{"a list to a text", "a:\n  - x\n  - y\n# c\nb: 1\n", "a", `"on"`, "a: 'on'\n# c\nb: 1\n"},
		{"a text to a list", "a: off # c\n", "a", `[{"x":{"v":{}}}]`, "a:\n  - x:\n      v: {} # c\n"},
		{"a text with a comment to several lines", "a: off # c\n", "a", `"x\ny"`, "a: \"x\\ny\" # c\n"},
		{"what would break out", "a: 1\n", "b", `"x\n---\n*y: &z <<: {"`, "a: 1\nb: |-\n  x\n  ---\n  *y: &z <<: {\n"},
		{
			"words", "a: 1\n", "b", `["a: b","*x","&y","- z","# c","","null","1","~","yes","2020-01-01","!t","x #y","x: ","[","%","@","'","\"","https://x.org/y","\u0007\u0085\u2028","<<"," x"]`,
			"a: 1\nb:\n  - 'a: b'\n  - '*x'\n  - '&y'\n  - '- z'\n  - '# c'\n  - ''\n  - 'null'\n  - '1'\n  - '~'\n  - 'yes'\n  - '2020-01-01'\n  - '!t'\n  - 'x #y'\n  - 'x: '\n  - '['\n  - '%'\n  - '@'\n  - ''''\n  - '\"'\n  - https://x.org/y\n  - \"\\x07\\x85\\u2028\"\n  - '<<'\n  - ' x'\n",
		},
		{"a whole file in braces", "{a: 1, b: 2}\n", "c", `[3]`, "{a: 1, b: 2, c: [3]}\n"},
		{"quoted keys", "\"a\" : 1\n'b': 2\n", "a", `4`, "\"a\" : 4\n'b': 2\n"},
		{"letters of more bytes", "ä: {ü: ö, x: 'é'} # ß\nb: 1\n", "ä", `{"ü":"ö","x":"è"}`, "ä: {ü: ö, x: 'è'} # ß\nb: 1\n"},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := &Collector{}
			doc := Parse(c, []byte(one.from), Mapping)
			if doc == nil || len(c.Found) > 0 {
				t.Fatal(c.Found)
			}
			var value *Node
			if one.value != "" {
				value = node(t, one.value)
			}
			out, err := Edit([]byte(one.from), with(doc.Root, one.key, value))
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != one.to {
				t.Errorf("got\n%swant\n%s", out, one.to)
			}
		})
	}
}

func TestEditMarkdown(t *testing.T) {
	text := "new\r\n---\nx"
	for _, one := range []struct{ name, from, to string }{
		{"usual", "---\na: 1\n---\nold\n", "---\na: 2\n---\nnew\n---\nx\n"},
		{"no keys", "---\n# c\n---\n", "---\n# c\na: 2\n---\nnew\n---\nx\n"},
		{"nothing between", "---\n---", "---\na: 2\n---\nnew\n---\nx\n"},
		{"of Windows", "\xef\xbb\xbf---\r\na: 1 # c\r\n---\r\nold", "\xef\xbb\xbf---\r\na: 2 # c\r\n---\r\nnew\r\n---\r\nx\r\n"},
	} {
		t.Run(one.name, func(t *testing.T) {
			out, err := EditMarkdown([]byte(one.from), node(t, `{"a":2}`), &text)
			if err != nil || string(out) != one.to {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	out, err := EditMarkdown([]byte("---\na: 1\n---\n\nold  \n\n"), node(t, `{"a":2}`), nil)
	if err != nil || string(out) != "---\na: 2\n---\n\nold  \n\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestEditRefuses: a file that says more than its tree is not changed.
func TestEditRefuses(t *testing.T) {
	for _, text := range []string{"", "# c\n", "a: &x 1\nb: *x\n", "<<: {a: 1}\nb: 1\n", "a: 1\na: 2\n", "a:\n\t- x\n", "a: !!str 1\n", "- a\n", "a: 1\n---\nb: 2\n", "a: [", "? a\n: 1\n"} {
		if out, err := Edit([]byte(text), node(t, `{"a":3}`)); err == nil {
			t.Errorf("%q became %q", text, out)
		}
	}
}

// values are what a test puts in the place of others.
var values = []string{
	`null`, `true`, `0`, `-1.5e300`, `""`, `"x"`, `"a: b # c"`, `"two\nlines"`, `"  two\n\nlines\n\n"`, `"---"`, `"*a"`, `"é\u2028\u0000\t"`,
	`[]`, `{}`, `["x"]`, `[["x"],{"y":[]}]`, `{"x":{"y":{"z":"l\nm"}},"a: b":1}`, `[{"provider":"webhook","event":"received","filter":{"webhooks":["ci"]}}]`,
}

// mutant changes something at random in a copy of a tree.
func mutant(t testing.TB, r *rand.Rand, n *Node) *Node {
	other := func() *Node { return node(t, values[r.IntN(len(values))]) }
	out := *n
	switch {
	case n.Kind == Mapping && len(n.Fields) > 0:
		out.Fields = append([]Field(nil), n.Fields...)
		i := r.IntN(len(out.Fields))
		switch r.IntN(6) {
		case 0:
			out.Fields = append(out.Fields[:i], out.Fields[i+1:]...)
		case 1:
			out.Fields = append(out.Fields, Field{Key: values[r.IntN(len(values))], Value: other()})
		case 2:
			out.Fields[i].Value = other()
		default:
			out.Fields[i].Value = mutant(t, r, out.Fields[i].Value)
		}
		if r.IntN(3) == 0 {
			return mutant(t, r, &out)
		}
	case n.Kind == List && len(n.Items) > 0:
		out.Items = append([]*Node(nil), n.Items...)
		i := r.IntN(len(out.Items))
		switch r.IntN(5) {
		case 0:
			out.Items = append(out.Items[:i], out.Items[i+1:]...)
		case 1:
			out.Items = append(out.Items[:i], append([]*Node{other()}, out.Items[i:]...)...)
		case 2:
			out.Items = append(out.Items, other())
		default:
			out.Items[i] = mutant(t, r, out.Items[i])
		}
	default:
		return other()
	}
	return unique(&out)
}

// unique drops keys that are there twice.
func unique(n *Node) *Node {
	seen, out := map[string]bool{}, *n
	out.Fields = nil
	for _, f := range n.Fields {
		if !seen[f.Key] {
			out.Fields = append(out.Fields, f)
		}
		seen[f.Key] = true
	}
	return &out
}

// definitions are the files of definitions in the repository's test data that can be read.
func definitions(t testing.TB) map[string][]byte {
	all := make(map[string][]byte)
	for _, dir := range []string{"../testdata/factories", "../examples", "../factory/testdata"} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(name); err != nil || d.IsDir() || ext != ".yaml" && ext != ".md" {
				return nil
			}
			data, err := os.ReadFile(name)
			if err == nil {
				all[name] = data
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func read(name string, data []byte) *Document {
	c := &Collector{}
	var doc *Document
	if filepath.Ext(name) == ".md" {
		doc = ParseMarkdown(c, data)
	} else {
		doc = Parse(c, data, Mapping)
	}
	if len(c.Found) > 0 {
		return nil
	}
	return doc
}

func editFile(name string, data []byte, want *Node) ([]byte, error) {
	if filepath.Ext(name) == ".md" {
		return EditMarkdown(data, want, nil)
	}
	return Edit(data, want)
}

// TestEditTrees changes the definitions of the repository at random. Each change succeeds,
// and each comment and each line of an entry that is not changed stays.
func TestEditTrees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	files, changed := 0, 0
	for name, data := range definitions(t) {
		doc := read(name, data)
		if doc == nil || doc.Root.Kind != Mapping {
			continue
		}
		files++
		for range 40 {
			want := mutant(t, r, doc.Root)
			if want.Kind != Mapping {
				continue
			}
			out, err := editFile(name, data, want)
			if err != nil {
				t.Errorf("%s: %v: %s", name, err, want.AppendJSON(nil))
				continue
			}
			changed++
			keeps(t, name, data, out, doc.Root, want)
		}
	}
	if files < 50 || changed < 1000 {
		t.Fatalf("only %d files and %d changes", files, changed)
	}
}

// keeps checks that the lines of entries of the root that are the same in both are in out,
// together with all comments that have a line of their own.
func keeps(t *testing.T, name string, data, out []byte, have, want *Node) {
	lines := strings.Split(string(data), "\n")
	touched := make([]bool, len(lines)+1)
	for i, f := range have.Fields {
		if v := want.Get(f.Key); v != nil && Same(v, f.Value) {
			continue
		}
		to := len(lines)
		if i+1 < len(have.Fields) {
			to = have.Fields[i+1].Line - 1
		} else if filepath.Ext(name) == ".md" {
			for to = f.Line; to < len(lines) && strings.TrimRight(lines[to], " \r") != "---"; to++ {
			}
		}
		for n := f.Line - 1; n < to && n < len(lines); n++ {
			touched[n] = true
		}
	}
	at := 0
	for n, line := range lines {
		if touched[n] || n == len(lines)-1 {
			continue
		}
		i := bytes.Index(out[at:], []byte(line))
		if i < 0 {
			t.Errorf("%s: line %d is gone: %q\n%s", name, n+1, line, out)
			return
		}
		at += i + len(line)
	}
}

func FuzzEdit(f *testing.F) {
	for name, data := range definitions(f) {
		f.Add(data, []byte(`{"a":{"b":["x"]},"enabled":false}`), filepath.Ext(name) == ".md")
	}
	f.Fuzz(func(t *testing.T, data, patch []byte, markdown bool) {
		name := "x.yaml"
		if markdown {
			name = "x.md"
		}
		doc := read(name, data)
		want, err := NodeOf(patch)
		if doc == nil || err != nil || want.Kind != Mapping {
			return
		}
		for _, f := range want.Fields {
			want := with(doc.Root, f.Key, f.Value)
			out, err := editFile(name, data, want)
			if err != nil {
				continue
			}
			if got := read(name, out); got == nil || !Same(got.Root, want) || got.Body != doc.Body {
				t.Fatalf("%q became %q", data, out)
			}
		}
		if same, err := editFile(name, data, doc.Root); err == nil && !bytes.Equal(same, data) {
			t.Fatalf("%q became %q for nothing", data, same)
		}
	})
}
