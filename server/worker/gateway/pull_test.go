package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
)

// TestPullsURL: pull requests are opened by GitHub alone, at the address of its API.
func TestPullsURL(t *testing.T) {
	for repository, want := range map[string]string{
		"https://github.com/example/app.git": "https://api.github.com/repos/example/app/pulls",
		"https://github.com/example/app":     "https://api.github.com/repos/example/app/pulls",
		"https://gitlab.com/example/app.git": "", "https://github.com.example/a/b": "", "http://github.com/a/b": "", "https://github.com:8443/a/b": "",
	} {
		u, err := url.Parse(repository)
		if err != nil {
			t.Fatal(err)
		}
		if got := pullsURL(u); (got == nil) != (want == "") || got != nil && got.String() != want {
			t.Errorf("%s: %v, want %q", repository, got, want)
		}
	}
}

// pulling is a gateway whose forge opens pull requests as GitHub does.
func pulling(t *testing.T, readOnly bool, answer http.HandlerFunc) *gatewayWorld {
	t.Helper()
	w := startGateway(t, readOnly)
	api, err := url.Parse(w.forge.URL + "/repos/example/app/pulls")
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.served[0].pulls = api
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == api.Path {
			answer(rw, r)
		}
		return r.URL.Path == api.Path
	})
	return w
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
	guide, err := os.ReadFile("../../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "```sh pull-github\n")
	command, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the guide has no command")
	}
	work := filepath.Join(w.root, "work")
	gittest.Git(t, w.root, "init", "-q", work)
	gittest.Git(t, work, "remote", "add", "origin", w.forge.URL+"/example/app.git")
	out, err := w.inside(work, "sh", "-ec", command)
	if err != nil || out != "https://github.com/example/app/pull/7\n" || got["head"] != "repair-build" || got["base"] != "main" || got["title"] == "" {
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
