//go:build full

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"triphammer/server/api"
)

// hostile wants to be markup, a script, a link, a sequence for a terminal, and to turn the
// text around. What comes through a door has the door's name before it.
const hostile = `<b id=hit>x</b><img src=/none onerror="window.hit=1"><script>window.hit=1</script>"'> onmouseover=window.hit=1 javascript:window.hit=1 ` +
	"\u202egnp.exe\u2066\u200f \x1b[31mred\x1b[0m\x1b]8;;javascript:hit\x07 {{.}} `${hit}`"

// plainHostile is hostile without what git, YAML or a flag refuses.
var plainHostile = regexp.MustCompile(`[\x00-\x1f\x{2066}]`).ReplaceAllString(hostile, "")

// tellLies adds to the story what hostile senders, agents and colleagues would.
func (s *story) tellLies() {
	s.t.Helper()
	quoted := func(door string) string {
		text, err := json.Marshal(door + " " + plainHostile)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(text)
	}
	script, err := filepath.Abs("testdata/story/hostile")
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := json.Marshal([]string{script, hostile})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(map[string]string{
		"factory.yaml":                             "schemaVersion: v1alpha1\nname: " + quoted("door-factory") + "\nagentDefaults:\n  harness: {type: claude, model: sonnet}\n  environmentId: app\n",
		"environments/lies.yaml":                   "description: " + quoted("door-environment") + "\nenv: {LIE: " + quoted("door-variable") + "}\ncommand: " + string(text) + "\n",
		"automations/charge-dispute/automation.md": "---\nagent: foreman\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [stripe]}}\n---\nTell finance.\n",
		"automations/deploy-failed/automation.md": "---\nenvironmentId: lies\nsubject: \"door-about {event}\"\ntriggers:\n- provider: webhook\n  event: received\n  filter:\n    webhooks: [internal-ci]\n    payload:\n      event: [" +
			quoted("door-filter") + "]\n---\ndoor-prompt " + plainHostile + "\n",
	})
	s.git("add", "-A")
	s.git("-c", "user.name=door-author "+plainHostile, "commit", "-q", "-m", "door-subject "+plainHostile)
	s.run("", "apply")

	var event string
	if err := json.Unmarshal([]byte(quoted("door-filter")), &event); err != nil {
		s.t.Fatal(err)
	}
	payload, err := json.Marshal(map[string]any{"event": event, "door-key " + hostile: []any{"door-value " + hostile}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.wanted = s.send("INTERNAL_CI_SECRET", "internal-ci", "-d", string(payload), "-H", "X-CI-Run-Id: door-id "+plainHostile, "-H", "User-Agent: door-agent "+plainHostile)
	s.unmatched = s.send("INTERNAL_CI_SECRET", "internal-ci", "-d", strings.Replace(string(payload), "door-filter", "door-other", 1), "-H", "X-CI-Run-Id: door-id2 "+plainHostile)
	s.run("", "schedules", "create", "--name", "door-schedule <b id=hit>x</b><img src=/none onerror=window.hit=1>\u202egnp", "--cron", "0 9 * * MON", "--prompt", "door-scheduleprompt "+plainHostile, "--environment", "app")
	s.failed = strings.Fields(s.run("", "runs", "create", "--title", "door-title "+plainHostile, "--prompt", "door-runprompt "+plainHostile, "--environment", "app"))[0]
	var runs []api.Run
	s.until("the hostile run does not end", func() bool {
		s.list(&runs, "runs", "list", "--automation", "deploy-failed", "--limit", "1")
		s.done = runs[0].RunID
		return runs[0].State == "SUCCEEDED" || runs[0].State == "FAILED"
	})
	if runs[0].State != "SUCCEEDED" {
		s.t.Fatalf("the hostile run failed: %s", runs[0].StatusMessage)
	}
	s.tells(runs[0].Subject)
	s.write(map[string]string{"environments/lies.yaml": "description: x\ncommand: [x]\nisolation: " + quoted("door-finding") + "\n"})
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "door-refused "+plainHostile)
	_ = s.command("apply").Run() // it is refused
}

// harmed is the script that tells what of a page is more than text.
const harmed = `(() => {
	const found = [];
	if (window.hit !== undefined) found.push('a script ran');
	for (const e of document.querySelectorAll('#hit, [onerror], [onmouseover], b[id], img[src="/none"]')) found.push('an element: ' + e.outerHTML.slice(0, 100));
	for (const e of document.querySelectorAll('script')) if (e.textContent.trim()) found.push('a script: ' + e.textContent.slice(0, 100));
	for (const e of document.querySelectorAll('[href], [src], [action], [formaction]')) for (const a of ['href', 'src', 'action', 'formaction']) {
		const to = e.getAttribute(a);
		if (to !== null && !/^https?:$/.test(new URL(to, location.href).protocol) && !to.startsWith('data:image/')) found.push('a link: ' + to.slice(0, 100));
	}
	const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
	const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/;
	for (let n = walk.currentNode; n; n = walk.nextNode()) {
		if (n.nodeValue && bad.test(n.nodeValue)) found.push('a control character in: ' + JSON.stringify(n.nodeValue.slice(0, 100)));
		for (const a of n.attributes || []) if (bad.test(a.value)) found.push('a control character in ' + a.name + ': ' + JSON.stringify(a.value.slice(0, 100)));
	}
	return found;
})()`

// TestPagesHostile: what anybody says through any door is text on every page (SPEC 10.3): it
// runs nothing, makes no element and no link, and moves no other text.
func TestPagesHostile(t *testing.T) {
	s := newStory(t)
	s.tellLies()
	b := s.newTab()
	seen := make(map[string]bool)
	for _, route := range pageRoutes() {
		for _, path := range storyPages(s.scenes)[route] {
			b.open(path)
			b.unfold()
			found, ok := js[[]string](b, harmed)
			if !ok || len(found) > 0 {
				t.Errorf("%s: %s", path, strings.Join(found, "\n  "))
			}
			for _, door := range regexp.MustCompile(`door-[a-z0-9]+`).FindAllString(b.text(), -1) {
				seen[door] = true
			}
		}
	}
	for _, door := range []string{
		"factory", "prompt", "filter", "subject", "key", "value", "id", "agent", "runprompt", "title", "output", "errors", "artifactname", "finding", "about",
	} {
		if !seen["door-"+door] {
			t.Errorf("no page shows what came through the door %s: %v", door, fmt.Sprint(seen))
		}
	}
}

// unfold opens all that is folded.
func (b *tab) unfold() {
	b.t.Helper()
	if _, ok := js[bool](b, `document.querySelectorAll('details').forEach(d => d.open = true), true`); !ok {
		b.t.Fatal("the page cannot be unfolded")
	}
}
