package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// readYAML turns bytes into YAML's own nodes; the library panics on some input.
func readYAML(data []byte) (doc, second *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	doc = &yaml.Node{}
	if err := d.Decode(doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	second = &yaml.Node{}
	if err := d.Decode(second); errors.Is(err, io.EOF) {
		second = nil
	} else if err != nil {
		return nil, nil, err
	}
	return doc, second, nil
}

// unreadable finds the first character that YAML text cannot hold; the library
// refuses it too, without saying where.
func unreadable(data []byte, above int) (at At, message, hint string) {
	line, column := 1+above, 1
	if above == 0 && bytes.HasPrefix(data, largeFile) {
		return At{line, column}, "a pointer of Git LFS is here instead of the file", largeFileHint
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return At{line, column}, "the file is not UTF-8", "save the file as UTF-8"
		case r < ' ' && r != '\t' && r != '\n', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			return At{line, column}, fmt.Sprintf("the control character %U is not allowed", r), `write it in a "double-quoted" string, with a backslash`
		case r == '\n':
			line, column = line+1, 0
		}
		column++
		i += size
	}
	return At{}, "", ""
}

// largeFile is the beginning of a Git LFS pointer. The server does not fetch the file
// that it points to: a commit must hold its definitions itself.
var largeFile = []byte("version https://git-lfs.github.com/spec/")

const largeFileHint = "keep definitions out of Git LFS: git lfs untrack, then git add --renormalize"

// lineShifts maps the library's line numbers to the lines of the file. The library also
// ends a line at U+0085, U+2028 and U+2029; editors and diffs do not. lineShifts is empty
// for text without these characters.
type lineShifts []lineShift

type lineShift struct {
	from          int // the first library line to which it applies
	lines, column int // added to the library's numbers; the column only on line from
}

func lineMap(data []byte) lineShifts {
	if !bytes.ContainsAny(data, "\u0085\u2028\u2029") {
		return nil
	}
	var shifts lineShifts
	line, column, less := 1, 0, 0
	for _, r := range string(data) {
		column++
		switch r {
		case '\n':
			line++
			if column = 0; less > 0 {
				shifts = append(shifts, lineShift{from: line, lines: -less})
			}
		case 0x85, 0x2028, 0x2029:
			line++
			less++
			shifts = append(shifts, lineShift{from: line, lines: -less, column: column})
		}
	}
	return shifts
}

func (s lineShifts) at(line, column int) At {
	i := sort.Search(len(s), func(i int) bool { return s[i].from > line })
	if i == 0 {
		return At{line, column}
	}
	return At{line + s[i-1].lines, column + s[i-1].column}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// yamlErrorLine finds the line of the library's error. The library often names the
// line at which the list, mapping or scalar with the error begins, or the line before.
// The real line is the last line of the shortest beginning of the file that has the
// same error.
func yamlErrorLine(data []byte, err error) int {
	named := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			named = n
		}
	}
	if len(data) > maxTries {
		return named
	}
	ends, message := lineEnds(data), yamlMessage(err)
	n := sort.Search(len(ends), func(n int) bool {
		_, _, err := readYAML(data[:ends[n]])
		return err != nil && yamlMessage(err) == message
	})
	if n++; n < named || n > len(ends) {
		return named
	}
	return n
}

// yamlHints say what to do about the library's messages.
var yamlHints = []struct{ message, hint string }{
	{"mapping values are not allowed", "quote a text that holds a colon and a space, or look at the indentation"},
	{"did not find expected ',' or ']'", "close the list with ], or put a comma between its items"},
	{"did not find expected ',' or '}'", "close the mapping with }, or put a comma between its keys"},
	{"did not find expected node content", "close the list or mapping that is open"},
	{"did not find expected key", "look at the indentation, and at what follows a quoted text"},
	{"did not find expected '-' indicator", "give each item of the list the same indentation"},
	{"block sequence entries are not allowed", "begin the list on a line of its own"},
	{"unexpected end of stream", "close the quotes"},
	{"could not find expected ':'", "write KEY: VALUE, and a text of several lines after | or in quotes"},
	{"unknown anchor", "quote a text that begins with *; aliases are not allowed"},
	{"did not find expected alphabetic or numeric character", "quote a text that begins with * or &"},
	{"unknown escape character", "write a backslash twice, or use single quotes"},
}

// yamlHint says what to do about the library's error on its line n.
func yamlHint(data []byte, n int, err error) string {
	message := yamlMessage(err)
	for _, known := range yamlHints {
		if strings.Contains(message, known.message) {
			return known.hint
		}
	}
	if !strings.Contains(message, "cannot start any token") {
		return ""
	}
	ends := lineEnds(data)
	from := 0
	if n > 1 && n <= len(ends) {
		from = ends[n-2]
	}
	if line := data[from:]; bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")) {
		return "indent with spaces, not with tabs"
	}
	return "quote a text that begins with @, `, % or |"
}

// maxTries is the size in bytes of the largest file that is parsed several times
// to find the line of an error.
const maxTries = 32 << 10

// lineEnds are the offsets at which the lines end, as the library counts them.
func lineEnds(data []byte) []int {
	var ends []int
	for i, r := range string(data) {
		switch r {
		case '\n', 0x85, 0x2028, 0x2029:
			ends = append(ends, i+utf8.RuneLen(r))
		}
	}
	return append(ends, len(data))
}

func yamlMessage(err error) string {
	return yamlLine.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
}

// YAML converts JSON that this program made to YAML for output, with the keys in their
// order.
func YAML(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("respelling JSON as YAML: %w", err)
	}
	blockStyle(&doc)
	return yaml.Marshal(&doc)
}

// blockStyle removes JSON's flow style and quotes. The encoder quotes the strings that
// need it.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0
	} else if len(n.Content) > 0 {
		n.Style = 0
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}
