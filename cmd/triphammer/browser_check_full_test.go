//go:build full

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// axe is the program that looks for barriers.
var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("../../third_party/axe/axe.min.js")
	return string(text), err
})

const (
	maxPage  = 100 << 10 // bytes of one page's HTML
	maxVisit = 250 << 10 // bytes of a first visit: the page, and what it loads, which browsers then keep
)

// inspect is the script that measures a page.
const inspect = `(() => {
	const all = performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'));
	return {
		Title: document.title, Headings: document.querySelectorAll('h1').length,
		HTML: all[0].decodedBodySize, Visit: all.reduce((sum, e) => sum + e.encodedBodySize, 0),
		NoCaption: Array.from(document.querySelectorAll('table')).filter(t => !t.caption || !t.caption.textContent.trim()).length,
		Inline: Array.from(document.querySelectorAll('[style], style, script:not([src])')).map(e => e.outerHTML.slice(0, 120)),
		Elsewhere: all.map(e => e.name).filter(n => !n.startsWith(location.origin + '/')),
	};
})()`

// overflow is the script that names what is wider than the window.
const overflow = `(() => {
	const d = document.documentElement;
	if (d.scrollWidth <= innerWidth) return [];
	const wide = Array.from(document.querySelectorAll('body *')).filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 && e.checkVisibility());
	const held = e => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return p !== document.body && p !== d; return false };
	return [d.scrollWidth + ' px wide'].concat(wide.filter(e => !held(e)).slice(0, 3).map(e => e.outerHTML.slice(0, 160)));
})()`

// broken is the script that names the words which go on in another line, though they fit into one. What
// stands between spaces, slashes and hyphens is a word. Links of rows are left out: axe finds no target of
// 24 px in a link that is alone there and has places to break.
const broken = `(() => {
	const found = [], walk = document.createTreeWalker(document.querySelector('main') || document.body, NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		if (!n.parentElement.checkVisibility() || n.parentElement.closest('.vh, pre, option, .t .sub a')) continue;
		let box = n.parentElement;
		while (getComputedStyle(box).display.startsWith('inline')) box = box.parentElement;
		const style = getComputedStyle(box), room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
		for (const word of n.data.matchAll(/(?:[^\s\/?\-–—]|\/\/)+[\/?\-–—]?/g)) {
			const range = document.createRange();
			range.setStart(n, word.index);
			range.setEnd(n, word.index + word[0].length);
			const parts = Array.from(range.getClientRects()).filter(r => r.width > 0);
			if (new Set(parts.map(r => Math.round(r.top))).size > 1 && parts.reduce((sum, r) => sum + r.width, 0) <= room) found.push(word[0] + ' of ' + box.innerText.slice(0, 100));
		}
	}
	return found;
})()`

// barriers is the script that runs axe.
const barriers = `axe.run(document, {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}).then(r => r.violations.map(v =>
	v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' (' + n.any.concat(n.all, n.none).map(c => c.message).join('; ').slice(0, 300) + ')').join(' | ')))`

// faults opens a page, and returns what is wrong with it: in each theme and width, for eyes,
// for a screen reader, and for the browser.
func (b *tab) faults(path string) (all []string) {
	b.t.Helper()
	b.view(themes[0], widths[0])
	b.complained()
	b.open(path)
	found, ok := js[struct {
		Title             string
		Headings, HTML    int
		Visit, NoCaption  int
		Inline, Elsewhere []string
	}](b, inspect)
	if !ok {
		b.t.Fatalf("%s cannot be measured", path)
	}
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	say(found.Title == "", "no title")
	say(found.Headings != 1, "%d headings h1", found.Headings)
	say(found.HTML > maxPage, "%d bytes of HTML", found.HTML)
	say(found.Visit > maxVisit, "%d bytes at the first visit", found.Visit)
	say(found.NoCaption > 0, "%d tables without a caption", found.NoCaption)
	say(len(found.Inline) > 0, "inline: %q", found.Inline)
	say(len(found.Elsewhere) > 0, "loaded from elsewhere: %q", found.Elsewhere)
	for _, theme := range themes {
		for _, width := range append(slices.Clone(widths), 320, 640, 900) {
			b.view(theme, width)
			wide, ok := js[[]string](b, overflow)
			say(!ok || len(wide) > 0, "%d px: it overflows: %q", width, wide)
			if theme == themes[0] {
				split, ok := js[[]string](b, broken)
				say(!ok || len(split) > 0, "%d px: it breaks lines within words: %q", width, split)
			}
			if !slices.Contains(widths, width) {
				continue // axe has seen the same layout
			}
			for _, f := range b.barred() {
				say(true, "%s, %d px: %s", theme, width, f)
			}
		}
	}
	for _, c := range b.complained() {
		say(true, "the browser: %s", c)
	}
	return all
}

