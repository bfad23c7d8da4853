//go:build full

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"triphammer/server/dashboard"
)

// restart kills the server and starts it on the same port, with the agents of the story.
func (s *story) restart() {
	s.t.Helper()
	path := ""
	for _, v := range s.cmd.Env {
		if strings.HasPrefix(v, "PATH=") {
			path = v // the last one counts
		}
	}
	s.kill()
	s.startWith(func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, path) }, "--max-runs", "2")
}

// signInAs opens a tab of somebody with a role.
func (w *world) signInAs(role string) *tab {
	w.t.Helper()
	b := newTab(w.t, "http://"+w.addr)
	b.signIn(w, "--role", role)
	return b
}

// TestRunJourney: a person watches a run at work, whose page goes on by itself when the server
// was killed and started again; cancels another; and lets one be done again. All of it goes
// without JavaScript too.
func TestRunJourney(t *testing.T) {
	s := newStory(t)
	b := s.newTab()
	b.open("/runs/" + s.live)
	b.see("Running", "npm test -- --run refund")
	s.restart() // which ends the run that was at work
	b.notSee("Running")
	b.see("Failed")
	b.complained() // of the stream that was away

	b.open("/runs/" + s.failed)
	b.press("Run again…")
	b.press("Run again")
	b.until("running again leads to no other run", func() (bool, error) {
		return strings.HasPrefix(b.path(), "/runs/run_") && b.path() != "/runs/"+s.failed, nil
	})
	b.see("Failed") // the agent fails again, live on the page

	s.send("GITHUB_SECRET", "github", "--provider", "github", "--event", "issues")
	plain := s.newTab()
	plain.withoutScript()
	plain.open("/runs")
	plain.press("fix-labeled-bug")
	plain.until("the run does not start", func() (bool, error) {
		if strings.Contains(plain.text(), "Running") {
			return true, nil
		}
		plain.reload()
		return false, nil
	})
	plain.press("Cancel…")
	plain.press("Cancel the run")
	plain.see("cancelled") // a reload before the answer would take the request back
	plain.until("the run is not cancelled", func() (bool, error) {
		if strings.Contains(plain.text(), "Cancelled") {
			return true, nil
		}
		plain.reload()
		return false, nil
	})
}

