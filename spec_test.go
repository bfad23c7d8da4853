package triphammer

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	specRule = regexp.MustCompile(`(?m)^ *- \*\*(C?\d+(?:\.\d+)*[a-z]?)\*\* `)
	specPart = regexp.MustCompile(`(?m)^## (C?\d+)\. `)
	// A citation is SPEC and one number or several: SPEC 2.4, 2.5; SPEC 2.1–2.3.
	specCited  = regexp.MustCompile(`\bSPEC((?:,? (?:and )?\(?C?\d+(?:\.\d+)*[a-z]?(?:–\d+(?:\.\d+)*)?)+)`)
	specNumber = regexp.MustCompile(`C?\d+(?:\.\d+)*[a-z]?`)
	// Papers that a reader of this repository does not have.
	absentPaper = regexp.MustCompile(`\b(?:CONTRACT|DESIGN|GOALS|STYLE)\.md\b|\bDESIGN \d|\bresearch/[a-z-]+\.(?:md|json)\b`)
)

// TestCitations holds what cites docs/spec.md to rules that it has. A citation
// may be broken by the end of a comment's line.
func TestCitations(t *testing.T) {
	text, err := os.ReadFile("docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]bool)
	for _, form := range []*regexp.Regexp{specRule, specPart} {
		for _, m := range form.FindAllSubmatch(text, -1) {
			number := string(m[1])
			if rules[number] {
				t.Errorf("docs/spec.md has rule %s twice", number)
			}
			rules[number] = true
		}
	}
	cited := 0
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "third_party" || base == "node_modules" || base == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".md", ".yaml", ".sql", ".txtar"}, filepath.Ext(name)) || name == "spec_test.go" {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if paper := absentPaper.Find(data); paper != nil {
			t.Errorf("%s cites %s, which is not in this repository: cite docs/spec.md", name, paper)
		}
		data = commentBreak.ReplaceAll(data, []byte(" "))
		for _, m := range specCited.FindAllSubmatch(data, -1) {
			for _, number := range specNumber.FindAll(bytes.TrimSpace(m[1]), -1) {
				cited++
				if !rules[string(number)] {
					t.Errorf("%s cites SPEC %s, which docs/spec.md does not have", name, number)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d rules, %d citations", len(rules), cited); len(rules) < 100 || cited < 200 {
		t.Errorf("%d rules and %d citations are too few to prove much", len(rules), cited)
	}
}

// commentBreak is where a comment goes on in the next line.
var commentBreak = regexp.MustCompile(`\n\s*(?://|#) `)