// barred is what axe says of the page as it stands.
func (b *tab) barred() []string {
	b.t.Helper()
	if there, _ := js[bool](b, `typeof axe === 'object'`); !there {
		program, err := axe()
		if err != nil {
			b.t.Fatal(err)
		}
		if _, ok := js[bool](b, program+"\n;true"); !ok {
			b.t.Fatal("axe cannot be loaded")
		}
	}
	found, ok := js[[]string](b, barriers)
	if !ok {
		b.t.Fatal("axe did not run")
	}
	return found
}

// look holds what the tab shows now, such as the answer to a form, to what every page must
// be, in the theme and the width that the person has. So every stop of a journey is looked at.
func (b *tab) look() {
	b.t.Helper()
	wide, ok := js[[]string](b, overflow)
	if all := slices.Concat(wide, b.barred(), b.complained()); !ok || len(all) > 0 {
		b.t.Errorf("%s:\n  %s", b.path(), strings.Join(all, "\n  "))
	}
}

// check holds a page to what every page must be.
func (b *tab) check(path string) {
	b.t.Helper()
	if all := b.faults(path); len(all) > 0 {
		b.t.Errorf("%s:\n  %s", path, strings.Join(all, "\n  "))
	}
}

// TestBrowserFaults: a page with every fault is seen to have each, and one without has none.
func TestBrowserFaults(t *testing.T) {
	const good = `<!DOCTYPE html><html lang="en"><head><title>Good</title><link rel="icon" href="data:,"></head><body><main><h1>Good</h1><p>Text</p></main></body></html>`
	pages := map[string]string{
		"/good":     good,
		"/bad":      `<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body><table><tr><td>x</td></tr></table><img src="/none.png"><p style="color: red">x</p><script>throw new Error("inline ran")</script></body></html>`,
		"/wide":     strings.Replace(good, "<p>", `<link rel="stylesheet" href="/wide.css"><p class="wide">`, 1),
		"/wide.css": `.wide { width: 350px; color: light-dark(#000, #777); background: light-dark(#fff, #888) } :root { color-scheme: light dark }`,
		"/throws":   strings.Replace(good, "<p>", `<script src="/throws.js"></script><p>`, 1), "/throws.js": `throw new Error("it broke")`,
		"/breaks": strings.Replace(good, "<p>", `<link rel="stylesheet" href="/breaks.css"><p class="narrow">https://a.example/a/path/to/`, 1), "/breaks.css": `.narrow { width: 8rem; overflow-wrap: anywhere }`,
		"/large": strings.Replace(good, "Text", strings.Repeat("Text ", 30_000), 1),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, found := pages[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		switch {
		case strings.HasSuffix(r.URL.Path, ".css"):
			w.Header().Set("Content-Type", "text/css")
		case strings.HasSuffix(r.URL.Path, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:")
		_, _ = w.Write([]byte(text)) // the browser waits for it
	}))
	t.Cleanup(srv.Close)
	b := openTab(t, srv.URL)
	for path, wants := range map[string][]string{
		"/good":   nil,
		"/bad":    {"no title", "0 headings", "1 tables without", "inline:", "html-has-lang", "image-alt", "style-src", "script-src", "none.png"},
		"/wide":   {"320 px: it overflows", "dark, 1280 px: color-contrast"},
		"/breaks": {"320 px: it breaks lines within words"},
		"/throws": {"it broke"},
		"/large":  {"bytes of HTML"},
	} {
		all := strings.Join(b.faults(path), "\n")
		for _, want := range wants {
			if !strings.Contains(all, want) {
				t.Errorf("%s: nothing says %q:\n%s", path, want, all)
			}
		}
		if wants == nil && all != "" {
			t.Errorf("%s: %s", path, all)
		}
		if strings.Contains(all, "light, 1280 px: color-contrast") {
			t.Errorf("%s: %s", path, all)
		}
	}
}
