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

// markdown takes the meaning off what Markdown would make a link, an image, a
// tag, emphasis or another cell of; mentions of people stay text, too.
var markdown = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;", "://", "&#58;//",
)

// WriteStepSummary writes the report as Markdown, for $GITHUB_STEP_SUMMARY.
func WriteStepSummary(w io.Writer, r *Report, opt PrintOptions) error {
	cell := func(s string) string { return markdown.Replace(plain(s)) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "### Definitions: %s\n", Summary(r))
	if len(r.Diagnostics) > 0 {
		b.WriteString("\n| where | | what | code |\n| --- | --- | --- | --- |\n")
	}
	for _, d := range r.Diagnostics {
		message := d.Message
		if d.Hint != "" {
			message += " (" + d.Hint + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s |\n", cell(opt.Prefix+d.Path), position(d), d.Severity, cell(message), d.Code)
	}
	_, err := w.Write(b.Bytes())
	return err
}
