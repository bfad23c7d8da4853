package client

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/dashboard"
)

// TestPagesOfNouns holds what open opens to the routes of the pages, in both directions.
func TestPagesOfNouns(t *testing.T) {
	routes := make(map[string]bool) // true: something leads there
	for _, r := range dashboard.Routes {
		if r.Method == http.MethodGet {
			routes[r.Path] = false
		}
	}
	leads := func(what, path string, alternatives ...string) {
		t.Helper()
		for _, path := range append(alternatives, path) {
			if _, is := routes[path]; is {
				routes[path] = true
				return
			}
		}
		t.Errorf("%s leads to %s, which is no page", what, path)
	}
	for _, s := range sections() {
		leads(s.Name, s.Path)
	}
	for noun, of := range Completions {
		switch path, _, _ := strings.Cut(of.page, "?"); {
		case strings.HasSuffix(of.page, "/"):
			leads(noun, of.page+":id", of.page+":name")
		case path != "":
			leads(noun, path)
		}
	}
	elsewhere := []string{"/artifacts/:id"} // a download, which the page of its run has
	for path, found := range routes {
		if !found && (strings.HasSuffix(path, "/:id") || strings.HasSuffix(path, "/:name")) && !slices.Contains(elsewhere, path) {
			t.Errorf("open does not know what has the page %s", path)
		}
	}
}

// TestBrowser: what $BROWSER names is taken, with the address in its place.
func TestBrowser(t *testing.T) {
	const address = "https://hammer.example.com/runs?a=b&c=%73"
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	for browser, want := range map[string]string{
		"true": "true " + address, "nowhere:true -n": "true -n " + address, "::true --url=%s -n": "true --url=" + address + " -n",
		"": "no display", "nowhere": `$BROWSER names "nowhere"`, "nowhere true": `$BROWSER names "nowhere true"`, ":": `$BROWSER names ":"`,
	} {
		t.Setenv("BROWSER", browser)
		show, err := findBrowser()
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", browser, err)
			}
			continue
		}
		cmd := show(address)
		if got := strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " "); got != want {
			t.Errorf("%q: %s", browser, got)
		}
	}
}
