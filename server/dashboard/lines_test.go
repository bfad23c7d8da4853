package dashboard

import (
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTemplateLines: a line of a template fits on a screen, so that a change of it can be read
// in a diff.
func TestTemplateLines(t *testing.T) {
	const most = 200 // characters
	err := fs.WalkDir(templates, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(templates, path)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			if number++; utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > most {
				t.Errorf("%s:%d has more than %d characters", path, number, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
