package server

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triphammer/docs"
)

var (
	idsOf  = regexp.MustCompile(` id="([^"]+)"`)
	hrefOf = regexp.MustCompile(`<a [^>]*href="([^"]+)"`)
	loads  = regexp.MustCompile(` (?:src|srcset)="([^"]+)"`)
)

// TestGuides: the server has every guide, for who is signed in. Each link on one leads to a page
// and a section that there are, each picture is there, and nothing needs what the policy forbids.
func TestGuides(t *testing.T) {
	f := newFixture(t)
	f.spec = nil
	if got := f.do("GET", "/docs/filters", "", ""); got.status != http.StatusUnauthorized || strings.Contains(string(got.body), "payload") {
		t.Errorf("a stranger gets %d\n%s", got.status, got.body)
	}
	b := f.visitor("viewer")
	texts, ids := make(map[string]string), make(map[string][]string)
	for _, name := range docs.Names() {
		path := "/docs/" + name
		if name == docs.Index {
			path = "/docs"
		}
		got := b.do("GET", path, "", "", "Cookie", b.cookie)
		if got.status != http.StatusOK || got.header.Get("Content-Security-Policy") != contentPolicy {
			t.Fatalf("%s: %d, %v\n%s", path, got.status, got.header, got.body)
		}
		text := string(got.body)
		texts[path] = text
		for _, m := range idsOf.FindAllStringSubmatch(text, -1) {
			if id := html.UnescapeString(m[1]); slices.Contains(ids[path], id) {
				t.Errorf("%s has the id %s twice", path, id)
			} else {
				ids[path] = append(ids[path], id)
			}
		}
	}
	pictures := 0
	for path, text := range texts {
		if strings.Count(text, "<h1") != 1 {
			t.Errorf("%s has %d titles", path, strings.Count(text, "<h1"))
		}
		if bad := regexp.MustCompile(`(?i) style=| on\w+="|<style|<script [^s]|omitted -->|<th></th>`).FindString(text); bad != "" {
			t.Errorf("%s has %q", path, bad)
		}
		if strings.Count(text, "<table") != strings.Count(text, "<caption") {
			t.Errorf("%s has tables without a name", path)
		}
		_, main, _ := strings.Cut(text, "<main")
		for _, m := range hrefOf.FindAllStringSubmatch(main, -1) {
			to, anchor, hasAnchor := strings.Cut(html.UnescapeString(m[1]), "#")
			if to == "" {
				to = path
			}
			switch {
			case strings.HasPrefix(to, "https://"):
			case texts[to] == "":
				t.Errorf("%s: a link leads to %s, which is no guide", path, to)
			case hasAnchor && !slices.Contains(ids[to], anchor):
				t.Errorf("%s: %s has no section %s", path, to, anchor)
			}
		}
		for _, m := range loads.FindAllStringSubmatch(main, -1) {
			pictures++
			if got := f.do("GET", html.UnescapeString(m[1]), "", ""); got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "image/") {
				t.Errorf("%s: %s is %d, %s", path, m[1], got.status, got.header.Get("Content-Type"))
			}
		}
	}
	if pictures < 10 {
		t.Errorf("the guides show %d pictures", pictures)
	}
	_, index, _ := strings.Cut(texts["/docs"], "<main")
	for path := range texts {
		if path != "/docs" && !strings.Contains(index, `href="`+path+`"`) {
			t.Errorf("docs/%s.md does not list %s", docs.Index, path)
		}
	}
	for _, path := range []string{"/docs/nothing", "/nothing/at/all"} {
		got := b.do("GET", path, "", "", "Cookie", b.cookie, "Accept", "text/html")
		if got.status != http.StatusNotFound || !strings.Contains(string(got.body), `<nav class="nav"`) {
			t.Errorf("%s: %d, without the navigation:\n%s", path, got.status, got.body)
		}
	}
	theGuidesThatPagesName(t, ids)
}

// theGuidesThatPagesName holds the links from the other pages to guides that there are.
func theGuidesThatPagesName(t *testing.T, ids map[string][]string) {
	t.Helper()
	named := regexp.MustCompile(`\.Guide \(?(?:printf )?"([^"]+)"`)
	templates, err := filepath.Glob("dashboard/templates/*.html")
	parts, err2 := filepath.Glob("dashboard/templates/parts/*.html")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	found := 0
	for _, file := range append(templates, parts...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			name, anchor, hasAnchor := strings.Cut(m[1], "#")
			wanted := []string{anchor}
			switch {
			case name == "troubleshooting" && anchor == "%s":
				wanted = []string{"received", "authenticated", "parsed", "new", "matched", "run"} // SPEC 7.1
			case name == "senders" && anchor == "%s": // of the scheme
				wanted = []string{"github-github", "stripe-stripe"}
			case name == "diagnostics" && anchor == "%s": // of the finding, which docs/diagnostics.md has: TestDocsNames
				wanted = []string{"ff_unknown_field", "th_no_effect"}
			}
			for _, want := range wanted {
				if !slices.Contains(ids["/docs/"+name], want) && (hasAnchor || ids["/docs/"+name] == nil) {
					t.Errorf("%s links to the guide %s, which has no section %q", file, name, want)
				}
			}
		}
	}
	if found < 9 {
		t.Errorf("the pages link to guides in %d places", found)
	}
}
