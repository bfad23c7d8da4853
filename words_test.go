package triphammer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// usages are words that the house does not use where people read, and what to write instead.
// A match that "but" matches too is fine.
var usages = []struct {
	name, instead string
	bad, but      *regexp.Regexp
}{
	{name: "of which", instead: "begin a second sentence", bad: regexp.MustCompile(`(?i)\bof (?:which|whom)\b`)},
	{name: "let", instead: "make, allow, or the verb itself", bad: regexp.MustCompile(`(?i)\blet(?:s|ting)?\b(?: me select| through)?`), but: regexp.MustCompile(`Let me select|lets? through`)},
	{name: "none", instead: "name the thing again", bad: regexp.MustCompile(`(?i)\b(?:there is|who (?:has|have)|is|was|as|for|needs?|takes?|gives?|that) none\b(?: (?:of|yet|in))?`), but: regexp.MustCompile(`(?i)none \w|^there is`)},
	{name: "one", instead: "name the thing again", bad: regexp.MustCompile(`(?i)\b(?:another|other|the same|such an?|no such|at which|in favour of (?:that|a newer)) one\b(?: (?:of|in|on|at)\b)?|\bone (?:can|may|must|should)\b`), but: regexp.MustCompile(`one (?:of|in|on|at)$`)},
	{name: "such", instead: "name the thing", bad: regexp.MustCompile(`(?i)\b(?:one such|such one|such)(?:[.;:)]|$)`)},
	{name: "only before a verb", instead: "put \"only\" before its noun", bad: regexp.MustCompile(`(?i)\bonly (?:shows?|takes?|serves?|starts?|started|runs?|works?|reads?|makes?|made|holds?|has|have|gets?|needs?|tells?|says?|counts?|can|may|must|changes?|checks?|sees?|keeps?|gives?|writes?|asks?|waits?|sends?|sent|looks?|does|do|is|are|was|were|goes|comes?)\b`)},
	{name: "shall", instead: "will, must, or the present tense", bad: regexp.MustCompile(`(?i)\bshall\b`)},
	{name: "may without a verb", instead: "may do, may read", bad: regexp.MustCompile(`(?i)\bmay (?:everything|nothing|all|it|this|that|what)\b`)},
	{name: "old words", instead: "today's", bad: regexp.MustCompile(`(?i)\b(?:thereof|therein|thereby|whereby|wherein|hereby|by halves|in silence|as whom)\b`)},
}

// allowedWords are the places where a usage may stand: a part of the text, and why.
var allowedWords = map[string]string{
	"serves only writes that": "these writes are a noun",
}

// longPages have sentences of more than 40 words, and why.
var longPages = map[string]string{
	"docs/reference.md": "it is generated, with lists of names",
}

var (
	fenced      = regexp.MustCompile("(?ms)^(`{3,})[^\n]*\n.*?^`{3,}$|<picture>.*?</picture>|<!--.*?-->")
	inline      = regexp.MustCompile("`[^`\n]+`")
	templated   = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	tags        = regexp.MustCompile(`(?s)<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>`)
	program     = regexp.MustCompile(`^(?:applier|cmd|factory|schema|server)\b`)
	sentenceEnd = regexp.MustCompile(`[.!?:]["*)]*\s|\n\n|\n *(?:[*-]|[0-9]+\.) |\|`)
)

