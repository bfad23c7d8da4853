package inside

import (
	"bytes"

	"github.com/rogpeppe/go-internal/diff"
)

// unifiedDiff is the unified diff of two texts, as `diff -u` and git print it, with the names
// from and to. It is empty if they are the same.
func unifiedDiff(from, to string, before, after []byte) string {
	_, text, _ := bytes.Cut(diff.Diff(from, before, to, after), []byte("\n")) // without the line "diff FROM TO"
	return string(text)
}
