package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
)

// wayForge is a GitHub Enterprise Server on this machine: Git, and the part of the API that changes something.
type wayForge struct {
	gitHubChanges
	*httptest.Server
	bare, token string
	pushed      func(serve func()) // takes each request that pushes; nil: it is served
}

func newWayForge(t *testing.T) *wayForge {
	t.Helper()
	f := &wayForge{token: "ghp_" + strings.Repeat("ways", 9)}
	root := t.TempDir()
	f.bare = filepath.Join(root, "acme", "api.git")
	for _, bare := range []string{f.bare, filepath.Join(root, "acme", "other.git")} {
		gittest.Git(t, root, "init", "-q", "--bare", "-b", "main", bare)
		gittest.Git(t, bare, "config", "http.receivepack", "true")
		gittest.Git(t, bare, "config", "receive.advertisePushOptions", "true")
	}
	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, work, "push", "-q", f.bare, "main")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "theirs")
	gittest.Git(t, work, "push", "-q", f.bare, "HEAD:triphammer/theirs")
	backend := gittest.Serve(t, root).Backend
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, is := strings.CutPrefix(r.URL.Path, "/api/v3"); is {
			r.URL.Path = path
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Header.Get("Authorization") != "Bearer "+f.token:
				w.WriteHeader(http.StatusUnauthorized)
			case path == "/meta":
				_, _ = io.WriteString(w, `{}`)
			case path == "/user":
				_, _ = io.WriteString(w, `{"id":9,"login":"hammer"}`)
			default:
				f.gitHubChanges.ServeHTTP(w, r)
			}
			return
		}
		if _, token, _ := r.BasicAuth(); token != f.token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serve := func() { backend.ServeHTTP(w, r) }
		if f.pushed != nil && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			f.pushed(serve)
			return
		}
		serve()
	}))
	t.Cleanup(f.Close)
	return f
}
