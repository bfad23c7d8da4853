//go:build full

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"triphammer/cmd/triphammer/client"
)

// patience is how long a person at the browser waits for what should come.
const patience = 30 * time.Second

// chromium is the one browser of this process. Each tab has cookies of its own.
var chromium = sync.OnceValues(func() (context.Context, error) {
	// As root Chromium needs to be told that its own walls cannot be had. The pages are ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeAll := chromedp.NewContext(ctx)
	atEnd = append(atEnd, stop, closeAll)
	return ctx, chromedp.Do(ctx) // starts it
})

// tab is a person at a browser.
type tab struct {
	t    testing.TB
	ctx  context.Context
	base string // address of the server

	plain   bool // without JavaScript
	presses int  // how often the person has pressed something

	mu         sync.Mutex
	complaints []string // what the browser said is wrong with the pages, so far
}

// watch tells of what a policy of a page has stopped: as a warning of the console, which
// tells of it before the page can be left.
const watch = `document.addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective + ' ' + (e.blockedURI || e.sample)))`

// newTab opens a tab on a server: w.newTab signs in too. All that the browser has to
// complain about until the end of the test fails it.
func newTab(t testing.TB, base string) *tab {
	t.Helper()
	b := openTab(t, base)
	t.Cleanup(func() {
		if all := b.complained(); len(all) > 0 {
			t.Errorf("the browser complains:\n%s", strings.Join(all, "\n"))
		}
	})
	return b
}

func openTab(t testing.TB, base string) *tab {
	t.Helper()
	parent, err := chromium()
	if err != nil {
		t.Fatalf("Chromium (apt-get install chromium): %v", err)
	}
	b := &tab{t: t, base: base}
	ctx, end := chromedp.NewContext(parent, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	t.Cleanup(end)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // opens it for as long as ctx is
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch})
		return err
	}))
	b.view("light", 1280)
	return b
}

// newTab opens a tab and signs in with a link as `auth login` prints it.
func (w *world) newTab() *tab {
	w.t.Helper()
	b := newTab(w.t, "http://"+w.addr)
	b.signIn(w)
	return b
}

func (b *tab) signIn(w *world, args ...string) {
	b.t.Helper()
	link := strings.TrimSpace(w.run("", append([]string{"auth", "login"}, args...)...))
	b.open(link[strings.Index(link, "/auth/"):])
	b.press("Sign in as ")
	b.until("the person is not signed in", func() (bool, error) { return !strings.HasPrefix(b.path(), "/auth/"), nil })
}

// listen hears what the browser tells of the tab.
func (b *tab) listen(ev any) {
	var text string
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			text += " " + e.Description
		}
	case *runtime.EventConsoleAPICalled:
		if ev.Type != "error" && ev.Type != "warning" && ev.Type != "assert" {
			return
		}
		var parts []string
		for _, a := range ev.Args {
			parts = append(parts, strings.Trim(string(a.Value), `"`)+a.Description)
		}
		text = "console: " + strings.Join(parts, " ")
	case *log.EventEntryAdded:
		if ev.Entry.Level != "error" && ev.Entry.Level != "warning" {
			return
		}
		text = fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, text)
}

// complained are the complaints since the last time that somebody asked.
func (b *tab) complained() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

// expect takes a complaint that belongs to what the test did, such as a page that is not there.
func (b *tab) expect(part string) {
	b.t.Helper()
	b.until("the browser does not complain of "+part, func() (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, c := range b.complaints {
			if strings.Contains(c, part) {
				b.complaints = append(b.complaints[:i], b.complaints[i+1:]...)
				return true, nil
			}
		}
		return false, nil
	})
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.text())
	}
}

// js evaluates an expression in the page. It says false for a page that is just going away.
func js[T any](b *tab, expression string) (value T, ok bool) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	return value, err == nil
}

// call is the expression that calls a script with some texts.
func call(script string, texts ...string) string {
	args, _ := json.Marshal(texts) // texts cannot fail
	return "(" + script + ")(..." + string(args) + ")"
}

// until waits for a condition.
func (b *tab) until(what string, done func() (bool, error)) {
	b.t.Helper()
	if err := client.WaitFor(b.ctx, patience, what, done); err != nil {
		b.t.Fatalf("%v\n%s\n%s", err, b.text(), strings.Join(b.complained(), "\n"))
	}
}

// view is the theme that the person prefers, and the width of the window.
func (b *tab) view(theme string, width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 800), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	}))
}

// withoutScript turns JavaScript off, as some people do.
func (b *tab) withoutScript() {
	b.t.Helper()
	b.plain = true
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// open goes to a page of the server.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// reload loads the page again. A navigation that is on its way wins.
func (b *tab) reload() {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_ = chromedp.Do(ctx, chromedp.Reload()) // who waits for something looks again
}

// path is where the person is.
func (b *tab) path() string {
	at, _ := js[string](b, `location.pathname + location.search`)
	return at
}

// text is what the page says, in the order of reading.
func (b *tab) text() string {
	text, _ := js[string](b, `document.body ? document.body.innerText : ''`)
	return b.path() + "\n" + text
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// see waits until the page says each of the texts. White space does not count.
func (b *tab) see(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until("the page does not say "+text, func() (bool, error) { return strings.Contains(flat(b.text()), flat(text)), nil })
	}
}

// notSee waits until the page says none of the texts.
func (b *tab) notSee(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until("the page says "+text, func() (bool, error) { return !strings.Contains(flat(b.text()), flat(text)), nil })
	}
}

