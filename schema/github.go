package schema

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// printGitHub writes workflow commands, which annotate a pull request.
func printGitHub(w io.Writer, r *Report, opt PrintOptions) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var b bytes.Buffer
	for _, d := range r.Diagnostics {
		fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d,title=%s::%s\n", d.Severity,
			property.Replace(opt.Prefix+d.Path), max(d.Line, 1), max(d.Column, 1), property.Replace(d.Code), data.Replace(d.full()))
	}
	b.WriteString(Summary(r))
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// markdown escapes the characters that Markdown would read as a link, an image, a tag,
// emphasis, the end of a table cell or a mention of a person.
var markdown = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;", "://", "&#58;//",
)

// Markdown escapes a text, so that Markdown shows it unchanged, on one line.
func Markdown(text string) string { return markdown.Replace(plain(text)) }

// WriteStepSummary writes the report as Markdown, for $GITHUB_STEP_SUMMARY.
func WriteStepSummary(w io.Writer, r *Report, opt PrintOptions) error {
	if _, err := fmt.Fprintf(w, "### Definitions: %s\n\n", Summary(r)); err != nil {
		return err
	}
	return WriteFindings(w, r.Diagnostics, opt)
}

// WriteFindings writes findings as a Markdown table, or nothing if there are none.
func WriteFindings(w io.Writer, found Diagnostics, opt PrintOptions) error {
	var b bytes.Buffer
	if len(found) > 0 {
		b.WriteString("| where | | what | code |\n| --- | --- | --- | --- |\n")
	}
	for _, d := range found {
		message := d.Message
		if d.Hint != "" {
			message += " (" + d.Hint + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s |\n", Markdown(opt.Prefix+d.Path), position(d), d.Severity, Markdown(message), d.Code)
	}
	_, err := w.Write(b.Bytes())
	return err
}