// readTexts are what people read, by file and place: pages, templates, and the strings of the
// program, with its help; not docs/spec.md, whose rules are cited by their numbers and stay whole.
func readTexts(t *testing.T) map[string][]string {
	t.Helper()
	texts := make(map[string][]string)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch ext := filepath.Ext(name); {
		case d.IsDir() && (name == "testdata" || name == "third_party" || d.Name() == "node_modules" || name == filepath.FromSlash("docs/screenshots") || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case d.IsDir():
		case ext == ".md" && (name == "README.md" || name == "ARCHITECTURE.md" || strings.HasPrefix(name, "docs") && name != filepath.FromSlash("docs/spec.md")):
			texts[name] = append(texts[name], inline.ReplaceAllString(fenced.ReplaceAllString(read(name), "\n\n"), "X"))
		case ext == ".html" && strings.HasPrefix(name, filepath.FromSlash("server/")) && !strings.Contains(name, "testdata"):
			texts[name] = append(texts[name], tags.ReplaceAllString(templated.ReplaceAllString(read(name), "X"), " "))
		case ext == ".yaml" && d.Name() == "openapi.yaml":
			texts[name] = append(texts[name], inline.ReplaceAllString(read(name), "X"))
		case ext == ".go" && !strings.HasSuffix(name, "_test.go") && program.MatchString(name):
			file, err := parser.ParseFile(token.NewFileSet(), name, read(name), parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil && strings.Count(s, " ") > 1 {
						texts[name] = append(texts[name], inline.ReplaceAllString(s, "X"))
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
	return texts
}

// TestWords: where people read, in pages, help, templates and messages, none of usages stands.
func TestWords(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	texts := readTexts(t)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, text := range texts[name] {
			for _, u := range usages {
				for _, at := range u.bad.FindAllStringIndex(text, -1) {
					if u.but != nil && u.but.MatchString(text[at[0]:at[1]]) {
						continue
					}
					around := strings.Join(strings.Fields(strings.ToValidUTF8(text[max(0, at[0]-50):min(len(text), at[1]+50)], "")), " ")
					fine := false
					for part := range allowedWords {
						if strings.Contains(around, part) {
							used[part], fine = true, true
						}
					}
					if !fine {
						t.Errorf("%s: %q: …%s…: %s", name, u.name, around, u.instead)
					}
				}
			}
		}
	}
	for part := range allowedWords {
		if !used[part] {
			t.Errorf("allowedWords has %q, which stands nowhere", part)
		}
	}
	if len(texts) < 300 {
		t.Errorf("only %d texts are read", len(texts))
	}
}

// TestSentences: no sentence that people read has more than 40 words.
func TestSentences(t *testing.T) {
	t.Parallel()
	for name, all := range readTexts(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		long := 0
		for _, text := range all {
			for _, sentence := range sentenceEnd.Split(text, -1) {
				if n := len(strings.Fields(sentence)); n > 40 {
					if long++; longPages[filepath.ToSlash(name)] == "" {
						t.Errorf("%s: %d words in one sentence: %s", name, n, strings.TrimSpace(sentence))
					}
				}
			}
		}
		if long == 0 && longPages[filepath.ToSlash(name)] != "" {
			t.Errorf("%s has no long sentence any more: take it out of longPages", name)
		}
	}
}

// lookedUp are the pages in which people look something up, and do not read from the top.
var lookedUp = []string{
	"api", "commands", "compatibility", "definitions", "diagnostics", "glossary", "hostile", "interop", "mcp", "operating", "reference", "reliability", "schemes", "spec", "troubleshooting",
}

// TestGuides: every page is in docs/README.md, and begins with what it is about. A guide has at most
// 1,500 words outside its blocks.
func TestGuides(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("docs/*.md")
	if err != nil || len(names) < 40 {
		t.Fatalf("%d pages, %v", len(names), err)
	}
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimSuffix(filepath.Base(name), ".md")
		if page != "README" && !strings.Contains(string(index), "]("+page+".md) |") {
			t.Errorf("docs/README.md does not list %s", name)
		}
		prose := fenced.ReplaceAllString(string(text), "")
		if _, after, _ := strings.Cut(prose, "\n\n"); page != "README" && (after == "" || strings.ContainsAny(after[:1], "#|")) {
			t.Errorf("%s does not begin with what it is about", name)
		}
		words := len(strings.Fields(prose))
		if is := slices.Contains(lookedUp, page); words > 1500 && !is {
			t.Errorf("%s has %d words: a guide of more than 1,500 is two", name, words)
		}
	}
}
