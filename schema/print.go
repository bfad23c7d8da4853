package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"triphammer/schema/frontmatter"
)

// Formats are the output formats of Print (SPEC 3.3).
var Formats = []string{"text", "json", "github", "sarif", "gitlab", "junit"}

// PrintOptions are what Print needs to know beside the report.
type PrintOptions struct {
	// Source returns a file, for the line under a finding; may be nil.
	Source func(path string) []byte
	// Version is the version of the program, for formats that name their producer.
	Version string
	// Prefix is put before each path: the folder of the factory in its
	// repository, with a slash at its end, or empty.
	Prefix string
}

// Print writes the report in one of Formats. The error is an error of w, or an unknown format.
func Print(w io.Writer, format string, r *Report, opt PrintOptions) error {
	switch format {
	case "text":
		return printText(w, r, opt)
	case "json":
		return encode(w, NewAnswer(r, r.Checked).Placed())
	case "github":
		return printGitHub(w, r, opt)
	case "sarif":
		return printSARIF(w, r, opt)
	case "gitlab":
		return printGitLab(w, r, opt)
	case "junit":
		return printJUnit(w, r, opt)
	}
	return fmt.Errorf("unknown format %q: it can be %s", format, strings.Join(Formats, ", "))
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func printText(w io.Writer, r *Report, opt PrintOptions) error {
	var b bytes.Buffer
	for _, d := range r.Diagnostics {
		if d.Path != "" { // else it is about the commit
			fmt.Fprintf(&b, "%s%s: ", plain(opt.Prefix+d.Path), position(d))
		}
		fmt.Fprintf(&b, "%s: %s [%s]\n", d.Severity, plain(d.Message), d.Code)
		if opt.Source != nil && d.Line > 0 {
			writeSource(&b, opt.Source(d.Path), d)
		}
		if d.Hint != "" {
			fmt.Fprintf(&b, "  %s\n", plain(d.Hint))
		}
	}
	b.WriteString(Summary(r))
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// plain makes text of a definition harmless to a terminal. It replaces characters that
// would move the cursor, end the line or change the direction of text.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Summary is a report in one line.
func Summary(r *Report) string {
	errors, warnings := r.Diagnostics.Counts()
	verdict := "valid"
	if errors > 0 {
		verdict = "not valid"
	}
	read := ""
	if len(r.Files) > 0 { // a recorded report has no list of files
		read = count(len(r.Files), "file") + ", "
	}
	return fmt.Sprintf("%s: %s%s, %s", verdict, read, count(errors, "error"), count(warnings, "warning"))
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func position(d Diagnostic) string {
	if d.Line == 0 {
		return ""
	}
	return fmt.Sprintf(":%d:%d", d.Line, d.Column)
}

// writeSource writes the line of a finding with a caret under its column.
func writeSource(b *bytes.Buffer, source []byte, d Diagnostic) {
	lines := bytes.SplitN(frontmatter.LineFeeds(bytes.TrimPrefix(source, bom)), []byte("\n"), d.Line+1)
	if d.Line > len(lines) {
		return
	}
	line := []rune(plain(string(lines[d.Line-1])))
	from, column := 0, max(d.Column, 1)
	const width = 120
	if column > width-20 {
		from = min(column-width/2, len(line))
	}
	shown := line[from:min(len(line), from+width)]
	number := fmt.Sprintf("%5d | ", d.Line)
	fmt.Fprintf(b, "%s%s\n", number, string(shown))
	var pad strings.Builder
	for i := range min(column-1-from, len(shown)) {
		if shown[i] == '\t' {
			pad.WriteByte('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	fmt.Fprintf(b, "%s| %s^\n", strings.Repeat(" ", utf8.RuneCountInString(number)-2), pad.String())
}
