package triphammer

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/log.md")

// logLevels are the methods that write a line: the level of the line, and at which argument its message is.
var logLevels = map[string]struct {
	level string
	at    int
}{"Debug": {"DEBUG", 0}, "Info": {"INFO", 0}, "Warn": {"WARN", 0}, "Error": {"ERROR", 0}, "Log": {"WARN", 2}}

// TestLogLines: docs/log.md lists each line that the log of a server or worker can have, by its message, which is
// never composed: so alerts and searches can name it (SPEC 27.3). -update writes the list.
func TestLogLines(t *testing.T) {
	folders := make(map[string][]*ast.File)
	for _, root := range []string{"applier", "server", "cmd/triphammer/host"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := make(map[string]bool)
	for folder, files := range folders {
		if strings.HasPrefix(folder, "server/inside") && folder != "server/inside/limits" {
			continue // within the walls, there is another log
		}
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !isLogger(method.X) {
					return true
				}
				kind, ok := logLevels[method.Sel.Name]
				if !ok || len(call.Args) <= kind.at {
					return true
				}
				messages := textsOf(call.Args[kind.at], file, files)
				if len(messages) == 0 {
					t.Errorf("%s: a line of the log has a composed message: put what varies into attributes", folder)
				}
				names := ""
				for i := kind.at + 1; i < len(call.Args); i += 2 {
					if name, err := strconv.Unquote(literal(call.Args[i])); err == nil {
						names += " " + name
					}
				}
				for _, m := range messages {
					lines[strings.TrimRight(fmt.Sprintf("%-5s %s%s", kind.level, m, strings.ReplaceAll(strings.Replace(names, " ", " | ", 1), "  ", " ")), " ")] = true
				}
				return true
			})
		}
	}
	page, err := os.ReadFile("docs/log.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "```text\n")
	_, after, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("docs/log.md has no block for the lines")
	}
	sorted := slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		level := func(s string) int { return slices.Index([]string{"ERROR", "WARN ", "INFO ", "DEBUG"}, s[:5]) }
		if d := level(a) - level(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	want := before + "```text\n" + strings.Join(sorted, "\n") + "\n```" + after
	if *update {
		if err := os.WriteFile("docs/log.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Error("docs/log.md is not what the code logs: go test . -run TestLogLines -update")
	}
}

// isLogger tells whether an expression is a logger, by its last name.
func isLogger(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return name == "logger" || name == "Logger" || name == "log"
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		return l.Value
	}
	return ""
}

// textsOf are the texts that an expression in a file can be: its own, or of a variable what the file gives it, and
// of a parameter what the package's calls give it.
func textsOf(e ast.Expr, in *ast.File, files []*ast.File) (texts []string) {
	if text, err := strconv.Unquote(literal(e)); err == nil {
		return []string{text}
	}
	variable, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	takes := make(map[string]int) // functions with a parameter of the name, and where it is
	params := func(name string, f *ast.FuncType) {
		at := 0
		for _, field := range f.Params.List {
			for _, n := range field.Names {
				if n.Name == variable.Name {
					takes[name] = at
				}
				at++
			}
		}
	}
	add := func(e ast.Expr) {
		if text, err := strconv.Unquote(literal(e)); err == nil && strings.Contains(text, " ") {
			texts = append(texts, text)
		}
	}
	for i, visit := range []func(ast.Node){
		func(n ast.Node) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				params(n.Name.Name, n.Type)
			case *ast.AssignStmt:
				for i := range min(len(n.Lhs), len(n.Rhs)) {
					name, is := n.Lhs[i].(*ast.Ident)
					if f, function := n.Rhs[i].(*ast.FuncLit); is && function {
						params(name.Name, f.Type)
					} else if is && name.Name == variable.Name {
						add(n.Rhs[i])
					}
				}
			}
		},
		func(n ast.Node) {
			if call, ok := n.(*ast.CallExpr); ok {
				name := ""
				switch f := call.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if at, takes := takes[name]; takes && at < len(call.Args) {
					add(call.Args[at])
				}
			}
		},
	} {
		for _, file := range files {
			if i > 0 || file == in {
				ast.Inspect(file, func(n ast.Node) bool { visit(n); return true })
			}
		}
	}
	return texts
}
