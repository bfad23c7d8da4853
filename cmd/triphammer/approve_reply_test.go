package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
)

// TestApproveByReply: a reply with the code that the answer shows lets out what an agent asked for, from
// somebody who may write, whom GitHub's API names; nobody else's does, and it fires nothing else (SPEC 26.2).
func TestApproveByReply(t *testing.T) {
	t.Parallel()
	g := &gitHubChanges{}
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if login, is := strings.CutPrefix(r.URL.Path, "/repos/acme/api/collaborators/"); is {
			answers := map[string]string{
				"ada/permission": `{"permission":"write","user":{"login":"ada","id":1}}`, "eve/permission": `{"permission":"write","user":{"login":"eve","id":9}}`,
				"mallory/permission": `{"permission":"read","user":{"login":"mallory","id":6}}`,
			}
			_, _ = w.Write([]byte(answers[login]))
			return
		}
		g.ServeHTTP(w, r)
	}))
	defer forge.Close()
	script, _ := json.Marshal(`printf '{"kind":"comment","body":"triphammer approve ABCD2345"}' > "$TRIPHAMMER_OUTPUTS/1.json"; until [ -e "$TRIPHAMMER_OUTPUTS/1.result.json" ]; do sleep 0.05; done`)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, " + string(script) + "]\n",
		"webhooks/hook.yaml":  "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "\nreport: thread\n",
		"automations/fix.md":  "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_labeled}]\noutputs: {comment: {}}\napproval: [outputs]\n---\nDo it.\n",
		"automations/talk.md": "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_mentioned}]\nreport: none\n---\nDo it.\n",
	})
	w.run("ghp_"+strings.Repeat("output", 6), "secrets", "set", "API_TOKEN")
	w.start()
	address, n := w.url("hook"), 0
	send := func(event, login string, id int, payload map[string]any) string {
		t.Helper()
		n++
		payload["sender"] = map[string]any{"login": login, "type": "User", "id": id}
		signedByGitHub(t, address, "d"+string(rune('0'+n)), event, payload)
		var d []api.Delivery
		w.list(&d, "deliveries", "list")
		return d[0].ID
	}
	issue := map[string]any{"id": 1, "number": 7, "html_url": "https://github.example.com/acme/api/issues/7", "user": map[string]any{"login": "eve", "id": 9}}
	send("issues", "eve", 9, map[string]any{"action": "labeled", "label": map[string]any{"name": "fix"}, "issue": issue})
	var all []api.Run
	said := func() string { calls, bodies := g.seen(); return strings.Join(append(calls, bodies...), "\n") }
	code := ""
	w.eventually(func() bool {
		if m := regexp.MustCompile("`triphammer approve ([0-9A-Z]{8})`").FindStringSubmatch(said()); m != nil {
			code = m[1]
		}
		return code != ""
	}, said)
	w.list(&all, "runs", "list")
	run := all[0].RunID
	comments := func() (found int) {
		calls, bodies := g.seen()
		for i, c := range calls {
			if c == "POST /repos/acme/api/issues/7/comments" && strings.Contains(bodies[i], "ABCD2345") {
				found++
			}
		}
		return found
	}
	reply := func(login string, id int, action, body string) string {
		t.Helper()
		delivery := send("issue_comment", login, id, map[string]any{"action": action, "issue": issue, "comment": map[string]any{"id": 100 + n, "body": body, "user": map[string]any{"login": login, "id": id, "type": "User"}}})
		shown := ""
		w.eventually(func() bool {
			shown = w.run("", "deliveries", "show", delivery)
			return !strings.Contains(shown, "waiting for GitHub")
		}, func() string { return shown })
		return shown
	}
	command := "triphammer approve " + code
	for _, c := range []struct {
		login      string
		id         int
		body, belt string
	}{
		{"mallory", 6, command, "github:mallory may not approve here"},
		{"\u0430da", 8, command, "the payload does not name what to ask for"}, // whose first letter is Cyrillic
		{"ada", 6, command, "the login is another person's by now"},           // not the account whom the API knows by this name
		{"mallory", 6, command + " github:ada", "may not approve here"},       // who names somebody else
		{"eve", 9, command, "github:eve has caused the event of " + run},
		{"ada", 1, "triphammer approve 22222222 @hammer", "nothing that waited in this thread has the code 22222222"},
		{"ada", 1, "> " + command, "none of the 2 automations"},
		{"ada", 1, "```\n" + command + "\n```", "none of the 2 automations"},
	} {
		if belt := reply(c.login, c.id, "created", c.body); !strings.Contains(belt, c.belt) {
			t.Errorf("%+v: %s", c, belt)
		}
	}
	if belt := reply("ada", 1, "edited", command); !strings.Contains(belt, "none of the 2 automations") {
		t.Errorf("an edited text: %s", belt)
	}
	if comments() != 0 {
		t.Fatal("somebody has approved it")
	}
	if belt := reply("ada", 1, "created", command+"\n\n@hammer thank you"); !strings.Contains(belt, run+" is approved by github:ada") {
		t.Fatal(belt)
	}
	w.eventually(func() bool { return comments() == 1 }, said)
	w.eventually(func() bool {
		_, bodies := g.seen()
		return slices.ContainsFunc(bodies, func(b string) bool { return strings.Contains(b, "Approved by github:ada.") })
	}, said)
	if belt := reply("ada", 1, "created", command); !strings.Contains(belt, run+" was approved by github:ada") {
		t.Errorf("once more: %s", belt)
	}
	if w.list(&all, "runs", "list"); len(all) != 1 {
		t.Errorf("a reply has started a run: %+v", all)
	}
	if log := w.run("", "audit", "list"); !strings.Contains(log, "reply github:ada") || !strings.Contains(log, "run.wrong_code") {
		t.Errorf("the audit log:\n%s", log)
	}
}
