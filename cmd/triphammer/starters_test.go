package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// TestStarters: only whom startedBy names starts runs of an automation. GitHub is asked about the others; the
// belt says who came and who may; and who may not start counts for nothing (SPEC 24.1).
func TestStarters(t *testing.T) {
	token := "ghp_" + strings.Repeat("people", 6)
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+token {
			t.Errorf("asked with %q", got)
		}
		switch r.URL.Path {
		case "/api/repos/acme/api/collaborators/ada/permission":
			_, _ = fmt.Fprint(w, `{"permission":"write","user":{"login":"ada","id":1}}`)
		case "/api/repos/acme/api/collaborators/mallory/permission":
			_, _ = fmt.Fprint(w, `{"permission":"read","user":{"login":"mallory","id":66}}`)
		case "/api/repos/acme/api/collaborators/renamed/permission": // the login of Ada's is somebody else's now
			_, _ = fmt.Fprint(w, `{"permission":"admin","user":{"login":"renamed","id":1}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer forge.Close()
	automation := func(keys string) string {
		return "---\nenvironmentId: env\n" + keys + "\ntriggers: [{provider: github, event: issue_mentioned}]\n---\nDo it.\n"
	}
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml":    "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "/api\n",
		"automations/writes.md": automation("startedBy: [write]\nmaxRunsPerHour: 2\nmaxRunsPerPersonPerHour: 1"),
		"automations/named.md":  automation("startedBy: [Grace]"),
	})
	w.run(token, "secrets", "set", "API_TOKEN")
	w.start()
	address := w.url("hook")
	body := func(login string, id, issue int) string {
		return fmt.Sprintf(`{"action":"created","repository":{"id":1,"full_name":"acme/api"},"sender":{"login":%q,"id":%d,"type":"User"},`+
			`"issue":{"id":%d,"number":%[3]d,"user":{"id":5}},"comment":{"id":%[3]d,"body":"@bot please","user":{"id":%[2]d},"author_association":"NONE"}}`, login, id, issue)
	}
	n := 0
	send := func(login string, id int) string {
		t.Helper()
		n++
		sent := []byte(body(login, id, n))
		header := http.Header{"X-Github-Event": {"issue_comment"}, "X-Github-Delivery": {fmt.Sprint(n)}}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: sent}); err != nil {
			t.Fatal(err)
		}
		if a := post(t, http.MethodPost, address, bytes.NewReader(sent), header); a.status != http.StatusAccepted {
			t.Fatalf("%+v", a)
		}
		var all []api.Delivery
		w.list(&all, "deliveries", "list")
		return all[0].ID
	}
	shows := func(id string, texts ...string) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			shown := w.run("", "deliveries", "explain", id)
			if !strings.Contains(shown, "waiting for") {
				mentions(t, shown, texts...)
				return
			}
			select {
			case <-deadline:
				t.Fatalf("it waits:\n%s", shown)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for range 3 { // which must not use up maxRunsPerHour
		shows(send("mallory", 66), "startedBy", `"mallory", who is "read"`, "sender permission of acme/api mallory 66")
	}
	shows(send("renamed", 2), "the login is another person's by now")
	shows(send("unknown", 3), "answered 404")
	shows(send("ada", 1), "1 automation", "(writes)")
	shows(send("ada", 1), "writes started nothing: github:ada has started 1 run of it within an hour")
	shows(send("grace", 7), "(named)")
	var runs []api.Run
	w.list(&runs, "runs", "list", "--limit", "0")
	got := make(map[string]string)
	for _, r := range runs {
		got[r.Automation] += r.Person
	}
	var hers []api.Run
	if w.list(&hers, "runs", "list", "--person", "github:ada"); len(hers) != 1 || hers[0].Automation != "writes" {
		t.Errorf("of ada: %+v", hers)
	}
	if len(runs) != 2 || got["writes"] != "github:ada" || got["named"] != "github:grace" {
		t.Errorf("%d runs, for %v", len(runs), got)
	}
	try := func(login string, id int, more ...string) []string {
		return append([]string{"automations", "test", "writes", "--header", "X-GitHub-Event: issue_comment", "--payload", body(login, id, 99)}, more...)
	}
	mentions(t, w.fails(exit.Bad, try("ada", 1)...), "Not known", "--ask asks GitHub's API")
	mentions(t, w.run("", try("ada", 1, "--ask")...), "Would trigger")
	mentions(t, w.fails(exit.Bad, try("mallory", 66, "--ask")...), "Would not trigger", "startedBy")
	if strings.Contains(w.logs.String(), token) {
		t.Error("the log has the token")
	}
}
