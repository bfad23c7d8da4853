package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"triphammer/schema/frontmatter"
)

// TestPositions: line and column are those of editors and diffs, whatever ends a
// line for YAML (SPEC 3.1).
func TestPositions(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       At
	}{
		{"plain", "a: 1\nb: {x: 1, here: 2}\n", At{2, 11}},
		{"byte order mark", "\ufeffhere: 1\n", At{1, 1}},
		{"CRLF", "a: 1\r\nhere: 2\r\n", At{2, 1}},
		{"CR", "a: 1\rb: 2\rhere: 2\r", At{3, 1}},
		{"multi-byte", "a: {é: '日本語', here: 1}\n", At{1, 15}},
		{"other breaks before", "# a\u2028\u2029\n# b\u0085\nhere: 1\n", At{3, 1}},
		{"another break on the line", "a: {x: \"1\u20282\", here: 1}\n", At{1, 15}},
		{"and on the next", "# \u2028\na: {x: 1, here: 1}\n", At{2, 11}},
		{"below a folded string", "a: >\n  one\n\n  two\nhere: 1\n", At{5, 1}},
	} {
		for _, front := range []bool{false, true} {
			column, text, want := &Collector{}, c.text, c.want
			read := func() *Document { return Parse(column, []byte(text), Mapping) }
			if front {
				eol := "\n"
				if strings.Contains(text, "\r") {
					eol = "\r"
				}
				text = "---" + eol + strings.TrimPrefix(text, "\ufeff") + "---" + eol + "Body"
				want.Line++
				read = func() *Document { return ParseMarkdown(column, []byte(text)) }
			}
			doc := read()
			if doc == nil || len(column.Found) > 0 {
				t.Errorf("%s: %+v", c.name, column.Found)
			} else if got, ok := positionOf(doc.Root, "here"); got != want || !ok {
				t.Errorf("%s (front matter: %v): here is at %v, want %v", c.name, front, got, want)
			}
		}
	}
}

func positionOf(n *Node, key string) (At, bool) {
	for _, f := range n.Fields {
		if f.Key == key {
			return f.At, true
		}
		if at, ok := positionOf(f.Value, key); ok {
			return at, true
		}
	}
	return At{}, false
}

// TestErrorPositions: what YAML itself refuses is named with its line.
func TestErrorPositions(t *testing.T) {
	for text, want := range map[string]At{
		"a: 1\nb: [1,\n  2\nc: 3\n":  {3, 1}, // not closed, nor continued
		"a: 1\nb:\n  - x\n - y\n":    {4, 1},
		"a: 1\n b: 2\n":              {2, 1},
		"a: 1\nb: \"open\nc: 2\n":    {2, 1},
		"a: 1\nb:\n\t- x\n":          {3, 1},
		"a: 1\nb: é\x01\n":           {2, 5},
		"a: 1\nb: x\xffy\n":          {2, 5},
		"a: 1\n# \u2028\nb: @at\n":   {3, 1},
		"a: 1\nb: 'x' y\nc: 1\n":     {2, 1},
		"a: 1\nb: !<\n":              {2, 1},
		"a: 1\nb: 2\n  c: 3\nd: 4\n": {3, 1},
	} {
		c := &Collector{}
		if doc := Parse(c, []byte(text), Mapping); doc != nil || len(c.Found) != 1 {
			t.Errorf("%q: %+v", text, c.Found)
		} else if got := (At{c.Found[0].Line, c.Found[0].Column}); got != want || c.Found[0].Code != InvalidYAML {
			t.Errorf("%q: %v %s, want %v", text, got, c.Found[0].Message, want)
		}
	}
}

