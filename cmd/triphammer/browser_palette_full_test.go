//go:build full

package main

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// goTo finds something with Ctrl-K and follows the link with an address, by keys alone: the arrow goes
// down to it, and Enter follows it.
func (b *tab) goTo(text, address string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)), chromedp.KeyEvent(text))
	b.until("the search for "+text+" does not find "+address, func() (bool, error) {
		there, _ := js[string](b, call(`(text, address) => {
	const found = document.getElementById('found'), is = a => a && a.href === location.origin + address;
	return is(document.activeElement) ? 'chosen' : found.firstElementChild?.dataset.text === text && Array.from(found.querySelectorAll('a')).some(is) ? 'found' : '';
}`, text, address))
		if there == "found" {
			b.do(chromedp.KeyEvent(kb.ArrowDown))
		}
		return there == "chosen", nil
	})
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(text+" does not lead to "+address, func() (bool, error) {
		now, _ := js[string](b, `document.readyState === 'complete' ? location.pathname + location.search + location.hash : ''`)
		return now == address, nil
	})
}

// TestPalette: with 2,400 automations and all the webhooks that a factory may have, Ctrl-K finds each automation and webhook
// by its name, pages, runs, subjects and deliveries, and what can be done, without a mouse.
func TestPalette(t *testing.T) {
	files := map[string]string{"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n"}
	for i := range 20 {
		files[fmt.Sprintf("webhooks/hook-%02d.yaml", i)] = "secretName: S\n"
	}
	for i := range 2400 {
		files[fmt.Sprintf("automations/task-%04d.md", i)] = fmt.Sprintf("---\nenvironmentId: env\nsubject: ticket-{n}\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook-%02d], payload: {n: [%d]}}}\n---\nDo it.\n", i%20, i)
	}
	w := newWorld(t, files)
	w.start()
	w.env = append(w.env, "TRIPHAMMER_WEBHOOK_SECRET="+testSecret)
	delivery := regexp.MustCompile(`dlv_[0-9a-z]+`).FindString(w.run("", "send", "hook-19", "-d", `{"n":2399}`))
	s := &story{world: w}
	s.tells("hook-19:ticket-2399")
	var runs []struct {
		RunID string `json:"run_id"`
	}
	w.list(&runs, "runs", "list")
	b := w.newTab()
	b.open("/")
	for _, find := range [][2]string{
		{"task-2399", "/automations/task-2399"},
		{"hook-19", "/webhooks/hook-19"},
		{"pause task-2399", "/automations/task-2399#pause-reason"},
		{"run task-0042 now", "/automations/task-0042#run-prompt"},
		{"new webhook", "/webhooks/new"},
		{"secrets", "/secrets"},
		{"ticket-2399", "/subjects/story?subject=" + url.QueryEscape(s.subject)},
		{delivery, "/deliveries/" + delivery},
		{runs[0].RunID, "/runs/" + runs[0].RunID},
		{"task-23", "/automations?q=task-23"}, // more than the search shows
		{"hook-", "/webhooks?q=hook-"},
	} {
		b.goTo(find[0], find[1])
	}
	b.see("hook-00", "hook-19")

	// A person who types before htmx has begun is answered, too.
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			const soon = setTimeout;
			setTimeout = (then, ms, ...rest) => soon(then, ms ?? 1000, ...rest);`})
		return err
	}))
	b.open("/")
	b.goTo("secrets", "/secrets")
}
