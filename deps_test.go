package triphammer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed is the import graph of ARCHITECTURE.md: what each package may import
// from this module. A package that is missing here fails the test, so that a
// new one is a decision and not an accident.
var allowed = map[string][]string{
	"docs":                                 {},
	"schema/frontmatter":                   {},
	"schema/output":                        {},
	"schema":                               {"schema/frontmatter", "schema/output"},
	"factory/jsonscan":                     {},
	"factory/filter":                       {"factory/jsonscan"},
	"factory/signature":                    {"factory/jsonscan"},
	"factory/match":                        {"factory/filter", "factory/jsonscan", "factory/native"},
	"factory/native":                       {"factory/filter", "factory/jsonscan"},
	"factory/hosts":                        {},
	"factory":                              {"schema", "schema/frontmatter", "schema/output", "factory/hosts", "factory/filter", "factory/jsonscan", "factory/signature", "factory/match", "factory/native"},
	"factory/edit":                         {"schema", "factory"},
	"applier/gitrepo":                      {"schema"},
	"applier/gitrepo/gittest":              {}, // for tests
	"applier":                              {"schema", "schema/output", "factory", "factory/match", "factory/native", "factory/signature", "applier/gitrepo"},
	"server/disk":                          {},
	"server/terms":                         {},
	"server/secret":                        {},
	"server/store/internal/engine":         {"server/disk", "server/secret"},
	"server/store":                         {"schema/output", "server/terms", "server/secret", "server/store/internal/engine"},
	"server/store/copy":                    {"server/secret", "server/store", "server/store/internal/engine"},
	"server/store/storetest":               {},
	"server/store/storetest/withpostgres":  {"server/store/storetest"},
	"server/run/event":                     {},
	"server/run/price":                     {"server/run/task"},
	"server/run/task":                      {"schema/frontmatter", "schema/output", "server/run/event", "server/secret"},
	"server/run/fakemodel":                 {}, // for tests
	"server/inside/acp":                    {"server/run/event"},
	"server/worker/harness":                {"server/run/price", "server/worker/gateway/wire", "server/inside/acp", "server/run/event", "server/run/task", "factory", "server/secret"},
	"server/run":                           {"server/run/price", "schema", "schema/output", "schema/frontmatter", "server/terms", "server/run/event", "server/run/task", "server/worker/harness", "factory", "factory/signature", "factory/native", "applier", "server/secret", "server/store", "server/githubapp"},
	"server/worker":                        {"schema/output", "server/run", "server/run/price", "server/run/task", "server/worker/metering", "server/run/event", "server/worker/harness", "factory", "factory/native", "server/disk", "server/secret", "server/store", "server/githubapp"},
	"server/worker/metering":               {"server/run/price", "server/run/task"},
	"server/worker/executor":               {"schema/output", "server/disk", "server/inside", "factory/hosts", "server/run/price", "server/run/task", "server/run/event", "server/worker/gateway", "server/worker/metering", "server/inside/limits", "server/secret"},
	"server/worker/executor/containertest": {}, // for tests
	"server/inside":                        {"schema/frontmatter", "schema/output", "server/inside/limits", "server/inside/relay", "server/run/event", "server/run/task"},
	"server/inside/relay":                  {},
	"server/inside/limits":                 {"server/disk", "server/run/task"},
	"server/worker/executor/kubernetes":    {"server/inside", "server/disk", "server/run/task", "server/run/event", "server/worker/executor"},
	"server/worker/executor/kubernetes/kubetest": {}, // for tests
	"server/worker/gateway":                      {"server/disk", "schema/output", "factory/hosts", "server/inside/relay", "server/run/event", "server/run/task", "server/secret", "server/worker/gateway/wire"},
	"server/worker/gateway/wire":                 {"server/run/task", "factory/jsonscan"},
	"server/delivery":                            {"schema", "schema/output", "server/terms", "server/answer", "server/lookup", "factory/signature", "factory/filter", "factory/jsonscan", "factory/match", "factory/native", "factory", "applier", "server/secret", "server/store", "server/run"},
	"server/githubapp":                           {"server/secret"},
	"server/githubapp/githubtest":                {"applier/gitrepo/gittest", "server/githubapp", "server/secret"}, // for tests
	"server/lookup":                              {"factory/native", "server/secret", "server/store", "server/githubapp"},
	"server/socket":                              {"applier", "factory", "factory/native", "server/api", "server/delivery", "server/githubapp", "server/secret", "server/store"},
	"server/socket/sockettest":                   {}, // for tests
	"server/tracing":                             {"server/run/event", "server/store"},
	"server/answer":                              {"schema/output", "factory/native", "server/lookup", "server/run/event", "server/store", "server/githubapp", "server/terms"},
	"server/ledger":                              {"factory/native", "applier", "applier/gitrepo", "factory", "factory/match", "server/run", "server/store", "server/githubapp"},
	"server/access":                              {"applier", "server/answer", "server/api", "server/delivery", "server/run", "server/run/task", "server/store"},
	"server/inert":                               {},
	"server/listen":                              {},
	"server/bodies":                              {"server/delivery", "server/listen"},
	"server/metrics":                             {"applier", "server/delivery", "server/disk", "server/listen", "server/run", "server/store"},
	"server/listen/listentest":                   {}, // for tests
	"server/dashboard":                           {"docs", "server/terms", "applier", "factory", "factory/jsonscan", "factory/native", "schema", "schema/output", "server/api", "server/dashboard/markdown", "server/inert", "server/store", "server/run/event", "third_party"},
	"server/dashboard/markdown":                  {"docs"},
	"server/mcp":                                 {"server/terms", "schema", "server/api", "server/inert"},
	"server/hosted":                              {},
	"server/oidc":                                {"server/access"},
	"server/oidc/oidctest":                       {}, // for tests
	"server/api":                                 {"factory/signature", "schema", "schema/output", "factory", "applier"},
	"server/authoring":                           {"schema", "factory", "factory/edit", "applier", "server/access", "server/api", "server/hosted", "server/secret"},
	"server":                                     {"server/terms", "server/access", "server/api", "server/authoring", "server/hosted", "server/bodies", "server/listen", "server/mcp", "server/metrics", "server/oidc", "schema", "schema/output", "factory", "factory/edit", "factory/filter", "factory/match", "factory/native", "factory/signature", "applier", "server/disk", "server/secret", "server/store", "server/store/copy", "server/run", "server/run/task", "server/run/event", "server/delivery", "server/dashboard", "server/githubapp"},
	"server/notify":                              {"applier", "server/api", "factory/signature", "server/secret", "server/store"},
	"examples":                                   {},
	"cmd/supervisor":                             {"server/inside"},
	"cmd/triphammer":                             {"cmd/triphammer/client", "cmd/triphammer/client/exit", "cmd/triphammer/host"},
	"cmd/triphammer/client":                      {"cmd/triphammer/client/exit", "cmd/triphammer/client/help", "cmd/triphammer/client/settings", "cmd/triphammer/client/term", "cmd/triphammer/client/tree", "applier", "applier/gitrepo", "examples", "factory", "factory/edit", "factory/native", "factory/signature", "schema", "server/api", "server/inert", "server/mcp", "server/run/event", "server/secret", "server/terms"},
	"cmd/triphammer/client/exit":                 {},
	"cmd/triphammer/client/help":                 {"cmd/triphammer/client/exit", "cmd/triphammer/client/settings"},
	"cmd/triphammer/client/settings":             {"cmd/triphammer/client/exit"},
	"cmd/triphammer/client/term":                 {"cmd/triphammer/client/exit", "schema", "server/api", "server/inert", "server/run/event", "server/terms"},
	"cmd/triphammer/client/term/termtest":        {}, // for tests
	"cmd/triphammer/client/tree":                 {"cmd/triphammer/client/exit", "applier", "applier/gitrepo", "factory", "factory/edit", "schema"},
	"cmd/triphammer/host":                        {"*"},
	"bench":                                      {"*"},
}

