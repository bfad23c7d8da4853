package applier

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checklistLines is how many risks CHECKLIST.md holds, so that none is lost.
const checklistLines = 20

var citedTest = regexp.MustCompile("`([a-z/]*)\\.((?:Test|Fuzz)[A-Za-z]+)`")

// TestChecklist: each line of CHECKLIST.md names tests that exist.
func TestChecklist(t *testing.T) {
	text, err := os.ReadFile("CHECKLIST.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string][]string)
	lines := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || cells[0] == "| Risk" || cells[0] == "| ---" {
			continue
		}
		lines++
		cited := citedTest.FindAllStringSubmatch(cells[2], -1)
		if len(cited) == 0 || len(cited) != strings.Count(cells[2], "`")/2 {
			t.Errorf("%s: its tests cannot be read: %s", cells[0], cells[2])
		}
		for _, c := range cited {
			if known[c[1]] == nil {
				known[c[1]] = testsIn(t, filepath.Join("..", c[1]))
			}
			if !slices.Contains(known[c[1]], c[2]) {
				t.Errorf("%s: there is no %s in %s", cells[0], c[2], c[1])
			}
		}
	}
	if lines != checklistLines {
		t.Errorf("%d lines, not %d", lines, checklistLines)
	}
}

// testsIn are the tests and fuzz targets of a package.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests (%v)", dir, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
