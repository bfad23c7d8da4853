package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// gitHub plays the API of GitHub: it lists the files of pull requests.
type gitHub struct {
	t     *testing.T
	token string

	mu    sync.Mutex
	asked map[string]int
	hang  chan struct{} // closed when pull request 6 may be answered
	hung  chan struct{} // gets something when it is asked for
}

func (g *gitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/repos/acme/api/pulls/"), "/files")
	g.mu.Lock()
	g.asked[number]++
	times, hang := g.asked[number], g.hang
	g.mu.Unlock()
	if got := r.Header.Get("Authorization"); got != "Bearer "+g.token {
		g.t.Errorf("asked with %q", got)
	}
	switch {
	case number == "3":
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
	case number == "4" && times == 1:
		http.Error(w, "oops", http.StatusInternalServerError)
	case number == "5" && times == 1:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	case number == "2":
		_, _ = fmt.Fprint(w, `[{"filename":"docs/api/x.md"}]`)
	case number == "6":
		select {
		case g.hung <- struct{}{}:
		default:
		}
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
		fallthrough
	default:
		_, _ = fmt.Fprint(w, `[{"filename":"README.md"},{"filename":"api/new.go","previous_filename":"api/old.go"}]`)
	}
}

func (g *gitHub) times(number string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked[number]
}

// TestLookups: automations that need the files of a pull request wait for GitHub's answer,
// while others start at once; each starts once, also if the server is killed while it waits
// (SPEC 16.3).
func TestLookups(t *testing.T) {
	g := &gitHub{t: t, token: "ghp_" + strings.Repeat("lookup", 6), asked: make(map[string]int), hang: make(chan struct{}), hung: make(chan struct{}, 1)}
	forge := httptest.NewServer(g)
	defer forge.Close()
	automation := func(filter string) string {
		return "---\nenvironmentId: env\ntriggers: [{provider: github, event: pull_request_opened, filter: {" + filter + "}}]\n---\nDo it.\n"
	}
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml":  "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "/api\n",
		"automations/all.md":  automation("repos: [acme/api]"),
		"automations/api.md":  automation("paths: ['api/**']"),
		"automations/old.md":  automation("paths: [api/old.go]"),
		"automations/docs.md": automation("paths: ['docs/*'], repos: [other/api]"),
	})
	w.run(g.token, "secrets", "set", "API_TOKEN")
	w.start()
	if used := w.run("", "secrets", "list"); !strings.Contains(used, "hook") {
		t.Errorf("secrets list does not tell who uses the token:\n%s", used)
	}
	address := w.url("hook")
	send := func(number int) string {
		t.Helper()
		body := fmt.Sprintf(`{"action":"opened","repository":{"id":1,"full_name":"acme/api"},"pull_request":{"id":%d,"number":%d,"user":{"login":"ada"}}}`, number, number)
		header := http.Header{"X-Github-Event": {"pull_request"}, "X-Github-Delivery": {fmt.Sprint(number)}}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		if a := post(t, http.MethodPost, address, bytes.NewReader([]byte(body)), header); a.status != http.StatusAccepted {
			t.Fatalf("%+v", a)
		}
		var all []api.Delivery
		w.list(&all, "deliveries", "list")
		return all[0].ID
	}
	shows := func(id string, texts ...string) {
		t.Helper()
		shown := ""
		deadline := time.After(30 * time.Second)
		for {
			shown = w.run("", "deliveries", "explain", id)
			missing := ""
			for _, text := range texts {
				if !strings.Contains(shown, text) {
					missing = text
				}
			}
			if missing == "" {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("%q is not in\n%s", missing, shown)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	shows(send(1), "3 automations", "answered at", "(api)", "(old)", "(all)")
	if figures := post(t, http.MethodGet, "http://"+w.addr+"/metrics", nil, nil).body; !strings.Contains(figures, `triphammer_sender_lookups_total{outcome="answered",provider="github"} 1`) {
		t.Error("the metrics do not count the question")
	}
	if n := g.times("1"); n != 1 {
		t.Errorf("two automations on one question asked %d times", n)
	}
	shows(send(2), "1 automation", "answered at", "(all)", "docs/api/x.md")
	asks := func(number int, more ...string) []string {
		payload := fmt.Sprintf(`{"action":"opened","repository":{"full_name":"acme/api"},"pull_request":{"number":%d}}`, number)
		return append([]string{"automations", "test", "api", "--header", "X-GitHub-Event: pull_request", "--payload", payload}, more...)
	}
	mentions(t, w.fails(exit.Bad, asks(7)...), "Not known", "--ask asks GitHub's API")
	mentions(t, w.run("", asks(7, "--ask")...), "Would trigger", "GitHub's API was asked for the pull request files of acme/api 7")
	mentions(t, w.fails(exit.Bad, asks(2, "--ask")...), "Would not trigger", "docs/api/x.md")
	shows(send(3), "did not tell the pull request files of acme/api 3: answered 404")
	shows(send(4), "3 automations", "answered at")
	shows(send(5), "3 automations", "answered at")

	last := send(6)
	<-g.hung
	shows(last, "(all)", "waiting for GitHub's API")
	w.kill()
	close(g.hang)
	w.start()
	shows(last, "3 automations", "answered at")
	var runs []api.Run
	w.list(&runs, "runs", "list", "--limit", "0")
	started := make(map[string]int)
	for _, r := range runs {
		started[r.DeliveryID+" "+r.Automation]++
	}
	for run, n := range started {
		if n != 1 {
			t.Errorf("%s was started %d times", run, n)
		}
	}
	if len(started) != 3*4+2 {
		t.Errorf("%d runs: %v", len(started), started)
	}
	if strings.Contains(w.logs.String(), g.token) {
		t.Error("the log has the token")
	}
}
