package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// TestPullAddress: where pull requests are opened.
func TestPullAddress(t *testing.T) {
	for _, tt := range []struct{ repository, kind, want string }{
		{"https://github.com/example/app", "GitHub", "https://api.github.com/repos/example/app/pulls"},
		{"https://git.example.com/example/app", "GitHub", "https://git.example.com/api/v3/repos/example/app/pulls"},
		{"https://github.com:8443/a/b", "GitHub", "https://github.com:8443/api/v3/repos/a/b/pulls"},
		{"https://gitlab.com/group/sub/app", "GitLab", "https://gitlab.com/api/v4/projects/group%2Fsub%2Fapp/merge_requests"},
		{"https://codeberg.org/example/app", "Forgejo", "https://codeberg.org/api/v1/repos/example/app/pulls"},
	} {
		u, err := url.Parse(tt.repository)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range pullAPIs {
			if a.name != tt.kind {
				continue
			}
			if got, err := a.address(u, "", a.pulls(u.Path)); err != nil || got.String() != tt.want {
				t.Errorf("%s: %v %v, want %q", tt.repository, got, err, tt.want)
			}
		}
	}
}

// pulling is a gateway whose forge opens pull requests as GitHub Enterprise Server does.
func pulling(t *testing.T, readOnly bool, answer http.HandlerFunc) *gatewayWorld {
	t.Helper()
	w := startGateway(t, readOnly)
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/api/v3/meta":
			rw.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(rw, `{"installed_version": "3.15.0"}`)
		case r.URL.Path == "/api/v3/repos/example/app/pulls":
			answer(rw, r)
		default:
			return false
		}
		return true
	})
	return w
}