// byName is the script that finds what a person would call by a name: the one visible element
// of a kind with that name, or whose name begins with it.
const byName = `const flat = s => (s || '').replace(/\s+/g, ' ').trim();
const named = e => flat(e.getAttribute('aria-label') || (e.labels && e.labels.length ? Array.from(e.labels, l => l.innerText).join(' ') : '') ||
	(e.tagName === 'FIELDSET' ? e.querySelector('legend')?.innerText : '') || e.innerText || e.value);
const byName = (kinds, name) => {
	const seen = Array.from(document.querySelectorAll(kinds)).filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled);
	return seen.find(e => named(e) === name) || seen.find(e => named(e).startsWith(name));
};`

const (
	pressable = "a, button, summary, input[type=submit], [role=button]"
	fillable  = "input:not([type=hidden]):not([type=submit]), textarea, select"
)

// point is where in the window an element is.
type point struct {
	X, Y  float64
	Cover string // what lies over it
}

// press clicks a button, a link or what unfolds, with the mouse.
func (b *tab) press(name string) {
	b.t.Helper()
	b.presses++
	b.pressOf(pressable, name)
}

func (b *tab) pressOf(kinds, name string) {
	b.t.Helper()
	b.until("there is nothing to press named "+name, func() (bool, error) {
		at, ok := js[point](b, call(`(kinds, name) => {`+byName+`
	const e = byName(kinds, name);
	if (!e || document.readyState !== 'complete') return null;
	e.scrollIntoView({block: 'center', behavior: 'instant'});
	const r = Array.from(e.getClientRects()).find(r => r.width > 0) || e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2;
	const top = document.elementFromPoint(x, y);
	const own = top && (e.contains(top) || top.contains(e) || (e.labels && Array.from(e.labels).some(l => l.contains(top))));
	window.clicked = '';
	const called = named(e); // now: an element that the page has replaced since has another innerText
	addEventListener('click', ev => {
		const on = ev.target.closest(kinds) || ev.target.closest('label')?.control;
		window.clicked = on && named(on) === called ? 'it' : 'another';
	}, {capture: true, once: true});
	return {X: x, Y: y, Cover: own ? '' : (top ? top.outerHTML.slice(0, 200) : 'the edge of the window')};
}`, kinds, name))
		if !ok || at.Cover != "" {
			return false, nil
		}
		b.do(chromedp.MouseClickXY(at.X, at.Y))
		if b.plain {
			return true, nil
		}
		// A page that moved under the mouse, as live ones may, heard of another click, or of none.
		// A busy one hears of it late: to click again at once would close what the click opened.
		clicked, ok := js[string](b, `new Promise(heard => {
	const until = performance.now() + 1000;
	const look = () => window.clicked === '' && performance.now() < until ? setTimeout(look, 10) : heard(String(window.clicked));
	look();
})`)
		return !ok || clicked == "it" || clicked == "undefined", nil // undefined: the click led to another page
	})
}

// fill writes into a field, as if it was typed.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	b.until("there is no field "+label, func() (bool, error) {
		ok, _ := js[bool](b, call(`(kinds, name) => {`+byName+`
	const e = byName(kinds, name); if (!e || document.readyState !== 'complete') return false;
	e.focus(); e.select && e.select(); return document.activeElement === e;
}`, fillable, label))
		return ok, nil
	})
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// choose takes one of what a field offers.
func (b *tab) choose(label, option string) {
	b.t.Helper()
	b.until("the field "+label+" does not offer "+option, func() (bool, error) {
		ok, _ := js[bool](b, call(`(name, option) => {`+byName+`
	const e = byName('select', name), o = e && Array.from(e.options).find(o => o.label === option);
	if (!o || document.readyState !== 'complete') return false;
	e.focus(); e.value = o.value;
	e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}));
	return true;
}`, label, option))
		return ok, nil
	})
}

// copied presses a button that copies, and returns what the person can paste then.
func (b *tab) copied(name string) string {
	b.t.Helper()
	text, ok := js[string](b, call(`(kinds, name) => {`+byName+`
	const e = byName(kinds, name);
	return (e.dataset.copy ? document.getElementById(e.dataset.copy) : e.previousElementSibling).textContent;
}`, pressable, name))
	if !ok || text == "" {
		b.t.Fatalf("the button %s copies nothing\n%s", name, b.text())
	}
	b.press(name)
	b.see("Copied")
	return text
}

// picture is a PNG of the whole page.
func (b *tab) picture() []byte {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}