// owners names the one package that may import each third party.
// Their tests are held to the same rule, except where a test needs the real
// thing as its peer.
var owners = map[string][]string{
	"github.com/gin-gonic/gin":              {"server", "bench"},
	"database/sql":                          {"server/store", "server/store/internal/engine", "server/store/copy", "server/store/storetest"},
	"github.com/mattn/go-sqlite3":           {"server/store", "server/store/internal/engine"},
	"github.com/jackc/pgx":                  {"server/store/internal/engine", "server/store/copy", "server/store/storetest"},
	"github.com/klauspost/compress":         {"server/store"},
	"github.com/bmatcuk/doublestar":         {"factory/native"},
	"github.com/cespare/xxhash":             {"server/store", "server/store/internal/engine"},
	"gopkg.in/yaml.v3":                      {"schema"},
	"github.com/santhosh-tekuri/jsonschema": {"schema"},
	"github.com/go-git/go-git":              {"applier/gitrepo"},
	"github.com/go-git/go-billy":            {"applier/gitrepo"},
	"github.com/fsnotify/fsnotify":          {"applier/gitrepo"},
	"github.com/ProtonMail/go-crypto":       {"applier/gitrepo"},
	"golang.org/x/crypto/ssh":               {"applier/gitrepo", "applier/gitrepo/gittest"},
	"html/template":                         {"server/dashboard", "server/dashboard/markdown"},
	"github.com/spf13/cobra":                {"cmd/triphammer", "cmd/triphammer/client", "cmd/triphammer/client/help", "cmd/triphammer/client/settings", "cmd/triphammer/client/term", "cmd/triphammer/host"},
	"github.com/coder/acp-go-sdk":           {"server/inside/acp"},
	"github.com/prometheus/client_golang":   {"server/metrics"},
	"github.com/getkin/kin-openapi":         {"server"},
	"github.com/rogpeppe/go-internal":       {"cmd/triphammer", "server/inside"},
	"github.com/chromedp":                   {"cmd/triphammer"},
	"github.com/landlock-lsm/go-landlock":   {"server/inside"},
	"k8s.io":                                {"server/worker/executor/kubernetes", "server/worker/executor/kubernetes/kubetest"},
	"sigs.k8s.io/yaml":                      {"server/worker/executor/kubernetes"},
	"golang.org/x/net/bpf":                  {"server/inside"},
	"github.com/yuin/goldmark":              {"server/answer", "server/dashboard/markdown", "factory/native"},
	"github.com/coreos/go-oidc":             {"server/oidc"},
	"golang.org/x/oauth2":                   {"server/oidc"},
	"github.com/modelcontextprotocol":       {"server/inside", "server/mcp"},
	"github.com/coder/websocket":            {"server/socket", "server/socket/sockettest"},
}