// TestPullForges: a run opens a pull request on each kind of forge with the same request. The
// forges answer as their descriptions say: GitHub's of POST /repos/{owner}/{repo}/pulls and GET /meta,
// GitLab's of POST /projects/:id/merge_requests and GET /version, and the Swagger file of Forgejo.
func TestPullForges(t *testing.T) {
	const sent = `{"title": "Repair", "head": "triphammer/repair", "base": "main", "body": "It was broken.", "draft": true}`
	type answer struct {
		status int
		text   string
	}
	gitlabNone, forgejoNone := answer{404, `{"error":"404 Not Found"}`}, answer{404, `{"message":"","url":"https://forgejo.example.com/api/swagger"}`}
	for name, tt := range map[string]struct {
		answers map[string]answer // by method and path as sent
		none    answer            // for other paths
		sent    string            // what the forge is to get; JSON
		want    string
	}{
		"GitHub Enterprise Server": {map[string]answer{
			"GET /api/v3/meta": {200, `{"verifiable_password_authentication": true, "installed_version": "3.15.0"}`}, "POST /api/v3/repos/example/app/pulls": {201, `{"html_url": "https://ghe.example.com/example/app/pull/7"}`},
		}, answer{404, `{"message":"Not Found"}`}, sent, "https://ghe.example.com/example/app/pull/7\n"},
		"GitHub Enterprise Server, not to be asked": {map[string]answer{
			"GET /api/v3/meta": {403, `{"message":"Resource not accessible by personal access token"}`}, "POST /api/v3/repos/example/app/pulls": {422, `{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"invalid","field":"head"}]}`},
		}, answer{404, `{"message":"Not Found"}`}, sent, "no pull request was opened: 422 Unprocessable Entity: Validation Failed: head is invalid"},
		"GitLab": {map[string]answer{
			"GET /api/v4/version": {200, `{"version":"17.5.0","revision":"abc"}`}, "POST /api/v4/projects/example%2Fapp/merge_requests": {201, `{"iid": 3, "web_url": "https://gitlab.example.com/example/app/-/merge_requests/3"}`},
		}, gitlabNone, `{"title":"Draft: Repair","source_branch":"triphammer/repair","target_branch":"main","description":"It was broken."}`, "https://gitlab.example.com/example/app/-/merge_requests/3\n"},
		"GitLab, there is already one": {map[string]answer{
			"GET /api/v4/version": {200, `{"version":"17.5.0"}`}, "POST /api/v4/projects/example%2Fapp/merge_requests": {409, `{"message":["Another open merge request already exists for this source branch: !3"]}`},
		}, gitlabNone, `{"title":"Draft: Repair","source_branch":"triphammer/repair","target_branch":"main","description":"It was broken."}`, "409 Conflict: Another open merge request already exists for this source branch: !3"},
		"GitLab, may not": {map[string]answer{
			"GET /api/v4/version": {401, `{"message":"401 Unauthorized"}`}, "POST /api/v4/projects/example%2Fapp/merge_requests": {403, `{"error":"insufficient_scope","error_description":"The request requires higher privileges than provided by the access token."}`},
		}, gitlabNone, `{"title":"Draft: Repair","source_branch":"triphammer/repair","target_branch":"main","description":"It was broken."}`, "insufficient_scope (the secret FORGE takes a token that may write pull requests of"},
		"Forgejo": {map[string]answer{
			"GET /api/v1/version": {200, `{"version":"11.0.1+gitea-1.22.0"}`}, "POST /api/v1/repos/example/app/pulls": {201, `{"number": 5, "html_url": "https://forgejo.example.com/example/app/pulls/5"}`},
		}, forgejoNone, `{"title":"WIP: Repair","head":"triphammer/repair","base":"main","body":"It was broken."}`, "https://forgejo.example.com/example/app/pulls/5\n"},
		"Forgejo, a token for repositories alone": {map[string]answer{
			"GET /api/v1/version": {403, `{"message":"token does not have at least one of required scope(s): [read:misc]"}`}, "POST /api/v1/repos/example/app/pulls": {409, `{"message":"pull request already exists for these targets [id: 1]"}`},
		}, forgejoNone, `{"title":"WIP: Repair","head":"triphammer/repair","base":"main","body":"It was broken."}`, "409 Conflict: pull request already exists for these targets"},
		"another forge": {nil, answer{404, `nothing`}, "", "answers neither as GitHub Enterprise Server nor as GitLab or Forgejo"},
		"an answer":     {map[string]answer{"GET /api/v4/version": {200, `{}`}, "POST /api/v4/projects/example%2Fapp/merge_requests": {201, `{}`}}, gitlabNone, "", "no pull request was opened: 201 Created"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startGateway(t, false)
			w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
				a, known := tt.answers[r.Method+" "+r.URL.EscapedPath()]
				if !known {
					a = tt.none
				}
				if r.Header.Get("Authorization") != "Bearer "+forgeToken {
					t.Errorf("%s %s comes with %q", r.Method, r.URL, r.Header)
				}
				if body, _ := io.ReadAll(r.Body); r.Method == http.MethodPost && tt.sent != "" && !sameJSON(string(body), tt.sent) {
					t.Errorf("the forge got %s, want %s", body, tt.sent)
				}
				rw.Header().Set("Content-Type", "application/json")
				if !strings.HasPrefix(a.text, "{") {
					rw.Header().Set("Content-Type", "text/html")
				}
				rw.WriteHeader(a.status)
				_, _ = io.WriteString(rw, a.text)
				return true
			})
			for range 2 {
				if _, text := w.send(http.MethodPost, "/example/app/pulls", w.bearer(), sent); !strings.Contains(text, tt.want) {
					t.Errorf("%q, want %q", text, tt.want)
				}
			}
			probes := strings.Count(strings.Join(w.seen(), " "), "GET ")
			if most := map[bool]int{false: 3, true: 6}[tt.answers == nil]; probes > most {
				t.Errorf("the host was asked %d times what it is", probes)
			}
		})
	}
	w := startGateway(t, false)
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost || r.URL.Path != "/api/v1/version" {
			rw.WriteHeader(http.StatusNotFound)
		}
		return true
	})
	for _, body := range []string{"", "[]", "{}", `{"title":"t","head":"h"}`, `{"title":"t","head":"h","base":"b","labels":[1]}`, `{"title":1,"head":"h","base":"b"}`} {
		if resp, text := w.send(http.MethodPost, "/example/app/pulls", w.bearer(), body); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, "for Forgejo it is a JSON object with title, head and base") {
			t.Errorf("%q: %s %q", body, resp.Status, text)
		}
	}
	for _, r := range w.seen() {
		if strings.HasPrefix(r, http.MethodPost) {
			t.Errorf("the forge was asked: %s", r)
		}
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestPullGuide: the command of the guide opens a pull request, and notes its address.
func TestPullGuide(t *testing.T) {
	var got map[string]string
	w := pulling(t, false, func(rw http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &got); err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+forgeToken {
			t.Errorf("%v: GitHub gets %s %v %q", err, r.Method, r.Header, text)
		}
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, `{"url": "https://api.github.com/repos/example/app/pulls/7", "html_url": "https://github.com/example/app/pull/7"}`)
	})
	guide, err := os.ReadFile("../../../docs/pushes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "```sh pull\n")
	command, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the guide has no command")
	}
	work := filepath.Join(w.root, "work")
	gittest.Git(t, w.root, "init", "-q", work)
	gittest.Git(t, work, "remote", "add", "origin", w.forge.URL+"/example/app.git")
	out, err := w.inside(work, "sh", "-ec", command)
	if err != nil || out != "https://github.com/example/app/pull/7\n" || got["head"] != "triphammer/repair-build" || got["base"] != "main" || got["title"] == "" {
		t.Errorf("%v: %q, and GitHub got %v", err, out, got)
	}
	if links, err := os.ReadFile(filepath.Join(w.root, "links")); err != nil || string(links) != out {
		t.Errorf("%v: the links are %q", err, links)
	}
}

// TestPullRefused: why there is no pull request, and what never becomes one.
func TestPullRefused(t *testing.T) {
	const path = "/example/app/pulls"
	for _, tt := range []struct {
		name   string
		status int
		text   string
		want   string
	}{
		{
			"exists", http.StatusUnprocessableEntity, `{"message": "Validation Failed", "errors": [{"message": "A pull request already exists for a:b."}, {"field": "base", "code": "invalid"}]}`,
			"422 Unprocessable Entity: Validation Failed: A pull request already exists for a:b.: base is invalid",
		},
		{"may not", http.StatusForbidden, `{"message": "Resource not accessible by personal access token"}`, "the secret FORGE takes a token that may write pull requests of"},
		{"the token comes back", http.StatusUnauthorized, `{"message": "bad ` + forgeToken + `"}`, "bad [redacted]"},
		{"no JSON", http.StatusCreated, `<html>`, "no pull request was opened: 201 Created"},
		{"moved", http.StatusTemporaryRedirect, `{"message": "Moved"}`, "no pull request was opened: 307"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := pulling(t, false, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Location", "/repositories/1/pulls")
				rw.WriteHeader(tt.status)
				_, _ = io.WriteString(rw, tt.text)
			})
			if resp, text := w.send(http.MethodPost, path, w.bearer(), `{"title": "x"}`); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, tt.want) {
				t.Errorf("%s %q, want %q", resp.Status, text, tt.want)
			}
		})
	}
	never := func(_ http.ResponseWriter, r *http.Request) { t.Errorf("GitHub was asked: %s %s", r.Method, r.URL) }
	w := pulling(t, true, never)
	if resp, text := w.send(http.MethodPost, path, w.bearer(), "{}"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("read-only: %s %q", resp.Status, text)
	}
	w = pulling(t, false, never)
	for name, ask := range map[string][4]string{
		"another method": {http.MethodGet, path, w.bearer(), ""}, "one of them": {http.MethodPost, path + "/7/merge", w.bearer(), "{}"},
		"no token": {http.MethodPost, path, "", "{}"}, "too long": {http.MethodPost, path, w.bearer(), strings.Repeat(" ", maxPull+1)},
		"another repository": {http.MethodPost, "/example/app2/pulls", w.bearer(), "{}"},
	} {
		if resp, text := w.send(ask[0], ask[1], ask[2], ask[3]); resp.StatusCode < 400 {
			t.Errorf("%s: %s %q", name, resp.Status, text)
		}
	}
}

// TestPullBounds: with outputs, a pull request obeys createPullRequest on each kind of forge: what may not be is
// refused with the bound, and what may be gets what the bounds say (SPEC 23.3).
func TestPullBounds(t *testing.T) {
	const sent = `{"title": "Repair @you, fixes https://x.example/1 and GH-1", "head": "triphammer/repair", "body": "/close\nFixes #1 ![x](https://x.example/y)\n` + "```" + `@all"}`
	const body = "> ````text\n> /close\n> Fixes #\u20601 ![x](https://\u2060x.example/y)\n> ```@\u2060all\n> ````"
	const title = "[bot] Repair @\u2060you, fixes https://\u2060x.example/1 and GH-\u20601"
	bounds := output.Bounds{Max: 2, TitlePrefix: "[bot] ", Labels: []string{"bot", "x"}, Draft: true}
	for _, tt := range []struct {
		kind, probe, path, label string
		want                     map[string]any
		labels                   string
	}{
		{"GitHub", "/api/v3/meta", "/api/v3/repos/example/app/pulls", "POST /api/v3/repos/example/app/issues/7/labels", map[string]any{"title": title, "body": body, "head": "triphammer/repair", "base": "main", "draft": true}, `{"labels":["bot","x"]}`},
		{"GitLab", "/api/v4/version", "/api/v4/projects/example%2Fapp/merge_requests", "PUT /api/v4/projects/example%2Fapp/merge_requests/7", map[string]any{"title": "Draft: " + title, "description": body, "source_branch": "triphammer/repair", "target_branch": "main"}, `{"add_labels":"bot,x"}`},
		{"Forgejo", "/api/v1/version", "/api/v1/repos/example/app/pulls", "POST /api/v1/repos/example/app/issues/7/labels", map[string]any{"title": "WIP: " + title, "body": body, "head": "triphammer/repair", "base": "main"}, `{"labels":["bot","x"]}`},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			w, work := pushWorld(t, task.Pushes{Outputs: output.Allowed{output.Pull: bounds}, Opened: []output.Request{{Kind: output.Pull}}})
			w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
			w.must(work, "push", "-q", "origin", "HEAD:triphammer/repair")
			refuse := true
			w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
				text, _ := io.ReadAll(r.Body)
				rw.Header().Set("Content-Type", "application/json")
				switch asked := r.URL.EscapedPath(); {
				case !strings.HasPrefix(asked, "/api/"):
					return false
				case asked == tt.probe:
				case asked == tt.path && refuse:
					refuse = false
					rw.WriteHeader(http.StatusUnprocessableEntity)
				case asked == tt.path:
					var got map[string]any
					if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, tt.want) {
						t.Errorf("the forge got %v, want %v", got, tt.want)
					}
					rw.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(rw, `{"number": 7, "iid": 7, "html_url": "https://x.example/7", "web_url": "https://x.example/7"}`)
				case r.Method+" "+asked == tt.label:
					if string(text) != tt.labels {
						t.Errorf("labels %s, want %s", text, tt.labels)
					}
				default:
					rw.WriteHeader(http.StatusNotFound)
				}
				return true
			})
			for _, one := range []struct{ sent, want string }{
				{`{"title":"T","body":"B","head":"main"}`, `no run of this automation has pushed a branch "main"`},
				{`{"title":"T","body":"B","head":"evil:triphammer/repair"}`, "head is no name of a branch of the repository"},
				{`{"title":"T\nU","body":"B","head":"triphammer/repair"}`, "title has more than one line"},
				{`{"title":"T","head":"triphammer/repair"}`, "body is missing"},
				{`{"title":"T","body":"B","head":"triphammer/repair","head_repo":"evil/app"}`, `unknown field "head_repo"`},
				{sent, "422"}, // refused for good, it does not count
				{sent, "https://x.example/7\n"},
				{sent, "createPullRequest: the automation allows 2 in a run, and 2 came before"},
			} {
				if _, text := w.send(http.MethodPost, "/example/app/pulls", w.bearer(), one.sent); !strings.Contains(text, one.want) {
					t.Errorf("%s: %q, want %q", one.sent, text, one.want)
				}
			}
			if n := strings.Count(strings.Join(w.seen(), "\n"), strings.Fields(tt.label)[1]); n == 0 {
				t.Errorf("nothing was labelled: %q", w.seen())
			}
			w.end()
			done := slices.DeleteFunc(w.pulled, func(e event.Request) bool { return e.Done == "" })
			if len(done) != 1 || done[0].Done != "https://x.example/7" || done[0].Refused != "" {
				t.Errorf("told %+v", w.pulled)
			}
		})
	}
	for want, rules := range map[string]task.Pushes{
		`the automation allows no "createPullRequest": it allows comment`: {Outputs: output.Allowed{"comment": {}}},
		"waits for the approval of a person":                              {Waits: time.Hour},
	} {
		w, _ := pushWorld(t, rules)
		if resp, text := w.send(http.MethodPost, "/example/app/pulls", w.bearer(), sent); resp.StatusCode < 400 || !strings.Contains(text, want) {
			t.Errorf("%s %q, want %q", resp.Status, text, want)
		}
		for _, r := range w.seen() {
			if strings.Contains(r, "/api/") {
				t.Errorf("the forge was asked: %s", r)
			}
		}
	}
}

