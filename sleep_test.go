package triphammer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// sleepers are the tests that wait for a while and not for a condition, and why.
var sleepers = map[string]string{
	"server/store/million_test.go BenchmarkRetention":  "it measures for this long",
	"server/store/million_test.go BenchmarkBackup":     "it measures for as long as a backup took",
	"applier/soak_full_test.go TestSoak":               "a branch is away for any time",
	"cmd/triphammer/run_once_test.go killAroundStarts": "a kill comes at any moment",
}

// TestSleep: a test sleeps in a synctest bubble, where it costs no time, or to pace a
// loop: in the for clause, as the last statement of the body, or before a continue.
func TestSleep(t *testing.T) {
	used, files := make(map[string]bool), token.NewFileSet()
	check := func(name string, f ast.Decl) {
		pace := make(map[ast.Node]bool)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt:
				pace[n.Post] = true
				if last := len(n.Body.List) - 1; last >= 0 {
					pace[n.Body.List[last]] = true
				}
			case *ast.BlockStmt:
				if last := len(n.List) - 1; last > 0 {
					if b, is := n.List[last].(*ast.BranchStmt); is && b.Tok == token.CONTINUE {
						pace[n.List[last-1]] = true
					}
				}
			case *ast.CallExpr:
				if types.ExprString(n.Fun) != "time.Sleep" {
					return types.ExprString(n.Fun) != "synctest.Test"
				}
				if used[name] = true; sleepers[name] == "" {
					t.Errorf("%s: a sleep outside a synctest bubble that paces no loop: wait for a condition", files.Position(n.Pos()))
				}
			}
			_, is := n.(*ast.ExprStmt)
			return !is || !pace[n]
		})
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, is := decl.(*ast.FuncDecl); is {
				check(filepath.ToSlash(name)+" "+f.Name.Name, f)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range sleepers {
		if !used[name] {
			t.Errorf("%s does not sleep: take it out of sleepers", name)
		}
	}
}
