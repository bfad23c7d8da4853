package storetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnly: what runs on SQLite alone is in the list with its reason, and the list has nothing
// else.
func TestOnly(t *testing.T) {
	found := make(map[string]bool)
	all := 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			test, ok := decl.(*ast.FuncDecl)
			if !ok || test.Body == nil || !strings.HasPrefix(test.Name.Name, "Test") {
				continue
			}
			all++
			ast.Inspect(test.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "SQLite" {
					if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "storetest" {
						found[test.Name.Name] = true
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	listed := Only()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if listed[name] == "" {
			t.Errorf("%s runs on SQLite alone: sqlite_only.txt does not say why", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !found[name] {
			t.Errorf("sqlite_only.txt has %s, which runs on both engines, or is gone", name)
		}
	}
	t.Logf("%d tests of package server and those below it, %d of them on SQLite alone", all, len(found))
}