// TestPullUnknown: a pull request whose outcome nobody knows counts.
func TestPullUnknown(t *testing.T) {
	w, work := pushWorld(t, task.Pushes{Outputs: output.Allowed{output.Pull: {}}})
	w.must(work, "commit", "-q", "--allow-empty", "-m", "mine")
	w.must(work, "push", "-q", "origin", "HEAD:triphammer/repair")
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		rw.Header().Set("Content-Type", "application/json")
		return strings.HasPrefix(r.URL.Path, "/api/")
	})
	for _, want := range []string{"cannot be reached", "allows 1 in a run, and 1 came before"} {
		if _, text := w.send(http.MethodPost, "/example/app/pulls", w.bearer(), `{"title":"T","body":"B","head":"triphammer/repair"}`); !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestPullBelow: a forge that is not at the root of its host opens pull requests, too, and a token that it does not
// take is forgotten.
func TestPullBelow(t *testing.T) {
	minted, forgotten := 0, 0
	forge := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		switch old := r.Header.Get("Authorization") == "Bearer token1"; r.Method + " " + r.URL.EscapedPath() {
		case "GET /git/api/v4/version":
		case "POST /git/api/v4/projects/group%2Fapp/merge_requests":
			rw.WriteHeader(map[bool]int{true: http.StatusUnauthorized, false: http.StatusCreated}[old])
			_, _ = io.WriteString(rw, `{"iid": 3, "web_url": "https://x.example/3"}`)
		default:
			rw.WriteHeader(http.StatusNotFound)
		}
	}))
	defer forge.Close()
	g, err := NewGateway(GatewayConfig{Repositories: []Repository{{
		URL: forge.URL + "/git/group/app.git", Secret: "FORGE", Mint: func(context.Context) (task.Minted, error) {
			if minted == forgotten {
				minted++
			}
			return task.Minted{Token: secret.New(fmt.Sprint("token", minted)), Forget: func() { forgotten++ }}, nil
		},
	}}, Report: func(event.Egress) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.transport.CloseIdleConnections()
	for _, want := range []string{"401 Unauthorized", "https://x.example/3\n", "https://x.example/3\n"} {
		rw := httptest.NewRecorder()
		g.openPull(rw, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"title":"T","head":"h","base":"b"}`)), g.served[0])
		if got := rw.Body.String(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if minted != 2 || forgotten != 1 {
		t.Errorf("%d tokens were made, %d forgotten", minted, forgotten)
	}
}