const module = "triphammer/"

// TestImports reads every Go file of the module itself, rather than asking a
// build cache, so that a cached pass cannot lie. A permission that nothing uses
// is an error too: the graph says what is, not what was.
func TestImports(t *testing.T) {
	used := make(map[[2]string]bool) // who imports what, outside tests
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "third_party" || base == "tools" || name == filepath.Join("deploy", "dist")) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		pkg := path.Dir(filepath.ToSlash(name))
		if pkg == "." {
			return nil
		}
		rules, known := allowed[pkg]
		if !known {
			t.Errorf("%s: package %s is not in the import graph of deps_test.go", name, pkg)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		isTest := strings.HasSuffix(name, "_test.go")
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if own, ours := strings.CutPrefix(imported, module); ours {
				used[[2]string{pkg, own}] = used[[2]string{pkg, own}] || !isTest
				// Tests may build their subject's surroundings from real parts.
				if !isTest && own != pkg && !slices.Contains(rules, "*") && !slices.Contains(rules, own) {
					t.Errorf("%s: %s may not import %s", name, pkg, own)
				}
				continue
			}
			for third, by := range owners {
				if imported != third && !strings.HasPrefix(imported, third+"/") {
					continue
				}
				used[[2]string{pkg, third}] = true // its tests are its owner's too
				if !isTest && !slices.Contains(by, pkg) {
					t.Errorf("%s: %s belongs to %s alone", name, third, strings.Join(by, ", "))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, rules := range allowed {
		for _, own := range rules {
			if own != "*" && !used[[2]string{pkg, own}] {
				t.Errorf("%s may import %s and does not: take the permission away", pkg, own)
			}
		}
	}
	for third, by := range owners {
		for _, pkg := range by {
			if !used[[2]string{pkg, third}] {
				t.Errorf("%s is said to import %s and does not: take the permission away", pkg, third)
			}
		}
	}
}

// walls say what a room must not reach, by whatever way, and why. As in patterns of the go command,
// "/..." means the packages below it too. The packages after "but" are free.
var walls = []struct{ room, never, why string }{
	{"server/inside/...", "server/store/...", "what works within the walls of a run must not bring what the server keeps"},
	{"server/inside/...", "factory/...", "the inside does as it is told, and reads no definition: a repository that a run clones can hold one"},
	{"server/worker/executor/...", "server/store/...", "whatever executes runs is told what to do, so that a cluster, a container and a process are told the same"},
	{"server/worker/executor/...", "factory/...", "definitions are decided before a run begins, once"},
	{"server/worker/gateway/...", "server/store/...", "a request of a run reaches a gateway first: it must not stand beside the store"},
	{"server/worker/gateway/...", "server/run/...", "a gateway knows addresses and credentials, and no runs"},
	{"server/store/...", "factory/...", "what is kept outlives the format of definitions"},
	{"server/store/...", "server/run/...", "what is kept does not know who works with it"},
	{"factory/...", "applier/...", "definitions are read from what is given, wherever it came from"},
	{"factory/...", "server/...", "validate works without a server"},
	{"applier/...", "server/...", "what applies a commit does not know who asks"},
	{"schema/...", "factory/...", "the schema is the root: everything is checked against it"},
	{"server/store/internal/engine", "server/store", "how things are kept knows nothing of what is kept"},
	{"server/mcp/...", "server/store/...", "tools for models go through the API, as everybody does"},
	{"server", "server/worker", "who answers requests executes nothing: it asks the desk of runs, which knows of a worker what an interface says"},
	{"server/run", "server/worker", "what a run is does not depend on who executes it"},
	{"server/authoring", "server", "what changes a definition decides alike for every caller: it knows no HTTP, so gin stays outside"},
	{"server/listen", "server/...", "what a stranger's connection meets first knows nothing of what is behind: no store, and no routes with gin"},
	{"server/dashboard/...", "server/run/...", "pages show what the API answers"},
	{"cmd/triphammer/client/...", "server/... but server/api server/mcp", "a command asks the API of a server, so that it works the same for a server elsewhere, and on systems that no server runs on"},
}

// TestWalls: no room reaches by any way what its wall keeps from it.
func TestWalls(t *testing.T) {
	// They know nothing but what they are given, so that any room may have them.
	leaves := []string{"server/run/event", "server/run/task", "factory/hosts", "factory/jsonscan", "factory/native", "factory/filter", "factory/signature", "factory/match", "server/inert", "server/secret", "server/terms"}
	within := func(pkg, room string) bool {
		room, below := strings.CutSuffix(room, "/...")
		return pkg == room || below && strings.HasPrefix(pkg, room+"/")
	}
	for _, wall := range walls {
		rooms := 0
		for pkg := range allowed {
			if !within(pkg, wall.room) {
				continue
			}
			rooms++
			from := map[string]string{pkg: ""}
			for todo := []string{pkg}; len(todo) > 0; todo = todo[1:] {
				for _, next := range allowed[todo[0]] {
					if _, seen := from[next]; !seen {
						from[next] = todo[0]
						todo = append(todo, next)
					}
				}
			}
			never, free, _ := strings.Cut(wall.never, " but ")
			for reached := range from {
				if within(reached, never) && !slices.Contains(strings.Fields(free), reached) && !within(reached, wall.room) && !slices.Contains(leaves, reached) {
					t.Errorf("%s reaches %s, by %s: %s", pkg, reached, from[reached], wall.why)
				}
			}
		}
		if rooms == 0 {
			t.Errorf("there is no package %s", wall.room)
		}
	}
}

// TestArchitecture: the map has a row for each package, and for each module that go.mod
// requires directly, and no others.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := func(section string) (cells []string) {
		_, after, _ := strings.Cut(string(text), "\n## "+section+"\n")
		after, _, _ = strings.Cut(after, "\n## ")
		for line := range strings.Lines(after) {
			if row := strings.Split(line, "|"); len(row) > 2 {
				cells = append(cells, strings.TrimSpace(row[1]))
			}
		}
		return cells
	}
	packages := make(map[string]bool)
	for _, cell := range rows("Packages")[2:] {
		name := strings.Trim(cell, "`")
		packages[name] = true
		if _, err := os.Stat(name); err != nil {
			t.Errorf("the map has the package %s: %v", name, err)
		}
	}
	for pkg := range allowed {
		if !packages[pkg] {
			t.Errorf("the map lacks the package %s", pkg)
		}
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Join(rows("Third parties")[2:], "\n")
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		name := path.Base(m[1])
		if regexp.MustCompile(`^v\d+$`).MatchString(name) {
			name = path.Base(path.Dir(m[1]))
		}
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(modules) {
			t.Errorf("the table of third parties lacks %s", m[1])
		}
	}
	for cell := range strings.SplitSeq(modules, "\n") {
		for name := range strings.SplitSeq(regexp.MustCompile(` \(.*?\)|/v\d+\b`).ReplaceAllString(cell, ""), ", ") {
			_, ours := os.Stat(path.Join("third_party", name))
			if ours != nil && !strings.Contains(string(mod), "/"+path.Base(name)) && !strings.Contains(string(mod), "\t"+path.Dir(name)+" ") {
				t.Errorf("the table of third parties has %s, which go.mod does not require", name)
			}
		}
	}
}

