package triphammer

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReliability: the table of docs/reliability.md names, for each number, exactly the tests
// whose docstrings cite it, as TestName (R12, R13).
func TestReliability(t *testing.T) {
	cited := make(map[string][]string)
	citation := regexp.MustCompile(`(?m)^// ((?:Test|Fuzz|Benchmark)\w+) \(([A-Z]\d+(?:, [A-Z]\d+)*)\)`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "third_party"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go") || path == "reliability_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range citation.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(text), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: there is no %s", path, m[1])
			}
			for _, number := range strings.Split(m[2], ", ") {
				if number[0] == 'R' {
					cited[number] = append(cited[number], m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string][]string)
	test := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	for _, m := range regexp.MustCompile(`(?m)^\| (R\d+) \|.*$`).FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = []string{}
		for _, name := range test.FindAllStringSubmatch(m[0], -1) {
			listed[m[1]] = append(listed[m[1]], name[1])
		}
		if len(listed[m[1]]) == 0 && !strings.Contains(m[0], "no test") {
			t.Errorf("%s has no test, and does not say so", m[1])
		}
	}
	for n := 1; n <= 30; n++ {
		if _, ok := listed[fmt.Sprint("R", n)]; !ok {
			t.Errorf("R%d has no row", n)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(listed)) {
		a, b := listed[number], cited[number]
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("%s: the page has %v, the tests that cite it are %v", number, a, b)
		}
		delete(cited, number)
	}
	for number, names := range cited {
		t.Errorf("%s has no row: %v", number, names)
	}
}
