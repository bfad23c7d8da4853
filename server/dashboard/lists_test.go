package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/store"
)

func rendered(t *testing.T, page Content) string {
	t.Helper()
	var b strings.Builder
	if err := Render(&b, page); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestNoDeadEnds: a list leads to the form for a new one, also if it shows several factories,
// and on a server without a factory to the first steps, with no file for a factory that is not.
func TestNoDeadEnds(t *testing.T) {
	lists := map[string]func(Page) Content{
		"webhook":     func(p Page) Content { return WebhookList{Page: p} },
		"automation":  func(p Page) Content { return Automations{Page: p} },
		"environment": func(p Page) Content { return Environments{Page: p} },
		"agent":       func(p Page) Content { return Agents{Page: p} },
	}
	manager := Person{Name: "ada", May: func(string) bool { return true }}
	viewer := Person{Name: "bob", May: func(scope string) bool { return scope == store.ScopeRead }}
	two := []api.FactoryStatus{{Name: "shop", Hosted: true}, {Name: "site"}}
	for kind, list := range lists {
		path := "/" + kind + "s/new"
		all := rendered(t, list(Page{Person: manager, Factories: two}))
		for _, want := range []string{"New " + kind + "…", "In which factory?", `href="` + path + `?factory=shop"`, `href="` + path + `?factory=site"`} {
			if !strings.Contains(all, want) {
				t.Errorf("the list of %ss of all factories has no %s:\n%s", kind, want, all)
			}
		}
		one := rendered(t, list(Page{Person: manager, Factories: two, Factory: "shop"}))
		if !strings.Contains(one, `href="`+path+`?factory=shop">New `+kind+`</a>`) || strings.Contains(one, "In which factory?") {
			t.Errorf("the list of %ss of one factory:\n%s", kind, one)
		}
		if seen := rendered(t, list(Page{Person: viewer, Factories: two})); strings.Contains(seen, path) {
			t.Errorf("a viewer is offered a new %s", kind)
		}
		none := rendered(t, list(Page{Person: manager}))
		if !strings.Contains(none, "No factory yet") || !strings.Contains(none, `<a href="/start">First steps</a>`) || strings.Contains(none, path) || strings.Contains(none, "s/</code>") || strings.Contains(none, ".yaml") {
			t.Errorf("the list of %ss of a server without a factory:\n%s", kind, none)
		}
	}
}

// TestRailCount: the rail of a factory that serves does not count the failures of others.
func TestRailCount(t *testing.T) {
	page := Page{Factories: []api.FactoryStatus{{Name: "shop", State: "serving"}, {Name: "site", State: "failing"}}}
	for factory, want := range map[string]int{"": 1, "shop": 0, "site": 1} {
		if page.Factory = factory; page.Refused() != want {
			t.Errorf("the rail of %q counts %d, want %d", factory, page.Refused(), want)
		}
	}
}

// TestFindingsInGroups: of many findings of one kind the first is shown whole, and each of the
// others in one line with its place; few are all shown whole. No two have one name.
func TestFindingsInGroups(t *testing.T) {
	var all schema.Diagnostics
	for i := range 14 {
		all = append(all, schema.Diagnostic{Severity: schema.Error, Code: schema.UnknownField, Path: fmt.Sprintf("automations/a%d.md", i), Line: 3, Column: 1, Message: "unknown key", Hint: "did you mean it?"})
	}
	for i := range 2 {
		all = append(all, schema.Diagnostic{Severity: schema.Error, Code: schema.MissingRequired, Path: fmt.Sprintf("webhooks/w%d.yaml", i), Line: 3, Column: 1, Message: "missing"})
	}
	found := findingsOf(all, func(string) string { return "a\nb\nc\n" }, func(string, int) string { return "" })
	page := rendered(t, Definition{Home: &api.FactoryStatus{}, Failed: &api.Apply{}, Findings: found, Page: Page{Factories: []api.FactoryStatus{{}}}})
	if n := strings.Count(page, `class="caret"`); n != 3 {
		t.Errorf("%d findings are shown whole, want one of 14 and two of 2", n)
	}
	if !strings.Contains(page, "13 findings more of the same kind:") || !strings.Contains(page, "automations/a13.md:3:1</code> unknown key") {
		t.Errorf("the others are not listed:\n%s", page)
	}
	if strings.Count(page, `aria-label="webhooks/w0.yaml, line 3"`) != 1 || strings.Contains(page, `role="region" aria-label="`) {
		t.Error("the places of findings are landmarks, or have no name of their own")
	}
}