// TestFunctionSizes: no function is longer than 100 lines or has more than 25 branches, so that each
// can be read at once. A branch is a condition, a loop, a case that is not the default, && or ||.
//
// No type of the store has more than 25 methods: each is the queries of one thing.
func TestFunctionSizes(t *testing.T) {
	const maxLines, maxBranches, maxMethods = 100, 25, 25
	for pkg := range allowed {
		methods := make(map[string]int)
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := positions.Position(fn.End()).Line - positions.Position(fn.Pos()).Line + 1
				if n := branchesOf(fn); lines > maxLines || n > maxBranches {
					t.Errorf("%s: %s has %d lines and %d branches: give a part of it a name", name, fn.Name.Name, lines, n)
				}
				if fn.Recv != nil {
					methods[strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*")]++
				}
			}
		}
		for name, n := range methods {
			if n > maxMethods && pkg == "server/store" {
				t.Errorf("%s: the type %s has %d methods: give each thing that is kept a type", pkg, name, n)
			}
		}
	}
}

func branchesOf(fn *ast.FuncDecl) (n int) {
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			n += min(1, len(node.List))
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// mentioned finds what a paper names in back quotes.
var mentioned = regexp.MustCompile("`([^`\n]+)`")

// TestPapers: the folders, files, tests, targets of make and exported names that ARCHITECTURE.md and
// CONTRIBUTING.md mention are there.
func TestPapers(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	code := make(map[string]string) // the text of each package, and of all
	for _, pkg := range append(slices.Collect(maps.Keys(allowed)), ".") {
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code[path.Base(pkg)] += string(text)
			code[""] += string(text)
		}
	}
	place := regexp.MustCompile(`^(?:applier|bench|cmd|deploy|docs|examples|factory|schema|server|testdata|third_party|tools|\.ci)/[\w./*-]+$`)
	exported := regexp.MustCompile(`^([a-z]+)\.(?:[A-Z]\w*\.)*([A-Z]\w*)$`)
	for _, paper := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(paper)
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			found := true
			target, isMake := strings.CutPrefix(name, "make ")
			switch e := exported.FindStringSubmatch(name); {
			case place.MatchString(name):
				all, err := filepath.Glob(filepath.FromSlash(name))
				found = err == nil && len(all) > 0
			case isMake:
				found = strings.Contains(string(makefile), "\n"+strings.Fields(target)[0]+":")
			case strings.HasPrefix(name, "Test") && !strings.Contains(name, " "):
				found = strings.Contains(code[""], "func "+name+"(")
			case e != nil && code[e[1]] != "":
				found = regexp.MustCompile(`(?m)^(?:\t|type |func |func \([^)]*\) |var |const )` + e[2] + `\b`).MatchString(code[e[1]])
			default:
				continue
			}
			if checked++; !found {
				t.Errorf("%s mentions %s, which is not there", paper, name)
			}
		}
		if checked < 10 {
			t.Errorf("%s: %d names were found to check", paper, checked)
		}
	}
}