// TestLivePages: a live page opens its stream however slow the machine of the reader is. While a
// stream is refused the page says that it does not change, and no longer once it is open.
func TestLivePages(t *testing.T) {
	s := newStory(t)
	b := s.newTab()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: 6})
		return err
	}))
	for range 10 {
		b.open("/deliveries")
		b.until("the page does not open its stream", func() (bool, error) {
			value, ok := js[bool](b, `document.querySelector("[data-stream]")._htmx?.sse?.status === 200`)
			return ok && value, nil
		})
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: 1}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			const real = fetch;
			fetch = (url, options) => sessionStorage.refused && String(url).includes("` + dashboard.LivePath + `") ? Promise.reject(new TypeError("refused")) : real(url, options);`})
		return err
	}))
	js[string](b, `sessionStorage.refused = "yes"`)
	b.open("/runs")
	b.see("This page does not change by itself at the moment")
	b.complained()
	js[string](b, `sessionStorage.removeItem("refused")`)
	b.open("/runs")
	b.notSee("This page does not change by itself")
}

// TestRoles: who signs in by a link as a viewer reads everything and is offered nothing that
// a viewer may not do; an operator cancels runs and sets no secret.
func TestRoles(t *testing.T) {
	s := newStory(t)
	viewer, operator := s.signInAs("viewer"), s.signInAs("operator")
	for _, path := range []string{"/runs/" + s.live, "/secrets", "/system", "/webhooks/github"} {
		viewer.open(path)
		viewer.see("viewer")
		if forms, ok := js[[]string](viewer, `Array.from(document.querySelectorAll('main form[method=post]'), f => f.action)`); !ok || len(forms) > 0 {
			t.Errorf("%s offers a viewer %q", path, forms)
		}
	}
	operator.open("/secrets")
	operator.see("GITHUB_SECRET")
	operator.notSee("Set a secret")
	for _, who := range []*tab{viewer, operator} { // stopping a run by keys alone
		who.open("/secrets")
		who.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)), chromedp.KeyEvent("stop"))
		who.until("the search does not find the run", func() (bool, error) {
			found, _ := js[bool](who, `document.querySelector('#found [data-text=stop] a[href*=run_]') !== null`)
			return found, nil
		})
		who.look()
	}
	viewer.notSee("Stop ")
	operator.do(chromedp.KeyEvent(kb.ArrowDown+kb.ArrowDown), chromedp.KeyEvent(kb.Enter)) // the first would stop all
	operator.until("the second link is not of the run", func() (bool, error) { return strings.HasPrefix(operator.path(), "/runs/"+s.live), nil })
	operator.press("Cancel the run") // which is asked for already
	operator.see("Cancelled")
}

// TestSecretJourney: a missing secret is named, set by page, and the commit serves; a value is
// never shown; a secret that nothing uses is deleted.
func TestSecretJourney(t *testing.T) {
	s := newStory(t)
	s.write(map[string]string{
		"automations/charge-dispute/automation.md": "---\nagent: foreman\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [stripe]}}\n---\nTell finance.\n",
		"webhooks/deploys.yaml":                    "secretName: DEPLOYS_SECRET\n",
	})
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "Add deploys")
	_ = s.command("apply").Run() // it is refused
	const value = "a-value-that-nobody-may-see"
	b := s.newTab()
	b.view("dark", 375)
	b.check("/secrets")
	b.open("/secrets")
	b.see("there is no managed secret DEPLOYS_SECRET")
	b.press("Set DEPLOYS_SECRET")
	b.fill("Value", value)
	b.press("Set the secret")
	b.see("The secret DEPLOYS_SECRET has a new value", "No secret is missing")
	s.run("", "status", "--wait", "--timeout", "30s")
	b.fill("Name", "not_a_name")
	b.fill("Value", value)
	b.press("Set the secret")
	b.see("capital letters")
	b.expect("422")
	b.fill("Name", "SPARE")
	b.fill("Value", value)
	b.press("Set the secret")
	b.see("The secret SPARE has a new value")
	b.press("Delete SPARE")
	b.press("Delete it")
	b.see("The secret SPARE is deleted")
	if html, _ := js[string](b, `document.documentElement.outerHTML`); strings.Contains(html, value) {
		t.Error("the page has the value")
	}
	b.open("/system")
	b.press("Check the store")
	b.see("It is sound")
}

// TestAskJourney: a person tests an automation whose trigger asks for the paths of a pull request,
// reads that only GitHub knows, and asks it by the button.
func TestAskJourney(t *testing.T) {
	const token = "a-token-that-nobody-may-see"
	github := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(rw, "bad credentials", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(rw, `[{"filename":"docs/a.md"}]`)
	}))
	defer github.Close()
	w := newWorld(t, map[string]string{
		"factory.yaml":        factoryYAML,
		"webhooks/forge.yaml": "authMode: signature\nsignatureScheme: github\nsecretName: S\napiSecretName: API\napiURL: " + github.URL + "\n",
		"automations/docs.md": "---\nenvironmentId: empty-environment\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {paths: [docs/**]}}\n---\nRead it.\n",
	})
	w.run(token, "secrets", "set", "API")
	w.start()
	b := w.signInAs("operator")
	b.open("/automations/test")
	b.choose("Automation", "docs")
	b.fill("or a payload (JSON)", `{"action":"opened","repository":{"full_name":"acme/api"},"pull_request":{"number":7}}`)
	b.fill("with headers, one on each line", "X-GitHub-Event: pull_request")
	b.see("Not known")
	b.press("Ask GitHub")
	b.see("Would trigger", "was asked for the pull request files of acme/api 7")
	b.notSee(token)
	b.check("/automations/test")
}
