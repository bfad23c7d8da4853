// Package frontmatter finds the YAML front matter of a Markdown file, which stands at the beginning
// between two lines of ---. It does not parse YAML.
package frontmatter

import "bytes"

// SkillFile is the name of the Markdown file that makes a folder a skill.
const SkillFile = "SKILL.md"

// ByteOrderMark may begin a file of UTF-8. It is no part of the text.
const ByteOrderMark = "\xef\xbb\xbf"

// Cut cuts the front matter, and the text below it, out of a file whose lines end with LF. ok is
// false if the file has no front matter.
func Cut(file []byte) (front, body []byte, ok bool) {
	first, rest := CutLine(bytes.TrimPrefix(file, []byte(ByteOrderMark)))
	if !isFence(first) {
		return nil, nil, false
	}
	for at := rest; len(at) > 0; {
		line, next := CutLine(at)
		if isFence(line) {
			return rest[:len(rest)-len(at)], next, true
		}
		at = next
	}
	return nil, nil, false
}

// Body is the text of a file below its front matter, or the whole file if it has no front matter.
// Its lines end with LF.
func Body(file []byte) string {
	file = LineFeeds(file)
	if _, body, ok := Cut(file); ok {
		return string(body)
	}
	return string(file)
}

// LineFeeds makes every line end a single LF, as Git and editors count lines.
func LineFeeds(data []byte) []byte {
	if bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
}

// CutLine cuts the first line, with its end, off the text.
func CutLine(data []byte) (line, rest []byte) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return data[:i+1], data[i+1:]
	}
	return data, nil
}

func isFence(line []byte) bool { return string(bytes.TrimRight(line, " \t\r\n")) == "---" }
