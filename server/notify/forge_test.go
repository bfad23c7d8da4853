package notify

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triphammer/applier"
	"triphammer/schema"
)

// TestCommitStatus: each service is asked in its own way; what it cannot take now
// it is asked again, and what it refuses is given up, without a word of the
// credential.
func TestCommitStatus(t *testing.T) {
	for name, c := range map[string]struct{ path, credential, success, failure, pending string }{
		"github": {"/repos/team/factory/statuses/", "Bearer " + token, `"state":"success"`, `"state":"failure"`, `"state":"pending"`},
		"gitlab": {"/projects/team%2Ffactory/statuses/", token, `"state":"success"`, `"state":"failed"`, `"state":"pending"`},
		"gitea":  {"/repos/team/factory/statuses/", "token " + token, `"state":"success"`, `"state":"failure"`, `"state":"pending"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{heard: make(chan struct{}, 100), answer: func(n int) int {
				switch n {
				case 3:
					return http.StatusBadGateway
				case 6:
					return http.StatusForbidden
				}
				return http.StatusCreated
			}}
			server := httptest.NewServer(s)
			defer server.Close()
			changed := newWorld(t).start(&Commits{
				Service: name, Project: Project{API: server.URL + "/api", Path: "team/factory"}, TokenFile: tokenFile(t), BaseURL: "https://hammer.example.com",
				Hook: Hook{Client: server.Client()},
			}, nil)
			changed(applied("c1"))
			s.wait(t, 2)
			changed(applied("c1")) // nothing new
			changed(refused("c2"))
			s.wait(t, 3) // the first time in vain
			changed(applied("c3"))
			s.wait(t, 2) // the first is forbidden: not again
			changed(refusedFor("c4", schema.MissingSecret))
			s.wait(t, 2)
			changed(refusedFor("c5", schema.UnverifiedCommit)) // nothing of it was read
			s.wait(t, 1)
			pinned := applied("c1")
			pinned.Head, pinned.Pin = "c6", &applier.Pin{Commit: "c1", Reason: "because"}
			changed(pinned)
			s.wait(t, 1)
			const apply, validate = `"triphammer/apply"`, `"triphammer/validate"`
			want := [][]string{
				{"/api" + c.path + "c1", c.success, apply},
				{"/api" + c.path + "c1", c.success, validate, "warnings: 0"},
				{"c2", c.failure, "a.md:3", apply},
				{"c2", c.failure, "…", apply},
				{"c2", c.failure, "a.md:3", validate},
				{"c3", c.success, apply},
				{"c3", c.success, validate},
				{"c4", c.failure, apply},
				{"c4", c.success, validate, "warnings: 1"},
				{"c5", c.failure, apply},
				{"c6", c.pending, "because", apply},
			}
			if len(s.asked) != len(want) {
				t.Fatalf("asked %d times: %s", len(s.asked), strings.Join(s.asked, "\n"))
			}
			for i, parts := range want {
				for _, part := range append(parts, "POST ", c.credential+" {", `"https://hammer.example.com"`) {
					if !strings.Contains(s.asked[i], part) {
						t.Errorf("request %d lacks %s: %s", i, part, s.asked[i])
					}
				}
			}
		})
	}
	if _, err := New(nil, time.Now, nil).Commits(Commits{Service: "cvs"}); err == nil {
		t.Error("there is a service cvs")
	}
}

// TestProtection: each service is asked once whether the branch is protected; it
// is said if it is not, and only then.
func TestProtection(t *testing.T) {
	for service, path := range map[string]string{
		"github": "/repos/team/f/branches/release%2F1", "gitlab": "/projects/team%2Ff/repository/branches/release%2F1", "forgejo": "/repos/team/f/branches/release%2F1",
	} {
		for answer, want := range map[string]string{
			`{"name":"release/1","protected":false}`: "is not protected", `{"protected":true}`: "", `{"name":"x"}`: "does not say", `<html>`: "does not say",
		} {
			asked := make(chan string, 10)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, answer)
				asked <- fmt.Sprint(r.Method, " ", r.URL.EscapedPath(), " ", strings.Contains(r.Header.Get("Authorization")+r.Header.Get("Private-Token"), token))
			}))
			w := newWorld(t)
			changed := w.start(&Commits{
				Service: service, Project: Project{API: server.URL, Path: "team/f"}, TokenFile: tokenFile(t), Branch: "release/1", Hook: Hook{Client: server.Client()},
			}, nil)
			if got := <-asked; got != "GET "+path+" true" {
				t.Errorf("%s was asked %s", service, got)
			}
			changed(applied("c1"))
			if got := <-asked; !strings.HasPrefix(got, "POST ") { // what follows is sent after the answer was read
				t.Errorf("%s was asked %s", service, got)
			}
			if text := w.log.String(); want == "" && text != "" || !strings.Contains(text, want) {
				t.Errorf("%s, %s: logged %q", service, answer, text)
			}
			server.Close()
		}
	}
}

func TestProjectOf(t *testing.T) {
	for _, c := range []struct{ service, repository, api, path string }{
		{"github", "https://github.com/team/f.git", "https://api.github.com", "team/f"},
		{"github", "ssh://git@github.com/team/f.git", "https://api.github.com", "team/f"},
		{"github", "https://git.example.com:8443/team/f", "https://git.example.com:8443/api/v3", "team/f"},
		{"gitlab", "ssh://git@gitlab.com:2222/group/sub/f.git", "https://gitlab.com/api/v4", "group/sub/f"},
		{"gitea", "http://localhost:3000/team/f.git", "http://localhost:3000/api/v1", "team/f"},
		{"forgejo", "https://codeberg.org/team/f.git", "https://codeberg.org/api/v1", "team/f"},
		{"forgejo", "/srv/f.git", "", ""},
	} {
		p, err := ProjectOf(c.service, c.repository)
		if p.API != c.api || p.Path != c.path || (err != nil) != (c.api == "") {
			t.Errorf("%s: %+v, %v", c.repository, p, err)
		}
	}
}