// TestUpperHalfIsPure keeps the definitions column free of SQL and HTTP
// servers: it may know header maps, never a request or a database.
// What reads definitions knows no program and no network either, so that a stranger's
// commit can be validated (SPEC 3.5).
func TestUpperHalfIsPure(t *testing.T) {
	none := []string{"database/sql", "net/http/httptest", "os/exec", "plugin"}
	reads := append(slices.Clone(none), "net", "os", "crypto/tls", "net/rpc")
	for pkg, forbidden := range map[string][]string{
		"schema": reads, "factory": reads, "factory/edit": reads, "factory/jsonscan": reads, "factory/hosts": reads, "factory/filter": reads, "factory/signature": reads, "factory/match": reads, "factory/native": reads, "applier": none, "applier/gitrepo": none,
	} {
		if _, known := allowed[pkg]; !known {
			t.Errorf("%s is not in the import graph", pkg)
		}
		for _, imported := range allowed[pkg] {
			if strings.HasPrefix(imported, "server") || strings.HasPrefix(imported, "cmd") {
				t.Errorf("%s may not import %s: definitions know nothing of durable state", pkg, imported)
			}
		}
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pkg), "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pkg, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if imported, err := strconv.Unquote(spec.Path.Value); err != nil || slices.Contains(forbidden, imported) {
					t.Errorf("%s may not import %s", name, spec.Path.Value)
				}
			}
		}
	}
}