// TestHostileFiles: no file is slow to refuse or to read.
// The bound is generous: what it guards against takes minutes.
func TestHostileFiles(t *testing.T) {
	repeated := func(s string) string { return strings.Repeat(s, MaxFile/len(s)) }
	var keys, anchors strings.Builder
	for i := 0; keys.Len() < MaxFile-16; i++ {
		fmt.Fprintf(&keys, "k%d: 1\n", i)
	}
	for i := 0; anchors.Len() < MaxFile-64; i++ {
		fmt.Fprintf(&anchors, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for name, text := range map[string]string{
		"many keys": keys.String(), "aliases of aliases": anchors.String(),
		"open lists": repeated("["), "open mappings": repeated("{"), "nested blocks": repeated("- "), "open keys": repeated("? "),
		"a long list": "a: [" + repeated("1,") + "]", "one long word": repeated("a"), "quotes": repeated("'"), "a long key": repeated("a") + ": 1",
		"colons": repeated("a: "), "tags": repeated("!!a "), "comments": repeated("#\n"), "merges": repeated("<<: {a: 1}\n"), "directives": repeated("%YAML 1.1\n"),
		"documents": repeated("---\n"), "breaks": "a: '" + repeated("\u2028") + "'", "one big number": "a: " + repeated("9"), "a big fraction": "a: 0." + repeated("9"),
		"a big exponent": "a: 1e" + repeated("9"), "an octal": "a: 0" + repeated("7"), "a hexadecimal": "a: 0x" + repeated("f"), "an underscored": "a: 1" + repeated("_"),
		"error at the end": repeated("a:\n - 1\n") + "\n\t]",
	} {
		c := &Collector{}
		start := time.Now()
		doc := Parse(c, []byte(text), Mapping)
		if doc == nil && len(c.Found) == 0 || len(c.Found) > maxFindings+1 {
			t.Errorf("%s: %d findings", name, len(c.Found))
		}
		if doc != nil {
			Check(c, doc.Root, &Factory, "")
			_ = doc.Root.AppendJSON(nil)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: %v", name, took)
		} else if took > 200*time.Millisecond {
			t.Logf("%s: %v", name, took)
		}
	}
}

// TestManyFindings: a file that is wrong all over is refused without its weight
// in findings, and one left out counts as what it is.
func TestManyFindings(t *testing.T) {
	c := &Collector{Path: "w.yaml"}
	for range maxFindings + 10 {
		c.Warn(At{1, 1}, StrayFile, "", "odd")
	}
	if len(c.Found) != maxFindings+1 || c.Found.HasErrors() || c.Found[maxFindings].Code != TooMany {
		t.Errorf("%d findings, the last %+v", len(c.Found), c.Found[len(c.Found)-1])
	}
	long := &Collector{}
	if long.Error(At{1, 1}, UnknownField, "", strings.Repeat("é", maxMessage)); len(long.Found[0].Message) > maxMessage+len("…") || !utf8.ValidString(long.Found[0].Message) {
		t.Errorf("a message of %d bytes", len(long.Found[0].Message))
	}
	if c.Error(At{1, 1}, UnknownField, "", "wrong"); len(c.Found) != maxFindings+1 || !c.Found.HasErrors() {
		t.Error("an error that was left out does not count")
	}
}

// TestCodes: each finding has the code that the format gives it
// (docs/diagnostics.md), also where a table names another.
func TestCodes(t *testing.T) {
	for text, want := range map[string]string{
		"secretName: S\nauthMode: tokn":       InvalidValue,
		"secretName: S\nextra: 1":             UnknownField,
		"secretName: S\nenabled: 1":           TypeMismatch,
		"secretName: S\nenabled:":             MissingRequired,
		"secretName: ' '":                     MissingRequired,
		"secretName: S\nsecretName: T":        DuplicateKey,
		"secretName: &a S":                    Anchor,
		"secretName: S\nenabled: *a":          InvalidYAML, // no such anchor
		"secretName: !!str S":                 Tag,
		"secretName: S\n<<: {enabled: true}":  Alias,
		"secretName: S\n? [a]\n: b":           InvalidYAML,
		"secretName: S\n---\nsecretName: T\n": InvalidDocument,
		"- secretName":                        InvalidDocument,
		"# nothing\n":                         InvalidDocument,
	} {
		c := &Collector{}
		if doc := Parse(c, []byte(text), Mapping); doc != nil {
			Check(c, doc.Root, &Webhook, "")
		}
		if got := codesOf(c.Found); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}

func codesOf(found Diagnostics) []string {
	var all []string
	for _, d := range found {
		all = append(all, d.Code)
	}
	return all
}

// TestPlain: text of a definition cannot drive the terminal that shows it.
func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb é": "a\tb é", "\x1b[2J": "\ufffd[2J", "a\nb\r": "a\ufffdb\ufffd", "\u202eevil": "\ufffdevil", "\u009b1m": "\ufffd1m",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestYAML(t *testing.T) {
	got, err := YAML([]byte(`{"b":[1,"2",null],"a":{"x":"yes: no","y":""}}`))
	if want := "b:\n    - 1\n    - \"2\"\n    - null\na:\n    x: 'yes: no'\n    y: \"\"\n"; err != nil || string(got) != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if _, err := YAML([]byte("[")); err == nil {
		t.Error("broken JSON is respelled")
	}
}

func FuzzFrontMatter(f *testing.F) {
	f.Add([]byte("\ufeff---\r\na: 1\r\n---\r\nbody\r\n"))
	f.Add([]byte("---\n# \u2028\nb: @\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Collector{}
		doc := ParseMarkdown(c, data)
		if doc == nil && len(c.Found) == 0 {
			t.Error("nothing read and nothing said")
		}
		if doc != nil && strings.Contains(doc.Body, "\r") {
			t.Errorf("body %q", doc.Body)
		}
		lines := 1 + strings.Count(string(frontmatter.LineFeeds(data)), "\n")
		for _, d := range c.Found {
			if d.Line < 0 || d.Line > lines || d.Column < 0 {
				t.Errorf("%+v in %d lines", d, lines)
			}
		}
	})
}
